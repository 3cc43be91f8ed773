"""A summation that is defined here, by the public protocol alone, and the tree, in both engines.

`Ledger` is a star of 64-bit integers. Parties send changes of their terms since the last sum, in bytes that are
compressed and so have lengths that depend on the data, scrambled with keys that were told in the meeting.
"""

import zlib
from dataclasses import dataclass, replace
from typing import ClassVar

import networkx as nx
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import vpem
from studies import bits, die_and_come_back, make_study, run, table
from vpem import Differences, Star, Tree, VerticalGaussianMixture
from vpem.core.agent.message import RemoteProtocolError
from vpem.extend import Payload, WrongMessageError, add_in_order
from vpem.model_format import SUMMATIONS
from vpem.transports.inprocess import Disturbances, InProcess

SCALE = 2**30
"""A unit is 1e-9: what fits are compared to."""


@dataclass(frozen=True)
class Ledger(Star):
    """Changes in whole units, which a server adds."""

    scale: int = SCALE

    def greet(self):
        return np.random.default_rng().bytes(8), None

    def matrix(self, network):
        return None

    def payload(self, network, shape):
        return Payload(9 * shape.n_values + 64, "u1", is_fixed=False)

    def begin(self, place, carry, term):
        zeros = np.zeros(place.shape.n_values, dtype=np.int64)
        state = {"sent": carry.get("sent", zeros), "total": carry.get("total", zeros), "change": zeros}
        if term is not None:
            now = np.rint(np.maximum(term, -1e9) * self.scale).astype(np.int64)
            state |= {"sent": now, "change": now - state["sent"]}
        return state

    def message(self, place, step, state):
        code = np.frombuffer(zlib.compress(state["change"].tobytes(), 1), np.uint8)
        return code ^ self.mask(place, place.position, len(code))

    def combine(self, place, step, state, received):
        changes = []
        for sender, code in received.items():
            try:
                code = code ^ self.mask(place, sender, len(code))
                plain = zlib.decompressobj().decompress(code, 8 * place.shape.n_values)
                changes.append(np.frombuffer(plain, np.int64).reshape(place.shape.n_values))
            except (zlib.error, ValueError):
                raise WrongMessageError(sender, "expected changes, got bytes that are none") from None
        change = add_in_order(changes)
        return {**state, "change": change, "total": state["total"] + change}

    def mask(self, place, sender, length):
        key = int.from_bytes(place.greetings[sender], "big")
        return np.random.default_rng([key, place.epoch, place.number]).integers(256, size=length, dtype=np.uint8)

    def end(self, place, state):
        return state["total"] / self.scale, {"sent": state["sent"], "total": state["total"]}


def fit(X, **arguments):
    parties = {"a": [0, 1], "b": [2], "c": [3, 4], "d": [5]}
    settings = {"partition": parties, "tol": 0, "max_iter": 6, "reg_covar": 1e-3, "random_state": 0}
    with pytest.warns(ConvergenceWarning):
        return VerticalGaussianMixture(2, **settings, **arguments).fit(X)


RING = nx.Graph([("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")])
SUMMATIONS_HERE = [Ledger(), Tree(), Differences(Star()), Differences(Tree())]
NAMES = ["ledger", "tree", "differences on a star", "differences on a tree"]


@pytest.mark.parametrize("summation", SUMMATIONS_HERE, ids=NAMES)
@pytest.mark.parametrize("arguments", [{}, {"batch_size": 9, "init_params": "random"}, {"n_init": 2}], ids=str)
def test_both_engines_fit_with_it_gaps_and_batches_included(summation, arguments):
    exact = fit(table(), graph="star", **arguments)
    arguments = {**arguments, "graph": "star" if summation.has_server else RING, "summation": summation}
    simulated, agents = (fit(table(), engine=engine, **arguments) for engine in ("simulation", "agents"))
    np.testing.assert_allclose(agents.means_, simulated.means_, rtol=1e-12, atol=1e-12)
    if not summation.is_lossy:  # units of 1e-9, and EM on few rows; what lags behind is exact only in the end
        np.testing.assert_allclose(simulated.means_, exact.means_, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(agents.traffic_.table[:, [0, 2]], simulated.traffic_.table[:, [0, 2]])
    if isinstance(summation, Tree):
        np.testing.assert_array_equal(agents.traffic_.table, simulated.traffic_.table)
    else:  # compressed rounding differs in a byte here and there
        np.testing.assert_allclose(agents.traffic_.table, simulated.traffic_.table, rtol=0.02)


def study(summation):
    graph = "star" if summation.has_server else nx.path_graph(5)
    return make_study(graph, summation=summation, batch_size=9, n_init=2)[0]


@pytest.mark.parametrize("summation", SUMMATIONS_HERE, ids=NAMES)
@pytest.mark.parametrize("seed", range(6))
def test_however_messages_are_delivered_the_bits_are_the_same(summation, seed):
    expected = bits(run(study(summation)).agents.values())
    rng = np.random.default_rng(seed)
    disturbed = Disturbances(rng, delay=0.3, duplicate=0.1, kill=0.05)
    assert bits(run(study(summation), encoded=True, disturbances=disturbed).agents.values()) == expected


@pytest.mark.parametrize("summation", SUMMATIONS_HERE, ids=NAMES)
@pytest.mark.parametrize("stop_after", [30, 60, 90, 120])
def test_memories_are_part_of_the_checkpoint(summation, stop_after):
    expected = bits(run(study(summation)).agents.values())
    assert bits(die_and_come_back(study(summation), stop_after)) == expected


def test_a_message_that_it_cannot_read_is_blamed_on_its_sender():
    transport = InProcess(study(Ledger()))
    transport.start()

    def deliver():
        while (message := transport._next()) is not None:
            if message.kind == "sum" and message.sender == 2:
                message = message._replace(values=message.values ^ np.uint8(1))
            transport._deliver(message)

    with pytest.raises(RemoteProtocolError, match="peer 2: expected changes, got bytes that are none"):
        deliver()


def test_models_that_were_fitted_with_it_are_saved(tmp_path, monkeypatch):
    monkeypatch.setitem(SUMMATIONS, "ledger", Ledger)
    model = fit(table(), graph="star", summation=Ledger(2**20))
    vpem.save(model, tmp_path / "model.vpem")
    again = vpem.load(tmp_path / "model.vpem")
    assert again.summation == Ledger(2**20)
    np.testing.assert_array_equal(again.predict_proba(table()), model.predict_proba(table()))
    assert replace(again.summation) == model.summation


@dataclass(frozen=True)
class ByMessages(Star):
    """A star without a matrix: the simulation goes by its messages."""

    fault: str = ""

    def matrix(self, network):
        return None

    def greet(self):
        return bytes(2000 if self.fault == "greeting" else 8), None

    def begin(self, place, carry, term):
        if self.fault == "begin" and place.position == 0:
            raise WrongMessageError(place.network.server, "expected a key, got zeros")
        state = super().begin(place, carry, term)
        return {**state, "counter": carry.get("counter", np.zeros(1)) + 1}

    def message(self, place, step, state):
        values = super().message(place, step, state)
        return values.astype(np.int64) if self.fault == "type" else values

    def combine(self, place, step, state, received):
        if self.fault == "combine" and place.position == place.network.server:
            raise ValueError("buffer size must be a multiple of element size")
        if self.fault == "in place":
            for values in received.values():
                values += 1.0
        return {**state, **super().combine(place, step, state, received)}

    def end(self, place, state):
        if self.fault == "end" and place.position == 1:
            raise WrongMessageError(place.network.server, "expected a total, got none")
        dtype = np.float32 if self.fault == "memory" else np.float64
        COUNTERS.append(int(state["counter"][0]))
        return state["values"], {"counter": state["counter"].astype(dtype)}


COUNTERS = []
"""Of which sum of its series each sum was."""


def test_a_batch_of_one_row_and_a_repeated_pass():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 6)) + 100
    X[20:] += 9
    arguments = {"graph": "star", "batch_size": 13, "init_params": "random_from_data"}
    expected, simulated = (fit(X, summation=own, **arguments) for own in (Star(), ByMessages()))
    np.testing.assert_allclose(simulated.lower_bounds_, expected.lower_bounds_, rtol=1e-10)


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("greeting", "at most 1024 bytes, got 2000"),
        ("type", r"to send \d+ values \(f8\)"),
        ("memory", "to carry arrays of f8, i8, u1, got counter: float32"),
        ("in place", "read-only"),
    ],
)
@pytest.mark.parametrize("engine", ["simulation", "agents"])
def test_an_author_s_mistake_is_an_error_in_both_engines(fault, problem, engine):
    model = VerticalGaussianMixture(2, partition=[[0, 1, 2], [3, 4, 5]], random_state=0, engine=engine)
    with pytest.raises(ValueError, match=problem):
        model.set_params(summation=ByMessages(fault)).fit(table())


@pytest.mark.parametrize(
    ("fault", "problem"),
    [("begin", "peer 4: expected a key, got zeros"), ("end", "peer 4: expected a total, got none")],
)
def test_what_a_summation_finds_wrong_is_blamed_on_the_sender(fault, problem):
    with pytest.raises(RemoteProtocolError, match=problem):
        run(study(ByMessages(fault)))


def test_another_error_of_a_summation_ends_the_study_with_a_reason():
    agents = run(study(ByMessages("combine"))).agents
    assert {agent.failure for agent in agents.values()} == {
        "party 'server' cannot go on: buffer size must be a multiple of element size"
    }


def test_memories_last_as_long_as_a_start():
    COUNTERS.clear()
    vpem.VerticalKMeans(2, summation=ByMessages(), init="random", n_init=3, random_state=0).fit(table(gaps=False))
    assert COUNTERS.count(1) == 3 * (6 + 1), "six parties and the server, at the beginning of each start"


def test_a_refused_prediction_leaves_nothing_behind():
    agents = run(study(Ledger())).agents
    transport = InProcess(agents.values())
    for number in range(4):
        n_columns = agents[number].identity.X.shape[1]
        transport.post(agents[number].predict(np.ones((5, n_columns))))
    transport.run()
    with pytest.raises(RemoteProtocolError):
        agents[4].predict(n_rows=7)
    transport.post(agents[4].predict(n_rows=5))
    transport.run()
    assert all(agents[number].prediction.responsibilities.shape == (5, 2) for number in range(4))


@dataclass(frozen=True)
class Slow(Star):
    """A star whose parties send their terms three times."""

    burst: ClassVar[int] = 3

    def schedule(self, network, position, **what):
        up, down = super().schedule(network, position, **what)
        return [up, up, up, down] if what["values"] else [up, down]


@pytest.mark.parametrize("seed", range(6))
def test_bursts_of_messages_under_shuffled_delivery(seed):
    disturbed = Disturbances(np.random.default_rng(seed), delay=0.3)
    assert bits(run(study(Slow()), disturbances=disturbed).agents.values()) == bits(
        run(study(Star())).agents.values()
    )
