"""Certificates for tests: an authority, and what it or another one signs."""

import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


def _name(name):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


class Authority:
    """Signs certificates into a folder."""

    def __init__(self, folder, name="authority"):
        self.folder, self.key = folder, ec.generate_private_key(ec.SECP256R1())
        self.subject = _name(name)
        now = datetime.datetime.now(datetime.UTC)
        builder = self._builder(self.subject, self.key, now - 2 * DAY, now + 30 * DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.ca = folder / f"{name}.crt"
        self._write(builder.sign(self.key, hashes.SHA256()), self.ca)

    def _builder(self, subject, key, begin, end):
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self.subject)
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        return builder.not_valid_before(begin).not_valid_after(end)

    def _write(self, certificate, path):
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def sign(self, name, file=None, days=30):
        """Paths of a new certificate and its key; it has expired if its days are negative."""
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
        builder = self._builder(_name(name), key, now - 10 * DAY, now + days * DAY)
        names = x509.SubjectAlternativeName([x509.DNSName(name), x509.DNSName("localhost")])
        builder = builder.add_extension(names, critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        certificate, private = (self.folder / f"{file or name}.{end}" for end in ("crt", "key"))
        self._write(builder.sign(self.key, hashes.SHA256()), certificate)
        content = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        private.write_bytes(content)
        return {"ca": str(self.ca), "certificate": str(certificate), "key": str(private)}
