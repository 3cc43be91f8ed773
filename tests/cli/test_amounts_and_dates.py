"""The program with workbooks, money, percentages and dates: new files are read as those of the fit."""

import csv
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import vpem
from vpem.cli import app as _  # noqa: F401 (all commands)
from vpem.cli.app import app, err, out
from vpem.studies.private import read_party
from vpem.studies.row_order import read_rows
from vpem.tables import date_numbers


def german(value):
    return f"{value:,.2f} €".translate(str.maketrans(".,", ",."))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A table with typed columns, and as people write it."""
    monkeypatch.chdir(tmp_path)
    for console in (out, err):
        monkeypatch.setattr(console, "_width", 300)
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=200)
    typed = pd.DataFrame(
        {
            "person": range(200),
            "price": rng.normal(2000 + 3000 * group, 300).round(2),
            "rate": rng.normal(20 + 30 * group, 4).round() / 100,
            "visited": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 400_000, 200), unit="min"),
        }
    )
    written = typed.assign(
        price=typed["price"].map(german),
        rate=[f"{value:.0%}" for value in typed["rate"]],
        visited=typed["visited"].dt.strftime("%d/%m/%Y %H:%M"),
    )
    written.to_csv("written.csv", index=False, sep=";")
    few = typed[typed["visited"].dt.day <= 12].head(20)  # in these, day and month can be mistaken
    written.loc[few.index].to_csv("new.csv", index=False, sep=";")
    few.to_parquet("new.parquet", index=False)
    few.to_excel("new.xlsx", index=False, engine="xlsxwriter")
    few.assign(rate=few["rate"] * 100).to_csv("points.csv", index=False)
    written.loc[few.index].replace({"price": {"€": "$"}}, regex=True).to_csv("dollars.csv", index=False, sep=";")
    return tmp_path


def said(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return re.sub(r"\s+", " ", result.output)


def densities(path):
    with open(path) as file:
        return [float(row["log_density"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("what", ["days", "hour"])
def test_new_files_are_read_as_those_of_the_fit(folder, what):
    told = said(
        "fit", "written.csv", "--id", "person", "-k", 2, "--dates", f"visited={what}", "--starts", 1, "-o", "m"
    )
    assert "column 'price' has amounts in €: " in told
    assert "column 'rate' has percentages: " in told
    assert "column 'visited' has dates or times: " in told
    assert ("--family visited=angles:24" in told) == (what == "hour")
    assert vpem.load("m").read_as_ == {"price": "€", "rate": "%", "visited": f"{what}:dmy"}
    found = []
    for name in ("new.csv", "new.parquet", "new.xlsx"):
        told = said("predict", "m", name, "--id", "person", "-o", "scores.csv")
        assert ("column 'rate' has plain numbers, and the table of the fit has percentages" in told) == (
            name != "new.csv"
        )
        found.append(densities("scores.csv"))
    np.testing.assert_allclose(found[1:], [found[0]] * 2, rtol=1e-12)
    assert "expected amounts in € in column 'price', as in the fit, got amounts in $" in said(
        "predict", "m", "dollars.csv", "--id", "person", code=1
    )
    assert "are the units the same?" in said("predict", "m", "points.csv", "--id", "person")
    vpem.save(vpem.load("m"), "other")
    assert "labels of 20 rows" in said("compare", "m", "other", "new.xlsx", "--id", "person")


def test_dates_have_the_families_of_their_numbers(folder):
    arguments = "fit", "new.parquet", "--id", "person", "-k", 1, "--family", "auto", "--starts", 1, "-o", "m"
    assert "angles: visited" in said(*arguments, "--dates", "visited=hour")
    assert "categorical: visited" in said(*arguments, "--dates", "visited=weekday", "--family", "visited=categorical")
    assert "--dates: column 'visitd' is not there; did you mean 'visited'?" in said(
        *arguments, "--dates", "visitd=hour", code=1
    )
    assert "expected --dates as column=days" in said(*arguments, "--dates", "visited", code=1)
    assert "got 'month' for 'visited'" in said(*arguments, "--dates", "visited=month", code=1)
    assert "which is an id or left out" in said(*arguments, "--dates", "visited=hour", "--ignore", "visited", code=1)
    assert "--dates visited=days" in said(*arguments, code=1)


def test_sheets_are_parties(folder):
    typed = pd.read_parquet("new.parquet")
    with pd.ExcelWriter("book.xlsx", engine="xlsxwriter") as book:
        typed[["person", "price"]].to_excel(book, sheet_name="bank", index=False)
        typed[["person", "rate"]].to_excel(book, sheet_name="shop", index=False)
    said("fit", "book.xlsx#bank", "book.xlsx#shop", "--id", "person", "-k", 1, "--starts", 1, "-o", "m")
    assert {party: list(held) for party, held in vpem.load("m").partition_.items()} == {"bank": [0], "shop": [1]}
    assert "for another: 'book.xlsx#shop'" in said("fit", "book.xlsx", "--id", "person", "-k", 1, "-o", "m")


def test_a_model_takes_such_tables_in_python(folder):
    typed = pd.read_parquet("new.parquet")
    typed[["person", "price"]].to_csv("bank.csv", index=False)
    typed[["person", "visited", "rate"]].to_csv("shop.csv", index=False)
    said("fit", "bank.csv", "shop.csv", "--id", "person", "-k", 1, "--dates", "shop.visited=days", "-o", "m")
    model = vpem.load("m")
    bank, shop = typed[["person", "price"]], typed[["person", "visited", "rate"]]
    expected = model.score_samples({"bank": "bank.csv", "shop": "shop.csv"})
    np.testing.assert_allclose(model.score_samples({"bank": bank, "shop": shop}), expected, rtol=1e-12)
    numbers = shop.assign(visited=date_numbers(shop["visited"], "days"))
    np.testing.assert_allclose(model.score_samples({"bank": bank, "shop": numbers}), expected, rtol=1e-12)
    model.fit({"bank": bank, "shop": numbers}, on="person")
    assert not hasattr(model, "read_as_")


def test_a_party_of_a_study_says_what_its_dates_become(folder):
    (folder / "party.toml").write_text(
        'party = "shop"\ntable = "new.csv"\nid = "person"\n[dates]\nvisited = "hour:dmy"\n'
    )
    party = read_party("party.toml")
    rows = read_rows(party, "00")
    typed = pd.read_parquet("new.parquet")
    np.testing.assert_allclose(rows.as_in_table(rows.values)[:, 2], date_numbers(typed["visited"], "hour"))
    again = read_rows(party, "00", pd.read_parquet("new.parquet"))
    np.testing.assert_allclose(again.values, rows.values)
    (folder / "party.toml").write_text(
        'party = "shop"\ntable = "new.csv"\nid = "person"\n[dates]\nvisited = "month"\n'
    )
    with pytest.raises(ValueError, match=r"line 5: dates.visited: expected days, weekday or hour.*got 'month'"):
        read_party("party.toml")
