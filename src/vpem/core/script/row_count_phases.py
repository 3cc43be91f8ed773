"""Phases that count how many blocks have each row, where a sum of few terms would tell too much.

The counts are added before anything else is. Rows with too few holders are gaps at all parties from then on. In a
prediction, a party also refuses rows that were added before with other holders: the difference of the two sums would
be what one party has added. It knows such rows by their keys, which the engine makes of their ids. It refuses if it
holds one itself now and did not then, or the other way round: so of any two sets of parties that differ, an honest
party notices, if it is one of those by which they differ. And it refuses if the number of holders is another.

Agents without keys know rows by their values, and by the number of holders alone. Where columns have few different
values, rows that come again may not be noticed, or others be taken for them.

What was seen is in the last checkpoint, so that it is saved before the terms of a row are sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vpem.core.decisions.initial import shared_generator
from vpem.core.network.sums import Series, Shape, SumKind
from vpem.core.rows import Table, row_chunks, rows_held
from vpem.core.script.context import Context, Offer, Outcome, StudyError
from vpem.core.script.state import Integers, Prediction, Progress

DIGESTS = 17
"""Purpose of the numbers by which rows without keys are recognized."""
MOST_SEEN = 20_000_000
"""Rows that a party remembers, in 16 bytes each."""
NOTHING: Integers = np.empty(0, dtype=np.int64)


def offer_holders(context: Context, progress: Progress) -> Offer:
    """Offer 1 for each row that a held block has, and 0 for the others."""
    prediction = _prediction(progress)
    if prediction is not None and context.gone:
        raise StudyError(
            f"expected the parties of the fit in a masked prediction, got it without agents {list(context.gone)}; "
            "two sums of the same rows that differ by a party tell what that party has added: fit again without them"
        )
    if prediction is not None:
        _check_own(context, progress.seen)
    n_rows = context.n_rows if prediction is None else prediction.n_rows
    terms = [rows_held(context.table, held) for held in context.local.block_columns] if context.hubs else None
    return Offer(Shape(n_rows, 1), terms, series=Series(SumKind.HOLDERS))


def absorb_holders(context: Context, progress: Progress, outcome: Outcome) -> Progress:
    """Continue with the rows that enough blocks have."""
    holders = np.rint(outcome.values[0]).astype(np.int64)
    if not (holders >= context.least_holders).any():
        raise StudyError(
            f"expected rows that at least {context.least_holders} parties have, got none; "
            "more parties need the same rows, or the study must accept rows of fewer"
        )
    return replace(progress, phase="start", holders=holders, seen=_see(context, progress.seen, holders))


def absorb_new_holders(context: Context, progress: Progress, outcome: Outcome) -> Progress:
    """Continue with new rows that enough blocks have; refuse rows that are added again with other parties."""
    prediction = _prediction(progress)
    assert prediction is not None, "there are new rows"
    holders = np.rint(outcome.values[0]).astype(np.int64)
    seen = _see(context, progress.seen, holders)
    return replace(progress, phase="predict", seen=seen, prediction=replace(prediction, holders=holders))


def _see(context: Context, seen: Mapping[str, Integers], holders: Integers) -> Mapping[str, Integers]:
    """Remember rows that are about to be added, and with which parties; ValueError if they were, with others."""
    if not context.remembers_rows or not context.hubs or not context.summation.refuses_repeats:
        return seen
    return _see_values(context, seen, holders) if context.keys is None else _see_keys(context, seen, holders)


def _see_keys(context: Context, seen: Mapping[str, Integers], holders: Integers) -> Mapping[str, Integers]:
    """Recognize rows by keys; remember the number of holders, and whether this block is one."""
    assert context.keys is not None, "rows have keys"
    states = 2 * holders + _held(context)
    then = _states_then(context.keys, seen)
    _refuse(np.flatnonzero((then >= 0) & (then != states)))
    is_new = (then < 0) & (context.keys != 0) & (holders >= context.least_holders)
    if not is_new.any():
        return seen
    keys, all_states = (
        np.append(seen.get(name, NOTHING), own[is_new]) for name, own in (("keys", context.keys), ("states", states))
    )
    if len(keys) > MOST_SEEN:
        raise ValueError(
            f"expected at most {MOST_SEEN:,} rows in the fit and all predictions of a study, to remember with which "
            f"parties they were added, got {len(keys):,}; begin a new study, or accept that rows are added again"
        )
    order = np.argsort(keys)
    return {**seen, "keys": keys[order], "states": all_states[order]}


def _check_own(context: Context, seen: Mapping[str, Integers]) -> None:
    """ValueError if this block has rows that it had not when they were added, or has not those that it had."""
    if context.hubs and context.summation.refuses_repeats and context.keys is not None:
        then = _states_then(context.keys, seen)
        _refuse(np.flatnonzero((then >= 0) & (then % 2 != _held(context))))


def _held(context: Context) -> Integers:
    return rows_held(context.table, context.local.block_columns[0]).astype(np.int64)


def _states_then(keys: Integers, seen: Mapping[str, Integers]) -> Integers:
    """Remembered states of rows, (n_rows,); -1 for rows that are new or have no key."""
    known, states = seen.get("keys", NOTHING), seen.get("states", NOTHING)
    place = np.searchsorted(known, keys)
    place[place == len(known)] = 0
    is_known = np.zeros(len(keys), dtype=bool) if len(known) == 0 else known[place] == keys
    found = np.full(len(keys), -1)
    found[is_known] = states[place[is_known]]
    return found


def _refuse(rows: NDArray[np.intp]) -> None:
    if len(rows):
        raise ValueError(
            f"expected rows that are added again to have the same parties as before, got {len(rows)} with others "
            f"(first: row {rows[0]}); the difference of the two sums would be a party's own term"
        )


def _see_values(context: Context, seen: Mapping[str, Integers], holders: Integers) -> Mapping[str, Integers]:
    """Recognize rows by their values, at agents without keys; remember the number of holders."""
    digests = row_digests(context.table)
    is_own = digests != 0
    digests, counts = digests[is_own], holders[is_own]
    known, then = seen.get("digests", digests[:0]), seen.get("counts", counts[:0])
    before, repeated = set(zip(known.tolist(), then.tolist(), strict=True)), np.isin(digests, known)
    pairs = zip(digests[repeated].tolist(), counts[repeated].tolist(), strict=True)
    _refuse(np.flatnonzero(is_own)[repeated][[pair not in before for pair in pairs]])
    both = np.unique(np.stack([np.append(known, digests), np.append(then, counts)]), axis=1)
    return {"digests": both[0].copy(), "counts": both[1].copy()}


def row_digests(table: Table) -> Integers:
    """A number for each row, the same for the same values; 0 for rows of gaps; (n_rows,)."""
    found = np.zeros(len(table), dtype=np.uint64)
    factors = shared_generator(0, DIGESTS).integers(2**63, size=table.shape[1], dtype=np.uint64) * np.uint64(2) + 1
    for rows in row_chunks(0, len(table), table.shape[1]):
        part = np.ascontiguousarray(table[rows], dtype=np.float64) + 0.0  # one zero
        words = (part.view(np.uint64) ^ (part.view(np.uint64) >> np.uint64(29))) * factors
        digests = words.sum(axis=1, dtype=np.uint64)
        digests ^= digests >> np.uint64(32)
        found[rows] = np.where(np.isnan(part).all(axis=1), 0, digests | np.uint64(1))
    return found.view(np.int64)


def _prediction(progress: Progress) -> Prediction | None:
    return progress.prediction if progress.phase == "new holders" else None
