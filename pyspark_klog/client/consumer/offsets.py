"""Finds the first and last offsets of partitions, and the offset of a time (ListOffsets)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import (
    LeaderUnknown,
    ReplyUnreadable,
    TimedOut,
    TopicMissing,
    broker_error,
    error_code,
    is_retriable,
)
from pyspark_klog.client.transport.connection import Call
from pyspark_klog.client.transport.socket_link import Link
from pyspark_klog.errors import ErrorCode, KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from pyspark_klog.protocol.keys import ApiKey

LATEST = -1
"""The timestamp that stands for the high watermark (under read_committed: the last stable
offset)."""
EARLIEST = -2
"""The timestamp that stands for the first readable offset."""
NOT_FOUND = -1
"""The offset that `list_offsets` returns for a partition whose records are all older than the
requested timestamp."""
_EARLIEST_LOCAL = -4
"""The timestamp that stands for the first offset on the leader's own disks (KIP-405)."""
_FIRST_WITH_LOCAL = 8


class OffsetAt(NamedTuple):
    """An offset, and the timestamp of its record (-1 if `EARLIEST` or `LATEST` was requested)."""

    offset: int
    timestamp_ms: int = -1
    leader_epoch: int = -1


def list_offsets(
    client: BlockingClient,
    timestamps: Mapping[TopicPartition, int],
    *,
    read_committed: bool = False,
    deadline_ms: int | None = None,
) -> dict[TopicPartition, OffsetAt]:
    """For each partition the first offset whose record is not older than the timestamp (ms).

    The timestamps `EARLIEST` and `LATEST` stand for the first readable offset and the high
    watermark (under read_committed: the last stable offset). The result is `NOT_FOUND` if all
    records are older. While a leader changes or cannot be reached, the request is repeated until
    the deadline.

    :raises TopicMissing: if fresh metadata lacks one of the partitions twice, from different
        brokers if possible
    :raises TimedOut: naming up to five partitions without an answer, and the last error
    :raises KlogError: at once, for an error that a retry cannot cure
    """
    deadline = client.deadline() if deadline_ms is None else deadline_ms
    found: dict[TopicPartition, OffsetAt] = {}
    left = dict(timestamps)
    absent: set[TopicPartition] = set()
    failures = 0
    bound = "default.api.timeout.ms" if deadline_ms is None else None
    trouble = client.retries.failures_of("asking for offsets", bound)
    while left:
        try:
            with client.retries.attribute_to(trouble, lambda: deadline):
                errors = _ask_leaders(client, left, read_committed, deadline, found, absent)
        except TimedOut as error:
            raise TimedOut(_timeout_text(left, error)) from error
        for partition in found:
            left.pop(partition, None)
        if not left:
            break
        failures += 1
        wait_ms = client.wait_ms(failures)
        if client.now_ms() + wait_ms >= deadline:
            raise TimedOut(_timeout_text(left, next(iter(errors.values()), None)))
        if errors:
            client.retries.on_failure(trouble, next(iter(errors.values())), deadline)
        client.sleep_ms(wait_ms)
    client.retries.on_success(trouble)
    return found


def first_local_offset(
    client: BlockingClient, link: Link, partition: TopicPartition, leader_epoch: int
) -> int | None:
    """The first offset of a partition that is on its leader's own disks; records before it are in a
    remote tier (KIP-405). Returns None if the broker is too old to have remote tiers.

    :raises BrokerError: for every error code, retriable codes included
    """
    versions = link.connection.versions
    if versions is None or versions.newest(ApiKey.LIST_OFFSETS, _FIRST_WITH_LOCAL) is None:
        return None
    row = ListOffsetsPartition(
        partition_index=partition.partition,
        current_leader_epoch=leader_epoch,
        timestamp=_EARLIEST_LOCAL,
    )
    found: dict[TopicPartition, OffsetAt] = {}
    errors: dict[TopicPartition, KlogError] = {}
    _take(client, client.wait(_send(client, link, [partition.topic], [row], False)), found, errors)
    if partition not in found:
        what = f"{link.connection.peer} left {partition} out of a reply to LIST_OFFSETS"
        raise errors.get(partition) or ReplyUnreadable(what)
    return found[partition].offset


def _timeout_text(left: Iterable[TopicPartition], last: KlogError | None) -> str:
    names = ", ".join(str(p) for p in sorted(left)[:5])
    return f"the offsets of {names} could not be found in time: {last}"


def _ask_leaders(
    client: BlockingClient,
    timestamps: Mapping[TopicPartition, int],
    read_committed: bool,
    deadline_ms: int,
    found: dict[TopicPartition, OffsetAt],
    absent: set[TopicPartition],
) -> dict[TopicPartition, KlogError]:
    """Ask all leaders at the same time and put the offsets into ``found``. Return the retriable
    errors, raise other errors. A partition that newly requested metadata lacks is put into
    ``absent``; TopicMissing is raised if an earlier call has put it there already."""
    errors: dict[TopicPartition, KlogError] = {}
    by_leader: dict[int, list[ListOffsetsPartition]] = defaultdict(list)
    topics: dict[int, list[str]] = defaultdict(list)
    stale = {p.topic for p in timestamps if not client.is_fresh(p.topic)}
    if stale:
        client.refresh(stale, deadline_ms)
    for partition, timestamp in timestamps.items():
        info = client.view.leader(partition)
        if info is None:
            client.forget_topic(partition.topic)
            if partition.topic in stale and not client.view.has_partition(partition):
                if partition in absent:
                    raise TopicMissing(f"{partition} does not exist")
                absent.add(partition)
                client.mark_doubtful()
            errors[partition] = LeaderUnknown(f"{partition} has no leader now")
            continue
        topics[info.leader].append(partition.topic)
        by_leader[info.leader].append(
            ListOffsetsPartition(
                partition_index=partition.partition,
                current_leader_epoch=info.leader_epoch,
                timestamp=timestamp,
            )
        )
    calls: list[tuple[Call[ListOffsetsResponse], list[TopicPartition]]] = []
    for leader, rows in by_leader.items():
        partitions = [
            TopicPartition(t, r.partition_index) for t, r in zip(topics[leader], rows, strict=True)
        ]
        try:
            link = client.link_to_broker(leader, deadline_ms)
            calls.append((_send(client, link, topics[leader], rows, read_committed), partitions))
        except KlogError as error:
            _note(client, errors, partitions, error)
    for call, partitions in calls:
        try:
            _take(client, client.wait(call, deadline_ms), found, errors)
        except KlogError as error:
            _note(client, errors, partitions, error)
    return errors


def _send(
    client: BlockingClient,
    link: Link,
    topics: list[str],
    rows: list[ListOffsetsPartition],
    read_committed: bool,
) -> Call[ListOffsetsResponse]:
    # Use version 1 or later, because version 0 returns a list of segments' first offsets. Version 2
    # is the first with an isolation level.
    version = link.connection.version(ApiKey.LIST_OFFSETS, 2 if read_committed else 1)
    by_topic: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for topic, row in zip(topics, rows, strict=True):
        by_topic[topic].append(row)
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[ListOffsetsTopic(name=t, partitions=r) for t, r in by_topic.items()],
    )
    if version >= 2:
        request.isolation_level = int(read_committed)
    if version >= 10:
        request.timeout_ms = client.settings.number("request.timeout.ms")
    return client.send(link, request, ListOffsetsResponse, version)


def _take(
    client: BlockingClient,
    response: ListOffsetsResponse,
    found: dict[TopicPartition, OffsetAt],
    errors: dict[TopicPartition, KlogError],
) -> None:
    for topic in response.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            code = error_code(row.error_code)
            if code is ErrorCode.NONE:
                found[partition] = OffsetAt(row.offset, row.timestamp, row.leader_epoch)
            else:
                _note(client, errors, [partition], broker_error(code, f"offsets of {partition}"))


def _note(
    client: BlockingClient,
    errors: dict[TopicPartition, KlogError],
    partitions: list[TopicPartition],
    error: KlogError,
) -> None:
    if not is_retriable(error):
        raise error
    for partition in partitions:
        client.forget_topic(partition.topic)
        errors[partition] = error
