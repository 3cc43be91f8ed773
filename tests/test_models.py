"""Model files: what was saved comes back; what is damaged, newer or hostile is refused with one clear error."""

import contextlib
import io
import json
import random
import re
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import networkx as nx
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import vpem
from vpem import Consensus, ModelFileError, Star, Tree, VerticalGaussianMixture, model_format
from vpem.datasets import make_vertical_blobs

PARTIES = {"bank": [3, 0], "shop": [1], 7: [2, 4, 5]}


def fitted(**arguments):
    X = make_vertical_blobs(200, 3, 2, 2, random_state=0).data
    return VerticalGaussianMixture(2, partition=PARTIES, random_state=1, **arguments).fit(X), X


WAYS = [
    {},
    {"covariance_type": "tied"},
    {"covariance_type": "diag", "batch_size": 50},
    {"covariance_type": "spherical", "reg_covar": 1e-3, "n_init": 2},
    {"graph": "ring", "hops": 1},
    {"graph": nx.Graph([("bank", 7), (7, "shop")]), "summation": Consensus(2, "laplacian", 0.2), "shrinkage": "oas"},
]


@pytest.mark.processors
@pytest.mark.parametrize("arguments", WAYS, ids=lambda arguments: " ".join(map(str, arguments)) or "usual")
def test_what_was_saved_comes_back(tmp_path, arguments):
    model, X = fitted(**arguments)
    vpem.save(model, tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    again = vpem.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))
    np.testing.assert_array_equal(again.sample(20)[0], model.sample(20)[0])
    for name in (
        "n_iter_",
        "converged_",
        "hubs_",
        "partition_",
        "repairs_",
        "lower_bounds_",
        "disagreement_",
        "certificate_",
        "log_likelihood_",
        "verdict_",
    ):
        assert getattr(again, name) == getattr(model, name), name
    assert again.traffic_.per_agent == model.traffic_.per_agent
    assert again.bic(X) == model.bic(X)
    assert nx.utils.graphs_equal(again.graph_, model.graph_)
    # And it goes on where it was.
    more = again.set_params(warm_start=True, max_iter=3, tol=0.0)
    with pytest.warns(match="did not converge"):
        more.fit(X)
    # Saved again it is the same file.
    vpem.save(vpem.load(tmp_path / "model"), tmp_path / "twice")
    one, other = (zipfile.ZipFile(tmp_path / name) for name in ("model", "twice"))
    assert all(one.read(name) == other.read(name) for name in one.namelist())


def test_names_of_columns_and_streams(tmp_path):
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(make_vertical_blobs(100, 1, 2, 2, random_state=0).data, columns=["age", "income"])
    model = VerticalGaussianMixture(2, partition={"bank": ["age"], "shop": ["income"]}, random_state=0).partial_fit(X)
    vpem.save(model, tmp_path / "model")
    again = vpem.load(tmp_path / "model")
    assert list(again.feature_names_in_) == ["age", "income"]
    assert not hasattr(again, "certificate_")
    with pytest.raises(ValueError, match="feature names"):
        again.predict(X.rename(columns={"age": "years"}))


def test_arguments_for_a_later_fit_leave_a_file_that_can_be_read(tmp_path):
    model, X = fitted(covariance_type="diag")
    vpem.save(model.set_params(covariance_type="full", shrinkage="oas"), tmp_path / "model")
    again = vpem.load(tmp_path / "model")
    assert (again.covariance_type, again.shrinkage) == ("diag", None)
    np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))


def test_numpy_reads_the_arrays_and_json_the_rest(tmp_path):
    model, _ = fitted()
    vpem.save(model, tmp_path / "model")
    with np.load(tmp_path / "model", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["weights"][0], model.weights_)
        about = json.loads(arrays["model.json"])
    assert about["format"] == "vpem-model"
    assert about["parties"][0] == {"name": "bank", "columns": [3, 0]}


def test_what_cannot_be_saved(tmp_path):
    with pytest.raises(NotFittedError):
        vpem.save(VerticalGaussianMixture(), tmp_path / "model")
    model = VerticalGaussianMixture(partition={(1, 2): [0], "b": [1]}).fit(
        np.random.default_rng(0).normal(size=(9, 2))
    )
    with pytest.raises(TypeError, match="texts or whole numbers"):
        vpem.save(model, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_an_old_file_survives_a_failed_save(tmp_path, monkeypatch):
    model, X = fitted()
    vpem.save(model, tmp_path / "model")
    monkeypatch.setattr(zipfile.ZipFile, "writestr", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        vpem.save(model, tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    monkeypatch.undo()
    assert (vpem.load(tmp_path / "model").predict(X) == model.predict(X)).all()


# Ways to add


class Slow(Consensus):
    """Consensus but for its type."""


@pytest.mark.parametrize("summation", [None, Consensus(7), Consensus(np.int64(3), "laplacian", np.float64(0.25))])
def test_the_summation_of_the_fit_comes_back(tmp_path, summation):
    model, _ = fitted(graph="path", summation=summation)
    vpem.save(model.set_params(summation=Consensus(9)), tmp_path / "model")  # for a later fit
    assert vpem.load(tmp_path / "model").summation == (Tree() if summation is None else summation)
    star, _ = fitted(graph="star")
    vpem.save(star.set_params(graph="path", summation=Consensus(9)), tmp_path / "model")
    assert vpem.load(tmp_path / "model").summation == Star()


def test_a_summation_that_files_do_not_know_is_refused(tmp_path):
    model, X = fitted(graph="path", summation=Slow(5))
    with pytest.raises(
        TypeError,
        match=r"expected a summation .*\(Star, .*, RunningSums\), got Slow\(rounds=5.* of type Slow",
    ):
        vpem.save(model, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
    vpem.save(model.set_params(summation=Consensus(5)).fit(X), tmp_path / "model")


@dataclass(frozen=True)
class Around(Consensus):
    """A summation with another one inside."""

    inner: object = Star()


def test_another_summation_costs_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(model_format.SUMMATIONS, "around", Around)
    for inner in (Consensus(4), Around(3, inner=Consensus(2, "laplacian"))):
        model, _ = fitted(graph="path", summation=Around(5, inner=inner))
        vpem.save(model, tmp_path / "model")
        assert vpem.load(tmp_path / "model").summation == model.summation
    for inner in (Slow(1), [1, 2]):
        model, _ = fitted(graph="path", summation=Around(5, inner=inner))
        with pytest.raises(TypeError, match=r"of type (Slow|list);"):
            vpem.save(model, tmp_path / "another")
    vpem.save(fitted(graph="path", summation=Around(5))[0], tmp_path / "model")
    monkeypatch.undo()
    with pytest.raises(
        ModelFileError,
        match=r"expected a summation .*'star', .*, 'running'\), got 'around'; update vpem",
    ):
        vpem.load(tmp_path / "model")


# Files that are not to be believed


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewrite(path, contents):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


def npy(array, allow_pickle=False):
    content = io.BytesIO()
    np.lib.format.write_array(content, array, allow_pickle=allow_pickle)
    return content.getvalue()


def described(**changes):
    def change(contents):
        about = json.loads(contents["model.json"])
        about.update(changes)
        return {**contents, "model.json": json.dumps(about)}

    return change


def changed(**changes):
    def change(contents):
        about = json.loads(contents["model.json"])
        about["parameters"].update(changes)
        return {**contents, "model.json": json.dumps(about)}

    return change


HOSTILE = {
    "no description": lambda c: {name: content for name, content in c.items() if name != "model.json"},
    "another format": described(format="pickle"),
    "no number": described(n_components="two"),
    "more than there is": described(n_components=3),
    "a huge number": described(n_components=10**12),
    "negative": described(n_features=-1),
    "a stranger in the links": described(links=[[0, 1], [1, 9]]),
    "two islands": described(links=[[0, 1]]),
    "hubs that miss somebody": described(hubs=[{"root": 0, "members": [0, 1]}]),
    "a root that is elsewhere": described(
        hubs=[{"root": 1, "members": [0]}, {"root": 1, "members": [1]}, {"root": 2, "members": [2]}]
    ),
    "columns held twice": described(
        parties=[
            {"name": "a", "columns": [0, 1, 2, 3, 4, 5]},
            {"name": "b", "columns": [5]},
            {"name": "c", "columns": [0]},
        ]
    ),
    "names that are alike": described(
        parties=[{"name": "a", "columns": [0, 1]}, {"name": "a", "columns": [2, 3]}, {"name": "c", "columns": [4, 5]}]
    ),
    "a link to before the first": described(links=[[0, 1], [1, -1]]),
    "a link to oneself": described(links=[[0, 1], [1, 2], [2, 2]]),
    "a star with hubs": described(
        links=None, summation={"kind": "star"}, n_views=1, hubs=[{"root": 0, "members": [0, 1, 2]}]
    ),
    "a party without columns": described(
        parties=[
            {"name": "a", "columns": [0, 1, 2, 3, 4, 5]},
            {"name": "b", "columns": []},
            {"name": "c", "columns": []},
        ]
    ),
    "a number beyond all numbers": described(n_features=10**30),
    "rounds without links": described(links=None),
    "a repair of nothing": described(
        repairs=[{"iteration": 1, "component": 99, "party": "bank", "reason": "collapsed", "restarted": True}]
    ),
    "less than nothing sent": lambda c: {**c, "traffic.npy": npy(np.full((3, 4), -1))},
    "a covariance that leans": lambda c: {**c, "covariances_0.npy": npy(np.array([[[9.0, 1.0], [0.0, 9.0]]] * 2))},
    "a gain that is none": described(gain="banana"),
    "a start that nobody knows": changed(init_params="magic"),
    "a negative seed": changed(random_state=-1),
    "arrays as large as the world": described(n_components=2**30),
    "names that are alike twice": described(feature_names=["a"] * 6),
    "unknown arguments": described(parameters={"os": "system"}),
    "unknown fields": described(code="import os"),
    "an unknown covariance": described(density={"kind": "gaussian", "arguments": {"covariance_type": "banded"}}),
    "an unknown density": described(density={"kind": "banana"}),
    "a density of another estimator": described(estimator="VerticalKMeans"),
    "a density without a name": described(density={}),
    "unknown arguments of a density": described(density={"kind": "gaussian", "arguments": {"os": "system"}}),
    "numbers of a density that are none": described(density={"kind": "gaussian", "arguments": {"reg_covar": [1, 2]}}),
    "a density of a density": described(
        density={"kind": "gaussian", "arguments": {"reg_covar": {"kind": "gaussian"}}}
    ),
    "shapes of another density": described(density={"kind": "gaussian", "arguments": {"covariance_type": "tied"}}),
    "too many names": described(feature_names=["a"]),
    "no way to add": described(summation={}),
    "a way to add without a name": described(summation={"rounds": 3, "weights": "metropolis", "alpha": None}),
    "an unknown way to add": described(summation={"kind": "gossip"}),
    "an unknown way to average": described(summation={"kind": "consensus", "arguments": {"weights": "gossip"}}),
    "unknown arguments of a way to add": described(summation={"kind": "consensus", "arguments": {"os": "system"}}),
    "a way to add inside another": described(
        summation={"kind": "consensus", "arguments": {"rounds": {"kind": "star", "arguments": {}}}}
    ),
    "ways to add without end": lambda c: {
        **c,
        "model.json": re.sub(
            r'"summation":.*?"seed"',
            '"summation":' + '{"kind":"star","arguments":{"a":' * 9999 + "0" + "}}" * 9999 + ',"seed"',
            c["model.json"].decode(),
            flags=re.DOTALL,
        ),
    },
    "links for a star": described(summation={"kind": "star"}),
    "an alpha that does not average": described(
        summation={"kind": "consensus", "arguments": {"weights": "laplacian", "alpha": 5.0}}
    ),
    "before the first version": described(version=0),
    "views of nobody": described(n_views=2),
    "an array that is gone": lambda c: {name: content for name, content in c.items() if name != "means_0.npy"},
    "an array of another shape": lambda c: {**c, "means_0.npy": npy(np.zeros((2, 3)))},
    "an array of another type": lambda c: {**c, "means_0.npy": npy(np.zeros((2, 2), dtype=np.float32))},
    "a pickle": lambda c: {**c, "means_0.npy": npy(np.array([{}, {}], dtype=object), allow_pickle=True)},
    "no array": lambda c: {**c, "means_0.npy": b"hello"},
    "half an array": lambda c: {**c, "means_0.npy": c["means_0.npy"][:-8]},
    "not finite": lambda c: {**c, "means_0.npy": npy(np.full((2, 2), np.nan))},
    "weights that are none": lambda c: {**c, "weights.npy": npy(np.array([[0.5, 0.6]]))},
    "a singular covariance": lambda c: {**c, "covariances_0.npy": npy(np.ones((2, 2, 2)))},
    "a bomb": lambda c: {**c, "means_0.npy": b"\0" * 50_000_000},
    "a text as large as the world": lambda c: {**c, "model.json": b" " * 70_000_000},
    "no JSON": lambda c: {**c, "model.json": b"{"},
    "no text": lambda c: {**c, "model.json": b"\xff\xfe"},
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_hostile_files(tmp_path, change):
    path = tmp_path / "model"
    vpem.save(fitted(graph="path")[0], path)
    rewrite(path, change(members(path)))
    with pytest.raises(ModelFileError, match="expected"):
        vpem.load(path)


def test_other_ways_to_compress_are_not_read(tmp_path):
    path = tmp_path / "model"
    vpem.save(fitted()[0], path)
    contents = members(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    with pytest.raises(ModelFileError, match="compressed in another way"):
        vpem.load(path)


def test_a_start_that_was_given_comes_back_too(tmp_path):
    # Inverses of precisions are symmetric to rounding only.
    X = make_vertical_blobs(50, 1, 4, 1, random_state=0).data
    roots = np.random.default_rng(0).normal(size=(4, 4)) * [1e-3, 1.0, 1e3, 1.0]
    model = VerticalGaussianMixture(
        partition=[range(4)],
        weights_init=[1.0],
        means_init=X[:1],
        precisions_init=[(roots.T @ roots + np.diag([1e-5, 1, 1e6, 1]))[None]],
        max_iter=0,
    ).fit(X)
    vpem.save(model, tmp_path / "model")
    assert vpem.load(tmp_path / "model").score(X) == model.score(X)


def test_a_stream_does_not_survive_a_file_and_says_so(tmp_path):
    X = make_vertical_blobs(200, 3, 2, 2, random_state=0).data
    model = VerticalGaussianMixture(2, partition=PARTIES, random_state=0).partial_fit(X[:100])
    vpem.save(model, tmp_path / "model")
    again = vpem.load(tmp_path / "model")
    vpem.save(again, tmp_path / "copy")
    for loaded in (again, vpem.load(tmp_path / "copy")):
        with pytest.raises(ValueError, match="keeps no stream"):
            loaded.partial_fit(X[100:])
    assert (again.predict(X) == model.predict(X)).all()
    again.fit(X).partial_fit(X)


def test_many_at_once_write_whole_files(tmp_path):
    model, X = fitted()
    expected = model.predict(X)

    def work(_):
        vpem.save(model, tmp_path / "model")
        return (vpem.load(tmp_path / "model").predict(X) == expected).all()

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(40)))
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(("version", "remedy"), [(5, "update vpem"), (3, "fit the model again")])
def test_another_version_says_so(tmp_path, version, remedy):
    path = tmp_path / "model"
    vpem.save(fitted()[0], path)
    rewrite(path, described(version=version, something_new=1)(members(path)))
    with pytest.raises(ModelFileError, match=remedy):
        vpem.load(path)


def test_files_that_are_cut_off_or_damaged(tmp_path):
    path = tmp_path / "model"
    vpem.save(fitted()[0], path)
    whole = path.read_bytes()
    rng = random.Random(0)
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged[: rng.choice([len(damaged), rng.randrange(len(damaged))])])
        with contextlib.suppress(ModelFileError):  # a flipped bit may be one that nobody reads
            vpem.load(path)


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        vpem.load(tmp_path / "model")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ModelFileError, match="cannot be read"):
        vpem.load(tmp_path / "text")


# Ending a fit early


def test_a_callback_ends_the_fit_with_the_best_model_so_far():
    X = make_vertical_blobs(300, 3, 2, 3, separation=0.7, random_state=0).data
    seen = []

    def watch(start, iteration, lower_bound):
        seen.append((start, iteration, lower_bound))
        return start == 2 and iteration == 3

    model = VerticalGaussianMixture(3, n_init=5, tol=1e-9, max_iter=8, random_state=0, callback=watch).fit(X)
    assert [place[:2] for place in seen] == [(1, i) for i in range(1, 9)] + [(2, i) for i in range(1, 4)]
    assert model.n_iter_ in (8, 3)
    assert model.lower_bound_ == max(seen[7][2], seen[-1][2])
    batches = VerticalGaussianMixture(3, batch_size=100, tol=0, random_state=0, callback=lambda *_: True).fit(X)
    assert batches.n_iter_ == 1
    with pytest.raises(TypeError, match="callback"):
        VerticalGaussianMixture(callback=3).fit(X)
