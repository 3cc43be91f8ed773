"""The network of a fit: parties, their columns, the links between them, and the resulting hubs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.graph import diameter
from vpem.core.network.hubs import Hub, HubNumber, Position, find_hubs, relay_paths

if TYPE_CHECKING:
    import networkx as nx

Key = TypeVar("Key", bound=Hashable)

SERVER = "server"
"""Name of the agent without columns that adds in a star."""

NAMED_GRAPHS = ("star", "ring", "complete", "path")


class NamedHub(NamedTuple):
    """A hub by the names of its parties, with the columns of its block."""

    root: Hashable
    members: tuple[Hashable, ...]
    columns: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Network:
    """Parties of one fit, their columns and their links; constructed by `make_network`."""

    parties: tuple[Hashable, ...]
    """Names, in the order of the partition."""
    columns: tuple[NDArray[np.intp], ...]
    """Column numbers of each party."""
    graph: nx.Graph | None
    """Links between parties, by number; None for a star, whose server is not a party."""
    hubs: tuple[Hub, ...]
    known: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)
    """Cache of `remember`."""

    def remember(self, key: Key, find: Callable[[Network], Any]) -> Any:
        """Return `find(self)`, computed once per key."""
        if key not in self.known:
            self.known[key] = find(self)
        return self.known[key]

    @property
    def is_star(self) -> bool:
        """True if all parties are linked to a server, which is not a party."""
        return self.graph is None

    @property
    def server(self) -> Position:
        """Position of the server of a star."""
        return Position(len(self.parties))

    @cached_property
    def positions(self) -> tuple[Position, ...]:
        """Positions of all agents."""
        return tuple(map(Position, range(len(self.agents))))

    @property
    def agents(self) -> tuple[Hashable, ...]:
        """Names of the parties, followed by the server in a star."""
        return (*self.parties, SERVER) if self.is_star else self.parties

    @cached_property
    def links(self) -> nx.Graph:
        """Links between all agents, including the server of a star."""
        import networkx as nx

        if self.graph is not None:
            return self.graph
        return nx.star_graph([len(self.parties), *range(len(self.parties))])

    @cached_property
    def diameter(self) -> int:
        """Number of rounds of a broadcast."""
        return diameter(self.links)

    @cached_property
    def neighbours(self) -> tuple[tuple[Position, ...], ...]:
        """Neighbours of each agent, in ascending order."""
        return tuple(tuple(sorted(self.links[agent])) for agent in self.positions)

    @cached_property
    def hub_of(self) -> tuple[HubNumber | None, ...]:
        """Number of each agent's hub; None for a server."""
        found = {member: HubNumber(number) for number, hub in enumerate(self.hubs) for member in hub.members}
        return tuple(map(found.get, self.positions))

    @cached_property
    def paths(self) -> dict[Position, list[Position]]:
        """Path to each party from the root of its hub."""
        found: dict[Position, list[Position]] = {}
        for hub in self.hubs:
            found |= relay_paths(self.links, hub) if len(hub.members) > 1 else {hub.root: [hub.root]}
        return found

    @cached_property
    def depth(self) -> int:
        """Number of hops of the longest path."""
        return max(len(path) for path in self.paths.values()) - 1

    def is_root(self, agent: Position) -> bool:
        """True if an agent computes its hub's block."""
        hub = self.hub_of[agent]
        return hub is not None and self.hubs[hub].root == agent

    def hub(self, agent: Position) -> Hub:
        """Hub of a party."""
        number = self.hub_of[agent]
        assert number is not None, "a server has no hub"
        return self.hubs[number]

    def below(self, agent: Position, distance: int) -> list[Position]:
        """Members at this distance in hops whose columns pass through an agent, in ascending order."""
        return sorted(
            member
            for member, path in self.paths.items()
            if len(path) > distance and path[len(path) - 1 - distance] == agent
        )

    @cached_property
    def block_columns(self) -> tuple[NDArray[np.intp], ...]:
        """Column numbers of each block: those of the hub's members, concatenated in the members' order."""
        return tuple(np.concatenate([self.columns[member] for member in hub.members]) for hub in self.hubs)

    def assemble(self, parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """Combine the blocks' means or centres, (n_rows, n_columns) each, in the order of the table's columns."""
        whole = np.empty((len(parts[0]), sum(map(len, self.columns))))
        for columns, part in zip(self.block_columns, parts, strict=True):
            whole[:, columns] = part
        return whole

    def has_blocks_of(self, other: Network) -> bool:
        """True if roots, members and columns are equal, so that one network can use the other's parameters."""
        same = self.parties == other.parties and self.hubs == other.hubs
        same = same and self.is_star == other.is_star
        return same and all(map(np.array_equal, self.block_columns, other.block_columns))

    def named_columns(self) -> dict[Hashable, list[int]]:
        """Column numbers of each party, by name."""
        return {party: columns.tolist() for party, columns in zip(self.parties, self.columns, strict=True)}

    def named_graph(self) -> nx.Graph:
        """Graph of the links by name; in a star, each party is linked to the server."""
        import networkx as nx

        if self.is_star:
            return nx.Graph((party, SERVER) for party in self.parties)
        return nx.relabel_nodes(self.links, dict(enumerate(self.parties)))

    def named_hubs(self) -> list[NamedHub]:
        """Hubs by the names of their parties."""
        return [
            NamedHub(
                self.parties[hub.root],
                tuple(self.parties[member] for member in hub.members),
                tuple(columns.tolist()),
            )
            for hub, columns in zip(self.hubs, self.block_columns, strict=True)
        ]


def make_network(
    columns: Mapping[Hashable, Sequence[int]],
    graph: str | nx.Graph = "star",
    hops: int = 0,
    rng: np.random.Generator | None = None,
) -> Network:
    """Validate parties, graph and hops, and find the hubs.

    Parameters
    ----------
    columns : mapping
        Party name to column numbers, as `assign_columns` returns it.
    graph : {"star", "ring", "complete", "path"} or networkx.Graph
    hops : int
        Maximum number of hops over which columns are pooled.
    rng : numpy.random.Generator, optional
        Generator that breaks ties between hubs; required only for hops > 0.
    """
    parties = tuple(columns)
    numbers = tuple(np.asarray(held, dtype=np.intp) for held in columns.values())
    if not isinstance(hops, Integral) or isinstance(hops, bool) or hops < 0:
        raise ValueError(f"expected hops to be a whole number, 0 or more, got {hops!r}")
    links = communication_graph(graph, parties)
    if links is None:
        if hops > 0:
            raise ValueError(
                f"expected hops=0 on a star, got hops={hops}: one hop from any party is the server, so the "
                "server would hold every column, which is centralized EM; try another graph, or hops=0"
            )
        if SERVER in parties:
            raise ValueError(f"no party of a star can be named {SERVER!r}: that is its server; rename the party")
    if links is None or hops == 0:
        hubs = tuple(Hub(number, (number,)) for number in map(Position, range(len(parties))))
    elif rng is None:
        raise ValueError("expected a generator that settles ties between hubs, got None; try default_rng(seed)")
    else:
        hubs = find_hubs(links, int(hops), rng)
    return Network(parties, numbers, links, hubs)


def assign_columns(
    partition: Mapping[Hashable, Any] | Sequence[Any] | None,
    n_columns: int,
    column_names: Sequence[str] | None = None,
) -> dict[Hashable, list[int]]:
    """Read the columns of each party; every column must have exactly one holder.

    Parameters
    ----------
    partition : mapping, sequence or None
        Party name to columns, or a list of columns per party (the parties are then named 0, 1, ...). Columns
        are given by position or by name; a single one needs no list. None: one party per column.
    n_columns : int
    column_names : sequence of str, optional
        Names of the columns, if the table has names.

    Returns
    -------
    dict
        Party name to column numbers, in the order given.
    """
    if partition is None:
        return {number: [number] for number in range(n_columns)}
    if isinstance(partition, str | Iterator) or not isinstance(partition, Mapping | Iterable):
        raise TypeError(
            f"expected partition to be a list of column lists or a dict from party to columns, got {partition!r}"
        )
    holders = dict(partition) if isinstance(partition, Mapping) else dict(enumerate(partition))
    names = {} if column_names is None else {name: number for number, name in enumerate(column_names)}
    columns = {
        party: [_column_number(column, party, n_columns, names) for column in _as_list(held)]
        for party, held in holders.items()
    }
    for party, numbers in columns.items():
        if not numbers:
            raise ValueError(f"party {party!r} holds no columns; give it some or leave it out of the partition")
    count = Counter(number for numbers in columns.values() for number in numbers)
    problems = {
        "held more than once": [number for number, times in sorted(count.items()) if times > 1],
        "held by no party": [number for number in range(n_columns) if number not in count],
    }
    for problem, numbers in problems.items():
        if numbers:
            shown = [column_names[number] if column_names is not None else number for number in numbers]
            raise ValueError(
                f"expected a partition that holds each of the {n_columns} columns exactly once, "
                f"got columns {problem}: {_shorten(shown)}"
            )
    return columns


def communication_graph(graph: str | nx.Graph, parties: Sequence[Hashable]) -> nx.Graph | None:
    """Return the links between the parties by number, or None for a star.

    A graph's nodes may be the parties' names or 0, ..., N-1. Links from an agent to itself are dropped.
    """
    import networkx as nx

    n_parties = len(parties)
    if isinstance(graph, str):
        if graph not in NAMED_GRAPHS:
            raise ValueError(f"expected graph to be one of {NAMED_GRAPHS} or a networkx.Graph, got {graph!r}")
        if graph == "star":
            return None
        if graph == "complete":
            return nx.complete_graph(n_parties)
        # A ring of one party in networkx has a link from the party to itself.
        return nx.cycle_graph(n_parties) if graph == "ring" and n_parties > 2 else nx.path_graph(n_parties)
    if not isinstance(graph, nx.Graph):
        raise TypeError(f"expected graph to be one of {NAMED_GRAPHS} or a networkx.Graph, got {graph!r}")
    if graph.is_directed():
        raise ValueError("expected links that go both ways, got a directed graph; try graph.to_undirected()")
    number_of = {party: number for number, party in enumerate(parties)}
    if set(graph) != set(number_of):
        if set(graph) != set(range(n_parties)):
            stray = sorted(map(repr, set(graph) - set(number_of)))
            missing = sorted(map(repr, set(number_of) - set(graph)))
            raise ValueError(
                f"expected a graph whose nodes are the {n_parties} parties (or 0, ..., {n_parties - 1}), got "
                f"{len(graph)} nodes: parties without a node: {_shorten(missing)}; nodes without a party: "
                f"{_shorten(stray)}"
            )
        number_of = {number: number for number in range(n_parties)}
    links = nx.Graph()
    links.add_nodes_from(range(n_parties))
    links.add_edges_from((number_of[one], number_of[other]) for one, other in graph.edges() if one != other)
    if not nx.is_connected(links):
        pieces = sorted(nx.connected_components(links), key=len)
        cut_off = [repr(parties[number]) for number in sorted(pieces[0])]
        raise ValueError(
            f"expected a connected graph, got {len(pieces)} separate pieces, the smallest holding "
            f"{_shorten(cut_off)}; add links until every party can reach every other"
        )
    return links


def _as_list(held: Any) -> list[Any]:
    if isinstance(held, str | Integral):
        return [held]
    if isinstance(held, Iterator) or not isinstance(held, Iterable):  # an iterator can be read only once
        raise TypeError(f"expected a party's columns as numbers or names, got {held!r}")
    return list(held)


def _column_number(column: Any, party: Hashable, n_columns: int, names: Mapping[str, int]) -> int:
    if isinstance(column, Integral) and not isinstance(column, bool | np.bool_):
        if not 0 <= int(column) < n_columns:
            raise ValueError(f"expected column numbers from 0 to {n_columns - 1}, got {column} for party {party!r}")
        return int(column)
    if not isinstance(column, str):
        raise TypeError(f"expected columns by number or by name, got {column!r} for party {party!r}")
    if column not in names:
        known = f"the columns are {_shorten(list(names))}" if names else "the table has no column names"
        raise ValueError(f"party {party!r} claims column {column!r}, which is not there: {known}")
    return names[column]


def _shorten(items: Sequence[object], most: int = 8) -> str:
    """Format items as a short text: `a, b, c and 5 more`."""
    text = ", ".join(map(str, items[:most]))
    return text + (f" and {len(items) - most} more" if len(items) > most else "") or "none"
