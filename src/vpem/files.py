"""Files that are written completely or not at all."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary name in the file's folder; replace the file by it at the end, or remove it on error."""
    path = Path(path)
    check_place(path)
    unfinished = path.with_name(f".{os.getpid()}-{secrets.token_hex(4)}-{path.name}")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def why_no_file(path: str | os.PathLike[str]) -> str:
    """Return the reason why a path is not a file, for an error message."""
    address = re.match(r"(https?|ftp|s3|gs):/+(.*)", os.fspath(path))
    if address:
        return f"got the address {address[1]}://{address[2]}; download it first"
    if Path(path).is_dir():
        return "got a folder; name the files in it"
    return "found no such file"


def check_place(path: Path) -> None:
    """Raise OSError if no file can be written there."""
    if path.is_dir():
        raise IsADirectoryError(f"expected the name of a file to write, got the folder {path}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"expected to write {path}, got no folder {path.parent}; make it first")


def check_outputs(
    outputs: Iterable[Path | None], inputs: Sequence[Path] = (), *, endings: Sequence[str] = ()
) -> None:
    """Raise an error, before any work, if an output cannot be written or is also an input."""
    there = {path.resolve() for path in inputs}
    for path in outputs:
        if path is None:
            continue
        check_place(path)
        if path.resolve() in there:
            raise ValueError(f"expected another file for the result than those that are read, got {path} for both")
        if endings and path.suffix.lower() not in endings:
            raise ValueError(f"expected a file that ends in {' or '.join(endings)}, got {path}")
