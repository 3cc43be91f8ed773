"""Bytes that only one receiver can read, and that it knows to come from one sender."""

from __future__ import annotations

import hashlib
from typing import Any

from vpem.core.network.hubs import Position
from vpem.core.network.summation import WrongMessageError
from vpem.privacy.keys import Keys


class SealError(ValueError):
    """Sealed bytes that were altered, or are for another receiver, run or purpose."""


class Sealing:
    """One agent's key for what it sends and gets; a label is used once in a run between two agents."""

    def __init__(self) -> None:
        self._keys = Keys()
        self.public = self._keys.public

    def close(self, theirs: bytes, run: bytes, label: bytes, content: bytes) -> bytes:
        """Seal for a receiver."""
        cipher, nonce = self._cipher(theirs, run, label)
        sealed: bytes = cipher.encrypt(nonce, content, label)
        return sealed

    def open(self, theirs: bytes, run: bytes, label: bytes, sealed: bytes) -> bytes:
        """Open what a sender has sealed; SealError if it has not."""
        from cryptography.exceptions import InvalidTag

        cipher, nonce = self._cipher(theirs, run, label)
        try:
            content: bytes = cipher.decrypt(nonce, sealed, label)
        except InvalidTag:
            raise SealError("the seal does not fit") from None
        return content

    def _cipher(self, theirs: bytes, run: bytes, label: bytes) -> tuple[Any, bytes]:
        """A key of the two agents and the run, and a nonce of the label."""
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        if theirs == self.public:  # to itself
            key = hashlib.blake2b(self.public + run, digest_size=32).digest()
        else:
            try:
                key = self._keys.shared(0, Position(0), theirs, b"seal" + run)
            except WrongMessageError as error:
                raise SealError(str(error)) from None
        return ChaCha20Poly1305(key), hashlib.blake2b(label, digest_size=12).digest()
