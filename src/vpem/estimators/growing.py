"""Enlarged tables of counts, for fits that continue with new rows whose counts exceed all earlier ones."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from vpem.core.blocks.arrays import Block, Statistics
from vpem.core.blocks.batches import Kept
from vpem.core.blocks.families import MOST_VALUES, Discrete
from vpem.core.blocks.mixed import Mixed
from vpem.core.blocks.structure import Structure, parse_families
from vpem.core.network.parties import Network
from vpem.core.rows import Table, row_chunks
from vpem.simulation.model import Mixture
from vpem.simulation.streams import Stream


def grown_families(texts: Sequence[str], table: Table, names: Sequence[object]) -> tuple[str, ...]:
    """Return families whose tables of counts cover all counts of the new rows.

    Tables grow to twice the necessary size, so that a stream of rising counts does not enlarge them at each call.

    Raises
    ------
    ValueError
        If a value does not belong to its column's family, or a count is too large; the message names the column.
    """
    structure, found = parse_families(tuple(texts)), list(texts)
    largest = np.full(len(texts), -np.inf)
    for rows in row_chunks(0, len(table), len(texts)):
        chunk = np.asarray(table[rows], dtype=np.float64)
        wrong = structure.complaint(chunk, names)
        if wrong is not None:
            raise ValueError(f"row {rows.start + wrong[0]}: {wrong[1]}")
        largest = np.fmax(largest, np.fmax.reduce(chunk, axis=0))
    for part in structure.others:
        size, family = largest[part.column], part.family
        if not isinstance(family, Discrete) or size < family.n_values:
            continue
        if size >= MOST_VALUES:
            raise ValueError(
                f"expected counts below {MOST_VALUES} in column {names[part.column]!r}, whose family is {family}, "
                f"got {size:g}; correct it, leave it empty, or begin a new fit with the column as gaussian or zeros"
            )
        found[part.column] = f"{family.kind}:{min(2 * (size + 1), MOST_VALUES):g}"
    return tuple(found)


def grow_mixture(mixture: Mixture, structures: Sequence[Structure], density: Mixed) -> Mixture:
    """Extend the parameters of a mixture to larger counts."""
    return replace(mixture, blocks=_grown_blocks(mixture.blocks, structures), density=density)


def grow_stream(stream: Stream, structures: Sequence[Structure]) -> Stream:
    """Extend the statistics of a stream to larger counts, which have not occurred in it."""
    overall, kept = stream.overall, stream.kept
    old = [Structure.of(block) for block in overall.blocks]
    overall = replace(
        overall,
        blocks=_grown_blocks(overall.blocks, structures),
        columns=tuple(
            replace(own, families=tuple("gaussian" if one is None else str(one) for one in new.families))
            for own, new in zip(overall.columns, structures, strict=True)
        ),
    )
    if kept is not None:
        grown = tuple(_grown_statistics(*three) for three in zip(kept.statistics, old, structures, strict=True))
        kept = Kept(kept.counts, kept.entropy, grown)
    return replace(stream, overall=overall, kept=kept)


def _grown_blocks(blocks: Sequence[Block], structures: Sequence[Structure]) -> tuple[Block, ...]:
    """Return blocks with other structures; no parameter depends on the number of counted values."""
    pairs = zip(blocks, structures, strict=True)
    return tuple(Block(**{**block.arrays, "structure": structure.array()}) for block, structure in pairs)


def _grown_statistics(statistics: Statistics, old: Structure, new: Structure) -> Statistics:
    others = np.zeros((len(statistics.others), sum(part.family.n_statistics for part in new.others)))
    for before, after in zip(old.others, new.others, strict=True):
        start = after.statistics.start
        others[:, start : start + before.family.n_statistics] = statistics.others[:, before.statistics]
    return Statistics(**{**statistics.arrays, "others": others})


def block_structures(density: Mixed, network: Network) -> list[Structure]:
    """Structure of each hub's block."""
    return [parse_families(density.families_of(hub.members)) for hub in network.named_hubs()]


def party_families(
    texts: Sequence[str], parties: Mapping[Hashable, Sequence[int]]
) -> tuple[tuple[Hashable, ...], ...]:
    """Tuples of each party's name and the families of its columns."""
    return tuple((party, *(texts[column] for column in own)) for party, own in parties.items())
