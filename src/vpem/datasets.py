"""Datasets with a natural vertical split: bundled, simulated, and downloaded (`pip install vpem[datasets]`)."""

from __future__ import annotations

import csv
import io
from importlib import import_module
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform
from sklearn.datasets import load_breast_cancer
from sklearn.utils import Bunch

from vpem.downloading import read_tables

Array = NDArray[np.float64]

HTRU2_URL = "https://archive.ics.uci.edu/static/public/372/htru2.zip"
HTRU2_SHA256 = "b2b388ceaa9718d00f6feba97bfe7096ee61996526cee2bea94e9dd034e9cbbe"
HTRU2_FEATURES = tuple(
    f"{moment} of the {curve}"
    for curve in ("profile", "DM-SNR curve")
    for moment in ("mean", "deviation", "kurtosis", "skewness")
)

BEIJING_URL = "https://archive.ics.uci.edu/static/public/501/beijing+multi+site+air+quality+data.zip"
# Station to the hash of its table, and its longitude and latitude to about a kilometre.
BEIJING_STATIONS: dict[str, tuple[str, tuple[float, float]]] = {
    "Aotizhongxin": ("8f8457efef51dea61dd3c38ebbccd9fa25f5a6ba2a23e90e5b500b25015f4f27", (116.397, 39.982)),
    "Changping": ("dbac77681385b631d093823afdeea3ec96d2d234442afd5f8fb91bcc526d5863", (116.234, 40.217)),
    "Dingling": ("bc2dcda191a790a5cbc1af71f142b7cdf96759e500c0dde07dbe5c826d54dfa0", (116.220, 40.292)),
    "Dongsi": ("f56e7cf80603f10d627bcd51f7f3a36b108ed6aec898dc92376ee4d30387f9ac", (116.417, 39.929)),
    "Guanyuan": ("bbe31877c38679a71ba8df202ffb6c1f531f2aadf1d6180efd28fc25c112bb13", (116.339, 39.929)),
    "Gucheng": ("589cff73621c521a28557f4c093c8df47825606232f614d07b52970fc2e2b336", (116.184, 39.914)),
    "Huairou": ("e0dd971c8b5d87cf0ebf548edd1b9e0c94ca6dc1af13ffee2e487732b4270544", (116.628, 40.328)),
    "Nongzhanguan": ("0a348fe79a8923ab84fb093a50f61eb64cb083c70f5a934971c99de28fdba749", (116.461, 39.937)),
    "Shunyi": ("8d27b386d14db242a1dd0183809841685e34e1a7a354499238532c5e12f82949", (116.655, 40.127)),
    "Tiantan": ("1865d4b500b55e5d8587c233e68126e9af6cbebc800a951022c778da1c3a0e2c", (116.407, 39.886)),
    "Wanliu": ("f3e0954a64c31937a86a0aa51e8df7f99626fc04ea46c09ae91c9a20317f47af", (116.287, 39.987)),
    "Wanshouxigong": ("f77c09bff941ce907aefd0281df52bffc25604f16205f55c65e00ca3d39e0800", (116.352, 39.878)),
}
ADULT_URL = "https://archive.ics.uci.edu/static/public/2/adult.zip"
ADULT_SHA256 = "9ffbc0d317280ccdb4727934024b73076781f655ed5db2a197928cab1d9503a4"
ADULT_COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship"),
    *("ethnicity", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income"),
)
ADULT_NUMBERS = ("age", "capital-gain", "capital-loss", "hours-per-week")
ADULT_PARTIES = {
    "employer": ("workclass", "occupation", "hours-per-week", "education"),
    "registry": ("age", "marital-status", "relationship", "ethnicity", "sex", "native-country"),
    "tax office": ("capital-gain", "capital-loss"),
}
POLLUTANTS = ("PM2.5", "PM10", "SO2", "NO2", "CO", "O3")
WEATHER = ("TEMP", "PRES", "DEWP", "RAIN", "WSPM")
WINDS = ["N", "NNE", "NE", "ENE", "E", "ESE", "SE", "SSE", "S", "SSW", "SW", "WSW", "W", "WNW", "NW", "NNW"]


def load_breast_cancer_parties() -> Bunch:
    """Load the breast cancer data of scikit-learn, split between three parties.

    The data have 569 tumours and 30 columns: the mean, the standard error and the worst value of ten measurements of
    cell nuclei. One party holds the means, one the standard errors and one the worst values.

    Returns
    -------
    Bunch
        `data` (569, 30), `target` (569,): 0 malignant, 1 benign, `feature_names`, `partition`: party to column
        numbers.
    """
    bunch = load_breast_cancer()
    partition = {"mean": range(10), "error": range(10, 20), "worst": range(20, 30)}
    return Bunch(
        data=bunch.data,
        target=bunch.target,
        feature_names=bunch.feature_names,
        partition={party: list(columns) for party, columns in partition.items()},
    )


# Simulated


def make_vertical_blobs(
    n_samples: int = 300,
    n_parties: int = 3,
    n_columns: int = 2,
    n_components: int = 3,
    *,
    separation: float = 3.0,
    correlation: float = 0.5,
    random_state: int | np.random.Generator | None = None,
) -> Bunch:
    """Draw rows from a random Gaussian mixture, with columns split between parties.

    Parameters
    ----------
    n_samples : int
    n_parties : int
    n_columns : int
        Number of columns of each party.
    n_components : int
    separation : float
        Standard deviation of the components' means; columns have standard deviation 1 within a component.
    correlation : float
        Correlation between columns, from 0, independent columns, to 1, columns that are equal up to their sign. It
        also applies between parties, which block-diagonal covariances cannot describe.
    random_state : int, Generator or None

    Returns
    -------
    Bunch
        `data` (n_samples, n_parties * n_columns), `target` (n_samples,), `partition`: party to column numbers, and
        the true `weights`, `means` and `covariances`.
    """
    for name, value in {"n_samples": n_samples, "n_parties": n_parties, "n_columns": n_columns}.items():
        if value < 1:
            raise ValueError(f"expected {name} to be 1 or more, got {value}")
    if not 0 <= correlation < 1:
        raise ValueError(f"expected correlation from 0 to below 1, got {correlation}")
    rng = np.random.default_rng(random_state)
    width = n_parties * n_columns
    signs = rng.choice([-1.0, 1.0], size=(n_components, width))
    covariances = correlation * signs[:, :, None] * signs[:, None, :] + (1 - correlation) * np.eye(width)
    weights = rng.dirichlet(np.full(n_components, 10.0))
    means = separation * rng.normal(size=(n_components, width))
    data, target = _draw_rows(rng, n_samples, weights, means, covariances)
    partition = {f"party {p + 1}": list(range(p * n_columns, (p + 1) * n_columns)) for p in range(n_parties)}
    truth = {"weights": weights, "means": means, "covariances": covariances}
    return Bunch(data=data, target=target, partition=partition, **truth)


def make_network_mixture(
    n_samples: int = 150_000,
    n_agents: int = 100,
    n_components: int = 3,
    *,
    mean_degree: float = 31.0,
    separation: float = 1.0,
    random_state: int | np.random.Generator | None = None,
) -> Bunch:
    """Draw the paper's synthetic data: a random geometric network, one column per agent, dense covariances.

    The paper describes the parameters as "created at random". Here the weights are drawn from a Dirichlet
    distribution (10, ..., 10), the means from a normal distribution with standard deviation `separation`, and the
    covariances are `A A^T / n_agents + I / 10` with standard normal `A`.

    Returns
    -------
    Bunch
        `data` (n_samples, n_agents), `target` (n_samples,), `graph` with the agents 0, 1, ... as nodes and their
        positions as `pos`, and the true `weights`, `means` and `covariances`.
    """
    rng = np.random.default_rng(random_state)
    graph = random_geometric_graph(n_agents, mean_degree, rng)
    weights = rng.dirichlet(np.full(n_components, 10.0))
    means = separation * rng.normal(size=(n_components, n_agents))
    factors = rng.normal(size=(n_components, n_agents, n_agents))
    covariances = factors @ factors.transpose(0, 2, 1) / n_agents + 0.1 * np.eye(n_agents)
    data, target = _draw_rows(rng, n_samples, weights, means, covariances)
    truth = {"weights": weights, "means": means, "covariances": covariances}
    return Bunch(data=data, target=target, graph=graph, **truth)


def _draw_rows(
    rng: np.random.Generator, n_samples: int, weights: Array, means: Array, covariances: Array
) -> tuple[Array, NDArray[np.intp]]:
    target = rng.choice(len(weights), size=n_samples, p=weights)
    data = rng.normal(size=(n_samples, means.shape[1]))
    for component, factor in enumerate(np.linalg.cholesky(covariances)):
        rows = target == component
        data[rows] = data[rows] @ factor.T + means[component]
    return data, target


def random_geometric_graph(
    n_agents: int, mean_degree: float, rng: int | np.random.Generator | None = None, *, n_tries: int = 1000
) -> nx.Graph:
    """Draw a connected random geometric network with a given mean degree.

    Agents are placed at random in the unit square, and the nearest pairs are linked until the mean degree is reached.
    A network that is not connected is drawn again.

    Parameters
    ----------
    n_agents : int
    mean_degree : float
        From `2 - 2 / n_agents`, a tree, to `n_agents - 1`; exact up to rounding of the number of links.
    rng : int, Generator or None
    n_tries : int
        Largest number of draws.

    Returns
    -------
    networkx.Graph
        Graph with nodes 0, 1, ..., whose attribute `pos` is the position.
    """
    n_links = round(n_agents * mean_degree / 2) if np.isfinite(mean_degree) else -1
    if not n_agents - 1 <= n_links <= n_agents * (n_agents - 1) // 2:
        raise ValueError(
            f"expected a mean degree from {2 - 2 / n_agents:.3g} to {n_agents - 1} for {n_agents} agents, "
            f"got {mean_degree}"
        )
    rng = np.random.default_rng(rng)
    for _ in range(n_tries):
        places = rng.uniform(size=(n_agents, 2))
        one, other = np.triu_indices(n_agents, 1)
        nearest = np.argsort(squareform(pdist(places))[one, other])[:n_links]
        graph = nx.Graph()
        graph.add_nodes_from((number, {"pos": tuple(place)}) for number, place in enumerate(places.tolist()))
        graph.add_edges_from(zip(one[nearest].tolist(), other[nearest].tolist(), strict=True))
        if nx.is_connected(graph):
            return graph
    raise ValueError(
        f"expected to draw a connected network, got none in {n_tries} tries with {n_agents} agents and mean degree "
        f"{mean_degree}; try a larger mean degree"
    )


# Downloaded


def fetch_htru2() -> Bunch:
    """Load pulsar candidates (Lyon et al. 2016), the paper's clustering data.

    The data are downloaded once, or read from `VPEM_DATA`.

    Returns
    -------
    Bunch
        `data` (17898, 8): four moments of the pulse's profile and of its DM-SNR curve; `target` (17898,): 1 for the
        1,639 pulsars; `feature_names`.
    """
    (content,) = read_tables("HTRU_2", {"HTRU_2.csv": HTRU2_SHA256}, HTRU2_URL)
    table = np.loadtxt(io.BytesIO(content), delimiter=",")
    return Bunch(data=table[:, :8].copy(), target=table[:, 8].astype(int), feature_names=list(HTRU2_FEATURES))


def load_adult_parties() -> Bunch:
    """Load people of the US census of 1994 (UCI "Adult", CC BY 4.0), split between employer, registry and tax office.

    The columns are words, counts and amounts that are mostly zero, with gaps. The income is the target, not a column.
    The data are downloaded once, or read from `VPEM_DATA`.

    Returns
    -------
    Bunch
        `data` (32561, 12), a pandas data frame, or without pandas an Arrow table; `target` (32561,): True if the
        income is above 50,000 dollars; `partition`: party to the names of its columns; `feature_names`.
    """
    (content,) = read_tables("adult", {"adult.csv.gz": ADULT_SHA256}, ADULT_URL, {"adult.data": ADULT_COLUMNS})
    _, *rows = (row for row in csv.reader(io.StringIO(content.decode())) if row)
    table = dict(zip(ADULT_COLUMNS, zip(*rows, strict=True), strict=True))
    columns: dict[str, Any] = {}
    for name in (name for own in ADULT_PARTIES.values() for name in own):
        if name in ADULT_NUMBERS:
            columns[name] = np.array(table[name], dtype=np.float64)
        else:
            columns[name] = [None if word == "?" else word for word in table[name]]
    return Bunch(
        data=_frame(columns),
        target=np.array([word == ">50K" for word in table["income"]]),
        partition={party: list(own) for party, own in ADULT_PARTIES.items()},
        feature_names=list(columns),
    )


def _frame(columns: dict[str, Any]) -> Any:
    try:
        return import_module("pandas").DataFrame(columns)
    except ModuleNotFoundError:
        return import_module("pyarrow").table(columns)


def fetch_beijing_air() -> Bunch:
    """Load hourly air quality at twelve stations in Beijing, March 2013 to February 2017 (Zhang et al. 2017).

    The data have gaps. They are downloaded once, or read from the folder `beijing-air` in `VPEM_DATA`.

    Returns
    -------
    Bunch
        `data` (35064, 72): six pollutants of each station, NaN where missing; `partition`: station to its column
        numbers; `feature_names`; `weather` (35064, 12, 5) and `weather_names`; `time` (35064,): the hours as
        datetime64; `wind` (35064, 12): directions in degrees, clockwise from north; `places`: station to longitude
        and latitude, to about a kilometre.
    """
    hashes = {f"{station}.csv.gz": sha256 for station, (sha256, _) in BEIJING_STATIONS.items()}
    pollutants, weather, wind, time = [], [], [], None
    degrees = {"NA": np.nan, **{name: 22.5 * number for number, name in enumerate(WINDS)}}
    for content in read_tables("beijing-air", hashes, BEIJING_URL):
        header, *rows = csv.reader(io.StringIO(content.decode()))
        table = dict(zip(header, zip(*rows, strict=True), strict=True))
        pollutants.append(_numbers(table, POLLUTANTS))
        weather.append(_numbers(table, WEATHER))
        wind.append([degrees[name] for name in table["wd"]])
        if time is None:
            stamps = zip(*(table[name] for name in ("year", "month", "day", "hour")), strict=True)
            time = np.array([f"{y}-{m:0>2}-{d:0>2}T{h:0>2}" for y, m, d, h in stamps], dtype="datetime64[h]")
    n = len(POLLUTANTS)
    return Bunch(
        data=np.hstack(pollutants),
        partition={station: list(range(n * s, n * (s + 1))) for s, station in enumerate(BEIJING_STATIONS)},
        feature_names=[f"{pollutant} at {station}" for station in BEIJING_STATIONS for pollutant in POLLUTANTS],
        weather=np.stack(weather, axis=1),
        weather_names=list(WEATHER),
        wind=np.array(wind).T,
        time=time,
        places={station: place for station, (_, place) in BEIJING_STATIONS.items()},
    )


def _numbers(table: dict[str, tuple[str, ...]], names: tuple[str, ...]) -> Array:
    columns = [["nan" if value == "NA" else value for value in table[name]] for name in names]
    return np.array(columns, dtype=np.float64).T
