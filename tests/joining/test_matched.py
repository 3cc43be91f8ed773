"""Studies whose rows are matched first, and fitted under masks: real links, certificates and processes."""

import base64
import json
import signal
import time
import unicodedata
import warnings
import zipfile
from dataclasses import replace

import msgspec
import numpy as np
import pyarrow.csv as pa_csv
import pytest

import vpem
from clinics import NAMES, Clinics, Unmatched, secure
from vpem import load
from vpem.studies.assembling import assemble
from vpem.studies.fields import StudyFileError
from vpem.studies.joining import StudyEnded, join, match
from vpem.studies.local_trial import find_files, make_keys
from vpem.studies.shared_file import read_study

SURE = 'init = "kmeans"\ntol = 1e-9\nmax_iter = 1000'
"""Until it has converged: the simulation has its rows in another order, and so another start."""


CALLED = "Frau-M\u00fcller-Z\u00fcrich-"
"""What all ids begin with."""


def labels_of(fit):
    return {key.strip().lower(): row for key, row in zip(fit.ids["patient"], fit.responsibilities, strict=True)}


def compare(clinics, found, how):
    """All parties have the model of the plain simulation of the joined table, each for its own rows."""
    for name in NAMES:
        assert not isinstance(found[name], Exception), found[name]
    X, ids = clinics.joined(how)
    study = clinics.study
    partition = {name: [2 * place, 2 * place + 1] for place, name in enumerate(NAMES)}
    model = study.estimator().set_params(partition=partition, graph="star", summation=None, n_init=1)
    # Rows with two holders are left out by all; a random start depends on the order of rows, so that EM is run on.
    enough = (~np.isnan(X).reshape(len(X), 3, 2).all(axis=2)).sum(axis=1) >= 3
    model.set_params(init_params="kmeans", tol=1e-9, max_iter=1000, n_init=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vpem.FitWarning)
        model.fit(X[enough])
    ids = [one.lower() for one in ids]
    expected = dict(zip(np.array(ids)[enough], model.predict_proba(X[enough]), strict=True))
    for name in NAMES:
        mine = labels_of(found[name])
        own = [key for key in expected if key in mine]
        assert len(own) > 30
        one = np.array([mine[key] for key in own])
        other = np.array([expected[key] for key in own])
        swapped = other if np.abs(one - other).sum() < np.abs(one - other[:, ::-1]).sum() else other[:, ::-1]
        np.testing.assert_allclose(one, swapped, atol=1e-5)  # 9e-7 were found; docs/privacy.md says 1e-5


def check_left_out(clinics, found, how):
    """Rows that were left out have no label; the likelihood and the verdict are about the others."""
    X, ids = clinics.joined(how)
    is_used = (~np.isnan(X).reshape(len(X), 3, 2).all(axis=2)).sum(axis=1) >= 3
    used = {ids[row].lower() for row in np.flatnonzero(is_used)}
    for name in NAMES:
        fit, folder = found[name], clinics.folder / name / "results"
        rows = pa_csv.read_csv(folder / "rows.csv").to_pydict()
        names = [key.strip().lower() for key in rows["patient"]]
        for number in range(2):
            assert [one is not None for one in rows[f"probability_{number}"]] == [own in used for own in names]
        labels = [-1 if one is None else one for one in rows["component"]]
        assert [label >= 0 for label in labels] == [own in used for own in names]
        assert fit.labels.tolist() == labels
        assert np.isnan(fit.responsibilities).any(axis=1).tolist() == [own not in used for own in names]
        verdict = json.loads((folder / "verdict.json").read_text())
        assert (verdict["rows"]["n_rows"], verdict["rows"]["n_used"]) == (len(X), len(used))
        assert verdict["lower_bound_of"].startswith("columns that each party has divided by their deviations")
        sentences = [one["sentence"] for one in verdict["findings"] if one["code"] == "rows_left_out"]
        left_out = len(X) - len(used)
        expected = [f"{left_out} of {len(X)} rows"] if how == "outer" else []
        assert [sentence[: len(expected[0])] for sentence in sentences] == expected
        effective = np.nansum(fit.responsibilities, axis=0)  # of used rows, which all parties have
        assert fit.model.fitted_.judgement.facts.effective_rows == pytest.approx(effective)
        assert f'"rows":{len(used)},' in (folder / "report.html").read_text().replace(": ", ":")
    whole = assemble([clinics.folder / name / "results" / "model.vpem" for name in NAMES])
    del whole.feature_names_in_
    assert whole.lower_bound_ == pytest.approx(whole.score(X[is_used]), abs=1e-6)


@pytest.mark.parametrize(("links", "how"), [("tree", "inner"), ("star", "outer")])
def test_parties_match_their_rows_and_fit_under_masks(tmp_path, links, how):
    clinics = Unmatched(tmp_path / "study", how, model=SURE, links=links)
    found = clinics.threads(secure)
    compare(clinics, found, how)
    check_left_out(clinics, found, how)
    check_rows(clinics, found, how)
    for name in NAMES:
        folder = tmp_path / "study" / name / "results"
        entry = json.loads((folder / "ledger.jsonl").read_text().splitlines()[-1])
        first = json.loads((folder / "ledger.jsonl").read_text().splitlines()[0])
        assert first["purpose"] == "match"
        assert {line["form"] for line in first["sent"]} == {"hellos, and sealed tokens"}
        assert sum(line["bytes"] for line in first["sent"]) > 32 * 70
        forms = {line["form"] for line in entry["sent"] if line["kind"] == "sum"}
        assert forms <= {"masked", "the total of all parties"}
        assert "masked" in forms or links == "tree"


def check_rows(clinics, found, how):
    """Every party knows how many rows it has, and how many are in common and used."""
    X, _ = clinics.joined(how)
    is_held = ~np.isnan(X).reshape(len(X), 3, 2).all(axis=2)
    n_common = int(is_held.all(axis=1).sum())
    for name in NAMES:
        rows = found[name].rows
        assert (rows.n_rows, rows.n_common, rows.n_used) == (len(X), n_common, n_common)
        assert rows.held[name] == len(found[name].ids["patient"]) if how == "outer" else rows.held[name] > n_common
        assert rows == replace(found["north"].rows, gaps=rows.gaps, matched=rows.matched)
        assert load(found[name].folder / "model.vpem").rows_ == rows
        told = json.loads((found[name].folder / "verdict.json").read_text())["rows"]
        assert (told["n_common"], told["held"]) == (n_common, rows.held)
        assert "Rows and gaps" in (found[name].folder / "report.html").read_text()
    if how == "outer":
        assert found["north"].rows.matched == {"north": int((is_held[:, 0] & (is_held.sum(axis=1) > 1)).sum())}


def test_few_rows_in_common_are_a_finding_of_every_party(tmp_path):
    """Two parties write an id as 7, the third as 007: no party can see that, but each sees how few are matched."""
    clinics = Unmatched(tmp_path / "study")
    ids = [f"{'' if n < 6 else '00'}p{n}" for n in range(80)]
    clinics.write_table("east", 1, tmp_path / "study/east/table.csv", ids, clinics.X, range(80))
    found = clinics.threads(secure)
    for name in NAMES:
        assert not isinstance(found[name], Exception), found[name]
        rows = found[name].rows
        assert rows.n_common == rows.n_rows <= 6
        [few] = [one for one in found[name].verdict if one.code == "few_in_common"]
        assert few.severity in ("red", "amber")
        assert "No party sees the ids of others" in few.sentence
        assert "spelling" in few.remedy


def test_rows_are_matched_alone_and_then_used(tmp_path):
    clinics = Unmatched(tmp_path / "study")
    found = clinics.threads(lambda study, own: match(study, own, progress=False))
    X, _ = clinics.joined("inner")
    for name in NAMES:
        assert not isinstance(found[name], Exception), found[name]
        assert len(found[name]) == len(X)
    assert len({found[name].digest for name in NAMES}) == 1
    plain = Clinics(tmp_path / "plain")
    study = plain.study
    files = find_files(study, plain.folder)
    make_keys(study, files)
    with pytest.raises(StudyFileError, match='expected match = "inner"'):
        match(study, files["north"], progress=False)


@pytest.mark.parametrize("links", ["star", "tree"])
@pytest.mark.parametrize("unsure", [["north"], ["south", "server"], [*NAMES, "server"]])
def test_who_was_killed_at_the_end_of_a_matching_comes_to_the_fit(tmp_path, links, unsure):
    """It does not know whether all have kept the result: some are at the fit already, or none is."""
    clinics = Unmatched(tmp_path / "study", model="max_iter = 3", links=links, starts=1)
    rows = clinics.threads(lambda study, own: match(study, own, progress=False))
    study = clinics.study
    for name, own in find_files(study, clinics.folder).items():
        path = own.folder / "matched"
        content = msgspec.msgpack.decode(path.read_bytes())
        assert content["is_final"]
        if name in unsure and name == "server":
            path.unlink()
        elif name in unsure:
            path.write_bytes(msgspec.msgpack.encode({**content, "is_final": False}))
    found = clinics.threads(secure)
    for name in NAMES:
        assert not isinstance(found[name], Exception), found[name]
        saved = msgspec.msgpack.decode((clinics.folder / name / "results" / "matched").read_bytes())
        assert saved["is_final"]
        assert saved["digest"] == rows[name].digest, "nothing was matched again"


def test_who_has_no_result_while_others_are_at_the_fit_is_told_what_to_do(tmp_path):
    clinics = Unmatched(tmp_path / "study", model="max_iter = 3", starts=1)
    clinics.threads(lambda study, own: match(study, own, progress=False))
    (clinics.folder / "north" / "results" / "matched").unlink()
    stop = []

    def take_part(study, own):
        try:
            return join(study, own, progress=False, stop=lambda: bool(stop))
        finally:
            stop.append(own.party)

    found = clinics.threads(take_part)
    assert stop[0] == "north"
    assert "is at the fit, north has not kept what came of the match" in str(found["north"])
    assert "--fresh at all parties" in str(found["north"])


def test_an_empty_intersection_is_told_to_all_with_counts(tmp_path):
    clinics = Unmatched(tmp_path / "study")
    clinics.write_table(
        "east", 1, tmp_path / "study/east/table.csv", [f"q{n}" for n in range(80)], clinics.X, range(80)
    )
    found = clinics.threads(secure)
    for name in NAMES:
        assert isinstance(found[name], StudyEnded)
        assert "expected rows that all parties have, got none" in str(found[name])
        assert "80 from east" in str(found[name])


def spellings(called):
    """Bytes by which ids would be found, however they were written: cases, forms and encodings."""
    forms = {unicodedata.normalize(form, called) for form in ("NFC", "NFD", "NFKC")}
    texts = {text for form in forms for text in (form, form.upper(), form.lower(), form.casefold())}
    texts |= {text[: len(text) // 2] for text in texts} | {"Frau-M", "frau-m", "FRAU-M"}
    encoded = {text.encode(code) for text in texts for code in ("utf-8", "utf-16-le", "utf-32-le")}
    encoded |= {text.encode("latin-1") for text in texts if max(text) < "\u0100"}
    return encoded | {base64.b64encode(b"Frau-M"), json.dumps(called)[1:-1].encode(), b"Frau-M".hex().encode()}


def contents(path):
    """Bytes of a file, and of what is packed in it."""
    yield path.read_bytes()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            yield from (packed.read(name) for name in packed.namelist())


def files_with_ids(folder, called=CALLED):
    """Names of all files below a folder in which an id occurs."""
    known = spellings(called)
    return {
        path.name
        for path in folder.rglob("*")
        if path.is_file() and any(one in content for content in contents(path) for one in known)
    }


@pytest.mark.parametrize(("links", "how"), [("tree", "outer"), ("star", "inner")])
def test_ids_are_in_no_byte_that_is_sent_or_saved_but_in_the_owner_s_own_results(tmp_path, monkeypatch, links, how):
    from vpem.studies import joining
    from vpem.studies.predicting import predict

    clinics, sent, real = Unmatched(tmp_path / "study", how, links=links, called=CALLED), {}, joining.open_wire

    def tapped(wiring):
        wire = real(wiring)
        send = wire.send

        def write_down(peer, datagram, **arguments):
            said = sent.setdefault((wiring.study, wiring.number, peer), bytearray())
            said.extend(datagram.head)
            said.extend(datagram.content)
            send(peer, datagram, **arguments)

        wire.send = write_down
        return wire

    monkeypatch.setattr(joining, "open_wire", tapped)  # before TLS makes noise of it
    fits = clinics.threads(secure)
    assert not any(isinstance(fit, Exception) for fit in fits.values()), fits
    clinics.new_rows(clinics.X[:9] + 1.0, prefix=f"{CALLED}new-")

    def score(study, own):
        is_server = own.party == "server"
        new = None if is_server else own.path.parent / "new.csv"
        return predict(study, None if is_server else own, new, n_rows=9 if is_server else None, progress=False)

    scores = clinics.threads(score)
    assert not any(isinstance(one, Exception) for one in scores.values()), scores
    assert len(sent) == (6 if links == "star" else 4), "both ways on all links"
    assert sum(map(len, sent.values())) > 30_000
    known = spellings(CALLED)
    for way, content in sent.items():
        assert not any(one in content for one in known), way
    # The search finds them where they are: in the tables, and in what each owner gets for its own rows.
    assert files_with_ids(clinics.folder) == {"table.csv", "new.csv", "rows.csv"}
    for name in NAMES:
        with (clinics.folder / name / "results" / "rows.csv").open() as file:
            found = {line.split(",")[0].strip('" \n').lower() for line in file} - {"patient"}
        own = {clinics.ids[row].lower() for row in clinics.held[name]}
        assert found <= own, "and none of another party's"


@pytest.mark.long
def test_one_party_of_three_processes_is_killed_and_comes_back(tmp_path):
    clinics = Unmatched(tmp_path / "study", model=SURE, called=CALLED)
    copy = clinics.copy()
    processes = {name: clinics.process(copy, name, secure=True) for name in NAMES}
    log = tmp_path / "study/south/results/log.jsonl"
    end = time.monotonic() + 120
    while not (log.exists() and '"phase": "cluster"' in log.read_text()) and time.monotonic() < end:
        time.sleep(0.005)
    assert processes["south"].poll() is None, "it is in the midst of the fit"
    processes["south"].send_signal(signal.SIGKILL)
    processes["south"].communicate()
    time.sleep(1)
    processes["south"] = clinics.process(copy, "south", secure=True)
    said = {name: process.communicate(timeout=180)[0] for name, process in processes.items()}
    assert all(process.returncode == 0 for process in processes.values()), said
    told = log.read_text()
    assert "going on from the last checkpoint" in told
    assert told.count('"event": "begun"') == 3, "a matching, a fit, and the rest of the fit"
    again = clinics.threads(lambda study, own: join(read_study(copy), own, progress=False))
    compare(clinics, again, "inner")
    assert files_with_ids(clinics.folder) == {"table.csv", "rows.csv"}
