"""Phases of EM, and of prediction after it.

An iteration's decisions (stop, smallest bound, broken components) are agreed on the first sum of the next one, before
any agent updates again. That sum is the E-step of the parameters as they then are: if all stop, it was the last one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vpem.core.blocks.arrays import Block
from vpem.core.blocks.density import CollapsedComponentError
from vpem.core.blocks.sweep import Sums
from vpem.core.blocks.weights import make_weights, normalize
from vpem.core.decisions.acceleration import SIZES, Point, make_point, take_point
from vpem.core.decisions.passes import begin_pass
from vpem.core.decisions.repair import RepairQueue, make_cases, repair_weights
from vpem.core.decisions.retreating import ITERATIONS_BACK, must_retreat
from vpem.core.decisions.stopping import RECENT, comparable_bound, has_converged, is_better, is_sharp, n_small_changes
from vpem.core.network.sums import Series, Shape, SumKind
from vpem.core.rows import row_chunks, sampled_rows
from vpem.core.script.context import Context, LogDensities, Offer, Outcome, StudyError, row_numbers
from vpem.core.script.state import FORGET, ROLL_BACK, Array, Integers, Model, Parameters, Prediction, Progress, Run

Collapsed = Sequence[Sequence[int]]
"""Components of each held block."""


def begin_run(
    context: Context, progress: Progress, weights: Array | None, blocks: Sequence[Block], collapsed: Collapsed = ()
) -> Progress:
    """EM from a start; what a root was given goes before what was found.

    Parameters
    ----------
    context : Context
    progress : Progress
    weights : array of shape (n_views or 1, n_components), optional
    blocks : sequence of Block
        Empty if no start was found.
    collapsed : sequence of sequences of int, optional
        Components that begin as all rows are, in each held block.
    """
    findings = np.full(context.settings.n_components, math.inf)
    for hub, components in reversed(list(zip(context.hubs, collapsed, strict=False))):
        findings[list(components)] = hub
    if context.given:
        found = None if weights is None else weights[0]
        starts: list[Block | None] = [*blocks] or [None] * len(context.hubs)
        pairs = zip(context.given, starts, strict=True)
        parts = [own.complete(found, block, context.density) for own, block in pairs]
        blocks, own_weights = [block for _, block in parts], context.given[0].weights
        weights = weights if own_weights is None else own_weights[None]
    visits = begin_pass([None] * len(context.batches), context.density, context.n_views, lossy=context.is_lossy)
    run = Run(findings, weights, tuple(blocks), bound_before=context.bound_before, visits=visits)
    return replace(progress, phase="iterate", clustering=None, run=run)


def offer_iterate(context: Context, progress: Progress) -> Offer:
    """Offer log-densities of a batch's rows and, with the first batch, findings about the last iteration."""
    run = _run(progress)
    number, n_components = run.batch, context.settings.n_components
    visits = run.visits.ahead(context.density) if run.visits.is_over else run.visits
    rows, has_energy = context.batches[number], visits.has_energy(context.agreement.batch_size is not None)
    shape = Shape(rows.stop - rows.start, n_components, int(has_energy))
    terms = decision = None
    if run.blocks:
        energy = np.zeros((len(run.blocks), int(has_energy)))
        if has_energy and not run.final:
            energy = visits.densities(run.blocks, context.density)[:, None]
        terms = LogDensities(run.blocks, _weights(run), rows, energy)
    if number == 0:
        decision = np.array([1.0, math.inf, *run.findings])
        if run.history:
            decision[:2] = float(_would_stop(context, progress, run)), run.history[-1].min()
        elif run.blocks:
            decision[0] = 0.0
    return Offer(shape, terms, decision, series=Series(SumKind.ITERATE, number))


def absorb_iterate(context: Context, progress: Progress, outcome: Outcome) -> Progress:
    """Find the responsibilities and, unless this is the last pass, new parameters."""
    run = _run(progress)
    before = _point(context, run)
    if run.batch == 0:
        try:
            run = agree(context, progress, run, outcome.decision)
        except CollapsedComponentError as error:  # another start may do better
            return _end_run(context, progress, error)
        if context.summation.is_guarded:
            if _must_retreat(run):
                return _retreat(progress, run)
            run = replace(run, earlier=(*run.earlier, Parameters(run.weights, run.blocks))[-ITERATIONS_BACK:])
    if run.final and run.blocks and context.keeps_responsibilities:
        run = _respond(context, run, outcome)
    elif run.final and run.blocks:
        run = _compare(context, run, outcome)
    elif not run.blocks:
        run = replace(run, visits=run.visits.skip())
    else:
        run = _update(context, run, outcome)
    if not run.visits.is_over:
        return replace(progress, run=run)
    if run.final:
        return _end_run(context, replace(progress, run=run))
    run = replace(run, iteration=run.iteration + 1)
    if run.blocks:
        run = replace(run, history=(*run.history, run.visits.lower_bounds))
    return after_iteration(context, replace(progress, run=run), before)


def after_iteration(context: Context, progress: Progress, before: Point) -> Progress:
    """Continue with a repair, a jump or the next iteration."""
    run = _run(progress)
    if run.queue.waiting:
        return replace(progress, phase="repair", run=replace(run, cycle=run.cycle.afresh()))
    run = _find_broken(context, run, [])
    if context.settings.accelerate is not None:
        run = replace(run, cycle=run.cycle.passed(before, _point(context, run)))
        if run.cycle.is_due and run.iteration < context.settings.max_iter:
            return replace(progress, phase="jump", run=run)
    return replace(progress, run=run)


def offer_jump(context: Context, progress: Progress) -> Offer:
    """Offer the sizes of the last two steps, and whether the held roots agree to a jump."""
    run = _run(progress)
    terms, decision = None, np.array([1.0, math.inf, 1.0])
    if run.blocks:
        sizes = run.cycle.sizes()
        terms = list(sizes[1:])
        if context.is_first_root:
            terms[0] = sizes[1] + sizes[0]
        is_sound = not np.isfinite(run.findings).any()
        decision = np.array([float(_would_stop(context, progress, run)), run.history[-1].min(), float(is_sound)])
    return Offer(SIZES, terms, decision)


def absorb_jump(context: Context, progress: Progress, outcome: Outcome) -> Progress:
    """Jump, or go back to where the last jump began."""
    run = _run(progress)
    point, cycle = run.cycle.jump(outcome.values[0], outcome.decision)
    run = replace(run, cycle=cycle)
    if point and run.blocks:
        weights, blocks = take_point(point, run.blocks, context.density)
        run = replace(run, weights=weights[None], blocks=blocks)
    return replace(progress, phase="iterate", run=run)


def offer_repair(context: Context, progress: Progress) -> Offer:
    """Offer rows that the first root finds badly explained, one for each component that waits."""
    run = _run(progress)
    decision = np.full(len(run.queue.waiting), math.inf)
    if context.is_first_root:
        rows = run.queue.choose(run.visits.worst_rows.astype(np.intp))
        decision[: len(rows)] = rows
    return Offer(decision=decision)


def absorb_repair(context: Context, progress: Progress, outcome: Outcome) -> Progress:
    """Restart components on those rows."""
    run = _run(progress)
    rows = row_numbers(outcome.decision[np.isfinite(outcome.decision)], context.n_rows)
    queue, repaired = run.queue.take(len(rows))
    run = replace(run, queue=queue)
    if run.blocks and repaired:
        weights, blocks = restart(context, Parameters(run.weights, run.blocks), repaired, rows)
        run = replace(run, weights=weights, blocks=blocks)
    if repaired:
        progress = replace(progress, carry=FORGET)  # of a component that is another one now
    run = replace(_find_broken(context, run, repaired), earlier=())
    return replace(progress, phase="iterate", run=run)


def restart(
    context: Context, parameters: Parameters, components: Sequence[int], rows: Integers
) -> tuple[Array, tuple[Block, ...]]:
    """Re-initialize components at the given rows, with the overall covariance and an average weight."""
    assert parameters.weights is not None, "a root has weights"
    parts = zip(parameters.blocks, context.rows(rows), context.overall.blocks, strict=True)
    blocks = tuple(context.density.restart(block, components, part, overall) for block, part, overall in parts)
    return repair_weights(parameters.weights, components), blocks


def agree(context: Context, progress: Progress, run: Run, decision: Array) -> Run:
    """Apply the network's decision on the last iteration, and choose the kind of this pass."""
    stop, agreed, findings = bool(decision[0]), float(decision[1]), decision[2:]
    found = findings[np.isfinite(findings)]
    if ((found < 0) | (found >= 2 * len(context.network.hubs)) | (found % 1 != 0)).any():
        raise StudyError(f"expected the numbers of hubs that found components broken, got {found.tolist()}")
    run = replace(run, final=run.iteration == context.settings.max_iter or progress.interrupted)
    if run.iteration == 0:
        return replace(run, start_cases=tuple(make_cases(0, findings)))
    queue = run.queue.enqueue(run.iteration, findings, context.network)
    sound = not run.repaired and not queue.waiting
    visits = begin_pass(run.visits.kept, context.density, context.n_views, fresh=not sound, lossy=context.is_lossy)
    return replace(
        run,
        queue=queue,
        agreed=(*run.agreed, agreed)[-RECENT - 1 :],
        converged=stop and sound,
        final=run.final or (stop and sound),
        visits=visits,
        collapsed=(),
    )


def _must_retreat(run: Run) -> bool:
    """Return True if all roll back, and drop the sum that they have just made."""
    is_sound = not run.repaired and not run.queue.waiting
    return is_sound and not run.final and must_retreat(run.agreed, len(run.earlier), run.n_retreats)


def _retreat(progress: Progress, run: Run) -> Progress:
    """Roll back to earlier parameters; the last iteration is agreed on again with the sum that follows."""
    there = run.earlier[0]
    run = replace(
        run,
        findings=np.full_like(run.findings, math.inf),
        weights=there.weights,
        blocks=there.blocks,
        agreed=run.agreed[:-1],
        repaired=True,
        earlier=(),
        n_retreats=run.n_retreats + 1,
    )
    return replace(progress, carry=ROLL_BACK, run=run)


def _respond(context: Context, run: Run, outcome: Outcome) -> Run:
    """Find the responsibilities of the final parameters."""
    rows, n_components = context.batches[run.visits.number], context.settings.n_components
    n_rows = rows.stop - rows.start
    sums = outcome.values[0, : n_rows * n_components].reshape(n_components, n_rows)
    found = np.add(sums.T, np.log(_weights(run)[0]), out=context.pool.array(*sums.T.shape))
    for chunk in row_chunks(0, len(found), found.shape[1]):
        found[chunk] = normalize(found[chunk])[0]
    totals = None
    if not context.summation.is_masked:
        totals = np.array(sums.T[sampled_rows(rows, context.n_rows)])
    if run.responsibilities is not None:
        found = np.concatenate([run.responsibilities, found])
        totals = None if totals is None or run.totals is None else np.concatenate([run.totals, totals])
    return replace(run, responsibilities=found, totals=totals, visits=run.visits.skip())


def _compare(context: Context, run: Run, outcome: Outcome) -> Run:
    """Find how far the held roots disagree in the last E-step."""
    rows = context.batches[run.visits.number]
    found = outcome.compare(LogDensities(run.blocks, _weights(run), rows, np.empty((len(run.blocks), 0))))
    if found is not None and run.disagreement is not None:
        found = run.disagreement + found
    return replace(run, visits=run.visits.skip(), disagreement=found)


def _update(context: Context, run: Run, outcome: Outcome) -> Run:
    """E-step of a batch; M-step after it, or after the last batch if all are visited with the same parameters."""
    weights, scalars = _weights(run), outcome.scalars
    rows = context.batches[run.visits.number]
    result: Sums = outcome.collect(LogDensities(run.blocks, weights, rows, np.empty((len(run.blocks), 0))))
    extra = scalars[:, 0] if scalars.shape[1] else np.zeros(context.n_views)
    visits, total = run.visits.take(result, extra, weights, context.density)
    if total is None:
        return replace(run, visits=visits)
    blocks, broken = context.m_steps(total.statistics, run.blocks)
    before = run.collapsed or [()] * len(blocks)
    collapsed = tuple(tuple(sorted({*old, *new})) for old, new in zip(before, broken, strict=True))
    return replace(run, visits=visits, weights=make_weights(total.counts), blocks=blocks, collapsed=collapsed)


def _find_broken(context: Context, run: Run, repaired: list[int]) -> Run:
    """Find broken components after an iteration."""
    findings = np.full(context.settings.n_components, math.inf)
    if run.visits.earlier is not None and run.blocks:
        findings = find_broken(context, run.queue, run.visits.earlier.counts, run.collapsed, repaired)
    return replace(run, findings=findings, repaired=bool(repaired))


def find_broken(
    context: Context, queue: RepairQueue, counts: Array, collapsed: Collapsed, repaired: Sequence[int]
) -> Array:
    """The smallest findings of all held roots, (n_components,); see `RepairQueue.find_broken`."""
    owned = collapsed or [()] * len(context.hubs)
    n_hubs = len(context.network.hubs)
    roots = zip(context.hubs, context.view_of_block, owned, strict=True)
    found = [queue.find_broken(counts[view], own, repaired, hub, n_hubs) for hub, view, own in roots]
    return np.asarray(np.min(found, axis=0))


def _end_run(context: Context, progress: Progress, error: CollapsedComponentError | None = None) -> Progress:
    """Keep the better of this run and the best so far."""
    run, best = _run(progress), progress.best
    agreed = comparable_bound(run.agreed, run.converged)
    ended = None
    if error is None:
        network = context.network
        cases = tuple(case.repair(network, restarted=False) for case in run.start_cases)
        repairs = tuple((*case[:2], str(case.party), *case[3:]) for case in cases + run.queue.repairs(network))
        ended = Model(
            agreed,
            run.weights,
            run.blocks,
            run.responsibilities,
            run.history,
            run.converged,
            progress.start,
            repairs,
            run.disagreement,
            run.totals,
        )
        best = ended if best is None or is_better(agreed, best.agreed) else best
        if run.responsibilities is not None:
            sample = run.responsibilities[sampled_rows(slice(0, context.n_rows), context.n_rows)]
            progress = replace(progress, end_labels=(*progress.end_labels, sample.argmax(axis=1).astype(np.int64)))
    progress = replace(
        progress,
        best=best,
        bounds=progress.bounds if error is not None else (*progress.bounds, agreed),
        ended=ended if context.reports_runs else None,
        collapse="" if error is None else str(error),
        run=None,
    )
    if progress.start + 1 < context.agreement.n_init and not progress.interrupted:
        return replace(progress, phase="start", start=progress.start + 1)
    if best is None:
        raise StudyError(str(error)) from error
    return replace(progress, phase="done", carry=FORGET)


def offer_prediction(context: Context, progress: Progress) -> Offer:
    """Offer log-densities of new rows; the first root adds its log-weights."""
    prediction, n_components = _prediction(progress), context.settings.n_components
    terms = None
    if progress.best is not None and progress.best.blocks and progress.best.weights is not None:
        rows = slice(0, prediction.n_rows)
        terms = LogDensities(progress.best.blocks, progress.best.weights, rows, np.empty((1, 0)), adds_weights=True)
    return Offer(Shape(prediction.n_rows, n_components), terms, np.array([float(prediction.n_rows)]))


def absorb_prediction(context: Context, progress: Progress, outcome: Outcome) -> Progress:
    """Find responsibilities and log-densities, if this agent gets the sum."""
    prediction = _prediction(progress)
    if outcome.values.size:
        sums = outcome.values[0].reshape(context.settings.n_components, prediction.n_rows)
        responsibilities, log_densities = normalize(sums.T)
        if prediction.holders is not None:  # rows that were not added have no score
            left_out = prediction.holders < context.least_holders
            responsibilities[left_out] = log_densities[left_out] = np.nan
        prediction = replace(prediction, responsibilities=responsibilities, log_densities=log_densities)
    n_predictions = progress.n_predictions + 1
    return replace(progress, phase="done", prediction=prediction, n_predictions=n_predictions)


def offer_new_columns(_: Context, progress: Progress) -> Offer:
    """Offer a party's own columns of new rows."""
    return Offer(columns=_prediction(progress).columns)


def absorb_new_columns(context: Context, progress: Progress, __: Outcome) -> Progress:
    """Continue with the sum; the agent joins the columns."""
    return replace(progress, phase=predicting(context))


def predicting(context: Context) -> str:
    """Return the first phase of a prediction that is a sum."""
    return "new holders" if context.least_holders > 1 else "predict"


def _point(context: Context, run: Run) -> Point:
    """Parameter vectors, or () without acceleration."""
    if context.settings.accelerate is None or not run.blocks:
        return ()
    return make_point(_weights(run)[0], run.blocks, context.density)


def _would_stop(context: Context, progress: Progress, run: Run) -> bool:
    """Return True if every held root would stop."""
    history = run.history if run.bound_before is None else (run.bound_before, *run.history)
    tol = context.settings.tol
    is_quiet = bool(has_converged(history, tol, n_small_changes(context.summation)).all())
    return is_quiet and is_sharp(context.blurs(progress), tol)


def _weights(run: Run) -> Array:
    assert run.weights is not None, "a root has weights"
    return run.weights


def _run(progress: Progress) -> Run:
    if progress.run is None:
        raise StudyError(f"expected a run of EM in the phase {progress.phase!r}, got a state without one")
    return progress.run


def _prediction(progress: Progress) -> Prediction:
    if progress.prediction is None:
        raise StudyError(f"expected new rows in the phase {progress.phase!r}, got a state without any")
    return progress.prediction
