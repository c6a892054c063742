"""Connects the transaction coordinator to its broker: settings, leaderships, FindCoordinator."""

from typing import TypeVar

from klog_broker.config import BrokerConfig
from klog_broker.coordinator.to_brokers import Api, ToBrokers
from klog_broker.coordinator.transaction.coordinator import (
    TransactionCoordinator,
    TransactionSettings,
)
from klog_broker.coordinator.transaction.marker_sending import MarkersApi, MarkersToLeaders
from klog_broker.coordinator.transaction.markers import MarkerSender
from klog_broker.coordinator.transaction.verifying import VerificationApi, Verifier
from klog_broker.handlers.context import BrokerServices, VerifyTransactions
from klog_broker.handlers.coordinator_hosting import follow_leaderships, runtime_services
from klog_broker.handlers.marker_writing import MarkerWriter
from klog_broker.handlers.state_topics import CoordinatorFinder
from klog_broker.handlers.told_topics import may_exist
from klog_broker.metadata.image import TRANSACTION_STATE
from klog_broker.runtime.peers import Peers
from pyspark_klog.protocol.message import Response

Q = TypeVar("Q")
R = TypeVar("R", bound=Response)

TRANSACTION_KEY_TYPE = 1


def transaction_settings(config: BrokerConfig) -> TransactionSettings:
    """The broker's transaction.* settings."""
    return TransactionSettings(
        max_timeout_ms=config["transaction.max.timeout.ms"],
        id_expiration_ms=config["transactional.id.expiration.ms"],
        abort_interval_ms=config["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
        expire_interval_ms=config["transaction.remove.expired.transaction.cleanup.interval.ms"],
    )


def start_transactions(broker: BrokerServices) -> None:
    """Make ``transactions`` and ``verify_transactions``. The coordinator begins to load the
    partitions of ``__transaction_state`` that this broker leads, and goes on with what was being
    ended there. The group coordinator is there."""
    finder = CoordinatorFinder(
        broker,
        TRANSACTION_STATE,
        lambda transactional_id: transactions.find(transactional_id),
    )
    transactions = broker.transactions = TransactionCoordinator(
        transaction_settings(broker.config),
        runtime_services(broker),
        _marker_sender(broker),
        num_partitions=finder.num_partitions,
        next_producer_id=broker.producer_ids.next_id,
    )
    broker.verify_transactions = _verification(broker)
    follow_leaderships(broker, TRANSACTION_STATE, transactions)
    broker.find_coordinator[TRANSACTION_KEY_TYPE] = finder.find


def _marker_sender(broker: BrokerServices) -> MarkerSender:
    own = MarkerWriter(broker)
    if broker.peers is None:
        return own
    return MarkersToLeaders(
        broker.broker_id,
        lambda: broker.metadata.image,
        broker.replicas.led,
        own,
        _to_brokers(broker, broker.peers, MarkersApi()),
        may_exist=lambda topic: may_exist(broker, topic),
    )


def _verification(broker: BrokerServices) -> VerifyTransactions:
    if broker.peers is None:
        return broker.transactions.verify
    others = _to_brokers(broker, broker.peers, VerificationApi())
    return Verifier(
        broker.broker_id, lambda: broker.metadata.image, broker.transactions, others
    ).verify


def _to_brokers(broker: BrokerServices, peers: Peers, api: Api[Q, R]) -> ToBrokers[Q, R]:
    """With connections of its own."""
    listener = broker.config.inter_broker_listener
    to_brokers = ToBrokers(broker.loop, lambda: broker.metadata.image, listener, peers.connect, api)
    broker.on_image.append(to_brokers.look)
    broker.on_close.append(to_brokers.close)
    return to_brokers
