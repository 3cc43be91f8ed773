"""Encoding and parsing of messages of quantized changes; see `Differences`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vpem.core.network.hubs import Position
from vpem.core.network.memo import Memo
from vpem.core.network.quantization import SCALE, compress, decompress, most_compressed
from vpem.core.network.sums import Array, Place, Shape, WrongMessageError

SCALES = frozenset(range(-1100, 100))
"""Valid exponents of changes."""
FIRST_LAYERS = 5
"""Number of codes for each number in the first sum of EM."""


class Parts(NamedTuple):
    """Contents of a message."""

    scalars: Array
    """Numbers that belong to no row, and the sum of the references' log-densities."""
    scales: tuple[int, ...]
    codes: NDArray[np.uint8]
    """Shape (n_layers, n_rows * n_ratios): the change in the first layer, the rounding errors in the next ones."""
    present: NDArray[np.uint8]
    """Bits of the present rows in the first message; empty in others."""


def count_layers(*, is_first: bool) -> int:
    """Number of layers of codes: more in the first sum of EM, from which all others continue."""
    return FIRST_LAYERS if is_first else 1


def most_coded(shape: Shape) -> int:
    """Maximum length of a message of changes in bytes."""
    n_codes = FIRST_LAYERS * shape.n_rows * max(shape.width - 1, 0) + shape.n_rows // 8 + 1
    return 8 * (shape.n_scalars + 1) + FIRST_LAYERS * SCALE.itemsize + most_compressed(n_codes)


def pack(parts: Parts, memo: Memo) -> NDArray[np.uint8]:
    """Encode a message: scalars, scales, and all codes and bits, compressed."""
    plain = np.append(parts.codes, parts.present) if len(parts.present) else parts.codes.ravel()
    head = parts.scalars.astype("<f8").tobytes() + np.array(parts.scales, SCALE).tobytes()
    message = np.frombuffer(head + compress(plain), np.uint8)
    memo.tell("plain", message, plain)
    return message


def parse(place: Place, sender: Position, message: NDArray[np.uint8], *, is_first: bool) -> Parts:
    """Parse a neighbour's message; raise WrongMessageError if it is invalid."""
    shape = place.shape
    n_first = 8 * (shape.n_scalars + 1)
    try:
        if len(message) < n_first:
            raise ValueError(f"expected at least {n_first} bytes, got {len(message)}")
        scalars = np.frombuffer(message[:n_first].tobytes(), "<f8").astype(np.float64)
        n_codes, n_bits = shape.n_rows * max(shape.width - 1, 0), (shape.n_rows + 7) // 8 * is_first
        plain: NDArray[np.uint8] | None = place.memo.told("plain", message)
        parts = parse_tail(message[n_first:], count_layers(is_first=is_first), n_codes, n_bits, plain)
    except ValueError as error:
        raise WrongMessageError(sender, f"a message of changes: {error}") from None
    most = 1e300 / len(place.network.positions)  # so that no sum of them overflows
    if not SCALES.issuperset(parts.scales) or not (np.abs(scalars) < most).all():
        raise WrongMessageError(sender, "expected finite numbers in a message of changes, got others")
    return parts._replace(scalars=scalars)


def tail_of(place: Place, message: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a copy of a message without its scalars."""
    (tail,) = place.memo.once("tail", [message], lambda: (message[8 * (place.shape.n_scalars + 1) :].copy(),))
    return tail


def parse_tail(
    tail: NDArray[np.uint8], n_layers: int, n_codes: int, n_bits: int = 0, plain: NDArray[np.uint8] | None = None
) -> Parts:
    """Parse the rest of a message after its scalars; raise ValueError if it is invalid."""
    n_head = n_layers * SCALE.itemsize
    if len(tail) < n_head:
        raise ValueError(f"expected at least {n_head} more bytes, got {len(tail)}")
    scales = tuple(np.frombuffer(tail[:n_head].tobytes(), SCALE).tolist())
    if plain is None:
        plain = decompress(tail[n_head:].tobytes(), n_layers * n_codes + n_bits)
    return Parts(np.zeros(0), scales, plain[: n_layers * n_codes].reshape(n_layers, -1), plain[n_layers * n_codes :])
