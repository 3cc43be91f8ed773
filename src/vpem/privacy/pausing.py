"""Pause and resume of a matching: its whole state, including secrets, as bytes for another process of the agent."""

from __future__ import annotations

import msgspec
import numpy as np

from vpem.privacy.matching import Matched, Matching
from vpem.privacy.parcels import Hello
from vpem.privacy.runs import Run
from vpem.privacy.sealing import Sealing


class _Matched(msgspec.Struct, frozen=True, array_like=True):
    rows: bytes
    n_rows: int
    digest: str
    counts: dict[str, int]

    @classmethod
    def of(cls, found: Matched | None) -> _Matched | None:
        if found is None:
            return None
        return cls(found.rows.astype("<i8").tobytes(), found.n_rows, found.digest, dict(found.counts))


def _unpacked(packed: _Matched | None) -> Matched | None:
    if packed is None:
        return None
    rows = np.frombuffer(packed.rows, "<i8").astype(np.int64)
    return Matched(rows, packed.n_rows, packed.digest, packed.counts)


class _Run(msgspec.Struct, frozen=True, array_like=True):
    secret: bytes
    order: bytes
    lists: dict[int, list[bytes]]
    raised: list[int]
    matched: _Matched | None
    checks: dict[int, bytes]
    kept: dict[int, bytes]


class _Paused(msgspec.Struct, frozen=True, array_like=True):
    private: bytes
    hellos: dict[int, Hello]
    met: list[int]
    connected: list[int]
    failure: str | None
    saved: _Matched | None
    is_final: bool
    run: _Run | None


def pause(matching: Matching) -> bytes:
    """Encode the whole state of a matching, for `resume`. Seal the bytes before they leave the process."""
    run, packed = matching._run, None
    if run is not None:
        order = np.asarray(run.order, dtype="<i8").tobytes()
        found = _Matched.of(run.matched)
        packed = _Run(run.secret, order, run.lists, sorted(run.raised), found, run.checks, run.kept)
    here = sorted(matching._met), sorted(matching.connected), matching.failure
    known, saved = matching._hellos.known, _Matched.of(matching._saved)
    return msgspec.msgpack.encode(_Paused(matching._sealing.private, known, *here, saved, matching._is_final, packed))


def resume(matching: Matching, paused: bytes) -> Matching:
    """Restore a paused state into a new matching of the same agent with the same ids, and return it."""
    found = msgspec.msgpack.decode(paused, type=_Paused)
    matching._sealing, matching._hellos.known = Sealing(found.private), found.hellos
    matching._met = set(found.met)
    matching.connected, matching.failure = frozenset(found.connected), found.failure
    matching._saved, matching._is_final = _unpacked(found.saved), found.is_final
    if found.run is None:
        return matching
    run, packed = Run(found.hellos), found.run
    run.secret, run.order = packed.secret, np.frombuffer(packed.order, "<i8").tolist()
    run.lists, run.raised, run.checks = packed.lists, set(packed.raised), packed.checks
    run.kept, run.matched = packed.kept, _unpacked(packed.matched)
    matching._run = run
    return matching
