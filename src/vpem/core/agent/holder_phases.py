"""Phases that count how many blocks have each row, where a sum of few terms would tell too much.

The counts are added before anything else is. Rows with too few holders are gaps at all parties from then on. In a
prediction, a party also refuses rows that were added before with another number of holders: the difference of the two
sums would be what one party has added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from vpem.core.agent.progress import Integers, Prediction, Progress
from vpem.core.agent.work import Offer, Outcome, StudyError, Work
from vpem.core.decisions.initial import shared_generator
from vpem.core.network.summation import HOLDERS, Shape
from vpem.core.rows import Table, row_chunks, rows_held

DIGESTS = 17
"""Purpose of the numbers by which rows are recognized."""


def offer_holders(work: Work, progress: Progress) -> Offer:
    """Which rows this block has: 1 or 0 for each."""
    prediction = _prediction(progress)
    if prediction is not None and work.roles.gone:
        raise StudyError(
            f"expected the parties of the fit in a masked prediction, got it without agents {list(work.roles.gone)}; "
            "two sums of the same rows that differ by a party tell what that party has added: fit again without them"
        )
    n_rows = work.roles.n_rows if prediction is None else prediction.n_rows
    values = rows_held(work.table, work.columns) if work.is_root else None
    return Offer(Shape(n_rows, 1), values, series=HOLDERS)


def absorb_holders(work: Work, progress: Progress, outcome: Outcome) -> Progress:
    """Go on with the rows that enough blocks have."""
    holders = np.rint(outcome.values).astype(np.int64)
    if not (holders >= work.least_holders).any():
        raise StudyError(
            f"expected rows that at least {work.least_holders} parties have, got none; "
            "more parties need the same rows, or the study must accept rows of fewer"
        )
    return replace(progress, phase="start", holders=holders, seen=_see(work, progress.seen, holders))


def absorb_new_holders(work: Work, progress: Progress, outcome: Outcome) -> Progress:
    """Go on with new rows that enough blocks have; refuse those that come again with others."""
    prediction = _prediction(progress)
    assert prediction is not None, "there are new rows"
    holders = np.rint(outcome.values).astype(np.int64)
    seen = _see(work, progress.seen, holders)
    return replace(progress, phase="predict", seen=seen, prediction=replace(prediction, holders=holders))


def _see(work: Work, seen: Mapping[str, Integers], holders: Integers) -> Mapping[str, Integers]:
    """Remember own rows and how many blocks have them; ValueError if they were added, but never with so many."""
    if not work.is_root or not work.summation.refuses_repeats:
        return seen
    digests = row_digests(work.table)
    is_own = digests != 0
    digests, counts = digests[is_own], holders[is_own]
    known, then = seen.get("digests", digests[:0]), seen.get("counts", counts[:0])
    before, repeated = set(zip(known.tolist(), then.tolist(), strict=True)), np.isin(digests, known)
    wrong = [
        row
        for row, *pair in zip(
            np.flatnonzero(is_own)[repeated], digests[repeated].tolist(), counts[repeated].tolist(), strict=True
        )
        if tuple(pair) not in before
    ]
    if wrong:
        raise ValueError(
            f"expected rows that are added again to have the same parties as before, got {len(wrong)} with others "
            f"(first: row {wrong[0]}); the difference of the two sums would be a party's own term"
        )
    pairs = np.unique(np.stack([np.append(known, digests), np.append(then, counts)]), axis=1)
    return {"digests": pairs[0].copy(), "counts": pairs[1].copy()}


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
