"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A name beside the file, to write to; in the end it takes the file's place, or is gone if something failed."""
    path = Path(path)
    check_place(path)
    unfinished = path.with_name(f".{os.getpid()}-{secrets.token_hex(4)}-{path.name}")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def check_place(path: Path) -> None:
    """Raise OSError if no file can be written there."""
    if path.is_dir():
        raise IsADirectoryError(f"expected the name of a file to write, got the folder {path}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"expected to write {path}, got no folder {path.parent}; make it first")


def check_outputs(
    outputs: Iterable[Path | None], inputs: Sequence[Path] = (), *, endings: Sequence[str] = ()
) -> None:
    """Before any work: files can be written where they are wanted, and none of them is one that is read."""
    there = {path.resolve() for path in inputs}
    for path in outputs:
        if path is None:
            continue
        check_place(path)
        if path.resolve() in there:
            raise ValueError(f"expected another file for the result than those that are read, got {path} for both")
        if endings and path.suffix.lower() not in endings:
            raise ValueError(f"expected a file that ends in {' or '.join(endings)}, got {path}")
