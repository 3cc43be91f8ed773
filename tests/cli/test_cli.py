"""The program: what it writes, what it says when something is wrong, and what Ctrl-C leaves."""

import csv
import json
import re
import signal
import subprocess
import sys
import time
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import adjusted_rand_score
from typer.testing import CliRunner

import vpem
from vpem import VerticalGaussianMixture
from vpem.cli.app import app
from vpem.core.settings import STARTS
from vpem.datasets import make_vertical_blobs

PARTIES = {"bank": ["income", "debt"], "shop": ["visits", "spent"]}
NAMES = ["income", "debt", "visits", "spent"]
DATA = make_vertical_blobs(300, 2, 2, 3, correlation=0.0, random_state=0).data


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with a table, the parties, and two parties' own tables with different rows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    write_csv("people.csv", {"person": [f"p{n}" for n in range(300)], **dict(zip(NAMES, DATA.T, strict=True))})
    (tmp_path / "parties.toml").write_text(f"[parties]\nbank = {PARTIES['bank']}\nshop = {PARTIES['shop']}\n")
    write_csv("bank.csv", {"person": list(range(200)), "income": DATA[:200, 0], "age": DATA[:200, 1]})
    order = np.random.default_rng(0).permutation(np.arange(100, 300))
    table = pa.table({"spent": DATA[order, 2], "person": order, "age": DATA[order, 3]})
    pq.write_table(table, "shop.parquet")
    return tmp_path


def write_csv(path, columns):
    pa_csv.write_csv(pa.table({name: pa.array(values) for name, values in columns.items()}), path)


def vpem_says(*arguments, code=0):
    """What the program prints, on both streams; its exit code must be as told."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return re.sub(r"\s+", " ", result.output)


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


# What it does


SERVING = {"standardize": True, "shrinkage": "auto"}
"""What the program does by default, and the estimators do not."""


@pytest.mark.processors
def test_fit_predict_show_and_sample(folder):
    said = vpem_says("fit", "people.csv", "--parties", "parties.toml", "-k", 3, "-o", "model", "--seed", 1)
    assert "converged" in said
    assert "no column is sent" in said
    expected = VerticalGaussianMixture(
        3, partition={"bank": [0, 1], "shop": [2, 3]}, random_state=1, n_init=5, **SERVING
    ).fit(DATA)
    model = vpem.load("model")
    np.testing.assert_array_equal(model.means_, expected.means_)
    assert list(model.feature_names_in_) == NAMES
    assert "300 rows" in vpem_says("predict", "model", "people.csv", "--id", "person", "-o", "scores.csv")
    scores = rows("scores.csv")
    assert [row["person"] for row in scores] == [f"p{n}" for n in range(300)]
    assert [int(row["component"]) for row in scores] == expected.predict(DATA).tolist()
    found = [[float(row[f"probability_{k}"]) for k in range(3)] for row in scores]
    np.testing.assert_allclose(found, expected.predict_proba(DATA), rtol=1e-12)
    vpem_says("predict", "model", "people.csv", "-o", "scores.parquet")
    assert pq.read_table("scores.parquet").column_names[:2] == ["component", "log_density"]
    assert "bank" in vpem_says("show", "model")
    told = json.loads(CliRunner().invoke(app, ["show", "model", "--json"]).stdout)
    assert told["parties"] == PARTIES
    vpem_says("sample", "model", "-n", 7, "-o", "sample.csv")
    assert len(rows("sample.csv")) == 7
    assert not [path for path in folder.iterdir() if path.name.startswith(".")], "nothing unfinished"


def test_columns_in_another_order_and_more_of_them(folder):
    vpem_says("fit", "people.csv", "--parties", "parties.toml", "-k", 2, "-o", "model")
    vpem_says("predict", "model", "people.csv", "-o", "one.csv")
    table = pa_csv.read_csv("people.csv")
    write_csv("turned.csv", {name: table.column(name).to_pylist() for name in [*NAMES[::-1], "person"]})
    vpem_says("predict", "model", "turned.csv", "-o", "two.csv")
    assert rows("one.csv") == rows("two.csv")


def test_several_tables_by_id():
    said = vpem_says("fit", "bank.csv", "shop.parquet", "--id", "person", "-k", 2, "--graph", "ring", "-o", "model")
    assert "2 parties" in said
    model = vpem.load("model")
    assert list(model.feature_names_in_) == ["income", "bank.age", "spent", "shop.age"]
    whole = np.full((300, 4), np.nan)
    whole[:200, :2], whole[100:, 2:] = DATA[:200, :2], DATA[100:, 2:]
    again = VerticalGaussianMixture(2, partition=[[0, 1], [2, 3]], graph="ring", random_state=0)
    # Rows are in another order, which k-means may notice by rounding only.
    np.testing.assert_allclose(np.sort(model.weights_), np.sort(again.fit(whole).weights_), rtol=1e-2)
    vpem_says("predict", "model", "bank.csv", "shop.parquet", "--id", "person")
    assert {row["person"] for row in rows("scores.csv")} == {str(n) for n in range(300)}


def test_one_party_per_column_and_a_graph_from_a_file(folder):
    (folder / "links.txt").write_text("# who knows whom\nincome, debt\ndebt, visits\n\nvisits spent  # last\n")
    said = vpem_says(
        "fit", "people.csv", "--ignore", "person", "-k", 2, "--graph", "links.txt", "--hops", 1, "-o", "m"
    )
    assert "4 parties" in said
    assert "must send all columns to a root" in said
    assert sorted(map(sorted, vpem.load("m").graph_.edges)) == [
        ["debt", "income"],
        ["debt", "visits"],
        ["spent", "visits"],
    ]


def test_batches_and_settings():
    vpem_says(
        "fit",
        "people.csv",
        "--parties",
        "parties.toml",
        "-k",
        2,
        "--batch-size",
        50,
        "--covariance",
        "diag",
        "--init",
        "random",
        "-o",
        "m",
    )
    model = vpem.load("m")
    assert (model.batch_size, model.covariance_type, model.init_params) == (50, "diag", "random")


def test_a_party_that_brings_no_table_to_a_prediction(folder):
    vpem_says("fit", "bank.csv", "shop.parquet", "--id", "person", "-k", 2, "-o", "model")
    said = vpem_says("predict", "model", "bank.csv", "--id", "person", "-o", "one.csv")
    assert "nothing of shop" in said
    X = np.hstack([DATA[:200, :2], np.full((200, 2), np.nan)])
    model = vpem.load("model")
    del model.feature_names_in_
    found = [float(row["log_density"]) for row in rows("one.csv")]
    np.testing.assert_allclose(found, model.score_samples(X), rtol=1e-12)
    write_csv("half.csv", {"person": [1], "income": [0.5]})
    assert "is not there" in vpem_says("predict", "model", "half.csv", "--id", "person", code=1)


def test_select(folder):
    said = vpem_says(
        "select", "people.csv", "--parties", "parties.toml", "-k", "1..4", "--plot", "s.svg", "-o", "s.csv"
    )
    assert "best by held-out rows: 3 components; by BIC: 3" in said
    found = rows("s.csv")
    assert [row["components"] for row in found] == ["1", "2", "3", "4"]
    arguments = {"n_init": 5, "max_iter": 500, "random_state": 0, **SERVING}
    model = VerticalGaussianMixture(3, partition=[[0, 1], [2, 3]], **arguments).fit(DATA)
    assert float(found[2]["bic"]) == pytest.approx(model.bic(DATA), rel=1e-9)
    assert (folder / "s.svg").read_text().startswith("<?xml")


FEW = ("few.csv", "--parties", "few.toml", "--reg-covar", 0, "--no-standardize", "--shrinkage", "none")


def few_rows(folder):
    """Twelve rows of four columns at one party: enough for two components, never for four."""
    table = np.random.default_rng(0).normal(size=(12, 4))
    write_csv("few.csv", dict(zip(NAMES, table.T, strict=True)))
    (folder / "few.toml").write_text(f"[parties]\nclinic = {NAMES}\n")
    return table


def test_select_goes_on_after_a_collapse(folder):
    table = few_rows(folder)
    said = vpem_says("select", *FEW, "-k", "1..5", "--plot", "s.svg", "-o", "s.csv")
    assert "4 collapsed 5 collapsed" in said
    assert "component" in said.partition("collapsed at party 'clinic'")[0]
    assert said.count("try fewer components") == 1
    found = rows("s.csv")
    assert [row["components"] for row in found] == ["1", "2", "3", "4", "5"]
    assert [row["collapsed"] for row in found[:1] + found[3:]] == ["false", "true", "true"]
    assert all(row[name] == "" for row in found[3:] for name in ("bic", "aic", "log_likelihood"))
    model = VerticalGaussianMixture(1, partition=[range(4)], reg_covar=0, random_state=0).fit(table)
    assert float(found[0]["bic"]) == pytest.approx(model.bic(table), rel=1e-9)
    best = min((row for row in found if row["bic"]), key=lambda row: float(row["bic"]))["components"]
    assert f"by BIC: {best};" in said
    assert "collapsed" in (folder / "s.svg").read_text()
    vpem_says("select", *FEW, "-k", "1..5", "-o", "s.parquet")
    assert pq.read_table("s.parquet").column("bic").null_count >= 2


def test_select_goes_on_with_more_components_too(folder, monkeypatch):
    fit = VerticalGaussianMixture.fit

    def fit_but_two(model, X):
        if model.n_components == 2:
            raise vpem.CollapsedComponentError(1, "bank")
        return fit(model, X)

    monkeypatch.setattr(VerticalGaussianMixture, "fit", fit_but_two)
    said = vpem_says("select", "people.csv", "--parties", "parties.toml", "-k", "1..3", "--plot", "s.svg")
    assert "2 collapsed 3 " in said
    assert "with 2 components, component 1 has collapsed at party 'bank'" in said
    assert "best by held-out rows: 3 components; by BIC: 3" in said


def test_select_where_every_fit_collapses(folder):
    few_rows(folder)
    said = vpem_says("select", *FEW, "-k", "4..6", "--plot", "s.svg", "-o", "s.csv", code=1)
    assert "error: expected a fit for at least one number of components, got none: with 4 components, " in said
    assert not (folder / "s.csv").exists()


def test_shrinkage(folder):
    few_rows(folder)
    assert "3 collapsed" in vpem_says("select", *FEW, "-k", "1..3")
    assert "collapsed" not in vpem_says("select", *FEW, "-k", "1..3", "--shrinkage", 0.5)
    for given, expected in (("oas", "oas"), ("0.25", 0.25)):
        vpem_says("fit", *FEW, "-k", 2, "--shrinkage", given, "-o", "model")
        assert vpem.load("model").shrinkage == expected


@pytest.mark.parametrize("kind", ["ring", "path", "complete", "geometric", "scale-free"])
def test_graphs(folder, kind):
    said = vpem_says("graph", kind, "-n", 12, "-o", "links.txt", "--draw")
    assert "12 agents" in said
    assert "rounds for a millionth" in said
    assert (folder / f"{kind}.png").stat().st_size > 1000
    links = (folder / "links.txt").read_text().splitlines()
    assert all(len(line.split(", ")) == 2 for line in links)


def test_a_graph_of_the_parties_goes_into_a_fit():
    vpem_says("graph", "path", "--parties", "parties.toml", "-o", "links.txt")
    vpem_says("fit", "people.csv", "--parties", "parties.toml", "-k", 2, "--graph", "links.txt")
    assert set(vpem.load("model.vpem").graph_) == {"bank", "shop"}


def test_a_report(folder):
    vpem_says("fit", "people.csv", "--parties", "parties.toml", "-k", 2, "-o", "model", "--report", "report.html")
    assert "<html" in (folder / "report.html").read_text()


def test_version_help_and_demo(folder):
    assert vpem_says("--version").strip() == f"vpem {vpem.__version__}"
    for command in ("demo", "fit", "predict", "select", "sample", "show", "graph", "experiment"):
        assert command in vpem_says("--help")
        said = vpem_says(command, "--help")
        assert "xample" in said or command == "demo", "help teaches by an example"
    assert (
        "VP-EM, federated"
        in subprocess.run(
            [sys.executable, "-c", "from vpem.cli import main; main()", "demo"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    assert (folder / "demo.png").is_file()


def test_names_that_results_have_too(folder):
    write_csv("odd.csv", {"component": DATA[:, 0], "log_density": DATA[:, 1]})
    vpem_says("fit", "odd.csv", "-k", 2, "-o", "model")
    vpem_says("sample", "model", "-n", 5, "-o", "sample.csv")
    assert list(rows("sample.csv")[0]) == ["component", "log_density", "component_"]
    vpem_says("fit", "people.csv", "--parties", "parties.toml", "-k", 2, "-o", "model")
    table = pa_csv.read_csv("people.csv").rename_columns(["component", *NAMES])
    pa_csv.write_csv(table, "ids.csv")
    vpem_says("predict", "model", "ids.csv", "--id", "component", "-o", "scores.PARQUET")
    assert pq.read_table("scores.PARQUET").column_names[:2] == ["component_", "component"]


def test_texts_in_several_tables_can_be_left_out():
    write_csv("clinic.csv", {"person": list(range(150)), "name": ["x"] * 150, "pulse": DATA[:150, 3]})
    tables = ("bank.csv", "clinic.csv", "--id", "person")
    assert "column 'name'" in vpem_says("fit", *tables, "-k", 2, code=1)
    for name in ("name", "clinic.name"):
        vpem_says("fit", *tables, "-k", 2, "--ignore", name, "-o", "model")
        assert list(vpem.load("model").feature_names_in_) == ["income", "age", "pulse"]
    vpem_says("predict", "model", *tables)
    assert len(rows("scores.csv")) == 200


def test_brackets_in_names_are_no_markup(folder):
    assert "model: [bold]m.vpem" in vpem_says(
        "fit", "people.csv", "--parties", "parties.toml", "-k", 2, "-o", "[bold]m.vpem"
    )
    assert (folder / "[bold]m.vpem").is_file()


# What it says when something is wrong

WRONG = [
    (["fit", "none.csv", "-k", "2"], "none.csv: expected the file of a table, found no such file"),
    (["fit", "people.csv", "-k", "2"], "people.csv, line 2, column 'person': expected a number or nothing, got 'p0'"),
    (["fit", "people.csv", "-k", "0", "--ignore", "person"], "1 or more, got '0'"),
    (["fit", "people.csv", "-k", "2", "--ignore", "persn"], "did you mean 'person'?"),
    (["fit", "bank.csv", "shop.parquet", "-k", "2"], "expected --id with several tables"),
    (["fit", "bank.csv", "shop.parquet", "-k", "2", "--id", "persn"], "did you mean 'person'?"),
    (
        ["fit", "bank.csv", "shop.parquet", "-k", "2", "--id", "person", "--parties", "parties.toml"],
        "each file is a party",
    ),
    (["fit", "bank.csv", "bank.csv", "-k", "2", "--id", "person"], "got 'bank' twice"),
    (["fit", "people.csv", "-k", "2", "--parties", "none.toml"], "none.toml: expected a file with the parties"),
    (["fit", "people.csv", "-k", "2", "--parties", "typo.toml"], "typo.toml: expected TOML"),
    (["fit", "people.csv", "-k", "2", "--parties", "empty.toml"], "expected a table [parties]"),
    (["fit", "people.csv", "-k", "2", "--parties", "twice.toml"], "got 'income' at 'bank' and 'shop'"),
    (["fit", "people.csv", "-k", "2", "--parties", "text.toml"], "expected a list of column names"),
    (
        ["fit", "people.csv", "-k", "2", "--parties", "unknown.toml"],
        "column 'incme' is not there; did you mean 'income'?",
    ),
    (["fit", "people.csv", "-k", "2", "--parties", "parties.toml", "--graph", "rng"], "expected a graph by name"),
    (
        ["fit", "people.csv", "-k", "2", "--parties", "parties.toml", "--graph", "bad.txt"],
        "bad.txt, line 1: party 'bnk'",
    ),
    (
        ["fit", "people.csv", "-k", "2", "--parties", "parties.toml", "--graph", "three.txt"],
        "line 2: expected two parties",
    ),
    (["fit", "people.csv", "-k", "2", "--parties", "parties.toml", "--graph", "self.txt"], "two different parties"),
    (
        ["fit", "people.csv", "-k", "2", "--parties", "parties.toml", "--graph", "nobody.txt"],
        "expected a connected network",
    ),
    (["fit", "people.csv", "-k", "2", "--parties", "parties.toml", "--init", "magic"], "magic"),
    (["fit", "people.csv", "-k", "2", "--parties", "parties.toml", "--graph", "ring", "--rounds", "0"], "rounds"),
    (["fit", "empty.csv", "-k", "2"], "empty.csv: expected a table"),
    (["fit", "header.csv", "-k", "2"], "expected rows, got none"),
    (["fit", "ragged.csv", "-k", "2"], "ragged.csv"),
    (["fit", "double.csv", "-k", "2", "--id", "id"], "got 'a' in rows 1 and 3"),
    (["fit", "noid.csv", "-k", "2", "--id", "id"], "row 2: expected an id"),
    (["fit", "nothing.csv", "-k", "2"], "column 'y' has no value at all"),
    (["fit", "infinite.csv", "-k", "2"], "got infinity"),
    (["fit", "names.csv", "-k", "2"], "got 'x' more than once"),
    (["fit", "people.xlsx", "-k", "2"], "people.xlsx: expected a workbook"),
    (["fit", "broken.parquet", "-k", "2"], "broken.parquet: expected a table"),
    (["fit", "bank.csv", "far.csv", "-k", "2", "--id", "person"], "none in common"),
    (["fit", "bank.csv", "-k", "2", "-o", "bank.csv"], "expected another file for the result"),
    (["fit", "bank.csv", "-k", "2", "-o", "nowhere/model"], "got no folder nowhere; make it first"),
    (["fit", "bank.csv", "-k", "2", "-o", "."], "got the folder ."),
    (["fit", "bank.csv", "-k", "2", "--report", "bank.csv"], "expected another file for the result"),
    (["select", "bank.csv", "--plot", "x.docx"], "ends in .png or .svg or .pdf"),
    (["predict", "newer", "bank.csv", "-o", "scores.xlsx"], "ends in .csv or .parquet"),
    (["predict", "newer", "bank.csv", "-o", "bank.csv"], "expected another file for the result"),
    (["graph", "scale-free", "-n", "3"], "try a smaller --degree"),
    (["graph", "ring", "--parties", "commas.toml", "-o", "x.txt"], "expected names without commas"),
    (["graph", "geometric", "--degree", "nan"], "expected a mean degree"),
    (["fit", "latin.csv", "-k", "2", "--encoding", "utf-8"], "latin.csv: expected text in UTF-8"),
    (["fit", "semicolons.csv", "-k", "2", "--separator", ","], "expected a number or nothing, got '1;2'"),
    (["fit", "listed.parquet", "--id", "id", "-k", "2"], "in the id column 'id', got list"),
    (["fit", "clash.csv", "bank.csv", "--id", "person", "-k", "2"], "got 'clash.age' twice"),
    (["predict", "people.csv", "people.csv", "-o", "x.csv"], "expected a model in people.csv"),
    (["predict", "none", "people.csv"], "none"),
    (["show", "newer"], "update vpem"),
    (["graph", "rng"], "did you mean 'ring'?"),
    (["graph", "geometric", "-n", "10", "--degree", "50"], "expected a mean degree"),
    (["graph", "ring", "-n", "1"], "2 agents or more"),
    (["select", "people.csv", "--ignore", "person", "-k", "3..1"], "expected --components as 1..10"),
    (["experiment", "pulsr"], "did you mean 'pulsar'?"),
    (["fit", "bank.csv", "-k", "2", "--shrinkage", "lw"], "expected --shrinkage to be auto, oas, none or a number"),
    (["select", "bank.csv", "--shrinkage", "1.5"], "from 0 to 1, got '1.5'"),
    (["fit", "bank.csv", "-k", "2", "--shrinkage", "oas", "--covariance", "diag"], "'full' or 'tied' with shrinkage"),
    (["select", "bank.csv", "--shrinkage", "nan"], "from 0 to 1, got 'nan'"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=[" ".join(a) for a, _ in WRONG])
def test_errors_say_where_and_what_to_try(folder, arguments, message):
    files = {
        "typo.toml": "[parties\n",
        "empty.toml": "title = 'x'\n",
        "twice.toml": "[parties]\nbank = ['income']\nshop = ['income']\n",
        "text.toml": "[parties]\nbank = 'income'\n",
        "unknown.toml": "[parties]\nbank = ['incme']\nshop = ['spent']\n",
        "bad.txt": "bnk, shop\n",
        "three.txt": "bank, shop\nbank, shop, bank\n",
        "self.txt": "bank, bank\n",
        "nobody.txt": "# nobody\n",
        "empty.csv": "",
        "header.csv": "a,b\n",
        "ragged.csv": "a,b\n1,2\n3\n",
        "double.csv": "id,x\na,1\nb,2\na,3\n",
        "noid.csv": "id,x\na,1\n,2\n",
        "nothing.csv": "x,y\n1,\n2,NA\n",
        "infinite.csv": "x\n1\ninf\n",
        "names.csv": "x,x\n1,2\n",
        "people.xlsx": "PK",
        "broken.parquet": "PAR1 is not enough",
        "commas.toml": "[parties]\n'a,b' = ['income']\nshop = ['spent']\n",
        "semicolons.csv": "a;b\n1;2\n",
        "clash.csv": "person,age,clash.age\n1,2,3\n2,3,4\n",
        "far.csv": "person,x\n1000,1\n1001,2\n",
    }
    for name, content in files.items():
        (folder / name).write_text(content)
    (folder / "latin.csv").write_bytes("gr\u00f6\u00dfe\n1\n2\n".encode("latin-1"))
    pq.write_table(pa.table({"id": [[1], [2]], "x": [1.0, 2.0]}), "listed.parquet")
    if "newer" in arguments:
        vpem_says("fit", "people.csv", "--parties", "parties.toml", "-k", 2, "-o", "newer")

        with zipfile.ZipFile("newer") as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        about = json.loads(members["model.json"])
        members["model.json"] = json.dumps({**about, "version": 99}).encode()
        with zipfile.ZipFile("newer", "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    said = vpem_says(*arguments, code=1)
    assert "error:" in said
    assert message in said
    assert "Traceback" not in said
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before, "nothing was written"


def test_debug_shows_the_traceback():
    result = CliRunner().invoke(app, ["--debug", "fit", "none.csv", "-k", "2"])
    assert type(result.exception).__name__ == "TableError"


def test_a_missing_option_is_an_error_of_use():
    assert "components" in vpem_says("fit", "people.csv", code=2)


# Ctrl-C


def interrupted(folder, how_often):
    """Run a fit that would go on for long, and press Ctrl-C once it iterates."""
    X = make_vertical_blobs(60_000, 10, 1, 6, separation=0.3, random_state=0).data
    write_csv("many.csv", {f"c{number}": X[:, number] for number in range(10)})
    command = [sys.executable, "-u", "-c", "from vpem.cli import main; main()"]
    command += ["fit", "many.csv", "-k", "6", "--tol", "0", "--max-iter", "1000000", "-o", "model"]
    with open("log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        while "fitting" not in (folder / "log").read_text():
            assert process.poll() is None, (folder / "log").read_text()
            time.sleep(0.05)
        time.sleep(1.0)  # somewhere in k-means or in the first iterations
        for _ in range(how_often):
            process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
    return process.returncode, (folder / "log").read_text()


@pytest.mark.long
def test_ctrl_c_saves_the_best_model_so_far(folder):
    code, said = interrupted(folder, 1)
    assert code == 130, said
    model = vpem.load("model")
    assert model.n_iter_ >= 1
    assert not model.converged_
    assert "Traceback" not in said
    assert "best model so far" in said


# A plain install has no matplotlib


def without_matplotlib(*arguments):
    """The program in a process of its own, where matplotlib cannot be imported."""
    code = "import sys; sys.modules['matplotlib'] = None; from vpem.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_the_demo_needs_no_extra(folder):
    done = without_matplotlib("demo")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("There will be no picture, as matplotlib is missing: pip install 'vpem[figures]'")
    assert "VP-EM, on a ring" in done.stdout
    assert not list(folder.glob("*.png"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["select", "there-is-no-such-table.csv", "--plot", "select.png"],
        ["graph", "ring", "--draw", "-o", "links.txt"],
        ["graph", "ring", "--picture", "ring.svg", "-o", "links.txt"],
        ["demo", "--picture", "demo.png"],
    ],
)
def test_what_a_picture_needs_is_checked_before_the_work(folder, arguments):
    done = without_matplotlib(*arguments)
    assert done.returncode == 1
    assert "this needs matplotlib: pip install 'vpem[figures]'" in re.sub(r"\s+", " ", done.stderr)
    assert done.stdout == ""
    assert not (folder / "links.txt").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["select", "people.csv", "--plot", "nowhere/select.png"],
        ["fit", "people.csv", "-k", "2", "--report", "nowhere/report.html"],
        ["graph", "ring", "--picture", "nowhere/ring.png", "-o", "links.txt"],
        ["demo", "--picture", "nowhere/demo.png"],
    ],
)
def test_where_a_result_goes_is_checked_before_the_work(folder, arguments):
    assert "got no folder nowhere" in vpem_says(*arguments, code=1)
    assert not (folder / "links.txt").exists()
    assert not (folder / "model.vpem").exists()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_star_has_a_server(folder):
    said = vpem_says("graph", "star", "--parties", "parties.toml", "--draw")
    assert "2 parties, each linked with a server: 2 links, diameter 2" in said
    shorter, longer = (
        VerticalGaussianMixture(2, partition=list(PARTIES.values()), tol=0, max_iter=most, random_state=0)
        .fit(pd.DataFrame(DATA, columns=NAMES))
        .traffic_
        for most in (3, 4)
    )
    [rounds, messages] = [longer.rounds - shorter.rounds, longer.messages - shorter.messages]
    assert f"{rounds} rounds and {messages} messages for a sum" in said
    assert (folder / "star.png").read_bytes().startswith(b"\x89PNG")
    assert "try vpem fit --graph star" in vpem_says("graph", "star", "-o", "links.txt", code=1)
    (folder / "server.toml").write_text("[parties]\nserver = ['a']\nother = ['b']\n")
    assert "other names than that of the star's own server" in vpem_says(
        "graph", "star", "--parties", "server.toml", code=1
    )


def test_the_help_names_every_start():
    listed = f"{', '.join(STARTS[:-1])} or {STARTS[-1]}"
    assert f"How to start: {listed}." in vpem_says("fit", "--help").replace("│ ", "")


# The verdict


def wide(folder):
    """Forty rows of thirty columns at one party."""
    table = np.random.default_rng(0).normal(size=(40, 30))
    write_csv("wide.csv", {f"c{n}": table[:, n] for n in range(30)})
    (folder / "wide.toml").write_text(f"[parties]\nclinic = {[f'c{n}' for n in range(30)]}\n")
    return "wide.csv", "--parties", "wide.toml", "-k", 3


def test_a_bad_fit_is_told_in_words_and_strict_ends_with_a_code(folder):
    arguments = wide(folder)
    said = vpem_says("fit", *arguments, "--shrinkage", "none", "-o", "m")
    assert "red: this fit is not to be trusted" in said
    assert "effective rows for a covariance of the 30 columns of 'clinic'" in said
    assert "Try: --shrinkage auto" in said
    vpem_says("fit", *arguments, "--shrinkage", "none", "-o", "m", "--strict", code=3)
    assert (folder / "m").exists(), "the model is there all the same"
    assert "effective rows" in vpem_says("show", "m")
    told = json.loads(CliRunner().invoke(app, ["show", "m", "--json"]).stdout)
    assert told["verdict"] == "red"
    assert {finding["code"] for finding in told["findings"]} >= {"few_rows"}
    assert told["log_likelihood"] == vpem.load("m").log_likelihood_
    good = vpem_says("fit", "people.csv", "--parties", "parties.toml", "-k", 3, "-o", "m", "--strict")
    assert "green: nothing was found wrong" in good


def test_too_few_rounds_are_told_before_the_fit(folder):
    table = np.random.default_rng(0).normal(size=(100, 20)) + 3 * (np.arange(100) % 2)[:, None]
    write_csv("many.csv", {f"c{n}": table[:, n] for n in range(20)})
    said = vpem_says("fit", "many.csv", "-k", 2, "--graph", "path", "--rounds", 20, "-o", "m")
    note, _, rest = said.partition("fitting;")
    assert "rounds of averaging leave" in note or "rounds of averaging leave" in rest
    assert "exact; the roots' own views" in said
    assert vpem.load("m").summation.rounds == 20
    said = vpem_says("fit", "many.csv", "-k", 2, "--graph", "path", "-o", "m")
    assert "averaging" not in said
    assert vpem.load("m").summation == vpem.Tree()
    vpem_says("fit", "many.csv", "-k", 2, "--graph", "path", "--sum", "consensus", "-o", "m")
    assert vpem.load("m").summation == vpem.Consensus()
    vpem_says("fit", "many.csv", "-k", 2, "--graph", "path", "--rounds", "auto", "-o", "m")
    assert vpem.load("m").summation == vpem.Consensus("auto")
    assert "1 or more, or auto" in vpem_says("fit", "many.csv", "-k", 2, "--graph", "path", "--rounds", "few", code=1)
    vpem_says(
        "fit", "many.csv", "-k", 2, "--graph", "path", "--sum", "differences", "--accelerate", "squarem", "-o", "m"
    )
    assert vpem.load("m").summation == vpem.Differences(vpem.Tree())
    said = vpem_says("fit", "many.csv", "-k", 2, "--graph", "path", "--sum", "exact", "--rounds", 3, code=1)
    assert "expected --rounds with --sum consensus only" in said
    assert "did you mean 'differences'" in vpem_says("fit", "many.csv", "-k", 2, "--sum", "difference", code=1)


def test_a_best_number_at_the_edge_is_told(folder):
    said = vpem_says("select", "people.csv", "--parties", "parties.toml", "-k", "1..2")
    assert "is the largest that was tried. Try: --components 1..4" in said


def test_columns_are_standardized_unless_that_cannot_be(folder):
    common = ("fit", "people.csv", "--parties", "parties.toml", "-k", 2, "-o", "m")
    for more, expected in (([], True), (["--no-standardize"], False), (["--covariance", "spherical"], False)):
        vpem_says(*common, *more)
        assert vpem.load("m").standardize is expected
    assert "try standardize=False" in vpem_says(*common, "--covariance", "spherical", "--standardize", code=1)


@pytest.mark.parametrize("uneven", [False, True])
def test_five_clear_clusters_are_found_every_time(folder, uneven):
    shares = [0.4, 0.3, 0.15, 0.1, 0.05] if uneven else [0.2] * 5
    n_found = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        centres = np.zeros((5, 8))
        while min(np.linalg.norm(a - b) for n, a in enumerate(centres) for b in centres[:n]) < 6:
            centres = 4 * rng.normal(size=(5, 8))
        labels = rng.choice(5, size=500, p=shares)
        X = centres[labels] + rng.normal(size=(500, 8))
        write_csv("clear.csv", {f"c{n}": X[:, n] for n in range(8)})
        (folder / "clear.toml").write_text('[parties]\na = ["c0", "c1", "c2", "c3"]\nb = ["c4", "c5", "c6", "c7"]\n')
        vpem_says("fit", "clear.csv", "--parties", "clear.toml", "-k", 5, "-o", "m", "--strict")
        model = vpem.load("m")
        del model.feature_names_in_
        n_found += adjusted_rand_score(labels, model.predict(X)) > 0.98
    assert n_found == 20
