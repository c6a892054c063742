"""Finds the broker that coordinates a group or transactional id (FindCoordinator), and calls it."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import broker_error, error_code
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.client.transport.socket_link import Link
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

T = TypeVar("T")

GROUP, TRANSACTION = 0, 1
"""The key types of FindCoordinator."""
_NAMES = {GROUP: "group", TRANSACTION: "transactional id"}
_ONE_KEY = 3
"""The last version of FindCoordinator for a single key; version 4 and later have several keys."""


class Coordinator(NamedTuple):
    """The broker that coordinates a group or transactional id."""

    broker_id: int
    address: Address


def find_coordinator(
    client: BlockingClient, key: str, deadline_ms: int, key_type: int = GROUP
) -> Coordinator:
    """Ask any broker for the coordinator of a key.

    :raises BrokerError: for every error code, retriable codes included
    """

    request = FindCoordinatorRequest(key=key, key_type=key_type)
    link = client.link_to_any(deadline_ms)
    low = 0 if key_type == GROUP else 1
    response = client.call(link, FindCoordinatorResponse, lambda _: request, low=low, high=_ONE_KEY)
    code = error_code(response.error_code)
    if code is not ErrorCode.NONE:
        raise broker_error(code, f"find coordinator of {_NAMES[key_type]} {key}")
    return Coordinator(response.node_id, Address(response.host, response.port))


def run_at_coordinator(
    client: BlockingClient,
    key: str,
    attempt: Callable[[Link, Coordinator], T],
    deadline_ms: int | None,
    what: str,
    key_type: int = GROUP,
) -> T:
    """Run ``attempt`` on a connection to the coordinator of ``key``, a group id or transactional
    id. Each retry first asks which broker is the coordinator now."""
    deadline = client.deadline() if deadline_ms is None else deadline_ms

    def find_and_attempt() -> T:
        found = find_coordinator(client, key, deadline, key_type)
        return attempt(client.links.link_to(found.address, deadline), found)

    bound = "default.api.timeout.ms" if deadline_ms is None else None
    return client.run_with_retries(find_and_attempt, deadline, what, bound=bound)
