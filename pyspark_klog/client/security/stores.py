"""Truststores and keystores as PEM: from PEM or PKCS12 files, or from text in the settings.

PKCS12 needs the package cryptography, which is imported only for such a file.
"""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark_klog.client import chance
from pyspark_klog.client.errors import SettingError
from pyspark_klog.security.pem import certificates_of, key_of
from pyspark_klog.security.secret import Secret
from pyspark_klog.security.tls_config import Store

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from cryptography.x509 import Certificate

MAX_STORE_BYTES = 16 * 1024 * 1024

_JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER_SEQUENCE = b"\x30"


class OwnKey(NamedTuple):
    """A private key with its certificates, as PEM, and the password that encrypts the key; None if
    no password was given."""

    pem: Secret
    password: Secret | None


def trusted_certificates(store: Store) -> str:
    """The certificates of a truststore, as PEM.

    :raises SettingError: naming the setting, and what is wrong with the file or text
    """
    if store.certificates is not None:
        found, where = certificates_of(store.certificates.reveal()), f"{store.name}.certificates"
    else:
        content, where = _read(store)
        if _is_pkcs12(store, content):
            found = _pkcs12_certificates(store, content)
        else:
            found = certificates_of(content.decode("latin-1"))
    if not found:
        raise SettingError(
            f"{where} has no certificate; expected at least one (in PEM text: BEGIN CERTIFICATE)"
        )
    return found


def own_key(store: Store) -> OwnKey:
    """The private key of a keystore with its certificates.

    :raises SettingError: naming the setting, and what is wrong with the file or text
    """
    if store.key is not None and store.certificates is not None:
        text = store.key.reveal() + "\n" + store.certificates.reveal()
        where = f"{store.name}.key with {store.name}.certificate.chain"
    else:
        content, where = _read(store)
        if _is_pkcs12(store, content):
            return _pkcs12_key(store, content)
        text = content.decode("latin-1")
    key, certificates = key_of(text), certificates_of(text)
    if not key or not certificates:
        missing = "certificate" if key else "private key"
        raise SettingError(
            f"{where} has no {missing}; expected a private key and certificates, as PEM text"
        )
    return OwnKey(Secret(key + certificates), store.key_password)


def _read(store: Store) -> tuple[bytes, str]:
    where = f"{store.name}.location {store.location}"
    try:
        with Path(store.location or "").open("rb") as file:
            content = file.read(MAX_STORE_BYTES + 1)
    except OSError as error:
        raise SettingError(
            f"{where} cannot be read here: {error.strerror or error}; expected a file that the "
            "driver and every executor can read"
        ) from None
    if len(content) > MAX_STORE_BYTES:
        raise SettingError(f"{where} has more than {MAX_STORE_BYTES} bytes: is it a store?")
    return content, where


def _is_pkcs12(store: Store, content: bytes) -> bool:
    """Whether the file's bytes are PKCS12. The setting of the type does not show it, because Java
    also opens PKCS12 files where the type is JKS.

    :raises SettingError: if the bytes are neither PKCS12 nor PEM, or PKCS12 where the type is PEM
    """
    if content[:4] in _JKS_MAGIC:
        path = Path(store.location or "")
        raise SettingError(
            f"{store.name}.location {path} is a JKS store, which only Java reads; convert it with: "
            f"keytool -importkeystore -srckeystore {path} -destkeystore {path.with_suffix('.p12')} "
            f"-deststoretype PKCS12, and set {store.name}.location to the new file"
        )
    is_pkcs12 = content[:1] == _DER_SEQUENCE
    if is_pkcs12 and store.kind == "PEM":
        raise SettingError(
            f"{store.name}.location {store.location} is not PEM, and {store.name}.type is PEM; is "
            "it PKCS12?"
        )
    if not is_pkcs12 and b"-----BEGIN" not in content:
        raise SettingError(
            f"{store.name}.location {store.location} is neither PEM nor PKCS12; expected a store "
            "of one of these types"
        )
    return is_pkcs12


def _load(store: Store, content: bytes) -> "PKCS12KeyAndCertificates":
    """Decrypt and parse a PKCS12 store."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise SettingError(
            f"{store.name}.location {store.location} is PKCS12, which needs the package "
            "cryptography here and on every executor: pip install 'pyspark-klog[security]'; or "
            f"convert it to PEM with: openssl pkcs12 -in {store.location} -out store.pem"
        ) from None
    password = store.password.reveal().encode() if store.password else None
    try:
        return pkcs12.load_pkcs12(content, password)
    except UnsupportedAlgorithm:
        raise SettingError(
            f"{store.name}.location {store.location} is encrypted in a way that is no longer "
            f"supported (Java before 8u301 wrote such stores); write it again with a newer Java's "
            f"keytool: keytool -importkeystore -srckeystore {store.location} -destkeystore new.p12 "
            "-deststoretype PKCS12"
        ) from None
    except (ValueError, TypeError):
        raise SettingError(
            f"{store.name}.location {store.location} cannot be opened: "
            f"{store.name}.password is {'wrong' if password else 'missing'}, or the file is damaged"
        ) from None


def _pkcs12_certificates(store: Store, content: bytes) -> str:
    found = _load(store, content)
    own = [found.cert] if found.cert else []
    return _as_pem([entry.certificate for entry in (*own, *found.additional_certs)])


def _pkcs12_key(store: Store, content: bytes) -> OwnKey:
    """The private key and the certificates of a PKCS12 store. The key is encrypted again with a
    password that only this process knows, so that no file ever holds the key in plain text."""
    from cryptography.hazmat.primitives import serialization

    found = _load(store, content)
    if found.key is None or found.cert is None:
        raise SettingError(
            f"{store.name}.location {store.location} has no private key with a certificate; is it "
            "a truststore?"
        )
    password = chance.secret_text()
    key = found.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password.encode()),
    )
    others = [entry.certificate for entry in found.additional_certs]
    chain = _chain(found.cert.certificate, others)
    return OwnKey(Secret(key.decode() + _as_pem(chain)), Secret(password))


def _chain(leaf: "Certificate", others: list["Certificate"]) -> list["Certificate"]:
    """The chain of certificate ``leaf`` in the order that TLS requires: the certificate itself,
    then that of its issuer, that of the issuer's issuer and so on, as far as ``others`` has
    them."""
    chain = [leaf]
    while chain[-1].issuer != chain[-1].subject and len(chain) <= len(others):
        issuer = next((each for each in others if each.subject == chain[-1].issuer), None)
        if issuer is None:
            break
        chain.append(issuer)
    return chain


def _as_pem(certificates: list["Certificate"]) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return "".join(each.public_bytes(Encoding.PEM).decode() for each in certificates)
