"""Messages and agents' states as bytes: a small versioned format, without pickle.

A message is a header of 64 bytes, the values, the decision, and a checksum (CRC-32) of all of these. The header is a
magic word, the version, the fields of `Header` as msgpack, zeros, and in the last 16 bytes a tag, or zeros. A
receiver reads the header first and asks its agent whether it expects such a message. Only then does it read the
contents or allocate memory for them.

A state is a magic word, the version, the length, the state as msgpack, and a checksum. Its large arrays follow; their
checksums are in the msgpack.

Numbers are little-endian. The checksums detect accidental damage. TLS has to authenticate the peer and to detect
tampering.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from vpem.core.agent.agent_state import AgentState
from vpem.core.agent.machine import Agent
from vpem.core.agent.message import (
    KINDS,
    MAGIC,
    TAG_BYTES,
    TAGGED_BYTES,
    VERSION,
    AgentNumber,
    Header,
    Message,
    RemoteProtocolError,
    little,
)
from vpem.core.blocks.arrays import Arrays, Block, Statistics
from vpem.core.network.sums import DTYPES
from vpem.core.network.traffic import OVERHEAD_BYTES

STATE_VERSION = 5
STATE_MAGIC = b"vpst"
PREFIX = struct.Struct("<4sBB")
"""Magic word, version, length of the header's msgpack."""
CHECKSUM = struct.Struct("<I")
STATE_PREFIX = struct.Struct("<4sBQ")
HEADER_BYTES = TAGGED_BYTES + TAG_BYTES
LARGE_BYTES = 2**16
"""Minimum size in bytes of an array that is a separate part of a state."""

Part = bytes | memoryview
"""Part of a state. The part of a large array is a view, whose `obj` is the array."""

_read_fields = msgspec.msgpack.Decoder(tuple[int, int, int, int, int, int, int, int]).decode


class WireError(ValueError):
    """Raised if bytes are not a message, or not a state, of this version."""


class OtherVersionError(WireError):
    """Raised if a state has another version."""


def encode(message: Message) -> bytes:
    """Encode a message as `message.n_bytes` bytes."""
    header, values, decision = message.parts()
    start = header + message.tag.ljust(TAG_BYTES, b"\0")
    checksum = zlib.crc32(decision, zlib.crc32(values, zlib.crc32(start)))
    return b"".join((start, values, decision, CHECKSUM.pack(checksum)))


def read_header(start: bytes | memoryview) -> Header:
    """Decode the header in the first 64 bytes of a message; raise WireError if they are not a header."""
    if len(start) < HEADER_BYTES:
        raise WireError(f"expected a header of {HEADER_BYTES} bytes, got {len(start)}")
    magic, version, length = PREFIX.unpack_from(start)
    if magic != MAGIC:
        raise WireError(f"expected a message of vpem, got bytes that begin with {bytes(magic)!r}")
    if version != VERSION:
        raise WireError(f"expected version {VERSION} of the wire format, got {version}; update the older side")
    fields, padding = (
        start[PREFIX.size : PREFIX.size + length],
        start[PREFIX.size + length : TAGGED_BYTES],
    )
    if PREFIX.size + length > TAGGED_BYTES or any(padding):
        raise WireError("expected a header that is filled up with zeros, got something else")
    try:
        *where, kind, dtype, n_values, n_decisions = _read_fields(fields)
    except msgspec.DecodeError as error:
        raise WireError(f"expected the fields of a header, got others ({error})") from None
    if min(*where, kind, dtype, n_values, n_decisions) < 0 or kind >= len(KINDS) or dtype >= len(DTYPES):
        raise WireError(
            f"expected numbers of at least 0, one of {len(KINDS)} kinds and {len(DTYPES)} types, got {where}, {kind} "
            f"and {dtype}"
        )
    epoch, number, sender, receiver = where
    agents = AgentNumber(sender), AgentNumber(receiver)
    return Header(epoch, number, *agents, KINDS[kind], DTYPES[dtype], n_values, n_decisions)


def open_header(start: bytes | memoryview, agent: Agent, peer: int) -> Header:
    """Decode and check the header in the first 64 bytes of a message from a peer's link.

    Raises
    ------
    RemoteProtocolError
        If the bytes are not a header, or the agent does not expect a message with this header.
    """
    try:
        header = read_header(start)
        if header.sender != peer:
            raise WireError(f"expected a message from agent {peer} on its link, got one from {header.sender}")
    except WireError as error:
        raise RemoteProtocolError(agent.number, peer, agent.state.round, str(error)) from None
    agent.check(header)
    return header


def n_bytes(header: Header) -> int:
    """Length of the whole message that has this header."""
    return OVERHEAD_BYTES + header.n_values * np.dtype(header.dtype).itemsize + 8 * header.n_decisions


def decode(frame: bytes | memoryview, agent: Agent, peer: int) -> Message:
    """Decode and check a message from a peer's link; its arrays are views of the frame.

    Raises
    ------
    RemoteProtocolError
        If the frame is not a message, or the agent does not expect it.
    """
    header = open_header(frame, agent, peer)
    content = memoryview(frame)[: -CHECKSUM.size]
    problem = None
    if len(frame) != n_bytes(header):
        problem = f"expected {n_bytes(header)} bytes, as the header says, got {len(frame)}"
    elif zlib.crc32(content) != CHECKSUM.unpack_from(frame, len(content))[0]:
        problem = "expected contents that fit their checksum, got others"
    if problem is not None:
        raise RemoteProtocolError(agent.number, peer, agent.state.round, problem)
    dtype = np.dtype(header.dtype).newbyteorder("<")
    values = np.frombuffer(content, dtype, header.n_values, HEADER_BYTES)
    decision = np.frombuffer(content, "<f8", header.n_decisions, HEADER_BYTES + values.nbytes)
    message = Message(*header[:5], values, decision, _tag(frame, agent, peer))
    agent.check_contents(message)
    return message


def _tag(frame: bytes | memoryview, agent: Agent, peer: int) -> bytes:
    """Return the tag of a message; raise RemoteProtocolError if it has one but the summation does not use tags."""
    tag = bytes(frame[TAGGED_BYTES:HEADER_BYTES])
    if not any(tag):
        return b""
    if not agent.identity.agreement.summation.has_tags:
        problem = "expected a header that is filled up with zeros, got something else"
        raise RemoteProtocolError(agent.number, peer, agent.state.round, problem)
    return tag


class StateEncoder:
    """Encoder of an agent's successive states; large arrays that two of them share are read only once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[NDArray[Any], int]] = {}
        """Array and its checksum, by the array's `id`; the reference to the array keeps its `id` unique."""

    def parts(self, state: AgentState) -> list[Part]:
        """Encode a state as a small part and its large arrays, which are not copied."""
        places: dict[int, tuple[int, int]] = {}
        arrays: list[memoryview] = []
        known, n_bytes = self._known, 0
        self._known = {}

        def place(value: NDArray[Any]) -> tuple[int, int]:
            nonlocal n_bytes
            if id(value) not in places:
                array = little(value).data
                checksum = known[id(value)][1] if id(value) in known else zlib.crc32(array)
                self._known[id(value)] = value, checksum
                places[id(value)] = n_bytes, checksum
                arrays.append(array)
                n_bytes += array.nbytes
            return places[id(value)]

        content = msgspec.msgpack.encode(state, enc_hook=partial(_from_array, place))
        body = STATE_PREFIX.pack(STATE_MAGIC, STATE_VERSION, len(content)) + content
        return [body + CHECKSUM.pack(zlib.crc32(body)), *arrays]

    def exchange(self, old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
        """Register a large array that replaces one with the same numbers in later states, and return it."""
        if new is not old and id(old) in self._known:
            self._known[id(new)] = new, self._known.pop(id(old))[1]
        return new


DECODING = Lock()
"""Lock for decoding: msgspec inspects a type at its first decoding, and two threads that do so at once crash."""


def encode_state(state: AgentState) -> bytes:
    """Encode everything that an agent needs to resume from here, except its own table and settings."""
    return b"".join(StateEncoder().parts(state))


def decode_state(saved: bytes | memoryview) -> AgentState:
    """Decode a state, whose arrays are views; raise WireError if the bytes are not a whole state of this version."""
    if len(saved) < STATE_PREFIX.size + CHECKSUM.size:
        raise WireError(f"expected an agent's state, got {len(saved)} bytes")
    magic, version, length = STATE_PREFIX.unpack_from(saved)
    if magic != STATE_MAGIC:
        raise WireError(f"expected an agent's state, got bytes that begin with {magic!r}")
    if version != STATE_VERSION:
        raise OtherVersionError(f"expected version {STATE_VERSION} of an agent's state, got {version}")
    view, end = memoryview(saved), STATE_PREFIX.size + length
    start, arrays = view[:end], _Arrays(view[end + CHECKSUM.size :])
    if len(view) < end + CHECKSUM.size or zlib.crc32(start) != CHECKSUM.unpack_from(view, end)[0]:
        raise WireError("expected a whole state that fits its checksum, got a truncated or damaged one")
    try:
        with DECODING:
            state: AgentState = msgspec.msgpack.decode(
                start[STATE_PREFIX.size :], type=AgentState, dec_hook=partial(_to_array, arrays)
            )
    except (msgspec.DecodeError, TypeError) as error:
        raise WireError(f"expected an agent's state, got other contents ({error})") from None
    if arrays.end != len(arrays.content):
        raise WireError(f"expected a whole state, got {len(arrays.content) - arrays.end} bytes after it")
    return state


class _Arrays:
    """Large arrays of a state that is being decoded."""

    def __init__(self, content: memoryview):
        self.content, self.end = content, 0
        self._checked: set[tuple[int, int]] = set()
        self.made: dict[tuple[int, str, tuple[int, ...]], NDArray[Any]] = {}
        """Decoded arrays: an array that states share is one object again, so that it is saved and sent once."""

    def take(self, place: int, checksum: int, n_bytes: int) -> memoryview:
        found = self.content[place : place + n_bytes]
        if (place, n_bytes) not in self._checked and zlib.crc32(found) != checksum:
            raise msgspec.ValidationError("an array does not fit its checksum: the state is truncated or damaged")
        self._checked.add((place, n_bytes))
        self.end = max(self.end, place + n_bytes)
        return found


def _from_array(place: Callable[[NDArray[Any]], tuple[int, int]], value: Any) -> Any:
    if isinstance(value, Arrays):
        return value.arrays
    if isinstance(value, np.ndarray):
        content = little(value).tobytes() if value.nbytes < LARGE_BYTES else place(value)
        return (value.dtype.kind + str(value.dtype.itemsize), value.shape, content)
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(f"a state holds plain values, not {type(value)}")


def _to_array(arrays: _Arrays, kind: type, value: Any) -> Any:
    if kind in (Block, Statistics):
        if not isinstance(value, dict):
            raise msgspec.ValidationError(f"expected arrays by name, got {type(value).__name__}")
        return kind(**{name: _to_array(arrays, np.ndarray, array) for name, array in value.items()})
    name, shape, content = value
    if name not in ("f8", "f4", "i8", "u8", "u2", "u1"):
        raise msgspec.ValidationError(f"expected an array of numbers, got {name!r}")
    dtype = np.dtype("<" + name)
    if isinstance(content, bytes):
        return np.frombuffer(content, dtype).reshape(shape)
    place, checksum = content
    key = place, name, tuple(shape)
    if key not in arrays.made:
        found = arrays.take(place, checksum, math.prod(shape) * dtype.itemsize)
        arrays.made[key] = np.frombuffer(found, dtype).reshape(shape)
    return arrays.made[key]
