"""The state of a transactional id, as its coordinator tells it."""

from typing import NamedTuple

from pyspark_klog.client.addresses import Address
from pyspark_klog.client.blocking import BlockingClient
from pyspark_klog.client.errors import broker_error, error_code
from pyspark_klog.client.transactions.steps import TRANSACTION
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from pyspark_klog.protocol.apis.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_ONE_KEY = 3
"""From version 4 on FindCoordinator asks for several keys."""


class Described(NamedTuple):
    """A transactional id, as its coordinator tells it."""

    state: str
    """By Kafka's name: Empty, Ongoing, PrepareCommit, CompleteAbort ..."""
    topics: frozenset[str]
    """Topics in its transaction, as far as this user may describe them."""


def describe(
    client: BlockingClient, transactional_id: str, deadline_ms: int | None = None
) -> Described:
    """Ask for the state of an id.

    :raises UnsupportedByBroker: by brokers older than Kafka 3.0
    :raises BrokerError: TRANSACTIONAL_ID_NOT_FOUND, or if this user may not describe the id
    """
    deadline = client.deadline() if deadline_ms is None else deadline_ms
    what = f"state of transactional id {transactional_id}"

    def check(number: int) -> None:
        code = error_code(number)
        if code is not ErrorCode.NONE:
            raise broker_error(code, what)

    def attempt() -> Described:
        find = FindCoordinatorRequest(key=transactional_id, key_type=TRANSACTION)
        any_link = client.link_to_any(deadline)
        found = client.ask(any_link, FindCoordinatorResponse, lambda _: find, low=1, high=_ONE_KEY)
        check(found.error_code)
        link = client.links.to(Address(found.host, found.port), deadline)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        reply = client.ask(link, DescribeTransactionsResponse, lambda _: request)
        for row in reply.transaction_states:
            check(row.error_code)
            return Described(row.transaction_state, frozenset(each.topic for each in row.topics))
        raise broker_error(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, what)

    return client.retrying(attempt, deadline, f"asking for the {what}")
