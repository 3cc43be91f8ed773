"""One party's part in matching rows by tokens before the fit, over the study's links."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from vpem.core.agent.meeting import Credentials
from vpem.files import replacing
from vpem.privacy.matching import Matched, Matching
from vpem.studies.private import PartyFile
from vpem.studies.row_order import PartyRows, read_table, spell_ids, spelled_keys
from vpem.studies.shared import Study

if TYPE_CHECKING:
    from vpem.reading import Rows
    from vpem.reading.category_parsing import Codes

SAVED = "matched"
"""Name of the result's file in the party's folder. It contains row numbers and no ids."""


@dataclass(frozen=True, eq=False)
class Unmatched:
    """A party's table before its rows are matched. A server has no table."""

    rows: Rows | None = None
    ids: Sequence[bytes] | None = None
    notes: tuple[str, ...] = ()
    salt: str = ""
    """Salt of the study."""
    is_outer: bool = False
    """True if the study has the union of the parties' rows, instead of the intersection."""

    @property
    def digest(self) -> str:
        """Digest of the ids, by which the party checks that its saved result belongs to them."""
        found = hashlib.sha256()
        for name in self.ids or ():
            found.update(len(name).to_bytes(4, "big") + name)
        return found.hexdigest()

    def placed(self, matched: Matched) -> PartyRows:
        """Return the table's rows in the order of the matched rows, with NaN in rows that the party lacks."""
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
        whose = "that some party has" if self.is_outer else "in common"
        note = f"{matched.n_rows:,} rows {whose}, from {names}; {len(kept):,} are this party's"
        notes, words = (*self.notes, note), self.rows.words
        about: Any = {"words": words, "gap_words": self.rows.gap_words, "counts": matched.counts}
        return PartyRows(self.rows.names, values, order, keys, matched.digest, notes, row_keys, **about)


def read_unmatched(party: PartyFile, study: Study, table: Any = None, codes: Codes = False) -> Unmatched:
    """Read a party's table and spell its ids by the study's rule."""
    rows = read_table(party, table, codes=codes)
    spelled, notes = spell_ids(rows, study.spelling, party.table if table is None else table)
    return Unmatched(rows, spelled, (*rows.notes, *notes), study.salt, study.match == "outer")


def make_matching(
    study: Study,
    number: int,
    unmatched: Unmatched,
    credentials: Credentials | None,
    **about: Any,
) -> Matching:
    """Make one agent's part of the matching, with the arguments of `Matching`."""
    salt = bytes.fromhex(study.salt)
    return Matching(number, study.matching, unmatched.ids, salt, credentials=credentials, **about)


class _Saved(msgspec.Struct, frozen=True):
    study: str
    ids: str
    n_rows: int
    digest: str
    counts: dict[str, int]
    rows: bytes
    is_final: bool = True


NOTHING = Matched(np.empty(0, dtype=np.int64), 0, "", {})
"""Result of an agent without rows."""


def save_matched(
    folder: Path, study: Study, unmatched: Unmatched, found: Matched | None, *, is_final: bool = True
) -> None:
    """Save a result, in full or not at all. A final result is one that all parties share."""
    one = NOTHING if found is None else found
    rows = one.rows.astype("<i8").tobytes()
    content = _Saved(
        study.digest, unmatched.digest, one.n_rows, one.digest, dict(one.counts), rows, is_final=is_final
    )
    with replacing(folder / SAVED) as unfinished:
        unfinished.write_bytes(msgspec.msgpack.encode(content))


def load_matched(folder: Path, study: Study, unmatched: Unmatched) -> tuple[Matched | None, bool]:
    """Load the result of an earlier matching of the same study and ids, or None; and True if it is final."""
    try:
        found = msgspec.msgpack.decode((folder / SAVED).read_bytes(), type=_Saved)
    except (FileNotFoundError, msgspec.DecodeError):
        return None, False
    if (found.study, found.ids) != (study.digest, unmatched.digest):
        return None, False
    rows = np.frombuffer(found.rows, "<i8").astype(np.int64)
    return Matched(rows, found.n_rows, found.digest, found.counts), found.is_final
