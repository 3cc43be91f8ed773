"""Rows that parties have in common, found by tokens before the fit: one party's part, over the study's links."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from vpem.core.agent.meeting import Credentials
from vpem.files import replacing
from vpem.privacy.matching import Matched, Matching
from vpem.privacy.parcels import Frame
from vpem.studies.ledger import Ledger
from vpem.studies.private import PartyFile
from vpem.studies.rows import PartyRows, read_table, spell_ids, spelled_keys
from vpem.studies.shared import Study

if TYPE_CHECKING:
    from vpem.reading import Rows
    from vpem.reading.coding import Codes

SAVED = "matched"
"""File of the result, in the party's folder: numbers of rows, and no id."""


@dataclass(frozen=True, eq=False)
class Unmatched:
    """A party's table before its rows have been matched; without a table for a server."""

    rows: Rows | None = None
    ids: Sequence[bytes] | None = None
    notes: tuple[str, ...] = ()
    salt: str = ""
    """Of the study."""

    @property
    def digest(self) -> str:
        """Of the ids, for the party itself: its saved result is of these."""
        found = hashlib.sha256()
        for name in self.ids or ():
            found.update(len(name).to_bytes(4, "big") + name)
        return found.hexdigest()

    def placed(self, matched: Matched) -> PartyRows:
        """The table's rows as rows of the common one; the party has gaps where it has no row."""
        assert self.rows is not None, "a party has rows"
        assert self.rows.keys is not None, "with ids"
        assert self.ids is not None, "which are spelled"
        kept = np.flatnonzero(matched.rows >= 0)
        order = np.full(matched.n_rows, -1, dtype=np.intp)
        order[matched.rows[kept]] = np.arange(len(kept))
        values = np.full((matched.n_rows, self.rows.values.shape[1]), np.nan)
        values[matched.rows[kept]] = self.rows.values[kept]
        row_keys = np.zeros(matched.n_rows, dtype=np.int64)
        row_keys[matched.rows[kept]] = spelled_keys((self.ids[row] for row in kept.tolist()), self.salt)
        keys = {name: [texts[row] for row in kept.tolist()] for name, texts in self.rows.keys.items()}
        names = ", ".join(f"{count:,} of {name}" for name, count in matched.counts.items())
        note = f"{matched.n_rows:,} common rows, from {names}; {len(kept):,} are this party's"
        notes, words = (*self.notes, note), self.rows.words
        return PartyRows(self.rows.names, values, order, keys, matched.digest, notes, row_keys, words)


def read_unmatched(party: PartyFile, study: Study, table: Any = None, codes: Codes = False) -> Unmatched:
    """A party's table, with ids spelled as the study says."""
    rows = read_table(party, table, codes=codes)
    spelled, notes = spell_ids(rows, study.spelling, party.table if table is None else table)
    return Unmatched(rows, spelled, (*rows.notes, *notes), study.salt)


class MatchSession:
    """A matching as engines run sessions; see `vpem.transports.running`.

    Parameters
    ----------
    matching : Matching
    ledger : Ledger
        Counts what is sent.
    """

    HEADER_BYTES = Matching.HEADER_BYTES

    def __init__(self, matching: Matching, ledger: Ledger):
        self.matching, self.ledger = matching, ledger

    @property
    def agent(self) -> Any:
        """What an engine asks of an agent."""
        one = self.matching
        return SimpleNamespace(
            number=one.number,
            neighbours=one.neighbours,
            is_done=one.is_done,
            failure=one.failure,
            held_up=None,
            state=SimpleNamespace(progress=SimpleNamespace(phase="match", start=0, run=None)),
        )

    @property
    def connected(self) -> frozenset[int]:
        """Neighbours whose links are of use."""
        return self.matching.connected

    @property
    def losses(self) -> dict[int, str]:
        """What neighbours were lost for."""
        return self.matching.losses

    def abandon(self, peer: int) -> list[Any]:
        """All must be there for a matching."""
        raise ValueError(
            f"expected all parties while rows are matched, got it without agent {peer}; try --fresh later"
        )

    def expects(self, peer: int, start: bytes) -> int:
        """Length of the frame that begins so."""
        return self.matching.expects(peer, start)

    def send_early(self, _: Callable[[list[Frame]], object]) -> None:
        """Frames are few, and are returned at the end of an event."""

    def start(self) -> list[Frame]:
        """Begin."""
        return self._counted(self.matching.start())

    def connect(self, peer: int) -> list[Frame]:
        """There is a link."""
        return self._counted(self.matching.connect(peer))

    def disconnect(self, peer: int) -> list[Frame]:
        """A link has ended."""
        return self._counted(self.matching.disconnect(peer))

    def receive(self, peer: int, frame: bytes | memoryview) -> list[Frame]:
        """Take a whole frame."""
        return self._counted(self.matching.receive(peer, frame))

    def _counted(self, frames: list[Frame]) -> list[Frame]:
        for frame in frames:
            self.ledger.count(frame.receiver, "match", "hellos, and sealed tokens", len(frame.content))
        return frames


def make_matching(
    study: Study,
    number: int,
    unmatched: Unmatched,
    credentials: Credentials | None,
    tell: Callable[[int, int], object] = lambda _, __: None,
) -> Matching:
    """One agent's part."""
    return Matching(
        number, study.matching, unmatched.ids, bytes.fromhex(study.salt), credentials=credentials, tell=tell
    )


class _Saved(msgspec.Struct, frozen=True):
    study: str
    ids: str
    n_rows: int
    digest: str
    counts: dict[str, int]
    rows: bytes


NOTHING = Matched(np.empty(0, dtype=np.int64), 0, "", {})
"""What an agent without rows has."""


def save_matched(folder: Path, study: Study, unmatched: Unmatched, found: Matched | None) -> None:
    """Keep a result, whole or not at all."""
    one = NOTHING if found is None else found
    content = _Saved(
        study.digest, unmatched.digest, one.n_rows, one.digest, dict(one.counts), one.rows.astype("<i8").tobytes()
    )
    with replacing(folder / SAVED) as unfinished:
        unfinished.write_bytes(msgspec.msgpack.encode(content))


def load_matched(folder: Path, study: Study, unmatched: Unmatched) -> Matched | None:
    """The result of an earlier matching of the same study and ids; None if there is none."""
    try:
        found = msgspec.msgpack.decode((folder / SAVED).read_bytes(), type=_Saved)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    if (found.study, found.ids) != (study.digest, unmatched.digest):
        return None
    rows = np.frombuffer(found.rows, "<i8").astype(np.int64)
    return Matched(rows, found.n_rows, found.digest, found.counts)


def of_matching(wiring: Any) -> Any:
    """The study's links under a name of their own: a party may be at the fit while another ends its matching."""
    return replace(wiring, study=f"{wiring.study}-match")
