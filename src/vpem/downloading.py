"""Tables from the web, verified by their hashes: cached, or read from the folder in `VPEM_DATA`."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vpem.files import replacing

Heads = Mapping[str, Sequence[str]]
"""File in an archive to its column names, for files without a header and with spaces after commas."""
NONE: Heads = MappingProxyType({})


def read_tables(folder: str, hashes: dict[str, str], url: str, heads: Heads = NONE) -> Iterator[bytes]:
    """Yield decompressed tables with the given hashes, from `VPEM_DATA`, the cache, or the web via the cache."""
    given = os.environ.get("VPEM_DATA")
    if given:
        # A single table is in the folder itself, several tables are in a subfolder.
        home = Path(given) if len(hashes) == 1 else Path(given) / folder
        missing = [name for name in hashes if not (home / name).is_file()]
        if missing:
            raise FileNotFoundError(
                f"expected {', '.join(missing)} in {home}, the folder that VPEM_DATA names; put it there, or unset "
                f"VPEM_DATA to download it from {url}"
            )
    else:
        home = cache() / folder
        if not all((home / name).is_file() for name in hashes):
            _download(url, home, hashes, heads)
    for name, expected in hashes.items():
        content = _unpack((home / name).read_bytes(), name)
        found = sha256(content)
        if found != expected:
            raise ValueError(
                f"expected {home / name} with SHA-256 {expected} (once unpacked), got {found}; the file is damaged "
                "or another version: remove it and try again"
            )
        yield content


def _unpack(content: bytes, name: str) -> bytes:
    try:
        return gzip.decompress(content) if name.endswith(".gz") else content
    except (OSError, EOFError) as error:
        raise ValueError(f"expected {name} to be a gzip file, got one that cannot be read ({error})") from None


def sha256(content: bytes) -> str:
    """Hash of a table, independent of its line endings."""
    return hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest()


def cache() -> Path:
    """Folder of downloaded tables."""
    return Path(_pooch().os_cache("vpem"))


def _pooch() -> Any:
    try:
        import pooch
    except ImportError:
        raise ImportError(
            "downloading needs pooch: pip install vpem[datasets]; or set VPEM_DATA to a folder with the data"
        ) from None
    return pooch


def _download(url: str, home: Path, hashes: dict[str, str], heads: Heads) -> None:
    """Download an archive with a progress bar, and cache its tables; raise ValueError unless all hashes match."""
    pooch = _pooch()
    home.mkdir(parents=True, exist_ok=True)
    try:
        archive = Path(pooch.retrieve(url, known_hash=None, path=home, fname="archive.zip", progressbar=_has_tqdm()))
    except Exception as error:  # the network library raises many kinds of error
        raise OSError(
            f"could not download {url} ({error}); try again, or download and unpack it by hand and set VPEM_DATA "
            "to the folder"
        ) from error
    try:
        found = {}
        members = dict(_members(archive.read_bytes(), heads))
        for name, expected in hashes.items():
            content = members.get(expected)
            if content is None:
                raise ValueError(
                    f"expected a table with SHA-256 {expected} ({name}) in {url}, got {len(members)} others; the "
                    "data have changed or the download is damaged: try again, or report it"
                )
            found[name] = gzip.compress(content, mtime=0) if name.endswith(".gz") else content
        for name, content in found.items():
            with replacing(home / name) as unfinished:
                unfinished.write_bytes(content)
    finally:
        archive.unlink(missing_ok=True)


def _members(archive: bytes, heads: Heads) -> Iterator[tuple[str, bytes]]:
    """Yield hash and content of every table in an archive and in nested archives."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            for name in opened.namelist():
                if name.endswith(".zip"):
                    yield from _members(opened.read(name), heads)
                elif name.endswith(".csv"):
                    content = opened.read(name).replace(b"\r\n", b"\n")
                    yield sha256(content), content
                elif (own := name.rpartition("/")[2]) in heads:
                    rows = opened.read(name).replace(b"\r\n", b"\n").replace(b", ", b",")
                    content = ",".join(heads[own]).encode() + b"\n" + rows
                    yield sha256(content), content
    except zipfile.BadZipFile as error:
        raise ValueError(f"expected a zip archive, got a file that cannot be read ({error}); try again") from None


def _has_tqdm() -> bool:
    try:
        import tqdm  # noqa: F401 (pooch shows progress with it)
    except ImportError:
        warnings.warn("no progress is shown without tqdm: pip install vpem[datasets]", stacklevel=2)
        return False
    return True
