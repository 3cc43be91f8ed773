"""Phases before EM: columns that are pooled, and starts, of which k-means and labels need the network.

A phase's `offer` is what the agent brings to the exchange; its `absorb` is what it makes of the outcome.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from vpem.core.agent.em_phases import begin_run
from vpem.core.agent.progress import Array, Clustering, Integers, Progress, pack_generator, unpack_generator
from vpem.core.agent.work import Offer, Outcome, StudyError, Work, label_exchange, row_numbers
from vpem.core.blocks.weights import make_weights
from vpem.core.decisions.initial import (
    KMEANS_MAX_ITER,
    KMEANS_TOL,
    START,
    draw_candidates,
    lloyd_stop,
    movement_limit,
    n_candidates,
    potentials,
    random_rows,
    shared_generator,
)
from vpem.core.decisions.local import describe_rows
from vpem.core.decisions.starts import start_from_labels, start_from_seed
from vpem.core.network.packets import encode_packet
from vpem.core.network.summation import Shape

NOT_FIRST = "expected the first root to draw from the beginning, got another first root since; begin a new study"
"""Other agents than before, or other columns, have met."""


def offer_columns(work: Work, _: Progress) -> Offer:
    """A party's own columns, to be sent to the root of its hub."""
    return Offer(columns=None if work.own is None else np.asarray(work.own[:], dtype=np.float64))


def absorb_columns(_: Work, progress: Progress, __: Outcome) -> Progress:
    """Go on to the first start; the columns themselves are put together by the agent."""
    return replace(progress, phase="start")


def begin_start(work: Work, progress: Progress) -> Progress:
    """Begin the start whose number it is."""
    progress = replace(progress, memories={})
    kind, n_components = work.roles.agreement.init_params, work.settings.n_components
    # Another set of parties from the same start would add the same, but for what the missing ones have added.
    gone = work.roles.gone if work.summation.is_masked else ()
    generator = shared_generator(work.roles.agreement.seed, START, progress.start, *gone)
    n_rows = work.roles.n_rows
    if kind in ("kmeans", "k-means++"):
        picked = random_rows(generator, n_rows, 1).astype(np.int64)
        packed = pack_generator(generator) if work.is_first_root else None
        clustering = Clustering(picked, picked[:0], generator=packed, choice=int(picked[0]))
        if n_components == 1:
            return begin_clusters(work, replace(progress, clustering=clustering))
        return replace(progress, phase="first row", clustering=clustering)
    if kind == "labels":
        return replace(progress, phase="labels")
    if not work.is_root or kind == "given":
        if work.is_root and not work.given.is_complete(work.density):
            raise StudyError("expected a whole start, weights and parameters, to be given to every root, got less")
        return begin_run(work, progress, None, None)
    weights, (block,), (collapsed,) = start_from_seed(
        kind, work.table, work.lone, work.overall, work.density, n_components, generator
    )
    return begin_run(work, progress, weights, block, tuple(collapsed))


def offer_first_row(work: Work, progress: Progress) -> Offer:
    """Distances to the row that the shared seed chose."""
    return _offer_distances(work, _clustering(progress).picked)


def absorb_first_row(work: Work, progress: Progress, outcome: Outcome) -> Progress:
    """The root of the first hub draws candidates for the next row."""
    clustering = _clustering(progress)
    if work.is_first_root:
        clustering = _draw(work, replace(clustering, closest=outcome.values.copy()))
    return replace(progress, phase="draw", clustering=clustering)


def offer_draw(work: Work, progress: Progress) -> Offer:
    """The chosen row, and the candidates for the next one."""
    clustering = _clustering(progress)
    decision = np.full(1 + n_candidates(work.settings.n_components), math.inf)
    if work.is_first_root:
        decision[0] = clustering.choice
        decision[1:] = clustering.candidates if len(clustering.candidates) else clustering.choice
    return Offer(decision=decision)


def absorb_draw(work: Work, progress: Progress, outcome: Outcome) -> Progress:
    """Everybody knows the chosen row now."""
    clustering = _clustering(progress)
    rows = row_numbers(outcome.decision, work.roles.n_rows)
    picked = clustering.picked if clustering.n_draws == 0 else np.append(clustering.picked, rows[0])
    clustering = replace(clustering, picked=picked, candidates=rows[1:].copy(), n_draws=clustering.n_draws + 1)
    if len(picked) < work.settings.n_components:
        return replace(progress, phase="try", clustering=clustering)
    return begin_clusters(work, replace(progress, clustering=clustering))


def offer_try(work: Work, progress: Progress) -> Offer:
    """Distances to the candidates."""
    return _offer_distances(work, _clustering(progress).candidates)


def absorb_try(work: Work, progress: Progress, outcome: Outcome) -> Progress:
    """The root of the first hub chooses the candidate that leaves the smallest distances."""
    clustering = _clustering(progress)
    if work.is_first_root:
        if clustering.closest is None:
            raise StudyError(NOT_FIRST)
        distances = outcome.values.reshape(-1, work.roles.n_rows).T
        best = int(potentials(clustering.closest, distances).argmin())
        closest = np.minimum(clustering.closest, distances[:, best])
        clustering = replace(clustering, closest=closest, choice=int(clustering.candidates[best]))
        if len(clustering.picked) + 1 < work.settings.n_components:
            clustering = _draw(work, clustering)
        else:
            clustering = replace(clustering, candidates=clustering.candidates[:0])
    return replace(progress, phase="draw", clustering=clustering)


def begin_clusters(work: Work, progress: Progress) -> Progress:
    """Lloyd's algorithm from the chosen rows."""
    clustering = replace(_clustering(progress), closest=None, generator=None)
    if work.is_root:
        centres = work.centres(clustering.picked)
        n_features = sum(map(len, work.roles.network.columns))
        limit = movement_limit(KMEANS_TOL, work.overall.feature_variances(0, work.columns), centres, n_features)
        clustering = replace(clustering, centres=centres, limit=limit, would_stop=False)
    return replace(progress, phase="cluster", clustering=clustering)


def offer_cluster(work: Work, progress: Progress) -> Offer:
    """Distances to the centres; rides along: whether this agent would stop."""
    clustering = _clustering(progress)
    shape = Shape(work.roles.n_rows, work.settings.n_components)
    values = None
    if clustering.centres is not None:
        values = _distances(work, clustering.centres)
    return Offer(shape, values, np.array([float(clustering.would_stop)]), series="cluster")


def absorb_cluster(work: Work, progress: Progress, outcome: Outcome) -> Progress:
    """Move the centres, or start EM from the labels."""
    clustering = _clustering(progress)
    sums = outcome.values.reshape(-1, work.roles.n_rows)
    ended = clustering.n_iter > 0 and bool(outcome.decision[0])
    most = KMEANS_MAX_ITER if work.roles.agreement.init_params == "kmeans" else 0
    if ended or clustering.n_iter == most:
        return _start_from_labels(work, progress, sums)
    clustering = replace(clustering, n_iter=clustering.n_iter + 1)
    if clustering.centres is not None:
        found = work.collect(work.kmeans_pass(clustering.centres), slice(0, work.roles.n_rows), -0.5 * sums)
        centres, inertia = found.means(), float(found.scores[0])
        settled = np.square(centres - clustering.centres).sum() <= clustering.limit
        would_stop, lowest, since = lloyd_stop(settled, inertia, clustering.lowest, clustering.since_lowest)
        clustering = replace(
            clustering,
            centres=centres,
            lowest=float(lowest),
            since_lowest=int(since),
            would_stop=bool(would_stop),
        )
    return replace(progress, clustering=clustering)


def offer_weights(work: Work, progress: Progress) -> Offer:
    """How many rows each component has at the start, as the root of the first hub sees it."""
    clustering = _clustering(progress)
    decision = np.full(work.settings.n_components, math.inf)
    if work.is_first_root:
        if clustering.counts is None:
            raise StudyError(NOT_FIRST)
        decision = clustering.counts
    return Offer(decision=decision)


def absorb_weights(work: Work, progress: Progress, outcome: Outcome) -> Progress:
    """All begin EM with the same weights."""
    clustering = _clustering(progress)
    counts = outcome.decision
    if not (np.isfinite(counts).all() and (counts >= 0).all() and counts.sum() > 0):
        raise StudyError(f"expected how many rows each component has, got {counts.tolist()}")
    return begin_run(work, progress, make_weights(counts), clustering.block, clustering.collapsed)


def offer_labels(work: Work, progress: Progress) -> Offer:
    """Labels of the block's own clusters."""
    roles, values = work.roles, None
    if work.is_root:
        seed = label_exchange(roles.agreement, progress.start).seed
        counts = [int(work.overall.columns[0].counts.max())]
        (found,) = describe_rows(work.table, [work.columns], counts, [work.hub], seed, features=work.overall.features)
        values = encode_packet(work.hub, found)
    return Offer(Shape(roles.n_rows, len(roles.network.hubs)), values)


def absorb_labels(work: Work, progress: Progress, outcome: Outcome) -> Progress:
    """Start EM from labels that all agents have."""
    if not work.is_root:
        return begin_run(work, progress, None, None)
    weights, (block,), (collapsed,) = start_from_labels(
        work.table, work.lone, work.overall, work.density, work.settings.n_components, outcome.values
    )
    return begin_run(work, progress, weights, block, tuple(collapsed))


def _start_from_labels(work: Work, progress: Progress, sums: Array) -> Progress:
    clustering = _clustering(progress)
    all_see_the_same = work.roles.agreement.summation.is_common or len(work.roles.network.hubs) == 1
    if clustering.centres is None:
        return begin_run(work, progress, None, None) if all_see_the_same else replace(progress, phase="weights")
    before = work.density.around(clustering.centres, work.overall.blocks[0])
    halves = work.kmeans_pass(clustering.centres, fill=before)
    found = work.collect(halves, slice(0, work.roles.n_rows), -0.5 * sums)
    block, collapsed = work.m_step(found.statistics()[0], before)
    if all_see_the_same:
        return begin_run(work, progress, make_weights(found.counts[0]), block, tuple(collapsed))
    clustering = replace(clustering, block=block, collapsed=tuple(collapsed), counts=found.counts[0])
    return replace(progress, phase="weights", clustering=clustering)


def _clustering(progress: Progress) -> Clustering:
    if progress.clustering is None:
        raise StudyError(f"expected a k-means in the phase {progress.phase!r}, got a state without one")
    return progress.clustering


def _draw(work: Work, clustering: Clustering) -> Clustering:
    """Candidates for the next row."""
    if clustering.generator is None or clustering.closest is None:
        raise StudyError(NOT_FIRST)
    generator = unpack_generator(clustering.generator)
    rows = draw_candidates(generator, clustering.closest, n_candidates(work.settings.n_components))
    return replace(clustering, candidates=rows.astype(np.int64), generator=pack_generator(generator))


def _distances(work: Work, centres: Array) -> Array:
    return -2.0 * work.kmeans_pass(centres).term(work.table, slice(0, work.roles.n_rows)).whole()


def _offer_distances(work: Work, numbers: Integers) -> Offer:
    values = _distances(work, work.centres(numbers)) if work.is_root else None
    return Offer(Shape(work.roles.n_rows, len(numbers)), values)
