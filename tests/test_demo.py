"""The demo's figures, as an independent run of the same methods found them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from vpem.demo import run
from vpem.figures.fits import plot_trajectories, save_figure


@pytest.mark.processors
def test_the_demo_prints_its_table_and_draws_its_picture(tmp_path, capsys):
    picture = tmp_path / "new" / "demo.png"
    run(str(picture))
    table = capsys.readouterr().out
    accuracies = {name.strip(): float(value) for name, value in re.findall(r"^(.{22}).*?([\d.]+)%", table, re.M)}
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    shown = re.search(r"```\n(method.*?)```", readme, re.S).group(1)
    # Another version of scikit-learn may take an iteration more or less: its rows count as far as the Rand index.
    ends = {"VP-EM": None}
    assert [line[: ends.get(line[:5], 58)] for line in shown.splitlines()] == [
        line[: ends.get(line[:5], 58)]
        for line in table.splitlines()
        if line.startswith(("method", "k-means", "EM", "VP-EM"))
    ]
    assert accuracies == {
        "k-means (centralized)": 85.4,
        "EM (centralized)": 95.3,  # 95.1 at scikit-learn's default tol
        "VP-EM, federated": 94.4,
        "VP-EM, on a ring": 94.4,
    }
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in picture.parent.iterdir()] == ["demo.png"], "nothing half-written stays behind"


def test_the_demo_says_what_it_takes():
    found = subprocess.run([sys.executable, "-m", "vpem.demo", "--help"], capture_output=True, text=True, check=True)
    assert "Three parties fit one mixture" in found.stdout
    assert not Path("--help").exists()


def test_a_picture_without_an_ending_is_a_png(tmp_path):
    save_figure(plot_trajectories({"EM": [-2.0, -1.0]}), tmp_path / "picture")
    assert (tmp_path / "picture").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["picture"]
