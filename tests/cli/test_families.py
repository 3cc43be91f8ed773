"""The program with columns of words, counts and amounts."""

import csv
import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import vpem
from vpem.cli import app as _  # noqa: F401 (all commands)
from vpem.cli.app import app, err, out


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A table of people, whole and as two parties have it."""
    monkeypatch.chdir(tmp_path)
    for console in (out, err):
        monkeypatch.setattr(console, "_width", 200)
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=300)
    table = pd.DataFrame(
        {
            "person": [f"p{n}" for n in range(300)],
            "age": rng.normal(40 + 15 * group, 5).round(2),
            "job": np.where(rng.random(300) < 0.2 + 0.6 * group, "nurse", rng.choice(["smith", "clerk"], size=300)),
            "visits": rng.poisson(4 + 8 * group),
            "spent": np.where(rng.random(300) < 0.6, 0.0, np.exp(rng.normal(3 + group, 0.5)).round(2)),
            "hour": (rng.vonmises(group * 2.0, 2.0) * 24 / (2 * np.pi) % 24).round(1),
        }
    )
    table.loc[::13, "job"] = None
    table.to_csv("people.csv", index=False)
    table[["person", "age", "job"]].to_csv("registry.csv", index=False)
    table[["person", "visits", "spent", "hour"]].sample(frac=0.9, random_state=0).to_csv("shop.csv", index=False)
    return tmp_path


def vpem_says(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return re.sub(r"\s+", " ", result.output)


TABLES = ("registry.csv", "shop.csv", "--id", "person")


def test_words_are_taken_if_asked(folder):
    said = vpem_says("fit", *TABLES, "-k", 2, "--starts", 1, code=1)
    assert "words, 3 different ones" in said
    assert "--family auto takes words as categories" in said
    said = vpem_says("fit", *TABLES, "-k", 2, "--family", "hour=angles:24", "--report", "r.html", "--out", "m")
    assert "families gaussian: age; categorical: job; counts: visits; zeros: spent; angles: hour" in said
    assert '"labels": ["nurse"' in (folder / "r.html").read_text().replace('":["', '": ["')
    model = vpem.load("m")
    assert model.categories_ == {"job": ["clerk", "nurse", "smith"]}
    said = vpem_says("show", "m")
    assert re.search(r"nurse \d\d%", said)
    found = json.loads(CliRunner().invoke(app, ["show", "m", "--json"]).output)
    assert found["families"][found["columns"].index("hour")] == "angles:24"
    assert found["categories"] == model.categories_


def test_a_model_of_several_files_takes_such_tables_in_python(folder):
    vpem_says("fit", *TABLES, "-k", 2, "--family", "hour=angles:24", "--out", "m")
    vpem_says("predict", "m", *TABLES, "--out", "scores.csv")
    model, scores = vpem.load("m"), pd.read_csv("scores.csv")
    for tables in (
        {"registry": "registry.csv", "shop": "shop.csv"},
        {"registry": pd.read_csv("registry.csv"), "shop": pd.read_csv("shop.csv")},
    ):
        assert model.predict(tables).tolist() == scores["component"].tolist()
        filled = model.impute(tables)
        assert filled["registry"]["person"].tolist() == filled["shop"]["person"].tolist() == scores["person"].tolist()
    vpem_says("impute", "m", *TABLES, "--out", "filled.csv")
    by_program = pd.read_csv("filled.csv")
    assert filled["registry"]["job"].tolist() == by_program["job"].tolist()
    np.testing.assert_allclose(filled["shop"][["visits", "spent", "hour"]], by_program[["visits", "spent", "hour"]])
    vpem_says("sample", "m", "-n", 20, "--out", "drawn.csv")
    drawn = model.set_params(random_state=0).sample(20)[0]
    assert drawn["registry"]["job"].tolist() == pd.read_csv("drawn.csv")["job"].tolist()


def test_the_parties_file_may_have_families(folder):
    (folder / "parties.toml").write_text(
        '[parties]\na = ["age", "job"]\nb = ["visits", "hour"]\n[families]\nvisits = "poisson"\nhour = "angles:24"\n'
    )
    vpem_says("fit", "people.csv", "--parties", "parties.toml", "-k", 2, "--family", "visits=counts", "--out", "m")
    assert [text.split(":")[0] for text in vpem.load("m").families_.values()] == [
        "gaussian",
        "categorical",
        "counts",
        "angles",
    ]
    (folder / "parties.toml").write_text('families = 7\n[parties]\na = ["age"]\n')
    assert "expected a table [families]" in vpem_says(
        "fit", "people.csv", "--parties", "parties.toml", "-k", 2, code=1
    )


def test_predict_impute_and_sample_speak_words(folder):
    vpem_says("fit", *TABLES, "-k", 2, "--family", "auto", "--out", "m")
    wrong = pd.read_csv("shop.csv")
    wrong.loc[4, "visits"] = -3
    wrong.to_csv("wrong.csv", index=False)
    said = vpem_says("predict", "m", "wrong.csv", "--id", "person", code=1)
    assert "row 4: expected whole numbers from 0 in column 'visits', whose family is counts" in said
    said = vpem_says("fit", "shop.csv", "--id", "person", "-k", 2, "--family", "hour=angles:12", code=1)
    assert re.search(r"column 'hour': has values from \S+ to \S+, and not angles from -12 to 12; correct it", said)
    table = pd.read_csv("registry.csv")
    table.loc[[2, 3], "job"] = "astronaut"
    table.to_csv("registry.csv", index=False)
    said = vpem_says("predict", "m", *TABLES, "-o", "scores.csv")
    assert "column 'job' has words that the fit has not seen, which count as missing: 'astronaut'" in said
    assert len(rows("scores.csv")) == 300
    vpem_says("impute", "m", *TABLES, "-o", "filled.csv")
    assert {row["job"] for row in rows("filled.csv")} == {"clerk", "nurse", "smith"}
    vpem_says("sample", "m", "-n", 50, "-o", "drawn.csv")
    assert {row["job"] for row in rows("drawn.csv")} <= {"clerk", "nurse", "smith"}


def test_densities_and_probabilities_are_not_compared(folder):
    arguments = ("people.csv", "--ignore", "job,person", "-k", 2, "--starts", 1)
    vpem_says("fit", *arguments, "--out", "gaussian.vpem")
    vpem_says("fit", *arguments, "--family", "visits=counts", "--out", "counts.vpem")
    vpem_says("fit", *arguments, "--family", "visits=poisson", "--out", "poisson.vpem")
    said = vpem_says("compare", "gaussian.vpem", "counts.vpem", "people.csv", "--report", "c.html")
    assert (
        "do not compare, nor do BIC and AIC: column 'visits' has a density in one and a probability in the other"
        in said
    )
    assert "log-lik. BIC" not in said
    assert "do not compare" in (folder / "c.html").read_text()
    assert "log-lik. BIC" in vpem_says("compare", "counts.vpem", "poisson.vpem", "people.csv")


def test_select_by_held_out_rows(folder):
    arguments = ("select", *TABLES, "-k", "1..3", "--family", "hour=angles:24", "--starts", 1)
    said = vpem_says(*arguments, "--folds", 3, "-o", "s.csv", "--plot", "s.svg")
    assert "best by held-out rows: 2 components; by BIC: 2; by ICL: 2" in said
    found = rows("s.csv")
    assert float(found[1]["held_out"]) > float(found[0]["held_out"])
    assert float(found[1]["held_out"]) < float(found[1]["log_likelihood"])
    assert float(found[1]["icl"]) >= float(found[1]["bic"])
    assert float(found[0]["icl"]) == pytest.approx(float(found[0]["bic"]))
    assert "held out" in (folder / "s.svg").read_text()
    vpem_says(*arguments, "--folds", 3, "-o", "again.csv")
    assert rows("again.csv") == found
    assert "expected --folds of 2 or more" in vpem_says(*arguments, "--folds", 1, code=1)
    assert "--family as column=family" in vpem_says("select", *TABLES, "--family", "zeros", code=1)


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_codes_in_files_keep_their_zeros(folder):
    table = pd.read_csv("people.csv")
    rng = np.random.default_rng(1)
    table["code"] = rng.choice(["01", "02", "1", "A3"], 300, p=[0.5, 0.3, 0.15, 0.05])
    table["member"] = rng.random(300) < 0.5
    table.drop(columns="job").to_csv("codes.csv", index=False)
    said = vpem_says("fit", "codes.csv", "--ignore", "person", "-k", 2, "--family", "auto", code=1)
    assert "say that it is categorical" in said
    arguments = ("--family", "code=categorical", "--starts", 1, "--out", "m")
    vpem_says("fit", "codes.csv", "--ignore", "person", "-k", 2, *arguments)
    assert vpem.load("m").categories_ == {"code": ["01", "02", "1", "A3"], "member": ["false", "true"]}
    vpem_says("predict", "m", "codes.csv", "--id", "person", "-o", "all.csv")
    few = table[table["code"].isin(["01", "02"])].drop(columns="job")  # could be read as numbers
    few.to_csv("few.csv", index=False)
    said = vpem_says("predict", "m", "few.csv", "--id", "person", "-o", "few-scores.csv")
    assert "has words that the fit has not seen" not in said
    expected = {row["person"]: row for row in rows("all.csv")}
    assert rows("few-scores.csv") == [expected[one] for one in few["person"]]


def test_folds_have_the_categories_of_all_rows(folder):
    table = pd.read_csv("people.csv").drop(columns="hour")
    table["rare"] = np.where(np.arange(300) == 7, "x", "y")  # in one row
    table["number"] = np.where(np.arange(300) == 9, 5, np.arange(300) % 3)
    table["fee"] = np.where(np.arange(300) < 2, [1.5, 2.5, *[0.0] * 298], 0.0)
    table["visits"] = np.where(np.arange(300) == 11, 60, table["visits"])
    table.to_csv("rare.csv", index=False)
    arguments = ("select", "rare.csv", "--id", "person", "-k", "1..2", "--starts", 1, "--family", "fee=zeros")
    said = vpem_says(*arguments, "--folds", 4, "-o", "s.csv")
    assert "collapsed" not in said
    held = [float(one["held_out"]) for one in rows("s.csv")]
    assert np.isfinite(held).all()
    # By hand: categories of all rows, smoothed, and the Poisson probability of a count that other rows lack.
    alone = pd.DataFrame({"person": table["person"], "rare": table["rare"]})
    alone.to_csv("alone.csv", index=False)
    vpem_says(
        "select",
        "alone.csv",
        "--id",
        "person",
        "-k",
        "1",
        "--starts",
        1,
        "--family",
        "auto",
        "--folds",
        4,
        "-o",
        "a.csv",
    )
    from vpem.core.decisions.initial import shared_folds

    numbers, total = shared_folds(0, 300, 4), 0.0
    for fold in range(4):
        kept, own = alone["rare"][numbers != fold], alone["rare"][numbers == fold]
        share = {word: ((kept == word).sum() + 0.5) / (len(kept) + 1) for word in ("x", "y")}
        total += np.log([share[word] for word in own]).sum()
    assert float(rows("a.csv")[0]["held_out"]) == pytest.approx(total / 300, abs=1e-12)


def test_words_for_gaps_are_told_and_can_be_set():
    """A category "none" must neither be missing nor be replaced by `vpem impute`."""
    table = pd.read_csv("people.csv", keep_default_na=False)
    table["job"] = table["job"].replace({"": "NA", "smith": "none"})
    table["hour"] = ["-" if n < 5 else hour for n, hour in enumerate(table["hour"])]
    table.to_csv("people.csv", index=False)
    fit = ("fit", "people.csv", "--id", "person", "-k", 2, "--starts", 1, "--family", "auto")
    n_none, n_gaps = (table["job"] == "none").sum(), (table["job"] == "NA").sum()
    said = vpem_says(*fit)
    assert f"people.csv: words that count as gaps: 'NA' in job ({n_gaps}); '-' in hour (5) (else: --gaps)" in said
    assert f"words that count as categories: 'none' in job ({n_none}) (if they are gaps: --gaps)" in said
    vpem_says("impute", "model.vpem", "people.csv", "--id", "person")
    filled = pd.read_csv("imputed.csv", keep_default_na=False)
    there = table["job"] != "NA"
    assert filled["job"][there].tolist() == table["job"][there].tolist()
    said = vpem_says(*fit, "--gaps", "none,-", "--gaps", "job=none")
    assert f"'none' in job ({n_none}); '-' in hour (5)" in said
    assert vpem.load("model.vpem").categories_["job"] == ["NA", "clerk", "nurse"]
    said = vpem_says("predict", "model.vpem", "people.csv", "--id", "person")
    assert f"'none' in job ({n_none}); '-' in hour (5)" in said, "the model keeps them for new files"
    said = vpem_says(*fit, "--gaps", "jop=none", code=1)
    assert "--gaps: column 'jop' is not there; did you mean 'job'?" in said
