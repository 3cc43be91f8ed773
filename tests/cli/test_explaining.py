"""The program tells what the clusters are: show, impute, compare, labels, unusual rows."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from typer.testing import CliRunner

import vpem
from vpem.cli import app as _  # noqa: F401 (all commands)
from vpem.cli.app import app, out
from vpem.datasets import make_vertical_blobs
from vpem.meaning import short_number
from vpem.verdict import colour

NAMES = ["income", "debt", "visits", "spent"]
BLOBS = make_vertical_blobs(300, 2, 2, 3, correlation=0.3, random_state=0)
KINDS = np.array(["young", "old", "odd"])[BLOBS.target]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A table with gaps, ids and classes; the same as two parties' tables; the parties."""
    monkeypatch.chdir(tmp_path)
    # Not COLUMNS: where it is set when the console is made, a later change has no effect.
    monkeypatch.setattr(out, "_width", 120)
    values = BLOBS.data * [1000, 100, 1, 10]
    values[np.random.default_rng(0).random(values.shape) < 0.1] = np.nan
    table = pd.DataFrame(values, columns=NAMES)
    table.insert(0, "person", [f"p{n}" for n in range(300)])
    table["kind"] = KINDS
    table.to_csv("people.csv", index=False)
    table[["person", "income", "debt"]][:250].to_csv("bank.csv", index=False)
    table[["person", "visits", "spent", "kind"]][50:].sample(frac=1, random_state=0).to_csv("shop.csv", index=False)
    (tmp_path / "parties.toml").write_text('[parties]\nbank = ["income", "debt"]\nshop = ["visits", "spent"]\n')
    return table


def said(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.output


def fit(*more, k=3, name="model"):
    return said("fit", "people.csv", "--parties", "parties.toml", "-k", k, "-o", name, *more)


# Labels


def test_a_label_is_left_out_of_the_fit_and_compared(folder):
    fit()
    shown = fit("--label", "kind", name="labelled")
    one, other = vpem.load("model"), vpem.load("labelled")
    np.testing.assert_array_equal(one.means_, other.means_)
    taken = one.predict(folder[NAMES])
    told = re.sub(r"\s+", " ", shown)
    assert f"adjusted Rand index {adjusted_rand_score(KINDS, taken):.3f}" in told
    assert f"information {normalized_mutual_info_score(KINDS, taken):.3f}" in told
    for kind in ("odd", "old", "young"):
        counts = [((kind == KINDS) & (taken == k)).sum() for k in range(3)]
        cells = " ".join(str(count) if count else "." for count in (sum(counts), *counts))
        assert f"{kind} {cells}" in told
    assert Path("labelled").stat().st_size == pytest.approx(Path("model").stat().st_size, abs=100), "kept nowhere"
    assert "kind" not in other.feature_names_in_


def test_a_label_without_a_parties_file_and_with_missing_classes(folder):
    folder.loc[:9, "kind"] = None
    folder.to_csv("some.csv", index=False)
    shown = said("fit", "some.csv", "--id", "person", "-k", 3, "--label", "kind", "-o", "m")
    assert "(290 rows)" in shown
    assert list(vpem.load("m").feature_names_in_) == NAMES


@pytest.mark.parametrize("label", ["kind", "shop.kind"])
def test_the_label_of_one_of_several_tables(folder, label):
    there = folder[NAMES].notna()
    there.loc[250:, ["income", "debt"]] = False
    n_rows = int(there.any(axis=1)[50:].sum())
    shown = said("fit", "bank.csv", "shop.csv", "--id", "person", "-k", 3, "--label", label, "-o", "m")
    assert f"({n_rows} rows)" in shown
    assert float(re.search(r"Rand index ([\d.]+)", shown)[1]) > 0.9, "classes are matched by id"


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("knd", "did you mean 'kind'?"),
        ("person", "300 different values in 300 rows"),
        ("income", "which parties.toml gives to bank; take it out there"),
        ("constant", "expected two classes or more in column 'constant', got 1"),
    ],
)
def test_labels_that_are_none(folder, label, expected):
    folder.assign(constant=1).to_csv("people.csv", index=False)
    shown = said("fit", "people.csv", "--parties", "parties.toml", "-k", 3, "--label", label, code=1)
    assert expected in re.sub(r"\s+", " ", shown)


def test_a_label_in_two_tables_must_be_told_apart(folder):
    folder[["person", "income", "kind"]].to_csv("bank.csv", index=False)
    shown = said("fit", "bank.csv", "shop.csv", "--id", "person", "-k", 2, "--label", "kind", code=1)
    assert "say bank.kind or shop.kind" in re.sub(r"\s+", " ", shown)


# Show


def test_show_has_the_profiles_as_a_table():
    fit()
    model, shown = vpem.load("model"), said("show", "model")
    lines = shown.splitlines()
    profile = model.profile().set_index(["component", "column"])
    for place, one in model.importance().iterrows():
        [line] = [line for line in lines if "±" in line and line.strip().startswith(f"{one['column']} ")]
        assert f" {one['information']:.2f} " in line
        for k in range(3):
            own = profile.loc[(k, one["column"])]
            text = f"{short_number(own['mean'])} ± {short_number(own['deviation'])} ({own['distance']:+.1f})"
            assert text in line
        assert place < 4
    assert all(f"{k}: {weight:.1%}" in shown for k, weight in enumerate(model.weights_))
    parties = model.importance(by="party").set_index("party")["information"]
    assert re.search(rf"bank +{parties['bank']:.2f} +bank +income, debt", shown)
    assert "1 more column; --top 4 shows all" in said("show", "model", "--top", 3)
    told = json.loads(said("show", "model", "--json"))
    assert told["information"][0] == pytest.approx(
        model.importance().set_index("column").loc["income", "information"]
    )
    assert np.shape(told["deviations"]) == (3, 4)


def test_show_is_a_list_where_there_is_no_room_for_a_table(monkeypatch):
    monkeypatch.setattr(out, "_width", 80)
    data = make_vertical_blobs(300, 12, 11, 10, random_state=0).data
    names = [f"station{p}.{c}" for p in range(12) for c in range(11)]
    pd.DataFrame(data, columns=names).to_parquet("wide.parquet")
    said("fit", "wide.parquet", "-k", 10, "-o", "wide", "--max-iter", 3, "--tol", 10)
    shown, model = said("show", "wide"), vpem.load("wide")
    assert "and 120 more columns; --top 132 shows all" in shown
    profile = model.profile()
    for k in range(10):
        part = shown.split(f"component {k}, ")[1].split("component ")[0].splitlines()[1:6]
        own = profile[profile["component"] == k]
        farthest = own.loc[own["distance"].abs().sort_values(ascending=False, kind="stable").index][:5]
        assert [line.split()[0] for line in part] == farthest["column"].tolist()
    assert all(
        f"{name} {nats:.2f}" in shown for name, nats in model.importance()[["column", "information"]][:12].values
    )


def test_show_names_few_of_many_columns_and_parties(monkeypatch):
    monkeypatch.setattr(out, "_width", 80)
    data = make_vertical_blobs(200, 30, 1, 2, random_state=0)
    names = [f"feature{number:02}" for number in range(30)]
    pd.DataFrame(data.data, columns=names).to_csv("wide.csv", index=False)
    told = said("fit", "wide.csv", "-k", 2, "-o", "single", "--family", "auto", "--starts", 1)
    assert "feature07 and 22 more" in re.sub(r"\s+", " ", told)
    shown = said("show", "single")
    best = vpem.load("single").importance(by="party")["party"][:12].tolist()
    lines = shown.split(" party ")[1].splitlines()[1:13]
    assert [line.split()[0] for line in lines] == sorted(best), "the most informative ones, in their order"
    assert "and 18 more parties with less information; --top 30 shows all" in shown
    assert all(name in said("show", "single", "--top", 30).split(" party ")[1] for name in names)
    Path("two.toml").write_text(f"[parties]\none = {names[:29]}\nother = {names[29:]}\n".replace("'", '"'))
    said("fit", "wide.csv", "--parties", "two.toml", "-k", 2, "-o", "two", "--family", "auto", "--starts", 1)
    held = re.sub(r"\s+", " ", said("show", "two").split(" party ")[1])
    assert f"{', '.join(names[:12])} and 17 more" in held
    assert len(json.loads(said("show", "two", "--json"))["columns"]) == 30


def test_predict_does_not_vouch_for_a_fit_that_is_not_sound():
    fit("--max-iter", 1, "--tol", 0)
    told = re.sub(r"\s+", " ", said("predict", "model", "people.csv", "--id", "person"))
    assert "whose fit has the verdict amber; vpem show has the reasons" in told


# Rows


def test_impute_writes_what_the_model_expects(folder):
    fit()
    shown = said("impute", "model", "people.csv", "--id", "person", "--deviations")
    gaps = int(folder[NAMES].isna().sum().sum())
    assert f"{gaps} gaps of 1,200 values" in shown
    found = pd.read_csv("imputed.csv")
    assert found["person"].tolist() == folder["person"].tolist()
    filled, spread = vpem.load("model").impute(folder[NAMES], return_std=True)
    np.testing.assert_allclose(found[NAMES], filled, rtol=1e-12)
    np.testing.assert_allclose(found[[f"{name}_deviation" for name in NAMES]], spread, rtol=1e-12)
    shown = said("impute", "model", "bank.csv", "-o", "only.parquet")
    assert "nothing of shop in the tables; all their values are filled in" in re.sub(r"\s+", " ", shown)
    table = pq.read_table("only.parquet")
    assert table.column_names == NAMES
    assert not np.isnan(table.column("visits").to_numpy()).any()


def test_predict_says_how_sure_it_is_and_names_the_worst_rows(folder):
    fit()
    folder.loc[7, "debt"] = 1e5
    folder.to_csv("people.csv", index=False)
    shown = said("predict", "model", "people.csv", "--id", "person", "--unusual", 3)
    model = vpem.load("model")
    share = f"{model.certainty(folder[NAMES]).sure_share:.1%}"
    told = re.sub(r"\s+", " ", shown)
    assert f"under the model, {share} of the rows have a component with a probability above 95%" in told
    assert "these probabilities hold as far as the model does, whose fit has the verdict green" in told
    assert " sure" not in told
    worst = model.unusual_rows(folder[NAMES], 3)
    lines = shown.splitlines()
    start = next(number for number, line in enumerate(lines) if "as bad or worse" in line)
    assert [line.split()[0] for line in lines[start + 1 : start + 4]] == [f"p{row}" for row in worst["row"]]
    assert re.match(r" *p7 +1 in 2,001 .* debt ", lines[start + 1])
    assert " 8 " in said("predict", "model", "people.csv", "--unusual", 1), "rows without ids are counted from 1"
    assert "p7" not in said("predict", "model", "people.csv", "--id", "person")


# Compare


def test_compare_in_the_terminal(folder):
    fit()
    fit(k=2, name="two.vpem")
    shown = said("compare", "model", "two.vpem", "people.csv")
    three, two = vpem.load("model"), vpem.load("two.vpem")
    rows = folder[NAMES][~folder[NAMES].isna().all(axis=1)]
    for name, model in (("model", three), ("two", two)):
        [line] = [line for line in shown.splitlines() if re.match(rf" *{name} +{colour(model.verdict_)} +\d+ ", line)]
        assert f"{model.score(rows):.4f}" in line
        assert f"{model.bic(rows):,.1f}" + (" *" if model is three else "") in line
    assert f"{adjusted_rand_score(three.predict(rows), two.predict(rows)):.3f}" in shown
    assert "add a table" in said("compare", "model", "two.vpem")


def test_compare_as_a_page():
    fit()
    fit(k=2, name="two.vpem")
    shown = said("compare", "model", "two.vpem", "people.csv", "--report", "compare.html")
    assert "report: compare.html" in shown
    page = Path("compare.html").read_text()
    assert "<title>model, two</title>" in page
    told = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))
    assert told["names"] == ["model", "two"]
    assert told["facts"][0]["bic"] < told["facts"][1]["bic"]
    assert not re.search(r"\bp\d+\b", page.split("</style>")[1].split("<script>")[0]), "no ids"
    said("compare", "model", "two.vpem", "--report", "compare.html", "--title", "Two & three")
    assert "<title>Two &amp; three</title>" in Path("compare.html").read_text()
    before = Path("two.vpem").read_bytes()
    assert "another file" in said("compare", "model", "two.vpem", "--report", "two.vpem", code=1)
    assert Path("two.vpem").read_bytes() == before


def test_compare_models_of_different_tables_by_id():
    said("fit", "bank.csv", "shop.csv", "--id", "person", "--ignore", "kind", "-k", 3, "-o", "both.vpem")
    said("fit", "bank.csv", "--id", "person", "-k", 3, "-o", "alone.vpem")
    shown = said("compare", "both.vpem", "alone.vpem", "bank.csv", "shop.csv", "--id", "person")
    assert "different columns" in shown
    n_rows = int(re.search(r"labels of (\d+) rows", shown)[1])
    assert 240 < n_rows <= 250, "rows that both have"
    matrix = shown.split("Rand index)")[1]
    assert float(re.search(r"both +1.000 +([\d.]+)", matrix)[1]) > 0.5


def test_what_cannot_be_compared_is_said():
    fit()
    assert "expected two different models or more, got model" in said("compare", "model", "people.csv", code=1)
    assert "found no such file" in said("compare", "model", "nothing.vpem", code=1)
    Path("broken.vpem").write_text("nothing")
    assert "expected a model in broken.vpem" in said("compare", "model", "broken.vpem", code=1)
