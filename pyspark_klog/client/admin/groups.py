"""Lists, describes and deletes groups, and reads, commits and deletes their offsets.

This module never joins a group. Coordinators accept commits of clients that are no members only
while a group is empty.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.cluster.coordinators import Coordinator, run_at_coordinator
from pyspark_klog.client.errors import broker_error, error_code
from pyspark_klog.client.group_offsets import CommittedOffset as CommittedOffset
from pyspark_klog.client.transport.socket_link import Link
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from pyspark_klog.protocol.apis.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from pyspark_klog.protocol.apis.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from pyspark_klog.protocol.apis.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pyspark_klog.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from pyspark_klog.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

_CLASSIC, _CONSUMER, _SHARE = "classic", "consumer", "share"
"""Types of groups in a response to ListGroups, from version 5 on."""

_ONE_GROUP_FETCH = 7
"""The last version of OffsetFetch for a single group; version 8 and later name several groups."""
_STABLE_FETCH = 7
"""The first version of OffsetFetch with ``require_stable``: the coordinator then answers
UNSTABLE_OFFSET_COMMIT for an offset that an open transaction may still change (KIP-447)."""
_TOPICS_BY_NAME = 9
"""The last version of OffsetCommit that names topics; version 10 and later use topic ids."""
_RETENTION_COMMITS = (2, 4)
"""The only versions of OffsetCommit with a retention time; every broker supports one of them."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group as its coordinator describes it; the state is empty if the broker does not send it.

    The member count is None for share groups and streams groups, because this client sends no
    request that describes these types.
    """

    group_id: str
    state: str
    protocol_type: str
    coordinator_id: int
    member_count: int | None
    has_offsets: bool = True
    """Whether the group commits offsets: a share group does not."""
    group_type: str = _CLASSIC


def commit_offsets(
    client: BlockingClient,
    group_id: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    deadline_ms: int | None = None,
    *,
    retention_ms: int | None = None,
) -> None:
    """Commit offsets for a group without members: members that join later read from these offsets
    on.

    The brokers keep the offsets for ``retention_ms`` from now on, even if the group stays empty;
    without ``retention_ms`` their setting offsets.retention.minutes applies. With ``retention_ms``
    no leader epoch is stored: only OffsetCommit 2 to 4 have a retention time, and they have no
    field for a leader epoch.

    :raises BrokerError: for the first offset that the coordinator refuses; UNKNOWN_MEMBER_ID means
        that the group has members: then only members may commit
    """
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for partition, at in sorted(offsets.items()):
        by_topic[partition.topic].append(
            OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=at.offset,
                committed_leader_epoch=at.leader_epoch,
                committed_metadata=at.metadata,
            )
        )

    def build(_: int) -> OffsetCommitRequest:
        topics = [OffsetCommitRequestTopic(name=t, partitions=p) for t, p in by_topic.items()]
        request = OffsetCommitRequest(group_id=group_id, topics=topics)
        if retention_ms is not None:
            request.retention_time_ms = retention_ms
        return request

    low, high = (0, _TOPICS_BY_NAME) if retention_ms is None else _RETENTION_COMMITS

    def attempt(link: Link, _: Coordinator) -> None:
        response = client.call(link, OffsetCommitResponse, build, low=low, high=high)
        for topic in response.topics:
            for row in topic.partitions:
                _check(row.error_code, f"commit {topic.name}-{row.partition_index} to {group_id}")

    run_at_coordinator(client, group_id, attempt, deadline_ms, f"committing to group {group_id}")


def committed_offsets(
    client: BlockingClient,
    group_id: str,
    partitions: Iterable[TopicPartition] | None = None,
    deadline_ms: int | None = None,
    *,
    require_stable: bool = False,
    while_unstable: Callable[[], None] | None = None,
) -> dict[TopicPartition, CommittedOffset]:
    """A group's committed offsets in ``partitions`` (None: in all), by partition. Partitions
    without a committed offset are not in the result.

    With ``require_stable`` the call waits until no open transaction can change these offsets any
    more; if ``partitions`` is None, it waits only for partitions that already have a committed
    offset. ``while_unstable`` is called before each such wait, and may raise an error to end it.
    """
    by_topic: dict[str, list[int]] = defaultdict(list)
    for partition in sorted(partitions or ()):
        by_topic[partition.topic].append(partition.partition)
    rows = [OffsetFetchRequestTopic(name=t, partition_indexes=p) for t, p in by_topic.items()]

    def build(_: int) -> OffsetFetchRequest:
        topics = None if partitions is None else rows
        return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=require_stable)

    def attempt(link: Link, _: Coordinator) -> dict[TopicPartition, CommittedOffset]:
        low = _STABLE_FETCH if require_stable else 2 if partitions is None else 1
        response = client.call(link, OffsetFetchResponse, build, low=low, high=_ONE_GROUP_FETCH)
        _check(response.error_code, f"offsets of group {group_id}")
        found = {}
        for topic in response.topics:
            for row in topic.partitions:
                if row.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT and while_unstable:
                    while_unstable()
                _check(row.error_code, f"{topic.name}-{row.partition_index} of group {group_id}")
                if row.committed_offset >= 0:
                    found[TopicPartition(topic.name, row.partition_index)] = CommittedOffset(
                        row.committed_offset, row.committed_leader_epoch, row.metadata or ""
                    )
        return found

    what = f"asking for the offsets of group {group_id}"
    return run_at_coordinator(client, group_id, attempt, deadline_ms, what)


def delete_group(client: BlockingClient, group_id: str, deadline_ms: int | None = None) -> None:
    """Delete a group that has no members, with all its offsets.

    :raises BrokerError: NON_EMPTY_GROUP if it has members, GROUP_ID_NOT_FOUND if it does not exist
    """
    what = f"delete group {group_id}"

    def attempt(link: Link, _: Coordinator) -> None:
        request = DeleteGroupsRequest(groups_names=[group_id])
        for row in client.call(link, DeleteGroupsResponse, lambda _: request).results:
            _check(row.error_code, what)

    run_at_coordinator(client, group_id, attempt, deadline_ms, what)


def delete_offsets(
    client: BlockingClient,
    group_id: str,
    partitions: Iterable[TopicPartition],
    deadline_ms: int | None = None,
) -> dict[TopicPartition, ErrorCode]:
    """Delete a group's committed offsets in these partitions, whether or not it has any.

    Returns the partitions whose offsets the coordinator refused to delete, with the error code;
    GROUP_SUBSCRIBED_TO_TOPIC means that a member of the group is subscribed to the topic.

    :raises BrokerError: if the whole request is refused; GROUP_ID_NOT_FOUND if there is no group
    """
    by_topic: dict[str, list[OffsetDeleteRequestPartition]] = defaultdict(list)
    for partition in sorted(partitions):
        row = OffsetDeleteRequestPartition(partition_index=partition.partition)
        by_topic[partition.topic].append(row)
    topics = [OffsetDeleteRequestTopic(name=t, partitions=p) for t, p in by_topic.items()]
    what = f"delete offsets of group {group_id}"

    def attempt(link: Link, _: Coordinator) -> dict[TopicPartition, ErrorCode]:
        request = OffsetDeleteRequest(group_id=group_id, topics=topics)
        response = client.call(link, OffsetDeleteResponse, lambda _: request)
        _check(response.error_code, what)
        return {
            TopicPartition(topic.name, row.partition_index): error_code(row.error_code)
            for topic in response.topics
            for row in topic.partitions
            if row.error_code != ErrorCode.NONE
        }

    return run_at_coordinator(client, group_id, attempt, deadline_ms, what)


def list_group_ids(client: BlockingClient, deadline_ms: int | None = None) -> list[str]:
    """The ids of the groups, of every type, that the client's user may describe, sorted."""

    def of_broker(link: Link, broker_id: int) -> list[str]:
        return [row.group_id for row in _list_groups_of_broker(client, link, broker_id)]

    return sorted(set(client.collect_from_brokers(of_broker, "listing the groups", deadline_ms)))


def list_groups(client: BlockingClient, deadline_ms: int | None = None) -> list[Group]:
    """All groups that the client's user may describe, sorted by id: each broker lists the groups
    that it coordinates."""

    def of_broker(link: Link, broker_id: int) -> list[Group]:
        by_type: dict[str, list[ListedGroup]] = defaultdict(list)
        for row in _list_groups_of_broker(client, link, broker_id):
            by_type[row.group_type.lower() or _CLASSIC].append(row)
        found = _describe_classic(client, link, broker_id, by_type.pop(_CLASSIC, []))
        found += _describe_consumer_groups(client, link, broker_id, by_type.pop(_CONSUMER, []))
        for kind, rows in by_type.items():
            for row in rows:
                known = (row.group_id, row.group_state, row.protocol_type, broker_id)
                found.append(Group(*known, None, kind != _SHARE, kind))
        return found

    groups = client.collect_from_brokers(of_broker, "listing the groups", deadline_ms)
    # Keep each group once: a group whose coordinator changes during the calls may be listed by both
    # brokers.
    by_id = {group.group_id: group for group in groups}
    return [by_id[group_id] for group_id in sorted(by_id)]


def _list_groups_of_broker(client: BlockingClient, link: Link, broker_id: int) -> list[ListedGroup]:
    response = client.call(link, ListGroupsResponse, lambda _: ListGroupsRequest())
    _check(response.error_code, f"groups of broker {broker_id}")
    return response.groups


def _describe_classic(
    client: BlockingClient, link: Link, broker_id: int, listed: list[ListedGroup]
) -> list[Group]:
    if not listed:
        return []
    ids = [row.group_id for row in listed]
    response = client.call(
        link, DescribeGroupsResponse, lambda _: DescribeGroupsRequest(groups=ids)
    )
    for g in response.groups:
        _check_coordinator_unchanged(g.error_code, g.group_id)
    return [
        Group(g.group_id, g.group_state, g.protocol_type, broker_id, len(g.members))
        for g in response.groups
    ]


def _describe_consumer_groups(
    client: BlockingClient, link: Link, broker_id: int, listed: list[ListedGroup]
) -> list[Group]:
    """Describe groups of the newer protocol (KIP-848), which DescribeGroups reports as dead."""
    if not listed:
        return []
    types = {row.group_id: row.protocol_type for row in listed}
    response = client.call(
        link,
        ConsumerGroupDescribeResponse,
        lambda _: ConsumerGroupDescribeRequest(group_ids=list(types)),
    )
    for g in response.groups:
        _check_coordinator_unchanged(g.error_code, g.group_id)
    return [
        Group(
            *(g.group_id, g.group_state, types.get(g.group_id, ""), broker_id, len(g.members)),
            group_type=_CONSUMER,
        )
        for g in response.groups
    ]


def _check_coordinator_unchanged(number: int, group_id: str) -> None:
    """Check the error code ``number`` in a response that describes a group; ignore codes that are
    not retriable.

    :raises BrokerError: for a retriable code: the group may have moved to another coordinator since
        ListGroups returned it
    """
    if error_code(number).retriable:
        _check(number, f"describe group {group_id}")


def _check(number: int, what: str) -> None:
    code = error_code(number)
    if code is not ErrorCode.NONE:
        raise broker_error(code, what)
