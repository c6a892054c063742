"""Certificates for tests: an authority, brokers, clients, stores, by the package cryptography.

``localhost`` resolves to loopback everywhere; a certificate for it or for 127.0.0.1 fits, one for
another name does not.
"""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

STORE_PASSWORD = "store-passw0rd"
KEY_PASSWORD = "key-passw0rd"

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Identity:
    """A key and its certificate with its chain."""

    folder: Path
    name: str
    key: ec.EllipticCurvePrivateKey
    chain: tuple[x509.Certificate, ...]

    @property
    def key_pem(self) -> str:
        """The key, without a password."""
        return self._key(NoEncryption())

    @property
    def encrypted_key_pem(self) -> str:
        """The key under KEY_PASSWORD."""
        return self._key(BestAvailableEncryption(KEY_PASSWORD.encode()))

    @property
    def chain_pem(self) -> str:
        """The certificates, its own first."""
        return "".join(_pem(each) for each in self.chain)

    def pem_file(self, *, encrypted: bool = False) -> Path:
        """A file with key and certificates, as a PEM keystore is."""
        key = self.encrypted_key_pem if encrypted else self.key_pem
        path = self.folder / f"{self.name}{'.encrypted' if encrypted else ''}.pem"
        path.write_text(key + self.chain_pem, encoding="ascii")
        return path

    def pkcs12_file(self) -> Path:
        """A PKCS12 keystore under STORE_PASSWORD."""
        path = self.folder / f"{self.name}.p12"
        password = BestAvailableEncryption(STORE_PASSWORD.encode())
        leaf, *others = self.chain
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(b"own", self.key, leaf, others, password)
        )
        return path

    def _key(self, encryption: KeySerializationEncryption) -> str:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()


class Authority:
    """An authority that signs certificates; files are put into ``folder``."""

    def __init__(self, folder: Path, name: str = "klog tests") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        self.certificate = (
            _builder(subject, subject, self._key, 0)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        """The authority's certificate in PEM."""
        return _pem(self.certificate)

    def pem_file(self) -> Path:
        """The path of a file with the authority's certificate."""
        path = self.folder / "ca.pem"
        path.write_text(self.pem, encoding="ascii")
        return path

    def pkcs12_file(self, *, for_java: bool = False) -> Path:
        """A PKCS12 truststore under STORE_PASSWORD; Java trusts only entries that are so marked."""
        path = self.folder / f"truststore{'.java' if for_java else ''}.p12"
        password = BestAvailableEncryption(STORE_PASSWORD.encode())
        entry = pkcs12.PKCS12Certificate(self.certificate, b"ca")
        path.write_bytes(
            pkcs12.serialize_java_truststore([entry], password)
            if for_java
            else pkcs12.serialize_key_and_certificates(
                None, None, None, [self.certificate], password
            )
        )
        return path

    def issue(
        self,
        name: str,
        names: tuple[str, ...] = (),
        addresses: tuple[str, ...] = (),
        *,
        expired: bool = False,
    ) -> Identity:
        """A key and a certificate for host ``names`` and ``addresses``."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(
            _name(name), self.certificate.subject, key, -5 if expired else 0
        ).add_extension(
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            ),
            critical=False,
        )
        alternatives: list[x509.GeneralName] = [x509.DNSName(each) for each in names]
        alternatives += [x509.IPAddress(ipaddress.ip_address(each)) for each in addresses]
        if alternatives:
            builder = builder.add_extension(
                x509.SubjectAlternativeName(alternatives), critical=False
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        return Identity(self.folder, name, key, (certificate, self.certificate))

    def broker(self) -> Identity:
        """Return the key and certificate of a broker on loopback."""
        return self.issue("broker", ("localhost",), ("127.0.0.1",))


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, shift_days: int
) -> x509.CertificateBuilder:
    """Valid from two days ago to three days from now, all shifted."""
    now = datetime.datetime.now(datetime.UTC) + shift_days * _DAY
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * _DAY)
        .not_valid_after(now + 3 * _DAY)
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()
