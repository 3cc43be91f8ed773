"""Plans against fits: to the byte where messages have a fixed length, within the stated ends where they have not."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

import vpem
from vpem import Consensus, Differences, Failures, RunningSums, Star, Tree, VerticalGaussianMixture
from vpem.core.network.adders import MessageAdder
from vpem.core.network.sums import Payload, Series, Shape, SumKind
from vpem.core.network.traffic import OVERHEAD_BYTES, find_sendings
from vpem.core.script import start_phases
from vpem.datasets import make_vertical_blobs, random_geometric_graph
from vpem.planning import (
    Line,
    Study,
    choices,
    estimate,
    gzipped_share,
    make_network,
    parse_bandwidth,
    parse_latency,
    parse_range,
    plan,
    planned_traffic,
)

DATA = make_vertical_blobs(400, n_parties=5, n_columns=2, n_components=3, random_state=0).data
SERIES = Series(SumKind.ITERATE)
PARTIES = {name: [2 * place, 2 * place + 1] for place, name in enumerate(("bank", "shop", "clinic", "school", "a"))}
GEOMETRIC = random_geometric_graph(5, 2.5, 1)


@pytest.fixture
def lloyd(monkeypatch):
    """Iterations of each k-means that a start makes."""
    found, run = [], start_phases._end_clusters

    def watched(context, progress, outcome):
        if context.hubs:
            found.append(progress.clustering.n_iter)
        return run(context, progress, outcome)

    monkeypatch.setattr(start_phases, "_end_clusters", watched)
    return found


def fitted(summation, graph, *, data=DATA, partition=PARTIES, n_components=3, **options):
    options = {"max_iter": 4, "tol": 0.0, "random_state": 0, **options}
    model = VerticalGaussianMixture(n_components, partition=partition, graph=graph, summation=summation, **options)
    with pytest.warns(vpem.FitWarning) if options["tol"] == 0.0 else pytest.MonkeyPatch.context():
        return model.fit(data)


def study_of(model, data=DATA):
    return Study(
        n_rows=len(data),
        n_components=model.n_components,
        init_params=model.init_params,
        n_init=model.n_init,
        batch_size=model.batch_size,
        hops=model.hops,
        accelerate=model.accelerate,
    )


FIXED = [
    (Star(), "star", {}),
    (Star(), "star", {"init_params": "k-means++", "n_init": 3}),
    (Star(), "star", {"init_params": "random", "batch_size": 90}),
    (Star(), "star", {"init_params": "random_from_data", "batch_size": 400}),
    (Star(), "star", {"n_components": 1}),
    (Star(), "star", {"n_components": 5}),
    (Star(), "star", {"init_params": "labels", "n_init": 2}),
    (Tree(), "path", {"init_params": "labels", "hops": 1}),
    (Consensus(2), GEOMETRIC, {"init_params": "labels"}),
    (Tree(), "ring", {}),
    (Tree(), "path", {"hops": 1, "init_params": "k-means++"}),
    (Tree(), GEOMETRIC, {"init_params": "random", "n_init": 2}),
    (Star(), "star", {"accelerate": "squarem"}),
    (Star(), "star", {"accelerate": "squarem", "max_iter": 9, "n_components": 1}),
    (Tree(), "path", {"accelerate": "squarem", "max_iter": 7, "hops": 1, "n_init": 2, "init_params": "random"}),
    (Tree(), GEOMETRIC, {"accelerate": "squarem", "max_iter": 10, "init_params": "labels"}),
    (Tree(), "ring", {"accelerate": "squarem", "max_iter": 1}),
    (Tree(), "ring", {"accelerate": "squarem", "max_iter": 2}),
    (Consensus(7), "ring", {}),
    (Consensus(1), "path", {"init_params": "k-means++", "n_init": 2}),
    (Consensus(), "complete", {"hops": 1}),
    (Consensus(), GEOMETRIC, {"hops": 1, "batch_size": 130}),
    (Consensus(40, weights="laplacian"), "path", {}),
    (RunningSums(), "ring", {}),
    (RunningSums(12), GEOMETRIC, {"hops": 1, "batch_size": 130}),
    (RunningSums(failures=Failures(0.1, seed=1)), "path", {"init_params": "k-means++"}),
]


@pytest.mark.parametrize(("summation", "graph", "options"), FIXED, ids=[f"{s}-{o}" for s, _, o in FIXED])
def test_fixed_lengths_are_planned_to_the_byte(summation, graph, options, lloyd):
    model = fitted(summation, graph, **options)
    study = study_of(model)
    assert len(lloyd) <= 1 or study.init_params == "k-means++"
    assert not model.repairs_, "a repair would send a few numbers more"
    planned, _ = planned_traffic(summation, model.fitted_.network, study, model.max_iter, lloyd[0] if lloyd else 0)
    np.testing.assert_array_equal(planned.table, model.traffic_.table)
    assert (planned.bytes, planned.messages, planned.rounds) == (
        model.traffic_.bytes,
        model.traffic_.messages,
        model.traffic_.rounds,
    )


def test_labels_of_columns_of_few_values_are_shorter():
    model = fitted(Tree(), "path", data=DATA.round().clip(-1, 1), init_params="labels")
    parts = Tree(), model.fitted_.network, study_of(model), 4, 0
    low, high = (planned_traffic(*parts, end)[0] for end in ("fewest", "most"))
    assert low.bytes < model.traffic_.bytes < high.bytes


@pytest.mark.parametrize(("summation", "options"), [(Consensus(3), {}), (Tree(), {"accelerate": "squarem"})])
def test_agents_send_what_is_planned(summation, options):
    model = fitted(summation, "ring", init_params="random", engine="agents", max_iter=5, **options)
    planned, _ = planned_traffic(summation, model.fitted_.network, study_of(model), 5)
    np.testing.assert_array_equal(planned.table, model.traffic_.table)


@pytest.mark.parametrize(
    ("around", "options"),
    [
        *((around, own) for around in (Star(), Tree()) for own in ({}, {"batch_size": 150}, {"n_components": 1})),
        (Tree(), {"hops": 1}),
        (Tree(), {"accelerate": "squarem"}),
    ],
    ids=str,
)
def test_changes_are_between_the_ends_of_the_plan(around, options, lloyd):
    summation = Differences(around)
    model = fitted(summation, "star" if around.has_server else "path", max_iter=30, **options)
    parts = summation, model.fitted_.network, study_of(model), 30, lloyd[0]
    low, high = (planned_traffic(*parts, end)[0] for end in ("fewest", "most"))
    assert low.bytes < model.traffic_.bytes <= high.bytes
    assert (low.table <= model.traffic_.table).all()
    assert (model.traffic_.table <= high.table).all()
    for planned in (low, high):
        assert (planned.messages, planned.rounds) == (model.traffic_.messages, model.traffic_.rounds)


@pytest.mark.parametrize(
    ("graph", "options"),
    [
        ("ring", {}),
        ("path", {"hops": 1}),
        ("complete", {"batch_size": 150}),
        (GEOMETRIC, {"n_components": 1}),
        (GEOMETRIC, {"n_init": 2, "init_params": "random"}),
    ],
    ids=str,
)
def test_rounded_averages_are_between_the_ends_of_the_plan(graph, options, lloyd):
    summation = Consensus("auto")
    model = fitted(summation, graph, max_iter=20, **options)
    parts = summation, model.fitted_.network, study_of(model), 20, lloyd[0] if lloyd else 0
    low, high = (planned_traffic(*parts, end)[0] for end in ("fewest", "most"))
    assert low.bytes < model.traffic_.bytes < high.bytes
    assert (low.table <= model.traffic_.table).all()
    assert (model.traffic_.table <= high.table).all()
    for planned in (low, high):
        assert (planned.messages, planned.rounds) == (model.traffic_.messages, model.traffic_.rounds)


def test_the_low_end_is_a_sum_in_which_nothing_changes():
    network = make_network({party: [party] for party in range(4)}, "ring")
    summation, shape = Differences(Tree()), Shape(500, 3, 1)
    adder = MessageAdder(summation, network)
    terms = np.random.default_rng(0).normal(size=(4, shape.n_values))
    for _ in range(40):  # until nothing is left to say
        _, traffic = adder.add(terms, shape, SERIES, 5)
    low = summation.lengths(network, shape, SERIES).fewest
    assert traffic.bytes == find_sendings(summation, network, values=True, decision=True).traffic(low, 5).bytes


@pytest.mark.parametrize("around", [Star(), Tree()])
def test_the_memory_of_links_is_what_agents_carry(around):
    network = make_network({party: [party] for party in range(6)}, "star" if around.has_server else "path")
    summation, shape = Differences(around), Shape(100, 4)
    adder = MessageAdder(summation, network)
    adder.add(np.random.default_rng(0).normal(size=(6, shape.n_values)), shape, SERIES, 0)
    carried = [sum(array.nbytes for array in carry.values()) for carry in adder.carries[SERIES]]
    assert [summation.carried_bytes(network, position, shape) for position in network.positions] == carried
    found = estimate(
        summation, network, Study(n_rows=100, n_components=4), iterations=(1, 1), kmeans_iterations=(1, 1)
    )
    assert found.memory == max(carried)
    assert around.carried_bytes(network, network.positions[0], shape) == 0


@pytest.mark.parametrize(
    ("make", "n_components", "graph"),
    [("pulsars", 3, "star"), ("pulsars", 5, "ring"), ("tumours", 2, "star"), ("tumours", 3, "path")],
)
def test_real_tables_send_as_much_as_usual(make, n_components, graph, lloyd, request):
    data = load_breast_cancer().data if make == "tumours" else request.getfixturevalue("htru2")[0]
    n_columns = data.shape[1]
    partition = np.array_split(np.arange(n_columns), 3) if make == "tumours" else None
    summation = Differences(Star() if graph == "star" else Tree())
    model = fitted(
        summation,
        graph,
        data=data,
        partition=partition,
        n_components=n_components,
        standardize=True,
        tol=1e-3,
        max_iter=100,
    )
    parts = summation, model.fitted_.network, study_of(model, data), model.n_iter_, lloyd[0]
    low, high = (planned_traffic(*parts, f"usual {end}")[0].bytes for end in ("low", "high"))
    assert low <= model.traffic_.bytes <= high


# Time


def busiest_bytes(summation, network, value_bytes, n_decisions):
    sendings = find_sendings(summation, network, values=value_bytes is not None, decision=n_decisions > 0)
    return sendings.busiest(value_bytes or 0, n_decisions)


def test_the_busiest_line_of_a_star_is_the_servers():
    network = make_network({party: [party] for party in range(8)}, "star")
    message = 1000 + OVERHEAD_BYTES
    assert busiest_bytes(Star(), network, 1000, 0) == 8 * message + 8 * message  # all up, then all down
    assert busiest_bytes(Star(), network, None, 2) == 16 * (16 + OVERHEAD_BYTES)


def test_the_busiest_lines_of_averages_and_of_a_path():
    ring = make_network({party: [party] for party in range(8)}, "ring")
    message = 1000 + OVERHEAD_BYTES
    assert busiest_bytes(Consensus(10), ring, 1000, 0) == 10 * 2 * message
    path = make_network({party: [party] for party in range(5)}, "path")  # two levels on either side of the middle
    assert busiest_bytes(Tree(), path, 1000, 0) == message + 2 * message + 2 * message + message


@pytest.mark.parametrize("n_decisions", [0, 3])
@pytest.mark.parametrize(
    ("summation", "graph", "hops"),
    [(Star(), "star", 0), (Tree(), GEOMETRIC, 0), (Consensus(1), "path", 0), (Consensus(4), GEOMETRIC, 1)],
)
def test_the_busiest_line_round_by_round(summation, graph, hops, n_decisions):
    network = make_network(PARTIES, graph, hops, np.random.default_rng(0))
    schedules = [
        summation.schedule(network, position, values=True, decision=n_decisions > 0) for position in network.positions
    ]
    expected = 0
    for parts in zip(*schedules, strict=True):
        sent, got = np.zeros(len(parts)), np.zeros(len(parts))
        for sender, part in enumerate(parts):
            for receiver in part.receivers:
                n_bytes = OVERHEAD_BYTES + 100 * part.values + 8 * n_decisions * part.decision
                sent[sender] += n_bytes
                got[receiver] += n_bytes
        expected += max(sent.max(), got.max())
    assert busiest_bytes(summation, network, 100, n_decisions) == expected


def test_time_is_latency_of_rounds_and_bandwidth_of_the_busiest():
    assert Line(1000.0, 0.5).seconds(4, 3000) == 5.0
    network = make_network({party: [party] for party in range(4)}, "ring")
    study = Study(n_rows=1000, n_components=3, init_params="random")
    spans = {"iterations": (10, 20), "kmeans_iterations": (0, 0)}
    near = estimate(Consensus(5), network, study, **spans, line=Line(1e6, 0.0))
    far = estimate(Consensus(5), network, study, **spans, line=Line(1e6, 0.1))
    assert far.seconds.high - near.seconds.high == pytest.approx(0.1 * far.rounds.high)
    one_sum = 5 * 2 * (8 * 3000 + 8 * 5 + OVERHEAD_BYTES) / 1e6
    assert near.seconds.high - near.seconds.low == pytest.approx(10 * one_sum)


# What stands side by side


def test_a_plan_of_a_ring():
    network = make_network({party: [party] for party in range(8)}, "ring")
    found = plan(network, Study(n_rows=1000, n_components=3), iterations=(20, 100))
    names = [one.name for one in found.estimates]
    assert names == [
        "Tree()",
        "Differences(Tree())",
        "Masked(Tree())",
        "Consensus(100)",
        "Consensus()",
        "Consensus('auto')",
        "RunningSums()",
    ]
    assert found.default == "Tree()"
    tree, changes, _, hundred, enough, _, running = found.estimates
    assert found.cheapest is changes
    assert tree.error_factor == changes.error_factor == 0
    assert running.error_factor <= 1e-10
    assert running.rounds.low > enough.rounds.low
    assert enough.error_factor <= 1e-6 < hundred.error_factor * 1e20
    # A circulant matrix: (1 + 2 cos(2 pi j / 8)) / 3
    assert found.spectrum.second == pytest.approx((1 + np.sqrt(2)) / 3)
    assert found.spectrum.smallest == pytest.approx(-1 / 3)
    assert found.spectrum.contraction == pytest.approx((1 + np.sqrt(2)) / 3)
    assert found.spectrum.rounds == Consensus().n_rounds(network) == 64
    assert tree.has_fixed_length
    assert not changes.has_fixed_length
    assert changes.bytes.low < changes.usual_bytes.low < changes.usual_bytes.high < changes.bytes.high
    assert found.table == (8 * 1000 * 8, None)


def test_a_plan_of_a_star_and_of_a_lonely_party():
    star = make_network({party: [party] for party in range(8)}, "star")
    found = plan(star, Study(n_rows=1000, n_components=3))
    assert [one.name for one in found.estimates] == ["Star()", "Differences(Star())", "Masked(Star())"]
    assert (found.default, found.spectrum) == ("Star()", None)
    alone = plan(make_network({"a": [0, 1]}, "ring"), Study(n_rows=1000, n_components=3))
    assert {one.bytes for one in alone.estimates} == {(0, 0)}
    assert alone.spectrum.contraction == 0


def test_summations_are_checked_and_may_be_others():
    network = make_network({party: [party] for party in range(4)}, "ring")
    with pytest.raises(ValueError, match="expected graph='star'"):
        plan(network, Study(n_rows=10, n_components=2), summations=[Star()])
    assert Consensus(7) in choices(network, rounds=7)
    jumping = Study(n_rows=10, n_components=2, accelerate="squarem")
    assert [one.name for one in plan(network, jumping).estimates] == [
        "Tree()",
        "Differences(Tree())",
        "Masked(Tree())",
    ]
    with pytest.raises(ValueError, match="expected accelerate with sums that are the same for all parties"):
        plan(network, jumping, summations=[Consensus(3)])

    class Short(Tree):
        def payload(self, network, shape):
            return Payload(shape.n_values, is_fixed=False)

        def end(self, place, state):
            return super().end(place, state)

    [found] = plan(network, Study(n_rows=10, n_components=2), summations=[Short()]).estimates
    assert found.memory is None, "it does not tell"
    assert found.bytes == found.usual_bytes
    [whole] = plan(network, Study(n_rows=10, n_components=2), summations=[Tree()]).estimates
    assert found.bytes.low < whole.bytes.low
    assert found.bytes.high == whole.bytes.high


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_rows": 0}, "expected n_rows to be a whole number, 1 or more, got 0"),
        ({"n_rows": 2, "n_components": 3}, "expected as many rows as components or more, got 2 and 3"),
        ({"init_params": "best"}, "expected init_params to be one of kmeans"),
        ({"batch_size": 0}, "expected batch_size"),
        ({"accelerate": "more"}, "expected accelerate to be None or 'squarem', got 'more'"),
        ({"accelerate": "squarem", "batch_size": 5}, "expected no batch_size with accelerate, got 5"),
    ],
)
def test_studies_that_cannot_be(wrong, message):
    with pytest.raises(ValueError, match=message):
        Study(**{"n_rows": 10, "n_components": 2, **wrong})


def test_the_pulsars_gzipped(htru2):
    assert gzipped_share(htru2[0]) == pytest.approx(0.68, abs=0.02)


def test_what_compresses_well_and_what_does_not():
    noise = np.random.default_rng(0).normal(size=(30_000, 3))
    assert 0.9 < gzipped_share(noise) < 1.1
    assert gzipped_share(np.round(noise)) < 0.1
    assert gzipped_share(np.full((50, 2), np.nan)) < 0.1


# Quantities


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100Mbit", 12.5e6),
        ("1Gbit/s", 125e6),
        ("56 kbit", 7e3),
        ("100Mbps", 12.5e6),
        ("800bit", 100.0),
        ("12.5MB", 12.5e6),
        ("12.5 MB/s", 12.5e6),
        ("3kB/s", 3e3),
        (".5GB", 5e8),
    ],
)
def test_bandwidths(text, expected):
    assert parse_bandwidth(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "100", "Mbit", "100Mb", "100mbit", "-5Mbit", "0Mbit", "1e3Mbit", "100MB/h"])
def test_what_is_no_bandwidth(text):
    with pytest.raises(ValueError, match="expected a bandwidth above 0 in bits or bytes a second, as 100Mbit"):
        parse_bandwidth(text)


@pytest.mark.parametrize(("text", "expected"), [("20ms", 0.02), ("0.5 s", 0.5), ("150us", 1.5e-4), ("0", 0)])
def test_latencies(text, expected):
    assert parse_latency(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "20", "ms", "-3ms", "20 hours"])
def test_what_is_no_latency(text):
    with pytest.raises(ValueError, match="expected a latency with its unit"):
        parse_latency(text)


def test_ranges():
    assert parse_range("3..7", "iterations") == (3, 7)
    assert parse_range("5", "iterations") == (5, 5)
    for text in ("7..3", "", "3..", "..7", "a", "-1", "3.5"):
        with pytest.raises(ValueError, match=r"expected iterations as 20\.\.100 or as one number, 0 or more"):
            parse_range(text, "iterations")
