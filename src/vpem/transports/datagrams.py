"""Datagrams of a link: a header, and a hello, a status or a piece of a frame, which is not copied for it.

Numbers are little-endian; there is no pickle. The checksum covers the header, and everything in a hello or a status.
A piece is covered by the checksum of its frame (`vpem.transports.wire`), so that large frames are not summed twice.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, NamedTuple, TypeVar

import msgspec

MAGIC = b"vpln"
FORMAT = 2
"""Of the header."""
VERSION = 3
"""Of what links say to each other; compared in the hello."""
HELLO, STATUS, PIECE = range(3)
KINDS = (HELLO, STATUS, PIECE)
FIRST, LAST = 1, 2
"""Flags of a frame's first and last piece."""
PIECE_BYTES = 512 * 1024
MOST_HELLO_BYTES = 64 * 1024


class Datagram(NamedTuple):
    """What is sent at once."""

    head: bytes
    content: bytes | memoryview

    @property
    def n_bytes(self) -> int:
        """Of both."""
        return len(self.head) + len(self.content)


_HEADER = struct.Struct("<4sBBHQQQQQIII")
_CHECKSUM = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CHECKSUM.size

_Record = TypeVar("_Record")


class Header(NamedTuple):
    """What every datagram of a link says."""

    kind: int
    flags: int
    own: int
    """Nonce of the sender."""
    other: int
    """Nonce of the receiver, as far as the sender knows it; 0 if it does not."""
    sequence: int
    """Number of this piece; in other datagrams, of the next one."""
    arrived: int
    """All pieces of the other end before this one have arrived."""
    consumed: int
    """All pieces of the other end before this one have been used: there is room again."""
    turn: int
    """How often the sender has gone back to send pieces again."""
    missing: int
    """Turn of the other end in which a piece was found missing; 0 if none is."""


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent says of itself and its study before anything else.

    Parameters
    ----------
    name : str
    number : int
    fields : dict
        Dotted names of the study's fields, and digests of their values.
    rows : int, optional
        How many rows it has; None for a server.
    order : str, optional
        Digest of the rows' order; None for a server.
    purpose : str
        "fit", or what is predicted.
    version : int
        Of what links say to each other.
    """

    name: str
    number: int
    fields: dict[str, str] = {}
    rows: int | None = None
    order: str | None = None
    purpose: str = "fit"
    version: int = VERSION


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent knows of all agents; see `vpem.transports.presence`."""

    done: tuple[int, ...] = ()
    beats: dict[int, int] = {}


def encode(header: Header, content: bytes | memoryview = b"") -> Datagram:
    """A datagram with this header."""
    start = _HEADER.pack(MAGIC, FORMAT, *header, len(content))
    checksum = zlib.crc32(start)
    if header.kind != PIECE:
        checksum = zlib.crc32(content, checksum)
    return Datagram(start + _CHECKSUM.pack(checksum), content)


def decode(datagram: Datagram) -> tuple[Header, memoryview] | None:
    """Header and content of a datagram; None if these bytes are none."""
    head, content = datagram.head, memoryview(datagram.content)
    if len(head) != HEADER_BYTES:
        return None
    found = _HEADER.unpack_from(head)
    header = Header._make(found[2:-1])
    if found[0] != MAGIC or found[1] != FORMAT or header.kind not in KINDS or len(content) != found[-1]:
        return None
    checksum = zlib.crc32(head[: _HEADER.size])
    if header.kind != PIECE:
        checksum = zlib.crc32(content, checksum)
    if checksum != _CHECKSUM.unpack_from(head, _HEADER.size)[0]:
        return None
    return header, content


def encode_record(record: Hello | Status) -> bytes:
    """A hello or a status as msgpack."""
    return msgspec.msgpack.encode(record)


def decode_record(content: memoryview, kind: type[_Record]) -> _Record | None:
    """A hello or a status from msgpack; None if it is none."""
    try:
        found: Any = msgspec.msgpack.decode(content, type=kind)
    except (msgspec.DecodeError, ValueError):
        return None
    return found  # type: ignore[no-any-return]


def mismatch(mine: Hello, theirs: Hello) -> str | None:
    """In words why two agents cannot take part in one study; None if they can."""
    name = theirs.name
    if theirs.version != mine.version:
        return (
            f"{name} speaks version {theirs.version} of vpem's links, {mine.name} version {mine.version}; "
            "update the older one"
        )
    fields = sorted(mine.fields.keys() | theirs.fields.keys())
    differing = [field for field in fields if mine.fields.get(field) != theirs.fields.get(field)]
    if differing:
        return f"{name} and {mine.name} have different studies: {', '.join(differing)}; use one file at all parties"
    if theirs.purpose != mine.purpose:
        return f"{name} is here for {theirs.purpose!r}, {mine.name} for {mine.purpose!r}; run the same command"
    if mine.rows is None or theirs.rows is None:
        return None
    if theirs.rows != mine.rows:
        return f"{name} has {theirs.rows} rows, {mine.name} has {mine.rows}; all parties must have the same rows"
    if theirs.order != mine.order:
        return f"{name} and {mine.name} have {mine.rows} rows each, but not with the same ids; compare the id columns"
    return None
