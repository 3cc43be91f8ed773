"""What parties say of their rows for a start: labels of local clusters in a few bits, and how far these are apart.

A packet is a hub's number and its number of local clusters, the code of every row in as few bits as will do, the
squared distances between the clusters' centres, and the clusters' spreads. A row of which the hub has nothing has the
code that comes after the last cluster's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.hubs import HubNumber, Position
from vpem.core.network.summation import WrongMessageError

Array = NDArray[np.float64]
Bytes = NDArray[np.uint8]

MOST_LOCAL = 15
"""Local clusters of a hub: with the code for absent rows, they fill four bits."""

ABSENT = MOST_LOCAL
"""Code of a row of which a hub has nothing, at every hub once packets are read."""

MOST_LABELS = 255
"""Labels of the outcome: each fits a byte, and one value more says that there is none."""

HEADER = np.dtype([("hub", "<u4"), ("n_local", "u1")])
NUMBER = np.dtype("<f4")
"""Distances guide a start: single precision will do."""


class LocalLabels(NamedTuple):
    """What a hub's root says of its rows."""

    codes: Bytes
    """(n_rows,): local cluster of each row, or `ABSENT`."""
    distances: Array
    """(n_local, n_local): squared, between the centres of local clusters; in units of the columns' deviations."""
    spreads: Array
    """(n_local,): mean squared distance of the cluster's rows to its centre."""

    @property
    def n_local(self) -> int:
        """Number of local clusters."""
        return len(self.spreads)


def bits_for(n_codes: int) -> int:
    """Bits that tell so many codes apart; at least one."""
    return max(1, (n_codes - 1).bit_length())


def pack_bits(codes: Bytes, n_bits: int) -> Bytes:
    """Codes below 2 ** n_bits as planes of single bits: all rows' lowest bits, eight to a byte, then the next."""
    return np.concatenate([np.packbits((codes >> bit) & 1) for bit in range(n_bits)])


def unpack_bits(content: Bytes, n_rows: int, n_bits: int) -> Bytes:
    """Inverse of `pack_bits`."""
    codes = np.zeros(n_rows, dtype=np.uint8)
    for bit, plane in enumerate(content.reshape(n_bits, -1)):
        codes |= np.unpackbits(plane, count=n_rows) << np.uint8(bit)
    return codes


def packed_bytes(n_rows: int, n_codes: int) -> int:
    """Length of packed codes."""
    return bits_for(n_codes) * ((n_rows + 7) // 8)


def packet_bytes(n_rows: int, n_local: int = MOST_LOCAL) -> int:
    """Length of a packet."""
    n_numbers = n_local * (n_local - 1) // 2 + n_local
    return HEADER.itemsize + packed_bytes(n_rows, n_local + 1) + NUMBER.itemsize * n_numbers


def encode_packet(hub: int, found: LocalLabels) -> Bytes:
    """A packet as bytes."""
    n_local = found.n_local
    header = np.array([(hub, n_local)], dtype=HEADER)
    codes = np.minimum(found.codes, np.uint8(n_local))  # the code for absent rows comes right after the clusters'
    numbers = np.concatenate([found.distances[np.triu_indices(n_local, 1)], found.spreads]).astype(NUMBER)
    parts: list[NDArray[Any]] = [header, pack_bits(codes, bits_for(n_local + 1)), numbers]
    return np.concatenate([part.view(np.uint8) for part in parts])


def split_packets(content: Bytes, n_rows: int, sender: Position) -> dict[HubNumber, Bytes]:
    """Packets in one message, by hub; WrongMessageError if it holds anything else."""
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
    """Inverse of `encode_packet`, of a packet that `split_packets` has found; WrongMessageError if it is wrong."""
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
