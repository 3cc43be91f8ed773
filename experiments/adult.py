"""Columns as people have them: a census whose words, counts and amounts three parties hold; rain and wind of Beijing."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from sklearn.metrics import mutual_info_score, roc_auc_score

from experiments.common import Experiment, main, markdown, tidy
from vpem import VerticalGaussianMixture, VerticalMixture
from vpem.datasets import ADULT_NUMBERS, WEATHER, fetch_beijing_air, load_adult_parties
from vpem.figures import COLOURS

FULL = {
    "n_components": 8,
    "n_init": 3,
    "tol": 1e-4,
    "max_iter": 300,
    "every": 1,
    "stations": 12,
    "regimes": 4,
    "hours": 2,
}
QUICK = {"n_components": 4, "n_init": 1, "every": 20, "max_iter": 30, "stations": 3, "regimes": 3, "hours": 40}


def told(labels: np.ndarray, income: np.ndarray, k: int) -> dict[str, float]:
    """How well clusters tell the income: each cluster's share in one half of the people, used for the other half."""
    half = np.random.default_rng(0).random(len(labels)) < 0.5
    counts = np.bincount(labels[half], minlength=k)
    shares = (np.bincount(labels[half], weights=income[half], minlength=k) + 1) / (counts + 4)
    guess, truth = shares[labels[~half]], income[~half]
    return {
        "area": float(roc_auc_score(truth, guess)),
        "accuracy": float(np.mean((guess > 0.5) == truth)),
        "nats": float(mutual_info_score(labels, income)),
    }


def people(p: dict[str, Any]) -> dict[str, Any]:
    """The network's model, each party alone, and what others find in one table."""
    adult = load_adult_parties()
    X, income, k = adult.data.iloc[:: p["every"]], adult.target[:: p["every"]], p["n_components"]
    settings = {"n_init": p["n_init"], "tol": p["tol"], "max_iter": p["max_iter"], "random_state": 0}
    begin = time.perf_counter()
    model = VerticalMixture(k, partition=adult.partition, **settings).fit(X)
    found: dict[str, Any] = {"rows": len(X), "majority": float(1 - income.mean())}
    ways = {"three parties": {**told(model.predict(X), income, k), "seconds": time.perf_counter() - begin}}
    for party, held in adult.partition.items():
        begin = time.perf_counter()
        alone = VerticalMixture(k, partition={party: held}, **settings).fit(X[held])
        ways[f"{party} alone"] = {**told(alone.predict(X[held]), income, k), "seconds": time.perf_counter() - begin}
    shares = [float(income[model.predict(X) == c].mean()) for c in range(k)]
    order = np.argsort(shares)
    profile = model.profile()
    clusters = []
    for c in order:
        own = profile[profile.component == c].set_index("column")
        far = own.distance.abs().sort_values(ascending=False).index[:4]
        clusters.append(
            {
                "share": float(model.weights_[c]),
                "income": shares[c],
                "words": "; ".join(
                    f"{name} {own.category[name]} {own.category_share[name]:.0%}"
                    if isinstance(own.category[name], str)
                    else f"{name} {own['mean'][name]:.0f} ± {own.deviation[name]:.0f}"
                    for name in far
                ),
            }
        )
    found |= {
        "ways": ways,
        "clusters": clusters,
        "families": {str(name): text for name, text in model.families_.items()},
        "importance": {str(row.column): float(row.information) for row in model.importance().itertuples()},
        "parties": {str(row.party): float(row.information) for row in model.importance(by="party").itertuples()},
        "iterations": model.n_iter_,
        "bytes": model.traffic_.bytes,
        "messages": model.traffic_.messages,
        "log_likelihood": model.log_likelihood_,
    }
    return found


def one_hot(p: dict[str, Any]) -> dict[str, Any]:
    """Gaussian columns in place of words: one for each category, at the same parties."""
    import pandas as pd

    adult = load_adult_parties()
    X, income, k = adult.data.iloc[:: p["every"]], adult.target[:: p["every"]], p["n_components"]
    wide = pd.get_dummies(X, dtype=float)
    owner = {name: party for party, held in adult.partition.items() for name in held}
    partition: dict[str, list[str]] = {party: [] for party in adult.partition}
    for name in wide.columns:
        partition[owner[next(own for own in owner if name == own or name.startswith(f"{own}_"))]].append(name)
    begin = time.perf_counter()
    model = VerticalGaussianMixture(
        k, partition=partition, covariance_type="diag", standardize=True, n_init=p["n_init"], random_state=0
    ).fit(wide)
    return {**told(model.predict(wide), income, k), "seconds": time.perf_counter() - begin}


def coded(X: Any) -> tuple[Any, list[str]]:
    """Words as codes, for those who need numbers; and the names of their columns."""
    words = [name for name in X.columns if name not in ADULT_NUMBERS]
    found = X.copy()
    for name in words:
        codes = found[name].astype("category").cat.codes.astype(float)
        found[name] = codes.where(codes >= 0)
    return found, words


def stepmix(p: dict[str, Any]) -> dict[str, Any]:
    """StepMix on one table: categories, Gaussian columns for age and hours, and whether there was a gain or a loss.

    As Gaussian columns, gains and losses would leave it with variances of zero.
    """
    from stepmix import StepMix

    adult = load_adult_parties()
    X, income, k = adult.data.iloc[:: p["every"]], adult.target[:: p["every"]], p["n_components"]
    table, words = coded(X)
    numbers, amounts = ["age", "hours-per-week"], ["capital-gain", "capital-loss"]
    scaled = table[[*words, *amounts, *numbers]].copy()
    scaled[amounts] = (table[amounts] > 0).astype(float)
    scaled[numbers] = (table[numbers] - table[numbers].mean()) / table[numbers].std()
    about = {
        "words": {"model": "categorical_nan", "n_columns": len(words) + len(amounts)},
        "numbers": {"model": "gaussian_diag_nan", "n_columns": len(numbers)},
    }
    begin = time.perf_counter()
    with np.errstate(divide="ignore", invalid="ignore"):  # a component in which a column has one value
        model = StepMix(k, measurement=about, max_iter=30, n_init=1, random_state=0, progress_bar=0).fit(scaled)
        labels = np.asarray(model.predict(scaled))
    return {**told(labels, income, k), "seconds": time.perf_counter() - begin}


def prototypes(p: dict[str, Any]) -> dict[str, Any]:
    """K-prototypes on one table; a gap is a category of its own."""
    from kmodes.kprototypes import KPrototypes

    adult = load_adult_parties()
    X, income, k = adult.data.iloc[:: p["every"]], adult.target[:: p["every"]], p["n_components"]
    words = [name for name in X.columns if name not in ADULT_NUMBERS]
    table = X[[*ADULT_NUMBERS, *words]].copy()
    for name in ADULT_NUMBERS:
        table[name] = (table[name] - table[name].mean()) / table[name].std()
    table[words] = table[words].fillna("?")
    begin = time.perf_counter()
    model = KPrototypes(k, init="Cao", n_init=1, max_iter=15, random_state=0)
    labels = model.fit_predict(
        table.to_numpy(dtype=object), categorical=list(range(len(ADULT_NUMBERS), table.shape[1]))
    )
    return {**told(np.asarray(labels, dtype=int), income, k), "seconds": time.perf_counter() - begin}


def air(p: dict[str, Any]) -> dict[str, Any]:
    """Pollutants, rain and wind of some stations: all Gaussian, and with families of their own."""
    beijing = fetch_beijing_air()
    rain = WEATHER.index("RAIN")
    columns, partition, families = [], {}, {}
    for number, (station, held) in enumerate(list(beijing.partition.items())[: p["stations"]]):
        first = len(columns)
        columns += [*np.log(beijing.data[:, held]).T, beijing.weather[:, number, rain], beijing.wind[:, number]]
        partition[station] = list(range(first, len(columns)))
        families |= dict.fromkeys(partition[station][:6], "gaussian")
        families |= {len(columns) - 2: "zeros", len(columns) - 1: "angles:360"}
    X = np.stack(columns, axis=1)[:: p["hours"]]
    X = X[~np.isnan(X).all(axis=1)]
    wet = [own[-2] for own in partition.values()]
    settings = {"partition": partition, "random_state": 0, "tol": p["tol"], "max_iter": 100}
    found = {}
    for name, model in {
        "all Gaussian": VerticalGaussianMixture(p["regimes"], standardize=True, **settings),
        "families": VerticalMixture(p["regimes"], families=families, standardize=True, **settings),
    }.items():
        model.fit(X)
        sure = model.predict_proba(X)
        it_rains = np.where(np.isnan(X[:, wet]).all(axis=1), np.nan, np.nanmax(np.nan_to_num(X[:, wet]), axis=1) > 0)
        seen = ~np.isnan(it_rains)
        labels = sure.argmax(axis=1)
        overall = np.nanstd(X[:, wet], axis=0)
        deviations = np.array(model.profile().deviation).reshape(p["regimes"], -1)[:, wet]
        found[name] = {
            "weights": model.weights_,
            "rain_share": [
                float(np.mean(it_rains[seen & (labels == k)])) if (seen & (labels == k)).any() else 0.0
                for k in range(p["regimes"])
            ],
            "least_deviation": float((deviations / overall).min()),
            "red": [one.sentence for one in model.verdict_ if one.severity == "red"],
            "rain_nats": float(mutual_info_score(labels[seen], it_rains[seen])),
            "pm": np.exp(model.means_[:, [own[0] for own in partition.values()]].mean(axis=1)),
            "iterations": model.n_iter_,
        }
    return {**found, "rows": len(X), "rainy": float(np.mean(it_rains[seen]))}


def run(experiment: Experiment) -> None:
    """Fits, figure, page."""
    p = experiment.parameters
    found = experiment.step("three parties", lambda: people(p))
    ways = dict(found["ways"])
    ways["one-hot Gaussians, three parties"] = experiment.step("one-hot", lambda: one_hot(p))
    ways["StepMix, one table"] = experiment.step("StepMix", lambda: stepmix(p))
    ways["k-prototypes, one table"] = experiment.step("k-prototypes", lambda: prototypes(p))
    beijing = experiment.step("rain and wind", lambda: air(p))
    experiment.table("ways", ({"way": name, **own} for name, own in ways.items()))
    experiment.table("clusters", ({"cluster": number + 1, **own} for number, own in enumerate(found["clusters"])))
    experiment.table(
        "columns",
        (
            {"column": name, "family": found["families"][name], "nats": nats}
            for name, nats in found["importance"].items()
        ),
    )
    experiment.table(
        "air",
        (
            {
                "way": name,
                "regime": k + 1,
                "weight": own["weights"][k],
                "rain": own["rain_share"][k],
                "pm25": own["pm"][k],
            }
            for name, own in beijing.items()
            if isinstance(own, dict)
            for k in range(p["regimes"])
        ),
    )
    figure = Figure(figsize=(10.5, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = list(ways)
    left.barh(range(len(names)), [ways[name]["area"] for name in names], color=COLOURS[0])
    left.set_yticks(range(len(names)), names)
    left.invert_yaxis()
    left.set_xlim(0.5, 1.0)
    tidy(left, xlabel="area under the curve (0.5: nothing)", title="how well clusters tell the income")
    columns = list(found["importance"])
    right.barh(range(len(columns)), [found["importance"][name] for name in columns], color=COLOURS[1])
    right.set_yticks(
        range(len(columns)), [f"{name} ({found['families'][name].partition(':')[0]})" for name in columns]
    )
    right.invert_yaxis()
    tidy(right, xlabel="nats", title="what each column tells about the cluster")
    experiment.figure("adult", figure)
    experiment.page(text(p, found, ways, beijing))


def text(p: dict[str, Any], found: dict[str, Any], ways: dict[str, Any], beijing: dict[str, Any]) -> str:
    """The page."""
    table = [
        {
            "way": name,
            "area under the curve": f"{own['area']:.3f}",
            "accuracy": f"{own['accuracy']:.1%}",
            "nats": f"{own['nats']:.3f}",
            "seconds": f"{own['seconds']:.0f}",
        }
        for name, own in ways.items()
    ]
    clusters = [
        {
            "cluster": number + 1,
            "people": f"{own['share']:.0%}",
            "income above 50,000": f"{own['income']:.0%}",
            "what is special": own["words"],
        }
        for number, own in enumerate(found["clusters"])
    ]
    rain = [
        {
            "model": name,
            "shares of the regimes": ", ".join(f"{w:.0%}" for w in own["weights"]),
            "hours with rain in each": ", ".join(f"{share:.0%}" for share in own["rain_share"]),
            "smallest deviation of rain": f"{own['least_deviation']:.4f}",
            "red findings": len(own["red"]),
        }
        for name, own in beijing.items()
        if isinstance(own, dict)
    ]
    parties = ", ".join(f"{name} {nats:.2f}" for name, nats in found["parties"].items())
    return f"""
# Columns as people have them

{found["rows"]:,} people of a census (UCI "Adult"). An employer has the columns about their work, a registry those about family and origin, and a tax
office gains and losses; the income is left out of the fit. Words are categories, hours are counts, gains and losses are amounts that are
mostly zero, and the age is Gaussian: the parties detected these families by themselves. K={p["n_components"]}, a star; the best of {p["n_init"]}.

![adult](adult.svg)

**How well clusters predict the income.** The income is not part of any clustering. Each cluster's share of high incomes in one half of
the people is the prediction for the other half ({found["majority"]:.1%} would be right if all were predicted to earn less):

{markdown(table)}

StepMix and k-prototypes see all columns in one place, and have one start. StepMix has 30 iterations and Gaussian columns for age and
hours. Of gains and losses it has only whether there were any, because as Gaussian columns they get variances of zero. Seconds are those
of the whole fit on two cores.

**What the clusters are**, ordered from the lowest to the highest income; shares are those within the cluster:

{markdown(clusters)}

Information of each party's columns about the cluster, in nats: {parties}.

**What the network sent.** {found["bytes"] / 1e6:,.0f} MB in {found["messages"]:,} messages, for {p["n_init"]} starts with k-means, and no column. A
contribution has one number for each person and cluster, for every family: words cost no more than numbers.

**Rain and wind.** {beijing["rows"]:,} hours of {p["stations"]} stations in Beijing, with six pollutants (logarithms), rain and the direction of the
wind; it rains somewhere in {beijing["rainy"]:.0%} of the hours. In the first model all columns are Gaussian; in the second rain is an
amount with zeros, and wind is an angle:

{markdown(rain)}

The smallest deviation of rain is the minimum over regimes and stations, in units of the deviation over all hours. A Gaussian regime of
dry hours has hardly any deviation, so dry hours alone determine the regimes. In the family of amounts with zeros, dry hours are a share
and have no density.
"""


if __name__ == "__main__":
    main("adult", run, FULL, QUICK)
