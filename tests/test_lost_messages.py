"""Agents whose messages are really lost, and fits over links that fail: the same numbers as in the simulation."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

import vpem
from oracles import connected_graphs, examples, relative_error
from studies import bits, die_and_come_back, make_study, run, table
from test_same_numbers import assert_same, fit_both
from vpem import Consensus, Failures, RunningSums, Tree, VerticalGaussianMixture
from vpem.core.agent.message import LocalProtocolError, StaleMessageError
from vpem.core.decisions.starts import Given
from vpem.estimators.progress import Progress
from vpem.planning import Study, estimate
from vpem.planning.estimates import short_name
from vpem.simulation.fit import fit as simulate
from vpem.simulation.model import make_problem
from vpem.transports import wire
from vpem.transports.inprocess import Disturbances, InProcess

STUDIES = {
    "ring": (nx.cycle_graph(5), {}),
    "path with hubs": (nx.path_graph(5), {"hops": 2, "init_params": "random"}),
    "batches": (nx.complete_graph(3), {"batch_size": 9, "n_init": 2}),
}
LOST = Failures(0.1, seed=3)


def study(name, failures=None):
    graph, arguments = STUDIES[name]
    return make_study(graph, summation=RunningSums(failures=failures), **arguments)


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("failures", [LOST, Failures(0.4, burst=2, seed=1)], ids=["tenth", "bursts"])
def test_agents_whose_messages_are_lost_equal_those_that_simulate_it_to_the_bit(name, failures):
    agents, network = study(name, failures)
    expected = run(agents)
    for seed in range(2):
        rng = np.random.default_rng(seed)
        disturbed = Disturbances(rng, delay=0.3, duplicate=0.1, kill=0.05, failures=failures)
        found = run(study(name)[0], encoded=True, disturbances=disturbed)
        assert bits(found.agents.values()) == bits(expected.agents.values())
        np.testing.assert_array_equal(found.traffic(network).table, expected.traffic(network).table)
        assert found.traffic(network).rounds == expected.traffic(network).rounds
    assert bits(expected.agents.values()) != bits(run(study(name)[0]).agents.values()), "losses are seen in the bits"


@pytest.mark.parametrize("name", STUDIES)
def test_an_agent_that_dies_and_comes_back_meets_the_same_losses(name):
    expected = bits(run(study(name, LOST)[0]).agents.values())
    for stop_after in (60, 500, 1100):
        assert bits(die_and_come_back(study(name, LOST)[0], stop_after)) == expected


@pytest.mark.parametrize("kind", ["consensus", "running"])
@pytest.mark.parametrize(
    "arguments",
    [{}, {"batch_size": 9, "init_params": "random"}, {"n_init": 2, "hops": 1}],
    ids=str,
)
def test_the_simulation_equals_agents_over_links_that_fail(kind, arguments):
    failures = Failures(0.1, burst=2, seed=2, listed=[(3, 0, 1)])
    summation = Consensus(30, failures=failures) if kind == "consensus" else RunningSums(failures=failures)
    both = fit_both(
        table(), n_components=2, partition=[[0, 1], [2], [3, 4], [5]], graph="ring", summation=summation, tol=0,
        max_iter=5, reg_covar=1e-3, **arguments,
    )  # fmt: skip
    assert_same(*both, tolerance=1e-12)


@examples(15)
@given(
    connected_graphs(fewest_agents=2, most_agents=5), st.sampled_from([0.0, 0.2, 0.5]), st.integers(0, 9), st.data()
)
def test_any_graph_and_losses_in_the_simulation_and_on_the_way(graph, share, seed, data):
    failures, hops = Failures(share, seed=seed), data.draw(st.integers(0, 1))
    X = np.random.default_rng(seed).normal(size=(12, len(graph))) + 4 * (np.arange(12) % 2)[:, None]
    arguments = {"X": X, "hops": hops, "batch_size": data.draw(st.sampled_from([None, 5])), "max_iter": 2}
    planned = RunningSums(data.draw(st.sampled_from([3, 20])), loss=0.5, failures=failures)
    expected = run(make_study(graph, summation=planned, **arguments)[0])
    real = make_study(graph, summation=RunningSums(planned.rounds, loss=0.5), **arguments)[0]
    disturbed = Disturbances(np.random.default_rng(seed), delay=0.3, duplicate=0.2, kill=0.1, failures=failures)
    assert bits(run(real, disturbances=disturbed).agents.values()) == bits(expected.agents.values())


def test_losses_without_a_plan_leave_the_sums_exact():
    exact = run(make_study(nx.cycle_graph(5), summation=Tree())[0]).agents
    for seed in range(3):
        disturbed = Disturbances(np.random.default_rng(seed), delay=0.2, duplicate=0.2, kill=0.02, loss=0.1)
        found = run(study("ring")[0], disturbances=disturbed)
        for number, agent in found.agents.items():
            # Sums to 1e-9, which a few iterations of EM on few rows enlarge.
            assert relative_error(agent.model.block.means, exact[number].model.block.means) < 1e-7
            assert relative_error(agent.model.history, exact[number].model.history) < 1e-7


# The event


def waiting_agent():
    """Agent 0 of a ring, in the first round of its first sum, with nothing of it here; and what would come."""
    agents, _ = make_study(nx.cycle_graph(3), summation=RunningSums(5), init_params="random")
    transport, held = InProcess(agents).start(), []
    while (message := transport._next()) is not None:
        if message.receiver == 0 and message.kind == "sum":
            held.append(message)
        else:
            transport._deliver(message)
    return transport.agents[0], held


def test_a_round_ends_without_what_is_missing():
    agent, (one, other, *_) = waiting_agent()
    number, peers = agent.awaited
    assert (number, peers) == (one.round, {1, 2})
    assert agent.missing(one.sender, number) == []
    assert agent.awaited == (number, {other.sender})
    assert agent.missing(one.sender, number) == [], "once more changes nothing"
    with pytest.raises(StaleMessageError, match="goes on without it"):
        agent.receive(one)
    again = agent.restored(wire.decode_state(wire.encode_state(agent.state)))
    for here in (agent, again):
        out = here.receive(other)
        assert {message.round for message in out} == {number + 1}
        assert here.missing(other.sender, number) == [], "the round is over"
        with pytest.raises(StaleMessageError, match="is over"):
            here.receive(one)
        assert not here.state.missing


def test_all_messages_of_a_round_may_be_missing():
    agent, (one, other, *_) = waiting_agent()
    number, _ = agent.awaited
    assert agent.missing(1, number + 1) == [], "of a later round"
    assert agent.missing(one.sender, number) == []
    out = agent.missing(other.sender, number)
    assert {message.round for message in out} == {number + 1}
    assert agent.awaited == (number + 1, {2})


@pytest.mark.parametrize("summation", [Consensus(5), Tree()])
def test_other_rounds_cannot_miss_anything(summation):
    agents, _ = make_study(nx.cycle_graph(3), summation=summation, init_params="random")
    for agent in agents:
        agent.start()
    problem = (
        "can end without a message of this peer, got another; send the message again, or report the peer as lost"
    )
    with pytest.raises(LocalProtocolError, match=problem):
        agents[0].missing(1, agents[0].state.round)  # of the meeting
    agent = next(iter(run(make_study(nx.cycle_graph(3), summation=summation)[0]).agents.values()))
    with pytest.raises(LocalProtocolError, match=problem):
        agent.missing(1, agent.state.round)  # there is no sum
    assert agent.awaited[1] == frozenset()


def test_the_rounds_of_a_decision_cannot_miss_anything():
    agent, _ = waiting_agent()
    begun = agent.state.exchange.begun
    with pytest.raises(LocalProtocolError, match="can end without"):
        agent.missing(1, begun + 5)
    with pytest.raises(LocalProtocolError, match="expected one of the neighbours"):
        agent.missing(7, begun)


def test_sessions_over_links_that_lose_frames():
    def make():
        return make_study(nx.path_graph(2), summation=RunningSums(30), init_params="random", max_iter=2)[0]

    sessions = {agent.number: vpem.agents.Session(agent) for agent in make()}
    rng, lost, lines = np.random.default_rng(0), 0, {0: [], 1: []}

    def post(frames):
        for frame in frames:
            lines[frame.receiver].append(frame.content)

    for number, session in sessions.items():
        post(session.start() + session.connect(1 - number))
    while lines[0] or lines[1]:
        number = 0 if lines[0] else 1
        frame, session = lines[number].pop(0), sessions[number]
        round_, peers = session.agent.awaited
        header = wire.read_header(frame)
        if peers and header.round == round_ and rng.random() < 0.2:
            post(session.missing(1 - number, round_))
            lost += 1
        else:
            post(session.receive(1 - number, frame))
    assert lost > 20
    assert all(session.agent.is_done for session in sessions.values())
    expected = run(make()).agents
    for number, session in sessions.items():
        assert relative_error(session.agent.model.block.means, expected[number].model.block.means) < 1e-7


def test_a_link_that_never_works_ends_the_study_with_a_reason():
    failures = Failures(listed=[(None, 0, 1)])
    agents, _ = make_study(nx.cycle_graph(3), summation=RunningSums(2100), init_params="random")
    disturbed = Disturbances(np.random.default_rng(0), shuffle=False, failures=failures)
    reasons = {agent.failure for agent in run(agents, disturbances=disturbed).agents.values()}
    assert len(reasons) == 1
    assert "got none from party '0'; take this link out of the graph" in reasons.pop()


# Whole fits

PARTIES = {"bank": [0, 1], "shop": [2], "clinic": [3, 4], "school": [5]}


def fit(X, **arguments):
    model = VerticalGaussianMixture(2, partition=PARTIES, graph="ring", random_state=0, reg_covar=1e-3, **arguments)
    return model.fit(X)


def test_a_fit_with_a_tenth_of_lost_messages_finds_the_parameters_of_the_exact_sum(tmp_path):
    X = table(n_rows=200)
    exact, lossy = fit(X, tol=1e-6), fit(X, tol=1e-6, summation=RunningSums(failures=LOST))
    assert lossy.n_iter_ == exact.n_iter_
    np.testing.assert_allclose(lossy.means_, exact.means_, rtol=1e-8)
    assert lossy.disagreement_ < 1e-8
    assert lossy.verdict_ == exact.verdict_
    np.testing.assert_allclose(lossy.predict_proba(X), exact.predict_proba(X), atol=1e-7)
    vpem.save(lossy, tmp_path / "model.vpem")
    again = vpem.load(tmp_path / "model.vpem")
    assert again.summation == lossy.summation
    np.testing.assert_array_equal(again.predict_proba(X), lossy.predict_proba(X))


@pytest.mark.parametrize(
    "summation",
    [
        Consensus(60, failures=Failures(0.2, burst=3.0, listed=[(None, "bank", "shop"), (2, "shop", "clinic")])),
        RunningSums(80, loss=0.2),
    ],
)
def test_models_are_saved_with_their_summation(summation, tmp_path):
    model = fit(table(), summation=summation, tol=1e-3)
    vpem.save(model, tmp_path / "model.vpem")
    assert vpem.load(tmp_path / "model.vpem").summation == summation


def test_plans_are_exact_with_them():
    for summation in (RunningSums(), RunningSums(40, failures=LOST), Consensus(9, failures=LOST)):
        with pytest.warns(ConvergenceWarning):
            model = fit(table(gaps=False), summation=summation, init_params="random", tol=0, max_iter=4)
        network = vpem.planning.make_network(PARTIES, "ring")
        plan = estimate(
            summation,
            network,
            Study(n_rows=24, n_components=2, init_params="random"),
            iterations=(4, 4),
            kmeans_iterations=(0, 0),
        )
        assert plan.bytes.low == plan.bytes.high == model.traffic_.bytes
        assert plan.rounds.high == model.traffic_.rounds
        assert plan.memory == 0
    assert short_name(Consensus(9, failures=Failures(0.1))) == "Consensus(9, failures=Failures(0.1))"


@pytest.mark.parametrize("name", STUDIES)
def test_the_simulation_equals_agents_whose_messages_are_really_lost(name):
    agents, network = study(name, LOST)
    agreement, X = agents[0].identity.agreement, table()
    problem = make_problem(X, network, agreement.summation, agreement.settings.density)
    simulated = simulate(problem, agreement, [Given()] * len(network.hubs), Progress(0, None))
    disturbed = Disturbances(np.random.default_rng(4), delay=0.3, duplicate=0.1, kill=0.05, failures=LOST)
    real = run(study(name)[0], encoded=True, disturbances=disturbed)
    np.testing.assert_array_equal(real.traffic(network).table, simulated.traffic.table)
    for hub, block in zip(network.hubs, simulated.mixture.blocks, strict=True):
        np.testing.assert_allclose(real.agents[hub.root].model.block.means, block.means, rtol=1e-12)


@pytest.mark.parametrize("graph", ["path", "ring"])
@pytest.mark.parametrize(("burst", "rounds"), [(20, None), (100, 1000)])
def test_fits_over_links_that_fail_for_many_rounds_in_a_row(graph, burst, rounds):
    X, ways = table(n_columns=8, gaps=False), {"init_params": "random", "max_iter": 3, "tol": 0, "reg_covar": 1e-3}
    lossy = RunningSums(rounds, failures=Failures(0.1, burst, seed=burst))
    exact, found = (
        VerticalGaussianMixture(2, graph=graph, summation=summation, random_state=0, **ways)
        for summation in (None, lossy)
    )
    with pytest.warns(ConvergenceWarning):
        exact.fit(X)
    with pytest.warns(ConvergenceWarning):
        found.fit(X)
    assert found.n_iter_ == exact.n_iter_
    np.testing.assert_allclose(found.means_, exact.means_, atol=1e-3)
