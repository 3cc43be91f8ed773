"""Masked sums: both engines, restarts, rows with few holders, and what is refused."""

import warnings
from unittest import mock

import networkx as nx
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

import vpem
from studies import agree, bits, make_study, run, table
from vpem import Consensus, Differences, Masked, Star, Tree, VerticalGaussianMixture, VerticalKMeans
from vpem.core.network.parties import make_network
from vpem.core.rows import rows_held
from vpem.privacy import masked_deltas
from vpem.privacy.masked_deltas import word_bytes
from vpem.privacy.masks import FEW_HOLDERS, REPEATS, TWO_PARTIES
from vpem.privacy.pairwise_keys import Keys
from vpem.transports import wire
from vpem.transports.inprocess import Disturbances, InProcess
from vpem.transports.session import Session

RING = nx.Graph([("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")])
PARTIES = {"a": [0, 1], "b": [2], "c": [3, 4], "d": [5]}


def fit(X, **arguments):
    settings = {"partition": PARTIES, "tol": 0, "max_iter": 8, "reg_covar": 1e-3, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return VerticalGaussianMixture(**{"n_components": 2, **settings, **arguments}).fit(X)


@pytest.mark.parametrize("summation", [Masked(Star()), Masked(Tree())], ids=["star", "tree"])
@pytest.mark.parametrize(
    "arguments",
    [{}, {"batch_size": 9, "init_params": "random"}, {"n_init": 2}, {"accelerate": "squarem"}],
    ids=["k-means", "batches", "two starts", "accelerated"],
)
def test_engines_have_the_same_numbers_and_bytes(summation, arguments):
    graph = "star" if summation.has_server else RING
    plain = fit(table(), graph=graph, **arguments)
    simulated, agents = (
        fit(table(), graph=graph, summation=summation, engine=engine, **arguments)
        for engine in ("simulation", "agents")
    )
    np.testing.assert_allclose(agents.means_, simulated.means_, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(agents.traffic_.table[:, [0, 2]], simulated.traffic_.table[:, [0, 2]])
    # A total that is compressed differs in a byte here and there where terms differ in their last digits.
    np.testing.assert_allclose(agents.traffic_.table, simulated.traffic_.table, rtol=0.01)
    if "accelerate" not in arguments:  # whose steps depend on the criterion, which is another
        np.testing.assert_allclose(simulated.means_, plain.means_, rtol=1e-2, atol=1e-2)


WAYS = (Star(), Masked(Star()))


def heavy_tails():
    rng = np.random.default_rng(4)
    groups = rng.integers(3, size=1500)
    return rng.standard_t(2, size=(1500, 6)) + 4 * rng.normal(size=(3, 6))[groups]


@pytest.mark.parametrize("init_params", ["kmeans", "random"])
def test_a_masked_fit_takes_the_iterations_of_a_plain_one_and_ends_where_it_does(init_params):
    X, settings = heavy_tails(), {"n_components": 3, "init_params": init_params, "random_state": 1}
    models = [VerticalGaussianMixture(partition=PARTIES, summation=way, **settings) for way in WAYS]
    plain, masked = (model.set_params(tol=1e-6, max_iter=500).fit(X) for model in models)
    assert abs(masked.n_iter_ - plain.n_iter_) <= 2
    # The tolerance lets fits end a step or two apart; after as many steps they differ by less than a step does.
    assert masked.score(X) == pytest.approx(plain.score(X), abs=1e-5)
    with pytest.warns(ConvergenceWarning):
        plain, masked = (model.set_params(tol=0, max_iter=120).fit(X) for model in models)
    np.testing.assert_allclose(masked.predict_proba(X), plain.predict_proba(X), atol=1e-4)


@pytest.mark.parametrize("init_params", ["kmeans", "random"])
def test_pulsars_take_as_many_iterations_as_plain(htru2, init_params):
    X = (htru2[0] - htru2[0].mean(axis=0)) / htru2[0].std(axis=0)
    settings = {"partition": {n: [n] for n in range(8)}, "init_params": init_params, "random_state": 0}
    plain, masked = (VerticalGaussianMixture(2, summation=way, **settings).fit(X) for way in WAYS)
    assert abs(masked.n_iter_ - plain.n_iter_) <= 2
    assert masked.score(X) == pytest.approx(plain.score(X), abs=1e-3), "as the tolerance of 1e-3 allows"


@pytest.mark.parametrize(
    ("covariance_type", "seed", "tol"), [("diag", 1, 1e-3), ("diag", 3, 1e-6), ("full", 2, 1e-6)]
)
def test_a_masked_fit_does_not_stop_because_its_unit_is_coarse(covariance_type, seed, tol):
    """Pixels that hardly vary: log-ratios change by up to 1e7 nats, and some rows by far more than others."""
    settings = {"covariance_type": covariance_type, "random_state": seed, "tol": tol, "max_iter": 300}
    parties = np.arange(64).reshape(4, 16).tolist()
    models = [VerticalGaussianMixture(10, partition=parties, summation=way, **settings) for way in WAYS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain, masked = (model.fit(load_digits().data) for model in models)
    assert masked.converged_
    # Both end when steps are below tol. Masked EM ends a step or two later, at steps of less than tol each.
    assert abs(masked.n_iter_ - plain.n_iter_) <= 2
    assert masked.log_likelihood_ == pytest.approx(plain.log_likelihood_, rel=0, abs=2 * tol)


@pytest.mark.filterwarnings("ignore::vpem.verdict.FitWarning")
def test_engines_have_the_same_numbers_where_words_are_wide():
    X = load_digits().data[:200, 8:40]
    settings = {"partition": np.arange(32).reshape(4, 8).tolist(), "n_components": 4, "tol": 1e-3, "max_iter": 100}
    way = Masked(Star())
    with mock.patch.object(masked_deltas, "find", side_effect=masked_deltas.find) as find:
        simulated = fit(X, summation=way, reg_covar=1e-6, **settings)
    assert any(masked_deltas.is_wide(call.args[1]) for call in find.call_args_list)
    agents = fit(X, summation=way, reg_covar=1e-6, engine="agents", **settings)
    assert agents.lower_bounds_ == pytest.approx(simulated.lower_bounds_, rel=1e-12)
    assert agents.converged_
    assert simulated.converged_
    np.testing.assert_array_equal(agents.traffic_.table[:, 0], simulated.traffic_.table[:, 0])
    np.testing.assert_allclose(agents.traffic_.table, simulated.traffic_.table, rtol=0.01)


def study(summation=None, **arguments):
    graph = arguments.pop("graph", "star")
    return make_study(graph, summation=summation or Masked(Star()), **arguments)[0]


@pytest.mark.parametrize("graph", ["star", nx.path_graph(5)], ids=["star", "path"])
@pytest.mark.parametrize("seed", range(3))
def test_however_messages_are_delivered_the_bits_are_the_same(graph, seed):
    way = Masked(Star() if graph == "star" else Tree())
    arguments = {"graph": graph, "batch_size": 9, "init_params": "random"}
    expected = bits(run(study(way, **arguments)).agents.values())
    disturbed = Disturbances(np.random.default_rng(seed), delay=0.3, duplicate=0.1)
    assert bits(run(study(way, **arguments), encoded=True, disturbances=disturbed).agents.values()) == expected


@pytest.mark.parametrize("stop_after", [10, 30, 45, 60])
def test_a_restart_means_new_keys_and_the_same_model(stop_after):
    expected = bits(run(study(init_params="random")).agents.values())
    agents = study(init_params="random")
    transport = InProcess(agents, encoded=True).start()
    left = iter(range(stop_after - 1, -1, -1))
    transport.run(lambda: next(left, 1) == 0)
    before = {number: agent.state.records for number, agent in transport.agents.items()}
    saved = wire.encode_state(transport.agents[1].state)
    private = transport.agents[1].identity._greeting[2]._private.private_bytes_raw()
    assert private not in saved
    transport.crash(1)
    transport.run()
    transport.recover(1, saved)
    transport.run()
    assert bits(transport.agents.values()) == expected
    for number, agent in transport.agents.items():
        if 1 in before[number]:
            assert agent.state.records[1].greeting != before[number][1].greeting


def test_keys_cannot_be_saved_and_are_never_the_same():
    import pickle

    with pytest.raises(TypeError, match="stay in the memory"):
        pickle.dumps(Keys())
    assert len({Masked(Star()).greet()[0] for _ in range(20)}) == 20


# What is refused


@pytest.mark.parametrize("inner", [Consensus(5), Differences(Star()), "star"])
def test_only_exact_sums_can_be_masked(inner):
    with pytest.raises(ValueError, match="masks do not cancel"):
        Masked(inner)


def test_what_is_accepted_is_said_in_words():
    with pytest.raises(ValueError, match="two parties see each other's terms"):
        Masked(Star(), accept=("anything",))


def test_two_parties_must_accept_that_they_see_each_other_s_terms():
    halves = {"a": [0, 1, 2], "b": [3, 4, 5]}
    with pytest.raises(ValueError, match="each of two can subtract"):
        fit(table(), partition=halves, summation=Masked(Star()))
    agents, _ = make_study("star", columns={0: [0, 1, 2], 1: [3, 4, 5]}, summation=Masked(Star()))
    assert "each of two can subtract" in run(agents).agents[0].failure
    accepted = fit(table(), partition=halves, summation=Masked(Star(), (TWO_PARTIES,)))
    np.testing.assert_allclose(accepted.means_, fit(table(), partition=halves).means_, atol=1e-2)


def test_labels_would_show_labels():
    with pytest.raises(ValueError, match="shows each party's labels"):
        fit(table(), summation=Masked(Star()), init_params="labels")


# Rows with few holders


def gappy():
    X = table(gaps=False, n_rows=40)
    X[3, :3] = np.nan  # c and d alone
    X[4, 2:] = np.nan  # a alone
    X[5, :2] = np.nan  # three of four
    return X


@pytest.mark.parametrize("engine", ["simulation", "agents"])
def test_rows_of_fewer_than_three_parties_are_left_out(engine):
    X = gappy()
    without = X.copy()
    without[3:5] = np.nan
    expected = fit(without, init_params="random")
    found = fit(X, summation=Masked(Star()), engine=engine, init_params="random")
    np.testing.assert_allclose(found.means_, expected.means_, atol=1e-2)
    accepted = fit(X, summation=Masked(Star(), (FEW_HOLDERS,)), engine=engine, init_params="random")
    without = X.copy()
    without[4] = np.nan  # of one party: its terms would be plain to all
    np.testing.assert_allclose(accepted.means_, fit(without, init_params="random").means_, atol=1e-2)
    assert np.abs(accepted.means_ - found.means_).max() > 1e-3


@pytest.mark.filterwarnings("ignore::vpem.verdict.FitWarning")
@pytest.mark.parametrize("engine", ["simulation", "agents"])
@pytest.mark.parametrize("standardize", [False, True])
def test_certificate_and_verdict_are_about_the_rows_that_were_used(engine, standardize):
    X = heavy_tails()[:300] * [1, 10, 100, 1, 1, 1e-3]
    X[:60, 2:] = np.nan  # a alone
    X[60:100, 3:] = np.nan  # a and b
    X[290:] = np.nan
    settings = {"n_components": 3, "tol": 1e-4, "max_iter": 500, "engine": engine, "standardize": standardize}
    model = fit(X, summation=Masked(Star()), reg_covar=1e-6, **settings)
    used = X[100:290]
    assert model.converged_
    assert model.log_likelihood_ == pytest.approx(model.score(used), rel=1e-12)
    assert model.lower_bound_ == pytest.approx(model.score(used), abs=1e-3)
    assert abs(model.certificate_.gain) < 2e-4
    assert sum(model.certificate_.effective_rows) == pytest.approx(190)
    findings = {finding.code: finding for finding in model.verdict_}
    assert "gain" not in findings
    assert "100 of 290 rows (34%)" in findings["rows_left_out"].sentence
    assert findings["rows_left_out"].severity == "amber"
    plain = fit(X, **settings)
    assert "rows_left_out" not in {finding.code for finding in plain.verdict_}


@pytest.mark.parametrize("engine", ["simulation", "agents"])
def test_a_table_without_rows_of_three_parties_is_an_error(engine):
    X = table(gaps=False)
    X[:12, :3] = X[12:, 3:] = np.nan
    with pytest.raises(Exception, match="rows that at least 3 parties have, got none"):
        fit(X, summation=Masked(Star()), engine=engine, init_params="random")


def test_rows_are_held_if_any_value_is_there():
    X = np.array([[1.0, np.nan, 2.0], [np.nan, np.nan, 3.0]])
    np.testing.assert_array_equal(rows_held(X, np.array([0, 1])), [1.0, 0.0])


def test_k_means_under_masks_is_k_means():
    X = table(gaps=False, n_rows=200)
    plain, masked = (
        VerticalKMeans(2, partition=PARTIES, summation=way, random_state=0).fit(X) for way in (None, Masked(Star()))
    )
    np.testing.assert_allclose(masked.cluster_centers_, plain.cluster_centers_, rtol=1e-9)


# Predictions


def predict(agents, X, network_columns, lacking=()):
    transport = InProcess(agents)
    for agent in agents:
        columns = network_columns.get(agent.number)
        own = None if columns is None or agent.number in lacking else X[:, columns]
        transport.post(agent.predict(own, None if own is not None else len(X)))
    transport.run()
    return [agent for agent in agents if agent.prediction is not None]


COLUMNS = {0: [0, 1], 1: [2], 2: [3, 4], 3: [5]}


def fitted(accept=()):
    agents, _ = make_study("star", columns=COLUMNS, summation=Masked(Star(), accept), init_params="random")
    run(agents)
    return agents


def test_predictions_are_those_of_the_plain_model():
    agents = fitted()
    plain, _ = make_study("star", columns=COLUMNS, init_params="random")
    run(plain)
    new = table(n_rows=9, gaps=False) + 0.1
    new[2, :3] = np.nan  # two holders: it is not added, and has no score
    found, expected = (predict(ones, new, COLUMNS)[0].prediction for ones in (agents, plain))
    others = np.delete(np.arange(9), 2)
    np.testing.assert_allclose(found.responsibilities[others], expected.responsibilities[others], atol=1e-2)
    assert np.isnan(found.responsibilities[2]).all()
    assert np.flatnonzero(np.isnan(found.log_densities)).tolist() == [2]


@pytest.mark.parametrize(("accept", "refused"), [((), True), ((REPEATS,), False)])
def test_the_same_rows_with_another_set_of_parties_are_refused(accept, refused):
    agents, new = fitted(accept), table(n_rows=9, gaps=False) + 0.1
    predict(agents, new, COLUMNS)
    predict(agents, new, COLUMNS)
    assert all(agent.failure is None for agent in agents), "the same parties again"
    predict(agents, new, COLUMNS, lacking=[3])
    reasons = {agent.failure for agent in agents}
    assert any("a party's own term" in (reason or "") for reason in reasons) == refused


def test_rows_of_the_fit_are_among_them():
    agents = fitted()
    predict(agents, table()[10:14], COLUMNS, lacking=[3])
    assert any("a party's own term" in (agent.failure or "") for agent in agents)


def test_a_party_that_has_gone_cannot_be_left_out_of_a_prediction():
    agents = fitted()
    transport = InProcess(agents)
    transport.abandon(3)
    transport.run()
    new = table(n_rows=9, gaps=False) + 0.1
    for number in (0, 1, 2, 4):
        agent = transport.agents[number]
        transport.post(agent.predict(None if number == 4 else new[:, COLUMNS[number]], 9 if number == 4 else None))
    transport.run()
    assert "expected the parties of the fit" in transport.agents[0].failure


def test_a_fit_without_a_party_begins_with_another_seed():
    agents, _ = make_study(nx.complete_graph(5), summation=Masked(Tree()), init_params="kmeans")
    transport = InProcess(agents).start()
    seen = {}

    def watch(message):
        state = transport.agents[0].state
        if state.progress.clustering is not None and not state.meeting:
            seen.setdefault(state.epoch > 0, state.progress.clustering.picked[0])

    transport.watch = watch
    transport.run(lambda: len(seen) == 1)
    transport.abandon(4)
    transport.run()
    assert all(agent.is_done for agent in transport.agents.values())
    assert seen[False] != seen[True], "distances to the same row, with and without a party, would differ by its own"


def test_hubs_add_under_masks_and_pool_in_the_open():
    X, graph = table(gaps=False, n_columns=7), nx.path_graph(7)
    arguments = {"partition": {n: [n] for n in range(7)}, "graph": graph, "hops": 1, "init_params": "random"}
    plain = fit(X, **arguments)
    simulated, agents = (fit(X, summation=Masked(Tree()), engine=engine, **arguments) for engine in ENGINES)
    np.testing.assert_allclose(simulated.means_, plain.means_, atol=1e-2)
    np.testing.assert_allclose(agents.means_, simulated.means_, rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match="at least 3 parties"):
        fit(X, summation=Masked(Tree()), **{**arguments, "hops": 3})


ENGINES = ("simulation", "agents")


def test_one_component_and_words_for_many_parties():
    X = table(gaps=False)
    one, other = (fit(X, n_components=1, summation=Masked(Star()), engine=engine) for engine in ENGINES)
    np.testing.assert_allclose(one.means_[0], X.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(other.means_, one.means_)
    many = {n: make_network({k: [k] for k in range(n)}, "star", 0, np.random.default_rng(0)) for n in (256, 257)}
    assert [word_bytes(network) for network in many.values()] == [4, 8]


# Files, plans


def test_models_with_masks_are_saved(tmp_path):
    way = Masked(Star(), (FEW_HOLDERS,))
    model = fit(table(), summation=way)
    vpem.save(model, tmp_path / "model.vpem")
    assert vpem.load(tmp_path / "model.vpem").summation == way


@pytest.mark.parametrize("graph", ["star", RING], ids=["star", "ring"])
def test_plans_know_the_bytes(graph):
    from vpem.planning.planner import Study, planned_traffic

    X = table(n_rows=300, gaps=False)
    way = Masked(Star() if graph == "star" else Tree())
    model = fit(X, graph=graph, summation=way, init_params="random", max_iter=10)
    network = make_network(PARTIES, graph, 0, np.random.default_rng(0))
    about = Study(n_rows=300, n_components=2, init_params="random")
    low, high, most = (
        planned_traffic(way, network, about, model.n_iter_, length=length)[0]
        for length in ("fewest", "usual high", "most")
    )
    assert low.bytes <= model.traffic_.bytes <= most.bytes
    assert model.traffic_.bytes == pytest.approx(high.bytes, rel=0.2)
    assert model.traffic_.messages == high.messages


def test_sessions_carry_tags_over_the_wire():
    agents = study(init_params="random")
    sessions = {agent.number: Session(agent) for agent in agents}
    line = []
    for session in sessions.values():
        assert session.start() == [], "no link yet"
    for agent in agents:
        for peer in agent.neighbours:
            line += [(agent.number, frame) for frame in sessions[agent.number].connect(peer)]
    while line:
        sender, frame = line.pop(0)
        line += [(frame.receiver, out) for out in sessions[frame.receiver].receive(sender, frame.content)]
    assert bits(agents) == bits(run(study(init_params="random")).agents.values())


def test_an_agreement_says_what_is_accepted():
    assert agree(Masked(Star())).digest != agree(Masked(Star(), (FEW_HOLDERS,))).digest
