"""Authenticated encryption of bytes from one sender to one receiver."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

from vpem.core.network.hubs import Position
from vpem.core.network.sums import WrongMessageError
from vpem.privacy.pairwise_keys import Keys

NONCE_BYTES = 12


class SealError(ValueError):
    """Sealed bytes that were altered, or are for another receiver, run or purpose."""


def close_box(secret: bytes, about: bytes, content: bytes) -> bytes:
    """Seal content for the agent itself, under a secret of 32 bytes."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    nonce = secrets.token_bytes(NONCE_BYTES)
    return nonce + ChaCha20Poly1305(secret).encrypt(nonce, content, about)


def open_box(secret: bytes, about: bytes, sealed: bytes) -> bytes:
    """Inverse of `close_box`; raise SealError if the bytes were altered, or `about` differs."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    try:
        content: bytes = ChaCha20Poly1305(secret).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], about)
    except (InvalidTag, ValueError):
        raise SealError("the seal does not fit") from None
    return content


class Sealing:
    """Key with which one agent seals and opens parcels.

    Parameters
    ----------
    private : bytes, optional
        Bytes of the private key from an earlier process of the agent; a new key is drawn if None.
    """

    def __init__(self, private: bytes | None = None) -> None:
        self._keys = Keys(private)
        self.public = self._keys.public

    @property
    def private(self) -> bytes:
        """Bytes of the private key, for the agent's next process."""
        return self._keys.private

    def close(self, theirs: bytes, run: bytes, label: bytes, content: bytes) -> bytes:
        """Seal content for a receiver."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        sealed: bytes = self._cipher(theirs, run).encrypt(nonce, content, label)
        return nonce + sealed

    def open(self, theirs: bytes, run: bytes, label: bytes, sealed: bytes) -> bytes:
        """Open content that a sender has sealed; raise SealError if the seal is invalid."""
        from cryptography.exceptions import InvalidTag

        cipher = self._cipher(theirs, run)
        try:
            content: bytes = cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], label)
        except (InvalidTag, ValueError):
            raise SealError("the seal does not fit") from None
        return content

    def _cipher(self, theirs: bytes, run: bytes) -> Any:
        """Return the cipher with the shared key of the two agents and the run."""
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        if theirs == self.public:  # to itself
            key = hashlib.blake2b(self.public + run, digest_size=32).digest()
        else:
            try:
                key = self._keys.shared(0, Position(0), theirs, b"seal" + run)
            except WrongMessageError as error:
                raise SealError(str(error)) from None
        return ChaCha20Poly1305(key)
