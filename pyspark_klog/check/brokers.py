"""Checks whether brokers can be reached from this machine: at the addresses that the user gave, and
at the addresses that the brokers advertise."""

from collections.abc import Iterator, Mapping

from pyspark_klog.check.items import Item, fail, ok
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.errors import KlogError

_WITHIN_MS = 10_000
"""The time limit in ms of each request to a broker, and of each connection attempt and metadata
request with its retries, unless the user's settings give other limits."""
_SETTINGS = {"default.api.timeout.ms": str(_WITHIN_MS), "request.timeout.ms": str(_WITHIN_MS)}


def check_brokers(servers: str, settings: Mapping[str, str]) -> Iterator[Item]:
    """Connect to each address in ``servers``, then to the brokers in the cluster's metadata.

    ``settings`` are settings of Kafka's clients.
    """
    try:
        client = BlockingClient({**_SETTINGS, **settings, "bootstrap.servers": servers})
    except KlogError as error:
        yield fail(f"brokers: {error}")
        return
    with client:
        client.retries.mute()
        reached = False
        for address in client.bootstrap:
            item = _reach(client, address, "")
            reached = reached or isinstance(item, str)
            yield ok(item) if isinstance(item, str) else item
        if reached:
            yield from _cluster(client)


def _reach(client: BlockingClient, address: Address, more: str) -> str | Item:
    began_ms = client.now_ms()
    try:
        link = client.links.link_to(address, client.deadline())
    except KlogError as error:
        return fail(
            f"broker {address}{more}: {error}; expected a listener of Kafka's protocol that can be "
            "reached from this host: see docs/troubleshooting.md, No connection"
        )
    count = len(link.connection.versions.ranges) if link.connection.versions else 0
    took_ms = client.now_ms() - began_ms
    return f"broker {address}{more}: connected, {count} APIs (ApiVersions), {took_ms} ms"


def _cluster(client: BlockingClient) -> Iterator[Item]:
    began_ms = client.now_ms()
    try:
        view = client.refresh([])
    except KlogError as error:
        yield fail(f"cluster: {error}; expected an answer to Metadata: look at the broker's log")
        return
    took_ms = client.now_ms() - began_ms
    yield ok(f"cluster: id {view.cluster_id}, {len(view.brokers)} brokers, {took_ms} ms")
    for number, address in sorted(view.brokers.items()):
        if address not in client.bootstrap:
            item = _reach(client, address, f" (advertised.listeners of broker {number})")
            yield ok(item) if isinstance(item, str) else item
