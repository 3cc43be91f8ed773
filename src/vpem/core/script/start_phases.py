"""Phases before EM: pooling of columns, and starts, of which k-means and labels need the network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vpem.core.blocks.weights import make_weights
from vpem.core.decisions.initial import (
    START,
    draw_candidates,
    lloyd_stop,
    movement_limit,
    n_candidates,
    potentials,
    random_rows,
    shared_generator,
)
from vpem.core.decisions.local_clusters import describe_rows
from vpem.core.decisions.starts import start_from_labels, start_from_seed
from vpem.core.network.packets import encode_packet
from vpem.core.network.sums import Series, Shape, SumKind
from vpem.core.script.context import Context, Distances, Offer, Outcome, StudyError, label_exchange, row_numbers
from vpem.core.script.em_phases import begin_run
from vpem.core.script.state import FORGET, Array, Clustering, Integers, Progress, pack_generator, unpack_generator

NOT_FIRST = "expected the first root to draw from the beginning, got another first root since; begin a new study"
"""Error if the agents or their columns changed since the start began."""


def offer_columns(context: Context, _: Progress) -> Offer:
    """Offer a party's own columns to the root of its hub."""
    return Offer(columns=context.own_columns())


def absorb_columns(_: Context, progress: Progress, __: Outcome) -> Progress:
    """Continue with the first start; the agent joins the columns."""
    return replace(progress, phase="start")


def begin_start(context: Context, progress: Progress) -> Progress:
    """Begin the start whose number it is."""
    progress = replace(progress, carry=FORGET)
    kind, n_components = context.agreement.init_params, context.settings.n_components
    if context.resumed is not None:
        return begin_run(context, progress, context.resumed.weights, context.resumed.blocks)
    # Another set of parties from the same start would add the same, but for what the missing ones have added.
    gone = context.gone if context.summation.is_masked else ()
    generator = shared_generator(context.agreement.seed, START, progress.start, *gone)
    if kind in ("kmeans", "k-means++"):
        return begin_plus_plus(context, progress, generator)
    if kind == "labels":
        return replace(progress, phase="labels")
    if not context.hubs or kind == "given":
        if not all(own.is_complete(context.density) for own in context.given):
            raise StudyError("expected a whole start, weights and parameters, to be given to every root, got less")
        return begin_run(context, progress, None, ())
    weights, blocks, collapsed = start_from_seed(
        kind, context.table, context.local, context.overall, context.density, n_components, generator
    )
    return begin_run(context, progress, weights[None], blocks, collapsed)


def begin_plus_plus(context: Context, progress: Progress, generator: np.random.Generator) -> Progress:
    """Choose first centres by k-means++; the first row follows from the shared seed."""
    picked = random_rows(generator, context.n_rows, 1).astype(np.int64)
    packed = pack_generator(generator) if context.is_first_root else None
    clustering = Clustering(picked, picked[:0], generator=packed, choice=int(picked[0]))
    if context.settings.n_components == 1:
        return begin_clusters(context, replace(progress, clustering=clustering))
    return replace(progress, phase="first row", clustering=clustering)


def offer_first_row(context: Context, progress: Progress) -> Offer:
    """Offer distances to the row that the shared seed chose."""
    return _offer_distances(context, _clustering(progress).picked)


def absorb_first_row(context: Context, progress: Progress, outcome: Outcome) -> Progress:
    """Draw candidates for the next row at the first root."""
    clustering = _clustering(progress)
    if context.is_first_root:
        clustering = _draw(context, replace(clustering, closest=outcome.distances_to(0)))
    return replace(progress, phase="draw", clustering=clustering)


def offer_draw(context: Context, progress: Progress) -> Offer:
    """Offer the chosen row, and the candidates for the next one."""
    clustering = _clustering(progress)
    decision = np.full(1 + n_candidates(context.settings.n_components), math.inf)
    if context.is_first_root:
        decision[0] = clustering.choice
        decision[1:] = clustering.candidates if len(clustering.candidates) else clustering.choice
    return Offer(decision=decision)


def absorb_draw(context: Context, progress: Progress, outcome: Outcome) -> Progress:
    """Take over the chosen row."""
    clustering = _clustering(progress)
    rows = row_numbers(outcome.decision, context.n_rows)
    picked = clustering.picked if clustering.n_draws == 0 else np.append(clustering.picked, rows[0])
    clustering = replace(clustering, picked=picked, candidates=rows[1:].copy(), n_draws=clustering.n_draws + 1)
    if len(picked) < context.settings.n_components:
        return replace(progress, phase="try", clustering=clustering)
    return begin_clusters(context, replace(progress, clustering=clustering))


def offer_try(context: Context, progress: Progress) -> Offer:
    """Offer distances to the candidates."""
    return _offer_distances(context, _clustering(progress).candidates)


def absorb_try(context: Context, progress: Progress, outcome: Outcome) -> Progress:
    """Choose, at the first root, the candidate that leaves the smallest distances."""
    clustering = _clustering(progress)
    if context.is_first_root:
        if clustering.closest is None:
            raise StudyError(NOT_FIRST)
        closest, left = clustering.closest, np.zeros(len(clustering.candidates))
        for rows, distances in outcome.distances():
            left += potentials(closest[rows], distances)
        best = int(left.argmin())
        clustering = replace(clustering, choice=int(clustering.candidates[best]))
        if len(clustering.picked) + 1 < context.settings.n_components:
            closest = np.minimum(closest, outcome.distances_to(best))
            clustering = _draw(context, replace(clustering, closest=closest))
        else:
            clustering = replace(clustering, candidates=clustering.candidates[:0])
    return replace(progress, phase="draw", clustering=clustering)


def begin_clusters(context: Context, progress: Progress, centres: Sequence[Array] | None = None) -> Progress:
    """Begin Lloyd's algorithm at the chosen rows, or at given centres of each held block."""
    clustering = replace(_clustering(progress), closest=None, generator=None)
    if context.hubs:
        centres = context.centres(clustering.picked) if centres is None else tuple(centres)
        n_features = sum(map(len, context.network.columns))
        limits = [
            movement_limit(context.kmeans_tol, context.overall.feature_variances(b, held), part, n_features)
            for b, (held, part) in enumerate(zip(context.local.block_columns, centres, strict=True))
        ]
        clustering = replace(
            clustering,
            centres=tuple(centres),
            limits=np.array(limits),
            lowest=np.full(len(limits), math.inf),
            since_lowest=np.zeros(len(limits), dtype=np.int64),
            would_stop=False,
        )
    return replace(progress, phase="cluster", clustering=clustering)


def offer_cluster(context: Context, progress: Progress) -> Offer:
    """Offer distances to the centres, and whether all held roots would stop."""
    clustering = _clustering(progress)
    shape = Shape(context.n_rows, context.settings.n_components)
    terms = Distances(clustering.centres) if clustering.centres else None
    return Offer(shape, terms, np.array([float(clustering.would_stop)]), series=Series(SumKind.CLUSTER))


def absorb_cluster(context: Context, progress: Progress, outcome: Outcome) -> Progress:
    """Move the centres, or continue with the final labels.

    Lloyd's algorithm ends when every block's centres move by no more than the block's share of `kmeans_tol` times the
    mean variance of all columns: then no sum is needed to end at least as late as scikit-learn would. All end
    together, by the network's AND. A cluster that loses all its rows keeps its centre.
    """
    clustering = _clustering(progress)
    ended = clustering.n_iter > 0 and bool(outcome.decision[0])
    most = 0 if context.agreement.init_params == "k-means++" else context.kmeans_max_iter
    if ended or clustering.n_iter == most:
        return _end_clusters(context, progress, outcome)
    clustering = replace(clustering, n_iter=clustering.n_iter + 1)
    if clustering.centres:
        found = outcome.collect(Distances(clustering.centres))
        ends = np.cumsum([part.shape[1] for part in clustering.centres])
        centres = np.split(found.means(), ends[:-1], axis=1)
        moves = [np.square(new - old).sum() for new, old in zip(centres, clustering.centres, strict=True)]
        settled, inertia = np.array(moves) <= clustering.limits, found.scores[context.view_of_block]
        would_stop, lowest, since = lloyd_stop(settled, inertia, clustering.lowest, clustering.since_lowest)
        clustering = replace(
            clustering,
            centres=tuple(centres),
            lowest=lowest,
            since_lowest=since,
            would_stop=bool(would_stop.all()),
            settled=bool(settled.all()),
        )
    return replace(progress, clustering=clustering)


def _end_clusters(context: Context, progress: Progress, outcome: Outcome) -> Progress:
    """Start EM from the final labels."""
    clustering = _clustering(progress)
    if context.is_clustering_only:
        inertia = outcome.collect(Distances(clustering.centres)).scores
        return replace(progress, phase="done", clustering=replace(clustering, inertia=inertia))
    if not clustering.centres:
        if context.all_see_the_same:
            return begin_run(context, progress, None, ())
        return replace(progress, phase="weights")
    pairs = zip(clustering.centres, context.overall.blocks, strict=True)
    before = tuple(context.density.around(part, block) for part, block in pairs)
    found = outcome.collect(Distances(clustering.centres, fill=before))
    blocks, collapsed = context.m_steps(found.statistics(), before)
    counts = found.counts[context.view_of_block[0]]
    if context.all_see_the_same:
        return begin_run(context, progress, make_weights(counts)[None], blocks, collapsed)
    clustering = replace(clustering, blocks=blocks, collapsed=collapsed, counts=counts)
    return replace(progress, phase="weights", clustering=clustering)


def offer_weights(context: Context, progress: Progress) -> Offer:
    """Offer the number of rows of each component at the start, as the first root sees it."""
    clustering = _clustering(progress)
    decision = np.full(context.settings.n_components, math.inf)
    if context.is_first_root:
        if clustering.counts is None:
            raise StudyError(NOT_FIRST)
        decision = clustering.counts
    return Offer(decision=decision)


def absorb_weights(context: Context, progress: Progress, outcome: Outcome) -> Progress:
    """Start EM with the weights that all share."""
    clustering = _clustering(progress)
    counts = outcome.decision
    if not (np.isfinite(counts).all() and (counts >= 0).all() and counts.sum() > 0):
        raise StudyError(f"expected how many rows each component has, got {counts.tolist()}")
    return begin_run(context, progress, make_weights(counts)[None], clustering.blocks, clustering.collapsed)


def offer_labels(context: Context, progress: Progress) -> Offer:
    """Offer the labels of each held block's own clusters."""
    terms = None
    if context.hubs:
        seed = label_exchange(context.agreement, progress.start).seed
        counts = [int(own.counts.max()) for own in context.overall.columns]
        columns, features = context.local.block_columns, context.overall.features
        found = describe_rows(context.table, columns, counts, context.hubs, seed, context.map, features)
        terms = [encode_packet(hub, own) for hub, own in zip(context.hubs, found, strict=True)]
    return Offer(Shape(context.n_rows, len(context.network.hubs)), terms)


def absorb_labels(context: Context, progress: Progress, outcome: Outcome) -> Progress:
    """Start EM from labels that all agents have."""
    if not context.hubs:
        return begin_run(context, progress, None, ())
    n_components = context.settings.n_components
    weights, blocks, collapsed = start_from_labels(
        context.table, context.local, context.overall, context.density, n_components, outcome.values[0]
    )
    return begin_run(context, progress, weights[None], blocks, collapsed)


def _clustering(progress: Progress) -> Clustering:
    if progress.clustering is None:
        raise StudyError(f"expected a k-means in the phase {progress.phase!r}, got a state without one")
    return progress.clustering


def _draw(context: Context, clustering: Clustering) -> Clustering:
    """Draw candidates for the next row."""
    if clustering.generator is None or clustering.closest is None:
        raise StudyError(NOT_FIRST)
    generator = unpack_generator(clustering.generator)
    rows = draw_candidates(generator, clustering.closest, n_candidates(context.settings.n_components))
    return replace(clustering, candidates=rows.astype(np.int64), generator=pack_generator(generator))


def _offer_distances(context: Context, numbers: Integers) -> Offer:
    terms = Distances(context.centres(numbers)) if context.hubs else None
    return Offer(Shape(context.n_rows, len(numbers)), terms)
