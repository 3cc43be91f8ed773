"""Files that describe the participants: the columns of each party, and the links between parties."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vpem.core.network.parties import NAMED_GRAPHS
from vpem.reading.problems import TableError, check_known, meant

if TYPE_CHECKING:
    import networkx as nx


def read_parties(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Read parties and their columns from the table `[parties]` of a TOML file: `bank = ["income", "debt"]`."""
    content = _read_toml(path)
    parties = content.get("parties")
    example = 'a table [parties] with lines such as bank = ["income", "debt"]'
    if not isinstance(parties, dict) or not parties:
        raise TableError(f"{path}: expected {example}, got {', '.join(content) or 'nothing'}")
    owner: dict[str, str] = {}
    for party, columns in parties.items():
        _check_columns(path, party, columns, owner)
    return {party: list(columns) for party, columns in parties.items()}


def read_families(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read families of columns from the optional table `[families]` of the same file: `rain = "zeros"`."""
    families = _read_toml(path).get("families", {})
    if not isinstance(families, dict) or not all(isinstance(text, str) for text in families.values()):
        raise TableError(f'{path}: expected a table [families] with lines such as rain = "zeros", got {families!r}')
    return dict(families)


def _read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise TableError(f"{path}: expected a file with the parties, found none") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TableError(f"{path}: expected TOML, got something else: {error}") from None


def _check_columns(path: Any, party: str, columns: Any, owner: dict[str, str]) -> None:
    if not isinstance(columns, list) or not columns or not all(isinstance(name, str) for name in columns):
        raise TableError(f"{path}: expected a list of column names for party {party!r}, got {columns!r}")
    for name in columns:
        if name in owner:
            raise TableError(
                f"{path}: expected every column at one party, got {name!r} at {owner[name]!r} and {party!r}"
            )
        owner[name] = party


def check_graph(given: str) -> None:
    """Raise TableError if a graph is neither a known name nor a file."""
    if given not in NAMED_GRAPHS and not Path(given).is_file():
        raise TableError(
            f"expected a graph by name ({', '.join(NAMED_GRAPHS)}) or a file with links, got {given!r}"
            + meant(given, list(NAMED_GRAPHS))
        )


def read_graph(given: str, parties: Sequence[str]) -> str | nx.Graph:
    """Return the name of a known graph, or read a graph from a file with two linked parties on every line.

    Names are separated by a comma or by spaces; text after a `#` is a comment.
    """
    check_graph(given)
    if given in NAMED_GRAPHS:
        return given
    import networkx as nx

    path = Path(given)
    graph = nx.Graph()
    graph.add_nodes_from(parties)
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise TableError(f"{path}: expected text in UTF-8, got something else") from None
    for number, line in enumerate(lines, start=1):
        text = line.split("#")[0].strip()
        if not text:
            continue
        ends = [one.strip() for one in text.split(",")] if "," in text else text.split()
        if len(ends) != 2:
            raise TableError(f"{path}, line {number}: expected two parties, got {text!r}")
        for end in ends:
            check_known(end, list(parties), f"{path}, line {number}: party")
        if ends[0] == ends[1]:
            raise TableError(f"{path}, line {number}: expected two different parties, got {ends[0]!r} twice")
        graph.add_edge(*ends)
    if not nx.is_connected(graph):
        part = sorted(next(iter(nx.connected_components(graph))))
        raise TableError(f"{path}: expected a connected network, got {', '.join(part)} without a link to the others")
    return graph
