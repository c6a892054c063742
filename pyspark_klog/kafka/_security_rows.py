"""The settings of TLS and SASL: those of `ClientSettings`, and librdkafka's."""

from pyspark_klog.kafka._setting_types import (
    Kind,
    Row,
    flag,
    ignored,
    number,
    refused,
    secret,
    text,
)
from pyspark_klog.security.secret import Secret
from pyspark_klog.security.setting_rows import SECURITY as JAVA_SECURITY
from pyspark_klog.security.setting_types import ClientSetting

_OAUTH = "sasl.oauthbearer"

_ALIASES: dict[str, tuple[str, ...]] = {
    "sasl.mechanism": ("sasl.mechanisms",),
    "ssl.truststore.location": ("ssl.ca.location",),
    "ssl.truststore.certificates": ("ssl.ca.pem",),
    "ssl.keystore.key": ("ssl.key.pem",),
    "ssl.keystore.certificate.chain": ("ssl.certificate.pem",),
    f"{_OAUTH}.client.credentials.client.id": (f"{_OAUTH}.client.id",),
    f"{_OAUTH}.client.credentials.client.secret": (f"{_OAUTH}.client.secret",),
    f"{_OAUTH}.assertion.template.file": (f"{_OAUTH}.assertion.jwt.template.file",),
}
_KINDS: dict[type, Kind] = {
    int: Kind.NUMBER,
    bool: Kind.FLAG,
    str: Kind.TEXT,
    Secret: Kind.SECRET,
}


def _java_row(row: ClientSetting) -> Row:
    return Row(
        *(row.name, _KINDS[row.kind], row.default, row.doc, _ALIASES.get(row.name, ())),
        *(row.low, row.high, row.choices),
        client=row.name,
        without=row.without,
    )


_KERBEROS = "sasl.mechanism GSSAPI (Kerberos) is not supported"

_OTHERS: tuple[Row, ...] = (
    # librdkafka's own settings, which _security_settings.py turns into Java's
    text("ssl.certificate.location", None, "the client's certificates: a PEM file"),
    text("ssl.key.location", None, "the client's private key: a PEM file"),
    text("https.ca.location", None, "certificates to trust of a token endpoint: a PEM file"),
    secret("https.ca.pem", "certificates to trust of a token endpoint, as PEM text"),
    text("sasl.username", None, "the user of PLAIN and SCRAM"),
    secret("sasl.password", "the password of PLAIN and SCRAM"),
    secret(f"{_OAUTH}.config", "the argument of oauth_cb, or the claims of unsecured tokens"),
    flag("enable.sasl.oauthbearer.unsecure.jwt", False, "whether tokens have no signature"),
    text(
        *(f"{_OAUTH}.method", "default", "oidc: tokens come from the token endpoint"),
        choices=("default", "oidc"),
    ),
    text(f"{_OAUTH}.extensions", None, "extensions that are sent with a token: name=value,..."),
    text(
        *("ssl.endpoint.identification.algorithm", "https"),
        "https checks that a certificate is for the broker's host name; none does not",
        choices=("https", "none", ""),
        client="ssl.endpoint.identification.algorithm",
    ),
    *refused(
        "klog always verifies the broker's certificate: name its authority by ssl.ca.location (a"
        " self-signed certificate is its own authority), or set"
        " ssl.endpoint.identification.algorithm=none if only the host name differs",
        flag("enable.ssl.certificate.verification", True, ""),
    ),
    *refused(
        "Python's TLS does not have this setting: name a function that makes an ssl.SSLContext by"
        " ssl.engine.factory.class=module:callable",
        text("ssl.crl.location", None, ""),
        text("ssl.curves.list", None, ""),
        text("ssl.sigalgs.list", None, ""),
        text("ssl.providers", None, ""),
        text("ssl.engine.location", None, ""),
        text("ssl.engine.id", "dynamic", ""),
    ),
    *refused(
        "the client does not sign assertions: name a function that gives a token by"
        " sasl.login.callback.handler.class=module:callable, or set oauth_cb",
        secret(f"{_OAUTH}.assertion.private.key.pem", ""),
        text(
            *(f"{_OAUTH}.grant.type", "client_credentials", ""),
            choices=("client_credentials", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
        ),
        text(
            *(f"{_OAUTH}.metadata.authentication.type", "none", ""),
            choices=("none", "azure_imds"),
        ),
        # The same names as in Java, with librdkafka's types
        text(f"{_OAUTH}.assertion.algorithm", None, "", choices=("RS256", "ES256")),
        number(f"{_OAUTH}.assertion.claim.exp.seconds", None, "", 1),
        number(f"{_OAUTH}.assertion.claim.nbf.seconds", None, ""),
        flag(f"{_OAUTH}.assertion.claim.jti.include", None, ""),
    ),
    *ignored(
        _KERBEROS,
        text("sasl.kerberos.keytab", None, ""),
        text("sasl.kerberos.principal", None, ""),
        number("sasl.kerberos.min.time.before.relogin", 60_000, "", 0, 86_400_000),
    ),
)

_OWN_NAMES = {row.name for row in _OTHERS}

SECURITY: tuple[Row, ...] = (
    *(_java_row(row) for row in JAVA_SECURITY if row.name not in _OWN_NAMES),
    *_OTHERS,
)
