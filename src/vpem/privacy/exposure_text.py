"""Text that explains what each agent of a study can see, derived from the schedule that the agents will follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vpem.core.blocks.mixed import Mixed
from vpem.core.network.hubs import Position
from vpem.core.network.parties import Network
from vpem.core.network.summation import Summation
from vpem.core.settings import Agreement
from vpem.privacy.exposure import seen_alone, seen_together, sightings
from vpem.privacy.ids import RULES
from vpem.privacy.masks import LEAST


class Rows(NamedTuple):
    """Method by which the parties find their common rows."""

    way: str
    """"tokens" or "digests"."""
    join: str = "inner"
    rule: str = "text"
    matcher: str = ""


class Section(NamedTuple):
    """Heading and sentences of a section."""

    heading: str
    sentences: list[str]


def explain(agreement: Agreement, network: Network, names: Sequence[str], rows: Rows | None = None) -> list[Section]:
    """Return sections for a data protection officer: in general, for each agent, and the remaining attacks.

    Parameters
    ----------
    agreement : Agreement
    network : Network
    names : sequence of str
        Names of all agents, by position.
    rows : Rows, optional
        Method by which rows are matched; None if they are not.
    """
    found = [Section("In general", _in_general(agreement, network))]
    if rows is not None:
        found.append(Section("Finding the common rows", _about_rows(rows, names, _is_counted(agreement, network))))
    found += [
        Section(names[position], _about_agent(agreement, network, names, position)) for position in network.positions
    ]
    found.append(Section("What remains possible", _attacks(agreement, network, rows)))
    return found


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _in_general(agreement: Agreement, network: Network) -> list[str]:
    way = agreement.summation
    found = ["Every agent learns the names of all agents, their links, and how many rows and columns each party has."]
    if network.depth > 0:
        found.append("Columns are pooled: some parties send their columns, as they are, to another one (below).")
    else:
        found.append("No column leaves its party.")
    found.append(
        "Every party learns, for each row and in every iteration, the sum over all parties of their log-densities "
        "(up to a number that is the same for all components), and so the probability of each component for the row; "
        "the components' weights; and how well the model fits."
    )
    if way.is_masked:
        found += _about_masks(way, network)
    else:
        found.append("Terms are not masked: what each agent can read is listed below.")
    if _has_families(agreement):
        found.append(
            "Each party decides on the families of its own columns. These, the names of categories and the names of "
            "columns stay with it."
        )
    if agreement.init_params == "labels":
        found.append("The start sends each row's label among a party's own clusters to one agent, readable.")
    return found


def _called(network: Network) -> str:
    """Return the word for those that add terms."""
    return "hubs" if network.depth > 0 else "parties"


def _about_masks(way: Summation, network: Network) -> list[str]:
    called, n_blocks = _called(network), len(network.hubs)
    found = [
        f"Terms travel under masks: an agent can read a sum only when the terms of all {n_blocks} {called} are in it."
    ]
    if least := way.least_holders(network):
        found.append(
            f"The {called} first count how many of them have each row. All agents learn these numbers. Rows that "
            f"fewer than {least} have are left out."
        )
        if least < LEAST:
            found.append(
                f"The study accepts that each of two {called} CAN read the other's terms in rows that only they have."
            )
        if way.refuses_repeats:
            found.append(
                "Each party remembers which rows were added, by salted digests of their ids, and refuses a "
                "prediction in which they have other holders."
            )
        else:
            found.append(
                "The study accepts that rows are added again with other parties: the difference of two such sums is "
                "a party's own terms."
            )
    found.append("Decisions (when to stop, which rows begin a component, what is broken) are not masked.")
    found.append("The others go on without a party only if all that remain have signed that they agree.")
    return found


def _has_families(agreement: Agreement) -> bool:
    return isinstance(agreement.settings.density, Mixed)


def _about_rows(rows: Rows, names: Sequence[str], counted: bool) -> list[str]:
    if rows.way != "tokens":
        return [
            "Every party computes a digest of each id with a secret that all parties share, and sends one digest of "
            "all of them. The parties learn whether their rows are the same, and nothing else of the ids."
        ]
    found = [
        f"Ids are compared as tokens to which every party adds a secret of its own; the rule for ids is "
        f"{rows.rule!r}: {RULES[rows.rule]}.",
        "All agents learn how many rows each party has, and how many are common.",
    ]
    if rows.join == "inner":
        found.append("Each party learns which of its own rows all parties have; not who has its other rows.")
    else:
        how_many = "; how many others have them, it learns from the counts under masks" if counted else ""
        found.append(
            "Each party learns how many rows the union has, and which of them are its own; not who else has "
            f"them{how_many}."
        )
    seen = "which tokens which party has" + (", so who lacks which row" if rows.join == "outer" else "")
    is_party = rows.matcher in names and rows.matcher != "server"
    found.append(
        f"{rows.matcher} is the matcher: it sees {seen}. "
        + (
            "It learns for each of its own ids which parties have it, and no ids of others."
            if is_party
            else "It sees no id."
        )
    )
    return found


def _is_counted(agreement: Agreement, network: Network) -> bool:
    """True if all agents learn how many parties have each row."""
    return agreement.summation.least_holders(network) > 1


def _about_agent(agreement: Agreement, network: Network, names: Sequence[str], position: Position) -> list[str]:
    """Return sentences about what one agent can and cannot see."""
    way, roots = agreement.summation, [hub.root for hub in network.hubs]
    found = []
    below = [names[one] for one, path in sorted(network.paths.items()) if position in path[:-1] and len(path) > 1]
    if below:
        found.append(f"It gets the columns of {_listed(below)}, as they are.")
    path = network.paths.get(position, ())
    if len(path) > 1:
        found.append(f"It sends its columns, as they are, to {names[path[0]]}, which adds for it.")
    alone = seen_alone(way, network, position)
    if alone:
        shown = _listed([names[one] for one in alone])
        found.append(
            f"It CAN read the own terms of {shown}, for each row and component, in every iteration: from these a "
            "party's columns can be reconstructed (one column from one sum)."
        )
    hidden = [names[root] for root in roots if root not in alone and root != position]
    if hidden:
        parts = sorted({len(one.blocks) for one in _read(way, network, position) if len(one.blocks) < len(roots)})
        how = (
            f"sums of {_listed([str(part) for part in parts])} and of all {_called(network)}"
            if parts
            else f"the sum of all {_called(network)}"
        )
        verb = "It CANNOT read" if not alone else "It cannot read"
        found.append(f"{verb} the own terms of {_listed(hidden)}: it sees {how}.")
    return found or ["It sees the sum of all parties."]


def _read(way: Summation, network: Network, position: Position) -> list:  # type: ignore[type-arg]
    return [one for one in sightings(way, network) if one.receiver == position and one.readable]


def _attacks(agreement: Agreement, network: Network, rows: Rows | None) -> list[str]:
    way, n_blocks = agreement.summation, len(network.hubs)
    found = []
    if way.is_masked and n_blocks >= LEAST:
        few = next(
            size
            for size in range(1, n_blocks)
            if seen_together(way, network, [hub.root for hub in network.hubs[:size]])
        )
        found.append(
            f"{few} {_called(network)} that tell each other what they see can work out the terms of the remaining "
            "one."
        )
    if n_blocks >= LEAST:
        found.append(
            "Sums are repeated: over a whole fit, the total of the others is many equations for each row. With few "
            "parties of few columns, a party that knows some rows of another can estimate the rest well (the table "
            "of repeated sums in vpem docs privacy). More parties, more columns and fewer iterations make it harder."
        )
    if n_blocks == 2:
        found.append("Two parties: each can subtract its own terms from the sum, and has the other's.")
    if _has_families(agreement):
        found.append(
            "A column of categories takes few values, and so do the terms of parties whose columns are all such: an "
            "agent that can read a term, or a total of few of them, can tell which rows have the same category, "
            "though not its name (vpem docs privacy). Masks do not end this if the total of all parties takes few "
            "values; a Gaussian column in the total does."
        )
    found.append(
        "A party that lies about its terms can spoil the model, and is not noticed"
        + (" as long as they could be some party's." if way.is_masked else ".")
    )
    found.append("Results compared between two fits that differ by one party tell about that party.")
    if rows is not None and rows.way == "tokens":
        found.append(
            "A party can test whether guessed ids are among the others' rows by putting them on its own list."
        )
    found.append("That a row takes part is known to every party that has it. The model itself may tell about rows.")
    return found
