"""Rows that come again with other parties: the attack, and how keys of rows stop it."""

import networkx as nx
import numpy as np
import pytest

from oracles import by_row
from sessions import Network
from studies import make_study, run, table
from vpem import Masked, Star, Tree
from vpem.core.script import row_count_phases
from vpem.privacy.masks import FEW_HOLDERS, REPEATS
from vpem.transports import wire
from vpem.transports.inprocess import InProcess

COLUMNS = {n: [n] for n in range(4)}
N_ROWS = 40


def few_values(n_rows, seed=0):
    """Columns of two values: rows cannot be known by them."""
    return np.random.default_rng(seed).integers(2, size=(n_rows, 4)).astype(float)


def keyed(agents, n_rows=N_ROWS):
    for agent in agents:
        if agent.identity.X is not None:
            agent.identity.keys = np.arange(1, n_rows + 1)
    return agents


def make(accept=(), X=None, summation=None):
    X = few_values(N_ROWS) if X is None else X
    way = summation or Masked(Star(), accept)
    graph = "star" if way.has_server else nx.path_graph(4)
    agents, _ = make_study(graph, X, columns=COLUMNS, summation=way, init_params="random", max_iter=2)
    return keyed(agents)


def ask(agents, X, keys, lacking=()):
    """A prediction; how each agent fares. Parties that lack the rows have their ids all the same."""
    transport = InProcess(agents)
    for agent in agents:
        if agent.identity.X is None:
            transport.post(agent.predict(None, len(X)))
        else:
            own = None if agent.number in lacking else X[:, COLUMNS[agent.number]]
            transport.post(agent.predict(own, len(X), keys=keys))
    transport.run()
    return [agent.failure for agent in agents]


def fitted(*arguments, **named):
    agents = make(*arguments, **named)
    run(agents)
    assert all(agent.is_done for agent in agents)
    return agents


def totals_of(agents, X, keys, lacking=()):
    """The totals that party 0 sees, and the terms of party 3, in a prediction."""
    seen, own, original = [], [], (Masked.end, Masked.begin)

    def end(self, place, state):
        found = original[0](self, place, state)
        if place.position == 0 and not place.series:
            seen.append(by_row(found[0], len(X), 2))
        return found

    def begin(self, place, carry, term):
        if place.position == 3 and not place.series and term is not None:
            own.append(by_row(term, len(X), 2))
        return original[1](self, place, carry, term)

    Masked.end, Masked.begin = end, begin
    try:
        failures = ask(agents, X, keys, lacking)
    finally:
        Masked.end, Masked.begin = original
    return failures, seen, own


@pytest.mark.parametrize("way", [Star(), Tree()], ids=["star", "tree"])
def test_two_sums_that_differ_by_a_party_tell_its_terms_unless_they_are_refused(way):
    new, keys = few_values(6, seed=1), np.arange(1001, 1007)
    agents = fitted(summation=Masked(way, (REPEATS,)))
    _, [total], [terms] = totals_of(agents, new, keys)
    failures, [without], _ = totals_of(agents, new, keys, lacking=[3])
    assert failures == [None] * len(agents)
    np.testing.assert_allclose(total - without, terms, atol=1e-6)  # the attack: all of party 3's terms
    agents = fitted(summation=Masked(way))
    assert totals_of(agents, new, keys)[0] == [None] * len(agents)
    failures, seen, _ = totals_of(agents, new, keys, lacking=[3])
    assert all("a party's own term" in failure for failure in failures)
    assert seen == [], "nothing was added"


def test_one_party_in_place_of_another_is_noticed_though_the_number_is_the_same():
    agents, new, keys = fitted(), few_values(6, seed=1), np.arange(1001, 1007)
    assert ask(agents, new, keys, lacking=[3]) == [None] * 5
    assert all("a party's own term" in failure for failure in ask(agents, new, keys, lacking=[2]))


def test_a_party_that_brings_a_row_later_is_noticed_by_all_others_too():
    agents, new, keys = fitted(), few_values(6, seed=1), np.arange(1001, 1007)
    assert ask(agents, new, keys, lacking=[3]) == [None] * 5
    for agent in agents:
        if agent.number == 3:  # it does not know the rows again, as if it had lost its list
            seen = {"keys": np.empty(0, np.int64), "states": np.empty(0, np.int64)}
            object.__setattr__(agent.state.progress, "seen", seen)
    assert all("a party's own term" in failure for failure in ask(agents, new, keys))


def test_rows_with_equal_values_are_not_taken_for_each_other():
    agents, new = fitted(), few_values(6, seed=1)
    for place, lacking in enumerate([[], [3], [2], [1], [0], []]):
        keys = np.arange(6) + 1000 * (place + 1)
        assert ask(agents, new, keys, lacking) == [None] * 5, "other rows, with other parties"
    assert ask(agents, new[::-1].copy(), keys[::-1].copy()) == [None] * 5, "the same in another order"


def test_rows_of_other_values_are_known_by_their_keys_and_those_of_the_fit_are_among_them():
    agents = fitted()
    failures = ask(agents, few_values(4, seed=2) + 0.5, np.array([3, 500, 501, 502]), lacking=[1])
    assert all("got 1 with others (first: row 0)" in failure for failure in failures)


def test_a_row_that_was_left_out_was_not_added():
    X = few_values(N_ROWS)
    X[5, :2] = np.nan
    agents = fitted(X=X)
    assert ask(agents, few_values(2), np.array([6, 900])) == [None] * 5, "two had it in the fit: it was left out"
    agents = fitted(X=X, accept=(FEW_HOLDERS,))
    assert all("a party's own term" in failure for failure in ask(agents, few_values(2), np.array([6, 900])))


def test_the_fit_and_new_rows_both_have_keys_or_neither():
    agents = fitted()
    for keys, problem in (
        (None, "expected keys of new rows"),
        (np.arange(3), "each of 2 rows"),
        (np.array([4, 4]), "got some twice"),
        (np.array([0.5, 1.0]), "int64"),
    ):
        with pytest.raises(ValueError, match=problem):
            agents[0].predict(np.zeros((2, 1)), keys=keys)
    plain, _ = make_study("star", table(n_columns=4, gaps=False), columns=COLUMNS, summation=Masked(Star()))
    run(plain)
    with pytest.raises(ValueError, match="and only then, got some"):
        plain[0].predict(np.zeros((2, 1)), keys=np.arange(2))


def test_there_is_an_end_to_what_is_remembered(monkeypatch):
    monkeypatch.setattr(row_count_phases, "MOST_SEEN", N_ROWS + 10)
    agents = fitted()
    assert ask(agents, few_values(10), np.arange(100, 110)) == [None] * 5
    before = agents[0].state.progress.seen
    assert sum(array.nbytes for array in before.values()) == 16 * (N_ROWS + 10)
    assert ask(agents, few_values(10), np.arange(100, 110)) == [None] * 5, "again: nothing to add"
    assert agents[0].state.progress.seen is before
    assert "begin a new study, or accept" in ask(agents, few_values(1), np.array([77_777]))[0]


# Restarts


def seen_in(network, number):
    """What a party's file says that it has seen."""
    state = wire.decode_state(network.path(number).read_bytes())
    return set(state.checkpoints[-1].progress.seen["keys"].tolist())


def post_all(network, X, keys, lacking=()):
    for number, session in sorted(network.sessions.items()):
        if number == 4:
            network.post(number, session.predict(None, len(X)))
        else:
            own = None if number in lacking else X[:, COLUMNS[number]]
            network.post(number, session.predict(own, len(X), keys=keys))


@pytest.mark.parametrize("killed", [0, 2])
def test_what_was_seen_is_saved_before_any_term_is_sent_and_outlives_the_process(tmp_path, killed):
    network = Network(make, tmp_path).start().run()
    new, keys = few_values(6, seed=1), np.arange(1001, 1007)
    post_all(network, new, keys)
    n_terms = 0
    while ready := network.ready():
        line = ready[0]
        frames = network.deliver(line)
        agent = network.sessions[line[1]].agent
        if frames and line[1] != 4 and agent.state.progress.phase == "predict":
            n_terms += 1
            assert set(keys.tolist()) <= seen_in(network, line[1]), "its terms are about to be sent"
            if line[1] == killed:  # and it dies at that moment
                break
        network.post(line[1], frames)
    assert n_terms
    network.kill(killed)
    network.run()
    network.heal()
    network.run()
    assert all(agent.is_done for agent in network.agents), [agent.failure for agent in network.agents]
    network.kill(killed)
    network.run()
    network.heal()
    network.run()
    post_all(network, new, keys, lacking=[3])
    network.run()
    assert all("a party's own term" in agent.failure for agent in network.agents)
