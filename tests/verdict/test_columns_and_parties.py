"""Codes among numbers, parties that repeat each other, rows in another order; and sound tables without any."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine, make_blobs, make_classification

from vpem import VerticalMixture
from vpem.cli.fit_command import unfitted

NEW = {"codes", "dependence", "unrelated", "narrow"}


def groups(n_groups=3, n_rows=600, n_columns=4, seed=0, apart=6.0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(n_groups, size=n_rows)
    return rng.normal(size=(n_rows, n_columns)) + apart * rng.normal(size=(n_groups, n_columns))[labels]


def fitted(X, n_components, parties=2, **arguments):
    """With the defaults of the program, but fewer starts."""
    if isinstance(parties, int):
        parties = [part.tolist() for part in np.array_split(np.arange(X.shape[1]), parties)]
    model = unfitted("full", "auto", None, 2, 0, {})
    return model.set_params(n_components=n_components, partition=parties, **arguments).fit(X)


def found(model):
    return {one.code: one for one in model.verdict_ if one.severity != "note"}


# Codes


def with_code(code, share, seed=2):
    X = groups(seed=seed)
    X[:, 1] = np.round(X[:, 1] + 40, 1)
    X[np.random.default_rng(seed).random(len(X)) < share, 1] = code
    return X


@pytest.mark.filterwarnings("ignore::vpem.FitWarning")
@pytest.mark.parametrize(
    ("code", "share"), [(-999, 0.01), (-999, 0.3), (-99, 0.01), (999, 0.05), (9999, 0.05), (88888, 0.1), (1e9, 0.1)]
)
def test_codes_for_gaps(code, share):
    X = with_code(code, share)
    finding = found(fitted(X, 3))["codes"]
    assert f"{code:.10g} in column 1 ({(X[:, 1] == code).mean():.1%})" in finding.sentence


def test_several_codes_in_one_column_and_names():
    X = with_code(-99, 0.05)
    X[:20, 1], X[20:50, 1] = -98.0, 99.0
    X[50:80, 1] = 88.0
    finding = found(fitted(pd.DataFrame(X, columns=["a", "age", "b", "c"]), 3, [["a", "age"], ["b", "c"]]))["codes"]
    assert "-99 in column age" in finding.sentence
    assert "99 in column age" in finding.sentence.replace("-99", "")


@pytest.mark.parametrize(
    "column",
    [
        lambda rng, n: np.where(rng.random(n) < 0.4, 0.0, rng.normal(1000, 10, n)),
        lambda rng, n: rng.lognormal(8, 1.5, n).round(2),
        lambda rng, n: np.minimum(rng.normal(80, 20, n), 99).round(),
        lambda rng, n: rng.choice([1.0, 2, 3, 4, 99], n),
        lambda rng, n: rng.choice([*rng.normal(50, 5, 20).round(1), 900.0], n),
        lambda rng, n: np.r_[rng.normal(40, 10, n - 1), 999.0],
    ],
    ids=["zeros", "amounts", "highest", "few values", "values of groups", "one row"],
)
def test_numbers_that_are_no_codes(column):
    X = groups(n_rows=500)
    X[:, 1] = column(np.random.default_rng(0), len(X))
    assert "codes" not in found(fitted(X, 3))


def test_words_have_no_codes_and_counts_have():
    rng = np.random.default_rng(0)
    kinds = np.arange(300) % 2
    table = pd.DataFrame({"size": rng.normal(size=300) + 6 * kinds, "visits": rng.poisson(3 + 12 * kinds)})
    table["answer"] = rng.choice(["1", "2", "99"], 300)
    partition = {"one": ["size", "answer"], "other": ["visits"]}
    model = VerticalMixture(2, families="auto", partition=partition, random_state=0)
    assert "codes" not in found(model.fit(table))
    table.loc[::30, "visits"] = 999
    assert "999 in column visits" in found(model.fit(table))["codes"].sentence


# Parties that depend on each other


@pytest.mark.parametrize("n_components", [1, 3])
def test_parties_that_are_correlated_by_99_percent(n_components):
    rng = np.random.default_rng(0)
    labels = rng.integers(n_components, size=600)
    table = pd.DataFrame(rng.normal(size=(600, 4)) + 9 * labels[:, None], columns=list("abcd"))
    noise = rng.multivariate_normal([0, 0], [[1, 0.99], [0.99, 1]], 600)
    table["a"], table["d"] = noise[:, 0] + 9 * labels, noise[:, 1] - 9 * labels
    finding = found(fitted(table, n_components, [["a", "b"], ["c", "d"]]))["dependence"]
    nats = float(finding.sentence.split("about ")[1].split()[0])
    assert "a and d by a correlation of 0.9" in finding.sentence
    assert nats == pytest.approx(-0.5 * np.log(1 - 0.99**2), abs=0.15)


def test_columns_of_one_party_may_depend_on_each_other():
    X = groups()
    X[:, 1] = X[:, 0] + 0.05 * X[:, 1]
    assert "dependence" not in {one.code for one in fitted(X, 3).verdict_}
    assert "dependence" in found(fitted(X, 3, [[0, 2], [1, 3]]))


def test_wide_tables_with_few_rows_depend_by_chance_alone():
    X = np.random.default_rng(5).normal(size=(200, 60)) + 3 * np.eye(3, 60)[np.arange(200) % 3]
    assert "dependence" not in {one.code for one in fitted(X, 3, 4).verdict_}


# Rows in another order


@pytest.mark.parametrize("n_components", [3, 9])
@pytest.mark.parametrize("n_parties", [2, 3])
def test_rows_of_the_last_party_are_in_another_order(n_parties, n_components):
    X = groups(n_columns=6, seed=n_parties)
    last = 6 - 6 // n_parties
    X[:, last:] = np.random.default_rng(0).permutation(X[:, last:])
    finding = found(fitted(X, n_components, n_parties))["unrelated"]
    assert f" {n_parties - 1} and those of the other parties" in finding.sentence


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer])
def test_real_rows_that_are_off_by_some(load):
    X = np.random.default_rng(1).permutation(load().data)
    half = (X.shape[1] + 1) // 2
    X[:, half:] = np.roll(X[:, half:], 7, axis=0)
    assert "unrelated" in found(fitted(X, 3))


# Narrow components, and a fit that ended early


def test_a_narrow_component_does_not_sit_on_one_value():
    X = groups(n_rows=900) * 300
    X[:5, 1] = [1e7, 2e7, 1.5e7, 3e7, 1e7]
    with pytest.warns(UserWarning, match="makes up most of the deviation"):
        codes = {one.code for one in fitted(X, 3).verdict_}
    assert "narrow" in codes
    assert "one_value" not in codes


def test_a_component_on_one_value_does():
    X = np.random.default_rng(0).normal(size=(900, 4)) + 9 * (np.arange(900) % 3)[:, None]
    X[::3, 1] = 7.0
    with pytest.warns(UserWarning, match="sit on one value"):
        assert "one_value" in found(fitted(X, 3))


def test_a_component_that_is_narrow_without_reg_covar_is_right():
    X = np.r_[np.random.default_rng(0).normal(0, 1018, (300, 2)), np.random.default_rng(1).normal(0, 1e11, (300, 2))]
    assert not {"narrow", "one_value"} & {
        one.code for one in fitted(X, 2, standardize=False, shrinkage=None).verdict_
    }


def test_a_large_tol_that_ends_the_fit_early():
    X = groups(5, n_rows=900, apart=1.5, seed=3)
    model = fitted(X, 5, tol=0.5, init_params="random_from_data", n_init=1)
    assert model.converged_
    assert 0.01 < model.certificate_.gain < model.tol
    assert found(model)["gain"].remedy == "a smaller tol"


# Where nothing is wrong


def air():
    rng = np.random.default_rng(0)
    return np.exp(groups(apart=1.0) / 3) * rng.lognormal(size=(600, 1))


def classes(seed):
    return make_classification(500, 8, n_informative=4, n_redundant=0, random_state=seed)[0]


def noise(draw):
    def make():
        return np.c_[groups(), draw(np.random.default_rng(1), (600, 2))]

    return make


SOUND = {
    "iris": (lambda: load_iris().data, 3, 2),
    "iris in two": (lambda: load_iris().data, 2, [[0, 2], [1, 3]]),
    "wine": (lambda: load_wine().data, 3, 2),
    "wine of three": (lambda: load_wine().data, 3, 3),
    "tumours": (lambda: load_breast_cancer().data, 2, 2),
    "diabetes": (lambda: load_diabetes().data, 2, 2),
    **{
        f"blobs {seed}": ((lambda seed=seed: make_blobs(400, n_features=6, centers=4, random_state=seed)[0]), 4, 3)
        for seed in range(6)
    },
    **{f"classes {seed}": ((lambda seed=seed: classes(seed)), 2, 2) for seed in range(4)},
    **{f"groups {n}": ((lambda n=n: groups(n, n_columns=6, seed=n)), n, 3) for n in (1, 2, 5)},
    **{f"small {seed}": ((lambda seed=seed: groups(n_rows=90, seed=seed)), 3, 2) for seed in range(4)},
    "overlap": (lambda: groups(apart=1.5), 3, 2),
    "one Gaussian": (lambda: np.random.default_rng(0).normal(size=(500, 6)), 1, 3),
    "normal noise": (noise(lambda rng, shape: rng.normal(size=shape)), 3, [[0, 1], [2, 3], [4, 5]]),
    "skewed noise": (noise(lambda rng, shape: rng.lognormal(size=shape)), 3, [[0, 1], [2, 3], [4, 5]]),
    "uniform noise": (noise(lambda rng, shape: rng.uniform(size=shape)), 3, [[0, 1, 2, 3], [4, 5]]),
    "heavy tails": (
        lambda: np.random.default_rng(0).standard_t(3, size=(600, 4)) + 9 * (np.arange(600) % 3)[:, None],
        3,
        2,
    ),
    "gaps": (lambda: np.where(np.random.default_rng(0).random((600, 6)) < 0.2, np.nan, groups(n_columns=6)), 3, 3),
    "amounts": (air, 2, 2),
    "each column a party": (lambda: groups(4, n_columns=8), 4, 8),
}


@pytest.mark.filterwarnings("ignore::vpem.FitWarning")
@pytest.mark.parametrize("name", SOUND)
def test_nothing_is_found_in_sound_tables(name):
    make, n_components, parties = SOUND[name]
    assert not NEW & set(found(fitted(make(), n_components, parties)))


def test_groups_without_any_correlation_are_related():
    """One party has the corners of a square, the other those of a rhombus, in an order without any correlation."""
    rng = np.random.default_rng(0)
    corner = rng.integers(4, size=600)
    one = np.array([[5, 5], [-5, -5], [5, -5], [-5, 5]])[corner]
    other = np.array([[5, 0], [5, 0], [-5, 0], [-5, 0]])[corner]
    X = np.c_[one, other] + rng.normal(size=(600, 4))
    assert np.abs(np.corrcoef(X.T)[:2, 2:]).max() < 0.1
    assert "unrelated" not in {own.code for own in fitted(X, 4).verdict_}
