"""Averages that continue from the last sum, by quantized changes: the sums of EM where neighbours average.

Every agent has numbers z, and a copy q of them that all its neighbours share. A message is the quantized difference
between z and q, which every holder of q adds to it. Then

    z_i <- m (z_i + sum_j V_ij (q_j - q_i)) + (1 - m) (z_i of the round before)

preserves the sum over agents, however coarse the rounding is, and the rounding error is sent with the next change. A
sum starts from the z of the last one, plus the change of the agent's own term. So z and q are carried from sum to
sum: as EM converges, messages become shorter and sums become exact.

Only differences within a row matter. Scalars, which belong to no row, and the level of all rows together are flooded:
each agent forwards each number once, so that all agents have the exact values.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.compressed_consensus.chebyshev import Averaging, accelerate
from vpem.core.network.compressed_consensus.copies import LEADER, find_codes, mixed, moved, settle
from vpem.core.network.hubs import Position
from vpem.core.network.memo import Arrays, Memo
from vpem.core.network.parties import Network
from vpem.core.network.quantization import (
    SCALE,
    compress,
    decompress,
    least_change,
    mean_change,
    mean_level,
    most_compressed,
    steps_for,
)
from vpem.core.network.summation import add_in_order
from vpem.core.network.sums import MOST_RETREATS, Array, Lengths, Memory, Place, Series, Shape, WrongMessageError

ALONE, FIRST, NEXT = 1e-8, 1e-4, 0.5
"""Error factors for rounds with momentum, times the number of agents: for a single sum, as in predictions; for the
sums of k-means and the first sum of EM; and for later sums of EM, which continue from the last one."""
LARGEST_ERROR = 1e-6
"""Maximum error of the sums of k-means and the first sum of EM, relative to the spread of the terms."""
WHOLE, BEGUN, TRACKED = 1, 2, 3
"""Stages after stage 0, which is that of a single sum: sums of k-means, sent as whole numbers; the first sum of EM,
sent as quantized changes; and later sums of EM, which continue from the last one."""
N_STAGES = 1 + TRACKED + MOST_RETREATS
SILENCE = 0.1
"""Threshold of a change, relative to the mean change in the last sum; entries with smaller changes are not sent."""
MARGIN = 0.5
"""Margin of `accelerate`. Without a margin, rounding and momentum made numbers grow on long paths and stars; with
this one, they did not grow on any graph tried."""
FEWEST_ROUNDS = 8, 2
"""Minimum rounds in the first sum of a series and in later ones: each round divides the rounding error by nine."""
FARTHEST = 2.0**40
"""Maximum distance of a component from the leader at one agent, in nats times the number of agents: the rounding of
larger numbers would change the sum too much."""
SCALES = range(-1100, 64)
"""Valid exponents of changes."""
MOST_AGENTS = 10_000
"""Maximum number of agents, assumed while the network is unknown."""
USUAL = (0.3, 0.8)
"""Range of the bytes per entry of a message, averaged over a fit; measured, see `docs/howto/scale-and-cost.md`."""


class Parts(NamedTuple):
    """Contents of a message."""

    told: NDArray[np.bool_]
    """Shape (n_agents,): True for agents whose scalars the message contains."""
    scalars: Array
    """Shape (n_told, n_scalars + 1): scalars of each of these agents, and its level."""
    scale: int
    packed: bytes
    """Codes of all entries, leaders and, in a first sum, a bit for each present row; compressed."""


def stage_of(shape: Shape, series: Series, carry: Memory) -> int:
    """Stage of a single sum, a sum of k-means, the first sum of EM, or a later one after some rollbacks."""
    if not series.is_em:
        return WHOLE if series else 0
    return TRACKED + int(retreats_of(carry)[0]) if goes_on(shape, carry) else BEGUN


def averaging_in(stage: int, W: Array) -> Averaging:
    """Return the rounds of a stage for these weights."""
    return accelerate(W, MARGIN * (stage >= BEGUN))


def n_rounds(network: Network, stage: int, averaging: Averaging) -> int:
    """Number of rounds of averaging in a sum: after rollbacks, 1.5 times as many for each."""
    n_agents = len(network.parties)
    first = min(FIRST, LARGEST_ERROR * n_agents)
    factor = (ALONE, first, first, NEXT)[min(stage, TRACKED)] / n_agents
    fewest = 1 if stage < BEGUN else FEWEST_ROUNDS[min(stage, TRACKED) - BEGUN]
    needed = max(network.diameter, fewest, averaging.rounds_needed(factor))
    return math.ceil(needed * 1.5 ** max(0, stage - TRACKED))


def goes_on(shape: Shape, carry: Memory) -> bool:
    """True if the carry has an earlier sum to continue from."""
    return len(carry.get("lead", ())) == shape.n_rows and "own" in carry


def retreats_of(carry: Memory) -> NDArray[np.int64]:
    """Number of rollbacks so far; shape (1,)."""
    return np.asarray(carry.get("retreats", np.zeros(1, dtype=np.int64)))


def carried_bytes(network: Network, position: Position, shape: Shape) -> int:
    """Bytes of the carry: last sum minus own term, own copy, neighbours' copies, pace, rows and rollbacks."""
    n_copies = 2 + len(network.neighbours[position])
    return 8 * n_copies * shape.n_rows * shape.width + 8 + shape.n_rows + 8


# A sum


def begin(place: Place, carry: Memory, term: Array | None) -> Memory:
    """Add the change of the agent's own term to the last sum, and encode the first message."""
    network, (n_rows, width, n_scalars) = place.network, place.shape
    size, n_agents = (n_rows, width), len(network.positions)
    is_first = not goes_on(place.shape, carry)
    own = np.zeros(place.shape.n_values) if term is None else term
    terms = place.shape.by_row(own)
    known = np.full((n_agents, n_scalars + 1), math.nan)
    scaled, level = _scaled(n_agents, terms)
    known[place.position] = np.append(own[n_rows * width :], level)
    state: dict[str, NDArray[Any]] = {"retreats": retreats_of(carry), "scaled": scaled, "known": known}
    if is_first:
        (zeros,) = place.memo.once(f"no copy {size}", [], lambda: (np.zeros(size),))
        state |= {_copy_of(peer): zeros for peer in network.neighbours[place.position]}
        state |= {"values": scaled.copy(), "own": zeros, "pace": np.zeros(1)}
        state |= {"bits": np.packbits((terms != 0).any(axis=1)), "present": np.zeros(0, dtype=np.uint8)}
    else:
        state |= {name: array for name, array in carry.items() if name != "lead"}
        state |= {"values": carry["lead"] + scaled, "bits": np.zeros(0, dtype=np.uint8)}
    settle(state["values"])
    state |= {"begun": state["own"], "before": state["values"], "told": np.zeros(n_agents, dtype=np.uint8)}
    return _speak(place.memo, state)


def combine(
    place: Place,
    step: int,
    n_rounds: int,
    momentum: float,
    averaging: Averaging,
    state: Memory,
    received: Mapping[Position, NDArray[Any]],
) -> Memory:
    """Update the copies of the senders, average, and encode the next message unless this is the last round."""
    weights, known, bits = averaging.weights[place.position], state["known"].copy(), state["bits"]
    copies, others = {}, []
    for peer, message in received.items():
        news, scalars, new, present = _hear(place, peer, message, state[_copy_of(peer)], len(bits))
        if len(scalars):
            known[news] = np.where(np.isnan(known[news]), scalars, known[news])
        bits = bits | present
        copies[_copy_of(peer)] = new
        others.append((float(weights[peer]), new))
    values = mixed(state["values"], state["before"], momentum, state["own"], others)
    found = {**state, **copies, "values": values, "before": state["values"], "known": known, "bits": bits}
    return found if step + 1 == n_rounds else _speak(place.memo, found)


def end(place: Place, state: Memory) -> tuple[Array, Memory]:
    """Return log-densities, in each row up to a constant that is right on average, and the carry."""
    values, is_first = state["values"], len(state["bits"]) > 0
    found = np.unpackbits(state["bits"], count=place.shape.n_rows) if is_first else state["present"]
    present = found.astype(bool)
    *scalars, level = add_in_order(np.nan_to_num(state["known"], nan=0.0)).tolist()
    level -= float(values[present, 0].sum()) if values.shape[1] else 0.0  # of the leaders, not the first components
    sums = values + (
        mean_level(level, int(present.sum())) or np.finfo(float).tiny
    )  # a row of zeros would count as absent
    sums[~present] = 0.0
    pace = 0.0 if is_first else mean_change(steps_for(values), state["begun"], state["own"])
    kept = {name: state[name] for name in state if name == "own" or name.startswith(_copy_of(""))}
    carry = {**kept, "lead": values - state["scaled"], "pace": np.array([pace]), "present": found}
    return np.append(sums.T, scalars), {**carry, "retreats": state["retreats"]}


def _scaled(n_agents: int, terms: Array) -> tuple[Array, float]:
    """Return an agent's numbers before averaging, N times the log-ratios to the leader, and its level.

    The level is the sum over rows of the first component's terms.
    """
    if terms.shape[1] == 0:
        return n_agents * terms, 0.0
    leading = terms.max(axis=1, keepdims=True)
    behind = np.maximum(terms - leading, -FARTHEST / n_agents)
    return n_agents * behind, float(leading.sum() + behind[:, 0].sum())


def _speak(memo: Memo, state: Memory) -> Memory:
    """Encode the next message, and update the agent's own copy as all receivers will."""
    own, is_first = state["own"], len(state["bits"]) > 0
    least = least_change(SILENCE, state["pace"])
    scale, codes, leaders = find_codes(state["values"], own, least, is_sparing=not is_first)
    is_known = ~np.isnan(state["known"]).any(axis=1)
    news = is_known & ~state["told"].astype(bool)
    packed = compress(np.concatenate([codes, leaders.view(np.uint8), state["bits"]]))
    out = _write(Parts(news, state["known"][news], scale, packed))
    new = moved(own, scale, codes, leaders)
    if _is_right(scale, state["known"][news], len(news)):
        memo.tell("said", out, (weakref.ref(own), (news, state["known"][news], new, state["bits"])))
    return {**state, "own": new, "out": out, "told": np.asarray(is_known, dtype=np.uint8)}


def _copy_of(peer: Position | str) -> str:
    return f"copy {peer}"


# Messages


def most_coded(n_agents: int, shape: Shape) -> int:
    """Maximum length of a message of changes in bytes."""
    n_codes = shape.n_rows * (max(shape.width - 1, 0) + LEADER.itemsize) + (shape.n_rows + 7) // 8
    return _n_bits(n_agents) + 8 * n_agents * (shape.n_scalars + 1) + SCALE.itemsize + most_compressed(n_codes)


def lengths(n_agents: int, shape: Shape) -> Lengths:
    """Expected lengths: from a message without changes to one byte per entry."""
    n_entries = shape.n_rows * max(shape.width - 1, 0)
    silent = Parts(np.zeros(n_agents, dtype=bool), np.zeros((0, shape.n_scalars + 1)), 0, _silence(shape))
    fewest, most = len(_write(silent)), most_coded(n_agents, shape)
    low, high = (min(fewest + math.ceil(share * n_entries), most) for share in USUAL)
    return Lengths(fewest, (low, high), most)


def _silence(shape: Shape) -> bytes:
    return compress(np.zeros(shape.n_rows * (max(shape.width - 1, 0) + LEADER.itemsize), np.uint8))


def _n_bits(n_agents: int) -> int:
    return (n_agents + 7) // 8


def _write(parts: Parts) -> NDArray[np.uint8]:
    head = np.packbits(parts.told).tobytes() + parts.scalars.astype("<f8").tobytes()
    return np.frombuffer(head + np.array([parts.scale], SCALE).tobytes() + parts.packed, np.uint8)


def _read(place: Place, sender: Position, message: NDArray[np.uint8]) -> Parts:
    """Parse a neighbour's message; raise WrongMessageError if it is invalid."""
    n_agents, width = len(place.network.positions), place.shape.n_scalars + 1
    n_first = _n_bits(n_agents)
    told = np.unpackbits(message[:n_first], count=n_agents).astype(bool) if len(message) >= n_first else np.ones(0)
    n_head = n_first + 8 * int(told.sum()) * width
    if len(message) < n_head + SCALE.itemsize:
        raise WrongMessageError(sender, f"expected at least {n_head + SCALE.itemsize} bytes, got {len(message)}")
    scalars = np.frombuffer(message[n_first:n_head].tobytes(), "<f8").astype(np.float64).reshape(-1, width)
    (scale,) = np.frombuffer(message[n_head : n_head + SCALE.itemsize].tobytes(), SCALE).tolist()
    if not _is_right(scale, scalars, n_agents):
        raise WrongMessageError(sender, "expected finite numbers in a message of changes, got others")
    return Parts(told.astype(bool), scalars, scale, message[n_head + SCALE.itemsize :].tobytes())


def _is_right(scale: int, scalars: Array, n_agents: int) -> bool:
    """True if the numbers are finite, and so is any sum of them over agents."""
    return scale in SCALES and bool((np.abs(scalars) < 1e300 / n_agents).all())


def _hear(place: Place, sender: Position, message: NDArray[np.uint8], old: Array, n_bits: int) -> Arrays:
    """Decode a message: mask of agents with scalars, these scalars, the sender's updated copy, and bits of rows."""
    known = place.memo.told("said", message)
    if known is not None and known[0]() is old and len(known[1][-1]) == n_bits:
        shared: Arrays = known[1]  # the sender's own arrays, in the same process
        return shared
    parts = _read(place, sender, message)
    n_rows, width, _ = place.shape
    n_codes = n_rows * max(width - 1, 0)
    n_plain = n_codes + n_rows * LEADER.itemsize
    try:
        plain = decompress(parts.packed, n_plain + n_bits)
    except ValueError as error:
        raise WrongMessageError(sender, f"a message of changes: {error}") from None
    leaders = np.frombuffer(plain[n_codes:n_plain].tobytes(), LEADER)
    if (leaders > width).any():
        raise WrongMessageError(sender, f"expected leaders among {width} components, got others")
    return parts.told, parts.scalars, moved(old, parts.scale, plain[:n_codes], leaders), plain[n_plain:]
