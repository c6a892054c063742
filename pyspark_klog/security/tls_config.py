"""Read the settings ``ssl.*`` into a checked value, `TlsConfig`. No I/O.

client/security/tls.py reads the files that the value names, and creates OpenSSL's context.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark_klog.security.errors import SettingError
from pyspark_klog.security.lookup import Lookup, secret_of, text_of
from pyspark_klog.security.secret import Secret
from pyspark_klog.security.setting_rows import SECURITY
from pyspark_klog.security.user_functions import UserFunction, java_class, parse_user_function

VERSIONS = ("TLSv1.2", "TLSv1.3")
_BROKEN_VERSIONS = ("TLSv1", "TLSv1.1")
"""Insecure versions that old settings may still name. klog accepts their names next to one of
VERSIONS in ssl.enabled.protocols but, like Java 17, never uses the versions (RFC 8996)."""
STORE_TYPES = ("JKS", "PKCS12", "PEM")

_ENGINE = "ssl.engine.factory.class"
_JAVAS_ENGINES = ("org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",)
_NEWEST = "ssl.protocol"


@dataclass(frozen=True, slots=True)
class Store:
    """Certificates to trust, or a key with its certificates: a file, or PEM text."""

    name: str
    """The start of the names of this store's settings, for error messages: ``ssl.truststore`` or
    ``ssl.keystore``, after the prefix of the settings (``kafka.`` for Spark's options)."""
    kind: str | None
    """The type that the user named, one of STORE_TYPES; None to detect it from the content."""
    location: str | None = None
    password: Secret | None = None
    """The password of a PKCS12 file."""
    certificates: Secret | None = None
    key: Secret | None = None
    key_password: Secret | None = None


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """The settings of TLS connections."""

    prefix: str
    trust: Store | None
    """The certificates to trust; None for the authorities that this system trusts."""
    own: Store | None
    """The client's own key and certificates, which a broker may ask for; None without any."""
    check_host_name: bool
    versions: tuple[str, ...]
    """The versions of TLS, a part of VERSIONS, that may be used, oldest first."""
    cipher_suites: tuple[str, ...]
    """The IANA names of the allowed cipher suites; if empty, OpenSSL chooses."""
    engine: UserFunction | None = None
    given: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    """The argument of the user's function ``engine``, which creates the ssl.SSLContext: every TLS
    setting by name, with secrets in plain text."""


def read_tls(settings: Lookup, prefix: str) -> TlsConfig:
    """Return the settings of TLS.

    :raises SettingError: if a value is invalid, or values contradict each other
    """
    engine = _engine(settings, prefix)
    return TlsConfig(
        prefix,
        _truststore(settings, prefix),
        _keystore(settings, prefix),
        _check_host_name(settings, prefix),
        _versions(settings, prefix),
        tuple(_list(text_of(settings, "ssl.cipher.suites") or "")),
        engine,
        _plain(settings) if engine else {},
    )


def _engine(settings: Lookup, prefix: str) -> UserFunction | None:
    name = text_of(settings, _ENGINE)
    if name is None or java_class(name) in _JAVAS_ENGINES:
        return None
    function = parse_user_function(prefix + _ENGINE, name)
    if function is None:
        raise SettingError(
            f"{prefix}{_ENGINE} is {name!r}, and klog has no Java class of this name; expected "
            "module:callable, a Python function that takes the settings ssl.* and gives an "
            "ssl.SSLContext, or leave it out"
        )
    return function


def _plain(settings: Lookup) -> dict[str, str | None]:
    names = [row.name for row in SECURITY if row.name.startswith("ssl.")]
    return {
        name: value.reveal() if isinstance(value, Secret) else None if value is None else str(value)
        for name in names
        for value in (settings[name],)
    }


def _truststore(settings: Lookup, prefix: str) -> Store | None:
    name = f"{prefix}ssl.truststore"
    kind = _kind(settings, "ssl.truststore.type", prefix)
    location = text_of(settings, "ssl.truststore.location")
    password = secret_of(settings, "ssl.truststore.password")
    certificates = secret_of(settings, "ssl.truststore.certificates")
    if location and certificates:
        raise SettingError(f"{name}.location and {name}.certificates are given; expected one")
    if certificates and kind not in (None, "PEM"):
        raise SettingError(f"{name}.certificates is PEM text, and {name}.type is {kind}: set PEM")
    if password and not location:
        raise SettingError(f"{name}.password is given without {name}.location")
    if password and kind == "PEM":
        raise SettingError(f"{name}.password is not for type PEM: leave it out")
    if not location and not certificates:
        return None
    return Store(name, kind, location, password, certificates)


def _keystore(settings: Lookup, prefix: str) -> Store | None:
    name = f"{prefix}ssl.keystore"
    kind = _kind(settings, "ssl.keystore.type", prefix)
    location = text_of(settings, "ssl.keystore.location")
    password = secret_of(settings, "ssl.keystore.password")
    key = secret_of(settings, "ssl.keystore.key")
    chain = secret_of(settings, "ssl.keystore.certificate.chain")
    if location and (key or chain):
        raise SettingError(
            f"{name}.location is given together with {name}.key or {name}.certificate.chain; "
            "expected a file, or both as PEM text"
        )
    if bool(key) != bool(chain):
        raise SettingError(f"expected {name}.key and {name}.certificate.chain together; one is set")
    if key and kind not in (None, "PEM"):
        raise SettingError(f"{name}.key is PEM text, and {name}.type is {kind}: set PEM")
    if password and not location:
        raise SettingError(f"{name}.password is given without {name}.location")
    if password and kind == "PEM":
        raise SettingError(
            f"{name}.password is not for type PEM: leave it out, and set the password of a private "
            f"key as {prefix}ssl.key.password"
        )
    if not location and not key:
        return None
    key_password = secret_of(settings, "ssl.key.password")
    return Store(name, kind, location, password, chain, key, key_password)


def _kind(settings: Lookup, name: str, prefix: str) -> str | None:
    kind = text_of(settings, name)
    if kind is None:
        return None
    if kind.upper() not in STORE_TYPES:
        raise SettingError(f"{prefix}{name} is {kind!r}; expected PEM or PKCS12")
    return kind.upper()


def _check_host_name(settings: Lookup, prefix: str) -> bool:
    name = "ssl.endpoint.identification.algorithm"
    value = settings[name]
    algorithm = value.strip() if isinstance(value, str) else ""
    if algorithm.lower() not in ("https", ""):
        raise SettingError(
            f"{prefix}{name} is {algorithm!r}; expected https, or nothing to turn the check "
            "of host names off"
        )
    return bool(algorithm)


def _versions(settings: Lookup, prefix: str) -> tuple[str, ...]:
    named = _list(text_of(settings, "ssl.enabled.protocols") or ",".join(VERSIONS))
    newest = text_of(settings, _NEWEST) or VERSIONS[-1]
    if newest == "TLS":
        newest = VERSIONS[-1]
    for setting, given in (("ssl.enabled.protocols", named), (_NEWEST, [newest])):
        unknown = [v for v in given if v not in (*_BROKEN_VERSIONS, *VERSIONS)]
        unspoken = unknown or ([] if set(given) & set(VERSIONS) else given)
        if unspoken:
            raise SettingError(
                f"{prefix}{setting} has {unspoken[0]!r}; expected {', '.join(VERSIONS)}"
            )
    top = VERSIONS.index(newest)
    usable = tuple(v for v in VERSIONS if v in named and VERSIONS.index(v) <= top)
    if not usable:
        raise SettingError(
            f"{prefix}ssl.enabled.protocols has only versions that are newer than "
            f"{prefix}{_NEWEST}, {newest}"
        )
    return usable


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
