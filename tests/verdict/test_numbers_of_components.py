"""Fits with a wrong number of components, of odd columns, or whose labels depend on the start: none is green."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.metrics import adjusted_rand_score

import vpem
from vpem import VerticalGaussianMixture, VerticalMixture
from vpem.verdict import colour


def groups(n_groups, n_rows=900, n_columns=6, apart=6.0, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(n_groups, size=n_rows)
    return rng.normal(size=(n_rows, n_columns)) + apart * rng.normal(size=(n_groups, n_columns))[labels]


def fitted(X, n_components, n_parties=3, **arguments):
    partition = [part.tolist() for part in np.array_split(np.arange(X.shape[1]), n_parties)]
    settings = {"shrinkage": "auto", "standardize": True, "n_init": 5, "random_state": 0, **arguments}
    return VerticalGaussianMixture(n_components, partition=partition, **settings).fit(X)


def findings(model):
    return {one.code: one for one in model.verdict_ if one.severity != "note"}


@pytest.mark.parametrize("n_init", [1, 5])
@pytest.mark.parametrize("n_columns", [6, 30])
def test_ten_components_for_three_groups(n_columns, n_init):
    found = findings(fitted(groups(3, n_columns=n_columns, n_rows=500, apart=4.0), 10, n_init=n_init))
    assert found["too_many_components"].remedy == "n_components=3"


def test_five_components_for_one_gaussian():
    found = findings(fitted(np.random.default_rng(0).normal(size=(600, 6)), 5))
    assert found["too_many_components"].remedy == "n_components=1"
    assert "There may be no clusters" in found["too_many_components"].sentence
    assert "unstable" in found


@pytest.mark.parametrize("n_columns", [2, 4])
def test_four_components_for_a_uniform_distribution(n_columns):
    X = np.random.default_rng(0).uniform(size=(800, n_columns))
    assert "by ICL), 1 would do" in findings(fitted(X, 4, n_parties=2))["overlapping"].sentence


@pytest.mark.parametrize("n_groups", [3, 4, 5, 6, 8])
def test_two_components_for_more_groups(n_groups):
    assert "too_few_components" in findings(fitted(groups(n_groups), 2))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n_groups", [1, 2, 4, 6])
def test_the_right_number_is_green(n_groups, seed):
    model = fitted(groups(n_groups, seed=seed), n_groups, random_state=seed)
    assert colour(model.verdict_) == "green", model.verdict_


@pytest.mark.parametrize(
    ("load", "n_components"),
    [(load_iris, 3), (load_iris, 2), (load_breast_cancer, 2)],
    ids=["3", "2", "tumours"],
)
def test_real_tables_with_their_number_of_classes_are_green(load, n_components):
    model = fitted(load().data, n_components, n_parties=2)
    assert colour(model.verdict_) == "green", model.verdict_


def test_overlapping_groups_that_the_rows_tell_apart_are_green():
    assert colour(fitted(groups(3, n_rows=3000, n_columns=4, apart=1.5), 3, n_parties=2).verdict_) == "green"


def test_the_agreement_of_starts_is_that_of_their_labels():
    """Shorter fits with the same seed have the best of the first starts: some of the ends."""
    X = load_wine().data
    fits = [fitted(X, 3, n_init=n, random_state=5) for n in range(1, 6)]
    model = fits[-1]
    expected = {round(adjusted_rand_score(model.predict(X), one.predict(X)), 9) for one in fits}
    (finding,) = (one for one in model.verdict_ if one.code == "starts_apart")
    found = {round(one, 9) for one in model.fitted_.judgement.facts.start_agreement}
    assert len(expected) > 1
    assert expected <= found
    assert f"lowest {min(found):.2f}" in finding.sentence


# Columns


def odd(column, seed=5):
    X = groups(3, n_rows=500, n_columns=4, seed=seed)
    return np.column_stack([column(np.random.default_rng(seed), X), X])


@pytest.mark.parametrize(
    "column",
    [
        lambda rng, X: np.arange(len(X)),
        lambda rng, X: rng.permutation(len(X)) + 1,
        lambda rng, X: 100_000 + rng.choice(900_000, len(X), replace=False),
        lambda rng, X: np.where(np.arange(len(X)) % 7 == 0, np.nan, 10 * np.arange(len(X))),
    ],
    ids=["counts", "shuffled", "random ids", "with gaps"],
)
@pytest.mark.parametrize("standardize", [True, False])
def test_a_column_of_ids(column, standardize):
    model = fitted(pd.DataFrame(odd(column), columns=list("nabcd")), 3, n_parties=2, standardize=standardize)
    assert findings(model)["row_names"].sentence.startswith("Column n looks like ids")


@pytest.mark.parametrize(
    "column",
    [lambda rng, X: rng.integers(0, 2000, len(X)), lambda rng, X: np.round(rng.normal(0, 1000, len(X)))],
    ids=["uniform with repeats", "normal"],
)
def test_whole_numbers_are_no_ids(column):
    assert "row_names" not in findings(fitted(odd(column), 3, n_parties=2))


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_a_column_twice_in_one_party(share):
    X = odd(lambda rng, X: 3 - 2 * X[:, 0])
    X[np.random.default_rng(1).random(X.shape) < share] = np.nan
    model = fitted(pd.DataFrame(X, columns=list("tabcd")), 3, n_parties=2)
    assert "t and a" in findings(model)["twins"].sentence
    assert "twins" not in findings(fitted(X[:, [0, 2, 3, 1, 4]], 3, n_parties=2)), "in two parties"


def test_a_column_that_nearly_repeats_another_is_a_measurement():
    X = odd(lambda rng, X: X[:, 0] + 0.01 * rng.normal(size=len(X)))
    assert "twins" not in findings(fitted(X, 3, n_parties=2))


def test_words_and_counts_are_judged_too():
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=400)
    table = pd.DataFrame(
        {"word": np.where(rng.random(400) < 0.1 + 0.8 * labels, "yes", "no"), "count": rng.poisson(2 + 6 * labels)}
    )
    table["size"] = rng.normal(size=400) + 5 * labels
    partition = {"one": ["word", "size"], "other": ["count"]}
    right, wrong = (
        VerticalMixture(n, families="auto", partition=partition, n_init=3, random_state=0).fit(table) for n in (2, 7)
    )
    assert colour(right.verdict_) == "green", right.verdict_
    assert findings(wrong)["too_many_components"].remedy == "n_components=2"


# When it is found out


def test_copies_and_files_have_the_verdict_and_no_rows(tmp_path):
    X = groups(3)
    model = fitted(X, 8)
    again = pickle.loads(pickle.dumps(model))
    assert again.fitted_.judgement.check is None
    assert again.verdict_ == model.verdict_
    vpem.save(model, tmp_path / "m.vpem")
    assert vpem.load(tmp_path / "m.vpem").verdict_ == model.verdict_
    with pytest.raises(AttributeError, match="not fitted"):
        VerticalGaussianMixture(2).verdict_  # noqa: B018


def test_a_notebook_shows_the_verdict():
    shown = fitted(groups(3), 8)._repr_html_()
    assert "<b>amber</b>" in shown
    assert "8 components are too many by BIC" in shown
    assert "Try: n_components=3." in shown


@pytest.mark.parametrize(("n_rows", "n_columns", "n_groups"), [(300, 60, 3), (1000, 120, 4), (300, 100, 2)])
def test_wide_groups_that_lie_apart_do_not_overlap(n_rows, n_columns, n_groups):
    """Criteria that count shrunk covariances as free said that one component would do."""
    rng = np.random.default_rng(1)
    group = rng.integers(n_groups, size=n_rows)
    X = rng.normal(size=(n_rows, n_columns)) + 2 * rng.normal(size=(n_groups, n_columns))[group]
    model = fitted(X, n_groups, n_parties=2, shrinkage="auto", standardize=True)
    assert not {"overlapping", "too_many_components"} & set(findings(model))
    assert adjusted_rand_score(group, model.predict(X)) == 1
