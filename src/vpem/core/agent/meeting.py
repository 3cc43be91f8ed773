"""The meeting: agents that know only their neighbours discover all others, and derive their roles.

Each agent floods a record of itself. After as many rounds as the diameter of the graph, every agent has every record.
An agent has all of them when no record names a neighbour whose own record is missing, so it need not know the number
of agents beforehand. From the records and the agreement, each agent computes the same hubs, the same weights and its
own role.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from vpem.core.agent.message import AgentNumber
from vpem.core.decisions.initial import HUB_TIES, shared_generator
from vpem.core.network.graph import diameter, hop_distances
from vpem.core.network.hubs import Position
from vpem.core.network.parties import SERVER, Network, make_network
from vpem.core.network.summation import Summation, greet
from vpem.core.network.sums import MOST_GREETING
from vpem.core.network.traffic import Sending, Traffic, make_traffic
from vpem.core.settings import Agreement

if TYPE_CHECKING:
    import networkx as nx

MOST_COLUMNS = 10_000
"""Maximum number of columns of one party."""

MOST_AGENTS = 10_000
"""Maximum number of agents in one study."""

MOST_PROOF = 8192
"""Maximum length in bytes of the signature of a record, including certificates."""

Count = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class Record(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Description of an agent that it floods to all others in a meeting."""

    number: Count
    name: Annotated[str, msgspec.Meta(max_length=200)]
    neighbours: tuple[Count, ...]
    """Numbers of its neighbours, in ascending order."""
    n_rows: Count
    """Number of rows; 0 for a server."""
    n_columns: Annotated[int, msgspec.Meta(ge=0, le=MOST_COLUMNS)]
    most_hops: Count
    """Maximum number of hops that its columns may travel."""
    digest: Annotated[str, msgspec.Meta(max_length=16)]
    """Digest of the agreement."""
    newest: Count = 0
    oldest: Count = 0
    """Latest checkpoint that it has, and (`oldest`) the earlier of its last two, not counting the beginning (0)."""
    model: Count = 0
    """Checkpoint at the end of the fit; 0 if it has no model."""
    n_met: Count = 0
    """Number of agents in its last meeting; 0 if this is the first."""
    n_members: Count = 0
    """Number of agents in its first meeting; 0 if this is the first."""
    abandoned: tuple[Count, ...] = ()
    """Neighbours that it has given up."""
    consents: tuple[Count, ...] = ()
    """Agents, neighbours or not, without which it consents to continue."""
    greeting: Annotated[bytes, msgspec.Meta(max_length=MOST_GREETING)] = b""
    """Greeting of its summation, such as a public key."""
    proof: Annotated[bytes, msgspec.Meta(max_length=MOST_PROOF)] = b""
    """Signature of the agent over the other fields; see `Credentials`."""


class Credentials(Protocol):
    """Signing and verification of records, with keys that the core never sees."""

    @property
    def everybody(self) -> Sequence[str]:
        """Names of all agents of the study, by number."""

    @property
    def study(self) -> str:
        """Name of the study and all its settings; signatures from another study are invalid in this one."""

    def sign(self, content: bytes) -> bytes:
        """Return this agent's signature of the content."""

    def verify(self, name: str, content: bytes, proof: bytes) -> None:
        """Raise ValueError unless the proof is the signature of the named agent over the content."""


def signed_content(record: Record, epoch: int, study: str) -> bytes:
    """Return the bytes that the proof of a record signs: the study, the epoch, and all other fields."""
    return b"vpem record" + msgspec.msgpack.encode((study, epoch, msgspec.structs.replace(record, proof=b"")))


class MeetingError(ValueError):
    """Error that prevents agents from working together; all of them detect it."""


def encode_records(records: Iterable[Record]) -> NDArray[np.uint8]:
    """Encode records, in the order of their numbers, as the bytes of a message."""
    ordered = sorted(records, key=lambda record: record.number)
    return np.frombuffer(msgspec.msgpack.encode(ordered), dtype=np.uint8)


def decode_records(content: NDArray[np.uint8]) -> list[Record]:
    """Inverse of `encode_records`; raise ValueError if the bytes are not valid records."""
    return msgspec.msgpack.decode(content.tobytes(), type=list[Record])


def is_complete(records: Mapping[int, Record]) -> bool:
    """True if the record of every named neighbour is present."""
    return records.keys() >= set().union(*(record.neighbours for record in records.values()))


def n_meeting_rounds(records: Mapping[int, Record]) -> int:
    """Number of rounds in which all records reach all agents."""
    import networkx as nx

    links = nx.Graph((number, other) for number, record in records.items() for other in record.neighbours)
    return diameter(links) if len(links) else 0


def common_checkpoint(records: Mapping[int, Record]) -> int:
    """Number of the last checkpoint that all agents have.

    Agents take checkpoints before exchanges whose decisions reach every agent, so no agent can be more than one
    checkpoint ahead. If an agent was restored from an older state, all roll back to the end of the fit, if all have
    reached it, or else to the beginning (0). They also roll back to the beginning if an agent left during the fit.
    """
    everybody = records.values()
    newest = min(record.newest for record in everybody)
    model = min(record.model for record in everybody)
    if somebody_has_gone(records) and model == 0:
        return 0
    return newest if newest >= max(record.oldest for record in everybody) else model


def somebody_has_gone(records: Mapping[int, Record]) -> bool:
    """True if this meeting has fewer agents than the last one."""
    return any(record.n_met > len(records) for record in records.values())


def check_members(records: Mapping[int, Record], members: Mapping[int, Record]) -> None:
    """Raise MeetingError if an agent is missing that was not given up, or if an agent differs from its first record.

    Parameters
    ----------
    records : mapping
        Records of this meeting.
    members : mapping
        Records of the first meeting; empty if this is the first.
    """
    for number, record in records.items() if members else ():
        known = members.get(number)
        if known is None or known != msgspec.structs.replace(bare_records([record])[0], neighbours=known.neighbours):
            raise MeetingError(
                f"expected the agents of the first meeting as they were, got {record.name!r} as another; begin a new "
                "study with it"
            )
    abandoned = sorted({number for record in records.values() for number in record.abandoned})
    n_members = max(record.n_members for record in records.values())
    if abandoned and n_members == 0:
        raise MeetingError(
            f"agents {abandoned} were given up before all had met, so no agent can know who else is missing; begin a "
            "new study without them"
        )
    n_missing = n_members - len(records) - len(abandoned)
    if n_members and n_missing > 0:
        raise MeetingError(
            f"{n_missing} agents cannot be reached without agents {abandoned}: the network has fallen apart"
        )
    if n_members and n_missing < 0:
        raise MeetingError(f"expected the {n_members} agents of the first meeting, got {len(records)} agents")


def held_up(records: Mapping[int, Record], everybody: Sequence[str]) -> str | None:
    """Return a text that names the agents whose consent is missing; None if all have consented.

    Where sums are masked, the report of an agent's neighbours is not enough: a server that hides more and more
    parties would see sums of fewer and fewer. Records are signed together with the epoch, so that a server cannot
    consent for others. The list of all agents, `everybody`, is part of the study. It is used in the first meeting as
    well, because a server could claim that the first meeting is a later one.
    """
    abandoned = {number for record in records.values() for number in record.abandoned}
    gone = {number: name for number, name in enumerate(everybody) if number in abandoned and number not in records}
    against = [record.name for _, record in sorted(records.items()) if not gone.keys() <= set(record.consents)]
    if not gone or not against:
        return None
    options = " ".join(f"--without {name}" for name in gone.values())
    return f"waiting until all agree to go on without {', '.join(gone.values())}: {', '.join(against)} need {options}"


def check_names(records: Mapping[int, Record], everybody: Sequence[str]) -> None:
    """Raise MeetingError unless all agents of the study except those given up have met, with the right numbers."""
    abandoned = {number for record in records.values() for number in record.abandoned}
    found = {number: record.name for number, record in records.items()}
    if found != {number: name for number, name in enumerate(everybody) if number in found or number not in abandoned}:
        raise MeetingError(f"expected the agents of the study, {', '.join(everybody)}, got {found}")


@dataclass(frozen=True, eq=False)
class Roles:
    """Network and roles that every agent derives from a meeting.

    Agents have *positions* here: the parties 0, ..., N-1 in the order of their numbers, then the server of a star.
    """

    numbers: tuple[AgentNumber, ...]
    """Number of the agent at each position."""
    network: Network
    n_rows: int
    agreement: Agreement
    gone: tuple[int, ...] = ()
    """Numbers of the agents that are absent; see `vpem.core.agent.identity.Identity.gone`."""

    @cached_property
    def position_of(self) -> dict[AgentNumber, Position]:
        """Position of each agent, by number."""
        return dict(zip(self.numbers, self.network.positions, strict=True))


def bare_records(records: Iterable[Record]) -> tuple[Record, ...]:
    """Return the records, in the order of their numbers, without the fields that change between meetings."""
    progress: dict[str, Any] = {"newest": 0, "oldest": 0, "model": 0, "n_met": 0, "n_members": 0}
    progress |= {"abandoned": (), "consents": ()}
    ordered = sorted(records, key=lambda record: record.number)
    return tuple(msgspec.structs.replace(record, **progress, greeting=b"", proof=b"") for record in ordered)


def find_roles(records: tuple[Record, ...], agreement: Agreement) -> Roles:
    """Check that the agents can work together, and derive their roles from bare records.

    Raises
    ------
    MeetingError
        If they cannot; the text is the same for all agents.
    """
    import networkx as nx

    parties = [record for record in records if record.n_columns > 0]
    others = [record for record in records if record.n_columns == 0]
    first = records[0]
    for record in records:
        if record.digest != first.digest:
            raise MeetingError(
                f"expected the same agreement everywhere, got others from {first.name!r} and {record.name!r}; "
                "compare their settings, seed and summation"
            )
    if not parties:
        raise MeetingError("expected parties with columns, got none")
    names = [record.name for record in records]
    if len(set(names)) < len(names):
        raise MeetingError(f"expected a different name for each agent, got {', '.join(map(repr, sorted(names)))}")
    for record in parties:
        if record.n_rows != parties[0].n_rows:
            raise MeetingError(
                f"expected the same rows at every party, got {parties[0].n_rows} from {parties[0].name!r} and "
                f"{record.n_rows} from {record.name!r}; a row that a party lacks is a row of gaps (NaN)"
            )
    ordered = [*parties, *others]
    positions = {record.number: position for position, record in enumerate(ordered)}
    links = nx.Graph()
    links.add_nodes_from(range(len(ordered)))
    for record in records:
        for neighbour in record.neighbours:
            other = ordered[positions[neighbour]]
            if record.number not in other.neighbours:
                raise MeetingError(
                    f"expected links that go both ways, got one from {record.name!r} to {other.name!r} only"
                )
            links.add_edge(positions[record.number], positions[neighbour])
    network = _find_network(parties, others, links, agreement)
    roles = Roles(tuple(AgentNumber(record.number) for record in ordered), network, parties[0].n_rows, agreement)
    for position, path in sorted(network.paths.items()):
        if len(path) - 1 > ordered[position].most_hops:
            raise MeetingError(
                f"party {ordered[position].name!r} refuses: its columns would travel {len(path) - 1} hops to "
                f"{ordered[path[0]].name!r}, and it allows {ordered[position].most_hops}; try a smaller hops, or ask "
                "the party"
            )
    return roles


def _find_network(parties: list[Record], others: list[Record], links: nx.Graph, agreement: Agreement) -> Network:
    """Return the network that a simulation would use; columns are numbered party by party."""
    ends = np.cumsum([record.n_columns for record in parties])
    columns: dict[Hashable, list[int]] = {
        record.name: list(range(end - record.n_columns, end))
        for record, end in zip(parties, ends.tolist(), strict=True)
    }
    is_star = agreement.summation.has_server
    if is_star:
        spokes = {(position, len(parties)) for position in range(len(parties))}
        if len(others) != 1 or {(min(link), max(link)) for link in links.edges} != spokes:
            raise MeetingError(
                "expected a star, one agent without columns linked to every party and no other links, got "
                f"{len(others)} agents without columns and {links.number_of_edges()} links"
            )
    elif others:
        raise MeetingError(
            f"expected columns at every agent, got none from {others[0].name!r}; try Star(), or leave it out"
        )
    try:
        network = make_network(
            columns, "star" if is_star else links, agreement.hops, shared_generator(agreement.seed, HUB_TIES)
        )
        agreement.summation.check(network)
    except ValueError as error:
        raise MeetingError(str(error)) from None
    return network


def make_records(
    network: Network, n_rows: int, agreement_digest: str, most_hops: int, summation: Summation | None = None
) -> list[Record]:
    """Return the records that the agents of a network would send."""
    links = network.links
    server = len(network.parties)
    return [
        Record(
            number=number,
            name=SERVER if number == server else str(network.parties[number]),
            neighbours=tuple(sorted(links[number])),
            n_rows=0 if number == server else n_rows,
            n_columns=0 if number == server else len(network.columns[number]),
            most_hops=0 if number == server else most_hops,
            digest=agreement_digest,
            greeting=b"" if summation is None else greet(summation)[0],
        )
        for number in range(len(network.agents))
    ]


def meeting_traffic(network: Network, n_rows: int, hops: int, summation: Summation | None = None) -> Traffic:
    """Traffic of a meeting, in which every agent passes on, in each round, the records it received in the last."""
    links = network.links
    records = make_records(network, n_rows, "0" * 16, hops, summation)
    agents, distances = list(links), hop_distances(links)
    n_rounds = int(distances.max())
    sendings = []
    for sender, away in zip(agents, distances, strict=True):
        for passed in range(n_rounds):
            learnt = [records[agents[place]] for place in np.flatnonzero(away == passed)]
            n_bytes = len(encode_records(learnt))
            sendings += [Sending(sender, receiver, 1, n_bytes) for receiver in links[sender]]
    return make_traffic(network.agents, sendings, n_rounds)
