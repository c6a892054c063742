"""Translate the IANA names of cipher suites, which Kafka's settings use, to OpenSSL's. No I/O."""

import logging
from collections.abc import Sequence

from pyspark_klog.security.errors import SettingError

_log = logging.getLogger(__name__)

_TLS_1_3 = frozenset(
    {
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_CCM_SHA256",
        "TLS_AES_128_CCM_8_SHA256",
    }
)


def openssl_names(
    suites: Sequence[str], versions: Sequence[str], prefix: str
) -> tuple[list[str], list[str]]:
    """Return OpenSSL's names of the TLS 1.2 suites in ``suites`` (IANA's names of cipher suites),
    and those of the TLS ``versions`` for which ``suites`` has a suite.

    Python's ssl cannot select single suites of TLS 1.3: if ``suites`` names one, all may be used.

    :raises SettingError: if a name in ``suites`` has not IANA's form, or ``suites`` has no suite
        for any version of ``versions``
    """
    older = [suite for suite in suites if suite not in _TLS_1_3]
    newest = [suite for suite in suites if suite in _TLS_1_3]
    if newest and "TLSv1.3" in versions:
        _log.debug(
            "all cipher suites of TLS 1.3 may be used, although %sssl.cipher.suites names only %s "
            "of them",
            prefix,
            newest,
        )
    usable = [v for v in versions if (newest if v == "TLSv1.3" else older)]
    if not usable:
        raise SettingError(
            f"{prefix}ssl.cipher.suites has no suite for {', '.join(versions)} of "
            f"{prefix}ssl.enabled.protocols"
        )
    return [_openssl_name(suite, prefix) for suite in older], usable


def _openssl_name(suite: str, prefix: str) -> str:
    """Return OpenSSL's name of a TLS 1.2 suite, for example ``ECDHE-RSA-AES128-GCM-SHA256``.

    The IANA name of that suite is ``TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256``.
    """
    exchange, found, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if not suite.startswith(("TLS_", "SSL_")) or not found:
        raise SettingError(
            f"{prefix}ssl.cipher.suites has {suite!r}; expected IANA's names, as in "
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
        )
    exchange = exchange.removeprefix("SSL_")
    for size in ("128", "256"):
        cipher = cipher.replace(f"_{size}_CBC_SHA", f"{size}-SHA").replace(f"_{size}_", f"{size}-")
    if cipher.startswith("CHACHA20_POLY1305"):
        cipher = "CHACHA20-POLY1305"
    cipher = cipher.replace("3DES_EDE_CBC_SHA", "DES-CBC3-SHA").replace("_", "-")
    return cipher if exchange == "RSA" else f"{exchange.replace('_', '-')}-{cipher}"
