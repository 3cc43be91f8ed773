"""Data sets: what is made at random keeps its promises; what is downloaded is what it should be, or an error."""

import gzip
import http.server
import io
import os
import threading
import zipfile
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vpem import datasets, downloading


@settings(max_examples=30)
@given(st.integers(2, 40), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_geometric_networks_have_the_degree_that_was_asked_for(n_agents, density, seed):
    smallest = min(4 + np.log(n_agents), n_agents - 1)
    degree = smallest + density * (n_agents - 1 - smallest)
    graph = datasets.random_geometric_graph(n_agents, degree, seed)
    assert sorted(graph) == list(range(n_agents))
    assert nx.is_connected(graph)
    assert graph.number_of_edges() == round(n_agents * degree / 2)
    places = nx.get_node_attributes(graph, "pos")

    def distance(pair):
        return np.linalg.norm(np.subtract(places[pair[0]], places[pair[1]]))

    longest = max(map(distance, graph.edges))
    assert all(distance(pair) >= longest for pair in nx.non_edges(graph)), "linked are the nearest"


def test_the_papers_degrees():
    for degree in (31, 9.7):
        graph = datasets.random_geometric_graph(100, degree, 0)
        assert 2 * graph.number_of_edges() / 100 == pytest.approx(degree)


@pytest.mark.parametrize(("n_agents", "degree"), [(10, 1.0), (10, 9.5), (1, 4)])
def test_a_degree_that_cannot_be(n_agents, degree):
    with pytest.raises(ValueError, match="expected a mean degree from"):
        datasets.random_geometric_graph(n_agents, degree, 0)


def test_too_sparse_to_be_connected():
    with pytest.raises(ValueError, match="try a larger mean degree"):
        datasets.random_geometric_graph(100, 2, 0, n_tries=20)


def test_blobs_are_drawn_from_their_truth():
    found = datasets.make_vertical_blobs(200_000, 3, 2, 3, correlation=0.6, random_state=0)
    assert found.partition == {"party 1": [0, 1], "party 2": [2, 3], "party 3": [4, 5]}
    assert found.data.shape == (200_000, 6)
    for k in range(3):
        rows = found.data[found.target == k]
        assert len(rows) / 200_000 == pytest.approx(found.weights[k], abs=0.01)
        np.testing.assert_allclose(rows.mean(axis=0), found.means[k], atol=0.03)
        np.testing.assert_allclose(np.cov(rows.T), found.covariances[k], atol=0.05)
    again = datasets.make_vertical_blobs(200_000, 3, 2, 3, correlation=0.6, random_state=0)
    np.testing.assert_array_equal(again.data, found.data)


@pytest.mark.parametrize("arguments", [{"correlation": 1.0}, {"n_samples": 0}, {"n_parties": 0}, {"n_columns": 0}])
def test_blobs_that_cannot_be(arguments):
    with pytest.raises(ValueError, match="expected"):
        datasets.make_vertical_blobs(**arguments)


def test_the_papers_synthetic_setup():
    found = datasets.make_network_mixture(20_000, 20, mean_degree=8, random_state=1)
    assert found.data.shape == (20_000, 20)
    assert len(found.graph) == 20
    for k in range(3):
        rows = found.data[found.target == k]
        assert np.abs(np.corrcoef(rows.T) - np.eye(20)).max() > 0.3, "dense covariances"
        np.testing.assert_allclose(np.cov(rows.T), found.covariances[k], atol=0.15)


def test_pulsars(htru2):
    found = datasets.fetch_htru2()
    np.testing.assert_array_equal(found.data, htru2[0])
    assert found.target.sum() == 1639
    assert len(found.feature_names) == 8


def test_beijing(beijing):
    assert beijing.data.shape == (35_064, 72)
    assert beijing.weather.shape == (35_064, 12, 5)
    assert beijing.time[0] == np.datetime64("2013-03-01T00")
    assert (np.diff(beijing.time) == np.timedelta64(1, "h")).all()
    # Counted with another reader.
    assert (~np.isnan(beijing.data).any(axis=1)).sum() == 17_186
    assert (~np.isnan(beijing.data).all(axis=1)).sum() == 34_984
    assert beijing.feature_names[7] == "PM10 at Changping"


def test_wind_is_an_angle(beijing):
    assert beijing.wind.shape == (35_064, 12)
    there = beijing.wind[~np.isnan(beijing.wind)]
    assert set(there / 22.5) == set(range(16))


def test_adult():
    if not (Path(os.environ.get("VPEM_DATA", "")) / "adult.csv.gz").is_file():
        pytest.skip("no adult.csv.gz: set VPEM_DATA to the folder that holds it")
    found = datasets.load_adult_parties()
    assert found.data.shape == (32_561, 12)
    assert found.target.sum() == 7841
    assert (
        [name for own in found.partition.values() for name in own] == found.feature_names == list(found.data.columns)
    )
    assert found.data["workclass"].isna().sum() == 1836
    assert found.data["age"].mean() == pytest.approx(38.58, abs=0.01)


# Downloads, from a server on this machine


def archive(**members):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as opened:
        for name, member in members.items():
            opened.writestr(name.replace("__", "/").replace("_dot_", "."), member)
    return content.getvalue()


@pytest.fixture
def server():
    """Contents by path, on a server of its own; and what was asked for."""
    contents, asked = {}, []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            content = contents.get(self.path)
            self.send_response(200 if content is not None else 404)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_):
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{running.server_port}", contents, asked
    running.shutdown()
    running.server_close()


ROWS = b"1,2,3,4,5,6,7,8,0\n2,3,4,5,6,7,8,9,1\n"
HOURS = b"""No,year,month,day,hour,PM2.5,PM10,SO2,NO2,CO,O3,TEMP,PRES,DEWP,RAIN,wd,WSPM,station
1,2013,3,1,0,4,5,NA,7,300,77,-0.7,1023,-18.8,0,NNW,4.4,Here
"""


@pytest.fixture
def web(server, tmp_path, monkeypatch):
    """An empty cache, and both data sets' addresses on the server."""
    address, contents, asked = server
    monkeypatch.delenv("VPEM_DATA", raising=False)
    monkeypatch.setattr(downloading, "cache", lambda: tmp_path)
    monkeypatch.setattr(datasets, "HTRU2_URL", f"{address}/htru2.zip")
    monkeypatch.setattr(datasets, "HTRU2_SHA256", downloading.sha256(ROWS))
    monkeypatch.setattr(datasets, "BEIJING_URL", f"{address}/air.zip")
    monkeypatch.setattr(datasets, "BEIJING_STATIONS", {"Here": (downloading.sha256(HOURS), (0.0, 0.0))})
    return contents, asked, tmp_path


def files(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_downloaded_once(web, capfd):
    contents, asked, folder = web
    contents["/htru2.zip"] = archive(HTRU_2_dot_csv=ROWS.replace(b"\n", b"\r\n"), Readme_dot_txt="about")
    for _ in range(2):
        found = datasets.fetch_htru2()
        assert found.data.tolist() == [[1, 2, 3, 4, 5, 6, 7, 8], [2, 3, 4, 5, 6, 7, 8, 9]]
        assert found.target.tolist() == [0, 1]
    assert asked == ["/htru2.zip"]
    assert files(folder) == ["HTRU_2.csv"]
    assert "100%" in capfd.readouterr().err, "progress is shown"


def test_a_table_without_names_is_given_them(web, monkeypatch):
    contents, _, folder = web
    row = "39, State-gov, 77516, Bachelors, 13, Never-married, ?, Own-child, White, Male, 2174, 0, 40, Cuba, >50K\n\n"
    monkeypatch.setattr(datasets, "ADULT_URL", datasets.HTRU2_URL.replace("htru2", "adult"))
    whole = ",".join(datasets.ADULT_COLUMNS) + "\n" + row.replace(", ", ",")
    monkeypatch.setattr(datasets, "ADULT_SHA256", downloading.sha256(whole.encode()))
    contents["/adult.zip"] = archive(adult_dot_data=row, adult_dot_names="about")
    found = datasets.load_adult_parties()
    assert found.target.tolist() == [True]
    assert found.data["occupation"].isna().all()
    assert found.data["capital-gain"].tolist() == [2174.0]
    assert files(folder) == ["adult.csv.gz"]


def test_an_archive_in_an_archive(web):
    contents, asked, folder = web
    contents["/air.zip"] = archive(inner_dot_zip=archive(PRSA__Here_dot_csv=HOURS))
    for _ in range(2):
        found = datasets.fetch_beijing_air()
        assert found.data[0, :2].tolist() == [4, 5]
        assert np.isnan(found.data[0, 2])
        assert found.weather[0, 0].tolist() == [-0.7, 1023, -18.8, 0, 4.4]
    assert asked == ["/air.zip"]
    assert files(folder) == ["Here.csv.gz"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "could not download .* set VPEM_DATA"),
        (b"not a zip", "expected a zip archive"),
        (archive(HTRU_2_dot_csv=ROWS[:-3]), "expected a table with SHA-256"),
    ],
)
def test_a_download_that_fails_leaves_nothing_behind(web, content, message):
    contents, _, folder = web
    if content is not None:
        contents["/htru2.zip"] = content
    with pytest.raises((OSError, ValueError), match=message):
        datasets.fetch_htru2()
    assert files(folder) == []
    contents["/htru2.zip"] = archive(HTRU_2_dot_csv=ROWS)  # and the next try is a new one
    assert len(datasets.fetch_htru2().data) == 2


def test_a_damaged_table_is_not_read(web):
    contents, _, folder = web
    contents["/air.zip"] = archive(Here_dot_csv=HOURS)
    datasets.fetch_beijing_air()
    kept = next(folder.rglob("Here.csv.gz"))
    for content in (kept.read_bytes()[:-9], gzip.compress(HOURS[:-3])):
        kept.write_bytes(content)
        with pytest.raises(ValueError, match=r"Here\.csv\.gz"):
            datasets.fetch_beijing_air()


def test_a_folder_without_the_data(monkeypatch, tmp_path):
    monkeypatch.setenv("VPEM_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="unset VPEM_DATA"):
        datasets.fetch_htru2()
    with pytest.raises(FileNotFoundError, match=r"Wanliu\.csv\.gz"):
        datasets.fetch_beijing_air()
