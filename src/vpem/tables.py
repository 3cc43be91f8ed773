"""Tables that are larger than memory, and tables of several parties."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.typing import NDArray

from vpem.reading.category_parsing import Codes
from vpem.reading.category_parsing import Said as Said
from vpem.reading.date_parts import dates_of as dates_of
from vpem.reading.dates import date_numbers as date_numbers
from vpem.reading.dialect import Form
from vpem.reading.frame_parsing import code_frame, join_frames
from vpem.reading.frame_parsing import columns_of as _frame_columns
from vpem.reading.gap_words import unknown_columns
from vpem.reading.problems import TableError, unknown
from vpem.reading.table_join import Rows, as_names

Array = NDArray[np.float64]

BATCH_ROWS = 16_384


class ArrowTable:
    """Rows of Parquet or Arrow files, read in batches, for `fit` and `predict`.

    Every pass over the rows reads the files again from the start. Missing values become NaN, which is a gap.

    Parameters
    ----------
    source : path, list of paths, pyarrow.Table or pyarrow.dataset.Dataset
        A file, or a folder of files with the same columns.
    columns : sequence of str, optional
        Columns to read, in this order; by default all. They must hold numbers.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = ArrowTable(pa.table({"age": [30, None, 50], "income": [1.5, 2.5, 3.5]}))
    >>> table.shape
    (3, 2)
    >>> table[0:2]
    array([[30. ,  1.5],
           [ nan,  2.5]])
    """

    streams_rows = True
    frame_library = "pyarrow"

    def __init__(self, source: Any, columns: Sequence[str] | None = None):
        if isinstance(source, str | os.PathLike) and not os.path.exists(source):
            raise FileNotFoundError(f"expected a Parquet or Arrow file or a folder of such, found no {source!s}")
        if isinstance(source, os.PathLike):
            source = os.fspath(source)
        try:
            self._dataset = source if isinstance(source, ds.Dataset) else ds.dataset(source)
        except pa.ArrowInvalid as error:
            raise ValueError(f"{source!s} is no Parquet or Arrow file: {error}") from None
        schema = self._dataset.schema
        self.column_names = list(schema.names if columns is None else columns)
        if not self.column_names:
            raise ValueError("expected at least one column, got a table without any")
        for name in self.column_names:
            if name not in schema.names:
                raise ValueError(f"expected one of the columns {', '.join(schema.names)}, got {name!r}")
            if self.column_names.count(name) > 1 or schema.names.count(name) > 1:
                raise ValueError(f"expected columns with different names, got {name!r} more than once")
            kind = schema.field(name).type
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
                raise ValueError(f"expected numbers in column {name!r}, got {kind}; name the columns to use")
        self._n_rows = int(self._dataset.count_rows())
        self._forget()

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self._n_rows, len(self.column_names)

    def __len__(self) -> int:
        return self._n_rows

    def __getitem__(self, rows: Any) -> Array:
        """Rows by slice (fast if each slice starts where the last ended) or by number; (n_rows, n_columns)."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(self._n_rows)
            if step != 1:
                raise IndexError("expected rows without a step")
            return self._read(start, max(start, stop))
        if isinstance(rows, tuple):
            if len(rows) != 2 or rows[1] is not Ellipsis:
                raise TypeError(f"expected a slice or a list of row numbers, got {rows!r}")
            return self[rows[0]]  # scikit-learn's cross-validation indexes like this
        numbers = np.asarray(rows)
        if numbers.ndim == 1 and numbers.dtype == bool and len(numbers) == self._n_rows:
            numbers = np.flatnonzero(numbers)
        if numbers.ndim != 1 or not (np.issubdtype(numbers.dtype, np.integer) or not len(numbers)):
            raise TypeError(f"expected a slice or a list of row numbers, got {rows!r}")
        return self._pick(numbers.astype(np.intp))

    def __iter__(self) -> Iterator[Array]:
        for batch in self._scan():
            yield from batch

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """All rows, which must fit in memory."""
        if copy is False:
            raise ValueError("expected that a copy is allowed: the rows are on disk")
        return np.asarray(self[0 : self._n_rows], dtype=dtype)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_batches", "_rest")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def _forget(self) -> None:
        """Reset the position, so that the next read starts from the first row."""
        self._batches: Iterator[Array] = iter(())
        self._rest = np.empty((0, len(self.column_names)))
        self._position = -1

    def _read(self, start: int, stop: int) -> Array:
        """Read consecutive rows; start a new scan if they do not follow the last ones."""
        if start != self._position:
            self._batches, self._position = self._scan(), 0
            self._rest = self._rest[:0]
            while self._position < start:
                self._advance(start - self._position)
        parts, missing = [self._rest[:0]], stop - start
        while missing > 0:
            parts.append(self._advance(missing))
            missing -= len(parts[-1])
        return np.concatenate(parts)

    def _pick(self, numbers: NDArray[np.intp]) -> Array:
        """Read rows by number in one scan: pyarrow's own `take` would read the whole table into memory."""
        order = np.argsort(numbers, kind="stable")
        wanted = numbers[order]
        if len(wanted) and not 0 <= wanted[0] <= wanted[-1] < self._n_rows:
            raise IndexError(f"expected row numbers from 0 to {self._n_rows - 1}, got {numbers}")
        picked = np.empty((len(numbers), len(self.column_names)))
        if not len(numbers):
            return picked
        first = done = 0
        for batch in self._scan():
            upto = int(np.searchsorted(wanted, first + len(batch)))
            picked[order[done:upto]] = batch[wanted[done:upto] - first]
            first, done = first + len(batch), upto
            if done == len(wanted):
                return picked
        raise ValueError(f"expected {self._n_rows} rows, found {first}: the file has changed")

    def _advance(self, most: int) -> Array:
        """Return the next rows, at most `most` of them."""
        if not len(self._rest):
            found = next(self._batches, None)
            if found is None:
                raise ValueError(f"expected {self._n_rows} rows, found {self._position}: the file has changed")
            self._rest = found
        taken, self._rest = self._rest[:most], self._rest[most:]
        self._position += len(taken)
        return taken

    def _scan(self) -> Iterator[Array]:
        """Yield all rows from the first, in batches."""
        try:
            for batch in self._record_batches():
                if len(batch):
                    yield self._checked(batch)
        except (OSError, pa.ArrowException) as error:
            raise ValueError(f"the table cannot be read (any more): {error}") from error

    def _record_batches(self) -> Iterator[Any]:
        if isinstance(getattr(self._dataset, "format", None), ds.ParquetFileFormat):
            # A dataset's scanner may read ahead up to the whole file; the reader of a single file does not.
            for path in self._dataset.files:
                with self._dataset.filesystem.open_input_file(path) as file:
                    parquet = pq.ParquetFile(file, pre_buffer=False)
                    absent = [name for name in self.column_names if name not in parquet.schema_arrow.names]
                    if absent:
                        raise ValueError(f"expected column {absent[0]!r} in every file, {path} has none")
                    yield from parquet.iter_batches(BATCH_ROWS, columns=self.column_names, use_threads=False)
        else:
            yield from self._dataset.to_batches(
                columns=self.column_names, batch_size=BATCH_ROWS, batch_readahead=1, fragment_readahead=1
            )

    def _checked(self, found: Any) -> Array:
        """Convert a batch to float64, (n_rows, n_columns); missing values become NaN."""
        rows = np.empty((len(found), len(self.column_names)))
        for number, name in enumerate(self.column_names):
            rows[:, number] = found.column(name).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            if np.isinf(rows[:, number]).any():
                raise ValueError(f"expected finite numbers or gaps, got infinity in column {name!r}")
        return rows


class JoinedTable:
    """Joined tables of several parties, for `fit`, `predict` and the other methods; made by `join`.

    Attributes
    ----------
    ids : list
        Id of each row: a value, or a tuple if `on` has several columns.
    on : tuple of str
        Id columns.
    column_names : list of str
        Names of the columns. A name that several tables have is prefixed by the party, as `shop.age`.
    parties : dict
        Party to the names of its columns.
    shape : tuple
        Numbers of rows and columns.
    places : dict
        Party to the numbers, in this table, of the rows that it has, in its own order.
    words : dict
        Column of categories, by name, to the words that its codes 0, 1, ... represent.
    notes : list of str
        Remarks on conversions that the user may not expect, such as words in files that count as gaps.
    """

    streams_rows = True  # has names of its own, and is not validated by scikit-learn
    joins_parties = True

    def __init__(self, rows: Rows, on: Sequence[str], seen: Mapping[str, Sequence[str]]):
        assert rows.parties is not None, "joined"
        self.on = tuple(on)
        originals = rows.originals or []
        self.ids: list[Any] = [key[0] for key in originals] if len(self.on) == 1 else list(originals)
        self.column_names = rows.names
        self.parties = rows.parties
        self._own_names, self._seen, self.places = rows.own_names, seen, rows.places
        self._values = rows.values
        self.words, self.notes = rows.words, rows.notes
        self.near, self.gap_words = rows.near, rows.gap_words

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return len(self._values), len(self.column_names)

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, rows: Any) -> Array:
        """Rows by slice or by number; (n_rows, n_columns)."""
        found: Array = self._values[rows]
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """All values; NaN where a party lacks a row."""
        return np.array(self._values, dtype=dtype, copy=True) if copy else np.asarray(self._values, dtype=dtype)

    def __repr__(self) -> str:
        held = ", ".join(f"{party}: {len(names)}" for party, names in self.parties.items())
        return f"JoinedTable({len(self):,} rows by {', '.join(self.on)}; columns of {held})"

    def arrange(self, column_names: Sequence[str], parties: Mapping[str, Sequence[str]]) -> Array:
        """Return the values in the order of other columns, such as a model's; (n_rows, n_columns).

        A party that is not in this table counts as missing. A party in this table must have all its columns.
        """
        wrong = [unknown(party, list(parties), "party") for party in self.parties]
        place = {name: number for number, name in enumerate(column_names)}
        values = np.full((len(self), len(place)), np.nan)
        known = self._places(parties)
        for party in self._own_names:
            for name in parties.get(party, ()):
                if name in known:
                    values[:, place[name]] = self._values[:, known[name]]
                else:
                    wrong.append(unknown(name, self._seen[party], f"{party}: the model's column"))
        texts = [text for text in wrong if text is not None]
        if texts:
            raise TableError("\n".join(texts))
        return values

    def arrange_words(self, parties: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Return `words` by the names of a model's columns."""
        known = self._places(parties).items()
        return {name: self.words[own] for name, number in known if (own := self.column_names[number]) in self.words}

    def _places(self, parties: Mapping[str, Sequence[str]]) -> dict[str, int]:
        """Column numbers in this table, by the model's names of the columns."""
        found: dict[str, int] = {}
        numbers = iter(range(len(self.column_names)))
        for party, own in self._own_names.items():
            held = parties.get(party, ())
            for name, number in zip(own, numbers, strict=False):
                found[name if name in held else f"{party}.{name}"] = number
        return found


class CodedTable:
    """Table whose words are coded as numbers; made by `code_words`. Columns of an array have no names."""

    streams_rows = True

    def __init__(self, values: Array, column_names: list[str] | None, words: dict[str, list[str]]):
        self._values, self.column_names, self.words, self.shape = values, column_names, words, values.shape

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, rows: Any) -> Array:
        """Rows by slice or by number; (n_rows, n_columns)."""
        found: Array = self._values[rows]
        return found


def code_words(table: Any, codes: Codes = True) -> Any:
    """Code the columns of words in a data frame or an array of objects as numbers; return other tables unchanged.

    `codes` can be the names of the columns that have words in a fit.

    Raises
    ------
    TableError
        For columns with neither numbers nor categories: dates, free text, names that are all different.
    """
    is_array = isinstance(table, np.ndarray) and table.ndim == 2 and table.dtype.kind in "OUS"
    if is_array:
        table = {str(number): table[:, number].tolist() for number in range(table.shape[1])}
    columns = _frame_columns(table)
    if columns is None:
        return table
    arrays = code_frame(columns, codes)
    names = [name for name, _ in columns]
    words = {name: own.words for name, own in zip(names, arrays, strict=True) if own.words is not None}
    if not words and not isinstance(table, dict):
        return table
    values = np.stack([own.values for own in arrays], axis=1)
    if is_array:
        return CodedTable(values, None, words) if words else values
    return CodedTable(values, names, words)


def join(
    tables: Mapping[str, Any],
    on: str | Sequence[str],
    *,
    ignore: Sequence[str] = (),
    form: Form | None = None,
    dates: Mapping[str, str] | None = None,
    gaps: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    keep: Callable[[str, str], bool] | None = None,
    codes: Codes = True,
) -> JoinedTable:
    """Join the parties' tables by id; a row that a party lacks has gaps in its columns.

    Rows are in the order in which their ids first appear: those of the first table, then those of the others. Ids are
    compared as text. Whole numbers are compared without their fraction, so that 7 and 7.0 are equal.

    Parameters
    ----------
    tables : dict
        Party to its table: a data frame of pandas or polars, an Arrow table, a dict of columns, or the path of a file
        in a format that the program reads.
    on : str or sequence of str
        Id column, or columns that form the id together. Every table has them, and no id occurs twice in a table. Or
        "@row", if all tables have the same rows in the same order.
    ignore : sequence of str
        Columns to leave out, as `name` (of all parties) or `party.name`.
    form : Form, optional
        Format of text files; unset parts are detected.
    dates : dict, optional
        Columns of dates, as `name` or `party.name`, to the numbers that they become: "days", "weekday" or "hour", as
        in `date_numbers`. Dates in other columns are an error.
    gaps : sequence of str or dict, optional
        Words for gaps in text files, such as ``["NA", "?", "-999"]``; or column to such words, with "*" for all other
        columns. By default NA, NaN, null and similar words are gaps, and in columns of numbers and dates also marks
        such as - and ?, and the word none. `notes` lists the words that were counted as gaps. Data frames, Parquet
        and Arrow mark gaps themselves: every word in them is a value.
    keep : callable, optional
        In place of `ignore`: called with a party and a column name; returns True to read the column.
    codes : bool, default=True
        True if columns of words become categories, coded as numbers at their party; otherwise they are an error.
        `VerticalMixture` accepts categories, the other estimators do not.

    Raises
    ------
    TableError
        If a table is invalid; the message lists all problems of all tables.

    Examples
    --------
    >>> bank = {"customer": [1, 2, 3], "income": [30.0, 50.0, 40.0]}
    >>> shop = {"customer": [3, 1, 4], "visits": [7, 2, 5]}
    >>> table = join({"bank": bank, "shop": shop}, on="customer")
    >>> table.ids
    [1, 2, 3, 4]
    >>> table[:]
    array([[30.,  2.],
           [50., nan],
           [40.,  7.],
           [nan,  5.]])
    >>> table.parties
    {'bank': ['income'], 'shop': ['visits']}
    """
    if not isinstance(tables, Mapping) or not tables:
        raise TypeError(f"expected a dict from party to table, got {type(tables).__name__}: {tables!r:.80}")
    ignored = {ignore} if isinstance(ignore, str) else set(ignore)
    seen: dict[str, list[str]] = {str(party): [] for party in tables}

    def wanted(party: str, name: str) -> bool:
        seen[party].append(name)
        return not ignored & {name, f"{party}.{name}"} if keep is None else keep(party, name)

    form = form if not dates else replace(form or Form(), dates=dates)
    form = form if gaps is None else replace(form or Form(), gaps=gaps)
    rows = join_frames(tables, on, wanted, form, codes=codes)
    _check_known(ignored, form, seen)
    return JoinedTable(rows, as_names(on), seen)


def _check_known(ignored: set[str], form: Form | None, seen: Mapping[str, Sequence[str]]) -> None:
    known = [shown for party, names in seen.items() for name in names for shown in (name, f"{party}.{name}")]
    wrong = [text for name in sorted(ignored) if (text := unknown(name, known, "ignore: column")) is not None]
    wrong += unknown_columns(None if form is None else form.gaps, known, "gaps")
    if wrong:
        raise TableError("\n".join(wrong))
