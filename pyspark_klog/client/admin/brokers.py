"""The brokers of a cluster: addresses, racks, the controller, their replicas and their versions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.cluster.metadata import ClusterView
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.client.transport.api_versions import BrokerVersions
from pyspark_klog.client.transport.socket_link import Link
from pyspark_klog.errors import BrokerError, ErrorCode

T = TypeVar("T")

_DESCRIBE_QUORUM = 55
"""The key of DescribeQuorum, which only brokers of a KRaft cluster serve. The Metadata responses of
these brokers name any live broker as the controller, because brokers forward the requests of
clients to the real controller."""


@dataclass(frozen=True, slots=True)
class ListedBroker:
    """A live broker. ``address`` is the one of the listener through which the client has asked.
    ``is_controller`` is None in a KRaft cluster, where Metadata does not name the controller."""

    broker_id: int
    address: Address
    rack: str | None
    is_controller: bool | None


@dataclass(slots=True)
class ReplicaCounts:
    """How many partitions a broker leads, how many replicas are assigned to it, and how many of
    these replicas are not in the ISR."""

    leaders: int = 0
    replicas: int = 0
    out_of_sync: int = 0


def list_brokers(client: BlockingClient, deadline_ms: int | None = None) -> list[ListedBroker]:
    """The live brokers of the cluster, sorted by id."""
    deadline = client.deadline() if deadline_ms is None else deadline_ms
    view = client.refresh([], deadline)
    link = client.link_to_any(deadline)
    names_controller = _DESCRIBE_QUORUM not in _versions_of(link).ranges
    return [
        ListedBroker(
            broker_id,
            address,
            view.racks.get(broker_id),
            broker_id == view.controller_id if names_controller else None,
        )
        for broker_id, address in sorted(view.brokers.items())
    ]


def count_replicas(view: ClusterView) -> dict[int, ReplicaCounts]:
    """Count leaders and replicas of all topics in the view, by broker id. Brokers that are down are
    counted, too."""
    counts: dict[int, ReplicaCounts] = {broker_id: ReplicaCounts() for broker_id in view.brokers}
    for topic in view.topics.values():
        for partition in topic.partitions.values():
            for broker_id in partition.replicas:
                count = counts.setdefault(broker_id, ReplicaCounts())
                count.replicas += 1
                count.leaders += broker_id == partition.leader
                count.out_of_sync += broker_id not in partition.in_sync
    return counts


def broker_versions(
    client: BlockingClient, broker_id: int, deadline_ms: int | None = None
) -> BrokerVersions:
    """The versions of APIs that a broker serves, and the levels of its cluster's features.

    :raises BrokerError: if no live broker has the id
    """
    return call_broker(client, broker_id, _versions_of, "connecting", deadline_ms)


def call_broker(
    client: BlockingClient,
    broker_id: int,
    ask: Callable[[Link], T],
    what: str,
    deadline_ms: int | None = None,
) -> T:
    """Call ``ask`` with a connection to one broker, again after each retriable error until the
    deadline (default.api.timeout.ms unless given). ``what`` names the work in messages.

    :raises BrokerError: with BROKER_ID_NOT_REGISTERED if no live broker has the id
    """
    deadline = client.deadline() if deadline_ms is None else deadline_ms

    def attempt() -> T:
        there = client.refresh([], deadline).brokers
        if broker_id not in there:
            text = (
                f"there is no broker {broker_id}; there are: {', '.join(map(str, sorted(there)))}"
            )
            raise BrokerError(ErrorCode.BROKER_ID_NOT_REGISTERED, text)
        return ask(client.link_to_broker(broker_id, deadline))

    return client.run_with_retries(attempt, deadline, f"broker {broker_id}: {what}")


def _versions_of(link: Link) -> BrokerVersions:
    versions = link.connection.versions
    assert versions is not None, "a ready connection has its broker's versions"
    return versions
