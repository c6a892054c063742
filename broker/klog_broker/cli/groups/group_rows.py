"""The output about a group: committed offsets, lag and members, as tables and in JSON."""

from collections.abc import Sequence
from typing import NamedTuple

import click

from klog_broker.cli.common.tables import NOTHING, Row, print_table, shown
from pyspark_klog.client.admin.group_members import DescribedGroup, GroupMember
from pyspark_klog.client.admin.groups import CommittedOffset, committed_offsets
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.consumer.offsets import LATEST, list_offsets
from pyspark_klog.ids import TopicPartition


class GroupPosition(NamedTuple):
    """A partition that has a committed offset of a group, or is assigned to a member of the group.

    ``end`` is None if the partition does not exist any more or has no leader.
    """

    partition: TopicPartition
    at: CommittedOffset | None
    end: int | None
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        """How many offsets of the partition the group has left to read; None if that is unknown."""
        if self.at is None or self.end is None:
            return None
        return max(self.end - self.at.offset, 0)


class GroupView(NamedTuple):
    """A group, and a GroupPosition for each of its partitions, sorted by partition."""

    group: DescribedGroup
    positions: Sequence[GroupPosition]

    @property
    def lag(self) -> int:
        """The sum of the group's known lags in all its partitions."""
        return sum(each.lag or 0 for each in self.positions)


def group_view(client: BlockingClient, group: DescribedGroup) -> GroupView:
    """Return the group with its committed offsets and the partitions' end offsets, both requested
    from the brokers."""
    committed = committed_offsets(client, group.group_id)
    readers = {partition: member for member in group.members for partition in member.assigned}
    wanted = sorted({*committed, *readers})
    view = client.refresh({partition.topic for partition in wanted})
    ends = list_offsets(client, {each: LATEST for each in wanted if view.leader(each) is not None})
    return GroupView(
        group,
        [
            GroupPosition(
                each,
                committed.get(each),
                ends[each].offset if each in ends else None,
                readers.get(each),
            )
            for each in wanted
        ],
    )


def print_positions(view: GroupView, verbose: bool) -> None:
    """Print the committed offset, lag and member of each partition."""
    click.echo(f"{heading(view.group)}  lag {view.lag}")
    columns = ["topic", "partition", "offset", "end", "lag", "member", "host", "client"]
    rows: list[Row] = [
        (
            *each.partition,
            None if each.at is None else each.at.offset,
            each.end,
            each.lag,
            *_member_cells(each.member),
            *_commit_details(each.at, verbose),
        )
        for each in view.positions
    ]
    rows += [
        (*(None,) * 5, *_member_cells(member), *_commit_details(None, verbose))
        for member in view.group.members
        if not member.assigned
    ]
    print_table([*columns, *(["leader epoch", "metadata"] if verbose else [])], rows)


def print_members(group: DescribedGroup, verbose: bool) -> None:
    """Print the group's members; with ``verbose`` also their assignments."""
    click.echo(heading(group))
    columns = ["member", "instance", "host", "client", "partitions"]
    rows: list[Row] = [
        (
            *(each.member_id, each.instance_id, each.host, each.client_id, len(each.assigned)),
            *((each.epoch, _assignment(each.assigned)) if verbose else ()),
        )
        for each in group.members
    ]
    print_table([*columns, *(["epoch", "assignment"] if verbose else [])], rows)


def print_states(groups: Sequence[DescribedGroup], verbose: bool) -> None:
    """Print one line for each group: its coordinator, type, assignor, state and number of
    members."""
    columns = ["group", "coordinator", "type", "assignor", "state", "members"]
    rows: list[Row] = [
        (
            each.group_id,
            f"{each.coordinator.address} ({each.coordinator.broker_id})",
            *(each.group_type, each.assignor or NOTHING, each.state, member_count(each)),
            *((each.epoch, each.assignment_epoch) if verbose else ()),
        )
        for each in groups
    ]
    print_table([*columns, *(["epoch", "assignment epoch"] if verbose else [])], rows)


def heading(group: DescribedGroup) -> str:
    """Return a line with the group's name, state and number of members."""
    count = member_count(group)
    name = shown(group.group_id)
    return f"group {name}  {group.state}  members {NOTHING if count is None else count}"


def member_count(group: DescribedGroup) -> int | None:
    """Return the number of members; None if klog's client cannot ask for the members of groups of
    this type."""
    return len(group.members) if group.knows_members else None


def details(view: GroupView) -> dict[str, object]:
    """Return all details of a group, for the output with --json."""
    group = view.group
    return {
        "assignor": group.assignor,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "lag": view.lag,
        "offsets": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "offset": None if each.at is None else each.at.offset,
                "end": each.end,
                "lag": each.lag,
                "leader_epoch": None if each.at is None else each.at.leader_epoch,
                "metadata": None if each.at is None else each.at.metadata,
                "member": None if each.member is None else each.member.member_id,
            }
            for each in view.positions
        ],
        "member_list": [
            {
                "member": each.member_id,
                "instance": each.instance_id,
                "client": each.client_id,
                "host": each.host,
                "epoch": each.epoch,
                "partitions": [
                    {"topic": topic, "partition": number} for topic, number in each.assigned
                ],
            }
            for each in group.members
        ],
    }


def _member_cells(member: GroupMember | None) -> Row:
    return (None,) * 3 if member is None else (member.member_id, member.host, member.client_id)


def _commit_details(at: CommittedOffset | None, verbose: bool) -> Row:
    if not verbose:
        return ()
    if at is None:
        return (None, None)
    return (None if at.leader_epoch < 0 else at.leader_epoch, at.metadata)


def _assignment(partitions: Sequence[TopicPartition]) -> str:
    by_topic: dict[str, list[str]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(str(number))
    return " ".join(f"{topic}:{','.join(numbers)}" for topic, numbers in by_topic.items())
