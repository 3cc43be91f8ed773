"""Whole studies: the parties find what the simulation finds, and keep their columns to themselves."""

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.csv as pa_csv
import pytest
import typer
from typer.testing import CliRunner

import vpem
from clinics import NAMES, Clinics
from vpem.cli.app import app
from vpem.cli.join_command import leave
from vpem.model_format import ModelFileError
from vpem.studies import joining
from vpem.studies.assembling import assemble
from vpem.studies.folder import FolderError
from vpem.studies.joining import StudyEnded, join
from vpem.studies.local_trial import find_files, make_keys
from vpem.studies.predicting import predict
from vpem.transports.outcomes import Outcome

CLOSE = {"rtol": 1e-9, "atol": 1e-9}
"""Sums are rounded on the way in the same places; only the columns' scales may have other last digits."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A study whose three parties ran in threads, with certificates; processes are in tests/network."""
    made = Clinics(tmp_path_factory.mktemp("run") / "clinics")
    make_keys(made.study, find_files(made.study, made.folder))
    fits = made.threads(lambda study, own: join(study, own, progress=False))
    assert not any(isinstance(one, Exception) for one in fits.values()), fits
    return made


def test_three_parties_find_what_the_simulation_finds(finished):
    expected, joint = finished.expected(), {}
    for place, name in enumerate(NAMES):
        folder = finished.folder / name / "results"
        part = vpem.load(folder / "model.vpem")
        np.testing.assert_allclose(part.means_, expected.means_[:, 2 * place : 2 * place + 2], **CLOSE)
        np.testing.assert_allclose(part.covariances_[0], expected.covariances_[place], rtol=1e-9, atol=1e-5)
        np.testing.assert_allclose(part.weights_, expected.weights_, **CLOSE)
        rows = pa_csv.read_csv(folder / "rows.csv").to_pydict()
        table = pa_csv.read_csv(finished.folder / name / "table.csv").to_pydict()
        assert rows["patient"] == table["patient"]
        joint[name] = np.array([rows["probability_0"], rows["probability_1"]]).T
        joint[name] = joint[name][[rows["patient"].index(one) for one in finished.ids]]
        # Those of the last iteration: the last step and rounded changes are in between.
        np.testing.assert_allclose(joint[name], expected.predict_proba(finished.X), atol=1e-3)
        np.testing.assert_array_equal(joint[name], joint["north"])
        assert json.loads((folder / "verdict.json").read_text())["verdict"] in ("green", "amber")
        assert "<html" in (folder / "report.html").read_text()[:200].lower()


GROUPS = np.random.default_rng(1).normal(size=(300, 6)) + 7 * (np.arange(300) % 2)[:, None]
COPIES = np.tile(GROUPS[:, :2], 3) + 0.1 * np.random.default_rng(2).normal(size=(300, 6))
IN_ANOTHER_ORDER = np.hstack([GROUPS[:, :4], np.random.default_rng(3).permutation(GROUPS[:, 4:])])


@pytest.mark.parametrize(
    ("links", "network"),
    [
        ("star", ""),
        ("star", 'sum = "exact"'),
        ("path", 'sum = "consensus"'),
        ("path", 'sum = "consensus"\nrounds = "auto"'),
    ],
)
@pytest.mark.parametrize(
    ("X", "expected"),
    [(GROUPS, {}), (COPIES, dict.fromkeys(NAMES, "dependence")), (IN_ANOTHER_ORDER, {"south": "unrelated"})],
    ids=["sound", "copies", "another order"],
)
def test_parties_find_in_the_sums_what_they_have_to_do_with_the_others(tmp_path, links, network, X, expected):
    made = Clinics(tmp_path / "clinics", links=links, network=network, n_rows=len(X), starts=1)
    made.replace(X)
    fits = made.threads()
    found = {
        (name, one.code): one
        for name in NAMES
        for one in fits[name].verdict
        if one.code in ("dependence", "unrelated")
    }
    assert set(found) == {(name, code) for name, code in expected.items()}
    assert {one.severity for one in found.values()} <= {"amber"}
    for (name, code), one in found.items():
        if code == "dependence":
            nats = float(one.sentence.split("about ")[1].split()[0])
            own, others = (np.isin(np.arange(6) // 2, NAMES.index(name), invert=side) for side in (False, True))
            R = np.corrcoef((X - 7 * (np.arange(300) % 2)[:, None]).T)
            parts = (np.linalg.slogdet(R[np.ix_(part, part)])[1] for part in (own, others))
            assert 1.4 < nats < 0.5 * (sum(parts) - np.linalg.slogdet(R)[1]), "a lower bound"
            assert "columns of this party depend on those of the others" in one.sentence


def test_parties_tell_how_alike_the_labels_of_the_starts_are(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6)) + 3 * rng.normal(size=(5, 6))[rng.integers(5, size=300)]
    made = Clinics(tmp_path / "clinics", n_rows=300, starts=5, model='init = "random_from_data"')
    made.replace(X)
    expected = made.expected()
    assert "starts_apart" in {one.code for one in expected.verdict_}, "which runs the checks of the sample"
    agreement = expected.fitted_.judgement.facts.start_agreement
    assert min(agreement) < 0.9
    for fit in made.threads().values():
        [told] = (one for one in fit.verdict if one.code == "starts_apart")
        assert "adjusted Rand index" in told.sentence
        np.testing.assert_allclose(fit.model.fitted_.judgement.facts.start_agreement, agreement, atol=1e-9)


def test_a_party_finds_codes_in_its_own_columns(tmp_path):
    made = Clinics(tmp_path / "clinics", n_rows=120, starts=1)
    made.X[::12, 3] = 99999.0
    made.replace(made.X)
    fits = made.threads()
    found = {name: {one.code: one for one in fits[name].verdict} for name in NAMES}
    codes = {name for name, own in found.items() if "codes" in own}
    assert codes == {NAMES[1]}
    assert f"99999 in column {NAMES[1]}_1 (8.3%)" in found[NAMES[1]]["codes"].sentence


def test_parts_make_the_whole_model(finished, tmp_path):
    expected = finished.expected()
    paths = [finished.folder / name / "results" / "model.vpem" for name in NAMES]
    whole = assemble(paths[::-1])
    vpem.save(whole, tmp_path / "whole.vpem")
    for model in (whole, vpem.load(tmp_path / "whole.vpem")):
        np.testing.assert_allclose(model.predict_proba(finished.X), expected.predict_proba(finished.X), atol=1e-9)
        np.testing.assert_allclose(model.score_samples(finished.X), expected.score_samples(finished.X), rtol=1e-9)
        np.testing.assert_allclose(model.lower_bounds_, expected.lower_bounds_, rtol=1e-9)
        assert list(model.partition_) == list(NAMES)
        np.testing.assert_allclose(model.scale_, expected.scale_, rtol=1e-9)
        del model.feature_names_in_
        ways = [finished.expected(), model]  # both go on in the same units, with rows of another spread
        bounds = [one.set_params(warm_start=True).fit(finished.X[:40]).lower_bounds_ for one in ways]
        assert bounds[1] == pytest.approx(bounds[0], rel=1e-9)
    with pytest.raises(ModelFileError, match="got none of south"):
        assemble(paths[:2])
    with pytest.raises(ModelFileError, match="got a whole model"):
        assemble([tmp_path / "whole.vpem"])


def test_a_folder_has_nothing_of_another_partys_columns_or_parameters(finished):
    """Bytes of doubles, and decimal texts, of the others' values, means, covariances and precisions, in both units.

    Files are searched as they are, and those that are archives member by member as well.
    """
    expected = finished.expected()
    scaled = finished.X / expected.scale_
    for place, name in enumerate(NAMES):
        other = [column for column in range(6) if column // 2 != place]
        numbers = [finished.X[:, other], scaled[:, other], expected.scale_[other]]
        numbers += [expected.means_[:, other], (expected.means_ / expected.scale_)[:, other]]
        for block in {0, 1, 2} - {place}:
            scale = expected.scale_[2 * block : 2 * block + 2]
            for covariance in (expected.covariances_[block], expected.covariances_[block] / np.outer(scale, scale)):
                numbers += [covariance, np.linalg.cholesky(covariance), np.linalg.inv(covariance)]
        contents = []
        for path in (finished.folder / name).rglob("*"):
            contents += [path.read_bytes()] if path.is_file() else []
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as archive:
                    contents += [archive.read(member) for member in archive.namelist()]
        everything = b"\n".join(contents)
        for number in set(np.concatenate([array.ravel() for array in numbers])) - {0.0}:
            assert np.float64(number).tobytes() not in everything
            assert f"{number:.8g}".encode() not in everything
        own = vpem.load(finished.folder / name / "results" / "model.vpem")
        for number in (finished.X[0, 2 * place], own.means_[0, 0], own.scale_[0]):
            number = float(number)
            is_found = np.float64(number).tobytes() in everything or repr(number).encode() in everything
            assert is_found, "the search finds what is there"
        for one in NAMES:
            assert (f"{one}_0".encode() in everything) == (one == name)


def test_a_part_can_be_shown_and_a_finished_study_is_not_run_again(finished):
    part = finished.folder / "north" / "results" / "model.vpem"
    shown = CliRunner().invoke(app, ["show", str(part)])
    assert shown.exit_code == 0, shown.output
    assert "study clinics" in shown.output
    whose = "columns that each party has divided by their deviations"
    assert whose in " ".join(shown.output.split())
    content = json.loads(CliRunner().invoke(app, ["show", str(part), "--json"]).output)
    assert content["lower_bound_of"].startswith(whose)
    verdict = json.loads((part.parent / "verdict.json").read_text())
    assert verdict["lower_bound_of"].startswith(whose)
    assert verdict["rows"]["n_rows"] == verdict["rows"]["n_used"] == len(finished.X)
    assert "0 bytes in the last run" not in " ".join(shown.output.split())
    again = join(finished.folder / "study.toml", finished.folder / "north" / "clinic.toml", progress=False)
    np.testing.assert_array_equal(again.model.means_, vpem.load(part).means_)
    assert CliRunner().invoke(app, ["show", str(part)]).output == shown.output, "what was sent is still known"


@pytest.mark.parametrize(
    ("links", "model", "gaps"),
    [("star", "", 0), ("path", "hops = 1", 0), ("ring", 'covariance = "diag"', 0), ("tree", "", 60)],
)
def test_other_networks_and_settings(tmp_path, links, model, gaps):
    made = Clinics(tmp_path / "clinics", links=links, model=model, gaps=gaps)
    found, expected = made.threads(), made.expected()
    for one in found.values():
        assert not isinstance(one, Exception), one
    parts = [made.folder / name / "results" / "model.vpem" for name in NAMES]
    whole = assemble([path for path in parts if path.exists()])
    np.testing.assert_allclose(whole.predict_proba(made.X), expected.predict_proba(made.X), atol=1e-9)
    np.testing.assert_allclose(whole.means_, expected.means_, **CLOSE)


def score(study, own, **more):
    return predict(study, own, own.folder.parent / "new.csv", insecure=True, progress=False, **more)


def check_scores(found, ids, expected):
    for name, scores in found.items():
        assert not isinstance(scores, Exception), (name, scores)
        rows = [ids.index(one) for one in scores.ids["patient"]]
        np.testing.assert_allclose(scores.responsibilities, expected[rows], atol=1e-9)


def test_new_rows_are_scored_together_also_without_a_party_or_its_values(tmp_path):
    made = Clinics(tmp_path / "clinics", links="complete")
    fits = made.threads()
    assert not any(isinstance(one, Exception) for one in fits.values()), fits
    expected = made.expected()
    for number, absent in enumerate([(), ("east",)]):  # a second request begins anew
        X = made.X[:20] + 1 + number
        ids = made.new_rows(X, absent)
        X[:, 2:4] = np.nan if absent else X[:, 2:4]
        check_scores(made.threads(score), ids, expected.predict_proba(X))
    X = made.X[:20] + 3
    ids = made.new_rows(X)
    X[:, 4:] = np.nan
    found = made.threads(lambda study, own: score(study, own, without=["south"]), names=("north", "east"))
    check_scores(found, ids, expected.predict_proba(X))


def test_a_difference_is_found_before_anything_is_sent(tmp_path):
    made = Clinics(tmp_path / "clinics")
    path = made.folder / "south" / "table.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:-3]) + "\n")
    found = made.threads(names=("north", "south"))
    for one in found.values():
        assert isinstance(one, StudyEnded)
        assert one.outcome.kind == "refused"
        assert "77" in str(one)
        assert "80" in str(one)
        assert 'try match = "outer" in [rows]' in str(one)


def test_a_party_that_is_done_has_its_results_however_its_run_ends(tmp_path, monkeypatch):
    made, carry = Clinics(tmp_path / "clinics"), joining.carry

    def end(seat, *arguments):
        outcome = carry(seat, *arguments)
        if seat.party.party == "north":
            raise RuntimeError("a second signal")
        return Outcome("interrupted", "stopped") if seat.party.party == "east" else outcome

    monkeypatch.setattr(joining, "carry", end)
    found = made.threads()
    assert isinstance(found["north"], RuntimeError)
    assert isinstance(found["east"], StudyEnded)
    paths = [made.folder / name / "results" / "model.vpem" for name in NAMES]
    np.testing.assert_allclose(assemble(paths).means_, made.expected().means_, **CLOSE)
    assert (made.folder / "north" / "results" / "report.html").is_file()


def test_a_report_that_cannot_be_written_is_an_error_of_its_party_alone(tmp_path):
    made = Clinics(tmp_path / "clinics")
    results = made.folder / "north" / "results"
    (results / "report.html").mkdir(parents=True)
    found = made.threads()
    assert isinstance(found["north"], FolderError)
    assert "got no report.html (expected the name of a file to write, got the folder" in str(found["north"])
    for name in ("east", "south"):
        assert found[name].labels is not None
        last = (made.folder / name / "results" / "log.jsonl").read_text().splitlines()[-1]
        assert json.loads(last)["kind"] == "finished"
        assert not json.loads(last)["awaited"]
    paths = [made.folder / name / "results" / "model.vpem" for name in NAMES]
    np.testing.assert_allclose(assemble(paths).means_, made.expected().means_, **CLOSE)
    assert (results / "verdict.json").exists()
    assert (results / "rows.csv").exists()
    (results / "report.html").rmdir()
    again = join(made.study, made.folder / "north" / "clinic.toml", insecure=True, progress=False)
    assert again.labels is not None
    assert (results / "report.html").is_file(), "the others are not needed"


def test_another_table_does_not_go_on_from_the_state_of_the_first(tmp_path):
    made = Clinics(tmp_path / "clinics")
    made.threads()
    path = made.folder / "north" / "table.csv"
    *lines, last = path.read_text().splitlines()
    who, first, second = last.split(",")
    path.write_text("\n".join([*lines, f"{who},{float(first) + 1},{second}"]) + "\n")
    with pytest.raises(FolderError, match="the same party with another table; to begin again, run with --fresh"):
        join(made.folder / "study.toml", made.folder / "north" / "clinic.toml", insecure=True, progress=False)


def test_a_study_that_is_mended_before_anything_was_fitted_begins_again(tmp_path):
    made = Clinics(tmp_path / "clinics", model="max_iter = 5", starts=1)
    path = made.folder / "south" / "table.csv"
    whole = path.read_text()
    path.write_text("\n".join(whole.splitlines()[:-3]) + "\n")
    assert all(isinstance(one, StudyEnded) for one in made.threads(names=("north", "south")).values())
    states = [made.folder / name / "results" / "state" for name in ("north", "south")]
    assert all(state.exists() for state in states), "something is left of it"
    path.write_text(whole)
    file = made.folder / "study.toml"
    file.write_text(file.read_text().replace("max_iter = 5", "max_iter = 6"))
    fits = made.threads()
    assert not any(isinstance(one, Exception) for one in fits.values()), fits
    logs = [(state.parent / "log.jsonl").read_text() for state in states]
    assert all("begins again: model.max_iter" in log for log in logs)


def test_one_that_was_killed_at_the_very_end_ends_well_without_the_others(tmp_path):
    made = Clinics(tmp_path / "clinics", model="max_iter = 5", starts=1, lease="1s", patience="5s")
    fits = made.threads()
    assert not any(isinstance(one, Exception) for one in fits.values()), fits
    path = made.folder / "north" / "results" / "finished"
    path.unlink()
    [again] = made.threads(names=["north"]).values()
    np.testing.assert_array_equal(again.responsibilities, fits["north"].responsibilities)
    assert not path.exists(), "the others may still need it"
    assert "east, south stayed away for longer than 5 s" in (path.parent / "log.jsonl").read_text()


def test_how_a_run_has_ended_is_said_once(capsys):
    with pytest.raises(typer.Exit):
        leave(StudyEnded(Outcome("refused", "gp has 242 rows [of 273]"), Path("results")))
    assert capsys.readouterr().err == "refused: gp has 242 rows [of 273]; nothing was sent\n"


def test_studies_that_differ_name_the_field(tmp_path):
    made = Clinics(tmp_path / "clinics")

    def take_part(study, own):
        if own.party == "south":
            study = replace(study, model=replace(study.model, components=3))
        return join(study, own, insecure=True, progress=False)

    for one in made.threads(take_part, names=("north", "south")).values():
        assert isinstance(one, StudyEnded)
        assert one.outcome.kind == "refused"
        assert "model.components" in str(one)


def test_one_who_stays_away_is_named_and_the_code_says_so(tmp_path):
    made = Clinics(tmp_path / "clinics", lease="1s", patience="1s")
    party = made.folder / "north" / "clinic.toml"
    said = CliRunner().invoke(app, ["join", str(made.copy()), "--party", str(party), "--insecure"])
    assert said.exit_code == 4, said.output
    assert "east, south stayed away" in said.output
    assert "--without" in said.output
