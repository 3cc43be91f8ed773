"""Datagrams of a link: a header, and a hello, a status or a piece of a frame, which is not copied.

Numbers are little-endian; there is no pickle. The checksum covers the header, and the content of a hello or a status.
The checksum of a frame covers its pieces (`vpem.transports.wire`), so that large frames are not checksummed twice.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import msgspec

from vpem.core.agent.message import VERSION as FRAMES

MAGIC = b"vpln"
FORMAT = 2
"""Version of the header's format."""
VERSION = FRAMES + 1
"""Version of the protocol between the ends of a link, compared in the hello. It changes with the format of frames."""
HELLO, STATUS, PIECE = range(3)
KINDS = (HELLO, STATUS, PIECE)
FIRST, LAST = 1, 2
"""Flags of a frame's first and last piece."""
PIECE_BYTES = 512 * 1024
MOST_HELLO_BYTES = 64 * 1024


class Datagram(NamedTuple):
    """Header and content that are sent together."""

    head: bytes
    content: bytes | memoryview

    @property
    def n_bytes(self) -> int:
        """Number of bytes of both parts."""
        return len(self.head) + len(self.content)


Take = Callable[[int, Datagram], bool]
"""Receiver of a neighbour's datagrams; it returns True if that neighbour hears this agent, too."""

_HEADER = struct.Struct("<4sBBHQQQQQIII")
_CHECKSUM = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CHECKSUM.size

_Record = TypeVar("_Record")


class Header(NamedTuple):
    """Fields of every datagram of a link."""

    kind: int
    flags: int
    own: int
    """Nonce of the sender."""
    other: int
    """Nonce of the receiver; 0 if the sender does not know it."""
    sequence: int
    """Number of this piece; in other datagrams, number of the next piece."""
    arrived: int
    """Number of a piece of the other end; all pieces before it have arrived."""
    consumed: int
    """Number of a piece of the other end; all pieces before it have been consumed, and their room is free."""
    turn: int
    """Number of the sender's turn; each retransmission starts a new one."""
    missing: int
    """Last turn of the other end in which a piece was found missing; 0 before that."""


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of an agent and its study, which is sent first.

    Parameters
    ----------
    name : str
    number : int
    fields : dict
        Digests of the values of the study's fields, by dotted name.
    rows : int, optional
        Number of rows; None for a server.
    order : str, optional
        Digest of the rows' order; None for a server.
    purpose : str
        "fit", another of `STEPS`, or a name of the prediction.
    version : int
        Version of the protocol between the ends of a link.
    """

    name: str
    number: int
    fields: dict[str, str] = {}
    rows: int | None = None
    order: str | None = None
    purpose: str = "fit"
    version: int = VERSION


STEPS = ("match", "fit")
"""Purposes of one study, in order: an agent may be at the next one while another agent is restarted."""


MATCH = (
    '; try match = "outer" in [rows] of the study\'s file for the rows that any party has, or "inner" for those that '
    "all have"
)
"""Remedy for parties of a study with different rows."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Knowledge of an agent about all agents; see `vpem.transports.presence`."""

    done: tuple[int, ...] = ()
    beats: dict[int, int] = {}
    doing: str = ""
    """Activity of the sender, in words."""


def encode(header: Header, content: bytes | memoryview = b"") -> Datagram:
    """Encode a datagram with this header."""
    start = _HEADER.pack(MAGIC, FORMAT, *header, len(content))
    checksum = zlib.crc32(start)
    if header.kind != PIECE:
        checksum = zlib.crc32(content, checksum)
    return Datagram(start + _CHECKSUM.pack(checksum), content)


def decode(datagram: Datagram) -> tuple[Header, memoryview] | None:
    """Return the header and content of a datagram, or None if it is invalid."""
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
    """Encode a hello or a status as msgpack."""
    return msgspec.msgpack.encode(record)


def decode_record(content: memoryview, kind: type[_Record]) -> _Record | None:
    """Decode a hello or a status from msgpack; return None if the content is invalid."""
    try:
        found: Any = msgspec.msgpack.decode(content, type=kind)
    except (msgspec.DecodeError, ValueError):
        return None
    return found  # type: ignore[no-any-return]


def mismatch(mine: Hello, theirs: Hello) -> str | None:
    """Return the reason why two agents cannot take part in one study, or None if they can."""
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
        return (
            f"{name} has {theirs.rows} rows, {mine.name} has {mine.rows}, and all parties must have the same rows"
            + (MATCH if mine.purpose == STEPS[-1] else "")
        )
    if theirs.order != mine.order:
        return (
            f"{name} and {mine.name} have {mine.rows} rows each, but not with the same ids; compare the id columns"
            + (MATCH if mine.purpose == STEPS[-1] else "")
        )
    return None


def steps_ahead(mine: Hello, theirs: Hello) -> int:
    """Return how many steps of the same study another agent is ahead, below 0 if it is behind; else 0."""
    if mine.purpose not in STEPS or theirs.purpose not in STEPS:
        return 0
    if mismatch(mine, msgspec.structs.replace(theirs, purpose=mine.purpose, rows=None)) is not None:
        return 0
    return STEPS.index(theirs.purpose) - STEPS.index(mine.purpose)
