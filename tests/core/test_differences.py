"""Sums that send rounded changes: what they come to, what they say of the likelihood, and what they refuse."""

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning

import vpem
from oracles import by_row, connected_graphs, flat
from vpem import Consensus, Differences, Star, Tree, VerticalGaussianMixture
from vpem.core import zstd
from vpem.core.network import quantization
from vpem.core.network.adders import MessageAdder, sum_traffic
from vpem.core.network.parties import make_network
from vpem.core.network.quantization import mean_change, steps_for
from vpem.core.network.sums import Place, Series, Shape, SumKind, Term, WrongMessageError
from vpem.datasets import make_vertical_blobs

SERIES = Series(SumKind.ITERATE)


def network_of(graph):
    n_parties = 4 if graph == "star" else len(graph)
    return make_network({number: [number] for number in range(n_parties)}, graph)


def added(summation, network, terms, shape, n_sums=1):
    """The last of some sums of the same terms; and every agent's memory."""
    adder = MessageAdder(summation, network)
    for _ in range(n_sums):
        sums, traffic = adder.add(terms, shape, SERIES, 0)
    return sums[0], adder.carries[SERIES], traffic


# Codes


def coded(changes):
    """What is left of changes on the other side."""
    n = len(changes)
    zeros, first = np.zeros((n, 2)), np.zeros(n, dtype=np.uint16)
    longer, codes = np.empty((n, 1), dtype=np.uint16), np.empty(n, dtype=np.uint8)
    terms, moved = np.array([np.zeros(n), changes]), np.empty((n, 2))
    least = zeros[:, 1:].astype(np.float32), first, 0.0, 1.0
    largest, _ = quantization.find_changes((), terms, None, zeros, *least, longer, moved)
    n_dropped = quantization.encode(longer.ravel(), quantization.exponent_of(largest), codes)
    found = decoded(codes, quantization.exponent_of(largest))
    assert n_dropped == ((longer.ravel() != 0) & (codes == 0)).sum()
    np.testing.assert_array_equal(moved[codes != 0, 1], found[codes != 0])
    if not n_dropped:
        np.testing.assert_array_equal(moved[:, 1], found)
    return found, codes


def decoded(codes, scale):
    """What codes of ratios against the first of two components stand for."""
    found, zeros = np.empty((len(codes), 2)), np.zeros((len(codes), 2))
    references = np.zeros(len(codes), dtype=np.uint16)
    quantization.add_decoded((), codes[None], np.array([scale]), references, zeros, found)
    return found[:, 1].copy()


@pytest.mark.parametrize("has_terms", [False, True])
@pytest.mark.parametrize("has_below", [False, True])
@pytest.mark.parametrize(("n_components", "is_known"), [(2, True), (3, False), (5, True), (11, False)])
def test_changes_are_those_of_the_definition(has_terms, has_below, n_components, is_known):
    rng = np.random.default_rng(n_components)
    shape = 37, n_components
    terms, below, sent = (rng.normal(scale=3.0, size=shape) for _ in range(3))
    references = rng.integers(n_components, size=37).astype(np.uint16)
    thresholds = rng.uniform(0, 4, size=(37, n_components - 1)).astype(np.float32)
    changes, moved = np.full((37, n_components - 1), 99, dtype=np.uint16), np.full(shape, np.nan)
    largest, level = quantization.find_changes(
        n_components * is_known * (0,),
        terms.T.copy() if has_terms else None,
        below if has_below else None,
        sent,
        thresholds,
        references,
        *(0.1, 0.5),
        changes,
        moved,
    )
    wanted, every = has_terms * terms + has_below * below, np.arange(37)
    ratios, before = (a - a[every, references][:, None] for a in (wanted, sent))
    others = np.array([np.delete(np.arange(n_components), r) for r in references])
    change = np.take_along_axis(ratios - before, others, axis=1)
    change[np.abs(change) < 0.5 * np.maximum(thresholds, 0.1)] = 0.0
    mantissa, exponent = np.frexp(change)
    rounded = np.ldexp(np.floor(np.abs(mantissa) * 8 + 0.5) / 8, exponent) * np.sign(change)
    expected = sent.copy()
    np.put_along_axis(expected, others, np.take_along_axis(sent, others, axis=1) + rounded, axis=1)
    np.testing.assert_allclose(moved, expected, rtol=1e-13, atol=1e-12)  # a sum of differences, in another order
    np.testing.assert_array_equal((changes.astype(np.uint64) << 50).view(np.float64), rounded)
    assert largest == (changes & 0x1FFF).max()
    assert level == pytest.approx(has_terms * terms[every, references].sum(), rel=1e-12)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.integers(-20, 9))
def test_a_code_keeps_the_size_to_an_eighth(values, power):
    changes = np.array(values) * 2.0**power
    changes[np.abs(changes) < 1e-300] = 0.0  # the smallest floats have fewer bits
    largest = np.abs(changes).max()
    found, codes = coded(changes)
    near = np.abs(changes) >= largest * 2.0**-29
    assert (np.abs(found - changes)[near] <= np.abs(changes[near]) / 8).all()
    assert (np.abs(found - changes) <= np.maximum(np.abs(changes) / 8, largest * 2.0**-28)).all()
    assert (np.sign(found[near]) == np.sign(changes[near])).all()
    np.testing.assert_array_equal(coded(found)[0], found)
    assert (codes[found == 0] == 0).all()


def test_silence_is_one_byte_and_all_codes_mean_something_else():
    found = decoded(np.arange(256, dtype=np.uint8), 20)
    assert (found[:4] == 0).all()
    assert (found[128:132] == 0).all()
    assert len(np.unique(found)) == 2 * 124 + 1
    again, codes = coded(found)
    np.testing.assert_array_equal(again, found)
    np.testing.assert_array_equal(codes[found != 0], np.arange(256)[found != 0])


# Sums


@given(
    st.sampled_from(["star", "graph"]),
    connected_graphs(fewest_agents=1),
    st.integers(1, 5),
    st.floats(0.1, 30),
    st.sampled_from([0.0, 0.1, 0.5]),
    st.integers(0, 2**32 - 1),
)
def test_sums_of_the_same_terms_become_exact(kind, graph, width, spread, silence, seed):
    network = network_of("star" if kind == "star" else graph)
    summation = Differences(Star() if kind == "star" else Tree(), silence)
    rng, n_rows, n_hubs = np.random.default_rng(seed), 12, len(network.hubs)
    terms = spread * rng.normal(size=(n_hubs, n_rows, width))
    terms[:, 3] = 0.0  # a row that no party has
    terms[1:, 5] = 0.0  # and one that only the first has
    scalars = rng.normal(size=(n_hubs, 2))
    values = np.hstack([flat(terms), scalars])
    found, memories, _ = added(summation, network, values, Shape(n_rows, width, 2), n_sums=40)
    sums, exact = by_row(found, n_rows, width), terms.sum(axis=0)
    np.testing.assert_allclose(found[-2:], scalars.sum(axis=0), rtol=1e-12, atol=1e-12)
    assert (sums[3] == 0).all()
    assert (np.delete(sums, 3, axis=0) != 0).all()
    there = np.delete(np.arange(n_rows), 3)
    np.testing.assert_allclose(softmax(sums[there], axis=1), softmax(exact[there], axis=1), atol=1e-7)
    # The likelihood of the sums is right over all rows, though not in each.
    leaders = memories[0]["total"].argmax(axis=1)[:, None]
    found, level = (np.take_along_axis(values, leaders, axis=1).sum() for values in (sums, exact))
    assert found == pytest.approx(level, rel=1e-9, abs=1e-9)
    # All agents work with the same bits, and both ends of a link remember the same.
    tree = summation.around.tree(network)
    for position, memory in enumerate(memories):
        np.testing.assert_array_equal(memory["total"], memories[0]["total"])
        if tree.below[position]:
            below = sum(memories[child]["sent"] for child in tree.below[position])
            np.testing.assert_allclose(memory["below"], below, rtol=1e-12, atol=1e-9)


class Watched(Differences):
    """Makes every carry again from the last one, and from what its sum has changed."""

    given, n_redone = {}, 0

    def begin(self, place, carry, term):
        self.given[place.position] = carry
        return super().begin(place, carry, term)

    def end(self, place, state):
        values, carry = super().end(place, state)
        if changes := self.changes(state):
            again = self.redo(self.given[place.position], changes)
            assert again.keys() == carry.keys()
            for name, array in carry.items():
                assert again[name].tobytes() == array.tobytes(), name
            assert sum(one.nbytes for one in changes.values()) < 2000, "codes, not memories"
            Watched.n_redone += 1
        return values, carry


@given(connected_graphs(fewest_agents=1), st.booleans(), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_what_is_carried_can_be_made_again_from_changes(graph, is_star, width, seed):
    network = network_of("star" if is_star else graph)
    rng, shape = np.random.default_rng(seed), Shape(20, width, 1)
    adder = MessageAdder(Watched(Star() if is_star else Tree()), network)
    terms = 10 * rng.normal(size=(len(network.hubs), shape.n_values))
    before = Watched.n_redone
    for _ in range(4):
        adder.add(terms, shape, SERIES, 0)
        terms += rng.normal(size=terms.shape) * (rng.random(terms.shape) < 0.3)
    assert Watched.n_redone == before + 3 * len(network.positions), "all but the first, which is new"


@given(st.integers(0, 2**32 - 1))
def test_rows_that_change_their_mind_are_heard(seed):
    """A row that was decided by a wide margin, and then is decided otherwise."""
    rng, network = np.random.default_rng(seed), network_of(nx.path_graph(5))
    adder, shape = MessageAdder(Differences(Tree(), 0.3), network), Shape(50, 3)
    terms = 40 * rng.normal(size=(5, 150))
    for _ in range(8):
        adder.add(terms, shape, SERIES, 0)
    terms = 40 * rng.normal(size=(5, 150))
    for _ in range(25):
        sums, _ = adder.add(terms, shape, SERIES, 0)
    found, exact = (softmax(by_row(values, 50, 3), axis=1) for values in (sums[0], terms.sum(axis=0)))
    np.testing.assert_allclose(found, exact, atol=1e-6)


@given(connected_graphs(fewest_agents=1), st.integers(1, 9), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_a_term_that_comes_in_parts_is_the_same_term(graph, n_rows_of_part, width, seed):
    network, shape = network_of(graph), Shape(20, width, 2)
    rng, whole, parted = np.random.default_rng(seed), *(MessageAdder(Differences(Tree()), network) for _ in range(2))

    def in_parts(values):
        def parts():
            rows_of = values[:-2].reshape(width, 20)
            for first in range(0, 20, n_rows_of_part):
                rows = slice(first, min(first + n_rows_of_part, 20))
                yield rows, rows_of[:, rows].copy()

        return Term(shape, parts, values[-2:])

    for _ in range(3):
        terms = 10 * rng.normal(size=(len(network.hubs), shape.n_values))
        found, traffic = whole.add(terms, shape, SERIES, 1)
        again, same = parted.add(lambda hub, terms=terms: in_parts(terms[hub]), shape, SERIES, 1)
        # The level is added up part by part.
        np.testing.assert_allclose(again, found, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(traffic.table, same.table)
        for one, other in zip(whole.carries[SERIES], parted.carries[SERIES], strict=True):
            for name in one:
                np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.parametrize("period", [1, 2, 3, 5, 64])
@pytest.mark.parametrize("n_rows", [10, 199_999, 200_000, 1_000_000])
def test_the_mean_change_of_many_rows_is_that_of_some_whatever_their_order(n_rows, period):
    before, sizes = np.zeros((n_rows, 2)), 20.0 * (np.arange(n_rows) % period) / period
    after = before.copy()
    after[:, 1] = -1.0 - sizes
    found = mean_change(steps_for(after), before, after)
    assert found == pytest.approx(1.0 + sizes.mean(), rel=0.05)
    if n_rows < 200_000:
        assert found == pytest.approx(1.0 + sizes.mean(), rel=1e-12), "of all"


@dataclass(frozen=True)
class Asked(Differences):
    """One that has a beginning of its own."""

    seen: ClassVar[set[int]] = set()

    def begin(self, place, carry, term):
        if carry:
            self.seen.add(int(place.position))
        return super().begin(place, carry, term)


@pytest.mark.parametrize("engine", ["simulation", "agents"])
def test_another_beginning_is_asked_at_every_agent(engine):
    Asked.seen.clear()
    X = make_vertical_blobs(60, 4, 1, 2, random_state=0).data
    fit = {"graph": nx.path_graph(4), "max_iter": 3, "tol": 0, "init_params": "random", "random_state": 0}
    with pytest.warns(ConvergenceWarning):
        VerticalGaussianMixture(2, summation=Asked(Tree()), engine=engine, **fit).fit(X)
    assert Asked.seen == {0, 1, 2, 3}


def test_many_rows_have_loops_for_their_number_of_components():
    assert quantization.steps_for(np.empty((quantization.LEAST_UNROLLED, 3))) == (0, 0, 0)
    assert quantization.steps_for(np.empty((quantization.LEAST_UNROLLED - 1, 3))) == ()
    assert quantization.steps_for(np.empty((quantization.LEAST_UNROLLED, 9))) == ()


def test_a_sum_that_does_not_change_sends_next_to_nothing():
    network, shape = network_of("star"), Shape(10_000, 4)
    terms = np.random.default_rng(0).normal(size=(4, 40_000))
    _, _, first = added(Differences(Star()), network, terms, shape)
    _, _, last = added(Differences(Star()), network, terms, shape, n_sums=30)
    assert first.bytes < 8 * 2.5 * 30_000
    assert last.bytes < 0.01 * first.bytes


def test_other_sums_go_whole():
    network, shape = network_of(nx.path_graph(4)), Shape(7, 3, 1)
    terms = np.random.default_rng(0).normal(size=(4, 22))
    sums, traffic = MessageAdder(Differences(Tree()), network).add(terms, shape, Series(SumKind.CLUSTER), 0)
    np.testing.assert_allclose(sums[0], terms.sum(axis=0), rtol=1e-14)
    assert traffic.bytes == sum_traffic(Tree(), network, shape).bytes


# What neighbours may send


def messages():
    """A party's place, a server's, and the party's first message."""
    network, summation, shape = network_of("star"), Differences(Star()), Shape(20, 3, 1)
    party, server = (Place(network, position, shape, SERIES) for position in (0, 4))
    state = summation.begin(party, {}, np.random.default_rng(0).normal(size=61))
    return summation, server, summation.begin(server, {}, None), bytes(summation.message(party, 0, state))


@given(st.binary(max_size=300), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_compressed_bytes_come_back(plain, share, seed):
    kept = np.random.default_rng(seed).random(len(plain)) < share
    plain = (np.frombuffer(plain, np.uint8) * kept).astype(np.uint8)
    code = quantization.compress(plain)
    np.testing.assert_array_equal(quantization.decompress(code, len(plain)), plain)
    assert len(code) <= quantization.most_compressed(len(plain))
    for other in (len(plain) + 8, len(plain) - 8):
        with pytest.raises(ValueError, match=r"expected .* bytes"):
            quantization.decompress(code, max(other, 0) or len(plain) + 8)


@given(st.binary(max_size=60), st.integers(0, 100))
def test_bytes_that_are_no_code_are_refused_or_read(noise, n_bytes):
    with suppress(ValueError):
        assert len(quantization.decompress(noise, n_bytes)) == n_bytes


def parts(bits, others):
    """A code of these two, whatever they are."""
    first, second = (zstd.compress(part, 3) for part in (bits, others))
    return len(first).to_bytes(4, "little") + first + second


def frame_without_size(plain):
    """A frame of one raw block whose header does not state the size of its content."""
    return b"\x28\xb5\x2f\xfd\x00\x00" + (len(plain) << 3 | 1).to_bytes(3, "little") + plain


def bomb(n_bytes):
    return parts(bytes(6), bytes(n_bytes))


@pytest.mark.parametrize(
    "change",
    [
        lambda message: message[:-1],
        lambda message: message[:10],
        lambda message: b"",
        lambda message: message + b"x",
        lambda message: message[:16] + b"\xff\x7f" + message[18:],
        lambda message: np.array([np.nan]).tobytes() + message[8:],
        lambda message: message[:26] + bomb(10**8),
        lambda message: message[:26] + bomb(10),
        lambda message: message[:26] + parts(bytes(10**8), b""),
        lambda message: message[:26] + parts(b"\xff" * 26, bytes(203)),
        lambda message: message[:26] + parts(bytes(26), b"1"),
        lambda message: message[:26] + b"\xff" * 4 + message[30:],
        lambda message: message[:26] + frame_without_size(bytes(203)),
        lambda message: message[:26] + bytes(100),
    ],
    ids=[
        "cut",
        "short",
        "empty",
        "longer",
        "scale",
        "nan",
        "bomb",
        "few",
        "bomb of bits",
        "too many bits",
        "too few bits",
        "far end",
        "no size",
        "no code",
    ],
)
def test_what_cannot_be_a_message_is_its_sender_s_fault(change):
    summation, server, state, message = messages()
    received = {sender: np.frombuffer(message, np.uint8) for sender in range(4)}
    summation.combine(server, 0, state, received)
    received[2] = np.frombuffer(change(message), np.uint8)
    with pytest.raises(WrongMessageError) as error:
        summation.combine(server, 0, state, received)
    assert error.value.sender == 2


def test_what_it_cannot_be_around():
    with pytest.raises(ValueError, match="expected Star\\(\\) or Tree\\(\\) in Differences, got Consensus"):
        Differences(Consensus(3))
    with pytest.raises(ValueError, match="silence"):
        Differences(Tree(), silence=2)
    with pytest.raises(ValueError, match="a graph without a server"):
        VerticalGaussianMixture(2, graph="ring", summation=Differences(Star())).fit(np.zeros((9, 3)))


# Whole fits


@pytest.fixture(scope="module")
def blobs():
    return make_vertical_blobs(1500, 6, 2, 3, separation=1.5, random_state=3)


@pytest.mark.parametrize("graph", ["star", "ring"])
@pytest.mark.parametrize("more", [{}, {"accelerate": "squarem"}, {"batch_size": 400}, {"hops": 1}], ids=str)
def test_a_fit_comes_to_the_same_fixed_point_for_few_bytes(blobs, graph, more):
    if graph == "star" and "hops" in more:
        more = {"covariance_type": "diag"}
    arguments = {
        "partition": blobs.partition,
        "graph": graph,
        "tol": 1e-8,
        "max_iter": 500,
        "random_state": 0,
        **more,
    }
    around = Star() if graph == "star" else Tree()
    exact, thrifty = (
        VerticalGaussianMixture(3, summation=summation, **arguments).fit(blobs.data)
        for summation in (around, Differences(around))
    )
    assert thrifty.converged_
    assert abs(thrifty.certificate_.gain) < 1e-7
    np.testing.assert_allclose(thrifty.means_, exact.means_, atol=2e-3)
    assert thrifty.log_likelihood_ == pytest.approx(exact.log_likelihood_, abs=1e-6)
    # A bound is the free energy, which the likelihood is never below.
    assert -1e-6 < thrifty.log_likelihood_ - thrifty.lower_bound_ < 1e-5
    start = VerticalGaussianMixture(3, summation=around, **{**arguments, "max_iter": 0}).fit(blobs.data).traffic_
    assert thrifty.traffic_.bytes - start.bytes < 0.2 * (exact.traffic_.bytes - start.bytes)


def test_the_bound_is_the_free_energy_of_naive_numpy(blobs):
    """Each pass's bound: the last responsibilities under the new parameters."""
    arguments = {"partition": blobs.partition, "summation": Differences(Star(), 0.0), "tol": 0.0, "random_state": 0}
    models = []
    for most in (39, 40):
        with pytest.warns(vpem.FitWarning):
            models.append(VerticalGaussianMixture(3, max_iter=most, **arguments).fit(blobs.data))
    before, after = (model.to_sklearn() for model in models)
    old = before.predict_proba(blobs.data)  # sums are exact by now
    joint = after._estimate_weighted_log_prob(blobs.data)
    energy = (old * (joint - np.log(np.maximum(old, 1e-300)))).sum(axis=1).mean()
    with pytest.warns(vpem.FitWarning):
        last = VerticalGaussianMixture(3, max_iter=41, **arguments).fit(blobs.data)
    assert last.lower_bound_ == pytest.approx(energy, abs=1e-9)


def test_a_model_keeps_its_sum(blobs, tmp_path):
    model = VerticalGaussianMixture(
        3, partition=blobs.partition, graph="path", summation=Differences(Tree(), 0.2), accelerate="squarem"
    ).fit(blobs.data)
    vpem.save(model, tmp_path / "model")
    again = vpem.load(tmp_path / "model")
    assert again.summation == Differences(Tree(), 0.2)
    assert again.accelerate == "squarem"
    np.testing.assert_array_equal(again.predict(blobs.data), model.predict(blobs.data))
    assert math.isfinite(model.lower_bounds_[0])
