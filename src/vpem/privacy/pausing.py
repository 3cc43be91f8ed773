"""A matching that goes on in another process of the same agent: all that it knows, secrets too, as bytes."""

from __future__ import annotations

import msgspec
import numpy as np

from vpem.privacy.matching import Matched, Matching
from vpem.privacy.parcels import Hello, Parcel
from vpem.privacy.runs import Run
from vpem.privacy.sealing import Sealing


class _Run(msgspec.Struct, frozen=True, array_like=True):
    secret: bytes
    order: bytes
    lists: dict[int, list[bytes]]
    raised: list[int]
    rows: bytes | None
    n_rows: int
    digest: str
    checks: dict[int, bytes]


class _Paused(msgspec.Struct, frozen=True, array_like=True):
    private: bytes
    hellos: dict[int, Hello]
    early: list[Parcel]
    met: list[int]
    connected: list[int]
    failure: str | None
    run: _Run | None


def pause(matching: Matching) -> bytes:
    """All that an agent's part knows, to go on from here with `resume`; seal it before it leaves the process."""
    run, packed = matching._run, None
    if run is not None:
        found = run.matched
        packed = _Run(
            run.secret,
            np.asarray(run.order, dtype="<i8").tobytes(),
            run.lists,
            sorted(run.raised),
            None if found is None else found.rows.astype("<i8").tobytes(),
            0 if found is None else found.n_rows,
            "" if found is None else found.digest,
            run.checks,
        )
    here = sorted(matching._met), sorted(matching.connected), matching.failure
    return msgspec.msgpack.encode(
        _Paused(matching._sealing.private, matching._hellos, matching._early, *here, packed)
    )


def resume(matching: Matching, paused: bytes) -> Matching:
    """Put a new part of the same agent, with the same ids, where the paused one was."""
    found = msgspec.msgpack.decode(paused, type=_Paused)
    matching._sealing, matching._hellos = Sealing(found.private), found.hellos
    matching._early, matching._met = found.early, set(found.met)
    matching.connected, matching.failure = frozenset(found.connected), found.failure
    if found.run is None:
        return matching
    run, packed = Run(found.hellos), found.run
    run.secret, run.order = packed.secret, np.frombuffer(packed.order, "<i8").tolist()
    run.lists, run.raised, run.checks = packed.lists, set(packed.raised), packed.checks
    if packed.rows is not None:
        names, owners = matching.agents.names, matching.agents.owners
        counts = {names[owner]: found.hellos[owner].count for owner in owners}
        rows = np.frombuffer(packed.rows, "<i8").astype(np.int64)
        run.matched = Matched(rows, packed.n_rows, packed.digest, counts)
    matching._run = run
    return matching
