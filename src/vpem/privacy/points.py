"""Group in which ids are compared: ristretto255, of prime order, from libsodium."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

POINT_BYTES = 32
EVERY = 1000
"""Number of points between two progress reports."""
NOTHING = bytes(POINT_BYTES)
"""Encoding of the identity."""


class PointError(ValueError):
    """Invalid encoding of a point, or the identity."""


def new_secret() -> bytes:
    """Return a random scalar from the operating system."""
    secret: bytes = _group().crypto_core_ristretto255_scalar_random()
    return secret


def points_of(ids: Iterable[bytes], salt: bytes, tell: Callable[[int], object]) -> list[bytes]:
    """Map each id to a point, so that no agent can find the discrete logarithm between two points."""
    group, found = _group(), []
    start = hashlib.sha512(b"vpem id" + len(salt).to_bytes(4, "big") + salt)
    for name in ids:
        digest = start.copy()
        digest.update(name)
        found.append(group.crypto_core_ristretto255_from_hash(digest.digest()))
        if len(found) % EVERY == 0:
            tell(EVERY)
    tell(len(found) % EVERY)
    return found


def raised(points: Iterable[bytes], secret: bytes, tell: Callable[[int], object]) -> list[bytes]:
    """Multiply all points by a secret, in their order; raise PointError if a point is invalid."""
    multiply, found = _group().crypto_scalarmult_ristretto255, []
    for point in points:
        try:
            found.append(multiply(secret, point))
        except RuntimeError:
            raise PointError("expected points of the group other than the identity, got another") from None
        if len(found) % EVERY == 0:
            tell(EVERY)
    tell(len(found) % EVERY)
    return found


def check_points(points: Iterable[bytes]) -> None:
    """Raise PointError if a point is invalid or the identity."""
    is_valid = _group().crypto_core_ristretto255_is_valid_point
    for point in points:
        if point == NOTHING or not is_valid(point):
            raise PointError("expected points of the group other than the identity, got another")


def split(content: bytes) -> list[bytes]:
    """Split bytes into points; raise PointError if the length is not a multiple of `POINT_BYTES`."""
    if len(content) % POINT_BYTES:
        raise PointError(f"expected {POINT_BYTES} bytes for each point, got {len(content)} bytes")
    return [content[place : place + POINT_BYTES] for place in range(0, len(content), POINT_BYTES)]


def number_rows(lists: Mapping[int, list[bytes]], join: str, run: bytes) -> tuple[int, bytes, dict[int, bytes]]:
    """Return the row of the common table for each token; done by the matcher.

    Parameters
    ----------
    lists : mapping
        Tokens of each owner.
    join : {"inner", "outer"}
    run : bytes
        Run to which the digest is bound.

    Returns
    -------
    n_rows : int
    digest : bytes
        Digest of all rows.
    rows : dict
        For each owner, the row of each place of its list as a 64-bit integer, -1 without one. Rows are in the order
        of the tokens, which is not the order of any party.
    """
    sets = [set(points) for points in lists.values()]
    ordered = sorted(set.intersection(*sets) if join == "inner" else set.union(*sets))
    number_of = {token: number for number, token in enumerate(ordered)}
    digest = hashlib.sha256(run + b"".join(ordered)).digest()
    rows = {
        owner: np.array([number_of.get(token, -1) for token in points], dtype="<i8").tobytes()
        for owner, points in sorted(lists.items())
    }
    return len(ordered), digest, rows


def _group() -> Any:
    try:
        import rbcl
    except ImportError:
        raise ImportError(
            "expected the package rbcl to match rows, found none; try pip install 'vpem[privacy]'"
        ) from None
    return rbcl
