"""The table of the TLS and SASL settings, with Kafka's names and mostly Kafka's defaults."""

from collections.abc import Iterator

from pyspark_klog.security.secret import Secret
from pyspark_klog.security.setting_types import INT_MAX, ClientSetting, Effect

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def _text(name: str, doc: str, default: str | None = None) -> ClientSetting:
    return ClientSetting(name, str, default, doc)


def _secret(name: str, doc: str) -> ClientSetting:
    return ClientSetting(name, Secret, None, doc)


def _number(name: str, default: int, doc: str, high: int = INT_MAX) -> ClientSetting:
    return ClientSetting(name, int, default, doc, 0, high)


def _without(reason: str, *names: str) -> Iterator[ClientSetting]:
    for name in names:
        yield ClientSetting(name, str, None, effect=Effect.NONE, without=reason)


_JAVA_TLS = "Python's TLS is OpenSSL, which has no Java providers"
_KERBEROS = "sasl.mechanism GSSAPI (Kerberos) is not supported"
_BROKERS_CHECK = "brokers check tokens; a client only passes them on"
_WHEN_NEEDED = "a token is renewed when a connection needs one, not by a timer"

_OAUTH = "sasl.oauthbearer."
ASSERTIONS = tuple(
    f"{_OAUTH}assertion.{name}"
    for name in (
        "algorithm",
        "claim.aud",
        "claim.exp.seconds",
        "claim.iss",
        "claim.jti.include",
        "claim.nbf.seconds",
        "claim.sub",
        "file",
        "private.key.file",
        "template.file",
    )
)
ASSERTION_PASSPHRASE = f"{_OAUTH}assertion.private.key.passphrase"
"""The setting with the password of the private key that would sign assertions (RFC 7523).

klog does not support signed assertions.
"""

SECURITY: tuple[ClientSetting, ...] = (
    ClientSetting(
        "security.protocol", str, "PLAINTEXT", "how connections are secured", choices=PROTOCOLS
    ),
    # SASL
    _text("sasl.mechanism", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"),
    _secret("sasl.jaas.config", "login module and its options, as for Java"),
    _text("sasl.client.callback.handler.class", "module:callable that gives (user, password)"),
    _text(
        "sasl.login.callback.handler.class",
        "module:callable that gives a token, or (user, password)",
    ),
    _text("sasl.login.class", "Java's own classes are accepted, others refused"),
    _number(
        "sasl.login.connect.timeout.ms",
        10_000,
        "longest wait for a connection to the token endpoint",
        600_000,
    ),
    _number(
        "sasl.login.read.timeout.ms", 10_000, "longest wait for the endpoint's response", 600_000
    ),
    _number("sasl.login.retry.backoff.ms", 100, "wait before the next request"),
    _number("sasl.login.retry.backoff.max.ms", 10_000, "longest time of all attempts together"),
    _number(
        "sasl.login.refresh.buffer.seconds",
        300,
        "how long before its end a token is renewed",
        3_600,
    ),
    _number("sasl.login.refresh.min.period.seconds", 60, "how long a token is used at least", 900),
    _text(
        "sasl.login.refresh.window.factor",
        "part of its lifetime after which a token is renewed, 0.5 to 1.0",
        "0.8",
    ),
    _text(
        f"{_OAUTH}token.endpoint.url",
        "the token endpoint, https://..., or a file with a token, file:///path",
    ),
    _text(f"{_OAUTH}client.credentials.client.id", "the client id for the token endpoint"),
    _secret(f"{_OAUTH}client.credentials.client.secret", "the secret of that client id"),
    _text(f"{_OAUTH}scope", "the scope of the requested token"),
    ClientSetting(
        f"{_OAUTH}header.urlencode", bool, False, "whether id and secret are URL-encoded"
    ),
    _text(f"{_OAUTH}jwt.retriever.class", "Java's own classes, or module:callable"),
    # TLS
    _text("ssl.truststore.location", "certificates to trust: a PEM or PKCS12 file"),
    _text("ssl.truststore.type", "PEM or PKCS12; by default recognised from the file"),
    _secret("ssl.truststore.password", "password of a PKCS12 truststore"),
    _secret("ssl.truststore.certificates", "certificates to trust, as PEM text"),
    _text("ssl.keystore.location", "the client's key and certificates: a PEM or PKCS12 file"),
    _text("ssl.keystore.type", "PEM or PKCS12; by default recognised from the file"),
    _secret("ssl.keystore.password", "password of a PKCS12 keystore"),
    _secret("ssl.keystore.key", "the client's private key, as PEM text"),
    _secret("ssl.keystore.certificate.chain", "the client's certificates, as PEM text"),
    _secret("ssl.key.password", "password of a private key in PEM"),
    _text(
        "ssl.endpoint.identification.algorithm",
        "https checks that a certificate is for the broker's host name; empty does not",
        "https",
    ),
    _text("ssl.protocol", "the newest version of TLS", "TLSv1.3"),
    _text("ssl.enabled.protocols", "versions of TLS that may be used", "TLSv1.2,TLSv1.3"),
    _text("ssl.cipher.suites", "cipher suites of TLS 1.2 that may be used, by their IANA names"),
    _text("ssl.engine.factory.class", "module:callable that gives an ssl.SSLContext"),
    # Settings of the signed assertions (RFC 7523) with which a client can request tokens:
    # sasl_config.py refuses these settings if tokens come from an endpoint or a file
    *(_text(name, "not supported: use module:callable") for name in ASSERTIONS),
    _secret(ASSERTION_PASSPHRASE, "not supported: use module:callable"),
    # Settings of Kafka's Java client that klog accepts and that have no effect in klog
    *_without(
        _JAVA_TLS,
        "ssl.keymanager.algorithm",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    ),
    *_without(
        _KERBEROS,
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
    ),
    *_without(_WHEN_NEEDED, "sasl.login.refresh.window.jitter"),
    *_without(
        _BROKERS_CHECK,
        f"{_OAUTH}clock.skew.seconds",
        f"{_OAUTH}expected.audience",
        f"{_OAUTH}expected.issuer",
        f"{_OAUTH}jwks.endpoint.refresh.ms",
        f"{_OAUTH}jwks.endpoint.retry.backoff.max.ms",
        f"{_OAUTH}jwks.endpoint.retry.backoff.ms",
        f"{_OAUTH}jwks.endpoint.url",
        f"{_OAUTH}jwt.validator.class",
        f"{_OAUTH}scope.claim.name",
        f"{_OAUTH}sub.claim.name",
    ),
)
