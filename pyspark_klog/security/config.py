"""Read the settings of TLS and SASL together into one checked value, `SecurityConfig`.

No file is read and no connection is made here: client/security/tls.py reports a faulty file when
the client connects. `ClientSettings` keeps the value as ``security``. ``prefix`` is put before the
names of settings in error messages (``kafka.`` for Spark's options).
"""

from dataclasses import dataclass

from pyspark_klog.security.lookup import Lookup, text_of
from pyspark_klog.security.sasl_config import SaslConfig, read_sasl
from pyspark_klog.security.tls_config import TlsConfig, read_tls


@dataclass(frozen=True, slots=True)
class SecurityConfig:
    """The security of a client's connections: the protocol, and the settings of TLS and SASL.

    ``tls`` and ``sasl`` are None if the protocol does not use them.
    """

    protocol: str
    tls: TlsConfig | None = None
    sasl: SaslConfig | None = None


def uses_tls(protocol: str) -> bool:
    """Return whether a security.protocol uses TLS."""
    return protocol.endswith("SSL")


def uses_sasl(protocol: str) -> bool:
    """Return whether a security.protocol uses SASL."""
    return protocol.startswith("SASL_")


def has_no_effect(name: str, protocol: str) -> bool:
    """Return whether the setting ``name`` has no effect under the given security.protocol."""
    if name.startswith("ssl."):
        return not uses_tls(protocol)
    return name.startswith("sasl.") and not uses_sasl(protocol)


def read_security(settings: Lookup, prefix: str = "") -> SecurityConfig:
    """Return the settings of TLS and SASL that security.protocol needs. Other settings of TLS and
    SASL are not checked.

    :raises SettingError: if a setting is missing, wrong or not supported; the text says what to do
    """
    protocol = text_of(settings, "security.protocol") or "PLAINTEXT"
    return SecurityConfig(
        protocol,
        read_tls(settings, prefix) if uses_tls(protocol) else None,
        read_sasl(settings, prefix) if uses_sasl(protocol) else None,
    )
