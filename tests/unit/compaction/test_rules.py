"""Which part of a log is cleaned, which segments become one, and what happens to transactions."""

from dataclasses import replace

from klog_broker.compaction.candidates import LogFacts, SegmentFacts, extent_of
from klog_broker.compaction.cleaned_transactions import CleanedTransactions
from klog_broker.compaction.grouping import GroupedSegment, group_sizes
from klog_broker.compaction.throttle import Throttle
from klog_broker.log.log_config import LogConfig
from pyspark_klog.records.control import ControlType
from pyspark_klog.storage.transaction_index import AbortedEntry

CONFIG = LogConfig(compact=True, delete=False)
NOW_MS = 1_000_000


def _log(*segments: tuple[int, int], **facts: int | None) -> LogFacts:
    """Segments as (base offset, timestamp); each has 100 bytes."""
    found = [SegmentFacts(base, 100, time_ms, time_ms) for base, time_ms in segments]
    end = segments[-1][0] + 10
    start: dict[str, int | None] = {
        "log_start_offset": segments[0][0],
        "log_end_offset": end,
        "last_stable_offset": end,
        "flushed_offset": end,
        "cleaned_offset": None,
    }
    return LogFacts(found, **(start | facts))  # type: ignore[arg-type]


LOG = _log((0, 0), (10, 0), (20, 0), (30, 0))


def test_all_but_the_active_segment_is_cleaned() -> None:
    extent = extent_of(LOG, CONFIG, NOW_MS)
    assert (extent.first_dirty_offset, extent.first_uncleanable_offset) == (0, 30)
    assert (extent.cleanable_bytes, extent.total_bytes) == (300, 300)
    assert extent.is_due(CONFIG)


def test_what_is_clean_counts_for_the_ratio() -> None:
    extent = extent_of(LOG._replace(cleaned_offset=20), CONFIG, NOW_MS)
    assert (extent.first_dirty_offset, extent.dirty_ratio) == (20, 1 / 3)
    assert not extent.is_due(CONFIG)
    assert extent.is_due(replace(CONFIG, min_cleanable_dirty_ratio=0.3))
    # The ratio has to be exceeded, as in Kafka.
    assert not extent.is_due(replace(CONFIG, min_cleanable_dirty_ratio=1 / 3))


def test_nothing_is_due_without_anything_dirty() -> None:
    config = replace(CONFIG, min_cleanable_dirty_ratio=0.0, max_compaction_lag_ms=1)
    assert not extent_of(LOG._replace(cleaned_offset=30), config, NOW_MS).is_due(config)


def test_a_checkpoint_outside_of_the_log_does_not_count() -> None:
    for cleaned_offset in (5, 50):
        log = LOG._replace(log_start_offset=10, cleaned_offset=cleaned_offset)
        assert extent_of(log, CONFIG, NOW_MS).first_dirty_offset == 10


def test_what_is_not_flushed_and_its_segment_stay() -> None:
    extent = extent_of(LOG._replace(flushed_offset=25), CONFIG, NOW_MS)
    assert (extent.first_uncleanable_offset, extent.cleanable_bytes) == (20, 200)


def test_undecided_transactions_and_their_segment_stay() -> None:
    extent = extent_of(LOG._replace(last_stable_offset=25), CONFIG, NOW_MS)
    assert (extent.first_uncleanable_offset, extent.cleanable_bytes) == (20, 200)


def test_nothing_below_the_first_undecided_offset_is_dirty() -> None:
    extent = extent_of(LOG._replace(last_stable_offset=5, cleaned_offset=20), CONFIG, NOW_MS)
    assert (extent.first_uncleanable_offset, extent.cleanable_bytes) == (0, 0)
    assert extent.first_dirty_offset == 0


def test_young_segments_stay() -> None:
    log = _log((0, 0), (10, NOW_MS - 5), (20, 0), (30, 0))
    config = replace(CONFIG, min_compaction_lag_ms=10)
    assert extent_of(log, config, NOW_MS).first_uncleanable_offset == 10
    assert extent_of(log, config, NOW_MS + 4).first_uncleanable_offset == 10
    assert extent_of(log, config, NOW_MS + 5).first_uncleanable_offset == 30


def test_old_dirt_is_cleaned_however_little() -> None:
    config = replace(CONFIG, max_compaction_lag_ms=100)
    for time_ms, is_due in ((NOW_MS - 99, False), (NOW_MS - 101, True), (0, False)):
        log = _log((0, 1), (10, 1), (20, time_ms), (30, 1), cleaned_offset=20)
        assert extent_of(log, config, NOW_MS).is_due(config) is is_due


def _grouped(*sizes: int, offsets: int = 10) -> list[GroupedSegment]:
    return [
        GroupedSegment(n * offsets, (n + 1) * offsets, size, 8, 12) for n, size in enumerate(sizes)
    ]


def test_neighbours_become_one_up_to_the_limit() -> None:
    assert group_sizes(_grouped(40, 40, 40, 90, 10), max_bytes=100, max_index_bytes=1000) == [
        *(2, 1),
        2,
    ]
    assert group_sizes([], max_bytes=100, max_index_bytes=1000) == []


def test_a_segment_that_is_too_large_is_not_merged() -> None:
    assert group_sizes(_grouped(500, 1, 1), max_bytes=100, max_index_bytes=1000) == [1, 2]


def test_indexes_and_offsets_of_a_group_fit() -> None:
    assert group_sizes(_grouped(1, 1, 1, 1), max_bytes=100, max_index_bytes=24) == [2, 2]
    found = group_sizes(_grouped(1, 1, 1, offsets=2**30), max_bytes=100, max_index_bytes=100)
    assert found == [2, 1]


def _aborted(producer_id: int, first: int, last: int) -> AbortedEntry:
    return AbortedEntry(producer_id, first, last, last + 1)


def test_an_aborted_transaction_goes_and_its_marker_stays_a_round() -> None:
    first = CleanedTransactions([_aborted(1, 10, 20)])
    assert first.is_void(1, 12)
    assert not first.is_void(2, 13)
    assert not first.is_last_trace(1, 20, ControlType.ABORT)
    assert first.pop_retained() == [_aborted(1, 10, 20)]
    second = CleanedTransactions([_aborted(1, 10, 20)])
    assert second.is_last_trace(1, 20, ControlType.ABORT)
    assert second.pop_retained() == []


def test_a_producer_aborts_commits_and_aborts() -> None:
    pass_ = CleanedTransactions([_aborted(1, 30, 40), _aborted(1, 0, 10)])
    assert pass_.is_void(1, 5)
    assert not pass_.is_last_trace(1, 10, ControlType.ABORT)
    assert not pass_.is_void(1, 15)
    assert not pass_.is_last_trace(1, 20, ControlType.COMMIT)
    assert pass_.is_void(1, 30)
    assert not pass_.is_last_trace(1, 40, ControlType.ABORT)
    assert pass_.pop_retained() == [_aborted(1, 0, 10), _aborted(1, 30, 40)]


def test_a_commit_without_batches_is_bare() -> None:
    pass_ = CleanedTransactions([])
    assert not pass_.is_void(1, 5)
    assert pass_.is_last_trace(2, 6, ControlType.COMMIT)
    assert not pass_.is_last_trace(1, 7, ControlType.COMMIT)
    assert pass_.is_last_trace(1, 8, ControlType.COMMIT)


def test_what_was_cleaned_before_is_bare_and_the_unknown_stays() -> None:
    pass_ = CleanedTransactions([])
    assert pass_.is_last_trace(1, 8, None)
    assert not pass_.is_last_trace(1, 9, ControlType.UNKNOWN)


def test_work_is_paid_for_afterwards() -> None:
    throttle = Throttle(1000.0)
    assert throttle.pause_ms(500, 0) == 500
    assert throttle.pause_ms(500, 500) == 500
    # Two rounds at once pay for each other.
    assert throttle.pause_ms(500, 500) == 1000
    # Time in which nothing was done is not saved up.
    assert throttle.pause_ms(100, 10_000) == 100
    assert Throttle(float("inf")).pause_ms(1 << 40, 0) == 0
