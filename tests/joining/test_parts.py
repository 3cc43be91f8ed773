"""Rows, keys and folders of a party."""

import errno
import hashlib
import hmac
import os
import shutil
import stat
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from vpem.core.agent.agent_state import AgentState, Checkpoint
from vpem.core.script.state import Prediction, Progress
from vpem.reading import TableError
from vpem.studies import folder as folders
from vpem.studies.certificates import KeyFileError, check_keys, look, make_authority, make_request, sign
from vpem.studies.folder import Belongs, Checkpoints, FolderError, open_folder
from vpem.studies.private import PartyFile, default_keys
from vpem.studies.row_order import read_rows
from vpem.transports import wire

SALT = "00112233445566778899aabbccddeeff"


def party(folder, **more):
    return PartyFile(party="north", folder=folder, keys=default_keys(folder, "north"), id=("id",), **more)


# Rows


def test_rows_are_in_the_order_of_their_salted_digests(tmp_path):
    ids, values = ["c", "a", "b", "d"], [3.0, 1.0, 2.0, 4.0]
    path = tmp_path / "t.csv"
    path.write_text("id,x\n" + "".join(f"{one},{value}\n" for one, value in zip(ids, values, strict=True)))
    rows = read_rows(party(tmp_path, table=path), SALT)
    key = {one: hmac.new(bytes.fromhex(SALT), one.encode(), hashlib.sha256).hexdigest() for one in ids}
    order = sorted(range(4), key=lambda row: key[ids[row]])
    np.testing.assert_array_equal(rows.values[:, 0], np.array(values)[order])
    np.testing.assert_array_equal(rows.as_in_table(rows.values)[:, 0], values)
    assert rows.keys == {"id": ids}


def test_the_same_ids_have_the_same_digest_in_any_order_and_form(tmp_path):
    one = read_rows(party(tmp_path), SALT, pd.DataFrame({"id": ["a", "ä", "c"], "x": [1.0, 2.0, 3.0]}))
    other = read_rows(party(tmp_path), SALT, pd.DataFrame({"id": ["c ", "a", "a\u0308"], "y": [3.0, 1.0, 2.0]}))
    assert one.digest == other.digest
    np.testing.assert_array_equal(one.values, other.values)
    third = read_rows(party(tmp_path), SALT, pd.DataFrame({"id": ["a", "b", "c"], "x": [1.0, 2.0, 3.0]}))
    assert third.digest != one.digest
    assert read_rows(party(tmp_path), SALT[::-1], pd.DataFrame({"id": ["a"], "x": [1.0]})).digest != one.digest


def test_wrong_ids_are_said_with_counts(tmp_path):
    with pytest.raises(TableError, match=r"every id in column 'id' once.*2 rows in all repeat an id"):
        read_rows(party(tmp_path), SALT, pd.DataFrame({"id": ["a", "a", "a", "b"], "x": np.arange(4.0)}))
    with pytest.raises(TableError, match=r"expected an id in column 'id', got nothing .and in 1 more rows"):
        read_rows(party(tmp_path), SALT, pd.DataFrame({"id": ["a", None, None], "x": np.arange(3.0)}))
    with pytest.raises(TableError, match="1 that another row has in another spelling"):
        read_rows(party(tmp_path), SALT, pd.DataFrame({"id": ["ä", "a\u0308"], "x": np.arange(2.0)}))


def test_columns_and_ignore(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,x,y,name\n1,2,3,anna\n2,3,4,otto\n")
    assert read_rows(party(tmp_path, table=path, ignore=("name",)), SALT).names == ["x", "y"]
    assert read_rows(party(tmp_path, table=path, columns=("y",)), SALT).names == ["y"]
    with pytest.raises(TableError, match="did you mean 'name'"):
        read_rows(party(tmp_path, table=path, ignore=("nam",)), SALT)
    new = tmp_path / "new.csv"
    new.write_text("id\n7\n8\n")
    found = read_rows(party(tmp_path), SALT, new, columns=["x", "y"])
    assert found.values.shape == (2, 0)


# Keys


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An authority, and north's key and certificate."""
    home = tmp_path_factory.mktemp("keys")
    make_authority(home, "clinics")
    _, request = make_request(home, "north", ["north.example.org", "10.0.0.7"])
    sign(request, home)
    return home


def test_certificates_verify_and_are_backdated(made):
    certificate = x509.load_pem_x509_certificate((made / "north.pem").read_bytes())
    authority = x509.load_pem_x509_certificate((made / "ca.pem").read_bytes())
    for name in (x509.DNSName("north.example.org"), x509.DNSName("north")):
        verifier = PolicyBuilder().store(Store([authority])).build_server_verifier(name)
        assert verifier.verify(certificate, [])[0] == certificate
    PolicyBuilder().store(Store([authority])).build_client_verifier().verify(certificate, [])
    age = datetime.now(UTC) - certificate.not_valid_before_utc
    assert timedelta(days=1.9) < age < timedelta(days=2.1)
    assert look(made / "north.pem").hosts == ("north.example.org", "10.0.0.7")
    assert look(made / "north.pem").fingerprint == look(made / "north.csr").fingerprint


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_keys_are_their_owners_alone(made):
    for name in ("ca.key", "north.key"):
        assert stat.S_IMODE((made / name).stat().st_mode) == 0o600


def test_keys_are_checked_before_a_run(made, tmp_path):
    files = made / "ca.pem", made / "north.pem", made / "north.key"
    assert check_keys(*files, "north") == []
    with pytest.raises(KeyFileError, match="expected the name 'south', as in the study, got 'north'"):
        check_keys(*files, "south")
    with pytest.raises(KeyFileError, match=r"found no .*none.key"):
        check_keys(*files[:2], tmp_path / "none.key", "north")
    make_authority(tmp_path, "strangers")
    with pytest.raises(KeyFileError, match=r"expected a certificate that .* has signed"):
        check_keys(tmp_path / "ca.pem", *files[1:], "north")
    with pytest.raises(KeyFileError, match="got another"):
        check_keys(*files[:2], tmp_path / "ca.key", "north")
    with pytest.raises(KeyFileError, match="never send it"):
        look(made / "north.key")
    with pytest.raises(FileExistsError, match="move it away"):
        make_request(made, "north")


def test_certificates_that_expire_soon_are_told(made, monkeypatch):
    monkeypatch.setattr("vpem.studies.certificates.SOON_DAYS", 400)
    [note] = check_keys(made / "ca.pem", made / "north.pem", made / "north.key", "north")
    assert "expires in 365 days" in note or "expires in 364 days" in note


# Folders


def about(**more):
    return Belongs(**{"study": "s", "party": "north", "digests": {"seed": "1"}, **more})


def state(epoch, *arrays):
    """A state of this epoch; large arrays are parts of their own."""
    requests = {number: Prediction(len(one), one) for number, one in enumerate(arrays)}
    return wire.StateEncoder().parts(AgentState(epoch=epoch, requests=requests))


def loaded(folder, **more):
    """The last whole state's epoch and arrays, and what was found out."""
    one = Checkpoints(folder, about(**more))
    found = wire.decode_state(one.load())
    return found.epoch, [request.columns for request in found.requests.values()], one.notes


def large(number):
    return np.random.default_rng(number).normal(size=(5000, 2))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_is_whole_or_the_one_before_it_is_used(tmp_path):
    one = Checkpoints(tmp_path, about())
    assert one.load() is None
    one.save(state(1))
    one.save(state(2))
    assert loaded(tmp_path)[0] == 2
    content = (tmp_path / "state").read_bytes()
    for length in (0, 5, 40, len(content) - 1):
        (tmp_path / "state").write_bytes(content[:length])
        epoch, _, [note] = loaded(tmp_path)
        assert epoch == 1
        assert "is damaged" in note
    again = Checkpoints(tmp_path, about())
    again.load()
    again.save(state(3))
    (tmp_path / "state").write_bytes(b"")
    assert loaded(tmp_path)[0] == 1, "what is damaged does not take the place of what is whole"
    (tmp_path / "state.earlier").write_bytes(b"")
    with pytest.raises(FolderError, match="expected a whole checkpoint"):
        Checkpoints(tmp_path, about()).load()


@pytest.mark.parametrize("at_once", [1000, 2**23])
def test_large_arrays_are_written_once_and_kept_as_long_as_a_checkpoint_has_them(at_once, tmp_path, monkeypatch):
    monkeypatch.setattr("vpem.studies.folder.AT_ONCE", at_once)
    one, (a, b, c) = Checkpoints(tmp_path, about()), map(large, range(3))
    one.load()
    one.save(state(1, a, b))
    files = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("state-*")}
    assert len(files) == 2
    one.save(state(2, b, c))
    assert len(list(tmp_path.glob("state-*"))) == 3, "the checkpoint before has the first"
    assert all((tmp_path / name).stat().st_mtime_ns == time for name, time in files.items())
    epoch, arrays, _ = loaded(tmp_path)
    assert epoch == 2
    np.testing.assert_array_equal(arrays, [b, c])
    (tmp_path / "state").unlink()
    epoch, arrays, _ = loaded(tmp_path)
    assert epoch == 1
    np.testing.assert_array_equal(arrays, [a, b])
    again = Checkpoints(tmp_path, about())
    again.load()
    again.save(state(3, c, c))
    assert len(list(tmp_path.glob("state-*"))) == 3, "the checkpoint of the process before is still there"
    again.save(state(4, c))
    assert len(list(tmp_path.glob("state-*"))) == 1, "one array, one file"
    again.save(state(5))
    again.save(state(6))
    assert names(tmp_path) == ["state", "state.earlier"]


def test_a_disk_that_is_full_in_the_middle_of_an_array_costs_nothing(tmp_path, monkeypatch):
    one = Checkpoints(tmp_path, about())
    one.save(state(1, large(1)))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr("vpem.studies.folder.AT_ONCE", 1000)
    calls = iter([None, None])

    def fsync(_):
        if next(calls, "full") == "full":
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("vpem.studies.folder.os.fsync", fsync)
        with pytest.raises(FolderError, match="No space left on device; the last checkpoint is whole"):
            one.save(state(2, large(1), large(2)))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    one.save(state(3, large(3)))
    assert loaded(tmp_path)[0] == 3


def test_a_large_array_that_was_saved_can_be_had_from_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr("vpem.studies.folder.MAPPED_BYTES", 64)
    one, (a, b) = Checkpoints(tmp_path, about()), map(large, range(2))
    find = one.save(state(1, a, b))
    mapped = find(a)
    np.testing.assert_array_equal(mapped, a)
    assert not mapped.flags.writeable
    assert find(mapped) is mapped
    other = large(2)
    assert find(other) is other, "of no checkpoint"
    if os.name == "posix":
        assert not np.shares_memory(mapped, a)
    files = names(tmp_path)
    one.save(state(2, mapped, b))
    assert set(names(tmp_path)) == {*files, "state.earlier"}, "not written again"
    np.testing.assert_array_equal(loaded(tmp_path)[1], [a, b])
    for epoch in (3, 4):
        one.save(state(epoch))
    assert names(tmp_path) == ["state", "state.earlier"]
    np.testing.assert_array_equal(mapped, a)  # as long as something has it


def test_a_checkpoint_of_another_version_is_not_called_damaged(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(wire, "STATE_VERSION", wire.STATE_VERSION - 1)
        Checkpoints(tmp_path, about()).save(state(1, large(0)))
        assert loaded(tmp_path)[0] == 1
    with pytest.raises(FolderError, match="saved by another version of vpem; go on with that version"):
        Checkpoints(tmp_path, about()).load()


@pytest.mark.parametrize("harm", ["missing", "short", "changed"])
def test_a_damaged_array_is_found_out(tmp_path, harm):
    one = Checkpoints(tmp_path, about())
    one.save(state(1, large(1)))
    one.save(state(2, large(2)))
    *_, last = sorted(tmp_path.glob("state-*"))
    content = bytearray(last.read_bytes())
    content[1000] ^= 1
    last.unlink()
    if harm != "missing":
        last.write_bytes(content[: None if harm == "changed" else -1])
    epoch, arrays, [note] = loaded(tmp_path)
    assert epoch == 1
    np.testing.assert_array_equal(arrays, [large(1)])
    assert "is damaged" in note


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    fitted = AgentState(epoch=1, checkpoints=(Checkpoint(0, Progress()), Checkpoint(1, Progress())))
    Checkpoints(tmp_path, about()).save(wire.StateEncoder().parts(fitted))
    with pytest.raises(FolderError, match=r"'north' in study 's'.*got one of the same party with another seed"):
        Checkpoints(tmp_path, about(digests={"seed": "2"})).load()
    with pytest.raises(FolderError, match="got one of 'north' in study 's'"):
        Checkpoints(tmp_path, about(study="t")).load()


def test_a_disk_that_says_it_is_full_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    one = Checkpoints(tmp_path, about())
    one.save(state(1))

    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folders.os, "fsync", full)
    with pytest.raises(FolderError, match=r"No space left on device.*the last checkpoint is whole"):
        one.save(state(2, large(1)))
    monkeypatch.undo()
    assert loaded(tmp_path)[0] == 1
    assert names(tmp_path) == ["state"]


def test_a_disk_that_is_full_leaves_the_last_checkpoint(small_disk):
    one = Checkpoints(small_disk, about())
    one.save(state(1, large(1)))
    one.save(state(2, large(2)))
    filler = small_disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(small_disk).free - 4096))
    before = names(small_disk)
    for arrays in ([large(3)], [np.zeros((100, 2))] * 30):  # in an array's file, and in the state's
        with pytest.raises(FolderError, match=r"No space left on device.*the last checkpoint is whole"):
            one.save(state(3, *arrays))
        assert names(small_disk) == before
        epoch, found, notes = loaded(small_disk)
        assert (epoch, notes) == (2, [])
        np.testing.assert_array_equal(found, [large(2)])
    filler.unlink()
    one.save(state(3, large(3)))
    assert loaded(small_disk)[0] == 3


def test_folders_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match="expected a folder to write to"), open_folder(tmp_path / "file", 1):
        pass
    with pytest.raises(FolderError, match="of free space"), open_folder(tmp_path / "a", 10**18):
        pass
    with (
        open_folder(tmp_path / "a", 1),
        pytest.raises(FolderError, match="one process of a party at a time"),
        open_folder(tmp_path / "a", 1),
    ):
        pass
