"""Rows of `klog groups describe` for a partition without a leader, and without known members."""

from typing import Any

import pytest

from klog_broker.cli.groups import group_rows
from klog_broker.cli.groups.group_rows import group_view, member_count, print_positions
from pyspark_klog.client.admin.group_members import CLASSIC, DescribedGroup, GroupMember
from pyspark_klog.client.admin.groups import CommittedOffset
from pyspark_klog.client.cluster.coordinators import Coordinator
from pyspark_klog.client.cluster.metadata import ClusterView, PartitionInfo, TopicInfo
from pyspark_klog.client.consumer.offsets import OffsetAt
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.ids import TopicPartition

LED, LEADERLESS, GONE = (TopicPartition("t", number) for number in range(3))
ADDRESS = Address("h", 1)


class Client:
    """A client of a cluster with partition 0, and partition 1, which has no leader."""

    def refresh(self, topics: set[str]) -> ClusterView:
        assert topics == {"t"}
        partitions = {0: PartitionInfo(1), 1: PartitionInfo(-1)}
        return ClusterView({1: ADDRESS}, {"t": TopicInfo("t", partitions=partitions)})


def group(kind: str = CLASSIC, *members: GroupMember) -> DescribedGroup:
    return DescribedGroup(
        "g", kind, "Stable", "consumer", "range", Coordinator(1, ADDRESS), members
    )


@pytest.fixture(autouse=True)
def _offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(_: object, timestamps: dict[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        assert list(timestamps) == [LED]
        return {LED: OffsetAt(9)}

    def committed(*_: object) -> dict[TopicPartition, CommittedOffset]:
        return {each: CommittedOffset(4) for each in (LED, LEADERLESS, GONE)}

    monkeypatch.setattr(group_rows, "list_offsets", ends)
    monkeypatch.setattr(group_rows, "committed_offsets", committed)


def test_a_partition_without_a_leader_has_no_lag(capsys: pytest.CaptureFixture[str]) -> None:
    client: Any = Client()
    idle, busy = GroupMember("idle", "c", "h"), GroupMember("busy", "c", "h", (LED,))
    view = group_view(client, group(CLASSIC, idle, busy))
    assert [(each.end, each.lag) for each in view.positions] == [(9, 5), (None, None), (None, None)]
    print_positions(view, verbose=False)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["group", "g", "Stable", "members", "2", "lag", "5"],
        ["TOPIC", "PARTITION", "OFFSET", "END", "LAG", "MEMBER", "HOST", "CLIENT"],
        ["t", "0", "4", "9", "5", "busy", "h", "c"],
        ["t", "1", "4", "-", "-", "-", "-", "-"],
        ["t", "2", "4", "-", "-", "-", "-", "-"],
        # A member without partitions has a row, too.
        ["-", "-", "-", "-", "-", "idle", "h", "c"],
    ]


def test_members_of_groups_that_klog_cannot_ask_about_are_unknown() -> None:
    assert member_count(group("streams")) is None
    assert member_count(group()) == 0
