"""One agent's life, event by event."""

import networkx as nx
import numpy as np
import pytest
from scipy.special import logsumexp

from oracles import block_log_density, by_row, flat
from studies import SEED, agree, make_study, run, table, two_agents
from vpem.core.agent.inbox import MOST_NEW_ROWS
from vpem.core.agent.machine import Agent
from vpem.core.agent.meeting import Record, decode_records, encode_records
from vpem.core.agent.message import Header, LocalProtocolError, Message, RemoteProtocolError, StaleMessageError
from vpem.core.decisions.initial import START, shared_generator
from vpem.core.network.consensus import Consensus
from vpem.core.network.star import Star
from vpem.transports import wire
from vpem.transports.inprocess import InProcess


def assert_messages(found, expected):
    """Exactly these messages, in this order; numbers to rounding."""
    assert [message[:5] for message in found] == [message[:5] for message in expected]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.values, other.values, rtol=1e-12)
        np.testing.assert_allclose(one.decision, other.decision, rtol=1e-12)


def record_of(agent, **changes):
    own = {
        "number": agent.number,
        "name": agent.name,
        "neighbours": agent.neighbours,
        "n_rows": 24,
        "n_columns": 1,
        "most_hops": 0,
        "digest": agent.identity.agreement.digest,
    }
    return Record(**{**own, **changes})


def first_terms(X, column):
    """Log-densities of one party's column at a start from random rows, by the definition."""
    rows = shared_generator(SEED, START, 0).choice(len(X), size=2, replace=False)
    covariances = np.full((2, 1, 1), X[:, column].var() + 1e-3)
    return block_log_density(X[:, [column]], X[rows][:, [column]], covariances)


def test_two_agents_meet_and_average_message_by_message():
    a, b = two_agents(summation=Consensus(1), init_params="random_from_data", max_iter=1)
    X = table(n_columns=2, gaps=False)
    hello = encode_records([record_of(a)]), encode_records([record_of(b)])
    assert_messages(a.start(), [Message(0, 0, 0, 1, "meet", hello[0])])
    # Agent 1 has not been started: the first message wakes it, and ends its meeting (one round) at once.
    terms = [2 * flat(first_terms(X, column)) for column in (0, 1)]  # two agents: twice the term
    nothing_yet = np.array([0.0, np.inf, np.inf, np.inf])
    assert_messages(
        b.receive(Message(0, 0, 0, 1, "meet", hello[0])),
        [
            Message(0, 0, 1, 0, "meet", hello[1]),
            Message(0, 1, 1, 0, "sum", terms[1], nothing_yet),
        ],
    )
    assert b.start() == [], "it is awake already"
    assert_messages(
        a.receive(Message(0, 0, 1, 0, "meet", hello[1])), [Message(0, 1, 0, 1, "sum", terms[0], nothing_yet)]
    )
    # Both weights are 1/2: agent 0 has the sum, its E-step and M-step, and sends the terms of its new parameters.
    [reply] = a.receive(Message(0, 1, 1, 0, "sum", terms[1], nothing_yet))
    log_joint = by_row((terms[0] + terms[1]) / 2, len(X), 2) - np.log(2)
    likelihoods = logsumexp(log_joint, axis=1)
    responsibilities = np.exp(log_joint - likelihoods[:, None])
    counts = responsibilities.sum(axis=0)
    means = responsibilities.T @ X[:, :1] / counts[:, None]
    variances = (responsibilities * (X[:, :1] - means.T) ** 2).sum(axis=0) / counts + 1e-3
    new_terms = 2 * block_log_density(X[:, :1], means, variances[:, None, None])
    assert_messages(
        [reply],
        [Message(0, 2, 0, 1, "sum", flat(new_terms), np.array([0.0, likelihoods.mean(), np.inf, np.inf]))],
    )
    np.testing.assert_allclose(a.state.progress.run.weights, [counts / 24])
    assert not a.is_done
    # The sum that ends it: the other's bound is smaller, and counts.
    [last] = b.receive(Message(0, 1, 0, 1, "sum", terms[0], nothing_yet))
    assert a.receive(last._replace(decision=np.array([1.0, -99.0, np.inf, np.inf]))) == []
    assert a.is_done
    assert a.model.agreed == -99.0
    assert not a.model.converged, "one iteration proves nothing to this agent"


@pytest.mark.processors
def test_a_server_adds_in_order_and_answers_all_at_once():
    agents, _ = make_study("star", table(gaps=False), init_params="random_from_data", max_iter=0)
    server = agents[4]
    assert server.identity.X is None
    transport = InProcess(agents).start()
    transport.run(until=lambda: not server.state.meeting and all(not agent.state.meeting for agent in agents))
    ups = [message for message in transport._line if message.receiver == 4]
    downs = []
    for message in sorted(ups, key=lambda message: -message.sender):  # arriving from the last to the first
        assert downs == []
        downs = server.receive(message)
    total = ups[0].values.copy()
    for message in ups[1:]:
        total += message.values
    assert [message[:5] for message in downs] == [(0, 3, 4, party, "sum") for party in range(4)]
    assert all(message.values.tobytes() == total.tobytes() for message in downs)
    assert server.is_done
    assert server.model.block is None
    assert server.model.weights is None


def test_leaves_send_their_columns_up_the_tree_and_hold_no_parameters():
    X = table(gaps=False)
    graph = nx.path_graph(5)
    agents, network = make_study(graph, X, hops=2, init_params="random", columns={n: [n] for n in range(5)})
    [hub] = network.hubs
    assert hub.root == 2
    sent = []
    run(agents, watch=lambda message: message.kind in ("columns", "terms") and sent.append(message))
    columns = [message for message in sent if message.kind == "columns"]
    # After a meeting of four rounds: each its own, then the relays what came from the ends.
    routes = sorted((message.round, message.sender, message.receiver) for message in columns)
    assert routes == [(4, 0, 1), (4, 1, 2), (4, 3, 2), (4, 4, 3), (5, 1, 2), (5, 3, 2)]
    for message in columns:
        origin = message.sender if message.round == 4 else {1: 0, 3: 4}[message.sender]
        np.testing.assert_array_equal(message.values, X[:, origin])
    np.testing.assert_array_equal(agents[2].state.pooled, X[:, :5])
    for leaf in (0, 1, 3, 4):
        assert agents[leaf].state.pooled is None
        assert agents[leaf].model.block is None
        assert agents[leaf].model.weights is None
        assert agents[leaf].model.responsibilities is None
    first = [message for message in sent if message.kind == "terms"][:4]
    assert [(message.sender, message.receiver) for message in first] == [(2, 1), (2, 3), (1, 0), (3, 4)]


def run_without(transport, withheld, changed=lambda message: message):
    """Deliver all messages but some; returns those."""
    held = []
    while transport._line:
        message = transport._line.popleft()
        if withheld(message):
            held.append(message)
        else:
            transport.post(transport.agents[message.receiver].receive(changed(message)))
    return held


def test_early_messages_are_kept_late_and_double_ones_are_harmless():
    agents, _ = make_study(nx.path_graph(3), init_params="random")
    transport = InProcess(agents).start()
    held = run_without(transport, lambda message: message.sender == 2 and message.round > 0)
    # Agent 0 has ended the meeting's two rounds and sends its first sum; agent 1 waits for agent 2.
    middle = agents[1]
    assert (middle.state.round, middle.state.meeting) == (1, True)
    assert {number: set(box) for number, box in middle.state.mailbox.items()} == {1: {0}, 2: {0}}
    assert middle.state.mailbox[2][0].kind == "sum"
    before = middle.state
    for number in (1, 2):
        with pytest.raises(StaleMessageError, match=f"agent 1, round 1, peer 0: came twice: round {number}"):
            middle.receive(before.mailbox[number][0])
    assert middle.state is before
    for message in held:
        transport.post(middle.receive(message))
    transport.run()
    with pytest.raises(StaleMessageError, match=r"peer 0: came too late: round 2 is over"):
        middle.receive(before.mailbox[2][0])
    assert middle.is_done


def test_what_came_early_and_does_not_fit_is_blamed_on_who_sent_it():
    agents, _ = make_study(nx.path_graph(3), init_params="random")
    transport = InProcess(agents).start()

    def shorten(message):
        is_first_sum = message.sender == 0 and message.round == 2
        return message._replace(values=message.values[1:]) if is_first_sum else message

    [held] = run_without(transport, lambda message: message.sender == 2 and message.round == 1, shorten)
    before = agents[1].state
    with pytest.raises(
        RemoteProtocolError, match=r"agent 1, .*, peer 0: expected 48 values \(f8\) and 4 decisions"
    ) as caught:
        agents[1].receive(held)
    assert caught.value.peer == 0, "though agent 2's message brought it to light"
    assert agents[1].state is before


def test_events_out_of_turn_are_our_own_mistakes():
    a, b = two_agents()
    a.start()
    with pytest.raises(LocalProtocolError, match="agent 0, round 0: expected one start, got another"):
        a.start()
    with pytest.raises(LocalProtocolError, match="expected new rows when the fit"):
        a.predict(np.zeros((2, 1)))
    run([b, *two_agents()[:1]])
    assert b.is_done
    with pytest.raises(ValueError, match=r"new rows of 1 columns, .* got shape \(2, 3\)"):
        b.predict(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="with infinity"):
        b.predict(np.full((2, 1), np.inf))
    with pytest.raises(ValueError, match=r"can be added, got 1e\+155 in column 0 of party 'b'; scale the column"):
        b.predict(np.array([[np.nan], [-1e155]]))
    assert b.is_done, "a refused prediction changes nothing"
    with pytest.raises(ValueError, match=f"1 to {MOST_NEW_ROWS} new rows at a time, got None"):
        b.predict()
    with pytest.raises(ValueError, match="got 0"):
        b.predict(np.zeros((0, 1)))


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros(5), "1 to 10000 columns"),
        (np.zeros((5, 0)), "1 to 10000 columns"),
        (np.zeros((1, 1)), "at least as many rows as components, 2, got 1"),
        (np.full((5, 1), np.inf), "got infinity"),
    ],
)
def test_tables_that_are_none(X, message):
    with pytest.raises(ValueError, match=message):
        Agent(0, [1], agree(), X)


def test_agreements_that_make_no_sense():
    with pytest.raises(ValueError, match="links to others"):
        Agent(0, [0], agree(), table())
    with pytest.raises(ValueError, match="init_params"):
        agree(init_params="magic")
    with pytest.raises(ValueError, match="at least 1"):
        agree(n_init=0)
    with pytest.raises(ValueError, match="in consensus every agent sees the sum"):
        agree(Consensus(2), audience=(0,))


def failures(agents):
    transport = run(agents)
    found = {agent.failure for agent in transport.agents.values()}
    assert len(found) == 1, "everybody is told the same"
    assert all(agent.state.exchange is None for agent in agents)
    assert all(agent.receive(Message(0, 9, 0, 1, "sum", np.zeros(1))) == [] for agent in agents), "it is over"
    return found.pop()


def chain(tables, agreements=None, **arguments):
    """Agents on a path, each with its table."""
    n = len(tables)
    return [
        Agent(
            number,
            [peer for peer in (number - 1, number + 1) if 0 <= peer < n],
            agreements[number] if agreements else agree(**arguments),
            X,
            name=f"party {number}",
            **({"most_hops": 1} if number == n - 1 else {}),
        )
        for number, X in enumerate(tables)
    ]


def test_a_party_may_refuse_to_send_its_columns_that_far():
    reason = failures(chain([table(n_columns=1)] * 5, hops=2))
    assert reason == (
        "party 'party 4' refuses: its columns would travel 2 hops to 'party 2', and it allows 1; try a smaller hops, "
        "or ask the party"
    )


def test_before_anybody_has_sent_a_column_of_a_study_that_is_refused():
    kinds = set()
    run(chain([table(n_columns=1)] * 5, hops=2), watch=lambda message: kinds.add(message.kind))
    assert kinds == {"meet", "stop"}


def test_hops_that_a_party_allows_are_those_its_own_columns_travel():
    agents = chain([table(n_columns=1)] * 3, hops=2)  # the root is in the middle, one hop away
    assert [agent.failure for agent in run(agents).agents.values()] == [None] * 3


def test_different_agreements_are_found_before_anything_else():
    reason = failures(chain([table(n_columns=1)] * 3, [agree(), agree(), agree(tol=0.1)]))
    assert "expected the same agreement everywhere, got others from 'party 0' and 'party 2'" in reason


def test_different_numbers_of_rows():
    reason = failures(chain([table(n_columns=1), table(n_rows=20, n_columns=1), table(n_columns=1)]))
    assert "got 24 from 'party 0' and 20 from 'party 1'; a row that a party lacks is a row of gaps" in reason


def test_a_party_that_cannot_go_on_tells_everybody_why():
    constant = np.ones((24, 1))
    reason = failures(chain([table(n_columns=1), constant, table(n_columns=1)], reg_covar=0.0))
    assert reason.startswith("party 'party 1' cannot go on: no component can have a covariance at party 'party 1'")


def test_all_starts_that_collapse_are_a_failure_that_all_find():
    X = np.repeat(np.arange(3.0), 8)[:, None]
    reason = failures(chain([X, X], reg_covar=0.0, n_components=3, init_params="kmeans", max_iter=30))
    assert "has collapsed at party 'party 0' (3 repairs did not help)" in reason


def test_a_party_that_comes_back_to_a_failed_study_is_told():
    agents = chain([table(n_columns=1), np.ones((24, 1)), table(n_columns=1)], reg_covar=0.0)
    run(agents)
    [message] = agents[1].rejoin(2)
    assert message.kind == "stop"
    assert bytes(message.values).decode() == agents[1].failure
    late = Agent(2, [1], agree(reg_covar=0.0), table(n_columns=1), name="party 2")
    assert late.receive(message) == []
    assert late.failure == agents[1].failure


@pytest.mark.parametrize(
    ("edges", "columns", "message"),
    [
        ([(0, 1), (1, 2)], {0: 1, 1: 1, 2: 1}, "got 0 agents without columns and 2 links"),
        ([(0, 2), (1, 2), (0, 1)], {0: 1, 1: 1}, "got 1 agents without columns and 3 links"),
    ],
)
def test_a_star_must_be_one(edges, columns, message):
    graph = nx.Graph(edges)
    agents = [
        Agent(n, graph[n], agree(Star()), table(n_columns=columns[n]) if n in columns else None)
        for n in sorted(graph)
    ]
    assert message in failures(agents)


def test_an_agent_without_columns_has_no_place_in_consensus():
    agents = [Agent(0, [1], agree(), table()), Agent(1, [0], agree(), name="nobody")]
    assert "expected columns at every agent, got none from 'nobody'" in failures(agents)


def test_names_must_differ():
    agents = [Agent(0, [1], agree(), table(), name="x"), Agent(1, [0], agree(), table(), name="x")]
    assert "a different name for each agent, got 'x', 'x'" in failures(agents)


def test_records_that_contradict_each_other_are_the_peers_mistake():
    a, b = two_agents()
    a.start()
    lie = encode_records([record_of(b), record_of(a, n_rows=99)])
    before = a.state
    with pytest.raises(RemoteProtocolError, match="agent 0, round 0, peer 1: expected one record of agent 0"):
        a.receive(Message(0, 0, 1, 0, "meet", lie))
    with pytest.raises(RemoteProtocolError, match="expected records of agents, got bytes that are none"):
        a.receive(Message(0, 0, 1, 0, "meet", np.frombuffer(b"nonsense", np.uint8)))
    assert a.state is before
    assert decode_records(encode_records([record_of(b), record_of(a)])) == [record_of(a), record_of(b)]


# Prediction


def predict(transport, X, network, absent=()):
    for number, agent in sorted(transport.agents.items()):
        if number >= len(network.parties) or number in absent:
            transport.post(agent.predict(n_rows=len(X)))
        else:
            transport.post(agent.predict(X[:, network.columns[number]]))
    transport.run()
    assert all(agent.is_done for agent in transport.agents.values())
    return {number: agent.prediction for number, agent in transport.agents.items()}


def expected_prediction(agents, network, X):
    """By the definition: log-densities of what is there, the weights of the first root."""
    roots = {hub.root: columns for hub, columns in zip(network.hubs, network.block_columns, strict=True)}
    total = np.log(agents[network.hubs[0].root].model.weights)
    for root, columns in roots.items():
        block = agents[root].model.block
        total = total + block_log_density(X[:, columns], block.means, block.covariances)
    log_densities = logsumexp(total, axis=1)
    return np.exp(total - log_densities[:, None]), log_densities


@pytest.mark.processors
@pytest.mark.parametrize("absent", [(), (1,)])
@pytest.mark.parametrize(("graph", "hops"), [("star", 0), (nx.cycle_graph(4), 0), (nx.path_graph(4), 1)])
def test_everybody_gets_the_prediction_of_new_rows(graph, hops, absent):
    summation = Star() if graph == "star" else Consensus(150)
    agents, network = make_study(graph, hops=hops, summation=summation)
    transport = run(agents)
    rng = np.random.default_rng(5)
    for n_rows in (7, 3):  # one table after the other
        X = rng.normal(size=(n_rows, 6)) * 3
        X[0, :3] = np.nan
        for number in absent:
            X[:, network.columns[number]] = np.nan
        responsibilities, log_densities = expected_prediction(agents, network, X)
        for found in predict(transport, X, network, absent).values():
            # So many rounds average to rounding.
            np.testing.assert_allclose(found.responsibilities, responsibilities, rtol=1e-8, atol=1e-10)
            np.testing.assert_allclose(found.log_densities, log_densities, rtol=1e-9)


def test_a_prediction_costs_one_sum_of_a_number_per_component():
    agents, network = make_study("star")
    transport = run(agents)
    before = transport.traffic(network)
    predict(transport, table()[:5], network)
    traffic = transport.traffic(network)
    assert traffic.messages - before.messages == 2 * 4
    assert traffic.bytes - before.bytes == 2 * 4 * (5 * 2 * 8 + 8 + 68)


def test_a_server_tells_only_the_audience():
    agents, network = make_study("star", audience=(1, 3))
    transport = run(agents)
    sent = []
    transport.watch = lambda message: message.sender == 4 and sent.append((message.receiver, len(message.values)))
    found = predict(transport, table()[:5], network)
    assert [number for number in range(4) if found[number].responsibilities is not None] == [1, 3]
    assert sorted(sent) == [(0, 0), (1, 10), (2, 0), (3, 10)]


def test_an_abandoned_party_is_marginalized_in_predictions():
    agents, network = make_study(nx.complete_graph(4), summation=Consensus(60))
    transport = run(agents)
    transport.crash(1)
    transport.abandon(1)
    transport.run()
    X = np.random.default_rng(5).normal(size=(6, 6))
    for number, agent in sorted(transport.agents.items()):
        transport.post(agent.predict(X[:, network.columns[number]]))
    transport.run()
    X[:, network.columns[1]] = np.nan
    responsibilities, log_densities = expected_prediction(agents, network, X)
    for agent in transport.agents.values():
        np.testing.assert_allclose(agent.prediction.responsibilities, responsibilities, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(agent.prediction.log_densities, log_densities, rtol=1e-6)


def ask(transport, X, network):
    """Ask those for a prediction who are free."""
    for number, agent in sorted(transport.agents.items()):
        if agent.is_done:
            transport.post(agent.predict(X[:, network.columns[number]]))


@pytest.mark.processors
@pytest.mark.parametrize("graph", [nx.path_graph(4), nx.cycle_graph(5)])
@pytest.mark.parametrize("hops", [0, 1])
def test_predictions_survive_losses_and_are_never_mixed_up(graph, hops):
    tables = [table()[:5], 2 * table()[5:10], table()[7:8]]  # one of a single row
    agents, network = make_study(graph, hops=hops)
    undisturbed = run(agents)
    expected = []
    for X in tables:
        found = predict(undisturbed, X, network)
        expected.append({number: one.responsibilities.tobytes() for number, one in found.items()})
    for moment in range(0, 70, 3):
        transport = run(make_study(graph, hops=hops)[0])
        for n_asked, X in enumerate(tables):
            # Whoever has an answer is asked for the next at once, while others may still be at work.
            while any(agent.state.progress.n_predictions == n_asked for agent in transport.agents.values()):
                for number, agent in sorted(transport.agents.items()):
                    if agent.is_done and agent.state.progress.n_predictions == n_asked:
                        transport.post(agent.predict(X[:, network.columns[number]]))
                left = [moment]
                transport.run(until=lambda left=left: left.append(left.pop() - 1) or left[0] <= 0)
                victim = (moment + n_asked) % len(graph)
                saved = wire.encode_state(transport.agents[victim].state)
                transport.crash(victim)
                transport.run()
                transport.recover(victim, saved)
                transport.run()
            for number, agent in transport.agents.items():
                assert agent.prediction.responsibilities.tobytes() == expected[n_asked][number], (moment, n_asked)


def test_an_agent_that_is_asked_as_soon_as_it_is_done_is_one_checkpoint_ahead_at_most():
    X = table()[:4]
    agents, network = make_study(nx.path_graph(4), summation=Consensus(4), init_params="random")
    transport = InProcess(agents).start()
    transport.run(until=lambda: any(agent.is_done for agent in agents))
    for n_asked in range(2):
        for agent in agents:
            if agent.is_done and agent.state.progress.n_predictions == n_asked:
                transport.post(agent.predict(X[:, network.columns[agent.number]]))
        newest = [agent.state.checkpoints[-1].number for agent in agents]
        assert max(newest) - min(newest) <= 1
    saved = wire.encode_state(agents[3].state)
    transport.crash(3)
    transport.run()
    transport.recover(3, saved)
    rounds = max(agent.state.round for agent in agents)
    transport.run()
    while not all(agent.state.progress.n_predictions for agent in transport.agents.values()):
        ask(transport, X, network)
        transport.run()
    assert all(len(agent.model.history) == 4 for agent in transport.agents.values() if agent.model.block is not None)
    assert max(agent.state.round for agent in transport.agents.values()) - rounds < 60, "no second fit"


def test_an_old_state_from_after_the_fit_does_not_cost_the_model():
    X = table()[:4]
    agents, network = make_study(nx.cycle_graph(4))
    transport = run(agents)
    old = wire.encode_state(transport.agents[1].state)
    for _ in range(3):
        predict(transport, X, network)
    before = transport.traffic(network).messages
    transport.crash(1)
    transport.recover(1, old)
    transport.run()
    assert all(agent.is_done for agent in transport.agents.values())
    assert transport.traffic(network).messages - before < 40, "they only met"
    assert {agent.state.progress.n_predictions for agent in transport.agents.values()} == {0}
    predict(transport, X, network)


def test_a_second_table_has_to_wait_for_the_first():
    agents, network = make_study(nx.path_graph(4))
    run(agents)
    agents[0].predict(table()[:3, network.columns[0]])
    with pytest.raises(LocalProtocolError, match="is_done"):
        agents[0].predict(table()[:3, network.columns[0]])


def test_nothing_begins_after_a_failure():
    agent = two_agents()[0]
    reason = np.frombuffer("no more \xe4\xff".encode("latin-1"), np.uint8)
    assert agent.receive(Message(0, 0, 1, 0, "stop", reason)) == []
    for event in (agent.start, lambda: agent.predict(np.zeros((2, 1)))):
        with pytest.raises(LocalProtocolError, match="the study has ended: no more"):
            event()


@pytest.mark.parametrize(
    ("phase", "decision", "message"),
    [
        ("draw", [-1000.0, 0, 0], "numbers of rows from 0 to 23"),
        ("draw", [0.5, 0, 0], "numbers of rows"),
        ("weights", [-1.0, 2.0], "how many rows each component has"),
        ("weights", [0.0, 0.0], "how many rows each component has"),
        ("iterate", [0.0, -1.0, -3.0, np.inf], "numbers of hubs"),
        ("iterate", [0.0, -1.0, np.inf, 4.0], "numbers of hubs"),
        ("iterate", [0.0, -1.0, np.inf, 0.5], "numbers of hubs"),
    ],
)
def test_decisions_that_nobody_takes_end_the_study(phase, decision, message):
    agents = two_agents()
    transport = InProcess(agents).start()
    while agents[0].failure is None and transport._line:
        own = transport._line.popleft()
        if own.receiver == 0 and len(own.decision) == len(decision) and agents[0].state.progress.phase == phase:
            own = own._replace(decision=np.array(decision))
        transport.post(transport.agents[own.receiver].receive(own))
    assert message in agents[0].failure


def test_sizes_of_what_comes_early_are_bounded_by_what_can_come():
    a, _ = two_agents()
    a.start()

    def header(kind, n_values, n_decisions=0, ahead=1):
        dtype = "u1" if kind in ("meet", "stop") else "f8"
        return Header(0, ahead, 1, 0, kind, dtype, n_values, n_decisions)

    a.check(header("sum", 24 * 2 + 1, 4))
    for bad, message in [
        (header("columns", 24), "no 'columns' without hops"),
        (header("terms", 24), "no 'terms' without hops"),
        (header("sum", 3 * MOST_NEW_ROWS + 2, 4), "expected at most"),
        (header("sum", 48, 6), "expected at most"),
        (header("flood", 1, 4), "expected at most"),
        (header("meet", 2**24 + 1), "expected at most"),
        (header("meet", 10, 1), "expected at most"),
        (header("meet", 48, ahead=2), "a round that the peer can have come to"),
        (header("stop", 4097, ahead=0), "expected at most 4096 bytes"),
        (Header(2**21, 2**21 << 32, 1, 0, "meet", "u1", 10, 0), "epochs ahead"),
        (Header(1, 1 << 32, 1, 0, "meet", "u1", 2**24 + 1, 0), "expected at most"),
    ]:
        with pytest.raises(RemoteProtocolError, match=message):
            a.check(bad)
    hubs = Agent(0, [1], agree(hops=1), table(n_columns=1))
    hubs.start()
    hubs.check(header("columns", 24))
    hubs.check(header("terms", 48, ahead=3))


def test_a_server_does_not_believe_the_largest_number_of_rows():
    agents, _ = make_study("star")
    server = agents[4]
    server.start()
    for number in range(4):
        hello = record_of(agents[number], n_rows=2**32 - 1 if number == 2 else 200_000)
        server.receive(Message(0, 0, number, 4, "meet", encode_records([hello])))
    server.check(Header(0, 2, 2, 4, "sum", "f8", 200_000 * 2, 4))
    with pytest.raises(RemoteProtocolError, match="expected at most"):
        server.check(Header(0, 2, 2, 4, "sum", "f8", 2**33, 4))


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([(7, (8,)), (8, (7,))], "neighbours of those who are known, got one of 'x7'"),
        ([(7, ())], "neighbours of those who are known"),
    ],
)
def test_records_of_strangers(records, message):
    a, b = two_agents()
    a.start()
    more = [record_of(b, number=number, name=f"x{number}", neighbours=peers) for number, peers in records]
    with pytest.raises(RemoteProtocolError, match=message):
        a.receive(Message(0, 0, 1, 0, "meet", encode_records([record_of(b), *more])))


def test_somebody_who_is_named_but_never_found_ends_the_meeting():
    a, b = two_agents()
    a.start()
    a.receive(Message(0, 0, 1, 0, "meet", encode_records([record_of(b, neighbours=(0, 9))])))
    a.receive(Message(0, 1, 1, 0, "meet", encode_records([])))
    assert a.failure == "an agent is named as a neighbour, but cannot be found; compare the links"


def test_two_records_that_differ_in_one_round():
    agents, _ = make_study(nx.complete_graph(3))
    agents[0].start()
    stranger = [record_of(agents[1], number=7, name="x", neighbours=(0,), n_rows=rows) for rows in (24, 25)]
    agents[0].receive(Message(0, 0, 1, 0, "meet", encode_records([record_of(agents[1], n_columns=2), stranger[0]])))
    with pytest.raises(RemoteProtocolError, match="peer 2: expected one record of agent 7, got two that differ"):
        agents[0].receive(
            Message(0, 0, 2, 0, "meet", encode_records([record_of(agents[2], n_columns=2), stranger[1]]))
        )


def test_a_sum_in_place_of_a_meeting_is_the_peers_mistake():
    agents, _ = make_study(nx.path_graph(3), init_params="random")
    transport = InProcess(agents).start()

    def too_soon(message):  # agent 0 should still be meeting in round 1
        is_second = message.sender == 0 and message.round == 1
        return Message(0, 1, 0, 1, "sum", np.zeros(48), np.zeros(4)) if is_second else message

    held = run_without(transport, lambda message: message.sender == 2, too_soon)
    transport.post(agents[1].receive(held[0]))
    held += run_without(transport, lambda message: message.sender == 2, too_soon)
    with pytest.raises(RemoteProtocolError, match="peer 0: expected 'meet', got 'sum'"):
        agents[1].receive(held[1])


def test_who_was_given_up_is_not_heard_any_more():
    transport = run(make_study(nx.complete_graph(3))[0])
    dead = transport.agents[2]
    transport.abandon(2)
    transport.run()
    with pytest.raises(RemoteProtocolError, match=r"one of \(1,\) to 0, got one from 2"):
        transport.agents[0].receive(dead.rejoin(0)[0])


def test_names_and_numbers_that_cannot_be_sent():
    for arguments in ({"number": -1}, {"name": "x" * 201}, {"name": "\ud800"}):
        with pytest.raises(ValueError, match="a name of at most 200 letters"):
            Agent(**{"number": 0, "neighbours": [1], "agreement": agree(), "X": table(), **arguments})


def test_agreements_that_are_equal_have_one_digest():
    one, other = agree(Consensus(4), tol=0, max_iter=4), agree(Consensus(np.int64(4)), tol=0.0, max_iter=np.int32(4))
    assert one.digest == other.digest
    assert one.digest != agree(Consensus(5), tol=0, max_iter=4).digest
