"""Studies under masks: what is refused, what proves something, and what must be accepted; over real links."""

import os
from dataclasses import replace

import numpy as np
import pytest

from clinics import MASKED, NAMES, Clinics, Unmatched, secure
from vpem.core.agent.message import RemoteProtocolError
from vpem.studies.certificates import KeyFileError
from vpem.studies.fields import StudyFileError
from vpem.studies.joining import StudyEnded, join
from vpem.studies.local_trial import find_files, make_keys
from vpem.studies.seats import take_seat
from vpem.studies.shared import Study
from vpem.studies.shared_file import read_study
from vpem.studies.study_text import study_text
from vpem.transports import wire


def test_without_certificates_masks_are_refused(tmp_path):
    clinics = Unmatched(tmp_path / "study")
    files = find_files(clinics.study, clinics.folder)
    with pytest.raises(StudyFileError, match="got --insecure"):
        join(clinics.study, files["north"], insecure=True, progress=False)
    os.chmod(files["north"].keys.key, 0o644)
    with pytest.raises(KeyFileError, match="only its owner can read"):
        join(clinics.study, files["north"], progress=False)


def test_a_party_cannot_sign_with_another_s_name(tmp_path):
    from vpem.studies.credentials import CertificateCredentials

    clinics = Unmatched(tmp_path / "study")
    files = find_files(clinics.study, clinics.folder)
    names = {name: name for name in NAMES}
    north, south = (
        CertificateCredentials(files[n].keys.ca, files[n].keys.certificate, files[n].keys.key, "study", names)
        for n in ("north", "south")
    )
    proof = south.sign(b"content")
    north.verify("south", b"content", proof)
    for wrong in (("north", b"content", proof), ("south", b"other", proof), ("south", b"content", proof[:-1])):
        with pytest.raises(ValueError, match=r"expected the certificate|does not fit|parsing|signature"):
            north.verify(*wrong)
    with pytest.raises(ValueError):  # noqa: PT011 (whatever the parser says)
        north.verify("south", b"content", b"")


def test_a_study_may_pin_keys(tmp_path):
    from vpem.studies.certificates import look
    from vpem.studies.credentials import CertificateCredentials

    clinics = Unmatched(tmp_path / "study")
    files = find_files(clinics.study, clinics.folder)
    pinned = {name: look(files[name].keys.certificate).fingerprint for name in NAMES}
    names = {name: name for name in NAMES}

    def credentials(name, fingerprints):
        keys = files[name].keys
        return CertificateCredentials(keys.ca, keys.certificate, keys.key, "study", names, fingerprints)

    proof = credentials("south", pinned).sign(b"content")
    credentials("north", pinned).verify("south", b"content", proof)
    with pytest.raises(ValueError, match="as the study has it"):
        credentials("north", {**pinned, "south": pinned["north"]}).verify("south", b"content", proof)
    parties = [replace(one, fingerprint=pinned[one.name]) for one in clinics.study.parties]
    assert replace(clinics.study, parties=tuple(parties)).digests != clinics.study.digests
    again = tmp_path / "again.toml"
    again.write_text(study_text(replace(clinics.study, parties=tuple(parties))))
    assert read_study(again).parties == tuple(parties)
    take_seat(again, files["north"])
    again.write_text(again.read_text().replace(pinned["north"], pinned["south"]))
    with pytest.raises(KeyFileError, match="expected the key that the study pins"):
        take_seat(again, files["north"])
    again.write_text(again.read_text().replace(pinned["south"], "12:34"))
    with pytest.raises(ValueError, match="expected 16 pairs of hexadecimal digits"):
        read_study(again)


def test_what_was_signed_in_another_study_proves_nothing_in_this(tmp_path):
    clinics = Clinics(tmp_path / "study", network=MASKED, model='init = "random"')
    study, files = clinics.study, find_files(clinics.study, clinics.folder)
    make_keys(study, files)
    # The same parties, keys, tables and settings: only the salt is another.
    other = replace(study, salt=study.salt[::-1])
    assert other.agreement().digest == study.agreement().digest
    north, east, south = (take_seat(study, files[name]).agent() for name in NAMES)
    replayed = take_seat(other, files["south"]).agent()
    assert set(north.neighbours) == {1, 2}
    [own], [old], [first] = south.start(), replayed.start(), east.start()
    north.receive(first)
    before = wire.encode_state(north.state)
    with pytest.raises(RemoteProtocolError, match="peer 2: expected 'south' to have signed its record, got another"):
        north.receive(old)
    assert wire.encode_state(north.state) == before
    assert north.receive(own), "its record of this study is taken"


@pytest.mark.parametrize("links", ["tree", "star"])
def test_new_rows_come_again_with_the_same_parties_only(tmp_path, links):
    from vpem.studies.predicting import predict

    clinics = Clinics(tmp_path / "study", network=MASKED, model='init = "random"', links=links)
    files = find_files(clinics.study, clinics.folder)
    make_keys(clinics.study, files)
    fits = clinics.threads(secure)
    assert not any(isinstance(fit, Exception) for fit in fits.values()), fits

    def score(absent=(), prefix="new", moved=1.0, n_lacking=0):
        X = clinics.X[:12] + moved
        X[:n_lacking, 2:4] = np.nan
        clinics.new_rows(X, absent, prefix)
        run = lambda study, own: predict(  # noqa: E731
            study,
            None if own.party == "server" else own,
            None if own.party == "server" else clinics.folder / own.party / "new.csv",
            n_rows=12,
            progress=False,
        )
        return clinics.threads(run)

    for _ in range(2):
        scores = score()
        assert not any(isinstance(one, Exception) for one in scores.values()), scores
        assert np.isfinite(scores["north"].log_densities).all()
    refused = score(absent=["south"])
    assert all(isinstance(one, StudyEnded) for one in refused.values()), refused
    assert "a party's own term" in str(refused["north"])
    # Other values do not make other rows, and other rows may have the same values. A refusal is not the end.
    refused = score(absent=["south"], moved=2.0)
    assert all("a party's own term" in str(one) for one in refused.values()), refused
    others = score(prefix="other")
    assert not any(isinstance(one, Exception) for one in others.values()), others
    np.testing.assert_allclose(others["north"].log_densities, scores["north"].log_densities, atol=1e-6)
    refused = score(prefix="p", absent=["east"])
    assert all("a party's own term" in str(one) for one in refused.values()), "rows of the fit"
    few = score(prefix="few", n_lacking=3)
    names = [f"few{row}" for row in range(3)]
    for name in NAMES:
        assert few[name].n_left_out == 3
        is_empty = np.isnan(few[name].responsibilities).all(axis=1)
        assert {one for one, own in zip(few[name].ids["patient"], is_empty, strict=True) if own} == set(names)
        np.testing.assert_array_equal(np.isnan(few[name].log_densities), is_empty)
    with pytest.raises(StudyFileError, match="expected all parties of the fit in a masked prediction"):
        predict(clinics.study, files["north"], clinics.folder / "north/new.csv", without=["south"], progress=False)
    written = [path.read_bytes() for path in clinics.folder.glob("*/results/*") if "state" in path.name]
    assert not any(b"new1" in content or b"other1" in content for content in written), "digests, and no ids"


def test_rows_that_were_matched_are_known_again_by_the_rule_for_ids(tmp_path):
    from vpem.studies.predicting import predict

    clinics = Unmatched(tmp_path / "study")
    fits = clinics.threads(secure)
    assert not any(isinstance(fit, Exception) for fit in fits.values()), fits
    clinics.new_rows(clinics.X[:12] + 1.0, absent=["east"], prefix="p")  # which east has spelled otherwise before
    found = clinics.threads(lambda study, own: predict(study, own, own.path.parent / "new.csv", progress=False))
    _, common = clinics.joined("inner")
    n_common = len({f"p{row}" for row in range(12)} & set(common))
    assert n_common > 0
    assert all(f"got {n_common} with others" in str(one) for one in found.values()), found


@pytest.mark.parametrize("links", ["tree", "star"])
def test_under_masks_all_must_say_that_they_go_on_without_a_party(tmp_path, links):
    slow = 'init = "random"\ntol = 1e-12\nmax_iter = 20000\nreg_covar = 1e-3'
    clinics = Clinics(tmp_path / "study", network=MASKED, model=slow, links=links, patience="3s", lease="1s")
    make_keys(clinics.study, find_files(clinics.study, clinics.folder))
    server = ["server"] if links == "star" else []

    def part(without=(), stop=lambda: False):
        def run(study, own):
            given = without if own.party in (*server, "north") or len(without) > 1 else ()
            return join(study, own, without=given[:1], progress=False, stop=stop)

        return run

    logs = [clinics.folder / name / "results" / "log.jsonl" for name in NAMES]

    def have_met():
        return all(log.exists() and '"phase": "iterate"' in log.read_text() for log in logs)

    stopped = clinics.threads(part(stop=have_met))
    assert all(one.outcome.kind == "interrupted" for one in stopped.values()), stopped
    rest = ("north", "east", *server)
    alone = clinics.threads(part(without=("south",)), names=rest)  # east has not said so
    assert alone["east"].outcome.kind == "gave up", alone
    assert "waiting until all agree to go on without south: east need --without south" in logs[0].read_text()
    both = clinics.threads(part(without=("south", "")), names=rest)
    assert all("expected at least 3 parties" in str(one) for one in both.values()), both


# Files


def test_two_parties_must_say_that_they_accept_it(tmp_path):
    clinics = Clinics(tmp_path / "study", network=MASKED)
    path = tmp_path / "study" / "study.toml"
    text = path.read_text()
    two = text[: text.index("[parties.south]")]
    path.write_text(two)
    with pytest.raises(StudyFileError, match="two parties see each other's terms"):
        read_study(path)
    path.write_text(two + '[privacy]\naccept = "two parties see each other\'s terms"\n')
    accepted = read_study(path)
    assert accepted.summation.accept == ("two parties see each other's terms",)
    with pytest.raises(StudyFileError, match="two parties see each other's terms"):
        replace(accepted, accept=())
    assert not replace(accepted, accept=(), sum="differences").is_masked
    path.write_text(text.replace('sum = "masked"', ""))
    assert read_study(path).is_masked, "by default"
    assert Study.sum == read_study(path).sum, "whether the study comes from a file or not"
    path.write_text(text.replace("components = 2", 'components = 2\ninit = "labels"'))
    with pytest.raises(StudyFileError, match="shows each party's labels"):
        read_study(path)
    assert clinics.folder.exists()


def test_a_study_is_explained_before_it_runs(tmp_path):
    from typer.testing import CliRunner

    from vpem.cli import app

    clinics = Unmatched(tmp_path / "study", "outer")
    said = CliRunner().invoke(app, ["explain", str(clinics.folder / "study.toml")])
    assert said.exit_code == 0, said.output
    text = " ".join(said.output.split())
    assert "It CANNOT read the own terms of east and south" in text
    assert "north is the matcher" in text
    assert "so who lacks which row" in text
    plain = Clinics(tmp_path / "plain")
    text = " ".join(CliRunner().invoke(app, ["explain", str(plain.folder / "study.toml")]).output.split())
    assert "north - It CAN read the own terms of east and south" in text
