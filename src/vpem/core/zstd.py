"""Zstandard frames: by the standard library if available (Python 3.14), otherwise by the package zstandard."""

from __future__ import annotations

import sys

LARGEST_WINDOW = 27
"""Base-2 logarithm of the memory, in bytes, that decompressing a frame may require."""


def compress(plain: bytes | memoryview, level: int) -> bytes:
    """Return one frame, which states the size of its content."""
    if sys.version_info >= (3, 14):
        from compression import zstd

        return zstd.compress(plain, level)
    import zstandard

    compressed: bytes = zstandard.ZstdCompressor(level=level, write_checksum=False).compress(plain)
    return compressed


def decompress(frame: bytes, least: int, most: int) -> bytes:
    """Return the content of a frame of `least` to `most` bytes.

    Raises
    ------
    ValueError
        If it is not such a frame. No memory is allocated for larger contents.
    """
    try:
        size, plain = _expand(frame, most)
    except _error() as error:
        raise ValueError(f"expected one compressed frame, got other bytes ({error})") from None
    if size is None or not least <= size <= most:
        expected = least if least == most else f"{least} to {most}"
        raise ValueError(f"expected {expected} bytes, got {'an unknown number' if size is None else size}")
    if len(plain) != size:
        raise ValueError(f"expected {size} bytes, got {len(plain)}")
    return plain


def _expand(frame: bytes, most: int) -> tuple[int | None, bytes]:
    """Return the stated size and the content; empty content if the size exceeds `most`."""
    if sys.version_info >= (3, 14):
        from compression import zstd

        size = zstd.get_frame_info(frame).decompressed_size
        if size is None or size > most:
            return size, b""
        decompressor = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: LARGEST_WINDOW})
        plain = decompressor.decompress(frame, size + 1)
        if not decompressor.eof or decompressor.unused_data:
            raise zstd.ZstdError("incomplete, or bytes after the end")
        return size, plain
    import zstandard

    size = zstandard.frame_content_size(frame)
    if size < 0 or size > most:
        return None if size < 0 else size, b""
    decompressor = zstandard.ZstdDecompressor(max_window_size=2**LARGEST_WINDOW)
    return size, decompressor.decompress(frame, allow_extra_data=False)


def _error() -> type[Exception]:
    if sys.version_info >= (3, 14):
        from compression import zstd

        return zstd.ZstdError
    import zstandard

    return zstandard.ZstdError
