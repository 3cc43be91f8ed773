"""Tables: detect the format of a file, read tables, join them by an id and write them.

The names below are imported on first use, because importing pyarrow is slow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vpem.reading.dialect import Dialect as Dialect
    from vpem.reading.dialect import Form as Form
    from vpem.reading.opening import Source as Source
    from vpem.reading.opening import look as look
    from vpem.reading.opening import look_at_all as look_at_all
    from vpem.reading.problems import TableError as TableError
    from vpem.reading.problems import check_known as check_known
    from vpem.reading.table_join import Rows as Rows
    from vpem.reading.table_join import join as join
    from vpem.reading.table_join import read as read
    from vpem.reading.table_join import read_texts as read_texts
    from vpem.reading.table_writing import TABLES as TABLES
    from vpem.reading.table_writing import free_name as free_name
    from vpem.reading.table_writing import write as write

PLACES = {
    "dialect": ("Dialect", "Form"),
    "table_join": ("Rows", "join", "read", "read_texts"),
    "opening": ("Source", "look", "look_at_all"),
    "problems": ("TableError", "check_known"),
    "table_writing": ("TABLES", "free_name", "write"),
}


def __getattr__(name: str) -> Any:
    for module, names in PLACES.items():
        if name in names:
            return getattr(import_module(f"vpem.reading.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
