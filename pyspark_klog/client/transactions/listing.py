"""Transactional ids seen from outside: listed with their states, and fenced.

Nothing here writes in a transaction.
"""

from typing import NamedTuple

from pyspark_klog.client.blocking import BlockingClient
from pyspark_klog.client.errors import broker_error, error_code
from pyspark_klog.client.producer.batches import Identity
from pyspark_klog.client.sockets import Link
from pyspark_klog.client.transactions.carrying import carry_out
from pyspark_klog.client.transactions.manager import TransactionManager
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

ONGOING = "Ongoing"
"""The state of a transaction that has begun and that nobody has decided to end."""
_BOUND = "max.block.ms"


class ListedTransaction(NamedTuple):
    """A transactional id as its coordinator lists it."""

    transactional_id: str
    producer_id: int
    state: str
    """As Kafka names it: Empty, Ongoing, PrepareCommit, CompleteAbort ..."""


def list_transactions(
    client: BlockingClient, deadline_ms: int | None = None
) -> list[ListedTransaction]:
    """Every transactional id that this user may describe, sorted; brokers of Kafka 3.0 or newer.

    :raises UnsupportedByBroker: if a broker is older
    """

    def of_broker(link: Link, broker_id: int) -> list[ListedTransaction]:
        reply = client.ask(link, ListTransactionsResponse, lambda _: ListTransactionsRequest())
        code = error_code(reply.error_code)
        if code is not ErrorCode.NONE:
            raise broker_error(code, f"transactions of broker {broker_id}")
        return [
            ListedTransaction(row.transactional_id, row.producer_id, row.transaction_state)
            for row in reply.transaction_states
        ]

    return sorted(client.of_every_broker(of_broker, "listing the transactions", deadline_ms))


def fence(
    client: BlockingClient,
    transactional_id: str,
    *,
    transaction_timeout_ms: int,
    timeout_ms: int | None = None,
) -> Identity:
    """Take a transactional id over and do nothing with it: older producers can end nothing any
    more, and what they left open is aborted, or committed if that was decided.

    Returns the identity that the id has now. ``transaction_timeout_ms`` is stored with the id;
    ``timeout_ms`` is max.block.ms unless given.

    :raises ProducerUnusable: if the coordinator refuses
    :raises TimedOut: if there was no answer in time: the id may have been taken over or not
    """
    block_ms = client.settings.number(_BOUND) if timeout_ms is None else timeout_ms
    manager = TransactionManager(transactional_id, transaction_timeout_ms, client.wait_ms)
    manager.initialize()
    carry_out(client, manager, client.now_ms() + block_ms, _BOUND if timeout_ms is None else None)
    return manager.identity
