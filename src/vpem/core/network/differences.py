"""Sums that send only what has changed, rounded: few bytes once EM goes slowly, and exact in the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.changes import Parts, count_layers, most_coded, pack, parse, parse_tail, tail_of
from vpem.core.network.coding import (
    add_decoded,
    encode,
    exponent_of,
    find_changes,
    find_sums,
    find_thresholds,
    mean_change,
    steps_for,
    whole_numbers,
)
from vpem.core.network.hubs import Position
from vpem.core.network.parties import Network
from vpem.core.network.sharing import Arrays, once
from vpem.core.network.star import Star
from vpem.core.network.summation import (
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
    Term,
    add_in_order,
)
from vpem.core.network.tree import SpanningTree, Tree
from vpem.core.rooms import room_for

FIRST_WHOLE, FIRST_ERROR = 2, 0.5
"""Of the codes for each number in the first sum, from which EM sets out, the first two are for all numbers, the
others for what is then still wrong by so many nats, over the number of links."""
MOST_SILENT = 0.1
"""Nats below which a change may be silent, at most, where a row is not decided."""
ROUNDING_ERROR = 1e-12
"""Nats below which a change is what rounding has left."""
MOST_LEVEL = 2.0**20
"""Size of the mean log-density that is added to ratios: a larger one would cost their digits."""

USUAL = (0.25, 0.7)
"""Bytes for each entry of a message, on average over a fit: measured, see `docs/howto/scale-and-cost.md`."""

References = NDArray[np.uint16]
"""(n_rows,): against which component a row's ratios are."""
PartsOf = Callable[[], Iterable[tuple[slice, Array | None]]]
"""A term, some rows after the other."""


@dataclass(frozen=True)
class Differences(Summation):
    """A star or a tree on which both ends of a link remember, and only rounded changes are sent.

    What is added are log-ratios: in each row, of the components against the one that led at the last total. A sender
    keeps what its rounding left over and sends it with the next change, so that sums become exact as EM settles. An
    entry is silent while it can hardly change a responsibility. The total is rounded once, on top, and all work with
    the same bits.

    Only the sums of EM's iterations are sent so; others (k-means, predictions) go whole.

    Parameters
    ----------
    around : Star or Tree
        The way that sums take.
    silence : float, default=0.1
        An entry is silent while its change is smaller than this share of the mean change of the last total, over
        the number of links. 0: only rounding is left, and what cannot matter.
    """

    around: Star | Tree
    silence: float = 0.1

    def __post_init__(self) -> None:
        if not isinstance(self.around, Star | Tree):
            raise ValueError(
                f"expected Star() or Tree() in Differences, got {self.around!r}; averages with real weights keep no "
                "sums of what was sent"
            )
        if not isinstance(self.silence, int | float) or not 0 <= self.silence < 1:
            raise ValueError(f"expected silence to be a number from 0 to less than 1, got {self.silence!r}")

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
        """The likelihood of its sums is not that of the parameters."""
        return True

    def check(self, network: Network) -> None:
        """See `Star` and `Tree`."""
        self.around.check(network)

    def error_factor(self, network: Network) -> float:  # noqa: ARG002 (on all networks)
        """What is left shrinks with every sum."""
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

    def payload(self, network: Network | None, shape: Shape) -> Payload:  # noqa: ARG002 (on all networks)
        """Bytes, as many as it takes; never more than whole numbers would have."""
        return Payload(max(most_coded(shape), 8 * shape.n_values), "u1", is_fixed=False)

    def lengths(self, network: Network, shape: Shape, series: str = "", stage: int = 0) -> Lengths:  # noqa: ARG002
        """From a message that says nothing to a byte for each entry; other sums are whole."""
        if not series.startswith(ITERATE):
            n_bytes = 8 * shape.n_values
            return Lengths(n_bytes, (n_bytes, n_bytes), n_bytes)
        n_entries = shape.n_rows * max(shape.width - 1, 0)
        nothing = np.zeros(0, dtype=np.uint8)
        silent = Parts(np.zeros(shape.n_scalars + 1), (0,), np.zeros((1, n_entries), dtype=np.uint8), nothing)
        fewest, most = len(pack(silent)), most_coded(shape)
        low, high = (min(fewest + math.ceil(share * n_entries), most) for share in USUAL)
        return Lengths(fewest, (low, high), most)

    def carried_bytes(self, network: Network, position: Position, shape: Shape) -> int:
        """Memory of the links and of the total."""
        kept = _nothing(shape, position, self.around.tree(network))
        return sum(array.nbytes for array in kept.values()) + shape.n_rows  # and which rows there are

    # A sum

    def begin(self, place: Place, carry: Memory, term: Array | None) -> Memory:
        """Who has nothing below begins with its own change."""
        if not place.series.startswith(ITERATE):
            return self.around.begin(place, carry, term)
        shape = place.shape
        n_numbers = shape.n_rows * shape.width
        if term is None:
            return self._set_out(place, carry, {"terms": NO_TERMS, "scalars": np.zeros(shape.n_scalars)})
        return self._set_out(
            place, carry, {"terms": term[:n_numbers].reshape(shape.width, -1), "scalars": term[n_numbers:].copy()}
        )

    def begin_with(self, place: Place, carry: Memory, term: Term) -> Memory:
        """Who has nothing below needs each row once, but for the first sum. Others make all, and then wait."""
        is_other = type(self).begin is not Differences.begin  # of a subclass, which is to see every term
        if not place.series.startswith(ITERATE) or not carry or is_other:
            return self.begin(place, carry, term.whole())
        known: Memory = {"terms": NO_TERMS, "scalars": term.scalars}
        if not self.around.tree(place.network).below[place.position]:
            return self._set_out(place, carry, known, term.parts)
        whole, ends = term.whole_in_parts()
        terms = whole[: len(whole) - len(term.scalars)].reshape(place.shape.width, -1)
        return self._set_out(place, carry, {**known, "terms": terms, "ends": ends})

    def message(self, place: Place, step: int, state: Memory) -> NDArray[Any]:
        """The changes of all below, or of the total."""
        if place.series.startswith(ITERATE):
            return state["out"]
        return np.ascontiguousarray(self.around.message(place, step, state)).view(np.uint8)

    def combine(self, place: Place, step: int, state: Memory, received: Mapping[Position, NDArray[Any]]) -> Memory:
        """On the way up, add and pass on; on the way down, move the total."""
        if not place.series.startswith(ITERATE):
            whole = {sender: whole_numbers(place, sender, values) for sender, values in received.items()}
            return self.around.combine(place, step, state, whole)
        if step >= self.around.tree(place.network).depth:
            ((sender, message),) = received.items()
            return _down(place, sender, state, message)
        found = [parse(place, sender, message, is_first=_is_first(state)) for sender, message in received.items()]
        below, bits = _moved(state["below"], state["references"], found), state["bits"]
        for parts in found:
            bits = bits | parts.present
        said = {f"{SAID} below {number:05}": tail_of(place, one) for number, one in enumerate(received.values())}
        state = {**state, **said, "below": below, "bits": bits}
        return self._up(place, state, [parts.scalars for parts in found])

    def end(self, place: Place, state: Memory) -> tuple[Array, Memory]:
        """Log-densities as far as differences tell them: in each row up to a number, which is right on average."""
        if not place.series.startswith(ITERATE):
            return self.around.end(place, state)
        (values,) = once("values", [state["total"], state["out"]], lambda: (_values(state),))
        return values, {name: state[name] for name in KEPT}

    def changes(self, state: Memory) -> Memory:
        """What messages have said, and the pace; nothing for a first sum, in which all is new, and for other sums."""
        if "out" not in state or _is_first(state):
            return NO_MEMORY
        return {name: state[name] for name in state if name == "pace" or name.startswith(SAID)}

    def redo(self, carry: Memory, changes: Memory) -> Memory:
        """Memories, moved by the same codes in the same order."""
        (n_rows, width), after = carry["total"].shape, {**carry, "pace": changes["pace"]}
        references = carry["total"].argmax(axis=1).astype(np.uint16)
        for name in ("sent", "below", "total"):
            said = [changes[one] for one in sorted(changes) if one.startswith(f"{SAID} {name}")]
            if said:
                found = [parse_tail(one, 1, n_rows * (width - 1)) for one in said]
                after[name] = _moved(carry[name], references, found)
        return after

    def _set_out(self, place: Place, carry: Memory, own: Memory, parts: PartsOf | None = None) -> Memory:
        """State before the first round; own: terms (n_components, n_rows), if there are any, and scalars."""
        shape, tree, terms = place.shape, self.around.tree(place.network), own["terms"]
        state: dict[str, NDArray[Any]] = dict(carry) or _nothing(shape, place.position, tree)
        references, thresholds = _thresholds(state["total"], state["pace"], self.silence)
        bits = NO_BITS
        if not carry:
            bits = np.packbits((terms != 0).any(axis=0) if terms.size else np.zeros(shape.n_rows, bool))
        state |= {**own, "thresholds": thresholds, "references": references, "bits": bits}
        return state if tree.below[place.position] else self._up(place, state, parts=parts)

    def _up(self, place: Place, state: Memory, scalars: Sequence[Array] = (), parts: PartsOf | None = None) -> Memory:
        """The change of what is here and below, with the scalars from below; on top, of the total."""
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
            after, largest, level = room_for(*sent.shape), 0, 0.0
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
        out = pack(Parts(added, tuple(scales), codes, state["bits"]))
        state = {**state, "terms": NO_TERMS, "thresholds": NO_THRESHOLDS}  # not needed again
        if is_top:
            return _down(place, place.position, state, out, moved)
        return {**state, "sent": moved, "out": out, f"{SAID} sent": tail_of(place, out)}


KEPT = ("sent", "below", "total", "pace", "present")
NO_THRESHOLDS, NO_TERMS = np.empty((0, 0), dtype=np.float32), np.empty((0, 0))
NO_BITS = np.zeros(0, dtype=np.uint8)
SAID = "said"
"""Beginning of the names of what messages have said of a memory, without their scalars."""


def _slices(terms: Array, ends: NDArray[np.int64]) -> Iterator[tuple[slice, Array | None]]:
    """Parts of terms (n_components, n_rows), if there are any; the same as those in which they were made."""
    for first, last in pairwise([0, *ends.tolist()]):
        yield slice(first, last), terms[:, first:last] if terms.size else None


def _nothing(shape: Shape, position: Position, tree: SpanningTree) -> dict[str, NDArray[Any]]:
    """Memory before the first sum: of the link upward, of those from below, and of the total."""
    size = shape.n_rows, shape.width
    total, pace = once(f"zeros {size}", [], lambda: (np.zeros(size), np.zeros(1)))
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
    """The total, moved by the bytes that all get."""

    def move() -> tuple[NDArray[Any], ...]:
        parts = parse(place, sender, message, is_first=_is_first(state))
        total = _moved(state["total"], state["references"], [parts]) if moved is None else moved
        return (
            total,
            np.array([mean_change(steps_for(total), state["total"], total)]),
            parts.scalars,
            parts.present,
        )

    total, pace, scalars, bits = once("total", [state["total"], message], move)
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
    """Whether a sum has none before it: it says which rows there are."""
    return len(state["bits"]) > 0


def _moved(memory: Array, references: References, found: Sequence[Parts]) -> Array:
    """A memory, (n_rows, n_components), after some messages."""
    after = room_for(*memory.shape)
    codes = found[0].codes if len(found) == 1 else np.concatenate([parts.codes for parts in found])
    scales = np.array([scale for parts in found for scale in parts.scales])
    add_decoded(steps_for(memory), codes, scales, references, memory, after)
    return after


def _values(state: Memory) -> Array:
    """The sum that all work with, (n_values,)."""
    total, present = state["total"], state["present"].astype(bool)
    *scalars, level = state["scalars"].tolist()
    level = min(max(level / max(1, np.count_nonzero(present)), -MOST_LEVEL), MOST_LEVEL)
    values = room_for(total.size + len(scalars))
    values[total.size :] = scalars
    # Zeros would mean that there is no such row.
    by_component = values[: total.size].reshape(total.shape[1], -1)
    find_sums(total, state["references"], present, level or np.finfo(float).tiny, by_component)
    return values


def _thresholds(total: Array, pace: Array, silence: float) -> tuple[References, NDArray[np.float32]]:
    """Against which component each row's ratios are, the leading one; and what others must change by to matter."""

    def find() -> Arrays:
        references = np.empty(len(total), dtype=np.uint16)
        thresholds = np.empty((len(total), max(total.shape[1] - 1, 0)), dtype=np.float32)
        least = max(min(silence * float(pace[0]), MOST_SILENT), ROUNDING_ERROR)
        find_thresholds(steps_for(total), total, least, references, thresholds)
        return references, thresholds

    references, thresholds = once(f"thresholds {silence}", [total, pace], find)
    return references, thresholds
