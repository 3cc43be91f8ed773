"""Studies whose columns are words, counts, amounts and hours: each party decides on its own, and tells no other."""

import json
import re
import warnings
import zipfile
from dataclasses import replace

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import vpem
from clinics import NAMES, SALT, Clinics
from vpem import VerticalMixture
from vpem.cli.app import app
from vpem.reading import TableError
from vpem.studies import joining
from vpem.studies.assembling import assemble
from vpem.studies.fields import StudyFileError
from vpem.studies.folder import FolderError
from vpem.studies.joining import StudyEnded, join
from vpem.studies.local_trial import find_files, make_keys
from vpem.studies.party_columns import new_values, prepare
from vpem.studies.predicting import predict
from vpem.studies.row_order import PartyRows, row_digests
from vpem.studies.seats import take_seat
from vpem.studies.shared_file import read_study
from vpem.studies.study_text import study_text

COLUMNS = {"north": ["age", "job", "weight"], "east": ["visits", "spent", "sex"], "south": ["hour", "code", "member"]}
SAID = {"hour": "angles:24", "code": "categorical"}
"""By south, in its own file."""
FAMILIES = 'families = "auto"'


def people(n, seed=0, first=0):
    """Rows of two groups, with gaps of every spelling."""
    rng = np.random.default_rng(seed)
    group = rng.integers(2, size=n)
    table = pd.DataFrame(
        {
            "patient": [f"p{first + row}" for row in range(n)],
            "age": rng.normal(40 + 15 * group, 5).round(2),
            "job": np.where(rng.random(n) < 0.2 + 0.6 * group, "nurse", rng.choice(["zimmerman", "clerk"], n)),
            "weight": rng.normal(70 + 10 * group, 8).round(2),
            "visits": rng.poisson(4 + 8 * group),
            "spent": np.where(rng.random(n) < 0.6, 0.0, np.exp(rng.normal(3 + group, 0.5)).round(2)),
            "sex": rng.choice(["femaleword", "maleword"], n),
            "hour": (rng.vonmises(group * 2.0, 2.0) * 24 / (2 * np.pi) % 24).round(1),
            "code": rng.choice(["01", "02", "A3ward"], n, p=[0.5, 0.4, 0.1]),
            "member": rng.random(n) < 0.3 + 0.4 * group,
        }
    )
    table.loc[::13, "job"] = "?"
    table.loc[1::17, "job"] = None
    table.loc[2::19, "age"] = None
    table.loc[3::23, "spent"] = None
    return table


class Mixed(Clinics):
    """Clinics with such columns."""

    def __init__(self, folder, *, model=FAMILIES, n_rows=200, said=SAID, **arguments):
        super().__init__(folder, model=model, n_rows=n_rows, **arguments)
        self.table, rng = people(n_rows), np.random.default_rng(1)
        for name in NAMES:
            own = self.table.loc[rng.permutation(n_rows), ["patient", *COLUMNS[name]]]
            own.to_csv(folder / name / "table.csv", index=False)
        north = folder / "north" / "clinic.toml"
        north.write_text(north.read_text() + '[form]\ngaps = ["?"]\n')
        path = folder / "south" / "clinic.toml"
        lines = "".join(f"{name} = {json.dumps(text)}\n" for name, text in said.items())
        path.write_text(path.read_text() + (f"[families]\n{lines}" if said else ""))

    def expected(self, **changes):
        """The simulation's fit of the whole table, with the rows in the study's order."""
        study = self.study
        graph = "star"
        if study.server is None:
            graph = nx.relabel_nodes(nx.Graph(list(study.links)), dict(enumerate(NAMES)))
        model = study.estimator().set_params(partition=COLUMNS, graph=graph, families=SAID, **changes)
        assert type(model) is VerticalMixture
        order = np.argsort(row_digests([(one,) for one in self.table["patient"]], SALT, len(self.table)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", vpem.FitWarning)
            return model.fit(self.table.drop(columns="patient").replace("?", None).iloc[order])


def whole(made):
    return assemble([made.folder / name / "results" / "model.vpem" for name in NAMES])


def same(one, other, **close):
    """Whether two models of the same columns are the same."""
    assert one.families_ == {str(name): text for name, text in other.families_.items()}
    assert one.categories_ == other.categories_
    np.testing.assert_allclose(one.weights_, other.weights_, **close)
    for mine, its in zip(one.fitted_.mixture.blocks, other.fitted_.mixture.blocks, strict=True):
        for name in ("means", "covariances", "others", "structure"):
            np.testing.assert_allclose(mine.arrays[name], its.arrays[name], **close)


def fitted(made, **arguments):
    fits = made.threads(lambda study, own: join(study, own, progress=False, **arguments))
    assert not any(isinstance(one, Exception) for one in fits.values()), fits
    return fits


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Three parties in threads over real links; and all frames, by who sent them."""
    made = Mixed(tmp_path_factory.mktemp("run") / "clinics")
    sent, open_wire = {}, joining.open_wire

    def listening(wiring):
        wire = open_wire(wiring)
        send = wire.send

        def keep(peer, datagram, **arguments):
            sent.setdefault(NAMES[wiring.number], []).append(bytes(datagram.head) + bytes(datagram.content))
            send(peer, datagram, **arguments)

        wire.send = keep
        return wire

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joining, "open_wire", listening)
        made.fits = fitted(made, insecure=True)
    made.sent = sent
    return made


def test_three_parties_find_what_the_simulation_finds(finished):
    expected = finished.expected()
    same(whole(finished), expected, rtol=1e-9, atol=1e-9)
    for name in NAMES:
        part = finished.fits[name].model
        assert part.families_ == {column: expected.families_[column] for column in COLUMNS[name]}
        shares = part.profile()
        assert set(shares["column"]) == set(COLUMNS[name])
        page = (finished.folder / name / "results" / "report.html").read_text()
        assert ("zimmerman" in page) == (name == "north")
        loaded = vpem.load(finished.folder / name / "results" / "model.vpem")
        assert loaded.categories_ == part.categories_
        shown = CliRunner().invoke(app, ["show", str(finished.folder / name / "results" / "model.vpem")])
        assert "categorical" in shown.output
    assert expected.families_["spent"] == "zeros"
    assert expected.families_["hour"] == "angles:24"
    assert expected.categories_["code"] == ["01", "02", "A3ward"]


WORDS = {
    "north": ["nurse", "zimmerman", "clerk"],
    "east": ["femaleword", "maleword"],
    "south": ["A3ward"],
}
"""Of a party alone."""


def test_categories_never_leave_their_party(finished):
    """In no byte that is sent, and in no file of another party, are words, names of columns or families."""
    everything = {name: b"\n".join(frames) for name, frames in finished.sent.items()}
    for name in NAMES:
        assert name.encode() in everything[name], "the search finds what is there"
        for words in WORDS.values():
            for word in (*words, "categorical", "angles", "zeros"):
                assert word.encode() not in everything[name]
        contents = []
        for path in (finished.folder / name / "results").rglob("*"):
            contents += [path.read_bytes()] if path.is_file() else []
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as archive:
                    contents += [archive.read(member) for member in archive.namelist()]
        found = b"\n".join(contents)
        for other, words in WORDS.items():
            for word in words:
                assert (word.encode() in found) == (other == name), (name, word)
        log = (finished.folder / name / "results" / "log.jsonl").read_text()
        assert "families of this party's columns, which no other party is told" in log
    for name in NAMES:
        for other in set(NAMES) - {name}:
            own = take_seat(finished.study, finished.folder / name / "clinic.toml", insecure=True)
            its = take_seat(finished.study, finished.folder / other / "clinic.toml", insecure=True)
            assert own.agent().identity.agreement.digest == its.agent().identity.agreement.digest
            assert own.hello().fields == its.hello().fields


def new_people(made, **changes):
    """Tables of new rows in the parties' folders."""
    table = people(30, seed=5, first=1000).assign(**changes)
    for place, name in enumerate(NAMES):
        own = table[["patient", *COLUMNS[name]]].sample(frac=1, random_state=place)
        own.to_csv(made.folder / name / "new.csv", index=False)
    return table


def score(study, own, **more):
    return predict(study, own, own.folder.parent / "new.csv", insecure=True, progress=False, **more)


def check_scores(found, table, model):
    asked = table.drop(columns="patient").replace("?", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vpem.UnseenWarning)
        expected = model.predict_proba(asked)
    for name, scores in found.items():
        assert not isinstance(scores, Exception), (name, scores)
        rows = [list(table["patient"]).index(one) for one in scores.ids["patient"]]
        np.testing.assert_allclose(scores.responsibilities, expected[rows], atol=1e-9)


def test_new_rows_are_scored_and_unseen_categories_are_said(finished):
    model = finished.expected()
    table = new_people(finished)
    check_scores(finished.threads(score), table, model)
    jobs = table["job"].where(np.arange(30) % 3 > 0, "astronaut")
    table = new_people(finished, job=jobs, code="02")  # which could be numbers
    said = {name: [] for name in NAMES}

    def listen(study, own):
        return predict(
            study,
            own,
            own.folder.parent / "new.csv",
            insecure=True,
            progress=lambda one: said[own.party].append(str(one)),
        )

    check_scores(finished.threads(listen), table, model)
    assert "some categories were not in the fit, and count as not observed: 'job': 'astronaut'" in " ".join(
        said["north"]
    )
    assert "astronaut" not in " ".join(said["east"] + said["south"])
    # Values that a family cannot have are found before anything is sent.
    new_people(finished, visits=-2)
    with pytest.raises(ValueError, match=r"column 'visits', whose family is counts:\d+, got -2; correct it"):
        score(finished.study, find_files(finished.study, finished.folder)["east"])


def test_a_finished_study_goes_on_only_with_the_same_families(finished):
    own = find_files(finished.study, finished.folder)["east"]
    again = join(finished.study, own, insecure=True, progress=False)
    np.testing.assert_array_equal(again.model.means_, finished.fits["east"].model.means_)
    with pytest.raises(FolderError, match="the same party with another choice of families"):
        join(finished.study, own, insecure=True, progress=False, families={"visits": "poisson"})


def test_a_party_that_was_interrupted_goes_on(tmp_path):
    made = Mixed(tmp_path / "clinics", model=f"{FAMILIES}\ntol = 1e-7")
    ended = []

    def take_part(study, own):
        more = {"insecure": True, "progress": False}
        if own.party == "south":
            state = own.folder / "state.earlier"  # written with the second checkpoint
            try:
                return join(study, own, stop=state.exists, **more)
            except StudyEnded as error:
                ended.append(error.outcome.kind)
        return join(study, own, **more)

    fits = made.threads(take_part)
    assert not any(isinstance(one, Exception) for one in fits.values()), fits
    assert ended == ["interrupted"]
    assert "going on from the last checkpoint" in (made.folder / "south/results/log.jsonl").read_text()
    same(whole(made), made.expected(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("links", "model"),
    [
        ("star", f"{FAMILIES}\nstandardize = false"),
        ("ring", f'{FAMILIES}\ncovariance = "diag"\ninit = "labels"'),
        ("path", f'{FAMILIES}\ninit = "random"\naccelerate = "squarem"'),
    ],
)
def test_other_networks_and_settings(tmp_path, links, model):
    made = Mixed(tmp_path / "clinics", links=links, model=model)
    fitted(made, insecure=True)
    same(whole(made), made.expected(), rtol=1e-9, atol=1e-9)


def test_masked_studies_have_families_too(tmp_path):
    """The masked simulation's model; and that of a plain sum but for the rounding of changes, and where EM stops."""
    made = Mixed(tmp_path / "clinics", network='sum = "masked"', model=f"{FAMILIES}\ntol = 1e-6")
    make_keys(made.study, find_files(made.study, made.folder))
    fits = fitted(made)
    same(whole(made), made.expected(), rtol=1e-9, atol=1e-9)
    plain = made.expected(summation=vpem.Tree())
    same(whole(made), plain, rtol=1e-3, atol=1e-3)
    table = made.table.drop(columns="patient").replace("?", None)
    assert whole(made).score(table) == pytest.approx(plain.score(table), abs=1e-5)
    assert all(np.isfinite(fit.responsibilities).all() for fit in fits.values())


def test_families_are_said_in_python_and_in_the_program(tmp_path):
    made = Mixed(tmp_path / "clinics", said={})
    with pytest.raises(TableError, match=r"'A3ward'; \d+ of 200 values are no numbers.*categorical"):
        take_seat(made.study, made.folder / "south" / "clinic.toml", insecure=True)
    seat = take_seat(made.study, made.folder / "south" / "clinic.toml", insecure=True, families=SAID)
    assert seat.local.families == ("angles:24", "categorical:3", "categorical:2")
    arguments = ["study", "check", str(made.folder / "study.toml"), "--party", str(made.folder / "south/clinic.toml")]
    arguments += ["--insecure", "--family", "hour=angles:24", "--family", "code=categorical"]
    said = CliRunner().invoke(app, arguments)
    assert said.exit_code == 0, said.output
    assert "hour angles:24, code categorical:3" in re.sub(r"\s+", " ", said.output)

    def take_part(study, own):
        return join(study, own, insecure=True, progress=False, families=SAID if own.party == "south" else None)

    fits = made.threads(take_part)
    assert not any(isinstance(one, Exception) for one in fits.values()), fits
    same(whole(made), made.expected(), rtol=1e-9, atol=1e-9)


def test_columns_that_no_family_takes_are_named_with_what_to_do(tmp_path):
    made = Mixed(tmp_path / "clinics")
    path = made.folder / "east" / "table.csv"
    table = pd.read_csv(path)
    table.assign(number=np.arange(200) + 7, always=3.5).to_csv(path, index=False)
    with pytest.raises(TableError) as caught:
        take_seat(made.study, made.folder / "east" / "clinic.toml", insecure=True)
    text = str(caught.value)
    assert "column 'number': has whole numbers that grow from row to row" in text, "though the study sorts the rows"
    assert "column 'always': always the same value" in text
    assert "ignore = " in text
    assert "[families]" in text
    with pytest.raises(TableError, match="expected families of columns or parties, got 'rain'"):
        take_seat(made.study, made.folder / "north" / "clinic.toml", insecure=True, families={"rain": "zeros"})
    with pytest.raises(ValueError, match="expected a family of gaussian, categorical"):
        take_seat(made.study, made.folder / "north" / "clinic.toml", insecure=True, families={"age": "normal"})


def test_numbers_in_new_rows_are_words_only_if_these_are_the_same(tmp_path):
    made = Clinics(tmp_path / "clinics", model=FAMILIES)
    own = find_files(made.study, made.folder)["north"]
    ids = {"id": list("abcdef")}

    def rows(column, words):
        values = np.column_stack([np.arange(6) ** 0.5, column])
        return PartyRows(["x", "w"], values, np.arange(6), ids, "", words=words)

    local = prepare(made.study, rows([0, 1, 2, 0, 1, 2], {"w": ["01", "02", "3"]}), own)
    with pytest.raises(TableError, match=r"new rows: expected words in column 'w'.* got numbers, such as 1;"):
        new_values(local, rows([1, 2, 3, 3, 2, 1], {}))
    values, unseen = new_values(local, rows([3, np.nan, 3, 3, 3, 3], {}))
    np.testing.assert_array_equal(values[:, 1], [2, np.nan, 2, 2, 2, 2])
    assert not unseen


@pytest.mark.parametrize("words", [{"w": ["a", "b"]}, {}])
@pytest.mark.parametrize("families", [{}, {"w": "categorical"}, {"w": "counts"}])
def test_a_column_without_a_value_among_the_common_rows_is_named(tmp_path, words, families):
    made = Clinics(tmp_path / "clinics", model=FAMILIES)
    own = replace(find_files(made.study, made.folder)["north"], families=families)
    values = np.column_stack([np.arange(5) ** 0.5, np.full(5, np.nan)])
    rows = PartyRows(["x", "w"], values, np.arange(5), {"id": list("abcde")}, "", words=words)
    with pytest.raises(TableError, match="column 'w': has no value at all; leave it out"):
        prepare(made.study, rows, own)


def test_gaussian_studies_say_how_to_take_words(tmp_path):
    made = Mixed(tmp_path / "clinics", model="", said={})
    with pytest.raises(TableError, match=r'families = "auto" in the \[model\] of the shared file'):
        take_seat(made.study, made.folder / "north" / "clinic.toml", insecure=True)
    with pytest.raises(StudyFileError, match="got spent in a study of Gaussian columns"):
        take_seat(made.study, made.folder / "east" / "clinic.toml", insecure=True, families={"spent": "zeros"})
    own = made.folder / "south" / "clinic.toml"
    own.write_text(own.read_text() + '[families]\nhour = "angels:24"\n')
    with pytest.raises(StudyFileError, match=r"families.hour: expected a family of .*, got 'angels:24'"):
        find_files(made.study, made.folder)
    path = made.folder / "study.toml"
    path.write_text(path.read_text().replace("starts = 2", 'starts = 2\nfamilies = "auto"\nhops = 1'))
    with pytest.raises(StudyFileError, match="expected hops = 0 with families"):
        read_study(path)


def test_what_is_written_is_read_again_and_old_digests_stay(tmp_path):
    made, plain = Mixed(tmp_path / "clinics"), Clinics(tmp_path / "plain")
    again = tmp_path / "again.toml"
    again.write_text(study_text(made.study))
    assert read_study(again).model == made.study.model
    assert read_study(again).digests == made.study.digests
    assert "model.families" in made.study.digests
    assert "model.families" not in plain.study.digests, "as they were before there were families"


def test_what_parties_see_of_categories_is_explained(tmp_path):
    made, plain = Mixed(tmp_path / "clinics"), Clinics(tmp_path / "plain")
    said = CliRunner().invoke(app, ["explain", str(made.folder / "study.toml")])
    text = re.sub(r"\s+", " ", said.output)
    assert "takes few values" in text
    assert "names of categories" in text
    assert "takes few values" not in CliRunner().invoke(app, ["explain", str(plain.folder / "study.toml")]).output


def test_families_change_nothing_of_what_is_sent(tmp_path):
    made, plain = Mixed(tmp_path / "clinics"), Mixed(tmp_path / "plain", model="", said={})
    plans = [
        CliRunner().invoke(app, ["plan", str(one.folder / "study.toml"), "--rows", "200", "--columns", "3", "--json"])
        for one in (made, plain)
    ]
    assert plans[0].exit_code == 0, plans[0].output
    assert json.loads(plans[0].output) == json.loads(plans[1].output)


def test_parties_that_differ_in_whether_they_have_families_do_not_start(tmp_path):
    made = Mixed(tmp_path / "clinics", said={})

    def take_part(study, own):
        if own.party == "east":
            study = replace(study, model=replace(study.model, families="gaussian"))
            own = replace(own, columns=("visits", "spent"))
        return join(study, own, insecure=True, progress=False)

    for one in made.threads(take_part, names=("north", "east")).values():
        assert isinstance(one, StudyEnded)
        assert "model.families" in str(one)
