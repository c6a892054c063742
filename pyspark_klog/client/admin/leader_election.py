"""Elects leaders of partitions on request (ElectLeaders)."""

from collections.abc import Collection
from itertools import groupby
from typing import NamedTuple

from pyspark_klog.client.admin.controller_requests import call_controller
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import (
    UnsupportedByBroker,
    broker_error,
    check_error_code,
    error_code,
)
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)

_WHAT = "elect leaders"
_PREFERRED, _UNCLEAN = 0, 1
_UNCLEAN_SINCE = 1
"""The first version of ElectLeaders with a type of election (KIP-460, Kafka 2.4)."""


class ElectionResult(NamedTuple):
    """The result for one partition: NONE if a leader was elected, ELECTION_NOT_NEEDED if the
    partition has the right leader already, or an error; ``message`` is the broker's text."""

    code: ErrorCode
    message: str | None = None


def elect_leaders(
    client: BlockingClient,
    partitions: Collection[TopicPartition] | None,
    *,
    unclean: bool = False,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, ElectionResult]:
    """Elect the preferred leader of each partition (its first replica, which must be in sync), or
    with ``unclean`` any live replica for each partition without a leader; None: all partitions.

    Brokers have ``timeout_ms`` (default.api.timeout.ms unless given) to elect the leaders. The
    response for all partitions lacks those that need no election.

    :raises UnsupportedByBroker: before Kafka 2.2; with ``unclean`` before Kafka 2.4
    """
    if timeout_ms is None:
        timeout_ms = client.settings.number("default.api.timeout.ms")
    found: dict[TopicPartition, ElectionResult] = {}

    def build(version: int) -> ElectLeadersRequest:
        rows = None if partitions is None else _by_topic({*partitions} - found.keys())
        request = ElectLeadersRequest(topic_partitions=rows, timeout_ms=timeout_ms)
        if version >= _UNCLEAN_SINCE:
            request.election_type = _UNCLEAN if unclean else _PREFERRED
        return request

    def check(response: ElectLeadersResponse) -> None:
        check_error_code(response.error_code, None, _WHAT)
        results = {
            TopicPartition(topic.topic, row.partition_id): ElectionResult(
                error_code(row.error_code), row.error_message
            )
            for topic in response.replica_election_results
            for row in topic.partition_result
        }
        moved = [each for each in results if results[each].code is ErrorCode.NOT_CONTROLLER]
        found.update((each, results[each]) for each in results.keys() - moved)
        if moved:
            raise broker_error(ErrorCode.NOT_CONTROLLER, f"{_WHAT}: {min(moved)}")

    try:
        low = _UNCLEAN_SINCE if unclean else 0
        call_controller(client, ElectLeadersResponse, build, check, timeout_ms, _WHAT, low=low)
    except UnsupportedByBroker as error:
        what, since = ("unclean elections", "2.4") if unclean else ("elections on request", "2.2")
        text = f"{what} need Kafka {since} or later: {error}"
        raise UnsupportedByBroker(text) from error
    return found


def _by_topic(partitions: Collection[TopicPartition]) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic=topic, partitions=[each.partition for each in group])
        for topic, group in groupby(sorted(partitions), key=lambda each: each.topic)
    ]
