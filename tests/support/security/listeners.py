"""A broker behind every kind of secured listener, and Spark's options for each.

klog's broker has no TLS and no SASL: servers that the tests play stand before it. Apache Kafka has
listeners of its own (`listener_properties`).
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from pyspark_klog.protocol.apis.metadata import MetadataResponse
from pyspark_klog.protocol.message import Response
from tests.support.security.certs import Authority
from tests.support.security.kafka_listeners import MECHANISMS, PASSWORD, USER, jaas, shown_by
from tests.support.security.server import PlayedBroker, server_context

LISTENERS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "ELSEWHERE": "SSL",
    "EXPIRED": "SSL",
    "PASSWORDS": "SASL_PLAINTEXT",
    "SECURED": "SASL_SSL",
}
"""Names, and what security.protocol clients use; see `listener_properties`."""


class Listeners:
    """The addresses of LISTENERS; ``fronts`` are the played ones, empty for Apache Kafka."""

    def __init__(
        self,
        authority: Authority,
        addresses: Mapping[str, str],
        fronts: Mapping[str, PlayedBroker] | None = None,
    ) -> None:
        self.authority = authority
        self.addresses = addresses
        self.fronts = fronts or {}

    def options(self, listener: str, mechanism: str = "", config: str = "") -> dict[str, str]:
        """Options as JVM users write them: certificates as PEM text, user and password in JAAS."""
        protocol = LISTENERS[listener]
        options = {
            "kafka.bootstrap.servers": self.addresses[listener],
            "kafka.security.protocol": protocol,
        }
        if protocol.endswith("SSL"):
            options["kafka.ssl.truststore.type"] = "PEM"
            options["kafka.ssl.truststore.certificates"] = self.authority.pem
        if mechanism:
            options["kafka.sasl.mechanism"] = mechanism
            options["kafka.sasl.jaas.config"] = config or jaas(mechanism)
        return options


@contextmanager
def played_listeners(authority: Authority, broker: str) -> Iterator[Listeners]:
    """Servers before a klog broker (``host:port``), until the with statement ends."""
    host, _, port = broker.partition(":")
    with ExitStack() as stack:
        fronts = {}
        for name, protocol in LISTENERS.items():
            clients_of = authority.pem_file() if name == "MUTUAL" else None
            front = PlayedBroker(
                tls=server_context(shown_by(authority, name), clients_of=clients_of)
                if protocol.endswith("SSL")
                else None,
                mechanisms=MECHANISMS if protocol.startswith("SASL") else (),
                users={USER: PASSWORD},
            )
            front.broker = (host, int(port))
            front.edit = lambda reply, port=front.port: _name_front(reply, port)
            fronts[name] = stack.enter_context(front)
        yield Listeners(authority, {name: each.address for name, each in fronts.items()}, fronts)


def _name_front(reply: Response, port: int) -> None:
    """Let a reply name the server before the broker as the broker's address."""
    if isinstance(reply, MetadataResponse):
        for node in reply.brokers:
            node.host, node.port = "localhost", port
