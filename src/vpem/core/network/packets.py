"""Packets for a start from labels: local clusters of the rows in a few bits, and the distances between clusters.

A packet contains the number of a hub, its number of local clusters, the code of every row in as few bits as possible,
the squared distances between the clusters' centres, and the clusters' spreads. A row that is absent at the hub has
the code after that of the last cluster.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.hubs import HubNumber, Position
from vpem.core.network.sums import WrongMessageError

Array = NDArray[np.float64]
Bytes = NDArray[np.uint8]

MOST_LOCAL = 15
"""Maximum number of local clusters of a hub: with the code for absent rows, they fill four bits."""

ABSENT = MOST_LOCAL
"""Code of a row that is absent at a hub, the same for all hubs once packets are decoded."""

MOST_LABELS = 255
"""Maximum number of labels in the outcome: a label fits a byte, with one more value for rows without a label."""

HEADER = np.dtype([("hub", "<u4"), ("n_local", "u1")])
NUMBER = np.dtype("<f4")
"""Type of distances: single precision is enough for a start."""


class LocalLabels(NamedTuple):
    """Local clustering of the rows by a hub's root."""

    codes: Bytes
    """Shape (n_rows,): local cluster of each row, or `ABSENT`."""
    distances: Array
    """Shape (n_local, n_local): squared distances between local centres, in units of the columns' deviations."""
    spreads: Array
    """Shape (n_local,): mean squared distance of the cluster's rows to its centre."""

    @property
    def n_local(self) -> int:
        """Number of local clusters."""
        return len(self.spreads)


def bits_for(n_codes: int) -> int:
    """Number of bits that encode `n_codes` different codes, at least 1."""
    return max(1, (n_codes - 1).bit_length())


def pack_bits(codes: Bytes, n_bits: int) -> Bytes:
    """Pack codes below 2 ** n_bits in bit planes: the lowest bits of all rows, eight to a byte, then the next."""
    return np.concatenate([np.packbits((codes >> bit) & 1) for bit in range(n_bits)])


def unpack_bits(content: Bytes, n_rows: int, n_bits: int) -> Bytes:
    """Inverse of `pack_bits`."""
    codes = np.zeros(n_rows, dtype=np.uint8)
    for bit, plane in enumerate(content.reshape(n_bits, -1)):
        codes |= np.unpackbits(plane, count=n_rows) << np.uint8(bit)
    return codes


def packed_bytes(n_rows: int, n_codes: int) -> int:
    """Length of packed codes in bytes."""
    return bits_for(n_codes) * ((n_rows + 7) // 8)


def packet_bytes(n_rows: int, n_local: int = MOST_LOCAL) -> int:
    """Length of a packet in bytes."""
    n_numbers = n_local * (n_local - 1) // 2 + n_local
    return HEADER.itemsize + packed_bytes(n_rows, n_local + 1) + NUMBER.itemsize * n_numbers


def encode_packet(hub: int, found: LocalLabels) -> Bytes:
    """Encode a packet."""
    n_local = found.n_local
    header = np.array([(hub, n_local)], dtype=HEADER)
    codes = np.minimum(found.codes, np.uint8(n_local))  # the code of absent rows follows those of the clusters
    numbers = np.concatenate([found.distances[np.triu_indices(n_local, 1)], found.spreads]).astype(NUMBER)
    parts: list[NDArray[Any]] = [header, pack_bits(codes, bits_for(n_local + 1)), numbers]
    return np.concatenate([part.view(np.uint8) for part in parts])


def split_packets(content: Bytes, n_rows: int, sender: Position) -> dict[HubNumber, Bytes]:
    """Split a message into packets by hub; raise WrongMessageError if it contains anything else."""
    found: dict[HubNumber, Bytes] = {}
    start = 0
    while start < len(content):
        header = content[start : start + HEADER.itemsize]
        if len(header) < HEADER.itemsize:
            raise WrongMessageError(sender, f"expected the header of a hub's labels, got {len(header)} bytes")
        hub, n_local = header.view(HEADER)[0].item()
        stop = start + packet_bytes(n_rows, n_local)
        if not 1 <= n_local <= MOST_LOCAL or stop > len(content) or hub in found:
            raise WrongMessageError(
                sender,
                f"expected labels of a hub, once, in 1 to {MOST_LOCAL} local clusters, got hub {hub} with {n_local} "
                f"in {len(content) - start} bytes",
            )
        found[HubNumber(hub)] = content[start:stop]
        start = stop
    return found


def decode_packet(packet: Bytes, n_rows: int, sender: Position) -> LocalLabels:
    """Decode a packet from `split_packets`; raise WrongMessageError if it is invalid."""
    n_local = int(packet[: HEADER.itemsize].view(HEADER)[0]["n_local"])
    n_codes, start = n_local + 1, HEADER.itemsize
    stop = start + packed_bytes(n_rows, n_codes)
    codes = unpack_bits(packet[start:stop], n_rows, bits_for(n_codes))
    if codes.max(initial=0) > n_local:
        raise WrongMessageError(sender, f"expected labels from 0 to {n_local}, got {codes.max()}")
    numbers = packet[stop:].view(NUMBER).astype(np.float64)
    if not (np.isfinite(numbers).all() and (numbers >= 0).all()):
        raise WrongMessageError(sender, "expected distances between local clusters, got numbers that are none")
    distances = np.zeros((n_local, n_local))
    distances[np.triu_indices(n_local, 1)] = numbers[:-n_local]
    codes[codes == n_local] = ABSENT
    return LocalLabels(codes, distances + distances.T, numbers[-n_local:])
