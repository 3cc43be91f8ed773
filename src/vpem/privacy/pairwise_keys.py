"""Keys of one agent in one epoch: secrets that it shares with each other agent, and the masks and tags from them.

Every agent draws an X25519 key for each epoch and sends the public key in the meeting. Two agents derive a shared
secret from their two keys (HKDF with SHA-256, bound to the epoch and both public keys). From it they derive the masks
of each sum (ChaCha20 under a separate key) and the tags of messages (keyed BLAKE2). None of this is saved, and no
part of it is derived from a seed. An agent that runs each event in a separate process passes its key on in memory,
sealed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vpem.core.agent.message import TAG_BYTES
from vpem.core.network.hubs import Position
from vpem.core.network.sums import Place, WrongMessageError

PUBLIC_BYTES = 32
NEEDED = "pip install 'vpem[privacy]'"


class Keys:
    """Private key of an agent, valid for one epoch.

    Parameters
    ----------
    private : bytes, optional
        Bytes of the private key from an earlier process of the agent; a new key is drawn if None.
    """

    def __init__(self, private: bytes | None = None) -> None:
        curve = _curve().X25519PrivateKey
        self._private = curve.generate() if private is None else curve.from_private_bytes(private)
        self.public: bytes = self._private.public_key().public_bytes_raw()
        self._shared: dict[tuple[int, bytes, bytes], bytes] = {}

    def __repr__(self) -> str:
        return "Keys(...)"  # never in a log

    def __reduce__(self) -> Any:
        raise TypeError("expected keys to stay in the memory of their process, got an attempt to save them")

    @property
    def private(self) -> bytes:
        """Bytes of the private key, for the agent's next process. Seal them, and never write them to a file."""
        found: bytes = self._private.private_bytes_raw()
        return found

    def shared(self, epoch: int, peer: Position, theirs: bytes, purpose: bytes) -> bytes:
        """Return 32 bytes that only this agent and a peer know; raise WrongMessageError if `theirs` is invalid."""
        key = epoch, theirs, purpose
        if key not in self._shared:
            self._shared[key] = self._agree(epoch, peer, theirs, purpose)
        return self._shared[key]

    def _agree(self, epoch: int, peer: Position, theirs: bytes, purpose: bytes) -> bytes:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        if len(theirs) != PUBLIC_BYTES or theirs == self.public:
            raise WrongMessageError(peer, "expected a public key of its own in the meeting, got none")
        try:
            secret = self._private.exchange(_curve().X25519PublicKey.from_public_bytes(theirs))
        except ValueError:
            raise WrongMessageError(peer, "expected a public key in the meeting, got a point of low order") from None
        about = b"|".join([b"vpem", purpose, epoch.to_bytes(8, "big"), *sorted([self.public, theirs])])
        return HKDF(SHA256(), 32, None, about).derive(secret)


def keys_of(place: Place) -> Keys:
    """Return the agent's keys of this epoch; raise ValueError if it was restored within the epoch and has no keys."""
    if not isinstance(place.secret, Keys):
        raise ValueError("expected keys of this epoch, got none: an agent that was restored begins a new epoch")
    return place.secret


def link_tag(place: Place, peer: Position, parts: Sequence[bytes | memoryview]) -> bytes:
    """Return the authentication tag of a message, which only the two ends of a link can compute."""
    key = keys_of(place).shared(place.epoch, peer, place.greetings.get(peer, b""), b"tag")
    digest = hashlib.blake2b(key=key, digest_size=TAG_BYTES)
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def mask_stream(key: bytes, number: int, n_bytes: int, common: bytes = b"") -> bytes:
    """Return the mask of one sum under the key of a pair."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    own = hashlib.blake2b(number.to_bytes(8, "big") + common, key=key, digest_size=32, person=b"vpem sum").digest()
    return Cipher(ChaCha20(own, bytes(16)), None).encryptor().update(bytes(n_bytes))


def masks(place: Place, roots: Sequence[Position], n_bytes: int) -> Mapping[Position, NDArray[np.uint8]]:
    """Return the masks of this sum that an agent shares with each other root."""
    keys, told = keys_of(place), [place.greetings.get(root, b"") for root in roots]
    for root, public in zip(roots, told, strict=True):
        if told.count(public) > 1 and root != place.position:
            raise WrongMessageError(root, "expected a public key of its own in the meeting, got that of another")
    common = hashlib.sha256(b"".join(told) + place.heard).digest()  # if agents disagree on it, masks do not cancel
    return {
        peer: np.frombuffer(
            mask_stream(
                keys.shared(
                    place.epoch,
                    peer,
                    place.greetings.get(peer, b""),
                    b"mask %d %d" % (min(peer, place.position), max(peer, place.position)),
                ),
                place.number,
                n_bytes,
                common,
            ),
            np.uint8,
        )
        for peer in roots
        if peer != place.position
    }


def _curve() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import x25519
    except ImportError:
        raise ImportError(f"expected the package cryptography for masks, found none; try {NEEDED}") from None
    return x25519
