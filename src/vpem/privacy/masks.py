"""Masked sums on a star or a tree, of which only the total is readable."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.around import Around
from vpem.core.network.hubs import Position
from vpem.core.network.parties import Network
from vpem.core.network.quantization import most_compressed
from vpem.core.network.sums import (
    NO_MEMORY,
    SINGLE,
    Array,
    Lengths,
    Memory,
    Payload,
    Place,
    Series,
    Shape,
    SumKind,
    WrongMessageError,
)
from vpem.privacy import fixed_point, masked_deltas
from vpem.privacy.fixed_point import WHOLE, WIDE, Format
from vpem.privacy.pairwise_keys import Keys, link_tag, masks

LEAST = 3
"""Minimum number of terms in a sum for which no single party can compute another party's term."""
TWO_PARTIES = "two parties see each other's terms"
FEW_HOLDERS = "rows of two parties are plain to both"
REPEATS = "rows may be added again with other parties"
ACCEPTABLE = (TWO_PARTIES, FEW_HOLDERS, REPEATS)
"""Risks that a study can accept, as the sentences by which it accepts them."""

REMEMBERED = (SumKind.CLUSTER, SumKind.ITERATE)
"""Kinds of sums whose unit follows from the last sum of the series."""
N_EXTRA = 3
"""Numbers in addition to the scalars: sum of the reference terms, number of clipped entries, and a 1 per block."""
COUNTS = Format(4, 0)
"""Format of the number of blocks that have each row."""
FIRST = Format(8, -24)
"""Format of the first sums of log-densities in EM: a unit of 6e-8, and terms up to 2^38 / n_blocks."""
USUAL_DOWN = 1.8
"""Usual bytes per entry of the compressed total, as measured; see `docs/privacy.md`."""


@dataclass(frozen=True)
class Masked(Around):
    """Masked summation on a star or a tree: messages reveal only the sum over all parties.

    Each pair of parties shares a mask for each sum, which one adds and the other subtracts. Numbers are integers
    modulo a power of two, so that masks cancel exactly when all terms are added. The total is broadcast unmasked.

    Sums of EM's iterations are changes of log-ratios since the last sum, in words of 4 bytes per entry. A party adds
    the remainder of its rounding and clipping to the next sum. The unit follows from the last change of the total,
    which all agents know. A sum that follows clipping has words of 8 bytes, with a unit of 2^-24. The first sum of EM
    contains whole log-densities, also in such words. Other sums (k-means, predictions) contain whole values in words
    of 16 bytes, with a unit of 2^-64.

    The length of a message towards the root follows from what all agents know, and reveals nothing about its sender.
    Messages carry tags: an altered message is refused, with its sender's name.

    Parameters
    ----------
    around : Star or Tree
        Route of the sums.
    accept : tuple of str, default=()
        Risks that the parties accept, out of `vpem.privacy.masks.ACCEPTABLE`.
    """

    accept: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.check_around(
            "have real weights, with which masks do not cancel, and silent changes would tell which rows have moved"
        )
        accepted = self.accept
        if not isinstance(accepted, tuple) or not set(accepted) <= set(ACCEPTABLE):
            raise ValueError(f"expected accept to have some of the sentences {ACCEPTABLE}, got {accepted!r}")

    # Properties

    @property
    def is_masked(self) -> bool:
        """True, because terms are masked."""
        return True

    @property
    def has_tags(self) -> bool:
        """True, because all messages carry tags."""
        return True

    @property
    def refuses_repeats(self) -> bool:
        """True unless the parties accept repeated rows."""
        return REPEATS not in self.accept

    def least_holders(self, network: Network) -> int:
        """Return 3, or 2 if the parties accept it; 0 with two blocks, where holders are not counted."""
        if len(network.hubs) < LEAST:  # two blocks that accept this see all of each other's terms
            return 0
        return 2 if FEW_HOLDERS in self.accept else LEAST

    def check(self, network: Network) -> None:
        """Raise ValueError if there are too few blocks."""
        super().check(network)
        n_blocks = len(network.hubs)
        if n_blocks < 2 or (n_blocks < LEAST and TWO_PARTIES not in self.accept):
            raise ValueError(
                f"expected at least {LEAST} parties (or hubs) with masks, got {n_blocks}; each of two can subtract "
                f"its own term from the sum and has the other's: accept it with accept=({TWO_PARTIES!r},), or "
                "leave the masks out"
            )

    def greet(self) -> tuple[bytes, Keys]:
        """Return a new public key, and the keys that the agent keeps secret."""
        keys = Keys()
        return keys.public, keys

    def pack_secret(self, secret: Keys | None) -> bytes:
        """Return the bytes of the private key."""
        return b"" if secret is None else secret.private

    def unpack_secret(self, content: bytes) -> Keys | None:
        """Return the keys from the bytes of the private key."""
        return Keys(content) if content else None

    def tag(self, place: Place, peer: Position, parts: Sequence[bytes | memoryview]) -> bytes:
        """Return the authentication tag, computed from the shared secret of both ends."""
        return link_tag(place, peer, parts)

    # Sizes

    def payload(self, network: Network | None, shape: Shape) -> Payload:  # noqa: ARG002 (on all networks)
        """Maximum length of a message: full words towards the root, or the compressed total."""
        down = 8 * (shape.n_scalars + N_EXTRA) + most_compressed(8 * shape.n_rows * shape.width)
        return Payload(max(WIDE * (shape.n_values + N_EXTRA), down), "u1", is_fixed=False)

    @property
    def n_stages(self) -> int:
        """Number of stages, 2: the first sum of a series has longer words, but the rounds are the same."""
        return 2

    def stage(self, shape: Shape, series: Series, carry: Memory) -> int:  # noqa: ARG002 (of all sums)
        """Return 0 for the first sum of a series, 1 for later ones."""
        return int("exponent" in carry)

    def later_stage(self, shape: Shape, series: Series) -> int:  # noqa: ARG002 (likewise)
        """Return 1 if sums of the series depend on earlier ones, otherwise 0."""
        return int(series.kind in REMEMBERED)

    def lengths(self, network: Network, shape: Shape, series: Series = SINGLE, stage: int = 0) -> Lengths:
        """Mean length of the messages in both directions: fixed towards the root, compressed on the way back."""
        n_head, n_entries = shape.n_scalars + N_EXTRA, shape.n_rows * shape.width
        up = most_up = WIDE * n_head + (8 if stage or series.is_em else WIDE) * n_entries
        fewest = usual = most = 8 * n_head + 8 * n_entries
        if series.kind is SumKind.HOLDERS:
            up = most_up = WIDE * n_head + COUNTS.n_bytes * n_entries
            fewest, usual, most = 8 * n_head, 8 * n_head, 8 * n_head + most_compressed(COUNTS.n_bytes * n_entries)
        if stage and series.is_em:
            n_entries = shape.n_rows * max(shape.width - 1, 0)
            up, most_up = (WIDE * n_head + size * n_entries for size in (masked_deltas.word_bytes(network), 8))
            usual = 8 * n_head + math.ceil(USUAL_DOWN * n_entries)
            fewest, most = 8 * n_head, 8 * n_head + most_compressed(8 * n_entries)
        return Lengths((up + fewest) // 2, ((up + usual) // 2,) * 2, (most_up + most + 1) // 2)

    def carried_bytes(self, network: Network, position: Position, shape: Shape) -> int:
        """Bytes of the sent values and the total at a root; of the total at other agents."""
        return shape.n_rows * (8 * shape.width * (1 + network.is_root(position)) + 1) + 8

    # A sum

    def begin(self, place: Place, carry: Memory, term: Array | None) -> Memory:
        """State before the first round, with the agent's own words under masks."""
        form, shape = _form(place, carry), place.shape
        state: dict[str, NDArray[Any]] = dict(carry)
        n_head, n_entries = shape.n_scalars + N_EXTRA, _n_entries(place, carry)
        head, entries = fixed_point.zeros(n_head, WHOLE), fixed_point.zeros(n_entries, form)
        roots = [hub.root for hub in place.network.hubs]
        if term is not None:
            size = shape.n_rows * shape.width
            rows, extra = term[:size], np.zeros(2)
            if _is_change(place, carry):
                numbers, state["sent"], extra = masked_deltas.find(shape.by_row(rows), carry, len(roots), place.memo)
                entries = numbers.astype(np.uint32 if form.n_bytes == 4 else np.uint64)
            else:
                limit = form.limit(len(roots))
                rows = np.clip(rows, -limit, limit)
                entries = fixed_point.encode(rows, form)
                state["sent"] = shape.by_row(fixed_point.decode(entries, form))
            scalars = np.concatenate([term[size:], extra, np.ones(1)])
            limit = WHOLE.limit(len(roots))
            head = fixed_point.encode(np.clip(scalars, -limit, limit), WHOLE)
            n_bytes = WIDE * n_head + form.n_bytes * n_entries
            for peer, stream in self.streams(place, roots, n_bytes).items():
                move = fixed_point.add if place.position < peer else fixed_point.subtract
                head = move(head, fixed_point.read(stream[: WIDE * n_head], WHOLE))
                entries = move(entries, fixed_point.read(stream[WIDE * n_head :], form))
        state["out"] = _joined(head, entries)
        return state

    def streams(self, place: Place, roots: Sequence[Position], n_bytes: int) -> Mapping[Position, NDArray[np.uint8]]:
        """Return the masks of this sum that the agent shares with each other root."""
        return masks(place, roots, n_bytes)

    def message(self, place: Place, step: int, state: Memory) -> NDArray[Any]:  # noqa: ARG002 (up or down)
        """Words of the agent's subtree, or the total."""
        return state["out"]

    def combine(self, place: Place, step: int, state: Memory, received: Mapping[Position, NDArray[Any]]) -> Memory:
        """Add words on the way to the root, where all masks cancel; on the way back, read the total."""
        tree = self.around.tree(place.network)
        if step >= tree.depth:
            ((sender, message),) = received.items()
            return _take_total(place, sender, state, message)
        form, n_head = _form(place, state), WIDE * (place.shape.n_scalars + N_EXTRA)
        own, length = state["out"], len(state["out"])
        head, entries = fixed_point.read(own[:n_head], WHOLE), fixed_point.read(own[n_head:], form)
        for sender, message in received.items():
            if len(message) != length:
                raise WrongMessageError(sender, f"expected {length} bytes of a masked sum, got {len(message)}")
            head = fixed_point.add(head, fixed_point.read(message[:n_head], WHOLE))
            entries = fixed_point.add(entries, fixed_point.read(message[n_head:], form))
        if place.position != tree.top:
            return {**state, "out": _joined(head, entries)}
        total = _open(place, state, fixed_point.decode(head, WHOLE), entries)
        return _take_total(place, place.position, state, total)

    def blur(self, carry: Memory) -> float:
        """Return the largest blur of the last sums; infinity if a change did not fit."""
        return float(carry["blurs"].max()) if "blurs" in carry else 0.0

    def told(self, state: Memory, values: Array) -> bytes:  # noqa: ARG002 (made of the total)
        """Return the total as it was received, which also determines the next unit; the values alone do not."""
        return state["out"].tobytes()

    def end(self, place: Place, state: Memory) -> tuple[Array, Memory]:
        """Return the sum and the carry; a sum of changes gives log-densities up to a constant per row."""
        kept = {name: state[name] for name in masked_deltas.KEPT if name in state}
        if not place.series.is_em:
            is_first = place.series.kind in REMEMBERED
            return state["values"], {"exponent": state["exponent"]} if is_first else NO_MEMORY
        if len(kept.get("sent", ())) == 0:
            kept.pop("sent", None)
        return state["values"], kept


def _is_change(place: Place, carry: Memory) -> bool:
    """True if the sum contains changes since the last one."""
    return place.series.is_em and "exponent" in carry


def _form(place: Place, carry: Memory) -> Format:
    """Return the format of the entries, which follows from the last sum of the series."""
    if "exponent" not in carry:
        return FIRST if place.series.is_em else COUNTS if place.series.kind is SumKind.HOLDERS else WHOLE
    n_bytes = masked_deltas.word_bytes(place.network, carry) if place.series.is_em else 8
    return Format(n_bytes, int(carry["exponent"][0]))


def _n_entries(place: Place, carry: Memory) -> int:
    width = place.shape.width
    return place.shape.n_rows * (max(width - 1, 0) if _is_change(place, carry) else width)


def _joined(head: NDArray[Any], entries: NDArray[Any]) -> NDArray[np.uint8]:
    return np.frombuffer(fixed_point.write(head) + fixed_point.write(entries), np.uint8)


def _is_packed(place: Place, state: Memory) -> bool:
    """True if the total is sent as compressed integers."""
    return _form(place, state).n_bytes == 4 or _is_change(place, state)


def _check_total(place: Place, state: Memory, head: Array, numbers: NDArray[Any]) -> None:
    """Raise ValueError if a total cannot be the sum of the parties' clipped terms.

    The sum of N clipped terms is at most N times the limit, which is less than half of a word's range. So a valid
    total never overflows, and a total outside these bounds is invalid.
    """
    n_blocks, form = len(place.network.hubs), _form(place, state)
    largest = n_blocks * (
        float(masked_deltas.most(state, n_blocks)) if _is_change(place, state) else form.limit(n_blocks)
    )
    lowest = -largest
    if place.series.kind is SumKind.HOLDERS:
        lowest, largest = 0.0, float(n_blocks)
    is_right = head[-1] == n_blocks and 0 <= head[-2] <= n_blocks * max(1, len(numbers))
    is_right = is_right and bool((np.abs(head) <= n_blocks * WHOLE.limit(n_blocks)).all())
    if not is_right or not bool(((lowest <= numbers) & (numbers <= largest)).all()):
        raise ValueError(
            "expected masks that cancel and a total within its range, got another: a party has added something else "
            "than its own term under its masks; which one, masks do not tell"
        )


def _open(place: Place, state: Memory, head: Array, entries: NDArray[Any]) -> NDArray[np.uint8]:
    """Encode the total that the root broadcasts; raise ValueError if masks have not cancelled."""
    form = _form(place, state)
    if _is_packed(place, state):
        signed = entries.view(np.int32 if form.n_bytes == 4 else np.int64)
        _check_total(place, state, head, signed)
        content = masked_deltas.pack(signed)
    else:
        numbers = fixed_point.decode(entries, form)
        _check_total(place, state, head, numbers)
        content = numbers.astype("<f8").tobytes()
    return np.frombuffer(head.astype("<f8").tobytes() + content, np.uint8)


def _take_total(place: Place, sender: Position, state: Memory, message: NDArray[np.uint8]) -> Memory:
    """Return the state after the total; raise WrongMessageError if the total is invalid."""
    before = state.get("total", np.empty(0))
    name = f"masked {place.series} {place.shape}"
    found = place.memo.once(
        name, [message, before, state.get("exponent", before)], lambda: _read_total(place, sender, state, message)
    )
    names = "values", "total", "exponent", "present", "blurs"
    return {**state, **dict(zip(names, found, strict=True)), "out": message}


def _read_total(
    place: Place, sender: Position, state: Memory, message: NDArray[np.uint8]
) -> tuple[NDArray[Any], ...]:
    shape, n_head, form = place.shape, 8 * (place.shape.n_scalars + N_EXTRA), _form(place, state)
    n_blocks = len(place.network.hubs)
    try:
        if len(message) < n_head:
            raise ValueError(f"expected at least {n_head} bytes, got {len(message)}")
        head = np.frombuffer(message[:n_head].tobytes(), "<f8").astype(np.float64)
        content = message[n_head:].tobytes()
        n_entries, numbers = _n_entries(place, state), np.empty(0)
        if _is_packed(place, state):
            signed = masked_deltas.unpack(content, n_entries, form.n_bytes)
            numbers = signed.astype(np.float64)
        elif len(content) != 8 * n_entries:
            raise ValueError(f"expected {8 * n_entries} bytes, got {len(content)}")
        else:
            numbers = np.frombuffer(content, "<f8").astype(np.float64)
        if not np.isfinite(head).all() or not np.isfinite(numbers).all():
            raise ValueError("expected finite numbers, got others")
        _check_total(place, state, head, signed if _is_packed(place, state) else numbers)
    except ValueError as error:
        raise WrongMessageError(sender, f"a total: {error}") from None
    scalars, (level, clipped) = head[:-N_EXTRA], head[-N_EXTRA:-1].tolist()
    if _is_change(place, state):
        return masked_deltas.take(signed, level, clipped, scalars, state, n_blocks, place.memo)
    values = np.append(numbers, scalars)
    if not place.series.is_em:
        largest = float(np.abs(numbers).max(initial=0.0))
        return values, np.empty(0), masked_deltas.known_exponent(largest, n_blocks), np.empty(0), np.empty(0)
    total = shape.by_row(numbers)
    present = (total != 0).any(axis=1)
    exponent = masked_deltas.next_exponent(np.zeros_like(total), total, n_blocks, memo=place.memo)
    blurs = np.full(masked_deltas.N_BLURS, masked_deltas.blur(n_blocks, form.exponent))
    return values, total, exponent, present.astype(np.uint8), blurs
