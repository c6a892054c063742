"""When a topic's new records are copied."""

from pyspark_klog.lake_tables.border import Head, Origin
from pyspark_klog.lake_tables.copier import Backlog
from pyspark_klog.lake_tables.writer import RollTimes

_ORIGIN = Origin("c", "t", "i")
_TIMES = RollTimes(roll_bytes=1_000, roll_ms=60_000)


def _is_due(*behind: int, committed_ms: int = 0, now_ms: int = 1) -> bool:
    border = dict.fromkeys(range(len(behind)), 5)
    end = {number: 5 + count for number, count in enumerate(behind)}
    head = Head(_ORIGIN, border, committed_ms)
    return _TIMES.is_due(Backlog(_ORIGIN, head, dict.fromkeys(border, 0), end), 10.0, now_ms)


def test_nothing_behind_is_never_due() -> None:
    assert not _is_due(0, 0, now_ms=1_000_000)
    assert not _is_due(-3, now_ms=1_000_000)


def test_a_partition_with_enough_for_a_file_is_due() -> None:
    assert not _is_due(99, 99)
    assert _is_due(99, 100)


def test_anything_is_due_some_time_after_the_last_commit() -> None:
    assert not _is_due(1, committed_ms=1_000, now_ms=60_999)
    assert _is_due(1, committed_ms=1_000, now_ms=61_000)


def test_a_last_commit_in_the_future_is_due() -> None:
    assert _is_due(1, committed_ms=1_000, now_ms=999)
