"""Sign records with the key of a party's certificate; implements `vpem.core.agent.meeting.Credentials`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vpem.studies.certificates import fingerprint

PREFIX = 2
"""Number of bytes before the certificate that hold its length."""


class CertificateCredentials:
    """Sign with a party's key, and verify others by the names in their certificates, which the study pins.

    Parameters
    ----------
    ca, certificate, key : Path
        PEM files, the same as for the links.
    study : str
        Digest of the study, to which everything that is signed belongs.
    names : mapping
        Common name of each agent's certificate, by the agent's name.
    fingerprints : mapping
        Fingerprint of each agent's key, by the agent's name, where the study pins the key as well.
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
        """Return the certificate, followed by a signature of the content with its key."""
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, padding

        if isinstance(self._key, ec.EllipticCurvePrivateKey):
            signature = self._key.sign(content, ec.ECDSA(hashes.SHA256()))
        elif hasattr(self._key, "key_size"):
            signature = self._key.sign(content, padding.PKCS1v15(), hashes.SHA256())
        else:  # Ed25519 and similar keys have a single signature scheme
            signature = self._key.sign(content)
        return len(self._own).to_bytes(PREFIX, "big") + self._own + bytes(signature)

    def secret(self, purpose: bytes) -> bytes:
        """Derive 32 bytes from the party's key, which cannot be computed without it."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        private = self._key.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return HKDF(SHA256(), 32, None, b"vpem " + purpose).derive(private)

    def verify(self, name: str, content: bytes, proof: bytes) -> None:
        """Raise ValueError unless the key of this agent's certificate signed these bytes."""
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
