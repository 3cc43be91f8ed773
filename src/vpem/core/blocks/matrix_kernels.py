"""Compiled inner loops for blocks with full covariance matrices, gaps included.

`tests/definitions.py` defines each kernel in plain numpy; the tests compare the kernels with it. If a row has some
values of a block, its gaps are filled in with conditional means, component by component. Then it is processed like a
row without gaps: its distance equals that of the marginal density, and its products lack only the conditional
covariance. This is the same for all rows with the same gaps (one pattern), and is added at the end.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.blocks.kernels import total_of
from vpem.core.blocks.weights import EPSILON, LOWEST
from vpem.core.compiling import PRECISE, REORDER, compiled

Numbers = NDArray[np.int64]

STRIP = 128
"""Number of rows of a matrix block that are processed together: a few columns of them fit the first-level cache."""

WHOLE, ABSENT = -1, -2
"""States of rows without a pattern: all values are observed, or all are missing."""


class Patterns(NamedTuple):
    """Patterns of missing values of a tile's rows in blocks that may have gaps; numbered block by block."""

    places: Numbers
    """(n_blocks,): row of `states` for each block; -1 for blocks without gaps."""
    states: Numbers
    """(n_gappy, n_rows): number of a row's pattern, `WHOLE` or `ABSENT`."""
    firsts: Numbers
    """(n_gappy + 1,): first pattern of each block."""
    starts: Numbers
    """(n_patterns + 1,): start of each pattern in `missing`."""
    missing: Numbers
    """Missing columns of each pattern, numbered within their block."""


def find_patterns(XT: NDArray[np.float64], starts: Numbers, blocks: Numbers) -> Patterns:
    """Find the patterns of gaps of blocks in a tile of rows.

    Parameters
    ----------
    XT : array of shape (n_columns, n_rows)
    starts : array of shape (n_blocks + 1,)
        First column of each block.
    blocks : array
        Blocks that may have gaps.
    """
    places = np.full(len(starts) - 1, -1)
    places[blocks] = np.arange(len(blocks))
    states = np.full((len(blocks), XT.shape[1]), WHOLE)
    firsts, lengths, missing = [0], [np.zeros(1, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for place, b in enumerate(blocks):
        gaps = np.isnan(XT[starts[b] : starts[b + 1]])
        n_gaps = gaps.sum(axis=0)
        rows = np.flatnonzero((n_gaps > 0) & (n_gaps < len(gaps)))
        states[place, n_gaps == len(gaps)] = ABSENT
        bits = np.packbits(gaps[:, rows], axis=0).T
        n_bytes = 8 * -(-bits.shape[1] // 8)
        words = np.zeros((len(rows), n_bytes), dtype=np.uint8)
        words[:, : bits.shape[1]] = bits
        codes = words.view(np.uint64)[:, 0] if n_bytes == 8 else words.view(np.dtype((np.void, n_bytes)))[:, 0]
        _, examples, inverse = np.unique(codes, return_index=True, return_inverse=True)
        states[place, rows] = firsts[-1] + inverse
        firsts.append(firsts[-1] + len(examples))
        numbers, columns = np.nonzero(gaps[:, rows[examples]].T)
        missing.append(columns)
        lengths.append(np.bincount(numbers, minlength=len(examples)))
    return Patterns(
        places, states, np.array(firsts), np.cumsum(np.concatenate(lengths)), np.concatenate(missing).astype(np.int64)
    )


@compiled(PRECISE)
def make_rules(precision, first, last, starts, missing, slopes, spreads, corrections):  # type: ignore[no-untyped-def]
    """Compute regressions of missing on observed columns, for the patterns first to last of one block and component.

    precision (width, width). Fills slopes (n_missing, width): slopes of missing columns' conditional means, zero at
    columns that are missing themselves; spreads (n_missing, most): conditional covariances; corrections
    (n_patterns,): log-normalizer of the marginal density minus that of the joint density.
    """
    most = spreads.shape[1]
    factor, inverse = np.empty((most, most)), np.empty((most, most))
    slopes[:] = 0.0
    for p in range(first, last):
        own, base = missing[starts[p] : starts[p + 1]], starts[p] - starts[first]
        n = len(own)
        log_determinant = 0.0
        for a in range(n):  # Cholesky
            for b in range(a + 1):
                value = precision[own[a], own[b]]
                for c in range(b):
                    value -= factor[a, c] * factor[b, c]
                if a > b:
                    factor[a, b] = value / factor[b, b]
                else:
                    factor[a, a] = math.sqrt(max(value, EPSILON * precision[own[a], own[a]]))
            log_determinant += math.log(factor[a, a])
        for a in range(n):
            for b in range(a + 1):
                value = 1.0 if a == b else 0.0
                for c in range(b, a):
                    value -= factor[a, c] * inverse[c, b]
                inverse[a, b] = value / factor[a, a]
        for a in range(n):
            for b in range(n):
                value = 0.0
                for c in range(max(a, b), n):
                    value += inverse[c, a] * inverse[c, b]
                spreads[base + a, b] = value
        for j in range(precision.shape[0]):
            is_missing = False
            for a in range(n):
                is_missing = is_missing or own[a] == j
            if not is_missing:
                for a in range(n):
                    value = 0.0
                    for b in range(n):
                        value -= spreads[base + a, b] * precision[own[b], j]
                    slopes[base + a, j] = value
        corrections[p - first] = 0.5 * n * math.log(2.0 * math.pi) - log_determinant


@compiled(REORDER)
def fill_strip(deviations, states, starts, missing, first_pattern, slopes, offsets):  # type: ignore[no-untyped-def]
    """Fill in a strip's gaps with conditional means; absent rows become zero.

    deviations (width, n_rows), from the means less offsets (width,); states (n_rows,).
    """
    width = slopes.shape[1]
    row = np.empty(width)
    for m in range(len(states)):
        p = states[m]
        if p == ABSENT:
            for j in range(width):
                deviations[j, m] = 0.0
        elif p != WHOLE:
            own, base = missing[starts[p] : starts[p + 1]], starts[p] - starts[first_pattern]
            for j in range(width):
                row[j] = deviations[j, m] + offsets[j]
            for j in own:
                row[j] = 0.0
            for a in range(len(own)):
                total = 0.0
                for j in range(width):
                    total += slopes[base + a, j] * row[j]
                deviations[own[a], m] = total - offsets[own[a]]


@compiled(REORDER)
def add_matrices(  # type: ignore[no-untyped-def]
    XT, blocks, starts, offsets, means, whiteners, precisions, normalizers, targets, patterns, out
):
    """Add log-densities of rows' observed values in blocks with full matrices to out; absent rows add nothing.

    blocks: numbers of the blocks to process; starts: first column of each block; offsets: start of its whiteners in
    the flat array, (n_components, width, width), upper triangular, and of its precisions, if it has gaps; normalizers
    (n_blocks, n_components); patterns: result of `find_patterns`; out (n_targets, n_components, n_rows).
    """
    n_rows, n_components = XT.shape[1], means.shape[0]
    places, states, firsts, ends, missing = patterns
    for b in blocks:
        start, width, place = starts[b], starts[b + 1] - starts[b], places[b]
        # Pad both with zeros, so that columns can be processed by fours and by twos.
        work, whitener = np.zeros((3 + width + 3, STRIP)), np.zeros((width + 3, width + 1))
        squares, whitened, other, deviations = work[0], work[1], work[2], work[3:]
        first_pattern, last_pattern = (firsts[place], firsts[place + 1]) if place >= 0 else (0, 0)
        slopes, spreads, corrections = rule_arrays(first_pattern, last_pattern, ends, width)
        no_offsets = np.zeros(width)
        for k in range(n_components):
            base = offsets[b] + k * width * width
            for i in range(width):
                for j in range(i, width):
                    whitener[i, j] = whiteners[base + i * width + j]
            if last_pattern > first_pattern:
                precision = precisions[base : base + width * width].reshape((width, width))
                make_rules(precision, first_pattern, last_pattern, ends, missing, slopes, spreads, corrections)
            for first in range(0, n_rows, STRIP):
                n = min(STRIP, n_rows - first)
                for i in range(width):
                    mean = means[k, start + i]
                    for m in range(n):
                        deviations[i, m] = XT[start + i, first + m] - mean
                if place >= 0:
                    own = states[place, first : first + n]
                    fill_strip(deviations, own, ends, missing, first_pattern, slopes, no_offsets)
                squares[:] = 0.0
                # Two columns of the whitener by four columns of the rows: each loaded value is used several times.
                for j in range(0, width, 2):
                    whitened[:] = 0.0
                    other[:] = 0.0
                    for i in range(0, min(j + 2, width), 4):
                        u0, u1, u2, u3 = whitener[i, j], whitener[i + 1, j], whitener[i + 2, j], whitener[i + 3, j]
                        v0, v1, v2, v3 = (
                            whitener[i, j + 1],
                            whitener[i + 1, j + 1],
                            whitener[i + 2, j + 1],
                            whitener[i + 3, j + 1],
                        )
                        for m in range(STRIP):
                            d0, d1 = deviations[i, m], deviations[i + 1, m]
                            d2, d3 = deviations[i + 2, m], deviations[i + 3, m]
                            whitened[m] += u0 * d0 + u1 * d1 + u2 * d2 + u3 * d3
                            other[m] += v0 * d0 + v1 * d1 + v2 * d2 + v3 * d3
                    for m in range(STRIP):
                        squares[m] += whitened[m] * whitened[m] + other[m] * other[m]
                normalizer, target = normalizers[b, k], targets[start]
                if place < 0:
                    for m in range(n):
                        out[target, k, first + m] += max(normalizer - 0.5 * squares[m], LOWEST)
                else:
                    for m in range(n):
                        p = states[place, first + m]
                        if p != ABSENT:
                            more = corrections[p - first_pattern] if p != WHOLE else 0.0
                            out[target, k, first + m] += max(normalizer + more - 0.5 * squares[m], LOWEST)


@compiled(PRECISE)
def rule_arrays(first, last, starts, width):  # type: ignore[no-untyped-def]
    """Allocate the outputs of `make_rules`."""
    most = 0
    for p in range(first, last):
        most = max(most, starts[p + 1] - starts[p])
    n_missing = starts[last] - starts[first]
    return np.empty((n_missing, width)), np.empty((n_missing, most)), np.empty(last - first)


@compiled(REORDER)
def collect_matrices(  # type: ignore[no-untyped-def]
    XT,
    blocks,
    starts,
    offsets,
    means,
    precisions,
    shifts,
    responsibilities,
    views,
    patterns,
    counts,
    firsts,
    scatters,
    entropies,
):
    """Add weighted sums of blocks' deviations from shifts and of their products (upper triangles), gaps filled in.

    Absent rows do not count. scatters: flat, each block's (n_components, width, width) at its offset; counts are
    stored at the first column of a block; entropies (n_blocks,): entropies of the gaps. The other arguments are those
    of `add_matrices`.
    """
    n_rows, n_components, sums = XT.shape[1], shifts.shape[0], np.zeros((2, 4))
    places, states, first_of, ends, missing = patterns
    for b in blocks:
        start, width, place, view = starts[b], starts[b + 1] - starts[b], places[b], views[starts[b]]
        work = np.zeros((3 + width + 3, STRIP))
        weighted, other, weights, deviations = work[0], work[1], work[2], work[3:]
        first_pattern, last_pattern = (first_of[place], first_of[place + 1]) if place >= 0 else (0, 0)
        slopes, spreads, corrections = rule_arrays(first_pattern, last_pattern, ends, width)
        for k in range(n_components):
            base = offsets[b] + k * width * width
            own_shifts = shifts[k, start : start + width]
            filled, moved = np.zeros(last_pattern - first_pattern), own_shifts
            if last_pattern > first_pattern:
                precision = precisions[base : base + width * width].reshape((width, width))
                make_rules(precision, first_pattern, last_pattern, ends, missing, slopes, spreads, corrections)
                moved = own_shifts - means[k, start : start + width]
            for first in range(0, n_rows, STRIP):
                n = min(STRIP, n_rows - first)
                weights[n:] = 0.0
                for m in range(n):
                    weights[m] = responsibilities[view, k, first + m]
                if place >= 0:
                    for m in range(n):
                        p = states[place, first + m]
                        if p == ABSENT:
                            weights[m] = 0.0
                        elif p != WHOLE:
                            filled[p - first_pattern] += weights[m]
                count = total_of(weights)
                if count == 0.0:
                    continue
                counts[k, start] += count
                for i in range(width):
                    shift = own_shifts[i]
                    for m in range(n):
                        deviations[i, m] = XT[start + i, first + m] - shift
                if place >= 0:
                    own = states[place, first : first + n]
                    fill_strip(deviations, own, ends, missing, first_pattern, slopes, moved)
                for i in range(0, width, 2):
                    one, two = 0.0, 0.0
                    for m in range(STRIP):
                        weighted[m] = weights[m] * deviations[i, m]
                        other[m] = weights[m] * deviations[i + 1, m]
                        one += weighted[m]
                        two += other[m]
                    firsts[k, start + i] += one
                    if i + 1 < width:
                        firsts[k, start + i + 1] += two
                    for j in range(i, width, 4):
                        a0, a1, a2, a3, b0, b1, b2, b3 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
                        for m in range(STRIP):
                            d0, d1, d2, d3 = (
                                deviations[j, m],
                                deviations[j + 1, m],
                                deviations[j + 2, m],
                                deviations[j + 3, m],
                            )
                            w, z = weighted[m], other[m]
                            a0 += w * d0
                            a1 += w * d1
                            a2 += w * d2
                            a3 += w * d3
                            b0 += z * d0
                            b1 += z * d1
                            b2 += z * d2
                            b3 += z * d3
                        sums[0, 0], sums[0, 1], sums[0, 2], sums[0, 3] = a0, a1, a2, a3
                        sums[1, 0], sums[1, 1], sums[1, 2], sums[1, 3] = b0, b1, b2, b3
                        for s in range(2):
                            for t in range(4):
                                if i + s < width and i + s <= j + t < width:
                                    scatters[base + (i + s) * width + j + t] += sums[s, t]
            for p in range(first_pattern, last_pattern):
                own, weight = missing[ends[p] : ends[p + 1]], filled[p - first_pattern]
                entropies[b] += weight * (0.5 * len(own) + corrections[p - first_pattern])
                for s in range(len(own)):
                    for t in range(s, len(own)):
                        spread = spreads[ends[p] - ends[first_pattern] + s, t]
                        scatters[base + own[s] * width + own[t]] += weight * spread
