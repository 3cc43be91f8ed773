"""A party's rows in the study's order, which is that of the salted digests of their ids.

Before anything else, parties compare the number of rows and one digest of all rows. The ids themselves never leave a
party. To test whether a guessed id is among another party's rows, a party that knows the salt would need the digest
of every row, and these are not sent.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vpem.privacy.ids import IdError, Ids, spell
from vpem.reading.gap_words import unknown_columns
from vpem.reading.problems import STUDY, TableError, unknown
from vpem.studies.fields import StudyFileError
from vpem.studies.private import PartyFile

if TYPE_CHECKING:
    from vpem.reading import Rows
    from vpem.reading.category_parsing import Codes

Array = NDArray[np.float64]
KEY_BYTES = 8
"""Bytes of a row's digest in its key. With a million rows, two keys collide in one study of ten million."""


@dataclass(frozen=True, eq=False)
class PartyRows:
    """A party's columns, and the row of the study that each of its rows corresponds to."""

    names: list[str]
    values: Array
    """Shape (n_rows, n_columns), in the study's order."""
    order: NDArray[np.intp]
    """Shape (n_rows,): row of the party's table for each row of the study; -1 for rows that the party lacks."""
    keys: dict[str, list[str]]
    """Id column to the ids, in the table's own order."""
    digest: str
    """Digest of all ids."""
    notes: Sequence[str] = ()
    row_keys: NDArray[np.int64] | None = None
    """Shape (n_rows,): a number from the salted digest of each row's id, in the study's order; 0 for rows that the
    party lacks."""
    words: dict[str, list[str]] = field(default_factory=dict)
    """Column name to the words that its numbers stand for."""
    gap_words: dict[str, dict[str, int]] = field(default_factory=dict)
    """Column name to the words that count as gaps, each with its number of occurrences."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Party to its number of rows if rows were matched; else empty, as all parties have the same number."""

    @property
    def words_by_number(self) -> dict[int, list[str]]:
        """Column number to the words that its numbers stand for."""
        return {self.names.index(name): own for name, own in self.words.items()}

    def __len__(self) -> int:
        return len(self.values)

    def as_in_table(self, array: NDArray[Any]) -> NDArray[Any]:
        """Reorder rows of the study, shape (n_rows, ...), to the table's own order."""
        held = self.order >= 0
        found = np.empty((int(held.sum()), *array.shape[1:]), dtype=array.dtype)
        found[self.order[held]] = array[held]
        return found


def read_rows(
    party: PartyFile,
    salt: str,
    table: Any = None,
    *,
    columns: Sequence[str] | None = None,
    spelling: str | None = None,
    codes: Codes = False,
) -> PartyRows:
    """Read a party's table, from its file or from `table`.

    Parameters
    ----------
    party : PartyFile
    salt : str
        Hexadecimal digits.
    table : path or data frame, optional
        Replaces the table that the party's file names.
    columns : sequence of str, optional
        Columns of an earlier fit, for new rows. If the table has none of them, the party has no values.
    spelling : str, optional
        Rule by which the ids of the fit were matched, if they were. The keys of the rows are made by the same rule.
    codes : bool, names or Said
        Columns whose words are coded as categories.
    """
    source = party.table if table is None else table
    rows = read_table(party, table, columns, codes)
    assert rows.keys is not None, "an id is asked for"
    digests = row_digests(zip(*rows.keys.values(), strict=True), salt, len(rows.values))
    order = np.argsort(digests, kind="stable")
    ordered = digests[order]
    del digests  # with many rows, one such array is as large as the table
    if (ordered[1:] == ordered[:-1]).any():  # ids that differ only in outer spaces or in Unicode form
        n_twice = int((ordered[1:] == ordered[:-1]).sum())
        raise TableError(
            f"{source}: expected every id once, got {n_twice:,} that another row has in another spelling"
        )
    whole = hashlib.sha256(ordered.view(np.uint8).data).hexdigest()
    if spelling is None:
        keys = _as_keys(bytes.fromhex(ordered.astype(f"S{2 * KEY_BYTES}").tobytes().decode()))
    else:
        keys = spelled_keys(spell_ids(rows, spelling, source).spelled, salt)[order]
    del ordered
    values = np.ascontiguousarray(rows.values[order])
    release_unused()
    return PartyRows(rows.names, values, order, rows.keys, whole, rows.notes, keys, rows.words, rows.gap_words)


def read_table(
    party: PartyFile, table: Any = None, columns: Sequence[str] | None = None, codes: Codes = False
) -> Rows:
    """Read a party's numbers and ids, in the order of its own table; parameters as for `read_rows`."""
    source = party.table if table is None else table
    if source is None or not party.id:
        what = "table" if source is None else "id"
        raise StudyFileError(f"{party.path}: expected {what} = ..., found none")
    return _read(party, source, columns, codes)


def release_unused() -> None:
    """Return the memory that reading a table needed to the system, as a party may run for days."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


def row_digests(keys: Iterable[tuple[str, ...]], salt: str, n_rows: int) -> NDArray[np.bytes_]:
    """HMAC-SHA256 of each row's id; shape (n_rows,), as 64 hexadecimal digits."""
    secret = bytes.fromhex(salt)
    # Hexadecimal, because numpy's byte strings lose trailing zeros.
    found = (hmac.digest(secret, _spelled(key), "sha256").hex().encode() for key in keys)
    return np.fromiter(found, dtype="S64", count=n_rows)


def spell_ids(rows: Rows, rule: str, source: Any) -> Ids:
    """Spell a table's ids by a matching rule; raise TableError if they cannot be matched."""
    assert rows.keys is not None, "an id is asked for"
    try:
        return spell(list(zip(*rows.keys.values(), strict=True)), rule)
    except IdError as error:
        raise TableError(f"{source if isinstance(source, str | os.PathLike) else 'table'}: {error}") from None


def spelled_keys(names: Iterable[bytes], salt: str) -> NDArray[np.int64]:
    """Return a number for each id that identifies its row; shape (n_rows,)."""
    secret = bytes.fromhex(salt)
    return _as_keys(b"".join(hmac.digest(secret, name, "sha256")[:KEY_BYTES] for name in names))


def _as_keys(digests: bytes) -> NDArray[np.int64]:
    """Return positive numbers from the first bytes of digests; 0 is reserved for rows without an id."""
    return (np.frombuffer(digests, ">u8") >> np.uint64(1) | np.uint64(1)).astype(np.int64)


def _spelled(key: tuple[str, ...]) -> bytes:
    """Return an id as bytes: NFC-normalized, without outer spaces, its parts separated."""
    return "\x1f".join(unicodedata.normalize("NFC", part).strip() for part in key).encode()


def _read(party: PartyFile, source: Any, columns: Sequence[str] | None, codes: Codes) -> Rows:
    """Read numbers and ids from a file or a data frame."""
    from vpem.reading import look, read
    from vpem.reading.frame_parsing import join_frames

    if not hasattr(source, "__fspath__") and not isinstance(source, str):
        wanted = party.columns if columns is None else columns

        def keep(_: str, name: str) -> bool:
            return name not in party.ignore if wanted is None else name in wanted

        rows = join_frames({party.party: source}, party.id, keep, party.form, codes=codes, words=STUDY)
        return rows if wanted is None else _arranged(rows, list(wanted), party.party)
    file = look(source, party.form)
    if columns is not None and not set(columns) & set(file.names):
        return _without_values(file, party)
    wrong = [unknown(name, file.names, f"{party.path}: ignore: column") for name in party.ignore]
    wrong += [unknown(name, file.names, f"{party.path}: [dates]: column") for name in file.form.dates]
    wrong += unknown_columns(None if party.form is None else party.form.gaps, file.names, f"{party.path}: gaps")
    if texts := [text for text in wrong if text is not None and columns is None]:
        raise TableError("\n".join(texts))
    wanted = party.columns if columns is None else columns
    return read(
        file,
        id_column=party.id,
        columns=None if wanted is None else list(wanted),
        keep=lambda name: name not in party.ignore,
        codes=codes,
        words=STUDY,
    )


def _arranged(rows: Rows, wanted: list[str], party: str) -> Rows:
    for name in wanted:
        text = unknown(name, rows.names, f"{party}: column")
        if text is not None:
            raise TableError(text)
    return replace(rows, names=wanted, values=rows.values[:, [rows.names.index(name) for name in wanted]])


def _without_values(file: Any, party: PartyFile) -> Rows:
    """Read the ids alone, for a party without values of these rows."""
    from vpem.reading import Rows, read_texts

    _, keys = read_texts(file, party.id[0], id_column=party.id)
    assert keys is not None, "an id is asked for"
    named = {name: [key[place] for key in keys] for place, name in enumerate(party.id)}
    return Rows([], np.empty((len(keys), 0)), keys=named)
