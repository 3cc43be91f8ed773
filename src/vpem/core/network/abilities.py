"""What some summations define besides their sum; the defaults serve all others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vpem.core.network.hubs import Position
from vpem.core.network.parties import Network
from vpem.core.network.sums import (
    NO_MEMORY,
    SINGLE,
    Array,
    Audience,
    Lengths,
    Memory,
    Payload,
    Place,
    Round,
    Series,
    Shape,
)


class Staged:
    """Rounds that depend on what is carried from sum to sum."""

    @property
    def n_stages(self) -> int:
        """Number of stages, which differ in their rounds; see `stage`."""
        return 1

    def stage(self, shape: Shape, series: Series, carry: Memory) -> int:  # noqa: ARG002 (for others to use)
        """Stage of the next sum, where rounds depend on the carry; the same number for all agents."""
        return 0

    def later_stage(self, shape: Shape, series: Series) -> int:
        """Stage of the later sums of a series, without rollbacks; for plans."""
        return self.stage(shape, series, NO_MEMORY)

    def schedule_in(
        self: Any,
        stage: int,  # noqa: ARG002 (likewise)
        network: Network,
        position: Position,
        *,
        values: bool,
        decision: bool,
        audience: Audience = None,
    ) -> Sequence[Round[Position]]:
        """Rounds of one agent in a stage; stage 0 has those of `schedule`."""
        found: Sequence[Round[Position]] = self.schedule(
            network, position, values=values, decision=decision, audience=audience
        )
        return found


class Remembering:
    """Memory from one sum of a series to the next."""

    @property
    def is_guarded(self) -> bool:
        """True if a falling likelihood indicates that the carry is too far off; see `retreat`."""
        return False

    def retreat(self, carry: Memory) -> Memory:  # noqa: ARG002 (likewise)
        """Return the carry after a rollback to earlier parameters."""
        return NO_MEMORY

    def blur(self, carry: Memory) -> float:  # noqa: ARG002 (likewise)
        """Bound on the rounding of the log-ratios in the last sums of a series; the same number for all agents.

        EM has not converged while rounding can hide a change of `tol`.
        """
        return 0.0

    def changes(self, state: Memory) -> Memory:  # noqa: ARG002 (likewise)
        """Changes of the carry by a finished sum, for `redo`; nothing if they are not small."""
        return NO_MEMORY

    def redo(self, carry: Memory, changes: Memory) -> Memory:  # noqa: ARG002 (likewise)
        """Return the carry after a sum, to the bit, from the carry before it and its changes."""
        return carry


class Keyed:
    """Keys, masks and tags."""

    @property
    def is_masked(self) -> bool:
        """True if agents see nothing of a party's terms but the sums over all parties."""
        return False

    @property
    def has_tags(self) -> bool:
        """True if messages are authenticated; see `tag`."""
        return False

    def least_holders(self, network: Network) -> int:  # noqa: ARG002 (some depend on it)
        """Number of blocks that must have a row for it to be added; 0 if holders are not counted."""
        return 0

    @property
    def refuses_repeats(self) -> bool:
        """True if rows must not be added again with other blocks than before; needs `least_holders`."""
        return False

    def greet(self) -> tuple[bytes, Any]:
        """Return the greeting of an agent, such as a public key, and its secret.

        Called once per epoch. The secret is never saved: a restored agent has none until the next epoch.
        """
        return b"", None

    def pack_secret(self, secret: Any) -> bytes:  # noqa: ARG002 (of those that have one)
        """Encode the secret of `greet`, for an agent that continues at once in another process of its own."""
        return b""

    def unpack_secret(self, content: bytes) -> Any:  # noqa: ARG002 (likewise)
        """Inverse of `pack_secret`."""
        return None

    def tag(self, place: Place, peer: Position, parts: Sequence[bytes | memoryview]) -> bytes:  # noqa: ARG002
        """Authentication tag of a message on the link with a peer, at most 16 bytes, the same at both ends.

        Raises
        ------
        WrongMessageError
            If the peer's greeting is invalid.
        """
        return b""

    def told(self, state: Memory, values: Array) -> bytes:  # noqa: ARG002 (likewise)
        """Content of a sum on which later masks depend."""
        return values.tobytes()


class Planned:
    """Sizes and costs that are known before a run."""

    def payload(self, network: Network | None, shape: Shape) -> Payload:  # noqa: ARG002 (some depend on it)
        """Type and length of messages, known to a receiver before it allocates memory.

        Without a network, which is unknown until all have met: the maximum.
        """
        return Payload(shape.n_values)

    def lengths(self, network: Network, shape: Shape, series: Series = SINGLE, stage: int = 0) -> Lengths:  # noqa: ARG002
        """Average length of the messages of a sum, for plans."""
        payload = self.payload(network, shape)
        most = payload.n_values * np.dtype(payload.dtype).itemsize
        fewest = most if payload.is_fixed else 0
        return Lengths(fewest, (fewest, most), most)

    def variants(self) -> list[Any]:
        """Return the summations of this class with the arguments that a plan compares."""
        return [self]

    def rounds_needed(self, network: Network, tolerance: float) -> int | None:  # noqa: ARG002 (for others to use)
        """Rounds after which the error factor would be at most `tolerance`; None if rounds do not change it."""
        return None
