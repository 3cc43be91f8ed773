"""A summation that is defined here, by the public protocol alone, and the tree, in both engines.

`Ledger` is a star of 64-bit integers. Parties send changes of their terms since the last sum, in bytes that are
compressed and so have lengths that depend on the data, scrambled with keys that were told in the meeting.
"""

import zlib
from dataclasses import dataclass, replace

import networkx as nx
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import vpem
from studies import bits, make_study, run, table
from vpem import Star, Tree, VerticalGaussianMixture
from vpem.core.agent.message import RemoteProtocolError
from vpem.extend import Payload, WrongMessageError, add_in_order
from vpem.model_format import SUMMATIONS
from vpem.transports import wire
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


GRAPHS = {Ledger: "star", Tree: nx.Graph([("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")])}


@pytest.mark.parametrize("summation", [Ledger(), Tree()], ids=["ledger", "tree"])
@pytest.mark.parametrize("arguments", [{}, {"batch_size": 9, "init_params": "random"}, {"n_init": 2}], ids=str)
def test_both_engines_fit_with_it_gaps_and_batches_included(summation, arguments):
    exact = fit(table(), graph="star", **arguments)
    arguments = {**arguments, "graph": GRAPHS[type(summation)], "summation": summation}
    simulated, agents = (fit(table(), engine=engine, **arguments) for engine in ("simulation", "agents"))
    np.testing.assert_allclose(agents.means_, simulated.means_, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        simulated.means_, exact.means_, rtol=1e-6, atol=1e-6
    )  # units of 1e-9, and EM on few rows
    np.testing.assert_array_equal(agents.traffic_.table[:, [0, 2]], simulated.traffic_.table[:, [0, 2]])
    if isinstance(summation, Tree):
        np.testing.assert_array_equal(agents.traffic_.table, simulated.traffic_.table)
    else:  # compressed rounding differs in a byte here and there
        np.testing.assert_allclose(agents.traffic_.table, simulated.traffic_.table, rtol=0.01)


def study(summation):
    graph = "star" if isinstance(summation, Star) else nx.path_graph(5)
    return make_study(graph, summation=summation, batch_size=9, n_init=2)[0]


@pytest.mark.parametrize("summation", [Ledger(), Tree()], ids=["ledger", "tree"])
@pytest.mark.parametrize("seed", range(6))
def test_however_messages_are_delivered_the_bits_are_the_same(summation, seed):
    expected = bits(run(study(summation)).agents.values())
    rng = np.random.default_rng(seed)
    disturbed = Disturbances(rng, delay=0.3, duplicate=0.1, kill=0.05)
    assert bits(run(study(summation), encoded=True, disturbances=disturbed).agents.values()) == expected


@pytest.mark.parametrize("summation", [Ledger(), Tree()], ids=["ledger", "tree"])
@pytest.mark.parametrize("stop_after", [30, 60, 90, 120])
def test_memories_are_part_of_the_checkpoint(summation, stop_after):
    expected = bits(run(study(summation)).agents.values())
    transport = InProcess(study(summation), encoded=True).start()
    left = [stop_after]

    def is_time():
        left[0] -= 1
        return left[0] == 0

    transport.run(is_time)
    saved = wire.encode_state(transport.agents[1].state)
    transport.crash(1)
    transport.run()
    transport.recover(1, saved)
    transport.run()
    assert bits(transport.agents.values()) == expected


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
