"""A party's folder: the lock, the log, and checkpoints that outlive the process.

A checkpoint is written under a temporary name, flushed to the disk, and then replaces the last one, which is kept as
well. Its heading names the study, the party and the digests of the table. The file contains a digest, so that a
truncated file is detected, as is one that belongs to something else. Large arrays have files of their own: an array
that the next checkpoint shares is not written again.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from vpem.transports import wire
from vpem.words import as_bytes

STATE, EARLIER, ARRAYS = "state", "state.earlier", "state-*.part"
MAGIC = b"vpem state 2\n"
FEWEST = 32
"""Number of bytes of a digest."""
MAPPED_BYTES = 2**20
"""Smallest size in bytes of an array that is memory-mapped from its file instead of held in memory."""
AT_ONCE = 2**23
"""Number of bytes written between two flushes to the disk."""


class FolderError(OSError):
    """A folder, or its checkpoint, cannot be used by a party; the message includes a remedy."""


class Belongs(msgspec.Struct, frozen=True):
    """Study, party and data that a checkpoint belongs to."""

    study: str
    party: str
    digests: Mapping[str, str]
    """Digests of the study's fields and of the table."""


class Heading(msgspec.Struct, frozen=True):
    """Heading of a checkpoint's file."""

    belongs: Belongs
    arrays: list[tuple[str, int]]
    """File name and number of bytes of each large array."""


class Written(NamedTuple):
    """A large array of a checkpoint, and its file."""

    name: str
    """Name of the file."""
    array: Any
    """The array; this reference keeps it alive, so that its `id` stays unique."""
    is_mapped: bool = False
    """True if the array is memory-mapped from its file."""


class Checkpoints:
    """The checkpoints of one party.

    Parameters
    ----------
    folder : Path
        Existing folder.
    belongs : Belongs
    """

    def __init__(self, folder: Path, belongs: Belongs):
        self.folder, self.belongs = folder, belongs
        self.notes: list[str] = []
        """Notes for the user from loading."""
        self._is_damaged = False
        """True if the next save overwrites the last file instead of keeping it as the earlier one."""
        self._written: dict[int, Written] = {}
        """Large arrays of the last checkpoint, by their `id`."""
        self._names: set[str] = set()
        """Files of the large arrays of the last whole checkpoint."""
        self._count = max((_number(path) for path in folder.glob(ARRAYS)), default=0)

    def save(self, parts: Sequence[wire.Part]) -> Callable[[NDArray[Any]], NDArray[Any]]:
        """Save a state, in parts. On return, the checkpoint survives a crash of the process or the machine.

        Return a function that takes a large array of the state and returns it memory-mapped from its file.
        """
        path, unfinished = self.folder / STATE, self.folder / ".state.unfinished"
        arrays = [part for part in parts if isinstance(part, memoryview)]
        written, new = dict[int, Written](), list[str]()
        try:
            for one in arrays:
                known = self._written.get(id(one.obj))
                if known is None:
                    self._count += 1
                    known = Written(ARRAYS.replace("*", f"{self._count:09d}"), one.obj)
                    new.append(known.name)
                    _write(self.folder / known.name, one)
                written[id(one.obj)] = known
            names = [(written[id(one.obj)].name, one.nbytes) for one in arrays]
            start = b"".join(part for part in parts if isinstance(part, bytes))
            _write(unfinished, _closed(Heading(self.belongs, names), start))
            if path.exists() and not self._is_damaged:
                path.replace(self.folder / EARLIER)
            unfinished.replace(path)
            _flush_folder(self.folder)
        except OSError as error:
            for name in (unfinished.name, *new):
                (self.folder / name).unlink(missing_ok=True)
            n_bytes = len(parts[0]) + sum(one.nbytes for one in arrays)
            raise FolderError(
                f"{self.folder}: expected to write a checkpoint of {as_bytes(n_bytes)}, got: {error.strerror}; "
                "the last checkpoint is whole: make room or give permission, then run the same command again"
            ) from error
        before, self._names = self._names, {name for name, _ in names}
        self._written, self._is_damaged = written, False
        for file in self.folder.glob(ARRAYS):
            if file.name not in before | self._names:
                file.unlink(missing_ok=True)
        return self._map

    def _map(self, array: NDArray[Any]) -> NDArray[Any]:
        """Memory-map an array of the last checkpoint from its file; return the array itself if that fails."""
        known = self._written.get(id(array))
        is_worth_it = array.nbytes >= MAPPED_BYTES and os.name == "posix"  # other systems cannot remove a mapped file
        if known is None or known.is_mapped or not is_worth_it:
            return array
        try:
            with (self.folder / known.name).open("rb") as file:
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            return array
        found: NDArray[Any] = np.frombuffer(content, array.dtype).reshape(array.shape)
        del self._written[id(array)]
        self._written[id(found)] = Written(known.name, found, is_mapped=True)
        return found

    def load(self) -> memoryview | None:
        """Return the last valid state; None without a checkpoint, or if the study changed before anything was fitted.

        Raises
        ------
        FolderError
            If all checkpoints are damaged, or if they belong to something else.
        """
        damaged = []
        for name in (STATE, EARLIER):
            path = self.folder / name
            if not path.exists():
                continue
            found = _open(path)
            if found is None:
                damaged.append(path.name)
                continue
            heading, content = found
            if (changed := self._changed(heading.belongs)) and not _has_progress(content):
                self.notes.append(f"the study begins again: {', '.join(changed)} changed before anything was fitted")
                self._is_damaged = True
                return None
            self._check(path, heading.belongs)
            self._names = {name for name, _ in heading.arrays}
            if damaged:
                self._is_damaged = True
                self.notes.append(f"{self.folder / damaged[0]} is damaged: going on from the checkpoint before it")
            return content
        if damaged:
            raise FolderError(
                f"{self.folder}: expected a whole checkpoint, got {' and '.join(damaged)} damaged or cut short; to "
                "begin again from the start, move them away (the others go back to the start as well)"
            )
        return None

    def glance(self) -> None:
        """Continue the checkpoints of another process of the same run, without loading its state."""
        path = self.folder / STATE
        if path.exists() and (found := _read(path)) is not None:
            self._check(path, found[0].belongs)
            self._names = {name for name, _ in found[0].arrays}

    def _check(self, path: Path, found: Belongs) -> None:
        if found == self.belongs:
            return
        if changed := self._changed(found):
            what = f"the same party with another {', '.join(changed)}"
            remedy = "to begin again, run with --fresh at all parties (in Python, fresh=True); or undo the change"
        else:
            what, remedy = f"{found.party!r} in study {found.study!r}", "choose another folder"
        raise FolderError(
            f"{path}: expected a checkpoint of {self.belongs.party!r} in study {self.belongs.study!r}, got one of "
            f"{what}; {remedy}"
        )

    def _changed(self, found: Belongs) -> list[str]:
        """Names of the digests that changed since a checkpoint of the same party in the same study."""
        if (found.study, found.party) != (self.belongs.study, self.belongs.party):
            return []
        names = sorted({*found.digests, *self.belongs.digests})
        return [name for name in names if found.digests.get(name) != self.belongs.digests.get(name)]


def _has_progress(content: memoryview) -> bool:
    """True if a state holds more than a meeting: an iteration, or rows or columns that other agents received."""
    state = wire.decode_state(content)
    last = state.checkpoints[-1]
    return last.number > 0 or bool(last.progress.seen) or state.pooled is not None


def _number(path: Path) -> int:
    """Return the number in the name of a large array's file; 0 without one."""
    digits = path.stem.removeprefix(STATE).strip("-")
    return int(digits) if digits.isdecimal() else 0


def _write(path: Path, part: wire.Part) -> None:
    """Write a file, and flush it to the disk.

    The page cache need not keep the file: where the cache needs fresh memory, that takes longer than the writing.
    """
    content = memoryview(part).cast("B")
    with path.open("wb", buffering=0) as file:
        for start in range(0, len(content), AT_ONCE):
            piece = content[start : start + AT_ONCE]
            while piece:
                piece = piece[file.write(piece) :]
            os.fsync(file.fileno())
            if hasattr(os, "posix_fadvise"):
                with suppress(OSError):  # only a hint
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _closed(heading: Heading, start: bytes) -> bytes:
    """Return the contents of a checkpoint's file."""
    said = msgspec.json.encode(heading)
    return b"".join([MAGIC, hashlib.sha256(said + start).digest(), len(said).to_bytes(4, "little"), said, start])


def _read(path: Path) -> tuple[Heading, bytes] | None:
    """Read the heading of a checkpoint and the state without its large arrays; None if the file is damaged."""
    content, start = path.read_bytes(), len(MAGIC) + FEWEST
    if not content.startswith(MAGIC) or len(content) < start + 4:
        return None
    length = int.from_bytes(content[start : start + 4], "little")
    rest = content[start + 4 :]
    if hashlib.sha256(rest).digest() != content[len(MAGIC) : start]:
        return None
    try:
        return msgspec.json.decode(rest[:length], type=Heading), rest[length:]
    except msgspec.DecodeError:
        return None


def _open(path: Path) -> tuple[Heading, memoryview] | None:
    """Read the heading and state of a checkpoint; return None if it is damaged.

    Raise FolderError if another version of vpem saved it.
    """
    if (found := _read(path)) is None:
        return None
    heading, start = found
    content = bytearray(len(start) + sum(n_bytes for _, n_bytes in heading.arrays))
    content[: len(start)] = start
    place = len(start)
    for name, n_bytes in heading.arrays:
        one = path.with_name(Path(name).name)
        if not one.exists() or one.stat().st_size != n_bytes:
            return None
        with one.open("rb") as file:
            file.readinto(memoryview(content)[place : place + n_bytes])
        place += n_bytes
    state = memoryview(content).toreadonly()
    try:
        wire.decode_state(state)  # verifies checksums
    except wire.OtherVersionError:
        raise FolderError(
            f"{path}: expected a checkpoint of this version of vpem, got one that was saved by another version of "
            "vpem; go on with that version, or move it away to begin again (the others go back to the start as well)"
        ) from None
    except wire.WireError:
        return None
    return heading, state


def _flush_folder(folder: Path) -> None:
    """Make renames durable; systems that cannot open folders do so by themselves."""
    if os.name == "posix":
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


@contextmanager
def open_folder(folder: Path, n_bytes: int) -> Iterator[Path]:
    """Create a folder, lock it, so that a party runs only once at a time, and check for `n_bytes` of free space."""
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
    """Lock a file for this process; return True on success. The system unlocks it when the process ends."""
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
