"""A party's folder: the lock, the log, and checkpoints that outlive the process.

A checkpoint is written under another name, flushed to the disk, and then takes the place of the last one, which is
kept as well. Its heading says of which study, party and table it is, and has a digest of the rest: a file that was
cut short, or that belongs to something else, is found out.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from vpem.words import as_bytes

STATE, EARLIER = "state", "state.earlier"
MAGIC = b"vpem state 1\n"
FEWEST = 32
"""Bytes of a digest."""


class FolderError(OSError):
    """A folder in which a party cannot work, or whose checkpoint is not of use; the message says what to do."""


class Belongs(msgspec.Struct, frozen=True):
    """What a checkpoint is of."""

    study: str
    party: str
    digests: Mapping[str, str]
    """Of the study's fields, and of the table."""


class Checkpoints:
    """The checkpoints of one party.

    Parameters
    ----------
    folder : Path
        That exists.
    belongs : Belongs
    """

    def __init__(self, folder: Path, belongs: Belongs):
        self.folder, self.belongs = folder, belongs
        self.notes: list[str] = []
        """What was found out while loading."""

    def save(self, content: bytes) -> None:
        """Keep a state; when this returns it survives the process, and the machine."""
        heading = msgspec.json.encode(self.belongs)
        parts = (
            MAGIC,
            hashlib.sha256(heading + content).digest(),
            len(heading).to_bytes(4, "little"),
            heading,
            content,
        )
        path, unfinished = self.folder / STATE, self.folder / ".state.unfinished"
        try:
            with unfinished.open("wb") as file:
                for part in parts:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
            if path.exists():
                path.replace(self.folder / EARLIER)
            unfinished.replace(path)
            _flush_folder(self.folder)
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            raise FolderError(
                f"{self.folder}: expected to write a checkpoint of {as_bytes(len(content))}, got: {error.strerror}; "
                "the last checkpoint is whole: make room or give permission, then run the same command again"
            ) from error

    def load(self) -> bytes | None:
        """The last whole state; None if there never was one.

        Raises
        ------
        FolderError
            If there are only damaged ones, or if they belong to something else.
        """
        damaged = []
        for name in (STATE, EARLIER):
            path = self.folder / name
            if not path.exists():
                continue
            found = _open(path.read_bytes())
            if found is None:
                damaged.append(path.name)
                continue
            heading, content = found
            self._check(path, heading)
            if damaged:
                self.notes.append(f"{self.folder / damaged[0]} is damaged: going on from the checkpoint before it")
            return content
        if damaged:
            raise FolderError(
                f"{self.folder}: expected a whole checkpoint, got {' and '.join(damaged)} damaged or cut short; to "
                "begin again from the start, move them away (the others go back to the start as well)"
            )
        return None

    def _check(self, path: Path, found: Belongs) -> None:
        if found == self.belongs:
            return
        names = sorted({*found.digests, *self.belongs.digests})
        differing = [name for name in names if found.digests.get(name) != self.belongs.digests.get(name)]
        if (found.study, found.party) != (self.belongs.study, self.belongs.party):
            what = f"{found.party!r} in study {found.study!r}"
        else:
            what = f"the same party with another {', '.join(differing)}"
        raise FolderError(
            f"{path}: expected a checkpoint of {self.belongs.party!r} in study {self.belongs.study!r}, got one of "
            f"{what}; choose another folder, or move the old results away to begin again"
        )


def _open(content: bytes) -> tuple[Belongs, bytes] | None:
    """Heading and state; None if they are not whole."""
    start = len(MAGIC) + FEWEST
    if not content.startswith(MAGIC) or len(content) < start + 4:
        return None
    length = int.from_bytes(content[start : start + 4], "little")
    rest = content[start + 4 :]
    if hashlib.sha256(rest).digest() != content[len(MAGIC) : start]:
        return None
    try:
        return msgspec.json.decode(rest[:length], type=Belongs), rest[length:]
    except msgspec.DecodeError:
        return None


def _flush_folder(folder: Path) -> None:
    """Make renames last; where folders cannot be opened, the system does so by itself."""
    if os.name == "posix":
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


@contextmanager
def open_folder(folder: Path, n_bytes: int) -> Iterator[Path]:
    """Make a folder, check that it has room for so many bytes, and lock it: a party does not run twice at a time."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = folder / ".probe"
        probe.write_bytes(b"x")
        probe.unlink()
        lock = (folder / "lock").open("a+")
    except OSError as error:
        raise FolderError(f"{folder}: expected a folder to write to, got: {error.strerror or error}") from None
    with lock:
        if not _lock(lock):
            raise FolderError(f"{folder}: expected one process of a party at a time, got another one that is running")
        free = shutil.disk_usage(folder).free
        if free < n_bytes:
            raise FolderError(
                f"{folder}: expected {as_bytes(n_bytes)} of free space for checkpoints and results, got "
                f"{as_bytes(free)}; make room, or choose another folder"
            )
        yield folder


def _lock(file: IO[str]) -> bool:
    """Whether the file is now this process's alone; the system gives it back when the process ends."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
