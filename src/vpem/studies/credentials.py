"""Records signed with the key of a party's certificate: what `vpem.core.agent.meeting.Credentials` asks for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vpem.studies.keys import fingerprint

PREFIX = 2
"""Bytes of the length of the certificate, before it."""


class CertificateCredentials:
    """Signs with a party's key, and knows others by the names of their certificates, which the study pins.

    Parameters
    ----------
    ca, certificate, key : Path
        The files that links use too.
    study : str
        Digest of the study, to which all that is signed belongs.
    names : mapping
        By agent's name: the common name of its certificate.
    fingerprints : mapping
        By agent's name: of its key, where the study pins that as well.
    """

    def __init__(
        self,
        ca: Path,
        certificate: Path,
        key: Path,
        study: str,
        names: Mapping[str, str],
        fingerprints: Mapping[str, str | None] = MappingProxyType({}),
    ):
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization

        self._authority = x509.load_pem_x509_certificate(ca.read_bytes())
        own = x509.load_pem_x509_certificate(certificate.read_bytes())
        self._own = own.public_bytes(serialization.Encoding.DER)
        self._key: Any = serialization.load_pem_private_key(key.read_bytes(), None)
        self._names, self._fingerprints = dict(names), dict(fingerprints)
        self.everybody, self.study = tuple(names), study

    def sign(self, content: bytes) -> bytes:
        """The certificate, and a signature under its key."""
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, padding

        if isinstance(self._key, ec.EllipticCurvePrivateKey):
            signature = self._key.sign(content, ec.ECDSA(hashes.SHA256()))
        elif hasattr(self._key, "key_size"):
            signature = self._key.sign(content, padding.PKCS1v15(), hashes.SHA256())
        else:  # Ed25519 and its like have one way to sign
            signature = self._key.sign(content)
        return len(self._own).to_bytes(PREFIX, "big") + self._own + bytes(signature)

    def secret(self, purpose: bytes) -> bytes:
        """32 bytes that follow from the party's key, and that no one without it can find."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        private = self._key.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return HKDF(SHA256(), 32, None, b"vpem " + purpose).derive(private)

    def verify(self, name: str, content: bytes, proof: bytes) -> None:
        """Raise ValueError unless the key of this agent's certificate has signed these bytes."""
        from cryptography import x509
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, padding

        length = int.from_bytes(proof[:PREFIX], "big")
        certificate = x509.load_der_x509_certificate(proof[PREFIX : PREFIX + length])
        signature, now = proof[PREFIX + length :], datetime.now(UTC)
        try:
            certificate.verify_directly_issued_by(self._authority)
            found = [str(one.value) for one in certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
            if found != [self._names.get(name)]:
                raise ValueError(f"expected the certificate of {self._names.get(name)!r}, got that of {found}")
            if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
                raise ValueError("expected a certificate that is valid now, got another")
            public: Any = certificate.public_key()
            pinned = self._fingerprints.get(name)
            if pinned is not None and fingerprint(public) != pinned:
                raise ValueError(
                    f"expected the key {pinned} of {name!r}, as the study has it, got {fingerprint(public)}"
                )
            if isinstance(public, ec.EllipticCurvePublicKey):
                public.verify(signature, content, ec.ECDSA(hashes.SHA256()))
            elif hasattr(public, "key_size"):
                public.verify(signature, content, padding.PKCS1v15(), hashes.SHA256())
            else:
                public.verify(signature, content)
        except (InvalidSignature, TypeError):
            raise ValueError("the signature does not fit: it is another key's, or of another study or run") from None
