"""Links of a study, given as the name of a shape or as pairs of parties."""

from __future__ import annotations

from typing import Any

from vpem.reading.problems import unknown
from vpem.studies.fields import Fields

LINKS = ("star", "tree", "ring", "path", "complete")


def named_links(value: Any) -> str | list[list[str]]:
    """Validate links: return the name of a shape or pairs of names; raise ValueError for anything else."""
    pairs = isinstance(value, list) and value
    if pairs and all(
        isinstance(link, list) and len(link) == 2 and all(isinstance(e, str) for e in link) for link in value
    ):
        return list(value)
    if not isinstance(value, str) or value not in LINKS:
        raise ValueError(f'expected one of {", ".join(LINKS)}, or pairs of parties as [["north", "south"]]')
    return value


def drawn_links(shape: str, n_parties: int) -> tuple[tuple[int, int], ...]:
    """Return the links of a shape. A tree is a complete binary tree, in the order of the parties."""
    path = [(number, number + 1) for number in range(n_parties - 1)]
    drawn = {
        "tree": [((number - 1) // 2, number) for number in range(1, n_parties)],
        "path": path,
        "ring": [*path, (0, n_parties - 1)] if n_parties > 2 else path,
        "complete": [(one, other) for one in range(n_parties) for other in range(one + 1, n_parties)],
    }
    return tuple(drawn.get(shape, ()))


def listed_links(found: Fields, links: list[list[str]], names: list[str]) -> tuple[tuple[int, int], ...]:
    """Return links from pairs of names, and add a problem to `found` for each invalid pair or unconnected party."""
    place, pairs = ("network", "links"), set()
    for one, other in links:
        texts = [
            text for end in (one, other) if (text := unknown(end, names, "network.links: the party")) is not None
        ]
        for text in texts:
            found.add(place, text)
        if one == other:
            found.add(place, f"network.links: expected two different parties, got {one!r} twice")
        elif not texts:
            ends = sorted((names.index(one), names.index(other)))
            pairs.add((ends[0], ends[1]))
    reached = {0}
    for _ in names:
        reached |= {end for pair in pairs for end in pair if reached & set(pair)}
    apart = [name for number, name in enumerate(names) if number not in reached]
    if apart and not any("network.links" in text for _, text in found.problems):
        found.add(
            place,
            f"network.links: expected links that join all parties, got {', '.join(apart)} apart from {names[0]}",
        )
    return tuple(sorted(pairs))
