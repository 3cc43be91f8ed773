"""Profiles, certainty, unusual rows and imputed gaps of fitted models: against naive numpy, and by sampling."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import stats
from scipy.stats import multivariate_normal
from sklearn.exceptions import NotFittedError

import vpem
from test_own_density import Gamma
from vpem import VerticalGaussianMixture, VerticalMixture, meaning
from vpem.datasets import make_vertical_blobs

NAMES = ["income", "debt", "visits", "spent", "age"]
PARTIES = {"bank": [0, 3], "shop": [1, 2], "town": [4]}


@pytest.fixture(scope="module")
def X():
    return make_vertical_blobs(600, 1, 5, 3, correlation=0.6, random_state=3).data * [1, 10, 100, 1, 1] + 50


@pytest.fixture(scope="module", params=["full", "tied", "diag", "spherical"])
def model(X, request):
    made = VerticalGaussianMixture(3, partition=PARTIES, covariance_type=request.param, random_state=0, tol=1e-5)
    return made.fit(pd.DataFrame(X, columns=NAMES))


def as_arrays(drawn):
    return drawn[0].to_numpy(), drawn[1]


def gaps_in(X, share=0.3, seed=0):
    rng, found = np.random.default_rng(seed), X.copy()
    found[rng.random(X.shape) < share] = np.nan
    found[0], found[1, [0, 3]] = np.nan, np.nan
    return found


# Profiles


@pytest.mark.parametrize("kind", ["frame", "array", "file"])
def test_categories_that_are_numbers_have_means_of_these_numbers(kind, tmp_path):
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=500)
    dose = np.where(rng.random(500) < 0.2 + 0.6 * group, 20, rng.choice([40, 80], size=500))
    table = np.stack([dose, rng.normal(5 * group)], axis=1)
    X = table if kind == "array" else pd.DataFrame(table, columns=["dose", "age"])
    families = {0 if kind == "array" else "dose": "categorical"}
    model = VerticalMixture(2, families=families, smoothing=0.0, tol=1e-10, max_iter=500, random_state=0).fit(X)
    if kind == "file":
        vpem.save(model, tmp_path / "model.vpem")
        model = vpem.load(tmp_path / "model.vpem")
    weights = model.predict_proba(X).T
    weights /= weights.sum(axis=1, keepdims=True)
    means = weights @ dose
    deviations = np.sqrt((weights * np.square(dose - means[:, None])).sum(axis=1))
    # At a maximum the moments are those of the rows, up to what tol leaves.
    np.testing.assert_allclose(model.means_[:, 0], means, rtol=1e-5)
    found = model.profile().query("column == 'dose' or column == '0'")
    np.testing.assert_allclose(found[["mean", "deviation"]], np.stack([means, deviations], axis=1), rtol=1e-5)
    overall = found[["overall_mean", "overall_deviation"]].to_numpy()
    np.testing.assert_allclose(overall, [[dose.mean(), dose.std()]] * 2, rtol=1e-6)


def test_profiles_are_moments_of_a_large_sample(model):
    frame = model.profile()
    assert list(frame.columns[:7]) == ["component", "share", "party", "column", "mean", "deviation", "distance"]
    assert len(frame) == 15
    rows, labels = as_arrays(model.sample(200_000))
    for (component, column), one in frame.set_index(["component", "column"]).iterrows():
        values = rows[:, NAMES.index(column)]
        own = values[labels == component]
        error = 6 * one["deviation"] / np.sqrt(len(own))
        assert one["mean"] == pytest.approx(own.mean(), abs=error)
        assert one["deviation"] == pytest.approx(own.std(), rel=0.05)
        assert one["overall_mean"] == pytest.approx(values.mean(), abs=6 * values.std() / 400)
        assert one["overall_deviation"] == pytest.approx(values.std(), rel=0.02)
        assert one["distance"] == pytest.approx((own.mean() - values.mean()) / values.std(), abs=0.1)
        assert column in [NAMES[number] for number in PARTIES[one["party"]]]
    np.testing.assert_allclose(frame.groupby("component")["share"].first(), model.weights_)


def test_frames_without_pandas_are_polars_and_then_arrow(model, monkeypatch):
    expected = model.profile()
    import vpem.estimators.frames as frames

    def hide(*hidden):
        def import_module(name):
            if name in hidden:
                raise ModuleNotFoundError(name=name)
            return __import__(name)

        monkeypatch.setattr(frames, "import_module", import_module)

    hide("pandas")
    assert isinstance(model.profile(), pl.DataFrame)
    assert model.profile()["mean"].to_list() == expected["mean"].tolist()
    hide("pandas", "polars")
    assert isinstance(model.profile(), pa.Table)
    assert model.profile().column_names == list(expected.columns)


# Importance


def test_importance_of_columns_and_parties(model):
    columns, parties = model.importance(), model.importance(by="party")
    assert columns["information"].is_monotonic_decreasing
    assert sorted(columns["column"]) == sorted(NAMES)
    assert set(parties["party"]) == set(PARTIES)
    most = meaning.entropy(model.weights_)
    np.testing.assert_allclose(columns["share"], columns["information"] / most)
    of = {(one["party"], one["column"]): one["information"] for _, one in columns.iterrows()}
    for _, party in parties.iterrows():
        own = [nats for (holder, _), nats in of.items() if holder == party["party"]]
        assert party["information"] >= max(own) - 5 * party["error"]
        assert party["information"] <= most
        if len(own) == 1:
            assert (party["information"], party["error"]) == (own[0], 0.0)
    with pytest.raises(ValueError, match="expected by to be one of"):
        model.importance(by="row")


def test_a_party_of_a_hub_counts_for_its_own_columns(X):
    hub = VerticalGaussianMixture(3, partition=PARTIES, graph="path", hops=1, random_state=0, tol=1e-5).fit(X)
    assert len(hub.hubs_) < 3
    by_party = dict(hub.importance(by="party").set_index("party")["information"])
    by_column = dict(hub.importance().set_index("column")["information"])
    assert by_party["town"] == by_column["4"]
    assert max(by_column["0"], by_column["3"]) - 0.01 < by_party["bank"] < by_column["0"] + by_column["3"] + 0.5


# Certainty


def test_certainty_is_counted_naively(model, X):
    rows = gaps_in(X)
    found, sure = (
        model.certainty(pd.DataFrame(rows, columns=NAMES)),
        model.predict_proba(pd.DataFrame(rows, columns=NAMES)),
    )
    sure = sure[~np.isnan(rows).all(axis=1)]
    assert found.n_rows == len(sure)
    for i in range(3):
        for j in range(3):
            expected = sum(row[i] for row in sure if row.argmax() == j) / sure[:, i].sum()
            assert found.confusion[i, j] == pytest.approx(expected)
    for k in range(3):
        expected, _ = np.histogram(sure.max(axis=1)[sure.argmax(axis=1) == k], bins=found.edges)
        assert found.counts[k].tolist() == expected.tolist()
    assert found.mean_largest == pytest.approx(sure.max(axis=1).mean())
    assert found.sure_share == pytest.approx((sure.max(axis=1) > 0.95).mean())
    np.testing.assert_allclose(found.confusion.sum(axis=1), 1)
    pairs = found.confused_pairs(most=6, least=0)
    assert [share for *_, share in pairs] == sorted((share for *_, share in pairs), reverse=True)
    assert all(i != j and found.confusion[i, j] == share for i, j, share in pairs)
    with pytest.raises(ValueError, match="expected rows with some values"):
        model.certainty(pd.DataFrame(rows[:1], columns=NAMES))


def test_the_confusion_is_what_a_sample_shows(model):
    rows, labels = as_arrays(model.sample(50_000))
    frame = pd.DataFrame(rows, columns=NAMES)
    taken = model.predict(frame)
    found = model.certainty(frame).confusion
    for i in range(3):
        for j in range(3):
            assert found[i, j] == pytest.approx((taken[labels == i] == j).mean(), abs=0.02)


def test_tails_of_the_models_own_rows_are_uniform_whatever_their_gaps(model):
    rows, _ = as_arrays(model.sample(4000))
    rows = rows[np.random.default_rng(0).permutation(4000)]
    rows[:1000, :2] = rows[1000:2000, 4] = np.nan
    rows[2000:2300, :4] = np.nan
    scores = model.score_samples(pd.DataFrame(rows, columns=NAMES))
    tails, _ = meaning.typicality(*model.fitted_.parts, rows, scores)
    for part in (slice(0, 1000), slice(1000, 2000), slice(2000, 2300), slice(2300, 4000)):
        share = np.array([(tails[part] <= level).mean() for level in (0.1, 0.5, 0.9)])
        assert np.abs(share - [0.1, 0.5, 0.9]).max() < 0.08


def test_unusual_rows_are_found_among_rows_with_gaps(model):
    rows, _ = as_arrays(model.sample(500))
    rows = gaps_in(rows, 0.2)
    rows[17], rows[42], rows[99] = np.nan, np.nan, np.nan
    rows[17, 4] = model.means_[:, 4].max() + 60
    rows[42] = model.means_[0] + [0, 1e4, 0, 0, 0]
    frame = pd.DataFrame(rows, columns=NAMES)
    found = model.unusual_rows(frame, 5)
    assert set(found["row"][:2]) == {17, 42}, "the fewer columns a row has the larger its density, but not its tail"
    assert dict(zip(found["row"], found["column"], strict=True))[42] == "debt"
    assert dict(zip(found["row"], found["column"], strict=True))[17] == "age"
    assert (found["tail_probability"][:2] == 1 / 2001).all()
    np.testing.assert_allclose(found["log_density"], model.score_samples(frame)[found["row"]])
    assert 99 not in set(model.unusual_rows(frame, 500)["row"]), "a row without any value fits"
    with pytest.raises(ValueError, match="n_rows"):
        model.unusual_rows(frame, 0)


@pytest.mark.parametrize("family", ["zeros", "zeros:gaussian"])
def test_which_rows_are_unusual_does_not_depend_on_the_unit_of_amounts(family):
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=600)
    spent = np.where(rng.random(600) < 0.3 + 0.3 * group, 0.0, np.exp(rng.normal(7 + group, 1.0)))
    age, found = rng.normal(3 * group), []
    for unit in (1.0, 2.0**-20):  # euros, and about millions, without rounding
        table = pd.DataFrame({"spent": unit * spent, "age": age})
        model = VerticalMixture(2, families={"spent": family}, random_state=0).fit(table)
        found.append(model.unusual_rows(table, 600).sort_values("row"))
    # Draws of the model round differently in another unit: one of 2,000 may change places.
    tails = [one["tail_probability"].to_numpy() for one in found]
    np.testing.assert_allclose(*tails, atol=1.1 / 2001)
    np.testing.assert_allclose(*(one["score"] for one in found), atol=1e-6)


@pytest.mark.parametrize("family", ["zeros", "zeros:gaussian"])
def test_amounts_are_compared_with_zeros_by_their_deviation(family):
    rng = np.random.default_rng(1)
    x = np.where(rng.random(1000) < 0.3, 0.0, np.exp(rng.normal(5, 0.5, 1000)))
    model = VerticalMixture(1, families=family).fit(x[:, None])
    y = np.log(np.maximum(x, 1e-300)) if family == "zeros" else x
    z = (y - y[x > 0].mean()) / y[x > 0].std()
    share = (x == 0).mean()
    of_zero, of_rest = np.log(share), np.log(1 - share) + stats.norm.logpdf(z)
    # A row of the model fits as badly: an amount at least as far from the mean, or zero if that is as unlikely.
    as_far = (1 - share) * 2 * stats.norm.sf(np.abs(z)) + share * (of_zero <= of_rest)
    least = np.sqrt(np.maximum(2 * (of_rest.max() - of_zero), 0.0)) if of_zero < of_rest.max() else 0.0
    expected = np.where(x == 0, share + (1 - share) * 2 * stats.norm.sf(least), as_far)
    tails = model.unusual_rows(x[:, None], 1000).sort_values("row")["tail_probability"]
    # Four standard errors of 2,000 draws.
    assert np.abs(tails - expected).max() < 4 * np.sqrt(0.25 / 2000)


# Imputation


def naive(model, row):
    """Conditional mean and variance of a row's gaps by dense Gaussians, one component at a time."""
    gone, there = np.isnan(row), ~np.isnan(row)
    posts, means, variances = [], [], []
    for weight, mean, covariance in zip(model.weights_, model.means_, model.covariance_matrix(), strict=True):
        seen, across = covariance[np.ix_(there, there)], covariance[np.ix_(gone, there)]
        posts.append(weight * (multivariate_normal(mean[there], seen).pdf(row[there]) if there.any() else 1.0))
        gain = across @ np.linalg.inv(seen) if there.any() else np.zeros((gone.sum(), 0))
        means.append(mean[gone] + gain @ (row[there] - mean[there]))
        variances.append(np.diag(covariance[np.ix_(gone, gone)] - gain @ across.T))
    posts, means, variances = np.array(posts) / np.sum(posts), np.array(means), np.array(variances)
    centre = posts @ means
    return centre, np.sqrt(posts @ (variances + means**2) - centre**2)


def test_gaps_are_dense_conditionals(model, X, small_chunks):
    rows = gaps_in(X)
    frame = pd.DataFrame(rows, columns=NAMES)
    filled, deviations = model.impute(frame, return_std=True)
    np.testing.assert_array_equal(filled.to_numpy()[~np.isnan(rows)], rows[~np.isnan(rows)])
    assert (deviations.to_numpy()[~np.isnan(rows)] == 0).all()
    for number in range(0, 600, 7):
        gone = np.isnan(rows[number])
        centre, spread = naive(model, rows[number])
        np.testing.assert_allclose(filled.to_numpy()[number, gone], centre, rtol=1e-8)
        np.testing.assert_allclose(deviations.to_numpy()[number, gone], spread, rtol=1e-5)


def test_errors_of_imputed_values_are_as_large_as_told(model):
    rows, _ = as_arrays(model.sample(20_000))
    frame = pd.DataFrame(gaps_in(rows), columns=NAMES)
    filled, deviations = model.impute(frame, return_std=True)
    gone = np.isnan(frame.to_numpy())
    errors = (filled.to_numpy() - rows)[gone] / deviations.to_numpy()[gone]
    assert abs(errors.mean()) < 0.03
    assert errors.std() == pytest.approx(1, abs=0.03)


def test_the_kind_of_table_is_kept(X):
    rows = gaps_in(X)
    rows[:, 4] = np.round(X[:, 4])
    model = VerticalGaussianMixture(3, partition=PARTIES, random_state=0).fit(rows)
    expected = model.impute(rows)
    assert isinstance(expected, np.ndarray)
    assert not np.isnan(expected).any()
    frame = pd.DataFrame(rows, columns=NAMES, index=np.arange(600) + 7)
    frame["age"] = frame["age"].astype(int)
    named = VerticalGaussianMixture(3, partition=PARTIES, random_state=0).fit(frame)
    filled = named.impute(frame)
    assert filled.index.equals(frame.index)
    assert filled["age"].dtype == frame["age"].dtype, "a column without gaps stays as it is"
    assert np.isnan(frame["debt"]).any(), "the table that was given is not changed"
    np.testing.assert_allclose(filled, expected)
    table = pl.DataFrame({name: frame[name].to_numpy() for name in NAMES})
    other = named.impute(table)
    assert isinstance(other, pl.DataFrame)
    assert other["age"].dtype == pl.Int64
    np.testing.assert_allclose(other.to_numpy(), expected)
    assert model.impute(rows.tolist()).shape == expected.shape


def test_another_density(X):
    positive = np.abs(gaps_in(X, 0.1)) + 0.1
    model = VerticalMixture(2, density=Gamma(), partition=PARTIES, random_state=0).fit(positive)
    filled, deviations = model.impute(positive, return_std=True)
    gone = np.isnan(positive)
    posts = model.predict_proba(positive)
    found = model.profile()
    means, spreads = (found[name].to_numpy().reshape(2, 5) for name in ("mean", "deviation"))
    expected = posts @ means
    np.testing.assert_allclose(filled[gone], expected[gone])
    variances = posts @ (spreads**2 + means**2) - expected**2
    np.testing.assert_allclose(deviations[gone], np.sqrt(variances[gone]), rtol=1e-6)
    assert (model.importance()["information"] >= 0).all()
    assert len(model.importance("party")) == 3
    assert len(model.unusual_rows(positive, 3)) == 3


@pytest.mark.parametrize("method", ["profile", "importance", "certainty", "unusual_rows", "impute"])
def test_an_unfitted_model_says_so(method, X):
    with pytest.raises(NotFittedError):
        getattr(VerticalGaussianMixture(2), method)(*([] if method in ("profile", "importance") else [X]))
