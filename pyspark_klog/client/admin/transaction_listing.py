"""Lists the transactional ids of a cluster with their states, and fences their producers.

This module never writes in a transaction.
"""

from collections.abc import Sequence
from typing import NamedTuple

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import broker_error, error_code
from pyspark_klog.client.producer.batches import Identity
from pyspark_klog.client.transactions.blocking_driver import carry_out
from pyspark_klog.client.transactions.manager import TransactionManager
from pyspark_klog.client.transport.socket_link import Link
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

ONGOING = "Ongoing"
"""The state of a transaction that has begun and whose end nobody has requested."""
_BOUND = "max.block.ms"


class ListedTransaction(NamedTuple):
    """A transactional id as its coordinator lists it."""

    transactional_id: str
    producer_id: int
    state: str
    """Kafka's name of the state: Empty, Ongoing, PrepareCommit, CompleteAbort ..."""
    coordinator_id: int


class TransactionFilter(NamedTuple):
    """Conditions for the transactional ids to list; an empty condition excludes no id."""

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    longer_than_ms: int | None = None
    """List only transactions that have lasted longer than this; needs Kafka 3.8 or newer."""
    pattern: str | None = None
    """A regular expression that the whole transactional id has to match; since Kafka 4.1."""


def list_transactions(
    client: BlockingClient,
    deadline_ms: int | None = None,
    only: TransactionFilter = TransactionFilter(),  # noqa: B008 (it is immutable)
) -> list[ListedTransaction]:
    """The transactional ids that the client's user may describe and that ``only`` does not exclude,
    sorted; needs Kafka 3.0 or newer.

    :raises UnsupportedByBroker: if a broker is older, or does not support one of the filters
    """
    low = 2 if only.pattern is not None else 1 if only.longer_than_ms is not None else 0
    request = ListTransactionsRequest(
        state_filters=list(only.states), producer_id_filters=list(only.producer_ids)
    )
    if only.longer_than_ms is not None:
        request.duration_filter = only.longer_than_ms
    request.transactional_id_pattern = only.pattern

    def of_broker(link: Link, broker_id: int) -> list[ListedTransaction]:
        response = client.call(link, ListTransactionsResponse, lambda _: request, low=low)
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            raise broker_error(code, f"list transactions of broker {broker_id}")
        if response.unknown_state_filters:
            unknown = ", ".join(response.unknown_state_filters)
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"broker {broker_id} knows no state {unknown}"
            )
        return [
            ListedTransaction(
                row.transactional_id, row.producer_id, row.transaction_state, broker_id
            )
            for row in response.transaction_states
        ]

    return sorted(client.collect_from_brokers(of_broker, "listing the transactions", deadline_ms))


def fence_producers(
    client: BlockingClient,
    transactional_id: str,
    *,
    transaction_timeout_ms: int,
    timeout_ms: int | None = None,
) -> Identity:
    """Take a transactional id over and then leave it unused: older producers with the id are
    fenced. Their open transaction is aborted, or committed if its commit was already decided.

    Returns the producer id and epoch that the id has now. ``transaction_timeout_ms`` is stored with
    the id; ``timeout_ms`` is max.block.ms unless given.

    :raises ProducerUnusable: if the coordinator refuses
    :raises TimedOut: if the coordinator did not answer in time; the id may have been taken over
    """
    block_ms = client.settings.number(_BOUND) if timeout_ms is None else timeout_ms
    manager = TransactionManager(transactional_id, transaction_timeout_ms, client.wait_ms)
    manager.initialize()
    carry_out(client, manager, client.now_ms() + block_ms, _BOUND if timeout_ms is None else None)
    return manager.identity
