"""A study on a platform that asks, without Flower: every question in a new process, as far as its memory goes."""

import csv
import itertools
import tomllib
from types import SimpleNamespace

import numpy as np
import pytest

from clinics import NAMES, RESOLUTION, Clinics, MaskedClinics, Unmatched, check_models, found_in
from joining.test_matched import SURE, compare
from vpem.cli.app import app
from vpem.flower.app_folder import write_app
from vpem.flower.client import Kept, take_question
from vpem.flower.server import expected_time, most_questions, serve
from vpem.flower.turns import Answer, Failed, Stopped, pack, unpack
from vpem.privacy.pairwise_keys import Keys
from vpem.studies.shared_file import read_study

RUNS = itertools.count(1)
PLAIN = 'init = "labels"\ntol = 1e-6\naccelerate = "squarem"'


class Platform:
    """Asks the parties of a study one after the other, and keeps what they leave as bytes."""

    def __init__(self, clinics, nodes=None):
        self.config = {"study": (clinics.folder / "study.toml").read_text(), "folder": str(clinics.folder)}
        self.node_configs = nodes or {number: {"partition-id": number - 10} for number in (10, 11, 12)}
        self.kept, self.lines, self.n_asked, self.seen = {}, [], 0, []

    def nodes(self):
        return list(self.node_configs)

    def ask(self, questions):
        self.n_asked += 1
        found = {}
        for node, question in questions.items():
            content, before = pack(question), self.kept.get(node)
            given, self.kept[node] = take_question(
                self.config, self.node_configs[node], self.run_name, content, before
            )
            self.seen += [content, given]
            found[node] = unpack(given, Answer)
        return found

    def run(self, most=1000):
        """Run, but not more than so many questions."""
        self.run_name = f"{next(RUNS)}"
        whole, self.whole_ask = self.ask, self.ask

        def ask(questions):
            if self.n_asked >= most:
                raise Stopped("the network is gone")
            return whole(questions)

        self.ask = ask
        try:
            return serve(self.config, self, self.lines.append)
        finally:
            self.ask = self.whole_ask


def hidden(clinics, seen):
    """No value of a table, as a number or as text, and no name of a column is in some bytes."""
    everything = b"".join(seen)
    assert found_in(everything, clinics.X) == []
    assert not [one for one in ("patient", "north_0", "east_1") if one.encode() in everything]


def test_a_plain_study_is_that_of_the_simulation(tmp_path):
    clinics = Clinics(tmp_path, links="star", model=PLAIN, starts=1)
    platform = Platform(clinics)
    n_questions = platform.run()
    assert check_models(clinics, 1e-9).converged_
    assert n_questions == platform.n_asked <= most_questions(clinics.study, 80)
    assert any("a question to all parties takes" in line for line in platform.lines)
    assert platform.lines[-1] == "all parties are done"
    hidden(clinics, platform.seen)


def test_a_report_that_cannot_be_written_is_not_the_others_problem(tmp_path, capsys):
    clinics = Clinics(tmp_path, links="star", model=PLAIN, starts=1)
    report = clinics.folder / "east" / "results" / "report.html"
    report.mkdir(parents=True)
    platform = Platform(clinics)
    platform.run()
    assert platform.lines[-1] == "all parties are done"
    assert check_models(clinics, 1e-9).converged_
    assert "east is done, but without all results" in capsys.readouterr().err
    assert "got no report.html" in (report.parent / "log.jsonl").read_text()


@pytest.mark.parametrize(
    "model",
    [
        'init = "labels"\ntol = 0\naccelerate = "squarem"\nmax_iter = 6',
        'init = "random"\ntol = 0\nmax_iter = 3',
    ],
)
def test_the_number_of_questions_is_known_before(tmp_path, model):
    clinics = Clinics(tmp_path, links="star", model=model)
    most = most_questions(clinics.study, 80)
    assert Platform(clinics).run() == most
    assert f"takes 9.0 s here; this fit takes at most {most - 1} questions" in expected_time(clinics.study, 80, 9.0)


def test_a_masked_study_is_that_of_the_simulation_and_keeps_its_secrets_sealed(tmp_path, monkeypatch):
    made, draw = set(), Keys.__init__

    def note(self, private=None):
        draw(self, private)
        made.add(self.private)

    monkeypatch.setattr(Keys, "__init__", note)
    clinics = MaskedClinics(tmp_path)
    platform = Platform(clinics)
    # The meeting, who has which rows, four iterations and the one that ends them, the last total.
    assert platform.run() == most_questions(clinics.study, 80) == 1 + 1 + 5 + 1
    check_models(clinics, RESOLUTION)
    hidden(clinics, platform.seen)
    assert len(made) >= len(NAMES) + 1, "one of each agent"
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    everything = b"".join([*files, *platform.seen, *platform.kept.values()])
    assert not [key for key in made if key in everything], "private keys of masks are in no file and no message"
    for kept in platform.kept.values():
        with pytest.raises(ValueError, match="got other bytes"):
            unpack(kept, Kept)


def test_what_was_kept_for_one_run_is_of_no_use_in_another(tmp_path):
    clinics = MaskedClinics(tmp_path)
    platform = Platform(clinics)
    with pytest.raises(Stopped, match="the network is gone"):
        platform.run(3)
    later = Platform(clinics)
    later.kept = dict(platform.kept)
    assert later.run() < 8 + 1  # goes on from checkpoints
    check_models(clinics, RESOLUTION)


@pytest.mark.parametrize("most", [1, 2, 4, 6])
def test_a_run_that_was_interrupted_goes_on(tmp_path, most):
    clinics = Clinics(tmp_path, links="star", model='init = "random"\ntol = 0\nmax_iter = 5', starts=1)
    with pytest.raises(Stopped, match=r"the network is gone; the state is in .*the next flwr run goes on from it"):
        Platform(clinics).run(most)
    later = Platform(clinics)
    n_questions = later.run()
    assert n_questions == (8 if most < 2 else 8 - most + 2)
    check_models(clinics, 1e-9)
    assert Platform(clinics).run() == 2  # it is done: all meet, and have their results


def test_rows_are_matched_first(tmp_path):
    clinics = Unmatched(tmp_path, links="star", model=SURE, starts=1)
    platform = Platform(clinics)
    before = platform.run()
    found = {}
    for name in NAMES:
        folder = tmp_path / name / "results"
        with (folder / "rows.csv").open() as file:
            ids, _, *probabilities = zip(*list(csv.reader(file))[1:], strict=True)
        joint = np.array(probabilities, dtype=float).T
        found[name] = SimpleNamespace(ids={"patient": ids}, responsibilities=joint)
    compare(clinics, found, "inner")
    hidden(clinics, platform.seen)
    # Hellos, lists around three parties, tokens, positions, checks; they are not found again.
    again = Platform(clinics)
    assert again.run() == 3
    assert before > 3 + 5


def test_parties_are_known_by_their_nodes_own_config(tmp_path):
    clinics = Clinics(tmp_path, links="star", model=PLAIN, starts=1)
    nodes = {
        place: {"party": str(tmp_path / name / "clinic.toml"), "study": str(tmp_path / "study.toml")}
        for place, name in enumerate(NAMES, 5)
    }
    moved = tmp_path / "moved.csv"
    (tmp_path / "east" / "table.csv").rename(moved)
    nodes[6]["table"] = str(moved)
    platform = Platform(clinics, {**nodes, 9: {}})
    platform.run()
    check_models(clinics, 1e-9)
    with pytest.raises(Stopped, match=r"got none of south; a node has no party="):
        Platform(clinics, {5: nodes[5], 6: nodes[6], 9: {}}).run()


def test_a_party_refuses_a_run_of_another_study(tmp_path, capsys):
    clinics = Clinics(tmp_path, links="star", model=PLAIN, starts=1)
    own = tmp_path / "own.toml"
    own.write_text((tmp_path / "study.toml").read_text().replace("differences", "exact"))
    shared = str(tmp_path / "study.toml")
    nodes = {
        place: {"party": str(tmp_path / name / "clinic.toml"), "study": shared} for place, name in enumerate(NAMES)
    }
    nodes[2]["study"] = str(own)
    with pytest.raises(Stopped, match=r"got none of south; this node cannot take part \(StudyFileError\)"):
        Platform(clinics, nodes).run()
    assert "got a run with another network.sum" in capsys.readouterr().err
    del nodes[2]["study"]
    with pytest.raises(Stopped, match="got none of south"):
        Platform(clinics, nodes).run()
    assert 'expected study="..." beside party="..."' in capsys.readouterr().err


def test_what_is_wrong_with_a_table_stays_with_its_party(tmp_path, capsys):
    clinics = Clinics(tmp_path, links="star", model=PLAIN, starts=1)
    path = tmp_path / "east" / "table.csv"
    path.write_text(path.read_text() + "p999,secret,word\n")
    platform = Platform(clinics)
    with pytest.raises(Stopped, match=r"east cannot take part \(TableError\); the output of its SuperNode says why"):
        platform.run()
    assert "secret" in capsys.readouterr().err
    assert b"secret" not in b"".join(platform.seen)


def test_other_rows_are_refused_before_anything_is_added(tmp_path):
    clinics = Clinics(tmp_path, links="star", model=PLAIN, starts=1)
    path = tmp_path / "east" / "table.csv"
    path.write_text(path.read_text().replace('"p17",', '"p99",'))
    platform = Platform(clinics)
    with pytest.raises(Stopped, match="80 rows each, but not with the same ids"):
        platform.run()
    assert platform.n_asked == 1


def test_a_table_that_changes_during_a_run_ends_it(tmp_path):
    clinics = Clinics(tmp_path, links="star", model=PLAIN, starts=1)
    platform = Platform(clinics)
    whole, path = platform.ask, tmp_path / "east" / "table.csv"

    def ask(questions):
        if platform.n_asked == 2:
            lines = path.read_text().splitlines()
            path.write_text("\n".join([lines[0], lines[1].rsplit(",", 1)[0] + ",0", *lines[2:]]))
        return whole(questions)

    platform.ask = ask
    with pytest.raises(Stopped, match="the study or the table has changed during the run"):
        platform.run()


def test_a_fit_that_fails_says_why_and_how_to_begin_again(tmp_path):
    clinics = Clinics(tmp_path, links="star", model=PLAIN, starts=1)
    path = tmp_path / "east" / "table.csv"
    whole = path.read_text()
    first, *lines = whole.splitlines()
    path.write_text(
        "\n".join([first, *(",".join([*line.split(",")[:2], "1e200"]) for line in lines[:3]), *lines[3:]])
    )
    for _ in range(2):
        with pytest.raises(Failed, match=r"east.*to begin again after a change, remove state and state.earlier"):
            Platform(clinics).run()
    path.write_text(whole)
    for folder in [*(tmp_path / name / "results" for name in NAMES), tmp_path / "server-results"]:
        for name in ("state", "state.earlier"):
            (folder / name).unlink(missing_ok=True)
    Platform(clinics).run()
    check_models(clinics, 1e-9)


def test_a_study_without_what_it_needs_says_so(tmp_path):
    clinics = Clinics(tmp_path, model=PLAIN, starts=1)
    with pytest.raises(ValueError, match='expected links = "star" for a study on Flower'):
        Platform(clinics).run()
    platform = Platform(Clinics(tmp_path / "star", links="star", model=PLAIN, starts=1))
    platform.config["folder"] = "/nowhere"
    with pytest.raises(ValueError, match="expected the path of the server's own file"):
        platform.run()
    platform.config["study"] = ""
    with pytest.raises(ValueError, match="expected the text of a study"):
        platform.run()


def test_an_app_has_the_study_with_few_rounds(tmp_path, capsys):
    clinics = MaskedClinics(tmp_path / "study", model="")
    text = (clinics.folder / "study.toml").read_text().replace("starts = 1\n", "")
    (clinics.folder / "study.toml").write_text(text)
    app(["flower", "init", str(clinics.folder / "study.toml"), str(tmp_path / "app")], standalone_mode=False)
    said = capsys.readouterr().out
    study = read_study(tmp_path / "app" / "study.toml")
    assert (study.model.starts, study.model.init, study.model.accelerate) == (1, "random", "squarem")
    assert f"at most {most_questions(study, 80)} questions" in said
    project = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert project["config"]["study"] == (tmp_path / "app" / "study.toml").read_text()
    assert project["config"]["folder"] == str(clinics.folder)
    assert project["components"] == {"serverapp": "vpem_app:server", "clientapp": "vpem_app:client"}
    with pytest.raises(FileExistsError):
        write_app(clinics.folder / "study.toml", tmp_path / "app")
    said = Clinics(tmp_path / "plain", links="star", model='init = "random"', starts=3)
    plain = write_app(said.folder / "study.toml", tmp_path / "plain-app")
    assert (plain.model.starts, plain.model.init, plain.model.accelerate) == (3, "random", "squarem")
    tree = Clinics(tmp_path / "tree")
    with pytest.raises(ValueError, match='expected links = "star"'):
        write_app(tree.folder / "study.toml", tmp_path / "tree-app")


def test_a_question_is_answered_once_even_from_an_older_state(tmp_path):
    clinics = MaskedClinics(tmp_path)
    platform = Platform(clinics)
    whole, twice = platform.ask, []

    def ask(questions):
        before, found = dict(platform.kept), whole(questions)
        if platform.n_asked == 3:
            node, question = next(iter(questions.items()))
            again, _ = take_question(
                platform.config, {"partition-id": node - 10}, platform.run_name, pack(question), before[node]
            )
            twice.append(unpack(again, Answer))
        return found

    platform.ask = ask
    platform.run()
    assert "was answered before" in twice[0].failure
    assert not twice[0].frames
    check_models(clinics, RESOLUTION)
