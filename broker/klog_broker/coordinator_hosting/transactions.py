"""Makes the transaction coordinator of a broker, with the broker's settings."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from klog_broker.cluster.producer_ids import ProducerIds
from klog_broker.config import BrokerConfig
from klog_broker.coordinator.broker_request_sender import BatchedApi, BrokerRequestSender
from klog_broker.coordinator.transaction.coordinator import (
    TransactionCoordinator,
    TransactionSettings,
)
from klog_broker.coordinator.transaction.marker_sender import LeaderMarkerSender, MarkersApi
from klog_broker.coordinator.transaction.markers import MarkerSender
from klog_broker.coordinator.transaction.transaction_verifier import (
    TransactionVerifier,
    VerificationApi,
)
from klog_broker.coordinator_hosting.hosting import HostingServices, runtime_services
from klog_broker.coordinator_hosting.marker_writer import MarkerServices, MarkerWriter
from klog_broker.coordinator_hosting.state_topics import StateTopic
from klog_broker.metadata.image import TRANSACTION_STATE
from klog_broker.produce.services import VerifyTransactions
from klog_broker.runtime.peers import Peers
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId
from pyspark_klog.protocol.message import Response

Q = TypeVar("Q")
R = TypeVar("R", bound=Response)


def transaction_settings(config: BrokerConfig) -> TransactionSettings:
    """The broker settings (transaction.* and transactional.id.expiration.ms) that the transaction
    coordinator uses."""
    return TransactionSettings(
        max_timeout_ms=config["transaction.max.timeout.ms"],
        id_expiration_ms=config["transactional.id.expiration.ms"],
        abort_interval_ms=config["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
        expire_interval_ms=config["transaction.remove.expired.transaction.cleanup.interval.ms"],
    )


class TransactionHosting(MarkerServices, HostingServices, Protocol):
    """The services that the transaction coordinator needs."""

    @property
    def broker_id(self) -> BrokerId: ...

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def producer_ids(self) -> ProducerIds: ...

    @property
    def on_image(self) -> list[Callable[[], None]]:
        """Callbacks to run when the metadata image has changed."""

    @property
    def on_close(self) -> list[Callable[[], None]]:
        """Callbacks to run at shutdown, when the broker takes no more requests."""


class TransactionParts(NamedTuple):
    """A broker's transaction coordinator, and the function that verifies that a producer's
    transaction includes the partitions of a request.

    The coordinator starts without partitions; ``follow_leaderships`` adds those that this broker
    leads.
    """

    coordinator: TransactionCoordinator
    verify: VerifyTransactions
    verifies_elsewhere: Callable[[str], bool]
    """Returns whether ``verify`` may ask another broker about the given transactional id."""


def new_transactions(services: TransactionHosting) -> TransactionParts:
    """Make the transaction coordinator of a standalone broker, which leads all partitions, and the
    function that verifies that a producer's transaction includes the partitions of a request."""
    coordinator = _coordinator(services, MarkerWriter(services))
    return TransactionParts(coordinator, coordinator.verify, lambda _: False)


def new_transactions_in_cluster(services: TransactionHosting, peers: Peers) -> TransactionParts:
    """Make the transaction coordinator of a broker in a cluster, and the function that verifies
    that a producer's transaction includes the partitions of a request. The coordinator sends
    markers also to leaders on other brokers; the function also asks coordinators on other
    brokers."""
    sender = LeaderMarkerSender(
        services.broker_id,
        lambda: services.metadata.image,
        services.replicas.led,
        MarkerWriter(services),
        _to_brokers(services, peers, MarkersApi()),
        may_exist=lambda topic: services.known_topics.may_exist(topic),
    )
    coordinator = _coordinator(services, sender)
    others = _to_brokers(services, peers, VerificationApi())
    verifier = TransactionVerifier(
        services.broker_id, lambda: services.metadata.image, coordinator, others
    )
    return TransactionParts(
        coordinator,
        verifier.verify,
        lambda transactional_id: coordinator.serving_error(transactional_id) is not ErrorCode.NONE,
    )


def _coordinator(services: TransactionHosting, sender: MarkerSender) -> TransactionCoordinator:
    return TransactionCoordinator(
        transaction_settings(services.config),
        runtime_services(services),
        sender,
        num_partitions=StateTopic(lambda: services.metadata, TRANSACTION_STATE).num_partitions,
        next_producer_id=services.producer_ids.next_id,
    )


def _to_brokers(
    services: TransactionHosting, peers: Peers, api: BatchedApi[Q, R]
) -> BrokerRequestSender[Q, R]:
    """Make the sender of an API's requests to other brokers. The sender opens one connection to
    each of these brokers, and uses it for this API only."""
    listener = services.config.inter_broker_listener
    to_brokers = BrokerRequestSender(
        services.loop, lambda: services.metadata.image, listener, peers.connect, api
    )
    services.on_image.append(to_brokers.close_stale_connections)
    services.on_close.append(to_brokers.close)
    return to_brokers
