"""Compiled inner loops of a pass over rows, for columns that are independent of each other; and responsibilities.

`tests/definitions.py` defines each kernel in plain numpy; the tests compare the kernels with it. Most kernels work on
a tile of rows with columns before rows in memory, so that vector instructions run along the rows.
"""

from __future__ import annotations

import math

import numpy as np

from vpem.core.blocks.weights import LOWEST
from vpem.core.compiling import PRECISE, REORDER, compiled


@compiled(REORDER)
def count_larger(X, size):  # type: ignore[no-untyped-def]
    """Count the values of X (n_rows, n_columns) whose absolute value exceeds a size; gaps do not count."""
    count = 0
    for m in range(X.shape[0]):
        for j in range(X.shape[1]):
            count += abs(X[m, j]) > size
    return count


@compiled(REORDER)
def add_moments(X, counts, sums, largest):  # type: ignore[no-untyped-def]
    """Update number, sum and largest absolute value of each column, (n_columns,) each, by X (n_rows, n_columns)."""
    for m in range(X.shape[0]):
        for j in range(X.shape[1]):
            x = X[m, j]
            value = x if x == x else 0.0
            counts[j] += 1.0 if x == x else 0.0
            sums[j] += value
            largest[j] = max(largest[j], abs(value))


@compiled(REORDER)
def add_squares(X, means, squares):  # type: ignore[no-untyped-def]
    """Add squared deviations of X (n_rows, n_columns) from means (n_columns,) to squares; a gap adds nothing."""
    for m in range(X.shape[0]):
        for j in range(X.shape[1]):
            deviation = X[m, j] - means[j]
            squares[j] += deviation * deviation if deviation == deviation else 0.0


@compiled(REORDER)
def add_columns(XT, columns, means, scales, normalizers, targets, out):  # type: ignore[no-untyped-def]
    """Add log-densities of single columns to their blocks; a gap adds nothing.

    XT (n_columns, n_rows); columns: numbers of the columns to process; means, scales (1 / deviation), normalizers
    (n_components, n_columns); targets (n_columns,): index of each column in out (n_targets, n_components, n_rows).
    """
    n_rows = XT.shape[1]
    for j in columns:
        target = targets[j]
        for k in range(means.shape[0]):
            mean, scale, normalizer = means[k, j], scales[k, j], normalizers[k, j]
            for m in range(n_rows):
                x = XT[j, m]
                deviation = (x - mean) * scale
                value = max(normalizer - 0.5 * deviation * deviation, LOWEST)
                out[target, k, m] += value if x == x else 0.0


@compiled(REORDER)
def total_of(values):  # type: ignore[no-untyped-def]
    """Sum of values."""
    total = 0.0
    for m in range(values.shape[0]):
        total += values[m]
    return total


@compiled(PRECISE)
def respond(sums, log_weights, scores, counts, entropies, has_gaps):  # type: ignore[no-untyped-def]
    """Replace sums by responsibilities, or by zeros for rows that no party has, whose sums are zero.

    sums (n_views, n_components, n_rows), log_weights (n_views, n_components); fills scores (n_views, n_rows) with
    log-likelihoods, and adds to counts (n_views, n_components) and entropies (n_views,).

    The exponential is the usual method: a power of two, assembled from its bits, times a polynomial. It is accurate
    to the last bit or two, and is vectorized.
    """
    n_views, n_components, n_rows = sums.shape
    largest, total, bits = np.empty(n_rows), np.empty(n_rows), np.empty(n_rows, dtype=np.int64)
    powers, is_there = bits.view(np.float64), np.empty(n_rows)
    joint = np.empty((n_components, n_rows))
    for v in range(n_views):
        largest[:] = -np.inf
        total[:] = 0.0
        is_there[:] = 0.0 if has_gaps else 1.0
        if has_gaps:
            for k in range(n_components):
                for m in range(n_rows):
                    is_there[m] = 1.0 if sums[v, k, m] != 0.0 else is_there[m]
        for k in range(n_components):
            weight = log_weights[v, k]
            for m in range(n_rows):
                joint[k, m] = sums[v, k, m] + weight
                largest[m] = max(largest[m], joint[k, m])
        for k in range(n_components):
            for m in range(n_rows):
                x = max(joint[k, m] - largest[m], -708.0)
                shifted = x * 1.4426950408889634 + 6755399441055744.0  # its last bits hold the nearest integer
                powers[m] = shifted
                whole = shifted - 6755399441055744.0
                rest = (x - whole * 6.93147180369123816490e-01) - whole * 1.90821492927058770002e-10
                p = 1.0 / 479001600
                p = p * rest + 1.0 / 39916800
                p = p * rest + 1.0 / 3628800
                p = p * rest + 1.0 / 362880
                p = p * rest + 1.0 / 40320
                p = p * rest + 1.0 / 5040
                p = p * rest + 1.0 / 720
                p = p * rest + 1.0 / 120
                p = p * rest + 1.0 / 24
                p = p * rest + 1.0 / 6
                p = p * rest + 0.5
                p = p * rest + 1.0
                sums[v, k, m] = (p * rest + 1.0) if x > -708.0 else 0.0
            for m in range(n_rows):
                bits[m] = (bits[m] + 1023) << 52
            for m in range(n_rows):
                sums[v, k, m] *= powers[m]
                total[m] += sums[v, k, m]
        for m in range(n_rows):
            scores[v, m] = (math.log(total[m]) + largest[m]) * is_there[m]
            total[m] = is_there[m] / total[m]
        largest[:] = 0.0  # reuse: each row's entropy
        for k in range(n_components):
            for m in range(n_rows):
                responsibility = sums[v, k, m] * total[m]
                sums[v, k, m] = responsibility
                largest[m] += responsibility * (scores[v, m] - joint[k, m])
            counts[v, k] += total_of(sums[v, k])
        entropies[v] += total_of(largest)


@compiled(PRECISE)
def find_largest(values, best, largest):  # type: ignore[no-untyped-def]
    """Find the largest of values (n, n_rows) for each row, and its index, the first of equal ones; both (n_rows,)."""
    for m in range(values.shape[1]):
        best[m], largest[m] = 0, values[0, m]
    for k in range(1, values.shape[0]):
        for m in range(values.shape[1]):
            is_larger = values[k, m] > largest[m]
            best[m] = k if is_larger else best[m]
            largest[m] = values[k, m] if is_larger else largest[m]


@compiled(PRECISE)
def respond_nearest(sums, scores, counts):  # type: ignore[no-untyped-def]
    """Replace sums of -1/2 squared distances by hard responsibilities; `definitions.nearest` in the tests.

    Fills scores (n_views, n_rows) with squared distances, adds to counts (n_views, n_components).
    """
    n_views, n_components, n_rows = sums.shape
    best, largest, is_there = np.empty(n_rows, dtype=np.int64), np.empty(n_rows), np.empty(n_rows, dtype=np.int64)
    for v in range(n_views):
        find_largest(sums[v], best, largest)
        is_there[:] = 0
        for k in range(n_components):
            for m in range(n_rows):
                is_there[m] |= sums[v, k, m] != 0.0
        n_there = 0
        for m in range(n_rows):
            scores[v, m] = -2.0 * largest[m]
            n_there += is_there[m]
            best[m] = best[m] if is_there[m] else -1
        share = 1.0 / n_components
        for k in range(n_components):
            n_own = 0
            for m in range(n_rows):
                sums[v, k, m] = 1.0 if best[m] == k else 0.0
                n_own += best[m] == k
            counts[v, k] += n_own + (n_rows - n_there) * share
        if n_there < n_rows:
            for k in range(n_components):
                for m in range(n_rows):
                    sums[v, k, m] = share if best[m] < 0 else sums[v, k, m]


@compiled(REORDER)
def collect_columns(XT, columns, shifts, responsibilities, views, counts, firsts, seconds):  # type: ignore[no-untyped-def]
    """Add weighted sums of single columns' deviations from shifts (n_components, n_columns), and of their squares.

    responsibilities (n_views, n_components, n_rows), views (n_columns,): the view of each column; adds to counts,
    firsts and seconds (n_components, n_columns). Gaps do not count.
    """
    n_rows = XT.shape[1]
    for j in columns:
        view = views[j]
        for k in range(shifts.shape[0]):
            shift, count, first, second = shifts[k, j], 0.0, 0.0, 0.0
            for m in range(n_rows):
                x = XT[j, m]
                there = x == x
                weight = responsibilities[view, k, m] if there else 0.0
                deviation = x - shift if there else 0.0
                count += weight
                first += weight * deviation
                second += weight * deviation * deviation
            counts[k, j] += count
            firsts[k, j] += first
            seconds[k, j] += second


@compiled(REORDER)
def fill_columns(  # type: ignore[no-untyped-def]
    XT, blocks, starts, means, scales, shifts, responsibilities, views, counts, firsts, seconds, entropies
):
    """Add the expected values of gaps in rows with some values of the block to the sums of `collect_columns`.

    blocks: numbers of the blocks to process; starts: first column of each block; entropies (n_blocks,): adds the
    entropies of the gaps.
    """
    n_rows, n_components = XT.shape[1], means.shape[0]
    is_there = np.empty(n_rows)
    for b in blocks:
        is_there[:] = 0.0
        for j in range(starts[b], starts[b + 1]):
            for m in range(n_rows):
                is_there[m] = 1.0 if XT[j, m] == XT[j, m] else is_there[m]
        for j in range(starts[b], starts[b + 1]):
            for k in range(n_components):
                lacking = 0.0
                for m in range(n_rows):
                    weight = responsibilities[views[j], k, m] * is_there[m]
                    lacking += 0.0 if XT[j, m] == XT[j, m] else weight
                if lacking > 0.0:
                    moved, scale = means[k, j] - shifts[k, j], scales[k, j]
                    counts[k, j] += lacking
                    firsts[k, j] += lacking * moved
                    seconds[k, j] += lacking * (moved * moved + 1.0 / (scale * scale))
                    entropies[b] += lacking * (0.5 + 0.5 * math.log(2.0 * math.pi) - math.log(scale))


@compiled(REORDER)
def pass_columns(  # type: ignore[no-untyped-def]
    X, means, scales, normalizers, log_weights, shifts, counts, firsts, seconds, totals, scores, entropies
):
    """Do a whole pass if all columns are independent and every agent gets the exact sum; each row is read once.

    X (n_rows, n_columns), rows first; means, scales, normalizers, shifts, and the sums counts, firsts and seconds
    (n_components, n_columns) in the order of its columns; log_weights, totals (n_components,); scores (n_rows,),
    which is infinity for a row without any value; entropies (1,). The sums are those of `collect_columns`; shifts
    without columns collect nothing.
    """
    n_rows, n_columns = X.shape
    n_components = means.shape[0]
    joint, powers, constants = np.empty(n_components), np.empty(n_components), np.empty(n_components)
    for k in range(n_components):
        constants[k] = log_weights[k]
        for j in range(n_columns):
            constants[k] += normalizers[k, j]
    for m in range(n_rows):
        n_there = n_columns
        for k in range(n_components):
            squares = 0.0
            for j in range(n_columns):
                deviation = (X[m, j] - means[k, j]) * scales[k, j]
                squares += deviation * deviation
            joint[k] = max(constants[k] - 0.5 * squares, LOWEST) if squares == squares else np.nan
        if joint[0] != joint[0]:
            n_there = 0
            for k in range(n_components):
                joint[k] = log_weights[k]
            for j in range(n_columns):
                if X[m, j] == X[m, j]:
                    n_there += 1
                    for k in range(n_components):
                        deviation = (X[m, j] - means[k, j]) * scales[k, j]
                        joint[k] += max(normalizers[k, j] - 0.5 * deviation * deviation, LOWEST)
        if n_there == 0:
            scores[m] = np.inf
            continue
        largest, total = -np.inf, 0.0
        for k in range(n_components):
            largest = max(largest, joint[k])
        for k in range(n_components):
            powers[k] = math.exp(joint[k] - largest)
            total += powers[k]
        score = math.log(total) + largest
        scores[m] = score
        for k in range(n_components):
            weight = powers[k] / total
            totals[k] += weight
            entropies[0] += weight * (score - joint[k])
            if weight == 0.0 or shifts.shape[1] == 0:
                continue
            if n_there == n_columns:
                for j in range(n_columns):
                    deviation = X[m, j] - shifts[k, j]
                    counts[k, j] += weight
                    firsts[k, j] += weight * deviation
                    seconds[k, j] += weight * deviation * deviation
            else:
                for j in range(n_columns):
                    if X[m, j] == X[m, j]:
                        deviation = X[m, j] - shifts[k, j]
                        counts[k, j] += weight
                        firsts[k, j] += weight * deviation
                        seconds[k, j] += weight * deviation * deviation


@compiled(REORDER)
def add_row_distances(X, centres, out):  # type: ignore[no-untyped-def]
    """Add minus half the squared distances of whole rows to out (n_centres, n_rows); a gap adds nothing.

    X (n_rows, n_columns), rows first in memory; centres (n_centres, n_columns).
    """
    for m in range(X.shape[0]):
        for k in range(centres.shape[0]):
            total = 0.0
            for j in range(X.shape[1]):
                deviation = X[m, j] - centres[k, j]
                square = deviation * deviation
                total += square if square == square else 0.0
            out[k, m] += max(-0.5 * total, LOWEST)


@compiled(REORDER)
def collect_rows(X, shifts, responsibilities, counts, firsts, seconds):  # type: ignore[no-untyped-def]
    """Add the sums of `collect_columns`, from X with rows first in memory and one view (n_components, n_rows).

    Efficient if most responsibilities are zero, because those are skipped.
    """
    for m in range(X.shape[0]):
        for k in range(shifts.shape[0]):
            weight = responsibilities[k, m]
            if weight == 0.0:
                continue
            for j in range(X.shape[1]):
                x = X[m, j]
                there = x == x
                own = weight if there else 0.0
                deviation = x - shifts[k, j] if there else 0.0
                counts[k, j] += own
                firsts[k, j] += own * deviation
                seconds[k, j] += own * deviation * deviation
