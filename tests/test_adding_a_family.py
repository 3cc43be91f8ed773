"""CONTRIBUTING.md's walk through a new family; the oracle is EM written naively, with scipy's distributions."""

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import geom, norm

import vpem
from oracles import relative_error
from vpem import VerticalMixture
from vpem.core.blocks.structure import FAMILIES, parse_families, parse_family
from vpem.report import make_report

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
PARTIES = {"desk": ["days"], "lab": ["level", "again"]}


@pytest.fixture
def usage(monkeypatch):
    """Write the family's file and the line, and return the code that uses them."""
    section = PAGE.read_text().split("## Add a family in ten minutes\n")[1].split("\n## ")[0]
    file, line, usage = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    module = ModuleType("vpem.core.blocks.waits")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(file, module.__dict__)
    before = dict(FAMILIES)
    FAMILIES.update(eval(f"{{{line}}}", module.__dict__))
    yield usage, module.__dict__
    FAMILIES.clear()
    FAMILIES.update(before)
    parse_families.cache_clear()


def draw():
    rng = np.random.default_rng(1)
    labels = np.repeat([0, 1], 150)
    days = rng.geometric(np.array([0.5, 0.08])[labels]) - 1.0
    return np.stack([days, rng.normal(labels * 3.0), rng.geometric(np.array([0.1, 0.3])[labels]) - 1.0], axis=1)


def fitted(X, **arguments):
    families = {0: "waits", 1: "gaussian", 2: "waits"}
    settings = {"partition": {"desk": [0], "lab": [1, 2]}, "families": families, "random_state": 0, "tol": 0.0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)
        return VerticalMixture(2, **{**settings, "reg_covar": 0.0, **arguments}).fit(X)


def naive_em(X, weights, successes, means, variances, n_iterations):
    """EM row by row and component by component; (n_components,) and successes (n_components, 2)."""
    for iteration in range(n_iterations + 1):
        joint = np.log(weights) + np.stack(
            [
                geom.logpmf(X[:, 0], successes[k, 0], loc=-1)
                + norm.logpdf(X[:, 1], means[k], np.sqrt(variances[k]))
                + geom.logpmf(X[:, 2], successes[k, 1], loc=-1)
                for k in range(2)
            ],
            axis=1,
        )
        scores = logsumexp(joint, axis=1)
        if iteration == n_iterations:
            return scores, successes
        shares = np.exp(joint - scores[:, None])
        counts = shares.sum(axis=0)
        weights = counts / len(X)
        successes = counts[:, None] / (counts[:, None] + shares.T @ X[:, [0, 2]])
        means = shares.T @ X[:, 1] / counts
        variances = np.array([shares[:, k] @ (X[:, 1] - means[k]) ** 2 for k in range(2)]) / counts
    return None


def test_the_page_runs(usage, tmp_path, monkeypatch, capsys):
    code, names = usage
    monkeypatch.chdir(tmp_path)
    exec(code, names)
    assert capsys.readouterr().out.strip() == re.search(r"print\(.*\)  # (.*)", code)[1]


@pytest.mark.usefixtures("usage")
@pytest.mark.parametrize("engine", ["simulation", "agents"])
def test_a_fit_is_that_of_naive_em(engine):
    X = draw()
    first = fitted(X, max_iter=0)
    desk, lab = first.parameters_
    successes = np.concatenate([desk["others"], lab["others"]], axis=1)
    expected = naive_em(X, first.weights_, successes, lab["means"][:, 0], lab["covariances"].ravel(), 25)
    model = fitted(X, max_iter=25, engine=engine)
    assert relative_error(model.score_samples(X), expected[0]) < 1e-10
    assert relative_error(model.parameters_[0]["others"], expected[1][:, :1]) < 1e-10
    assert np.diff(model.lower_bounds_).min() > -1e-12


@pytest.mark.usefixtures("usage")
def test_a_model_is_saved_by_name_and_shown(tmp_path):
    X = draw()
    model = fitted(X, max_iter=25)
    vpem.save(model, tmp_path / "model.vpem")
    for name in [*reversed(FAMILIES)]:  # in another order, they are the same
        FAMILIES[name] = FAMILIES.pop(name)
    again = vpem.load(tmp_path / "model.vpem")
    np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))
    assert again.families_ == model.families_
    X[3, 0] = np.nan
    assert np.isfinite(again.impute(X)).all()
    assert "waits" in make_report(again, X)
    drawn, labels = again.sample(4000)
    for k in range(2):
        own = drawn[labels == k]
        assert (np.abs(own.mean(axis=0) - again.means_[k]) < 5 * own.std(axis=0) / np.sqrt(len(own))).all()
    X[5, 2] = 0.5
    with pytest.raises(ValueError, match=r"expected whole numbers from 0 in column .*, whose family is waits:\d+"):
        again.predict(X)


@pytest.mark.usefixtures("usage")
def test_a_column_that_does_not_fit_says_so():
    with pytest.raises(ValueError, match="column 0: has other values than whole numbers from 0, which are no waits"):
        fitted(draw() + 0.5)
    with pytest.raises(ValueError, match="expected a number after the colon, such as waits:24"):
        parse_family("waits:many")


def test_numbers_of_families_differ():
    from vpem.core.blocks.structure import FIRST_NUMBERS, family_number

    assert len({family_number(name) for name in FAMILIES}) == len(FAMILIES)
    assert {name: family_number(name) for name in FIRST_NUMBERS} == FIRST_NUMBERS, "as in files"
    assert family_number("waits") == float(family_number("waits")) > 2**32
