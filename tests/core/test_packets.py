"""Local labels as bytes: nothing is lost, and what is wrong is blamed on its sender."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import examples
from vpem.core.network.packets import (
    ABSENT,
    HEADER,
    MOST_LOCAL,
    LocalLabels,
    bits_for,
    decode_packet,
    encode_packet,
    pack_bits,
    packed_bytes,
    packet_bytes,
    split_packets,
    unpack_bits,
)
from vpem.core.network.sums import WrongMessageError


def local(seed, n_rows, n_local):
    """Labels of random clusters; numbers that single precision holds."""
    rng = np.random.default_rng(seed)
    codes = rng.choice([*range(n_local), ABSENT], n_rows).astype(np.uint8)
    distances = np.triu(rng.integers(1, 100, (n_local, n_local)) / 4, 1)
    return LocalLabels(codes, distances + distances.T, rng.integers(0, 9, n_local) / 8)


@examples(100)
@given(n_codes=st.integers(1, 256), n_rows=st.integers(1, 70), seed=st.integers(0, 99))
def test_bits_lose_nothing_and_are_as_few_as_can_be(n_codes, n_rows, seed):
    codes = np.random.default_rng(seed).integers(n_codes, size=n_rows).astype(np.uint8)
    n_bits = bits_for(n_codes)
    assert 2**n_bits >= n_codes
    assert n_bits == 1 or 2 ** (n_bits - 1) < n_codes
    packed = pack_bits(codes, n_bits)
    assert len(packed) == packed_bytes(n_rows, n_codes)
    np.testing.assert_array_equal(unpack_bits(packed, n_rows, n_bits), codes)


@examples(60)
@given(n_rows=st.integers(1, 40), sizes=st.lists(st.integers(1, MOST_LOCAL), min_size=1, max_size=4))
def test_packets_lose_nothing(n_rows, sizes):
    sent = {hub: local(hub, n_rows, n_local) for hub, n_local in enumerate(sizes)}
    packets = [encode_packet(hub, own) for hub, own in sent.items()]
    assert [len(packet) for packet in packets] == [packet_bytes(n_rows, n_local) for n_local in sizes]
    found = split_packets(np.concatenate(packets), n_rows, 3)
    assert list(found) == list(sent)
    for hub, own in sent.items():
        for got, expected in zip(decode_packet(found[hub], n_rows, 3), own, strict=True):
            np.testing.assert_array_equal(got, expected)


def read_all(content):
    return [decode_packet(own, 20, 3) for own in split_packets(content, 20, 3).values()]


def test_what_is_not_a_packet_is_blamed_on_its_sender():
    packet = encode_packet(2, local(0, 20, 2))
    wrong_count = packet.copy()
    wrong_count[4] = MOST_LOCAL + 1
    wrong_code = packet.copy()
    wrong_code[HEADER.itemsize :][: packed_bytes(20, 3)] = 255
    not_finite = packet.copy()
    not_finite[-4:].view("<f4")[:] = np.nan
    negative = packet.copy()
    negative[-4:].view("<f4")[:] = -1.0
    for content, problem in [
        (packet[:-1], "expected labels of a hub"),
        (packet[:3], "expected the header"),
        (np.concatenate([packet, packet]), "once"),
        (wrong_count, "1 to 15 local clusters"),
        (wrong_code, "labels from 0 to 2, got 3"),
        (not_finite, "distances"),
        (negative, "distances"),
    ]:
        with pytest.raises(WrongMessageError, match=problem) as error:
            read_all(content)
        assert error.value.sender == 3
