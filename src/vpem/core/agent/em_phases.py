"""Phases of EM, and of prediction after it.

An iteration's decisions (stop, smallest bound, what is broken) are agreed on the first sum of the next one, before
anybody updates again. That sum is the E-step of the parameters as they then are: if all stop, it was the last one.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from vpem.core.agent.carrying import Carried
from vpem.core.agent.progress import Array, Model, Parameters, Prediction, Progress, Run
from vpem.core.agent.work import Offer, Outcome, StudyError, Work, row_numbers
from vpem.core.blocks.arrays import Block
from vpem.core.blocks.density import CollapsedComponentError
from vpem.core.blocks.weights import make_weights, normalize
from vpem.core.decisions.acceleration import SIZES, Point, make_point, take_point
from vpem.core.decisions.passes import begin_pass
from vpem.core.decisions.repair import make_cases, repair_weights
from vpem.core.decisions.retreating import ITERATIONS_BACK, must_retreat
from vpem.core.decisions.stopping import RECENT, comparable_bound, has_converged, is_better, n_small_changes
from vpem.core.network.summation import Shape, lasting
from vpem.core.rooms import room_for
from vpem.core.rows import row_chunks


def begin_run(
    work: Work, progress: Progress, weights: Array | None, block: Block | None, collapsed: tuple[int, ...] = ()
) -> Progress:
    """EM from a start; what the party was given goes before what was found."""
    findings = np.full(work.settings.n_components, math.inf)
    if work.is_root:
        weights, block = work.given.complete(weights, block, work.density)
        findings[list(collapsed)] = work.hub
    visits = begin_pass([None] * len(work.batches), work.density, lossy=work.is_lossy)
    run = Run(findings, weights, block, visits=visits)
    return replace(progress, phase="iterate", clustering=None, run=run)


def offer_iterate(work: Work, progress: Progress) -> Offer:
    """Log-densities of a batch's rows; before the first batch, what this agent has to say of the last iteration."""
    run, agreement = _run(progress), work.roles.agreement
    number, n_components = run.batch, work.settings.n_components
    visits = run.visits.ahead(work.density) if run.visits.is_over else run.visits
    rows, has_energy = work.batches[number], visits.has_energy(agreement.batch_size is not None)
    shape = Shape(rows.stop - rows.start, n_components, int(has_energy))
    values = decision = None
    if run.block is not None:
        assert run.weights is not None, "a root has weights"
        energy = np.zeros(int(has_energy))
        if has_energy and not run.final:
            energy = visits.densities([run.block], work.density)
        values = work.em_pass(run.block, run.weights).term(work.table, rows, energy)
    if number == 0:
        decision = np.array([1.0, math.inf, *run.findings])
        if run.history:
            decision[:2] = float(_would_stop(work, run)), run.history[-1]
        elif run.block is not None:
            decision[0] = 0.0
    return Offer(shape, values, decision, series=f"iterate {number}")


def absorb_iterate(work: Work, progress: Progress, outcome: Outcome) -> Progress:
    """Responsibilities and, if this is not the last pass, new parameters."""
    run = _run(progress)
    before = _point(work, run)
    if run.batch == 0:
        try:
            run = _agree(work, run, outcome.decision)
        except CollapsedComponentError as error:  # another start may do better
            return _end_run(work, progress, error)
        if work.summation.is_guarded:
            if _must_retreat(run):
                return _retreat(work, progress, run)
            run = replace(run, earlier=(*run.earlier, Parameters(run.weights, run.block))[-ITERATIONS_BACK:])
    if run.block is not None:
        rows, n_components = work.batches[run.visits.number], work.settings.n_components
        n_rows = rows.stop - rows.start
        sums = outcome.values[: n_rows * n_components].reshape(n_components, n_rows)
        extra = outcome.values[n_rows * n_components :]
        run = _respond(run, sums) if run.final else _update(work, run, sums, extra)
    else:
        run = replace(run, visits=run.visits.skip())
    if not run.visits.is_over:
        return replace(progress, run=run)
    if run.final:
        return _end_run(work, replace(progress, run=run))
    run = replace(run, iteration=run.iteration + 1)
    if run.block is not None:
        run = replace(run, history=(*run.history, float(run.visits.lower_bounds[0])))
    if run.queue.waiting:
        return replace(progress, phase="repair", run=replace(run, cycle=run.cycle.afresh()))
    run = _find_broken(work, run, [])
    if work.settings.accelerate is not None:
        run = replace(run, cycle=run.cycle.passed(before, _point(work, run)))
        if run.cycle.is_due and run.iteration < work.settings.max_iter:
            return replace(progress, phase="jump", run=run)
    return replace(progress, run=run)


def offer_jump(work: Work, progress: Progress) -> Offer:
    """How far the last two iterations have gone, and whether this agent has anything against a jump."""
    run = _run(progress)
    values, decision = None, np.array([1.0, math.inf, 1.0])
    if run.block is not None:
        sizes = run.cycle.sizes()
        values = sizes[1] + sizes[0] if work.is_first_root else sizes[1]
        is_sound = not np.isfinite(run.findings).any()
        decision = np.array([float(_would_stop(work, run)), run.history[-1], float(is_sound)])
    return Offer(SIZES, values, decision)


def absorb_jump(work: Work, progress: Progress, outcome: Outcome) -> Progress:
    """Jump, or go back to where the last jump began."""
    run = _run(progress)
    point, cycle = run.cycle.jump(outcome.values, outcome.decision)
    run = replace(run, cycle=cycle)
    if point and run.block is not None:
        weights, (block,) = take_point(point, [run.block], work.density)
        run = replace(run, weights=weights, block=block)
    return replace(progress, phase="iterate", run=run)


def offer_repair(work: Work, progress: Progress) -> Offer:
    """Rows that the root of the first hub finds badly explained, one for each component that waits."""
    run = _run(progress)
    decision = np.full(len(run.queue.waiting), math.inf)
    if work.is_first_root:
        rows = run.queue.choose(run.visits.worst_rows.astype(np.intp))
        decision[: len(rows)] = rows
    return Offer(decision=decision)


def absorb_repair(work: Work, progress: Progress, outcome: Outcome) -> Progress:
    """Restart components on those rows."""
    run = _run(progress)
    rows = row_numbers(outcome.decision[np.isfinite(outcome.decision)], work.roles.n_rows)
    queue, repaired = run.queue.take(len(rows))
    run = replace(run, queue=queue)
    if run.block is not None and run.weights is not None and repaired:
        block = work.density.restart(run.block, repaired, work.rows(rows), work.overall.blocks[0])
        run = replace(run, block=block, weights=repair_weights(run.weights, repaired))
    if repaired:
        progress = replace(progress, memories={})  # of a component that is another one now
    run = replace(_find_broken(work, run, repaired), earlier=())
    return replace(progress, phase="iterate", run=run)


def _agree(work: Work, run: Run, decision: Array) -> Run:
    """What all now know of the last iteration; and what kind of pass this one is."""
    stop, agreed, findings = bool(decision[0]), float(decision[1]), decision[2:]
    found = findings[np.isfinite(findings)]
    if ((found < 0) | (found >= 2 * len(work.roles.network.hubs)) | (found % 1 != 0)).any():
        raise StudyError(f"expected the numbers of hubs that found components broken, got {found.tolist()}")
    run = replace(run, final=run.iteration == work.settings.max_iter)
    if run.iteration == 0:
        return replace(run, start_cases=tuple(make_cases(0, findings)))
    queue = run.queue.enqueue(run.iteration, findings, work.roles.network)
    sound = not run.repaired and not queue.waiting
    return replace(
        run,
        queue=queue,
        agreed=(*run.agreed, agreed)[-RECENT - 1 :],
        converged=stop and sound,
        final=run.final or (stop and sound),
        visits=begin_pass(run.visits.kept, work.density, fresh=not sound, lossy=work.is_lossy),
        collapsed=(),
    )


def _must_retreat(run: Run) -> bool:
    """Whether all go back, and leave the sum that they have just made."""
    is_sound = not run.repaired and not run.queue.waiting
    return is_sound and not run.final and must_retreat(run.agreed, len(run.earlier), run.n_retreats)


def _retreat(work: Work, progress: Progress, run: Run) -> Progress:
    """Go back to earlier parameters; the last iteration is agreed on again with the sum that follows."""
    there = run.earlier[0]
    run = replace(
        run,
        findings=np.full_like(run.findings, math.inf),
        weights=there.weights,
        block=there.block,
        agreed=run.agreed[:-1],
        repaired=True,
        earlier=(),
        n_retreats=run.n_retreats + 1,
    )
    way, memories = work.summation, {}
    for name, carried in progress.memories.items():
        left = lasting(way, way.retreat(carried.recall(way)))
        memories[name] = Carried(left, now=left)
    return replace(progress, memories=memories, run=run)


def _respond(run: Run, sums: Array) -> Run:
    """Responsibilities of the final parameters."""
    assert run.weights is not None, "a root has weights"
    found = np.add(sums.T, np.log(run.weights), out=room_for(*sums.T.shape))
    for rows in row_chunks(0, len(found), found.shape[1]):
        found[rows] = normalize(found[rows])[0]
    if run.responsibilities is not None:
        found = np.concatenate([run.responsibilities, found])
    return replace(run, responsibilities=found, visits=run.visits.skip())


def _update(work: Work, run: Run, sums: Array, extra: Array) -> Run:
    """E-step of a batch; M-step after it, or after the last batch if all are visited with the same parameters."""
    assert run.weights is not None, "a root has weights"
    assert run.block is not None, "and a block"
    result = work.collect(work.em_pass(run.block, run.weights), work.batches[run.visits.number], sums)
    visits, total = run.visits.take(result, extra, run.weights[None], work.density)
    if total is None:
        return replace(run, visits=visits)
    block, broken = work.m_step(total.statistics[0], run.block)
    weights, collapsed = make_weights(total.counts[0]), tuple({*run.collapsed, *broken})
    return replace(run, visits=visits, weights=weights, block=block, collapsed=collapsed)


def _find_broken(work: Work, run: Run, repaired: list[int]) -> Run:
    """Look for what is broken after an iteration."""
    findings = np.full(work.settings.n_components, math.inf)
    if run.visits.earlier is not None:
        counts, n_hubs = run.visits.earlier.counts[0], len(work.roles.network.hubs)
        findings = run.queue.find_broken(counts, run.collapsed, repaired, work.hub, n_hubs)
    return replace(run, findings=findings, repaired=bool(repaired))


def _end_run(work: Work, progress: Progress, error: CollapsedComponentError | None = None) -> Progress:
    """Keep the better of this run and the best so far."""
    run, best = _run(progress), progress.best
    agreed = comparable_bound(run.agreed, run.converged)
    if error is None and (best is None or is_better(agreed, best.agreed)):
        network = work.roles.network
        cases = tuple(case.repair(network, restarted=False) for case in run.start_cases)
        repairs = tuple((*case[:2], str(case.party), *case[3:]) for case in cases + run.queue.repairs(network))
        best = Model(
            agreed,
            run.weights,
            run.block,
            run.responsibilities,
            run.history,
            run.converged,
            progress.start,
            repairs,
        )
    bounds = progress.bounds if error is not None else (*progress.bounds, agreed)
    progress = replace(progress, best=best, bounds=bounds, run=None)
    if progress.start + 1 < work.roles.agreement.n_init:
        return replace(progress, phase="start", start=progress.start + 1)
    if best is None:
        raise StudyError(str(error)) from error
    return replace(progress, phase="done", memories={})


def offer_prediction(work: Work, progress: Progress) -> Offer:
    """Log-densities of new rows; the weights are the first root's, so that the sum is all that anybody needs."""
    prediction, n_components = _prediction(progress), work.settings.n_components
    values = None
    if progress.best is not None and progress.best.block is not None:
        block, weights = progress.best.block, progress.best.weights
        assert weights is not None, "a root has weights"
        values = work.em_pass(block, weights, new_rows=True).term(work.table, slice(0, prediction.n_rows)).whole()
        if work.is_first_root:
            values = (values.reshape(n_components, -1) + np.log(weights)[:, None]).ravel()
    return Offer(Shape(prediction.n_rows, n_components), values, np.array([float(prediction.n_rows)]))


def absorb_prediction(work: Work, progress: Progress, outcome: Outcome) -> Progress:
    """Responsibilities and log-densities, for those who get the sum."""
    prediction = _prediction(progress)
    if len(outcome.values):
        found = normalize(outcome.values.reshape(work.settings.n_components, prediction.n_rows).T)
        prediction = replace(prediction, responsibilities=found[0], log_densities=found[1])
    n_predictions = progress.n_predictions + 1
    return replace(progress, phase="done", prediction=prediction, n_predictions=n_predictions)


def offer_new_columns(_: Work, progress: Progress) -> Offer:
    """A party's own columns of new rows."""
    return Offer(columns=_prediction(progress).columns)


def absorb_new_columns(work: Work, progress: Progress, __: Outcome) -> Progress:
    """Go on to the sum; the columns themselves are put together by the agent."""
    return replace(progress, phase=work.predicting)


def _point(work: Work, run: Run) -> Point:
    """Parameters as vectors, if there is use for them."""
    if work.settings.accelerate is None or run.block is None or run.weights is None:
        return ()
    return make_point(run.weights, [run.block], work.density)


def _would_stop(work: Work, run: Run) -> bool:
    history = [np.array([bound]) for bound in run.history]
    return bool(has_converged(history, work.settings.tol, n_small_changes(work.summation))[0])


def _run(progress: Progress) -> Run:
    if progress.run is None:
        raise StudyError(f"expected a run of EM in the phase {progress.phase!r}, got a state without one")
    return progress.run


def _prediction(progress: Progress) -> Prediction:
    if progress.prediction is None:
        raise StudyError(f"expected new rows in the phase {progress.phase!r}, got a state without any")
    return progress.prediction
