"""Every kind of append writes, then commits: a failed write leaves the log unchanged, and a failed
commit takes the log offline."""

from collections.abc import Callable

import pytest

from klog_broker.log.errors import LogStorageError
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.segment.planned_append import PlannedAppend
from klog_broker.log.segment.segment import Segment
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import plain_batch
from pyspark_klog.records.control import ControlType, EndTransactionMarker
from tests.support.log.harness import EPOCH, append, batch, open_log, read_all
from tests.support.log.transactional_log import write
from tests.support.runtime.memory_files import MemoryFiles

NOW_MS = 5_000
PRODUCER_ID = 7


def append_as_leader(log: PartitionLog) -> None:
    append(log, batch(), NOW_MS)


def append_plain(log: PartitionLog) -> None:
    data = plain_batch([(b"k", b"v" * 100)], NOW_MS)
    log.append_plain(bytearray(data), 1, NOW_MS, leader_epoch=EPOCH, now_ms=NOW_MS)


def append_marker(log: PartitionLog) -> None:
    abort = EndTransactionMarker(ControlType.ABORT, 0)
    log.append_marker(
        PRODUCER_ID, 0, abort, transaction_version=1, leader_epoch=EPOCH, now_ms=NOW_MS
    )


def append_planned(log: PartitionLog) -> None:
    facts = log.plan_facts(NOW_MS)
    assert facts is not None
    data = batch_at(log.log_end_offset)
    try:
        log.write_planned(memoryview(data), 1)
    except LogStorageError:
        log.cut_back_planned()
        raise
    end = facts.next_offset + 1
    log.commit_planned(
        PlannedAppend(facts.next_offset, end, len(data), 1_000, 0, 1_000, 0, (), ()), NOW_MS
    )


def append_as_follower(log: PartitionLog) -> None:
    data = batch_at(log.log_end_offset)
    log.append_as_follower(memoryview(data), leader_epoch=EPOCH, now_ms=NOW_MS)


def batch_at(offset: int) -> bytearray:
    data = bytearray(batch(partition_leader_epoch=EPOCH))
    data[:8] = offset.to_bytes(8, "big")
    assert BatchView(data).base_offset == offset
    return data


APPENDS = [append_as_leader, append_plain, append_marker, append_planned, append_as_follower]


def log_with_an_open_transaction(files: MemoryFiles) -> PartitionLog:
    log = open_log(files)
    write(log, PRODUCER_ID, 0)
    return log


@pytest.mark.parametrize("append_one", APPENDS)
def test_a_failed_write_leaves_the_log_unchanged(
    append_one: Callable[[PartitionLog], None],
) -> None:
    files = MemoryFiles()
    log = log_with_an_open_transaction(files)
    segment = log.segments[-1]
    before = (log.log_end_offset, segment.size_bytes, segment.log_file.size())
    files.free_bytes = 50
    with pytest.raises(LogStorageError):
        append_one(log)
    assert (log.log_end_offset, segment.size_bytes, segment.log_file.size()) == before
    assert segment.transaction_index.rows == 0
    assert not log.is_offline
    files.free_bytes = None
    append_one(log)
    assert [record.offset for record in read_all(log, 2)] == [0, 1]
    # The transaction index has a row for the marker, and for no other append.
    assert segment.transaction_index.rows == (1 if append_one is append_marker else 0)


@pytest.mark.parametrize("append_one", APPENDS)
def test_a_failed_commit_takes_the_log_offline(
    append_one: Callable[[PartitionLog], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_with_an_open_transaction(MemoryFiles())

    def fail(*_: object) -> None:
        raise AssertionError("commit failed")

    monkeypatch.setattr(Segment, "commit", fail)
    monkeypatch.setattr(Segment, "commit_planned", fail)
    with pytest.raises(LogStorageError, match="commit failed"):
        append_one(log)
    assert log.is_offline


def test_a_plan_for_another_offset_takes_the_log_offline() -> None:
    log = log_with_an_open_transaction(MemoryFiles())
    data = batch_at(5)
    log.write_planned(memoryview(data), 1)
    with pytest.raises(LogStorageError, match="written for offset 5, the log ends at 1"):
        log.commit_planned(PlannedAppend(5, 6, len(data), 1_000, 0, 1_000, 5, (), ()), NOW_MS)
    assert log.is_offline
