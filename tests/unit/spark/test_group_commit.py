"""The thread that copies a query's position to a consumer group."""

import logging
import threading
from collections.abc import Iterator

import pytest

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.settings.client_settings import ClientSettings
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.offsets import Offsets
from pyspark_klog.spark.progress.group_commit import GroupCommitter
from tests.support.eventually import eventually

_P = TopicPartition("t", 0)
_SETTINGS = ClientSettings({"bootstrap.servers": "127.0.0.1:1"})


class _Group:
    """A group that keeps what is committed, or refuses it."""

    def __init__(self) -> None:
        self.commits: list[int] = []
        self.refuse_with: list[Exception] = []
        self.held = threading.Event()
        self.held.set()
        self.entered = threading.Event()

    def commit(self, _: BlockingClient, group_id: str, position: Offsets) -> None:
        assert group_id == "g"
        self.entered.set()
        assert self.held.wait(60)
        if self.refuse_with:
            raise self.refuse_with.pop(0)
        self.commits.append(position[_P])


@pytest.fixture
def group() -> Iterator[_Group]:
    made = _Group()
    yield made
    made.held.set()


def _committer(group: _Group) -> GroupCommitter:
    return GroupCommitter(_SETTINGS, "g", commit=group.commit)


def test_positions_are_committed_and_equal_ones_only_once(group: _Group) -> None:
    committer = _committer(group)
    committer.report({})
    for offset in (5, 5, 6):
        committer.report({_P: offset})
        eventually(lambda offset=offset: group.commits[-1:] == [offset])
    committer.close()
    assert group.commits == [5, 6]


def test_a_slow_coordinator_holds_nobody_up_and_the_newest_wins(group: _Group) -> None:
    group.held.clear()
    committer = _committer(group)
    committer.report({_P: 1})
    assert group.entered.wait(60)
    for offset in range(2, 50):
        committer.report({_P: offset})
    group.held.set()
    committer.close()
    assert group.commits == [1, 49]


def test_the_last_position_is_committed_at_the_end(group: _Group) -> None:
    committer = _committer(group)
    committer.report({_P: 9})
    committer.close()
    assert group.commits == [9]


def test_an_idle_query_commits_again_and_again(group: _Group) -> None:
    committer = GroupCommitter(_SETTINGS, "g", commit=group.commit, again_after_s=0.01)
    committer.report({_P: 3})
    eventually(lambda: len(group.commits) >= 3)
    committer.close()
    assert set(group.commits) == {3}


def test_a_group_with_members_is_one_clear_sentence(
    group: _Group, caplog: pytest.LogCaptureFixture
) -> None:
    group.refuse_with = [BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, "no")] * 2
    committer = _committer(group)
    with caplog.at_level(logging.WARNING):
        for offset in (1, 2, 3):
            group.entered.clear()
            committer.report({_P: offset})
            assert group.entered.wait(60)
        committer.close()
    assert group.commits == [3]
    assert [r.getMessage() for r in caplog.records] == [
        "the position is not committed to group g: it has active members, and only these may "
        "commit; give the query its own commitGroupId"
    ]


@pytest.mark.parametrize(
    "error", [ValueError("bug"), BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no")]
)
def test_no_failure_ends_the_thread(
    group: _Group, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    group.refuse_with = [error]
    committer = _committer(group)
    with caplog.at_level(logging.WARNING):
        committer.report({_P: 1})
        eventually(lambda: not group.refuse_with)
        committer.report({_P: 2})
        eventually(lambda: group.commits == [2])
    committer.close()
    assert "does not fail the query" in caplog.text


def test_settling_waits_for_the_commit_and_not_for_a_group_that_refuses(group: _Group) -> None:
    committer = GroupCommitter(_SETTINGS, "g", commit=group.commit)
    committer.settle()
    committer.report({_P: 1})
    committer.settle()
    assert group.commits == [1]
    group.refuse_with = [BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, "no")]
    committer.report({_P: 2})
    committer.settle()
    assert (group.commits, group.refuse_with) == ([1], [])
    committer.settle()
    committer.close()
    assert group.commits == [1, 2]


def test_a_failing_coordinator_does_not_hold_up_the_end(group: _Group) -> None:
    group.refuse_with = [BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no")] * 100
    committer = _committer(group)
    committer.report({_P: 1})
    assert group.entered.wait(60)
    committer.close()
    assert len(group.refuse_with) >= 98
