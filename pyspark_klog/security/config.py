"""What the settings of TLS and SASL mean together: checked, typed, without a file or connection.

`ClientSettings` keeps it as ``security``. What is wrong with a file is found when a connection is
made (tls.py). ``prefix`` stands before names in messages (``kafka.`` for Spark's options).
"""

from dataclasses import dataclass

from pyspark_klog.security.lookup import Lookup, text_of
from pyspark_klog.security.sasl_config import SaslConfig, read_sasl
from pyspark_klog.security.tls_config import TlsConfig, read_tls


@dataclass(frozen=True, slots=True)
class SecurityConfig:
    """How connections are secured; ``tls`` and ``sasl`` are None where they are not used."""

    protocol: str
    tls: TlsConfig | None = None
    sasl: SaslConfig | None = None


def uses_tls(protocol: str) -> bool:
    """Whether a security.protocol has TLS."""
    return protocol.endswith("SSL")


def uses_sasl(protocol: str) -> bool:
    """Whether a security.protocol has SASL."""
    return protocol.startswith("SASL_")


def without_effect(name: str, protocol: str) -> bool:
    """Whether a setting counts for nothing under that security.protocol."""
    if name.startswith("ssl."):
        return not uses_tls(protocol)
    return name.startswith("sasl.") and not uses_sasl(protocol)


def read_security(settings: Lookup, prefix: str = "") -> SecurityConfig:
    """The settings of TLS and SASL as far as security.protocol asks for them.

    :raises SettingError: saying which is missing, wrong or not supported, and what to do
    """
    protocol = text_of(settings, "security.protocol") or "PLAINTEXT"
    return SecurityConfig(
        protocol,
        read_tls(settings, prefix) if uses_tls(protocol) else None,
        read_sasl(settings, prefix) if uses_sasl(protocol) else None,
    )
