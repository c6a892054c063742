"""Groups with their members and each member's assignment, in both protocols (KIP-848, classic)."""

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.cluster.coordinators import Coordinator, run_at_coordinator
from pyspark_klog.client.errors import broker_error, error_code
from pyspark_klog.client.transport.socket_link import Link
from pyspark_klog.errors import BrokerError, ErrorCode, KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis import consumer_group_describe, describe_groups
from pyspark_klog.protocol.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from pyspark_klog.protocol.apis.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.state_records.consumer_protocol import PROTOCOL_TYPE, decode_assignment

CLASSIC, CONSUMER = "classic", "consumer"
"""Types of groups, as ListGroups 5 names them."""
_DEAD = "Dead"
"""The state that DescribeGroups before version 6 gives for a group that does not exist."""
_ABSENT = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group; ``assigned`` are the partitions that it reads, sorted."""

    member_id: str
    client_id: str
    host: str
    assigned: tuple[TopicPartition, ...] = ()
    instance_id: str | None = None
    """The group.instance.id of a static member; None for other members."""
    epoch: int | None = None
    """The member epoch in the newer protocol (KIP-848); None in the classic protocol."""


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A group as its coordinator describes it."""

    group_id: str
    group_type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: Coordinator
    members: tuple[GroupMember, ...] = ()
    epoch: int | None = None
    assignment_epoch: int | None = None
    """``epoch`` is the group's, ``assignment_epoch`` that of the target assignment (KIP-848); both
    are None in the classic protocol."""

    @property
    def knows_members(self) -> bool:
        """Whether klog's client can ask for the members of groups of this type."""
        return self.group_type in (CLASSIC, CONSUMER)

    @property
    def is_idle(self) -> bool:
        """Whether the group has no members, so that its coordinator accepts offset commits of
        clients that are not members."""
        return not self.members and self.state in ("Empty", _DEAD)


def describe_group(
    client: BlockingClient, group_id: str, deadline_ms: int | None = None
) -> DescribedGroup:
    """A group of the classic or of the newer protocol (KIP-848), with its members.

    :raises BrokerError: GROUP_ID_NOT_FOUND if there is no such group, or it is a share group or a
        streams group
    """
    what = f"describe group {group_id}"

    def attempt(link: Link, coordinator: Coordinator) -> DescribedGroup:
        versions = link.connection.versions
        if versions is not None and versions.newest(ApiKey.CONSUMER_GROUP_DESCRIBE) is not None:
            newer = ConsumerGroupDescribeRequest(group_ids=[group_id])
            for row in client.call(link, ConsumerGroupDescribeResponse, lambda _: newer).groups:
                code = error_code(row.error_code)
                if code is ErrorCode.NONE:
                    return _described_consumer_group(row, coordinator)
                if code not in _ABSENT:
                    raise broker_error(code, what)
        classic = DescribeGroupsRequest(groups=[group_id])
        for group in client.call(link, DescribeGroupsResponse, lambda _: classic).groups:
            code = error_code(group.error_code)
            if code is not ErrorCode.NONE and code not in _ABSENT:
                raise broker_error(code, what)
            if code is ErrorCode.NONE and group.group_state != _DEAD:
                return _described_classic_group(group, coordinator)
        raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {group_id}")

    return run_at_coordinator(client, group_id, attempt, deadline_ms, what)


def _described_classic_group(
    group: describe_groups.DescribedGroup, coordinator: Coordinator
) -> DescribedGroup:
    is_consumers = group.protocol_type == PROTOCOL_TYPE
    return DescribedGroup(
        group.group_id,
        CLASSIC,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        coordinator,
        tuple(
            GroupMember(
                each.member_id,
                each.client_id,
                each.client_host,
                tuple(sorted(_assigned(each.member_assignment))) if is_consumers else (),
                each.group_instance_id,
            )
            for each in group.members
        ),
    )


def _assigned(data: bytes) -> Iterator[TopicPartition]:
    """The partitions in the assignment of a member of a classic group. The group's leader encodes
    the assignment. Bytes that are no consumer's assignment give no partitions, nor do empty bytes,
    which a member has during a rebalance."""
    if not data:
        return
    try:
        rows = decode_assignment(data).assigned_partitions
    except KlogError:
        return
    for row in rows:
        for number in row.partitions:
            yield TopicPartition(row.topic, number)


def _described_consumer_group(
    group: consumer_group_describe.DescribedGroup, coordinator: Coordinator
) -> DescribedGroup:
    return DescribedGroup(
        group.group_id,
        CONSUMER,
        group.group_state,
        PROTOCOL_TYPE,
        group.assignor_name,
        coordinator,
        tuple(
            GroupMember(
                each.member_id,
                each.client_id,
                each.client_host,
                tuple(
                    sorted(
                        TopicPartition(row.topic_name, number)
                        for row in each.assignment.topic_partitions
                        for number in row.partitions
                    )
                ),
                each.instance_id,
                each.member_epoch,
            )
            for each in group.members
        ),
        group.group_epoch,
        group.assignment_epoch,
    )
