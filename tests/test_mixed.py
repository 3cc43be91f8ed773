"""Columns of different families: both engines, exact gaps, batches, streams, files, words."""

import warnings
from dataclasses import replace

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vpem
from definitions import observed_contribution
from oracles import relative_error
from studies import STUDIES, bits, make_study, run
from vpem import Consensus, VerticalGaussianMixture, VerticalMixture
from vpem.core.blocks.mixed import Mixed
from vpem.core.blocks.structure import Structure, parse_family
from vpem.core.blocks.weights import LOWEST
from vpem.estimators import mixture as mixture_module
from vpem.model.category_codes import Coding, UnseenWarning
from vpem.report import make_report
from vpem.transports.inprocess import Disturbances

TEXTS = ["gaussian", "categorical:3", "gaussian", "counts:60", "zeros", "angles:24"]
PARTIES = {"a": [0, 1, 2], "b": [3, 4], "c": [5]}


def draw_column(rng, text, labels):
    """One column of a family, different for two labels."""
    n, shift = len(labels), labels * rng.uniform(0.5, 3.0)
    kind = text.split(":")[0]
    if kind == "gaussian":
        return rng.normal(size=n) + shift
    if kind == "categorical":
        n_values = int(text.split(":")[1])
        x = np.minimum(rng.poisson(0.5 + shift), n_values - 1)
        x[:n_values] = np.arange(n_values)
        return x
    if kind in ("counts", "poisson"):
        return np.minimum(rng.negative_binomial(3, 0.5 / (1 + shift)), int(text.split(":")[1]) - 1)
    if kind == "zeros":
        return np.where(rng.random(n) < 0.5, 0.0, np.exp(rng.normal(size=n) + shift))
    return rng.vonmises(shift, 2.0) * 24 / (2 * np.pi) % 24


def draw(texts=TEXTS, n=300, seed=0, gaps=0.1):
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=n)
    X = np.stack([draw_column(rng, text, labels) for text in texts], axis=1).astype(float)
    X[rng.random(X.shape) < gaps] = np.nan
    if gaps:
        X[:7, :3] = X[9] = np.nan
    return X


def density(texts=TEXTS, parties=PARTIES, **arguments):
    families = tuple((party, *(texts[column] for column in held)) for party, held in parties.items())
    return Mixed(families=families, **arguments)


def fitted(X, texts=TEXTS, parties=PARTIES, **arguments):
    own = {name: arguments.pop(name) for name in ("smoothing", "covariance_type", "reg_covar") if name in arguments}
    settings = {"density": density(texts, parties, **own), "partition": parties, "random_state": 0, "tol": 1e-6}
    model = VerticalMixture(2, **{**settings, **arguments})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X)


def by_definition(X, block):
    """Log-densities of rows, column by column; the Gaussian ones together."""
    structure = Structure.of(block)
    found = np.zeros((len(X), len(block.others)))
    if len(structure.gaussian):
        found += observed_contribution(X[:, structure.gaussian], block)
    for column, family, part, _ in structure.others:
        is_there = ~np.isnan(X[:, column])
        found[is_there] += family.log_density(X[is_there, column], block.others[:, part]).T
    return found


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_blocks_add_the_log_densities_of_their_columns(covariance_type):
    X = draw()
    model = fitted(X, covariance_type=covariance_type, max_iter=5)
    blocks = zip(PARTIES.values(), model.fitted_.mixture.blocks, strict=True)
    total = np.log(model.weights_) + sum(by_definition(X[:, held], block) for held, block in blocks)
    expected = np.logaddexp.reduce(total, axis=1)
    np.testing.assert_allclose(model.score_samples(X), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(model.predict_proba(X), np.exp(total - expected[:, None]), atol=1e-10)


@pytest.mark.parametrize("batch_size", [None, 60])
@pytest.mark.parametrize("graph", ["star", "ring", "hubs", "differences"])
@pytest.mark.parametrize("init_params", ["kmeans", "labels", "random", "random_from_data"])
def test_both_engines_fit_the_same(graph, batch_size, init_params):
    X = draw(n=150)
    arguments = {"batch_size": batch_size, "init_params": init_params, "n_init": 2, "max_iter": 5}
    arguments |= {"tol": 1e9 if batch_size else 1e-3}
    if graph == "hubs":
        arguments |= {"graph": nx.relabel_nodes(nx.path_graph(3), dict(enumerate(PARTIES))), "hops": 1}
    elif graph == "differences":
        arguments |= {"summation": vpem.Differences(vpem.Star())}
    else:
        arguments |= {"graph": graph, "summation": None if graph == "star" else Consensus(6)}
    one, other = (fitted(X, engine=engine, **arguments) for engine in ("simulation", "agents"))
    assert relative_error(other.hub_weights_, one.hub_weights_) < 1e-9
    assert relative_error(other.lower_bounds_, one.lower_bounds_) < 1e-9
    for found, expected in zip(other.parameters_, one.parameters_, strict=True):
        for name in ("means", "covariances", "others"):
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-7, atol=1e-9)
    np.testing.assert_array_equal(other.traffic_.table, one.traffic_.table)


@pytest.mark.parametrize("study", STUDIES)
def test_however_messages_are_delivered_the_bits_are_the_same(study):
    graph, arguments = STUDIES[study]
    X = draw(n=24)
    n_parties = 4 if isinstance(graph, str) else len(graph)
    columns = {number: held.tolist() for number, held in enumerate(np.array_split(range(6), n_parties))}
    arguments = {**arguments, "X": X, "columns": columns, "density": density(parties=columns, reg_covar=1e-3)}
    expected = bits(run(make_study(graph, **arguments)[0]).agents.values())
    disturbances = Disturbances(np.random.default_rng(0), delay=0.2, duplicate=0.2, kill=0.2)
    found = run(make_study(graph, **arguments)[0], encoded=True, disturbances=disturbances)
    assert bits(found.agents.values()) == expected


KINDS = [
    "gaussian",
    "categorical:3",
    "categorical:5",
    "counts:60",
    "poisson:60",
    "zeros",
    "zeros:gaussian",
    "angles:24",
]


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from(KINDS), min_size=2, max_size=5),
    st.integers(0, 2**16),
    st.sampled_from([0.0, 0.2]),
    st.sampled_from(["star", "path", "complete"]),
    st.sampled_from([None, 50]),
    st.sampled_from(["random", "kmeans"]),
)
def test_the_likelihood_never_falls(texts, seed, gaps, graph, batch_size, init_params):
    X = draw(texts, n=200, seed=seed, gaps=gaps)
    parties = {"a": [0], "b": list(range(1, len(texts)))}
    arguments = {"graph": graph, "batch_size": batch_size, "init_params": init_params, "max_iter": 15, "tol": 0.0}
    model = fitted(X, texts, parties, smoothing=0.0, reg_covar=1e-9, random_state=seed, **arguments)
    if not model.repairs_:
        assert np.diff(model.lower_bounds_).min() > -1e-9 * abs(model.lower_bound_)


def test_a_split_changes_nothing_but_the_covariance():
    texts = ["categorical:3", "counts:60", "zeros", "angles:24"]
    X = draw(texts)
    whole, split = (
        fitted(X, texts, parties, init_params="random", max_iter=8, tol=0.0)
        for parties in ({"a": [0, 1, 2, 3]}, {"a": [0], "b": [1], "c": [2], "d": [3]})
    )
    assert relative_error(whole.lower_bounds_, split.lower_bounds_) < 1e-12


def test_gaussian_columns_alone_are_the_gaussian_case():
    X = draw(["gaussian"] * 4)
    parties = {"a": [0, 1], "b": [2, 3]}
    mixed = fitted(X, ["gaussian"] * 4, parties, init_params="random_from_data", tol=1e-8)
    gaussian = VerticalGaussianMixture(2, partition=parties, init_params="random_from_data", random_state=0, tol=1e-8)
    gaussian.fit(X)
    assert relative_error(mixed.lower_bounds_, gaussian.lower_bounds_) < 1e-12
    assert mixed.bic(X) == pytest.approx(gaussian.bic(X))


def test_streams_and_repairs():
    X = draw(n=400)
    model = VerticalMixture(2, density=density(), partition=PARTIES, random_state=0)
    for start in range(0, 400, 50):
        model.partial_fit(X[start : start + 50])
    assert np.isfinite(model.score(X))
    X = np.where(np.isnan(X), 1.0, X)
    X[:60] = X[0]
    repaired = VerticalMixture(6, density=density(), partition=PARTIES, random_state=0, max_iter=200)
    with pytest.warns(UserWarning, match="sit on one value"):
        repaired.fit(X)
    assert np.isfinite(repaired.score(X))


def test_squarem_ends_where_em_does():
    X = draw(n=600, gaps=0.0)
    plain, fast = (fitted(X, accelerate=accelerate, max_iter=500, tol=1e-9) for accelerate in (None, "squarem"))
    assert fast.lower_bound_ == pytest.approx(plain.lower_bound_, abs=1e-4)


def test_parameters_are_counted():
    found = fitted(draw())
    # Weights 1; party a: means 2, covariance 3, categories 2; b: counts 2, zeros 3; c: angles 2.
    assert found.fitted_.n_parameters == 1 + 2 * (2 + 3 + 2 + 2 + 3 + 2)


def test_values_that_are_none_say_so():
    X = draw(gaps=0.0)
    model = fitted(X)
    for column, value, message in [
        (1, 7.0, r"numbers from 0 to 2 in (a )?column .*categorical:3, got 7"),
        (1, 0.5, "got 0.5"),
        (3, 77.0, "from 0 to 59 in a column of the family counts:60"),
        (3, -2.0, "expected whole numbers from 0 in .*counts:60, got -2; .*fit the column as gaussian or zeros"),
        (4, -1.0, "expected amounts of at least 0 .* got -1; .*zeros:gaussian"),
        (5, 25.0, "expected angles from -24 to 24 .*angles:24, got 25; .*period"),
    ]:
        wrong = X.copy()
        wrong[5, column] = value
        for engine in ("simulation", "agents"):
            with pytest.raises(ValueError, match=message):
                fitted(wrong, engine=engine)
        if value != 77.0:  # a count that was never seen is still one
            with pytest.raises(ValueError, match=rf"row 5: .*column '{column}', .*{message.split('.*')[-1]}"):
                model.predict(wrong)
        else:
            assert np.isfinite(model.score_samples(wrong)[5])
            expected = by_definition(wrong[5:6, 3:5], model.fitted_.mixture.blocks[1])
            alone = np.where(np.isin(np.arange(6), [3, 4]), wrong[5:6], np.nan)
            joint = np.logaddexp.reduce(expected + np.log(model.weights_), axis=1)
            np.testing.assert_allclose(model.score_samples(alone), joint, rtol=1e-10)
    mixture = model.fitted_.mixture
    assert mixture.density.log_density(np.array([[-1.0], [np.nan]])[::-1], mixture.blocks[1]).max() == LOWEST


def people(n=400, seed=0):
    """A table as people have it."""
    rng = np.random.default_rng(seed)
    group = rng.integers(2, size=n)
    job = np.where(rng.random(n) < 0.2 + 0.6 * group, "nurse", rng.choice(["smith", "clerk"], size=n)).astype(object)
    job[::17] = None
    return pd.DataFrame(
        {
            "age": rng.normal(40 + 15 * group, 5).round(2),
            "job": job,
            "smokes": rng.random(n) < 0.3 + 0.4 * group,
            "children": rng.poisson(1 + 2 * group).clip(0, 12),
            "spent": np.where(rng.random(n) < 0.6, 0.0, np.exp(rng.normal(3 + group, 0.5, size=n)).round(2)),
            "rating": rng.choice([1, 2, 5], size=n),
            "hour": rng.vonmises(group * 2.0, 2.0) * 24 / (2 * np.pi) % 24,
        }
    )


HELD = {"registry": ["age", "job", "children"], "shop": ["spent", "rating", "hour"], "doctor": ["smokes"]}


def test_families_are_found_at_the_party():
    table = people()
    model = VerticalMixture(2, partition=HELD, families={"hour": "angles:24"}, random_state=0).fit(table)
    assert model.families_ == {
        "age": "gaussian",
        "job": "categorical:3",
        "smokes": "categorical:2",
        "children": f"categorical:{table.children.nunique()}",
        "spent": "zeros",
        "rating": "categorical:3",
        "hour": "angles:24",
    }
    assert model.categories_["job"] == ["clerk", "nurse", "smith"]
    assert model.categories_["rating"] == ["1", "2", "5"]
    drawn, _ = model.sample(200)
    assert set(drawn["rating"]) <= {1, 2, 5}
    assert set(drawn["job"]) <= {"clerk", "nurse", "smith"}
    assert np.isfinite(model.score(drawn))
    profile = model.profile()
    assert set(profile.loc[profile.column == "job", "category"]) <= {"clerk", "nurse", "smith"}
    assert model.importance()["information"].max() > 0.1
    named = {"registry": "gaussian", "children": "counts", "hour": "angles:24", "job": "categorical"}
    again = VerticalMixture(2, partition=HELD, families=named, random_state=0).fit(table)
    assert again.families_["children"] == f"counts:{table.children.max() + 1}"
    assert again.families_["age"] == "gaussian"


def test_unseen_categories_count_as_missing_and_this_is_said():
    table = people()
    model = VerticalMixture(2, partition=HELD, random_state=0).fit(table)
    new = table.iloc[:20].copy()
    new.loc[[3, 4], "job"] = "astronaut"
    new.loc[5, "rating"] = 4
    with pytest.warns(UnseenWarning, match="'job': 'astronaut'; 'rating': '4'"):
        found = model.predict_proba(new)
    missing = table.iloc[:20].copy().astype({"rating": float})
    missing.loc[[3, 4], "job"] = None
    missing.loc[5, "rating"] = np.nan
    np.testing.assert_allclose(found, model.predict_proba(missing))


def test_gaps_among_words_become_words():
    table = people()
    model = VerticalMixture(2, partition=HELD, random_state=0).fit(table)
    filled, doubt = model.impute(table, return_std=True)
    assert set(filled["job"]) == {"clerk", "nurse", "smith"}
    there = table["job"].notna()
    assert (filled["job"][there] == table["job"][there]).all()
    assert doubt["job"][~there].between(0.01, 0.99).all()
    np.testing.assert_array_equal(filled["rating"], table["rating"])


def test_tables_of_parties_with_words():
    table = people()
    table["person"] = np.arange(len(table)) + 1000
    tables = {party: table[["person", *own]] for party, own in HELD.items()}
    model = VerticalMixture(2, random_state=0).fit(tables, on="person")
    whole = VerticalMixture(2, partition=HELD, random_state=0).fit(table.drop(columns="person"))
    assert model.families_ == {name: whole.families_[name] for name in model.families_}
    some = {"registry": tables["registry"].iloc[:50].replace({"job": {"smith": "cook"}})}
    with pytest.warns(UnseenWarning, match="cook"):
        assert model.predict_proba(some).shape == (50, 2)


def test_files_keep_families_and_categories(tmp_path):
    table = people()
    model = VerticalMixture(2, partition=HELD, families={"hour": "angles:24"}, standardize=True, random_state=0).fit(
        table
    )
    vpem.save(model, tmp_path / "model")
    again = vpem.load(tmp_path / "model")
    assert again.families_ == model.families_
    assert again.categories_ == model.categories_
    np.testing.assert_array_equal(again.score_samples(table), model.score_samples(table))
    assert again.bic(table) == model.bic(table)
    page = make_report(again, table)
    assert '"labels":["nurse","' in page.replace(", ", ",")
    assert "astronaut" not in page


def test_standardize_changes_units_only():
    table = people().assign(age=lambda own: 1e6 * own.age)
    plain, scaled = (
        VerticalMixture(2, partition=HELD, random_state=0, standardize=standardize, tol=1e-8, reg_covar=0.0).fit(
            table
        )
        for standardize in (False, True)
    )
    assert scaled.scale_[list(scaled.feature_names_in_).index("job")] == 1.0
    assert scaled.lower_bound_ == pytest.approx(plain.lower_bound_, abs=1e-6)
    np.testing.assert_allclose(scaled.means_, plain.means_, rtol=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"when": pd.date_range("2020", periods=400)}, "got dates or times in column 'when'.*date_numbers"),
        ({"name": [f"person {n}" for n in range(400)]}, "column 'name': .* words, all of them different"),
        ({"id": np.arange(5, 405)}, "column 'id': has whole numbers that grow from row to row, an id or a clock"),
        ({"same": "x"}, "column 'same': always the same value"),
        ({"text": [f"word {n % 70}" for n in range(400)]}, "column 'text': has 70 different words, free text"),
    ],
)
def test_columns_that_no_family_takes_are_named(change, message):
    table = people().assign(**change)
    with pytest.raises(ValueError, match=message):
        VerticalMixture(2, random_state=0).fit(table)


@pytest.mark.parametrize(
    ("families", "message"),
    [
        ({"hour": "angles"}, "needs the period of its angles"),
        ({"hour": "counts"}, "has other values than whole numbers"),
        ({"job": "gaussian"}, "has words, which are categories and not 'gaussian'"),
        ({"jobs": "gaussian"}, "expected families of columns or parties, got 'jobs'"),
        ({"hour": "normal"}, "expected a family of gaussian, categorical"),
        (7, "expected families to be 'auto'"),
        ({"age": 7}, "expected a family as a text"),
    ],
)
def test_wrong_families_say_what_was_expected(families, message):
    with pytest.raises((TypeError, ValueError), match=message):
        VerticalMixture(2, families=families, random_state=0).fit(people())


def test_a_start_for_categories_alone():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=600)
    X = np.stack([np.where(rng.random(600) < 0.85, labels, rng.integers(3, size=600)) for _ in range(8)], axis=1)
    for init_params in ("kmeans", "k-means++", "labels"):
        model = VerticalMixture(3, init_params=init_params, families="categorical", random_state=0, n_init=3).fit(X)
        found = model.predict(X)
        best = np.mean([np.bincount(labels[found == k]).max() / (found == k).sum() for k in range(3)])
        assert best > 0.95


@pytest.mark.parametrize("rho", [0.0, 0.8])
def test_what_pooling_would_gain_is_bounded_by_the_truth(rho):
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=4000)
    noise = rng.multivariate_normal([0, 0, 0], [[1, rho, 0], [rho, 1, 0], [0, 0, 1]], size=4000)
    X = noise + 6 * labels[:, None]
    X[::7, 0] = np.nan
    gains = VerticalGaussianMixture(2, random_state=0).fit(X).pooling_gains(X)
    found = {(row.one, row.other): row.nats for row in gains.itertuples()}
    truth = -0.5 * np.log(1 - rho**2)
    assert 0.7 * truth <= found["0", "1"] <= truth + 0.03
    assert max(found["0", "2"], found["1", "2"]) < 0.01
    # Of categories too, where ties are broken at random.
    words = np.digitize(X, [-1, 0, 1, 5, 6, 7]).astype(float)
    model = VerticalMixture(2, families="categorical", random_state=0).fit(words)
    found = {(row.one, row.other): row.nats for row in model.pooling_gains(words).itertuples()}
    assert (0.02 if rho else -1) < found["0", "1"] <= truth + 0.03


def test_a_family_reads_as_it_is_written():
    for text in KINDS[1:]:
        assert str(parse_family(text)) == text


def test_few_rows_need_not_look_like_a_whole_table():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=300), "w": rng.choice(["1", "two", "ex"], 300, p=[0.2, 0.4, 0.4])})
    model = VerticalMixture(2, random_state=0).fit(table)
    expected = model.predict_proba(table)
    different = table.drop_duplicates("w")
    np.testing.assert_array_equal(model.predict_proba(different), expected[different.index])
    alone = table["w"] == "1"  # that could be numbers
    np.testing.assert_array_equal(model.predict_proba(table[alone]), expected[alone])
    assert np.isfinite(model.predict_proba(table.assign(a=np.nan))).all()
    assert np.isfinite(model.predict_proba(table.assign(w=None))).all()


def test_numbers_among_objects_stay_as_they_are():
    rng = np.random.default_rng(0)
    values = np.where(rng.random(300) < 0.2, None, rng.choice([-1, 0, 1], 300))
    table = pd.DataFrame({"a": rng.normal(size=300), "w": values})
    filled = VerticalMixture(2, random_state=0).fit(table).impute(table)
    there = table["w"].notna()
    assert (filled["w"][there].astype(float) == table["w"][there].astype(float)).all()
    assert set(filled["w"][~there].astype(float)) <= {-1.0, 0.0, 1.0}


def test_numbers_that_differ_in_late_digits_have_names_of_their_own(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=300), "day": rng.choice([20210101, 20210102], 300)})
    model = VerticalMixture(2, random_state=0).fit(table)
    vpem.save(model, tmp_path / "model.vpem")
    assert vpem.load(tmp_path / "model.vpem").categories_ == {"day": ["20210101", "20210102"]}


def test_one_amount_beside_zero_has_no_spread():
    table = pd.DataFrame({"a": np.random.default_rng(0).normal(size=50), "z": np.repeat([0.0, 5.3], 25)})
    with pytest.raises(ValueError, match="column 'z': has one amount beside zero"):
        VerticalMixture(2, families={"z": "zeros"}).fit(table)
    with pytest.raises(ValueError, match="whole number of values"):
        VerticalMixture(2, families={"a": "counts:inf"}).fit(table)


@pytest.mark.parametrize("engine", ["simulation", "agents"])
@pytest.mark.parametrize("batch_size", [None, 150])
def test_amounts_far_from_zero_keep_their_digits(engine, batch_size):
    # Multiples of 2^-20 are exact near 2^27 as near 0, and amounts that all move by as much fit as before.
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=600)
    rest, is_zero = np.round((rng.normal(size=600) + 4 * group) * 2**20) / 2**20 + 20, rng.random(600) < 0.4
    other = rng.normal(size=600) + 3 * group
    arguments = {"families": {0: "zeros:gaussian"}, "random_state": 0, "engine": engine, "batch_size": batch_size}
    near, far = (
        VerticalMixture(2, tol=1e-9, max_iter=500, **arguments).fit(
            np.stack([np.where(is_zero, 0, x), other], axis=1)
        )
        for x in (rest, rest + 2.0**27)
    )
    expected, found = (one.parameters_[0]["others"].T[:3].copy() for one in (near, far))
    found[1] -= 2.0**27
    # A mean near 2^27 has 8 digits behind the point.
    np.testing.assert_allclose(found, expected, rtol=1e-7)
    assert far.log_likelihood_ == pytest.approx(near.log_likelihood_, abs=1e-8)


@pytest.mark.parametrize("text", ["zeros", "zeros:gaussian"])
@pytest.mark.parametrize("size", [1e8, 1e9])
def test_moments_of_amounts_far_from_zero_are_numpys(text, size):
    rng = np.random.default_rng(0)
    x = np.where(rng.random(2000) < 0.4, 0.0, size + 3 * rng.normal(size=2000))
    model = VerticalMixture(1, families={0: text}).fit(np.stack([x, rng.normal(size=2000)], axis=1))
    y = np.log(x[x > 0]) if text == "zeros" else x[x > 0]
    _, mean, variance, *_ = model.parameters_[0]["others"][0]
    # Logarithms of 1e9 +- 3 have 9 digits behind their common ones, of which squares keep 12.
    assert mean == pytest.approx(y.mean(), rel=0, abs=1e-6 * y.std())
    assert variance == pytest.approx(y.var(), rel=1e-11, abs=0)


def test_hours_around_midnight():
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=400)
    hour = (np.where(group, 23.0, 1.0) + rng.normal(0, 0.3, 400)) % 24
    table = pd.DataFrame({"a": rng.normal(size=400), "hour": np.where(rng.random(400) < 0.1, np.nan, hour)})
    model = VerticalMixture(2, families={"hour": "angles:24"}, random_state=0).fit(table)
    gaps = table["hour"].isna()
    filled, doubt = model.impute(table, return_std=True)
    near = (filled["hour"][gaps] + 12) % 24 - 12
    assert near.abs().max() < 1.2
    assert doubt["hour"][gaps].between(0.2, 1.2).all()
    profile = model.fitted_.profile
    assert abs((profile.overall_means[1] + 12) % 24 - 12) < 0.3
    assert profile.overall_deviations[1] == pytest.approx(np.hypot(1.0, 0.3), abs=0.1)
    assert (np.abs(profile.distances[:, 1]) < 1.2).all()


def test_codes_that_look_like_numbers_are_categories_if_said(tmp_path):
    rng = np.random.default_rng(0)
    codes = rng.choice(["01", "02", "1", "A3"], 200, p=[0.4, 0.3, 0.25, 0.05])
    table = pd.DataFrame({"x": rng.normal(size=200), "code": codes})
    with pytest.raises(ValueError, match=r"'A3'; \d+ of 200 values are no numbers; .* say that it is categorical"):
        VerticalMixture(2, random_state=0).fit(table)
    for families in ({"code": "categorical"}, {"b": "categorical"}):
        model = VerticalMixture(2, partition={"a": ["x"], "b": ["code"]}, families=families, random_state=0).fit(
            table
        )
        assert model.categories_ == {"code": ["01", "02", "1", "A3"]}
    expected = model.predict_proba(table)
    vpem.save(model, tmp_path / "model.vpem")
    digits = table["code"] != "A3"  # new rows that could all be numbers
    np.testing.assert_array_equal(vpem.load(tmp_path / "model.vpem").predict_proba(table[digits]), expected[digits])
    alone = VerticalMixture(2, families={"code": "categorical"}, random_state=0).fit(table[digits])
    assert alone.categories_ == {"code": ["01", "02", "1"]}, "01 is not 1"
    numbers = table.assign(code=rng.choice([1, 2, 10], 200))
    alone = VerticalMixture(2, families="categorical", random_state=0).fit(numbers[["code"]])
    assert alone.categories_ == {"code": ["1", "2", "10"]}, "numbers are in their own order"


def test_numbers_are_not_taken_for_words_that_look_like_them():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=200), "w": rng.choice(["01", "02", "03"], 200)})
    model = VerticalMixture(2, families={"w": "categorical"}, random_state=0).fit(table)
    with pytest.raises(
        ValueError, match=r"expected words in column 'w', .* such as '01', got numbers, such as [123];"
    ):
        model.predict(table.assign(w=table["w"].astype(int)))
    both = VerticalMixture(2, families={"w": "categorical"}, random_state=0).fit(
        table.assign(v=rng.choice(["x", "y"], 200))
    )
    with pytest.raises(ValueError, match="got numbers"):
        both.predict(table.assign(w=table["w"].astype(int), v="x"))
    assert np.isfinite(model.score_samples(table.assign(w=np.nan))).all()
    codes = table.assign(w=table["w"].astype(int) - 1.0).to_numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an array has no names
        np.testing.assert_array_equal(model.score_samples(codes), model.score_samples(table))


def test_numbers_become_the_words_that_they_are():
    coding = Coding({0: ["01", "1", "2.5", "A3"], 1: ["False", "True"]})
    values = np.array([1, 2.5, np.nan, 1])
    np.testing.assert_array_equal(coding.code_numbers(0, values, "w"), [1, 2, np.nan, 1])
    np.testing.assert_array_equal(coding.code_numbers(1, np.array([0.0, 1, np.nan]), "t"), [0, 1, np.nan])
    with pytest.raises(ValueError, match=r"expected words in column 'w', .* got numbers, such as 7; give the texts"):
        coding.code_numbers(0, np.array([1.0, 7.0]), "w")


@pytest.mark.parametrize("fitted_on", [[True, False], ["TRUE", "FALSE"], ["True", "False", "maybe"]])
def test_truth_values_are_the_same_however_they_are_written(fitted_on):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"a": rng.normal(size=200), "w": pd.Series(fitted_on)[rng.integers(len(fitted_on), size=200)].to_numpy()}
    )
    model = VerticalMixture(2, random_state=0).fit(table)
    some = table[table["w"].astype(str) != "maybe"].iloc[:20]
    expected = model.predict_proba(some)
    is_true = some["w"].astype(str).str.lower() == "true"
    for true, false in ((True, False), ("TRUE", "FALSE"), ("true", "False")):
        np.testing.assert_array_equal(model.predict_proba(some.assign(w=np.where(is_true, true, false))), expected)


@pytest.mark.parametrize("family", ["auto", "categorical", "counts", "angles:24", "gaussian"])
@pytest.mark.parametrize(
    "empty", [np.nan, pd.array([None] * 50, dtype="boolean"), pd.array([None] * 50, dtype="string")]
)
def test_a_column_without_any_value_is_named(family, empty):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=50), "b": empty})
    with pytest.raises(ValueError, match=r"column 'b':? has no value at all.*leave"):
        VerticalMixture(2, families={"b": family}).fit(table)
    with pytest.raises(ValueError, match="column 1: has no value at all; leave it out"):
        VerticalMixture(2, families={1: family}).fit(np.column_stack([table["a"], np.full(50, np.nan)]))


@pytest.mark.parametrize("family", ["counts", "poisson"])
def test_counts_of_later_rows_may_be_larger(family, tmp_path):
    """A stream with room from the beginning is the same, but for rounding: no parameter depends on the room."""
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=400)
    table = pd.DataFrame(
        {
            "a": rng.normal(size=400) + 3 * group,
            "w": rng.choice(["x", "y"], 400),
            "n": rng.poisson(3 + 2 * group),
            "m": rng.poisson(30 + 2 * group),
        }
    )
    table.loc[200:, "n"] += rng.integers(0, 40, size=200) * (np.arange(200) > 5)
    table.loc[300:, "n"] *= 5
    families = {"n": family, "m": "counts"}
    arguments = {"partition": {"p": ["a", "n"], "q": ["w", "m"]}, "random_state": 0}
    stream, roomy = (VerticalMixture(2, families=families, **arguments) for _ in range(2))
    sizes, find = [], mixture_module.find_families

    def find_with_room(given, rows, *about):
        texts = list(find(given, rows, *about).texts)
        texts[2] = f"{family}:{table['n'].max() + 1}"
        return replace(find(given, rows, *about), texts=tuple(texts))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixture_module, "find_families", find_with_room)
        roomy.partial_fit(table[:100])
    stream.partial_fit(table[:100])
    for start in range(100, 400, 100):
        for model in (stream, roomy):
            model.partial_fit(table[start : start + 100])
        sizes.append(int(stream.families_["n"].split(":")[1]))
    assert sizes[0] < sizes[1] < sizes[2] <= 2 * (table["n"].max() + 1)
    for one, other in zip(stream.fitted_.mixture.blocks, roomy.fitted_.mixture.blocks, strict=True):
        for name in ("means", "covariances", "others"):
            np.testing.assert_allclose(one.arrays[name], other.arrays[name], rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match=r"expected counts below 4096 in column 'n', whose family is .*, got 5000"):
        stream.partial_fit(table[:50].assign(n=5000))
    with pytest.raises(ValueError, match=r"row 0: expected whole numbers from 0 in column 'n'.*got -1"):
        stream.partial_fit(table[:50].assign(n=-1))
    assert np.isfinite(stream.partial_fit(table[:50]).score(table)), "errors change nothing"
    # Warm starts, of a model from a file too.
    model = VerticalMixture(2, families=families, max_iter=3, warm_start=True, **arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vpem.FitWarning)
        vpem.save(model.fit(table[:100]), tmp_path / "model.vpem")
        again = vpem.load(tmp_path / "model.vpem").set_params(warm_start=True)
        for one in (model, again):
            one.fit(table)
    np.testing.assert_allclose(model.means_, again.means_)
    assert np.isfinite(model.score(table))
