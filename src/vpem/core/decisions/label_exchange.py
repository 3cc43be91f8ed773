"""A start from labels: one small message up the tree from each party, and one down.

Roots send the labels of local clusters, packed to bits, to the server of a star or up a spanning tree. The agent at
the top computes one label for each row from all of them, and broadcasts the labels: every agent gets the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.decisions.cells import NO_LABEL, label_rows
from vpem.core.network.around import default_summation
from vpem.core.network.hubs import HubNumber, Position
from vpem.core.network.packets import (
    Bytes,
    bits_for,
    decode_packet,
    pack_bits,
    packed_bytes,
    packet_bytes,
    split_packets,
    unpack_bits,
)
from vpem.core.network.parties import Network
from vpem.core.network.summation import Summation
from vpem.core.network.sums import (
    LABELS,
    NO_MEMORY,
    Array,
    Memory,
    Payload,
    Place,
    Round,
    Shape,
    WrongMessageError,
)

NOTHING: Bytes = np.empty(0, dtype=np.uint8)


@dataclass(frozen=True)
class Labels(Summation):
    """Labels of rows, computed with the message schedule of a sum: packets are joined up the tree, labels sent down.

    A term is a hub's packet (`vpem.core.network.packets`); the result has one label for each row. The shape contains
    the numbers of rows and hubs.
    """

    n_clusters: int
    seed: int
    """Seed of the clustering at the top."""

    @property
    def is_common(self) -> bool:
        """True: all agents get the same labels."""
        return True

    def schedule(
        self,
        network: Network,
        position: Position,
        *,
        values: bool,
        decision: bool,
        audience: frozenset[Position] | None = None,  # noqa: ARG002 (all need a start)
    ) -> list[Round[Position]]:
        """Rounds of the sum in a star or a tree."""
        parts = default_summation(network).schedule(network, position, values=values, decision=decision)
        return [part._replace(kind=LABELS) for part in parts]

    def payload(self, network: Network | None, shape: Shape) -> Payload:  # noqa: ARG002 (the shape says it)
        """Payload of at most all hubs' packets, or the labels."""
        most = max(shape.width * packet_bytes(shape.n_rows), packed_bytes(shape.n_rows, self.n_clusters + 1))
        return Payload(most, "u1", is_fixed=False)

    def begin(self, place: Place, carry: Memory, term: NDArray[Any] | None) -> Memory:  # noqa: ARG002 (nothing to carry)
        """Return the state with a root's packet; a single agent has all packets already, and computes the labels."""
        packets = NOTHING if term is None else term
        return {"values": self._label(place, packets) if len(place.network.positions) == 1 else packets}

    def combine(self, place: Place, step: int, state: Memory, received: Mapping[Position, NDArray[Any]]) -> Memory:
        """Join packets on the way up, and compute labels at the top; accept the labels on the way down."""
        network = place.network
        tree, brought = default_summation(network).tree(network), network.remember(Labels, packets_of)
        if step >= tree.depth:
            ((sender, labels),) = received.items()
            self._unpack(place, labels, sender)
            return {"values": labels}
        packets = split_packets(state["values"], place.shape.n_rows, place.position)
        for sender, content in received.items():
            own = split_packets(content, place.shape.n_rows, sender)
            if own.keys() != brought[sender]:
                hubs = f"{sorted(brought[sender])}, got {sorted(own)}"
                raise WrongMessageError(sender, f"expected the local labels of hubs {hubs}")
            for packet in own.values():
                decode_packet(packet, place.shape.n_rows, sender)
            packets |= own
        joined = np.concatenate([NOTHING, *(packets[hub] for hub in sorted(packets))])
        return {"values": self._label(place, joined) if place.position == tree.top else joined}

    def end(self, place: Place, state: Memory) -> tuple[Array, Memory]:
        """One label for each row, (n_rows,); `NO_LABEL` for rows that no hub has."""
        labels = self._unpack(place, state["values"], place.position).astype(np.float64)
        labels[labels == self.n_clusters] = NO_LABEL
        return labels, NO_MEMORY

    def _label(self, place: Place, packets: Bytes) -> Bytes:
        """Compute the packed labels of all rows from all hubs' packets."""
        n_rows, position = place.shape.n_rows, place.position
        found = split_packets(packets, n_rows, position)
        local = [decode_packet(found[hub], n_rows, position) for hub in sorted(found)]
        n_columns = [len(held) for held in place.network.block_columns]
        labels = label_rows(local, n_columns, self.n_clusters, self.seed)
        labels[labels == NO_LABEL] = self.n_clusters
        return pack_bits(labels.astype(np.uint8), bits_for(self.n_clusters + 1))

    def _unpack(self, place: Place, packed: Bytes, sender: Position) -> Bytes:
        """Unpack labels from bits; rows without a label have the number of clusters."""
        n_rows, n_codes = place.shape.n_rows, self.n_clusters + 1
        if len(packed) != packed_bytes(n_rows, n_codes):
            problem = f"expected labels in {packed_bytes(n_rows, n_codes)} bytes, got {len(packed)}"
            raise WrongMessageError(sender, problem)
        labels = unpack_bits(packed, n_rows, bits_for(n_codes))
        if labels.max() >= n_codes:
            raise WrongMessageError(sender, f"expected labels from 0 to {self.n_clusters}, got {labels.max()}")
        return labels


def packets_of(network: Network) -> dict[Position, frozenset[HubNumber]]:
    """Hubs whose packets each agent sends up the tree: its own, and those of all agents below it."""
    found = {position: frozenset[HubNumber]() for position in network.positions}
    found |= {hub.root: frozenset({HubNumber(number)}) for number, hub in enumerate(network.hubs)}
    tree = default_summation(network).tree(network)
    for position in sorted(tree.above, key=lambda position: -tree.levels[position]):
        found[tree.above[position]] |= found[position]
    return found
