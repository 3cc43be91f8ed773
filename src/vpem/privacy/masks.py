"""Sums on a star or a tree in which only the total is ever plain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.coding import most_compressed
from vpem.core.network.hubs import Position
from vpem.core.network.parties import Network
from vpem.core.network.sharing import once
from vpem.core.network.star import Star
from vpem.core.network.summation import (
    HOLDERS,
    ITERATE,
    NO_MEMORY,
    Array,
    Lengths,
    Memory,
    Payload,
    Place,
    Round,
    Shape,
    Summation,
    WrongMessageError,
)
from vpem.core.network.tree import Tree
from vpem.privacy import changes, words
from vpem.privacy.keys import Keys, link_tag, masks
from vpem.privacy.words import WHOLE, WIDE, Format

LEAST = 3
"""Terms that a sum must have for none of them to be seen by those who add the others."""
TWO_PARTIES = "two parties see each other's terms"
FEW_HOLDERS = "rows of two parties are plain to both"
REPEATS = "rows may be added again with other parties"
ACCEPTABLE = (TWO_PARTIES, FEW_HOLDERS, REPEATS)
"""What a study can accept, in the words with which it does."""

N_EXTRA = 3
"""Numbers beside the scalars: the sum of the references' terms, entries that were clipped, a 1 for each block."""
COUNTS = Format(4, 0)
"""How many blocks have each row."""
FIRST = Format(8, -24)
"""First sums of EM's iterations, of log-densities: a unit of 6e-8, and room up to 2^38 over the number of blocks."""
USUAL_DOWN = 1.8
"""Bytes of an entry of the compressed total; measured, see `docs/privacy.md`."""


@dataclass(frozen=True)
class Masked(Summation):
    """A star or a tree that adds numbers under masks: messages tell nothing but the sum over all parties.

    Each pair of parties shares a mask for each sum, which one adds and the other subtracts. Numbers are integers
    modulo a power of two, so masks cancel to the bit where all terms have come together. The total comes down plain.

    Sums of EM's iterations are changes of log-ratios since the last sum, in words of 4 bytes for each entry; a party
    keeps what its rounding and clipping left over for the next sum. The unit follows from the last change of the
    total, which all know. First sums are whole, in 8 bytes with a unit of 2^-24, and so are others (k-means,
    predictions), in 16 bytes with a unit of 2^-64.

    Messages are as long whatever the data are, and carry tags: an altered message is refused, with its sender's name.

    Parameters
    ----------
    around : Star or Tree
        The way that sums take.
    accept : tuple of str, default=()
        What the parties accept to be seen, out of `vpem.privacy.masks.ACCEPTABLE`.
    """

    around: Star | Tree
    accept: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.around, Star | Tree):
            raise ValueError(
                f"expected Star() or Tree() in Masked, got {self.around!r}; averages have real weights, with which "
                "masks do not cancel, and silent changes would tell which rows have moved"
            )
        accepted = self.accept
        if not isinstance(accepted, tuple) or not set(accepted) <= set(ACCEPTABLE):
            raise ValueError(f"expected accept to have some of the sentences {ACCEPTABLE}, got {accepted!r}")

    # What it is

    @property
    def has_server(self) -> bool:
        """As what it is around."""
        return self.around.has_server

    @property
    def is_common(self) -> bool:
        """All have the same total."""
        return True

    @property
    def is_lossy(self) -> bool:
        """Ratios tell no likelihood."""
        return True

    @property
    def is_masked(self) -> bool:
        """By masks."""
        return True

    @property
    def has_tags(self) -> bool:
        """All messages have."""
        return True

    @property
    def refuses_repeats(self) -> bool:
        """Unless the parties accept them."""
        return REPEATS not in self.accept

    def least_holders(self, network: Network) -> int:
        """Three, unless the parties accept fewer."""
        if len(network.hubs) < LEAST:  # who accepts it sees all of the other's terms
            return 0
        return 2 if FEW_HOLDERS in self.accept else LEAST

    def check(self, network: Network) -> None:
        """Raise ValueError if there are too few blocks."""
        self.around.check(network)
        n_blocks = len(network.hubs)
        if n_blocks < 2 or (n_blocks < LEAST and TWO_PARTIES not in self.accept):
            raise ValueError(
                f"expected at least {LEAST} parties (or hubs) with masks, got {n_blocks}; each of two can subtract "
                f"its own term from the sum and has the other's: accept it with accept=({TWO_PARTIES!r},), or "
                "leave the masks out"
            )

    def error_factor(self, network: Network) -> float:  # noqa: ARG002 (on all networks)
        """What rounding leaves is sent with the next sum."""
        return 0.0

    def schedule(
        self,
        network: Network,
        position: Position,
        *,
        values: bool,
        decision: bool,
        audience: frozenset[Position] | None = None,
    ) -> list[Round[Position]]:
        """See `Star` and `Tree`."""
        return self.around.schedule(network, position, values=values, decision=decision, audience=audience)

    def greet(self) -> tuple[bytes, Keys]:
        """A fresh public key; the private one stays."""
        keys = Keys()
        return keys.public, keys

    def pack_secret(self, secret: Keys | None) -> bytes:
        """The private key."""
        return b"" if secret is None else secret.private

    def unpack_secret(self, content: bytes) -> Keys | None:
        """The same keys."""
        return Keys(content) if content else None

    def tag(self, place: Place, peer: Position, parts: Sequence[bytes | memoryview]) -> bytes:
        """From a secret of both ends."""
        return link_tag(place, peer, parts)

    # Sizes

    def payload(self, network: Network | None, shape: Shape) -> Payload:  # noqa: ARG002 (on all networks)
        """Whole words upward; the total is not longer."""
        down = 8 * (shape.n_scalars + N_EXTRA) + most_compressed(8 * shape.n_rows * shape.width)
        return Payload(max(WIDE * (shape.n_values + N_EXTRA), down), "u1", is_fixed=False)

    @property
    def n_stages(self) -> int:
        """First sums of a series have longer words; the rounds are the same."""
        return 2

    def stage(self, shape: Shape, series: str, carry: Memory) -> int:  # noqa: ARG002 (of all sums)
        """Whether it is a later one."""
        return int("exponent" in carry)

    def later_stage(self, shape: Shape, series: str) -> int:  # noqa: ARG002 (likewise)
        """Sums of a series know those before."""
        return int(series not in ("", HOLDERS))

    def lengths(self, network: Network, shape: Shape, series: str = "", stage: int = 0) -> Lengths:
        """Upward always the same; downward as the total can be compressed: the mean of both."""
        n_head, n_entries = shape.n_scalars + N_EXTRA, shape.n_rows * shape.width
        up = WIDE * n_head + (8 if stage or series.startswith(ITERATE) else WIDE) * n_entries
        fewest = usual = most = 8 * n_head + 8 * n_entries
        if series == HOLDERS:
            up = WIDE * n_head + COUNTS.n_bytes * n_entries
            fewest, usual, most = 8 * n_head, 8 * n_head, 8 * n_head + most_compressed(COUNTS.n_bytes * n_entries)
        if stage and series.startswith(ITERATE):
            n_entries = shape.n_rows * max(shape.width - 1, 0)
            size = changes.word_bytes(network) * n_entries
            up = WIDE * n_head + size
            usual = 8 * n_head + math.ceil(USUAL_DOWN * n_entries)
            fewest, most = 8 * n_head, 8 * n_head + most_compressed(size)
        return Lengths((up + fewest) // 2, ((up + usual) // 2,) * 2, (up + most + 1) // 2)

    def carried_bytes(self, network: Network, position: Position, shape: Shape) -> int:
        """What was sent and the total, at a root; the total elsewhere."""
        return shape.n_rows * (8 * shape.width * (1 + network.is_root(position)) + 1) + 8

    # A sum

    def begin(self, place: Place, carry: Memory, term: Array | None) -> Memory:
        """The own words, under masks."""
        form, shape = _form(place, carry), place.shape
        state: dict[str, NDArray[Any]] = dict(carry)
        n_head, n_entries = shape.n_scalars + N_EXTRA, _n_entries(place, carry)
        head, entries = words.zeros(n_head, WHOLE), words.zeros(n_entries, form)
        roots = [hub.root for hub in place.network.hubs]
        if term is not None:
            size = shape.n_rows * shape.width
            rows, extra = term[:size], np.zeros(2)
            if _is_change(place, carry):
                numbers, state["sent"], extra = changes.find(shape.by_row(rows), carry)
                entries = numbers.astype(np.uint32 if form.n_bytes == 4 else np.uint64)
            else:
                limit = form.limit(len(roots))
                rows = np.clip(rows, -limit, limit)
                entries = words.encode(rows, form)
                state["sent"] = shape.by_row(words.decode(entries, form))
            scalars = np.concatenate([term[size:], extra, np.ones(1)])
            limit = WHOLE.limit(len(roots))
            head = words.encode(np.clip(scalars, -limit, limit), WHOLE)
            n_bytes = WIDE * n_head + form.n_bytes * n_entries
            for peer, stream in self.streams(place, roots, n_bytes).items():
                move = words.add if place.position < peer else words.subtract
                head = move(head, words.read(stream[: WIDE * n_head], WHOLE))
                entries = move(entries, words.read(stream[WIDE * n_head :], form))
        state["out"] = _joined(head, entries)
        return state

    def streams(self, place: Place, roots: Sequence[Position], n_bytes: int) -> Mapping[Position, NDArray[np.uint8]]:
        """The masks that the agent shares with each other root, for this sum."""
        return masks(place, roots, n_bytes)

    def message(self, place: Place, step: int, state: Memory) -> NDArray[Any]:  # noqa: ARG002 (up or down)
        """Words of all that is below, or the total."""
        return state["out"]

    def combine(self, place: Place, step: int, state: Memory, received: Mapping[Position, NDArray[Any]]) -> Memory:
        """On the way up, add; on top, all masks cancel; on the way down, take the total."""
        tree = self.around.tree(place.network)
        if step >= tree.depth:
            ((sender, message),) = received.items()
            return _take_total(place, sender, state, message)
        form, n_head = _form(place, state), WIDE * (place.shape.n_scalars + N_EXTRA)
        own, length = state["out"], len(state["out"])
        head, entries = words.read(own[:n_head], WHOLE), words.read(own[n_head:], form)
        for sender, message in received.items():
            if len(message) != length:
                raise WrongMessageError(sender, f"expected {length} bytes of a masked sum, got {len(message)}")
            head = words.add(head, words.read(message[:n_head], WHOLE))
            entries = words.add(entries, words.read(message[n_head:], form))
        if place.position != tree.top:
            return {**state, "out": _joined(head, entries)}
        total = _open(place, state, words.decode(head, WHOLE), entries)
        return _take_total(place, place.position, state, total)

    def told(self, state: Memory, values: Array) -> bytes:  # noqa: ARG002 (made of the total)
        """The total as it came: with what it says of the next sum's scale, which values do not show."""
        return state["out"].tobytes()

    def end(self, place: Place, state: Memory) -> tuple[Array, Memory]:
        """The sum; of changes, the log-densities as far as ratios tell them."""
        kept = {name: state[name] for name in changes.KEPT if name in state}
        if not place.series.startswith(ITERATE):
            is_first = place.series not in ("", HOLDERS)
            return state["values"], {"exponent": state["exponent"]} if is_first else NO_MEMORY
        if len(kept.get("sent", ())) == 0:
            kept.pop("sent", None)
        return state["values"], kept


def _is_change(place: Place, carry: Memory) -> bool:
    """Whether a sum is one of changes."""
    return place.series.startswith(ITERATE) and "exponent" in carry


def _form(place: Place, carry: Memory) -> Format:
    """How entries are written: by what all know of the last sum of the series."""
    if "exponent" not in carry:
        return FIRST if place.series.startswith(ITERATE) else COUNTS if place.series == HOLDERS else WHOLE
    n_bytes = changes.word_bytes(place.network) if place.series.startswith(ITERATE) else 8
    return Format(n_bytes, int(carry["exponent"][0]))


def _n_entries(place: Place, carry: Memory) -> int:
    width = place.shape.width
    return place.shape.n_rows * (max(width - 1, 0) if _is_change(place, carry) else width)


def _joined(head: NDArray[Any], entries: NDArray[Any]) -> NDArray[np.uint8]:
    return np.frombuffer(words.write(head) + words.write(entries), np.uint8)


def _is_packed(place: Place, state: Memory) -> bool:
    """Whether a total comes down as compressed integers."""
    return _form(place, state).n_bytes == 4 or _is_change(place, state)


def _check_total(place: Place, state: Memory, head: Array, numbers: NDArray[Any]) -> None:
    """Raise ValueError if terms that each party has clipped cannot add up to this.

    N terms of at most the limit cannot be larger than N times it, and that is less than half of a word's range. So a
    true total never wraps; one that is outside is not one of such terms.
    """
    n_blocks, form = len(place.network.hubs), _form(place, state)
    largest = n_blocks * (float(changes.MOST) if _is_change(place, state) else form.limit(n_blocks))
    lowest = -largest
    if place.series == HOLDERS:
        lowest, largest = 0.0, float(n_blocks)
    is_right = head[-1] == n_blocks and 0 <= head[-2] <= n_blocks * max(1, len(numbers))
    is_right = is_right and bool((np.abs(head) <= n_blocks * WHOLE.limit(n_blocks)).all())
    if not is_right or not bool(((lowest <= numbers) & (numbers <= largest)).all()):
        raise ValueError(
            "expected masks that cancel and a total within its range, got another: a party has added something else "
            "than its own term under its masks; which one, masks do not tell"
        )


def _open(place: Place, state: Memory, head: Array, entries: NDArray[Any]) -> NDArray[np.uint8]:
    """What the top tells all: the total; ValueError if masks have not cancelled."""
    form = _form(place, state)
    if _is_packed(place, state):
        signed = entries.view(np.int32 if form.n_bytes == 4 else np.int64)
        _check_total(place, state, head, signed)
        content = changes.pack(signed)
    else:
        numbers = words.decode(entries, form)
        _check_total(place, state, head, numbers)
        content = numbers.astype("<f8").tobytes()
    return np.frombuffer(head.astype("<f8").tobytes() + content, np.uint8)


def _take_total(place: Place, sender: Position, state: Memory, message: NDArray[np.uint8]) -> Memory:
    """What the total brings; WrongMessageError if it cannot be one."""
    before = state.get("total", np.empty(0))
    name = f"masked {place.series} {place.shape}"
    found = once(
        name, [message, before, state.get("exponent", before)], lambda: _read_total(place, sender, state, message)
    )
    values, total, exponent, present = found
    return {**state, "values": values, "total": total, "exponent": exponent, "present": present, "out": message}


def _read_total(
    place: Place, sender: Position, state: Memory, message: NDArray[np.uint8]
) -> tuple[NDArray[Any], ...]:
    shape, n_head, form = place.shape, 8 * (place.shape.n_scalars + N_EXTRA), _form(place, state)
    try:
        if len(message) < n_head:
            raise ValueError(f"expected at least {n_head} bytes, got {len(message)}")
        head = np.frombuffer(message[:n_head].tobytes(), "<f8").astype(np.float64)
        content = message[n_head:].tobytes()
        n_entries, numbers = _n_entries(place, state), np.empty(0)
        if _is_packed(place, state):
            signed = changes.unpack(content, n_entries, form.n_bytes)
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
        return changes.take(signed, level, clipped, scalars, state)
    values = np.append(numbers, scalars)
    if not place.series.startswith(ITERATE):
        largest = float(np.abs(numbers).max(initial=0.0))
        return values, np.empty(0), changes.known_exponent(largest, len(place.network.hubs)), np.empty(0)
    total = shape.by_row(numbers)
    present = (total != 0).any(axis=1)
    return values, total, changes.next_exponent(np.zeros_like(total), total), present.astype(np.uint8)
