"""Frames of zstandard, whichever library makes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpem.core import zstd

FRAME = bytes.fromhex("28b52ffd2064650000287670656d2001008ca96801")
"""Of 100 bytes."""


@given(st.binary(max_size=5000), st.integers(1, 9))
def test_what_is_compressed_comes_back(plain, level):
    frame = zstd.compress(plain, level)
    assert zstd.decompress(frame, len(plain), len(plain)) == plain


def test_another_library_made_this_frame():
    assert zstd.decompress(FRAME, 0, 1000) == b"vpem " * 20


@pytest.mark.parametrize(
    ("frame", "least", "most", "problem"),
    [
        (FRAME, 0, 99, "expected 0 to 99 bytes, got 100"),
        (FRAME, 101, 101, "expected 101 bytes, got 100"),
        (FRAME[:-1], 0, 100, "expected one compressed frame"),
        (FRAME + b"x", 0, 100, "expected one compressed frame"),
        (b"\x28\xb5\x2f\xfd\x00\x00\x09\x00\x00x", 0, 100, "got an unknown number"),
        (b"no frame", 0, 100, "expected one compressed frame"),
        (b"", 0, 100, "expected one compressed frame"),
    ],
)
def test_other_bytes_are_refused(frame, least, most, problem):
    with pytest.raises(ValueError, match=problem):
        zstd.decompress(frame, least, most)
