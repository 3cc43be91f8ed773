"""Sums of quantized changes: few bytes once EM changes slowly, and exact at convergence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.buffer_pool import NO_POOL, BufferPool
from vpem.core.network.around import Around
from vpem.core.network.changes import Parts, count_layers, most_coded, pack, parse, parse_tail, tail_of
from vpem.core.network.hubs import Position
from vpem.core.network.memo import Arrays, Memo
from vpem.core.network.parties import Network
from vpem.core.network.quantization import (
    add_decoded,
    encode,
    exponent_of,
    find_changes,
    find_sums,
    find_thresholds,
    least_change,
    mean_change,
    mean_level,
    steps_for,
    whole_numbers,
)
from vpem.core.network.summation import add_in_order
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
    Term,
)
from vpem.core.network.tree import SpanningTree

FIRST_WHOLE, FIRST_ERROR = 2, 0.5
"""Layers of codes that the first sum of EM has for all numbers, and the threshold of the other layers: a number is
refined while its error exceeds this many nats, divided by the number of links."""
USUAL = (0.25, 0.7)
"""Range of the bytes per entry of a message, averaged over a fit; measured, see `docs/howto/scale-and-cost.md`."""

References = NDArray[np.uint16]
"""Shape (n_rows,): component in the denominator of each row's ratios."""
PartsOf = Callable[[], Iterable[tuple[slice, Array | None]]]
"""Iterator over the parts of a term: slices of rows and their numbers."""


@dataclass(frozen=True)
class Differences(Around):
    """A star or a tree in which both ends of a link remember the last values, and send only quantized changes.

    The values are log-ratios: in each row, of each component to the leader of the last total. (Relative to one
    component for all rows, ratios of two others can be huge, and rounding hides their difference.) A sender keeps its
    rounding error and sends it with the next change, so that sums become exact as EM converges. The first sum has two
    codes for each number, because with one EM often ended in worse optima. An entry is not sent while it can hardly
    change a responsibility. The total is rounded once, at the root of the tree, and all agents use the same bits.

    Only the sums of EM's iterations are quantized; others (k-means, predictions) are sent as whole numbers.

    Parameters
    ----------
    around : Star or Tree
        The tree on which sums are computed.
    silence : float, default=0.1
        An entry is not sent while its change is smaller than this share of the mean change of the last total,
        divided by the number of links. 0: only entries that cannot matter, and rounding errors, are not sent.
    """

    silence: float = 0.1

    def __post_init__(self) -> None:
        self.check_around("with real weights keep no sums of what was sent")
        if not isinstance(self.silence, int | float) or not 0 <= self.silence < 1:
            raise ValueError(f"expected silence to be a number from 0 to less than 1, got {self.silence!r}")

    def payload(self, network: Network | None, shape: Shape) -> Payload:  # noqa: ARG002 (on all networks)
        """Bytes of variable length; the maximum is that of codes or of whole numbers, whichever is larger."""
        return Payload(max(most_coded(shape), 8 * shape.n_values), "u1", is_fixed=False)

    def lengths(self, network: Network, shape: Shape, series: Series = SINGLE, stage: int = 0) -> Lengths:  # noqa: ARG002
        """Expected lengths: from a message without changes to one byte per entry; other sums send whole numbers."""
        if not series.is_em:
            n_bytes = 8 * shape.n_values
            return Lengths(n_bytes, (n_bytes, n_bytes), n_bytes)
        n_entries = shape.n_rows * max(shape.width - 1, 0)
        nothing = np.zeros(0, dtype=np.uint8)
        silent = Parts(np.zeros(shape.n_scalars + 1), (0,), np.zeros((1, n_entries), dtype=np.uint8), nothing)
        fewest, most = len(pack(silent, Memo())), most_coded(shape)
        low, high = (min(fewest + math.ceil(share * n_entries), most) for share in USUAL)
        return Lengths(fewest, (low, high), most)

    def carried_bytes(self, network: Network, position: Position, shape: Shape) -> int:
        """Bytes that an agent keeps for its links and the total."""
        kept = _nothing(Memo(), shape, position, self.around.tree(network))
        return sum(array.nbytes for array in kept.values()) + shape.n_rows  # one byte for each row: is it present

    # A sum

    def begin(self, place: Place, carry: Memory, term: Array | None) -> Memory:
        """State before the first round; a leaf of the tree encodes its own change."""
        if not place.series.is_em:
            return self.around.begin(place, carry, term)
        shape = place.shape
        n_numbers = shape.n_rows * shape.width
        if term is None:
            return self._set_out(place, carry, {"terms": NO_TERMS, "scalars": np.zeros(shape.n_scalars)})
        return self._set_out(
            place, carry, {"terms": term[:n_numbers].reshape(shape.width, -1), "scalars": term[n_numbers:].copy()}
        )

    def begin_with(self, place: Place, carry: Memory, term: Term) -> Memory:
        """State before the first round.

        A leaf reads its term part by part, except in the first sum; other agents compute the whole term and wait.
        """
        is_other = type(self).begin is not Differences.begin  # a subclass must see every term
        if not place.series.is_em or not carry or is_other:
            return self.begin(place, carry, term.whole(place.pool))
        known: Memory = {"terms": NO_TERMS, "scalars": term.scalars}
        if not self.around.tree(place.network).below[place.position]:
            return self._set_out(place, carry, known, term.parts)
        whole, ends = term.whole_in_parts(place.pool)
        terms = whole[: len(whole) - len(term.scalars)].reshape(place.shape.width, -1)
        return self._set_out(place, carry, {**known, "terms": terms, "ends": ends})

    def message(self, place: Place, step: int, state: Memory) -> NDArray[Any]:
        """Change of the agent's subtree on the way up, or of the total on the way down."""
        if place.series.is_em:
            return state["out"]
        return np.ascontiguousarray(self.around.message(place, step, state)).view(np.uint8)

    def combine(self, place: Place, step: int, state: Memory, received: Mapping[Position, NDArray[Any]]) -> Memory:
        """Add the changes of the children and encode the sum on the way up; update the total on the way down."""
        if not place.series.is_em:
            whole = {sender: whole_numbers(place, sender, values) for sender, values in received.items()}
            return self.around.combine(place, step, state, whole)
        if step >= self.around.tree(place.network).depth:
            ((sender, message),) = received.items()
            return _down(place, sender, state, message)
        found = [parse(place, sender, message, is_first=_is_first(state)) for sender, message in received.items()]
        below, bits = _moved(place.pool, state["below"], state["references"], found), state["bits"]
        for parts in found:
            bits = bits | parts.present
        said = {f"{SAID} below {number:05}": tail_of(place, one) for number, one in enumerate(received.values())}
        state = {**state, **said, "below": below, "bits": bits}
        return self._up(place, state, [parts.scalars for parts in found])

    def end(self, place: Place, state: Memory) -> tuple[Array, Memory]:
        """Return log-densities, in each row up to a constant that is right on average, and the carry."""
        if not place.series.is_em:
            return self.around.end(place, state)
        (values,) = place.memo.once("values", [state["total"], state["out"]], lambda: (_values(place.pool, state),))
        return values, {name: state[name] for name in KEPT}

    def changes(self, state: Memory) -> Memory:
        """Codes of the messages, and the pace; nothing for the first sum of EM, and for sums of whole numbers."""
        if "out" not in state or _is_first(state):
            return NO_MEMORY
        return {name: state[name] for name in state if name == "pace" or name.startswith(SAID)}

    def redo(self, carry: Memory, changes: Memory) -> Memory:
        """Return the carry after adding the same codes in the same order."""
        (n_rows, width), after = carry["total"].shape, {**carry, "pace": changes["pace"]}
        references = carry["total"].argmax(axis=1).astype(np.uint16)
        for name in ("sent", "below", "total"):
            said = [changes[one] for one in sorted(changes) if one.startswith(f"{SAID} {name}")]
            if said:
                found = [parse_tail(one, 1, n_rows * (width - 1)) for one in said]
                after[name] = _moved(NO_POOL, carry[name], references, found)
        return after

    def _set_out(self, place: Place, carry: Memory, own: Memory, parts: PartsOf | None = None) -> Memory:
        """State before the first round; own has terms (n_components, n_rows), empty without a block, and scalars."""
        shape, tree, terms = place.shape, self.around.tree(place.network), own["terms"]
        state: dict[str, NDArray[Any]] = dict(carry) or _nothing(place.memo, shape, place.position, tree)
        references, thresholds = _thresholds(place.memo, state["total"], state["pace"], self.silence)
        bits = NO_BITS
        if not carry:
            bits = np.packbits((terms != 0).any(axis=0) if terms.size else np.zeros(shape.n_rows, bool))
        state |= {**own, "thresholds": thresholds, "references": references, "bits": bits}
        return state if tree.below[place.position] else self._up(place, state, parts=parts)

    def _up(self, place: Place, state: Memory, scalars: Sequence[Array] = (), parts: PartsOf | None = None) -> Memory:
        """Encode the change of the agent's subtree, with the children's scalars; at the root, of the total."""
        tree = self.around.tree(place.network)
        is_top, before = place.position == tree.top, state["total"]
        sent = before if is_top else state["sent"]
        references = state["references"]
        share = 1.0 if is_top else 1.0 / max(1, len(place.network.positions) - 1)
        n_codes = len(sent) * max(sent.shape[1] - 1, 0)
        codes, scales, level = np.empty((count_layers(is_first=_is_first(state)), n_codes), dtype=np.uint8), [], 0.0
        moved = sent
        changes = np.empty((len(sent), codes.shape[1] // max(1, len(sent))), dtype=np.uint16)
        steps, below = steps_for(sent), state["below"] if len(state["below"]) else None
        parts = parts or partial(_slices, state["terms"], state.get("ends", np.array([len(sent)])))
        for number, layer in enumerate(codes):
            least = 0.0 if number < FIRST_WHOLE else FIRST_ERROR
            after, largest, level = place.pool.array(*sent.shape), 0, 0.0
            for rows, terms in parts():
                known = terms, None if below is None else below[rows], moved[rows]
                silent = state["thresholds"][rows], references[rows], least, share
                most, sum_here = find_changes(steps, *known, *silent, changes[rows], after[rows])
                largest, level = max(largest, int(most)), level + sum_here
            scales.append(exponent_of(largest))
            if encode(changes.ravel(), scales[-1], layer):
                add_decoded(steps, layer[None], np.array(scales[-1:]), references, moved, after)
            moved = after
        added = add_in_order([np.append(state["scalars"], level), *scalars])
        out = pack(Parts(added, tuple(scales), codes, state["bits"]), place.memo)
        state = {**state, "terms": NO_TERMS, "thresholds": NO_THRESHOLDS}  # not needed again
        if is_top:
            return _down(place, place.position, state, out, moved)
        return {**state, "sent": moved, "out": out, f"{SAID} sent": tail_of(place, out)}


KEPT = ("sent", "below", "total", "pace", "present")
NO_THRESHOLDS, NO_TERMS = np.empty((0, 0), dtype=np.float32), np.empty((0, 0))
NO_BITS = np.zeros(0, dtype=np.uint8)
SAID = "said"
"""Prefix of the names of the codes by which messages changed an array, without the scalars."""


def _slices(terms: Array, ends: NDArray[np.int64]) -> Iterator[tuple[slice, Array | None]]:
    """Iterate over terms (n_components, n_rows), or None without terms, in the parts in which they were computed."""
    for first, last in pairwise([0, *ends.tolist()]):
        yield slice(first, last), terms[:, first:last] if terms.size else None


def _nothing(memo: Memo, shape: Shape, position: Position, tree: SpanningTree) -> dict[str, NDArray[Any]]:
    """Carry before the first sum: zeros for the link to the parent, the links to children, and the total."""
    size = shape.n_rows, shape.width
    total, pace = memo.once(f"zeros {size}", [], lambda: (np.zeros(size), np.zeros(1)))
    return {
        "sent": np.zeros((0 if position == tree.top else size[0], size[1])),
        "below": np.zeros((size[0] if tree.below[position] else 0, size[1])),
        "total": total,
        "pace": pace,
        "present": np.zeros(0, dtype=np.uint8),
    }


def _down(
    place: Place, sender: Position, state: Memory, message: NDArray[np.uint8], moved: Array | None = None
) -> Memory:
    """Update the total by the message that all agents receive."""

    def move() -> tuple[NDArray[Any], ...]:
        parts = parse(place, sender, message, is_first=_is_first(state))
        total = _moved(place.pool, state["total"], state["references"], [parts]) if moved is None else moved
        return (
            total,
            np.array([mean_change(steps_for(total), state["total"], total)]),
            parts.scalars,
            parts.present,
        )

    total, pace, scalars, bits = place.memo.once("total", [state["total"], message], move)
    present = np.unpackbits(bits, count=place.shape.n_rows) if len(bits) else state["present"]
    return {
        **state,
        "total": total,
        "pace": pace,
        "scalars": scalars,
        "bits": bits,
        "present": present,
        "out": message,
        f"{SAID} total": tail_of(place, message),
    }


def _is_first(state: Memory) -> bool:
    """True in the first sum of a series, whose messages also contain the present rows."""
    return len(state["bits"]) > 0


def _moved(pool: BufferPool, memory: Array, references: References, found: Sequence[Parts]) -> Array:
    """Return an array (n_rows, n_components) after the changes of some messages."""
    after = pool.array(*memory.shape)
    codes = found[0].codes if len(found) == 1 else np.concatenate([parts.codes for parts in found])
    scales = np.array([scale for parts in found for scale in parts.scales])
    add_decoded(steps_for(memory), codes, scales, references, memory, after)
    return after


def _values(pool: BufferPool, state: Memory) -> Array:
    """Sum that all agents use; shape (n_values,)."""
    total, present = state["total"], state["present"].astype(bool)
    *scalars, level = state["scalars"].tolist()
    level = mean_level(level, int(np.count_nonzero(present)))
    values = pool.array(total.size + len(scalars))
    values[total.size :] = scalars
    # A row of zeros would count as absent.
    by_component = values[: total.size].reshape(total.shape[1], -1)
    find_sums(total, state["references"], present, level or np.finfo(float).tiny, by_component)
    return values


def _thresholds(memo: Memo, total: Array, pace: Array, silence: float) -> tuple[References, NDArray[np.float32]]:
    """Find the leading component of each row, and the thresholds of the changes of the others."""

    def find() -> Arrays:
        references = np.empty(len(total), dtype=np.uint16)
        thresholds = np.empty((len(total), max(total.shape[1] - 1, 0)), dtype=np.float32)
        find_thresholds(steps_for(total), total, least_change(silence, pace), references, thresholds)
        return references, thresholds

    references, thresholds = memo.once(f"thresholds {silence}", [total, pace], find)
    return references, thresholds
