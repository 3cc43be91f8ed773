"""A fit by real agents in one process: each knows its own columns and its neighbours, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vpem.core.agent.message import AgentNumber, Message
from vpem.core.decisions.starts import Given
from vpem.core.network.parties import Network
from vpem.core.rows import Table
from vpem.core.settings import Agreement
from vpem.estimators.progress import Progress
from vpem.simulation.em import MixtureFit
from vpem.simulation.model import Mixture
from vpem.transports.inprocess import InProcess, make_agents


def fit(table: Table, network: Network, agreement: Agreement, given: Sequence[Given], watch: Progress) -> MixtureFit:
    """Let the agents of a network fit, and put together what each of them has found.

    Parameters
    ----------
    table : Table of shape (n_samples, n_features)
    network : Network
    agreement : Agreement
    given : sequence of Given
        Starts of all blocks, or parts of them; empty if there are none.
    watch : Progress

    Returns
    -------
    MixtureFit
        With the traffic of all starts, as it was really sent.
    """
    agents = make_agents(table, network, agreement, given)
    first = AgentNumber(network.hubs[0].root)  # in one process, they are numbered by position
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
            watch.iteration(now.run.iteration, now.run.history[-1])

    transport = InProcess(agents, watch=listen if watch.verbose else None)
    transport.start().run()
    for agent in transport.agents.values():
        if agent.error is not None:  # who found out, and not only was told
            raise agent.error.__cause__ or agent.error
    result = _put_together(transport, network, agreement)
    root = transport.agents[first].model
    watch.start(0 if root is None else root.start)
    watch.last = float(result.lower_bounds[-1].mean()) if result.lower_bounds else None
    watch.end(result.converged, result.n_iter, len(result.repairs))
    return result


def _put_together(transport: InProcess, network: Network, agreement: Agreement) -> MixtureFit:
    """What the roots have found, each for itself."""
    roots = [transport.agents[AgentNumber(hub.root)] for hub in network.hubs]
    weights, histories, blocks = [], [], []
    for root in roots:
        assert root.model is not None, "a study without a failure comes to a model"
        assert root.model.block is not None, "which has parameters at its roots"
        weights.append(root.model.weights)
        histories.append(root.model.history)
        blocks.append(root.model.block)
    if agreement.summation.is_common:  # one view for all
        weights, histories = weights[:1], histories[:1]
    names = {str(party): party for party in network.parties}
    return MixtureFit(
        Mixture(agreement.settings.density, np.array(weights), tuple(blocks)),
        tuple(np.array(histories, dtype=np.float64).T),
        roots[0].model is not None and roots[0].model.converged,
        tuple(repair._replace(party=names[str(repair.party)]) for repair in roots[0].repairs),
        transport.traffic(network),
        roots[0].state.progress.bounds,
    )
