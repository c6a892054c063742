"""Connects the transaction coordinator to its broker: settings, leaderships, FindCoordinator."""

from klog_broker.config import BrokerConfig
from klog_broker.coordinator.transaction.coordinator import (
    TransactionCoordinator,
    TransactionSettings,
)
from klog_broker.handlers.context import BrokerServices
from klog_broker.handlers.coordinator_hosting import follow_leaderships, runtime_services
from klog_broker.handlers.marker_writing import MarkerWriter
from klog_broker.handlers.state_topics import CoordinatorFinder
from klog_broker.metadata.image import TRANSACTION_STATE
from pyspark_klog.errors import ErrorCode

TRANSACTION_KEY_TYPE = 1


def transaction_settings(config: BrokerConfig) -> TransactionSettings:
    """The broker's transaction.* settings."""
    return TransactionSettings(
        max_timeout_ms=config["transaction.max.timeout.ms"],
        id_expiration_ms=config["transactional.id.expiration.ms"],
        abort_interval_ms=config["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
        expire_interval_ms=config["transaction.remove.expired.transaction.cleanup.interval.ms"],
    )


def start_transactions(broker: BrokerServices) -> TransactionCoordinator:
    """Make the coordinator; it begins to load the partitions of ``__transaction_state`` that this
    broker leads, and goes on with what was being ended there. The group coordinator is there."""
    finder = CoordinatorFinder(
        broker,
        TRANSACTION_STATE,
        lambda transactional_id: transactions.find(transactional_id),
        (ErrorCode.INVALID_REQUEST, "the transactional id is empty"),
    )
    transactions = TransactionCoordinator(
        transaction_settings(broker.config),
        runtime_services(broker),
        MarkerWriter(broker),
        num_partitions=finder.num_partitions,
        next_producer_id=broker.producer_ids.next_id,
    )
    follow_leaderships(broker, TRANSACTION_STATE, transactions)
    broker.find_coordinator[TRANSACTION_KEY_TYPE] = finder.find
    return transactions
