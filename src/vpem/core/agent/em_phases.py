"""Phases of EM, and of prediction after it.

An iteration's decisions (stop, smallest bound, what is broken) are agreed on the first sum of the next one, before
anybody updates again. That sum is the E-step of the parameters as they then are: if all stop, it was the last one.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from vpem.core.agent.progress import Array, Model, Prediction, Progress, Run
from vpem.core.agent.work import Offer, Outcome, StudyError, Work, row_numbers
from vpem.core.blocks.arrays import Block
from vpem.core.blocks.batches import Kept, suffixes
from vpem.core.blocks.density import CollapsedComponentError
from vpem.core.blocks.sweep import lowest
from vpem.core.blocks.weights import make_weights, n_present, normalize
from vpem.core.decisions.repair import make_cases, repair_weights
from vpem.core.decisions.stopping import RECENT, comparable_bound, has_converged


def begin_run(
    work: Work, progress: Progress, weights: Array | None, block: Block | None, collapsed: tuple[int, ...] = ()
) -> Progress:
    """EM from a start; what the party was given goes before what was found."""
    findings = np.full(work.settings.n_components, math.inf)
    if work.is_root:
        given = work.given
        weights = weights if given.weights is None else given.weights
        block = work.density.complete(block, given.arrays)
        findings[list(collapsed)] = work.hub
    run = Run(findings, weights, block, kept=(None,) * len(work.batches))
    return replace(progress, phase="iterate", clustering=None, run=run)


def offer_iterate(work: Work, progress: Progress) -> Offer:
    """Log-densities of a batch's rows; before the first batch, what this agent has to say of the last iteration."""
    run, agreement = _run(progress), work.roles.agreement
    rows, n_components = work.batches[run.batch], work.settings.n_components
    has_energy = agreement.batch_size is not None and run.batch == len(work.batches) - 1
    n_values = (rows.stop - rows.start) * n_components + has_energy
    values = decision = None
    if run.block is not None:
        assert run.weights is not None, "a root has weights"
        values = work.contribute(work.em_pass(run.block, run.weights), rows)
        if has_energy:
            known = run.earlier is not None and not run.fresh and not run.final
            energy = (
                run.earlier.densities([run.block], work.density) if known and run.earlier is not None else np.zeros(1)
            )
            values = np.concatenate([values, energy])
    if run.batch == 0:
        decision = np.array([1.0, math.inf, *run.findings])
        if run.history:
            history = [np.array([bound]) for bound in run.history[-2:]]
            decision[:2] = float(has_converged(history, work.settings.tol)[0]), run.history[-1]
        elif run.block is not None:
            decision[0] = 0.0
    return Offer(n_values, values, decision)


def absorb_iterate(work: Work, progress: Progress, outcome: Outcome) -> Progress:
    """Responsibilities and, if this is not the last pass, new parameters."""
    run = _run(progress)
    if run.batch == 0:
        try:
            run = _agree(work, run, outcome.decision)
        except CollapsedComponentError as error:  # another start may do better
            return _end_run(work, progress, error)
    if run.block is not None:
        rows, n_components = work.batches[run.batch], work.settings.n_components
        n_rows = rows.stop - rows.start
        sums = outcome.values[: n_rows * n_components].reshape(n_rows, n_components)
        extra = outcome.values[n_rows * n_components :]
        run = _respond(run, sums) if run.final else _update(work, run, sums, extra)
    if run.batch < len(work.batches) - 1:
        return replace(progress, run=replace(run, batch=run.batch + 1))
    if run.final:
        return _end_run(work, replace(progress, run=run))
    run = replace(run, batch=0, iteration=run.iteration + 1)
    if run.block is not None and run.earlier is not None:
        n_rows = float(n_present(run.earlier.counts[0]))
        run = replace(run, history=(*run.history, run.energy / n_rows))
    if run.queue.waiting:
        return replace(progress, phase="repair", run=run)
    return replace(progress, run=_find_broken(work, run, []))


def offer_repair(work: Work, progress: Progress) -> Offer:
    """Rows that the root of the first hub finds badly explained, one for each component that waits."""
    run = _run(progress)
    decision = np.full(len(run.queue.waiting), math.inf)
    if work.is_first_root:
        rows = run.queue.choose(run.worst_rows.astype(np.intp))
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
    return replace(progress, phase="iterate", run=_find_broken(work, run, repaired))


def _agree(work: Work, run: Run, decision: Array) -> Run:
    """What all now know of the last iteration; and what kind of pass this one is."""
    stop, agreed, findings = bool(decision[0]), float(decision[1]), decision[2:]
    found = findings[np.isfinite(findings)]
    if ((found < 0) | (found >= 2 * len(work.roles.network.hubs)) | (found % 1 != 0)).any():
        raise StudyError(f"expected the numbers of hubs that found components broken, got {found.tolist()}")
    run = replace(run, final=run.iteration == work.settings.max_iter)
    if run.iteration == 0:
        return replace(run, start_cases=tuple(make_cases(0, findings)), later=tuple(suffixes(run.kept, work.density)))
    queue = run.queue.enqueue(run.iteration, findings, work.roles.network)
    sound = not run.repaired and not queue.waiting
    return replace(
        run,
        queue=queue,
        agreed=(*run.agreed, agreed)[-RECENT - 1 :],
        converged=stop and sound,
        final=run.final or (stop and sound),
        fresh=not sound,
        later=tuple(suffixes(run.kept, work.density)),
        earlier=None,
        energy=0.0,
        collapsed=(),
        worst_scores=run.worst_scores[:0],
        worst_rows=run.worst_rows[:0],
    )


def _respond(run: Run, sums: Array) -> Run:
    """Responsibilities of the final parameters."""
    assert run.weights is not None, "a root has weights"
    found, _ = normalize(sums + np.log(run.weights))
    before = [] if run.responsibilities is None else [run.responsibilities]
    return replace(run, responsibilities=np.concatenate([*before, found]))


def _update(work: Work, run: Run, sums: Array, extra: Array) -> Run:
    """E-step of a batch; M-step after it, or after the last batch if all are visited with the same parameters."""
    assert run.weights is not None, "a root has weights"
    assert run.block is not None, "and a block"
    is_last = run.batch == len(work.batches) - 1
    result = work.collect(work.em_pass(run.block, run.weights), work.batches[run.batch], sums)
    new = Kept(result.counts, result.entropies, result.statistics())
    energy = run.energy
    if run.fresh:
        energy += float(result.scores[0])
    elif is_last:
        energy = float(result.scores[0])
        if run.earlier is not None:
            energy += float(run.earlier.energy(extra, run.weights[None])[0])
    earlier, weights = new.plus(run.earlier, work.density), run.weights
    block, collapsed = run.block, run.collapsed
    if is_last or not run.fresh:
        total = earlier if run.fresh else earlier.plus(run.later[run.batch + 1], work.density)
        block, broken = work.m_step(total.statistics[0], run.block)
        weights, collapsed = make_weights(total.counts[0]), tuple({*collapsed, *broken})
    scores = np.concatenate([run.worst_scores, result.worst[0]])
    worst_scores, worst_rows = lowest(scores, np.concatenate([run.worst_rows, result.worst[1]]).astype(np.intp))
    return replace(
        run,
        weights=weights,
        block=block,
        kept=(*run.kept[: run.batch], new, *run.kept[run.batch + 1 :]),
        earlier=earlier,
        energy=energy,
        collapsed=collapsed,
        worst_scores=worst_scores,
        worst_rows=worst_rows.astype(np.int64),
    )


def _find_broken(work: Work, run: Run, repaired: list[int]) -> Run:
    """Look for what is broken after an iteration."""
    findings = np.full(work.settings.n_components, math.inf)
    if run.earlier is not None:
        counts, n_hubs = run.earlier.counts[0], len(work.roles.network.hubs)
        findings = run.queue.find_broken(counts, run.collapsed, repaired, work.hub, n_hubs)
    return replace(run, findings=findings, repaired=bool(repaired))


def _end_run(work: Work, progress: Progress, error: CollapsedComponentError | None = None) -> Progress:
    """Keep the better of this run and the best so far."""
    run, best = _run(progress), progress.best
    agreed = comparable_bound(run.agreed, run.converged)
    if error is None and (best is None or agreed > best.agreed):
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
    progress = replace(progress, best=best, run=None)
    if progress.start + 1 < work.roles.agreement.n_init:
        return replace(progress, phase="start", start=progress.start + 1)
    if best is None:
        raise StudyError(str(error)) from error
    return replace(progress, phase="done")


def offer_prediction(work: Work, progress: Progress) -> Offer:
    """Log-densities of new rows; the weights are the first root's, so that the sum is all that anybody needs."""
    prediction, n_components = _prediction(progress), work.settings.n_components
    values = None
    if progress.best is not None and progress.best.block is not None:
        block, weights = progress.best.block, progress.best.weights
        assert weights is not None, "a root has weights"
        values = work.contribute(work.em_pass(block, weights, new_rows=True), slice(0, prediction.n_rows))
        if work.is_first_root:
            values = (values.reshape(-1, n_components) + np.log(weights)).ravel()
    return Offer(prediction.n_rows * n_components, values, np.array([float(prediction.n_rows)]))


def absorb_prediction(work: Work, progress: Progress, outcome: Outcome) -> Progress:
    """Responsibilities and log-densities, for those who get the sum."""
    prediction = _prediction(progress)
    if len(outcome.values):
        found = normalize(outcome.values.reshape(prediction.n_rows, work.settings.n_components))
        prediction = replace(prediction, responsibilities=found[0], log_densities=found[1])
    n_predictions = progress.n_predictions + 1
    return replace(progress, phase="done", prediction=prediction, n_predictions=n_predictions)


def offer_new_columns(_: Work, progress: Progress) -> Offer:
    """A party's own columns of new rows."""
    return Offer(columns=_prediction(progress).columns)


def absorb_new_columns(_: Work, progress: Progress, __: Outcome) -> Progress:
    """Go on to the sum; the columns themselves are put together by the agent."""
    return replace(progress, phase="predict")


def _run(progress: Progress) -> Run:
    assert progress.run is not None, "a phase of EM"
    return progress.run


def _prediction(progress: Progress) -> Prediction:
    assert progress.prediction is not None, "a phase of prediction"
    return progress.prediction
