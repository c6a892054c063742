"""Apache Kafka's listeners with TLS and SASL: their properties, and what clients set for them."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.support.peers import KafkaServer
from tests.support.security.certs import Authority

USER, PASSWORD = "alice", "alice-passw0rd"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

_KAFKA = "org.apache.kafka.common.security"
PLAIN_MODULE = f"{_KAFKA}.plain.PlainLoginModule"
SCRAM_MODULE = f"{_KAFKA}.scram.ScramLoginModule"
OAUTH_MODULE = f"{_KAFKA}.oauthbearer.OAuthBearerLoginModule"
UNSECURED_VALIDATOR = (
    f"{_KAFKA}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)

SCRAM_USERS = [
    argument
    for mechanism in MECHANISMS[1:3]
    for argument in ("--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]")
]
"""Arguments of Kafka's storage tool that create the users of SCRAM."""


def jaas(mechanism: str, user: str = USER, password: str = PASSWORD) -> str:
    """A client's sasl.jaas.config."""
    if mechanism == "OAUTHBEARER":
        return f'{OAUTH_MODULE} required unsecuredLoginStringClaim_sub="{user}";'
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    return f'{module} required username="{user}" password="{password}";'


def sasl_properties(listener: str, mechanisms: tuple[str, ...] = MECHANISMS) -> dict[str, str]:
    """A broker's properties for a listener with SASL."""
    prefix = f"listener.name.{listener.lower()}."
    properties = {f"{prefix}sasl.enabled.mechanisms": ",".join(mechanisms)}
    for mechanism in mechanisms:
        own = f"{prefix}{mechanism.lower()}."
        if mechanism == "PLAIN":
            config = f'{PLAIN_MODULE} required user_{USER}="{PASSWORD}";'
        elif mechanism == "OAUTHBEARER":
            config = f'{OAUTH_MODULE} required unsecuredLoginStringClaim_sub="broker";'
            properties[f"{own}sasl.server.callback.handler.class"] = UNSECURED_VALIDATOR
        else:
            config = f"{SCRAM_MODULE} required;"
        properties[f"{own}sasl.jaas.config"] = config
    return properties


def tls_properties(listener: str, keystore: Path, truststore: Path, **more: str) -> dict[str, str]:
    """A broker's properties for a listener with TLS; stores are PEM files."""
    prefix = f"listener.name.{listener.lower()}."
    return {
        f"{prefix}ssl.keystore.type": "PEM",
        f"{prefix}ssl.keystore.location": str(keystore),
        f"{prefix}ssl.truststore.type": "PEM",
        f"{prefix}ssl.truststore.location": str(truststore),
        **{prefix + name.replace("_", "."): value for name, value in more.items()},
    }


def listener_properties(authority: Authority, listeners: Mapping[str, str]) -> dict[str, str]:
    """A broker's properties for listeners by name, with their security protocols.

    MUTUAL wants certificates of its clients, ELSEWHERE shows one for another host, EXPIRED one that
    has expired, ONLYPLAIN has no other mechanism.
    """
    properties: dict[str, str] = {}
    for name, protocol in listeners.items():
        if protocol.endswith("SSL"):
            wanted = "required" if name == "MUTUAL" else "none"
            properties |= tls_properties(
                name, shown_by(authority, name), authority.pem_file(), ssl_client_auth=wanted
            )
        if protocol.startswith("SASL"):
            properties |= sasl_properties(name, ("PLAIN",) if name == "ONLYPLAIN" else MECHANISMS)
    return properties


def shown_by(authority: Authority, listener: str) -> Path:
    """The key and certificate of a listener."""
    if listener == "ELSEWHERE":
        return authority.issue("elsewhere", ("elsewhere",)).pem_file()
    if listener == "EXPIRED":
        return authority.issue("old", ("localhost",), expired=True).pem_file()
    return authority.broker().pem_file()


def session_properties(listener: str, lifetime_ms: int) -> dict[str, str]:
    """A broker's properties for sessions that end."""
    names: Iterable[str] = (mechanism.lower() for mechanism in MECHANISMS)
    prefix = f"listener.name.{listener.lower()}"
    return {f"{prefix}.{name}.connections.max.reauth.ms": str(lifetime_ms) for name in names}


def java_client_properties(mechanism: str, config: str, folder: Path) -> Path:
    """A file of properties for Kafka's own tools, over SASL_PLAINTEXT."""
    path = folder / f"{mechanism}.properties"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={config}\n"
        "request.timeout.ms=20000\ndefault.api.timeout.ms=20000\n",
        encoding="ascii",
    )
    return path


def list_topics(
    server: KafkaServer, address: str, properties: Path, *, deadline_s: float = 60
) -> str:
    """Return the output of Kafka's own tool when it lists topics with these properties."""
    done = server.run_tool(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", address, "--command-config", str(properties), "--list"),
        timeout_s=deadline_s,
    )
    return done.stdout + done.stderr
