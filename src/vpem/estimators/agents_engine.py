"""Fit by real agents in one process. Each agent knows only its own columns and its neighbours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vpem.core.agent.machine import Agent
from vpem.core.agent.message import AgentNumber, Message
from vpem.core.blocks.sweep import Disagreement, compare_views
from vpem.core.decisions.starts import Given
from vpem.core.network.parties import Network
from vpem.core.rows import Table, row_chunks
from vpem.core.settings import Agreement
from vpem.estimators.progress import Progress
from vpem.simulation.model import Mixture, MixtureFit
from vpem.transports.inprocess import InProcess, make_agents


def fit(table: Table, network: Network, agreement: Agreement, given: Sequence[Given], watch: Progress) -> MixtureFit:
    """Run the agents of a network, and assemble their results.

    Parameters
    ----------
    table : Table of shape (n_samples, n_features)
    network : Network
    agreement : Agreement
    given : sequence of Given
        Initial values of all blocks, complete or partial; may be empty.
    watch : Progress

    Returns
    -------
    MixtureFit
        Result, with the messages that were actually sent in all starts.
    """
    agents = make_agents(table, network, agreement, given)
    first = AgentNumber(network.hubs[0].root)  # in one process, agents are numbered by position
    seen = [-1, 0]

    def listen(message: Message) -> None:
        if message.receiver != first and len(transport.agents) > 1:
            return
        now = transport.agents[first].state.progress
        if now.start != seen[0] and now.run is not None:
            seen[:] = now.start, 0
            watch.start(now.start)
        if now.run is not None and now.run.iteration > seen[1]:
            seen[1] = now.run.iteration
            watch.iteration(now.run.iteration, float(now.run.history[-1][0]))

    transport = InProcess(agents, watch=listen if watch.verbose else None)
    transport.start().run()
    for agent in transport.agents.values():
        if agent.error is not None:  # set at the agent where the error occurred
            raise agent.error.__cause__ or agent.error
    result = _put_together(transport, network, agreement)
    root = transport.agents[first].model
    watch.start(0 if root is None else root.start)
    watch.last = float(result.lower_bounds[-1].mean()) if result.lower_bounds else None
    watch.end(result.converged, result.n_iter, len(result.repairs))
    return result


def _put_together(transport: InProcess, network: Network, agreement: Agreement) -> MixtureFit:
    """Assemble the results of all roots."""
    roots = [transport.agents[AgentNumber(hub.root)] for hub in network.hubs]
    weights, histories, blocks = [], [], []
    for root in roots:
        assert root.model is not None, "a study without a failure comes to a model"
        assert root.model.block is not None, "which has parameters at its roots"
        weights.append(root.model.weights)
        histories.append(root.model.history)
        blocks.append(root.model.block)
    if agreement.summation.is_common:  # all roots have the same view
        weights, histories = weights[:1], histories[:1]
    names = {str(party): party for party in network.parties}
    return MixtureFit(
        Mixture(agreement.settings.density, np.array(weights), tuple(blocks)),
        tuple(np.array(histories, dtype=np.float64).T),
        roots[0].model is not None and roots[0].model.converged,
        tuple(repair._replace(party=names[str(repair.party)]) for repair in roots[0].repairs),
        transport.traffic(network),
        roots[0].state.progress.bounds,
        disagreement=_compare(roots) if agreement.summation.matrix(network) is None else None,
    )


def _compare(roots: Sequence[Agent]) -> Disagreement:
    """Compare the roots' responsibilities from the last sum of the fit."""
    found = [root.model.responsibilities for root in roots if root.model is not None]
    shares = [own for own in found if own is not None]
    total = Disagreement()
    for rows in row_chunks(0, len(shares[0]), shares[0].shape[1] * len(shares)):
        total += compare_views(np.array([own[rows].T for own in shares]))
    return total
