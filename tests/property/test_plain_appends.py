"""A coordinator's plain batches, and markers, leave the same log as ordinary appends of the same
bytes, and rolls do not depend on cached values."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog_broker.log.errors import (
    LogStorageError,
    RecordBatchTooLarge,
    RecordTooLarge,
    StaleLeaderEpoch,
)
from klog_broker.log.log_config import LogConfig
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.validation.append_rules import AppendOrigin
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import LeaderEpoch
from pyspark_klog.records.builder import plain_batch
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.control import ControlType, EndTransactionMarker, end_transaction_batch
from pyspark_klog.records.record import TimestampType
from tests.support.cluster.broker import log_state
from tests.support.log.harness import DATA, EPOCH, SMALL, open_log, read_all
from tests.support.log.transactional_log import write
from tests.support.runtime.memory_files import MemoryFiles

CONFIGS = [
    SMALL,
    replace(SMALL, segment_ms=50, segment_jitter_ms=0),
    replace(SMALL, segment_bytes=1_000),
    replace(SMALL, max_message_bytes=500),
    replace(SMALL, segment_index_bytes=24),
    replace(SMALL, flush_messages=1),
    replace(SMALL, message_timestamp_type=TimestampType.LOG_APPEND_TIME),
    replace(SMALL, compression=Codec.GZIP),
]
Step = tuple[list[int], int]
"""Sizes of the values of a batch's records; none: a marker. Then the time since the step before."""


def files_of(files: MemoryFiles, path: Path = DATA) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in files.list_dir(path):
        inside = path / name
        if files.is_dir(inside):
            found |= files_of(files, inside)
        else:
            found[str(inside)] = files.read_bytes(inside)
    return found


def append_marker(log: PartitionLog, now_ms: int, *, is_plain: bool) -> None:
    """Append a marker of a producer whose first transaction is open, or of an unknown producer."""
    marker = EndTransactionMarker(ControlType.ABORT if now_ms % 2 else ControlType.COMMIT, 3)
    producer_id, producer_epoch = now_ms % 3, 1
    if is_plain:
        log.append_marker(
            producer_id,
            producer_epoch,
            marker,
            transaction_version=2,
            leader_epoch=EPOCH,
            now_ms=now_ms,
        )
        return
    made = end_transaction_batch(
        marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp_ms=now_ms
    )
    log._appender.append_marker(bytearray(made), marker, 2, leader_epoch=EPOCH, now_ms=now_ms)


def append(
    log: PartitionLog, sizes: list[int], now_ms: int, *, is_plain: bool, epoch: int = EPOCH
) -> None:
    """A batch of records with values of these sizes."""
    data = plain_batch([(b"k", b"v" * size) for size in sizes], now_ms)
    leader_epoch = LeaderEpoch(epoch)
    if is_plain:
        log.append_plain(data, len(sizes), now_ms, leader_epoch=leader_epoch, now_ms=now_ms)
    else:
        log.append_as_leader(
            data, leader_epoch=leader_epoch, now_ms=now_ms, origin=AppendOrigin.COORDINATOR
        )


def outcomes(log: PartitionLog, steps: list[Step], *, is_plain: bool) -> list[str]:
    now_ms, found = 1_000, []
    for sizes, wait_ms in steps:
        now_ms += wait_ms
        if not is_plain:
            log.segments[-1].roll_limits = None
        try:
            if sizes:
                append(log, sizes, now_ms, is_plain=is_plain)
            else:
                append_marker(log, now_ms, is_plain=is_plain)
        except KlogError as error:
            found.append(repr(error))
        else:
            found.append("")
    return found


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(CONFIGS),
    st.lists(
        st.tuples(st.lists(st.integers(0, 400), max_size=5), st.integers(0, 40)),
        max_size=20,
    ),
)
def test_they_leave_the_same(config: LogConfig, steps: list[Step]) -> None:
    seen = []
    for is_plain in (True, False):
        files = MemoryFiles()
        log = open_log(files, config)
        log.begin_epoch(EPOCH)
        for producer_id in range(2):
            write(log, producer_id, 0)
        told = outcomes(log, steps, is_plain=is_plain)
        seen.append((told, log_state(log), read_all(log, log.log_end_offset), files_of(files)))
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("config", "error"),
    [
        (replace(SMALL, max_message_bytes=100), RecordTooLarge),
        (replace(SMALL, segment_bytes=100), RecordBatchTooLarge),
    ],
)
def test_what_is_too_large_is_refused(config: LogConfig, error: type[KlogError]) -> None:
    log = open_log(MemoryFiles(), config)
    log.begin_epoch(EPOCH)
    with pytest.raises(error):
        append(log, [100], 1_000, is_plain=True)
    assert log.log_end_offset == 0


def test_an_older_epoch_appends_nothing() -> None:
    log = open_log(MemoryFiles())
    log.begin_epoch(LeaderEpoch(4))
    with pytest.raises(StaleLeaderEpoch):
        append(log, [1], 1_000, is_plain=True, epoch=3)
    assert log.log_end_offset == 0


def test_a_full_disk_leaves_all_as_it_was() -> None:
    files = MemoryFiles()
    log = open_log(files)
    log.begin_epoch(EPOCH)
    append(log, [1], 1_000, is_plain=True)
    before = log_state(log)
    files.free_bytes = 10
    with pytest.raises(LogStorageError):
        append(log, [300], 1_000, is_plain=True)
    assert log_state(log) == before
    files.free_bytes = 1 << 30
    append(log, [300], 1_000, is_plain=True)
    assert log.log_end_offset == 2
