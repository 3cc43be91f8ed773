"""A study's files: what they say, and every mistake with its line."""

from pathlib import Path

import pytest

from vpem import Consensus, Masked, Star, Tree
from vpem.studies import fields
from vpem.studies.fields import StudyFileError
from vpem.studies.lines import key_lines
from vpem.studies.private import read_party
from vpem.studies.shared import Options
from vpem.studies.shared_file import read_study
from vpem.studies.study_text import party_text, study_text

SALT = "00112233445566778899aabbccddeeff"
STUDY = f"""vpem = 1
name = "clinics"
[model]
components = 3
[network]
links = "tree"
[rows]
salt = "{SALT}"
[parties.north]
address = "north.example.org:7450"
[parties.east]
address = "east.example.org:7450"
certificate = "east-clinic"
[parties.south]
address = "10.0.0.7:7451"
"""


def written(folder, text, name="study.toml"):
    path = Path(folder) / name
    path.write_text(text)
    return path


def study_of(folder, *changes, text=STUDY):
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return read_study(written(folder, text))


def complaint(folder, *changes, text=STUDY):
    with pytest.raises(StudyFileError) as caught:
        study_of(folder, *changes, text=text)
    return str(caught.value).replace(f"{folder}/", "")


def test_a_study_says_who_is_linked_and_what_is_fitted(tmp_path):
    study = study_of(tmp_path)
    assert study.names == ("north", "east", "south")
    assert study.links == ((0, 1), (0, 2))
    assert study.neighbours(0) == (1, 2)
    assert study.summation == Masked(Tree())
    assert [one.certificate for one in study.parties] == ["north", "east-clinic", "south"]
    assert study.model == Options(components=3)
    assert study.patience == 3600
    assert study.lease == 10


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        ('"path"', ((0, 1), (1, 2))),
        ('"ring"', ((0, 1), (1, 2), (0, 2))),
        ('"complete"', ((0, 1), (0, 2), (1, 2))),
        ('[["south", "east"], ["east", "north"]]', ((0, 1), (1, 2))),
    ],
)
def test_links_by_name_or_as_pairs(tmp_path, links, expected):
    assert study_of(tmp_path, ('"tree"', links)).links == expected


def test_a_star_has_a_server_with_the_last_number(tmp_path):
    study = study_of(tmp_path, ('"tree"', '"star"\nserver = { address = "hub.example.org:7450" }'))
    assert study.names[-1] == "server"
    assert study.links == ((0, 3), (1, 3), (2, 3))
    assert study.summation == Masked(Star())


def test_sums_by_name(tmp_path):
    assert study_of(tmp_path, ('"tree"', '"tree"\nsum = "exact"')).summation == Tree()
    found = study_of(tmp_path, ('"tree"', '"ring"\nsum = "consensus"\nrounds = 7')).summation
    assert found == Consensus(7)


def test_the_agreement_is_that_of_the_estimator(tmp_path):
    """The simulation's own agreement, taken on its way."""
    study = study_of(tmp_path)
    agreement = study.agreement()
    assert agreement.settings.n_components == 3
    assert agreement.n_init == 5
    assert agreement.init_params == "kmeans"
    assert agreement.summation == Masked(Tree())


def test_all_mistakes_at_once_with_lines_and_what_was_meant(tmp_path):
    text = complaint(
        tmp_path,
        ('name = "clinics"', 'name = "my clinics"\nsed = 3'),
        ("components = 3", 'components = "3"\ncovarianc = "full"'),
        ("10.0.0.7:7451", "10.0.0.7"),
        (SALT, "abc"),
    )
    assert text.splitlines() == [
        "expected files that can be used as they are, got 6 problems:",
        "- study.toml, line 2: name: expected 1 to 64 letters, digits, - and _, got 'my clinics'",
        "- study.toml, line 3: the key 'sed' is not one of this file; did you mean 'seed'? known are vpem, model, "
        "parties, network, privacy, rows, name, seed, patience, lease",
        "- study.toml, line 5: model.components: expected a whole number, 1 or more, got '3'",
        "- study.toml, line 6: model: the key 'covarianc' is not one of this file; did you mean 'covariance'? known "
        "are components, covariance, tol, max_iter, starts, init, accelerate, reg_covar, shrinkage, standardize, "
        "hops, families",
        "- study.toml, line 10: rows.salt: expected at least 32 hexadecimal digits, drawn at random (vpem study init "
        "draws them), got 'abc'",
        "- study.toml, line 17: parties.south.address: expected host:port, such as north.example.org:7450, got "
        "'10.0.0.7'",
    ]


@pytest.mark.parametrize(
    ("changes", "line", "words"),
    [
        ([("vpem = 1", "vpem = 2")], 1, "update vpem"),
        ([('"tree"', '[["north", "est"]]')], 6, "did you mean 'east'"),
        ([('"tree"', '[["north", "east"]]')], 6, "got south apart from north"),
        ([('"tree"', '[["north", "north"]]')], 6, "two different parties"),
        ([('"tree"', '"star"')], 5, "expected network.server.address"),
        ([('"tree"', '"tree"\nserver = { address = "a:1" }')], 7, 'links = "star" only'),
        ([('"tree"', '"tree"\nrounds = 3')], 7, 'sum = "consensus" only'),
        ([('"tree"', '"star"\nsum = "consensus"\nserver = {address = "a:1"}')], 7, 'got "consensus"'),
        ([("components = 3", "components = 3\nhops = 1\nstandardize = true")], 6, "standardize = false with hops"),
        ([("components = 3", 'components = 3\naccelerate = "x"')], 5, "expected one of squarem"),
        ([("[parties.north]", "[parties.server]")], 9, "another name than 'server'"),
        ([("10.0.0.7:7451", "east.example.org:7450")], 15, "a different address"),
        ([('"clinics"', '"clinics"\npatience = "soon"')], 3, 'such as "10s"'),
        ([("components = 3", "")], 3, "expected model.components, found none"),
        ([('"clinics"', '"clinics')], 2, "expected TOML"),
    ],
)
def test_a_mistake_has_its_line(tmp_path, changes, line, words):
    text = complaint(tmp_path, *changes)
    assert text.startswith(f"study.toml, line {line}: "), text
    assert words in text


def test_values_that_do_not_fit_each_other(tmp_path):
    changes = [("components = 3", 'components = 3\naccelerate = "squarem"'), ('"tree"', '"ring"\nsum = "consensus"')]
    assert "expected accelerate with sums that are the same" in complaint(tmp_path, *changes)


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(StudyFileError, match="found no such file"):
        read_study(tmp_path / "none.toml")


def test_digests_tell_which_field_differs_and_leave_addresses_out(tmp_path):
    one = study_of(tmp_path)
    other = study_of(tmp_path, ("components = 3", "components = 4"), ("10.0.0.7", "10.0.0.8"))
    differing = [name for name in one.digests if one.digests[name] != other.digests[name]]
    assert differing == ["model.components"]
    assert one.digest != other.digest
    assert one.digest == study_of(tmp_path, ("10.0.0.7", "10.0.0.8")).digest


def test_what_is_written_is_read_again(tmp_path):
    for links in ('"tree"', '"star"\nserver = { address = "h:1" }', '[["south", "east"], ["east", "north"]]'):
        study = study_of(tmp_path, ('"tree"', links), ("components = 3", 'components = 3\nshrinkage = "none"'))
        again = read_study(written(tmp_path, study_text(study), "copy.toml"))
        assert again.digests == study.digests
        assert again.members == study.members


def test_a_party_has_paths_relative_to_its_file(tmp_path):
    (tmp_path / "own").mkdir()
    path = written(tmp_path / "own", party_text("east", "table.csv", ["patient"]), "clinic.toml")
    party = read_party(path, study_of(tmp_path))
    assert party.table == tmp_path / "own" / "table.csv"
    assert party.keys.key == tmp_path / "own" / "keys" / "east.key"
    assert party.folder == tmp_path / "own" / "results"


def test_mistakes_in_a_partys_file(tmp_path):
    path = written(tmp_path, 'party = "est"\ntabel = "a.csv"\ncolumns = ["a"]\nignore = ["b"]\nid = 3\n', "own.toml")
    with pytest.raises(StudyFileError) as caught:
        read_party(path, study_of(tmp_path))
    text = str(caught.value)
    assert "line 1: expected a party of the study (north, east, south), got 'est'" in text
    assert "line 2: the key 'tabel' is not one of this file; did you mean 'table'?" in text
    assert "line 4: expected columns or ignore, got both" in text
    assert "line 5: id: expected names of columns, got 3" in text


def test_lines_of_keys_in_any_toml():
    text = '''# a comment = 1
a = """
b = 2
"""
[x]
"c d" = [ # [
  "]",
]
e.f = {g = 1}
[[y]]
h = '#'
'''
    lines = {("a",): 2, ("x",): 5, ("x", "c d"): 6, ("x", "e", "f"): 9, ("y",): 10, ("y", "h"): 11}
    assert key_lines(text) == lines


@pytest.mark.parametrize(("given", "seconds"), [("10s", 10), ("1.5 min", 90), ("1h", 3600), ("2d", 172_800), (3, 3)])
def test_times(given, seconds):
    assert fields.duration(given) == seconds


def test_a_fingerprint_is_said_as_it_is(capsys):
    from vpem.cli.app import err, out, say

    say("key ba:d3:ab:0c")
    assert capsys.readouterr().out == "key ba:d3:ab:0c\n"
    assert out.render_str(":ab:").plain == err.render_str(":ab:").plain == ":ab:"
