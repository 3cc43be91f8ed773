"""Whatever a network does to messages and to agents, the numbers stay the same, bit for bit."""

from dataclasses import fields, is_dataclass

import networkx as nx
import numpy as np
import pytest

from studies import STUDIES, bits, make_study, run, table
from vpem.core.agent.machine import Agent
from vpem.core.agent.message import LocalProtocolError
from vpem.core.network.consensus import Consensus
from vpem.transports import wire
from vpem.transports.inprocess import Disturbances, InProcess

pytestmark = pytest.mark.processors

BAD_NETWORKS = {
    "encoded": {"encoded": True},
    "shuffled": {"disturbances": {}},
    "delayed": {"disturbances": {"delay": 0.7}},
    "duplicated": {"disturbances": {"duplicate": 0.5, "delay": 0.2}, "encoded": True},
    "killed": {"disturbances": {"kill": 0.3}},
    "all": {"disturbances": {"kill": 0.2, "delay": 0.3, "duplicate": 0.3}, "encoded": True},
}


@pytest.mark.parametrize("how", BAD_NETWORKS)
@pytest.mark.parametrize("study", STUDIES)
def test_however_messages_are_delivered_the_bits_are_the_same(study, how):
    graph, arguments = STUDIES[study]
    expected = bits(run(make_study(graph, **arguments)[0]).agents.values())
    options = dict(BAD_NETWORKS[how])
    for seed in range(2):
        if "disturbances" in options:
            options["disturbances"] = Disturbances(
                rng=np.random.default_rng(seed), **BAD_NETWORKS[how]["disturbances"]
            )
        found = run(make_study(graph, **arguments)[0], **options)
        assert bits(found.agents.values()) == expected


def test_an_agent_may_be_killed_at_every_single_message():
    graph, arguments = STUDIES["path with hubs"]
    expected = bits(run(make_study(graph, **arguments)[0]).agents.values())
    transport = run(make_study(graph, **arguments)[0], disturbances=Disturbances(np.random.default_rng(0), kill=1.0))
    assert bits(transport.agents.values()) == expected


def count_messages(make):
    delivered = []
    run(make(), watch=delivered.append)
    return len(delivered)


def deliver(transport, n_messages):
    """Deliver so many messages."""
    left = [n_messages]

    def enough():
        left[0] -= 1
        return left[0] <= 0

    if n_messages:
        transport.run(until=enough)


@pytest.mark.parametrize("study", ["star", "ring", "path with hubs", "few rounds", "batches"])
def test_after_a_loss_all_go_back_to_a_common_checkpoint_and_come_to_the_same_numbers(study):
    graph, arguments = STUDIES[study]
    expected = bits(run(make_study(graph, **arguments)[0]).agents.values())
    total = count_messages(lambda: make_study(graph, **arguments)[0])
    rng = np.random.default_rng(0)
    for moment in np.linspace(0, total, 25).astype(int):
        transport = InProcess(make_study(graph, **arguments)[0]).start()
        deliver(transport, moment)
        victim = int(rng.choice(sorted(transport.agents)))
        saved = wire.encode_state(transport.agents[victim].state)
        transport.crash(victim)
        transport.run()
        transport.recover(victim, saved)
        transport.run()
        assert bits(transport.agents.values()) == expected, (moment, victim)


def test_going_back_costs_one_iteration_not_the_whole_run():
    agents, network = make_study(nx.cycle_graph(5), max_iter=30)
    undisturbed = run(agents).traffic(network)
    transport = InProcess(make_study(nx.cycle_graph(5), max_iter=30)[0]).start()
    deliver(transport, undisturbed.messages - 25)  # in the last sums
    saved = wire.encode_state(transport.agents[2].state)
    transport.crash(2)
    transport.run()
    transport.recover(2, saved)
    transport.run()
    assert all(agent.is_done for agent in transport.agents.values())
    assert transport.traffic(network).messages < 1.2 * undisturbed.messages


@pytest.mark.parametrize("age", [1, 40, 10_000])
def test_an_agent_may_come_back_with_an_older_state(age):
    graph, arguments = STUDIES["ring"]
    expected = bits(run(make_study(graph, **arguments)[0]).agents.values())
    transport = InProcess(make_study(graph, **arguments)[0]).start()
    states = []
    for _ in range(250):
        states.append(wire.encode_state(transport.agents[1].state))
        deliver(transport, 1)
    transport.crash(1)
    transport.run()
    transport.recover(1, states[max(0, len(states) - age)])
    transport.run()
    assert bits(transport.agents.values()) == expected


def test_several_agents_may_be_lost_even_while_others_recover():
    graph, arguments = STUDIES["tree with hubs"]
    expected = bits(run(make_study(graph, **arguments)[0]).agents.values())
    transport = InProcess(make_study(graph, **arguments)[0]).start()
    deliver(transport, 150)
    saved = {number: wire.encode_state(transport.agents[number].state) for number in (1, 2, 5)}
    transport.crash(1)
    transport.crash(5)
    transport.run()
    transport.recover(1, saved[1])
    deliver(transport, 7)
    transport.crash(2)
    transport.run()
    transport.recover(5, saved[5])
    transport.run()
    transport.recover(2, saved[2])
    transport.run()
    assert bits(transport.agents.values()) == expected


@pytest.mark.parametrize("moment", [40, 60, 200, 100_000])
def test_without_an_agent_that_never_returns_the_others_fit_as_if_it_had_not_been_there(moment):
    X = table()
    columns = {0: [0], 1: [1, 2], 2: [3], 3: [4], 4: [5]}
    agents, _ = make_study(nx.complete_graph(5), X, columns=columns)
    transport = InProcess(agents).start()
    deliver(transport, moment)
    is_fitted = all(agent.is_done for agent in transport.agents.values())
    transport.crash(3)
    transport.run()
    transport.abandon(3)
    transport.run()
    if is_fitted:
        full = bits(run(make_study(nx.complete_graph(5), X, columns=columns)[0]).agents.values())
        assert bits(transport.agents.values()) == {number: full[number] for number in (0, 1, 2, 4)}
        return
    # The same without it: its number is free, the order of the others stays.
    others = [
        Agent(number, {0, 1, 2, 4} - {number}, agents[0].identity.agreement, X[:, held], name=str(number))
        for number, held in columns.items()
        if number != 3
    ]
    assert bits(transport.agents.values()) == bits(run(others).agents.values())


def test_a_network_that_falls_apart_ends_the_study_at_every_agent():
    transport = InProcess(make_study(nx.path_graph(5))[0]).start()
    deliver(transport, 30)
    transport.crash(2)
    transport.run()
    transport.abandon(2)
    transport.run()
    assert {agent.failure for agent in transport.agents.values()} == {
        "2 agents cannot be reached without agents [2]: the network has fallen apart"
    }


def test_nobody_can_be_given_up_before_all_have_met():
    for moment in (0, 3):
        transport = InProcess(make_study(nx.path_graph(5))[0]).start()
        deliver(transport, moment)
        transport.crash(2)
        transport.run()
        transport.abandon(2)
        transport.run()
        for agent in transport.agents.values():
            assert agent.failure.startswith("agents [2] were given up before all had met, so no agent can know")


def test_a_model_with_hubs_does_not_outlive_one_of_them():
    transport = run(make_study(nx.cycle_graph(6), hops=1)[0])
    transport.crash(2)
    transport.abandon(2)
    transport.run()
    assert {agent.failure for agent in transport.agents.values()} == {
        "expected all agents of a model with hubs, got fewer; fit again without the missing"
    }


def test_a_model_with_hubs_does_not_outlive_one_of_two():
    transport = run(make_study(nx.path_graph(2), hops=1)[0])
    transport.abandon(1)
    transport.run()
    assert "fit again without the missing" in transport.agents[0].failure


def test_two_neighbours_may_die_and_be_given_up():
    agents, _ = make_study(nx.complete_graph(5), columns={n: [n] for n in range(5)})
    transport = InProcess(agents).start()
    deliver(transport, 100)
    transport.crash(1)
    transport.crash(2)
    transport.run()
    transport.abandon(1)
    transport.abandon(2)
    transport.run()
    assert all(agent.is_done for agent in transport.agents.values())
    assert {agent.roles.numbers for agent in transport.agents.values()} == {(0, 3, 4)}


def test_an_agent_that_comes_back_tells_the_others_itself_if_nobody_else_does():
    expected = bits(run(make_study(nx.cycle_graph(5))[0]).agents.values())
    transport = InProcess(make_study(nx.cycle_graph(5))[0]).start()
    deliver(transport, 120)
    saved = wire.encode_state(transport.agents[1].state)
    transport.crash(1)
    transport.run()
    transport.agents[1] = transport.agents[1].restored(wire.decode_state(saved))
    transport._dead.clear()
    for peer in (0, 2):
        transport.post(transport.agents[1].rejoin(peer))
    transport.run()
    assert bits(transport.agents.values()) == expected


def test_one_recovery_is_one_epoch_however_many_neighbours():
    transport = run(make_study(nx.complete_graph(6), columns={n: [n] for n in range(6)})[0])
    for _ in range(3):
        saved = wire.encode_state(transport.agents[4].state)
        transport.crash(4)
        transport.run()
        transport.recover(4, saved)
        transport.run()
    assert {agent.state.epoch for agent in transport.agents.values()} == {3}
    assert all(agent.is_done for agent in transport.agents.values())


def test_rounds_are_counted_over_all_epochs():
    agents, network = make_study(nx.cycle_graph(5))
    transport = run(agents)
    before = transport.traffic(network).rounds
    saved = wire.encode_state(transport.agents[4].state)
    transport.crash(4)
    transport.recover(4, saved)
    transport.run()
    assert transport.traffic(network).rounds == before + 2, "they met, and that was all"


def is_in_order(value):
    """Whether every array of a state lies in memory as it would after it was saved and restored."""
    if isinstance(value, np.ndarray):
        return value.flags.c_contiguous
    if is_dataclass(value):
        return all(is_in_order(getattr(value, part.name)) for part in fields(value))
    if isinstance(value, dict):
        return all(map(is_in_order, value.values()))
    return all(map(is_in_order, value)) if isinstance(value, tuple | list) else True


@pytest.mark.parametrize("study", STUDIES)
def test_no_state_depends_on_the_order_of_its_arrays_in_memory(study):
    graph, arguments = STUDIES[study]
    agents, _ = make_study(graph, **arguments)
    transport = InProcess(agents)
    transport.watch = lambda message: check(transport.agents[message.receiver].state.progress)

    def check(progress):
        assert is_in_order(progress)

    transport.start().run()
    for agent in agents:
        check(agent.state.progress)
        assert agent.state.pooled is None or agent.state.pooled.flags.c_contiguous


def test_losses_are_of_neighbours_only():
    agents, _ = make_study(nx.path_graph(3))
    for event in (agents[0].lose, agents[0].rejoin, agents[0].abandon):
        with pytest.raises(
            LocalProtocolError, match=r"agent 0, round 0, peer 2: expected one of the neighbours \(1,\)"
        ):
            event(2)
    agents[0].lose(1)
    assert agents[0].start() == [], "nothing is sent to who cannot be reached"
    assert agents[0].state.lost == {1}


def test_the_traffic_of_one_round_is_counted_by_agent():
    agents, network = make_study(nx.path_graph(2), summation=Consensus(1), max_iter=0, init_params="random")
    traffic = run(agents).traffic(network)
    assert traffic.messages == 2 + 2  # a meeting and the sum of the final responsibilities
    assert traffic.rounds == 2
    assert traffic.per_agent[0].bytes_sent == traffic.per_agent[1].bytes_received
