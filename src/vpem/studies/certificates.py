"""Keys and certificates for people without a PKI: an authority, requests, signatures.

Each party makes its own key, which never leaves its machine, and a request. One party, or the server, keeps the
authority and signs requests. Certificates are valid from two days before they are made, as clocks may be wrong.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vpem.studies import fields

if TYPE_CHECKING:
    from cryptography import x509

BACKDATED = timedelta(days=2)
AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365
SOON_DAYS = 30
"""Number of days before a certificate expires in which `check_keys` reports it."""


class KeyFileError(ValueError):
    """A file that is not a key, request or certificate, or that cannot be used here."""


@dataclass(frozen=True, kw_only=True)
class About:
    """Content of a request or a certificate."""

    path: Path
    kind: str
    """"request" or "certificate"."""
    name: str
    """Common name."""
    hosts: tuple[str, ...]
    fingerprint: str
    """Fingerprint of the public key, which is the same for a key's request and its certificate."""
    issuer: str = ""
    begins: datetime | None = None
    ends: datetime | None = None
    is_authority: bool = False

    def days_left(self, now: datetime) -> float:
        """Return the number of days until the certificate expires."""
        assert self.ends is not None, "a certificate"
        return (self.ends - now) / timedelta(days=1)


def make_authority(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a key, `ca.key`, and a certificate, `ca.pem`, that signs others. Neither file may exist yet."""
    from cryptography import x509

    key_path, path = folder / "ca.key", folder / "ca.pem"
    _check_free(key_path, path)
    key = _new_key(key_path)
    subject = _subject(name)
    builder = _builder(subject, subject, key.public_key(), AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    _write(path, _pem(builder.sign(key, _hash())))
    return key_path, path


def make_request(folder: Path, name: str, hosts: Sequence[str] = ()) -> tuple[Path, Path]:
    """Make a key, `NAME.key`, that stays on this machine, and a request, `NAME.csr`, for the authority.

    Parameters
    ----------
    folder : Path
    name : str
        Common name, as the study's file has it.
    hosts : sequence of str
        Names or addresses of the machine, as others reach it.
    """
    from cryptography import x509

    key_path, path = folder / f"{fields.name(name)}.key", folder / f"{name}.csr"
    _check_free(key_path, path)
    key = _new_key(key_path)
    builder = x509.CertificateSigningRequestBuilder().subject_name(_subject(name))
    builder = builder.add_extension(_alternatives(name, hosts), critical=False)
    _write(path, _pem(builder.sign(key, _hash())))
    return key_path, path


def sign(request: Path, folder: Path, out: Path | None = None, *, hosts: Sequence[str] = ()) -> Path:
    """Sign a request with the authority in a folder, and return the path of the certificate.

    Parameters
    ----------
    request : Path
    folder : Path
        Folder with `ca.key` and `ca.pem`.
    out : Path, optional
        Path of the certificate; by default in the folder of the request.
    hosts : sequence of str
        Names or addresses in addition to those of the request.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.x509.oid import ExtendedKeyUsageOID

    found, about = _load(request), look(request)
    if not isinstance(found, x509.CertificateSigningRequest) or not found.is_signature_valid:
        raise KeyFileError(f"{request}: expected a request that vpem keys request made, got a {about.kind}")
    path = request.with_suffix(".pem") if out is None else out
    _check_free(path)
    authority = _load(folder / "ca.pem")
    try:
        key: Any = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    except FileNotFoundError:
        raise KeyFileError(f"{folder / 'ca.key'}: expected the authority's key, found none; who keeps it?") from None
    except (ValueError, TypeError) as error:
        raise KeyFileError(
            f"{folder / 'ca.key'}: expected the authority's key, got something else: {error}"
        ) from None
    if not isinstance(authority, x509.Certificate) or authority.public_key() != key.public_key():
        raise KeyFileError(f"{folder}: expected ca.pem and ca.key of one authority, got others")
    fields.name(about.name)
    builder = _builder(found.subject, authority.subject, found.public_key(), CERTIFICATE_DAYS, authority)
    builder = builder.add_extension(_alternatives(about.name, [*about.hosts, *hosts]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs=False), critical=True)
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    builder = builder.add_extension(issuer, critical=False)
    _write(path, _pem(builder.sign(key, _hash())))
    return path


def fingerprint(public: Any) -> str:
    """Return the fingerprint of a public key: half of its digest, in pairs of hexadecimal digits."""
    from cryptography.hazmat.primitives import serialization

    content = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return ":".join(f"{byte:02x}" for byte in hashlib.sha256(content).digest()[:16])


def look(path: Path) -> About:
    """Read a certificate or a request."""
    from cryptography import x509

    found = _load(path)
    name = _common_name(found.subject)
    own: dict[str, Any] = {
        "path": path,
        "name": name,
        "hosts": tuple(host for host in _hosts(found) if host != name),
        "fingerprint": fingerprint(found.public_key()),
    }
    if isinstance(found, x509.CertificateSigningRequest):
        return About(kind="request", **own)
    try:
        is_authority = found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        is_authority = False
    return About(
        kind="certificate",
        **own,
        issuer=_common_name(found.issuer),
        begins=found.not_valid_before_utc,
        ends=found.not_valid_after_utc,
        is_authority=is_authority,
    )


def check_keys(ca: Path, certificate: Path, key: Path, name: str) -> list[str]:
    """Check a party's files; raise KeyFileError with all problems at once. Return notes on what expires soon.

    Parameters
    ----------
    ca, certificate, key : Path
    name : str
        Common name of the certificate, from the study.
    """
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import serialization

    missing = [path for path in (ca, certificate, key) if not path.is_file()]
    if missing:
        shown = ", ".join(map(str, missing))
        raise KeyFileError(
            f"expected keys, found no {shown}; make them with vpem keys, or use --insecure to try it out"
        )
    own, authority, now, wrong = _load(certificate), _load(ca), datetime.now(UTC), []
    try:
        private: Any = serialization.load_pem_private_key(key.read_bytes(), None)
        if private.public_key() != own.public_key():
            wrong.append(f"{key}: expected the key of {certificate}, got another")
    except (ValueError, TypeError) as error:
        wrong.append(f"{key}: expected a key in PEM without a password, got something else: {error}")
    if not isinstance(own, x509.Certificate) or not isinstance(authority, x509.Certificate):
        raise KeyFileError(f"{certificate}, {ca}: expected certificates, got a request; has it been signed?")
    try:
        own.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        wrong.append(
            f"{certificate}: expected a certificate that {ca} has signed, got one of {_common_name(own.issuer)!r}"
        )
    found = look(certificate)
    if found.name != name:
        wrong.append(f"{certificate}: expected the name {name!r}, as in the study, got {found.name!r}")
    if os.name == "posix" and key.stat().st_mode & 0o077:
        wrong.append(
            f"{key}: expected a key that only its owner can read, got mode {key.stat().st_mode & 0o777:o}; chmod 600"
        )
    notes = []
    for one in (found, look(ca)):
        assert one.begins is not None, "a certificate"
        assert one.ends is not None, "a certificate"
        days = one.days_left(now)
        if days < 0 or one.begins > now:
            wrong.append(
                f"{one.path}: expected a certificate that is valid now, got one from {one.begins:%Y-%m-%d} to "
                f"{one.ends:%Y-%m-%d}"
            )
        elif days < SOON_DAYS:
            notes.append(f"{one.path} expires in {days:.0f} days, on {one.ends:%Y-%m-%d}")
    if wrong:
        raise KeyFileError("\n".join(wrong))
    return notes


# Helpers for x509


def _load(path: Path) -> x509.Certificate | x509.CertificateSigningRequest:
    from cryptography import x509

    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise KeyFileError(f"{path}: expected a certificate or a request, found no such file") from None
    if b"PRIVATE KEY" in content:
        raise KeyFileError(f"{path}: expected a certificate or a request, got a private key; never send it to anyone")
    for load in (x509.load_pem_x509_certificate, x509.load_pem_x509_csr):
        try:
            return load(content)
        except ValueError:
            continue
    raise KeyFileError(f"{path}: expected a certificate or a request in PEM, got something else")


def _new_key(path: Path) -> Any:
    """Make a P-256 key and write it to a file that only its owner can read."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    content = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "wb") as file:
        file.write(content)
    return key


def _check_free(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise FileExistsError(f"expected to write {path}, got a file that is there; move it away first")


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _pem(made: x509.Certificate | x509.CertificateSigningRequest) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return made.public_bytes(serialization.Encoding.PEM)


def _hash() -> Any:
    from cryptography.hazmat.primitives import hashes

    return hashes.SHA256()


def _subject(name: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _common_name(subject: x509.Name) -> str:
    from cryptography import x509

    found = subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def _alternatives(name: str, hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    from cryptography import x509

    found: list[x509.GeneralName] = []
    for host in dict.fromkeys([name, *hosts]):
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(host.strip("[]"))))
        except ValueError:
            found.append(x509.DNSName(host))
    return x509.SubjectAlternativeName(found)


def _hosts(found: x509.Certificate | x509.CertificateSigningRequest) -> list[str]:
    from cryptography import x509

    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(one.value) for one in names]


def _usage(*, signs: bool) -> x509.KeyUsage:
    from cryptography import x509

    no = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    return x509.KeyUsage(digital_signature=not signs, key_cert_sign=signs, crl_sign=signs, **no)


def _builder(
    subject: x509.Name, issuer: x509.Name, public: Any, days: int, authority: Any = None
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC).replace(microsecond=0)
    begins, ends = now - BACKDATED, now + timedelta(days=days)
    if authority is not None:
        begins, ends = max(begins, authority.not_valid_before_utc), min(ends, authority.not_valid_after_utc)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(begins).not_valid_after(ends)
