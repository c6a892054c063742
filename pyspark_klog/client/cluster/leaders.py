"""Sends requests to the leaders of partitions, repeated until each partition has a result."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import (
    LeaderUnknown,
    TimedOut,
    TopicMissing,
    broker_error,
    is_retriable,
)
from pyspark_klog.client.transport.socket_link import Link
from pyspark_klog.errors import ErrorCode, KlogError
from pyspark_klog.ids import TopicPartition

T = TypeVar("T")

Ask = Callable[[Link, dict[str, list[int]]], Mapping[TopicPartition, T | ErrorCode]]
"""Asks one leader about partitions, given as partition numbers by topic; returns a value or an
error code for each partition."""


class LeaderResults(NamedTuple, Generic[T]):
    """By partition: the values that leaders returned, and the errors that a retry cannot cure."""

    found: dict[TopicPartition, T]
    refused: dict[TopicPartition, KlogError]


def call_leaders(
    client: BlockingClient,
    partitions: Iterable[TopicPartition],
    ask: Ask[T],
    what: str,
    deadline_ms: int | None = None,
) -> LeaderResults[T]:
    """Ask each leader about its partitions. While a leader changes or cannot be reached, ask again
    until the deadline (default.api.timeout.ms unless given). A partition without an answer at the
    deadline is refused with TimedOut. ``what`` names the work in messages: ``delete records``.
    """
    deadline = client.deadline() if deadline_ms is None else deadline_ms
    answers: LeaderResults[T] = LeaderResults({}, {})
    left = set(partitions)
    passing: dict[TopicPartition, KlogError] = {}
    """By partition the error of the last attempt, if it is retriable."""

    def attempt() -> None:
        passing.clear()
        client.refresh({partition.topic for partition in left}, deadline)
        answers.refused.update(_refused_by_metadata(client, left, what))
        left.difference_update(answers.refused)
        for leader, named in _by_leader(client, left).items():
            if leader is None:
                passing.update((each, LeaderUnknown(f"{each} has no leader now")) for each in named)
                continue
            by_topic: dict[str, list[int]] = defaultdict(list)
            for partition in named:
                by_topic[partition.topic].append(partition.partition)
            try:
                results = ask(client.link_to_broker(leader, deadline), by_topic)
            except KlogError as error:
                if not is_retriable(error):
                    raise
                passing.update(dict.fromkeys(named, error))
                continue
            for partition, answer in results.items():
                if not isinstance(answer, ErrorCode):
                    answers.found[partition] = answer
                else:
                    errors = passing if answer.retriable else answers.refused
                    errors[partition] = broker_error(answer, f"{what}: {partition}")
        left.difference_update(answers.found, answers.refused)
        for partition in left - passing.keys():
            passing[partition] = LeaderUnknown(
                f"the response of the leader of {partition} lacks this partition"
            )
        if left:
            raise passing[min(left)]

    try:
        client.run_with_retries(attempt, deadline, what)
    except TimedOut as error:
        for partition in left:
            cause = passing.get(partition)
            text = str(error) if cause is None else f"{what} did not succeed in time: {cause}"
            answers.refused[partition] = TimedOut(text)
    return answers


def _refused_by_metadata(
    client: BlockingClient, partitions: Iterable[TopicPartition], what: str
) -> dict[TopicPartition, KlogError]:
    """The partitions about which no leader can be asked, with the reason: the partition does not
    exist, or its topic has an error that a retry cannot cure, for example because this client's
    user may not describe the topic."""
    refused: dict[TopicPartition, KlogError] = {}
    for partition in partitions:
        code = client.view.topics[partition.topic].error
        if not client.view.has_partition(partition):
            refused[partition] = TopicMissing(f"{partition} does not exist")
        elif code is not ErrorCode.NONE and not code.retriable:
            refused[partition] = broker_error(code, f"{what}: {partition}")
    return refused


def _by_leader(
    client: BlockingClient, partitions: Iterable[TopicPartition]
) -> dict[int | None, list[TopicPartition]]:
    """The partitions, sorted, by their leader's id; under the key None the partitions that have no
    leader."""
    found: dict[int | None, list[TopicPartition]] = defaultdict(list)
    for partition in sorted(partitions):
        info = client.view.leader(partition)
        found[None if info is None else info.leader].append(partition)
    return found
