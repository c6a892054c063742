"""Features that only a cleaned log has, and code that they could mislead."""

from dataclasses import replace
from pathlib import Path

import pytest

from klog_broker.coordinator.loading import KernelWalk
from klog_broker.inspection.producer_checks import ProducerReplay
from klog_broker.inspection.report import Report
from klog_broker.inspection.segment_scan import ScannedBatches, scan_segment
from klog_broker.log.errors import LongLookUp
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.segment.batch_search import find_batch
from klog_broker.log.validation.kernel_checks import kernel_checks
from klog_broker.log.validation.plain_checks import PlainChecks
from pyspark_klog.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.compression import Codec
from pyspark_klog.storage.names import Suffix
from pyspark_klog.storage.partition_files import PartitionFiles, ReadCounter, ReadOnlyFile
from pyspark_klog.storage.producer_snapshot import ProducerSnapshotEntry
from pyspark_klog.storage.segment_walk import last_stable_offset
from tests.support.compaction.cleaned_batches import FIRST_MS, CleanedBatch
from tests.support.log.harness import SMALL, append, batch, open_log
from tests.support.runtime.memory_files import MemoryFiles

EMPTIED = CleanedBatch(10, 3, [], producer_id=7, is_transactional=True)


def write(log: PartitionLog, *batches: CleanedBatch) -> None:
    for each in batches:
        data = memoryview(bytearray(each.build()))
        log.append_as_follower(data, leader_epoch=LeaderEpoch(0), now_ms=5_000)


# --- looking up ----------------------------------------------------------------------------------
def test_an_index_row_of_several_batches_leads_to_the_last_one() -> None:
    """Batches as brokers wrote them that appended several at once: first position, last offset."""
    log = open_log(MemoryFiles(), replace(SMALL, index_interval_bytes=1 << 20))
    for _ in range(4):
        append(log, batch(2))
    (segment,) = log.segments
    second = find_batch(segment, 2)
    assert second is not None
    segment.offset_index.append(7, second.position)
    segment._positions.clear()
    for offset in range(8):
        place = find_batch(segment, offset)
        assert place is not None
        assert place.base_offset <= offset <= place.last_offset


def test_the_largest_time_is_that_of_a_record() -> None:
    log = open_log(MemoryFiles())
    left = CleanedBatch(0, 2, [(1, FIRST_MS + 5)])
    emptied = bytearray(EMPTIED.build())
    at.INT64.pack_into(emptied, at.MAX_TIMESTAMP_AT, FIRST_MS + 50)
    BatchView(emptied).update_crc()
    write(log, left)
    log.append_as_follower(memoryview(emptied), leader_epoch=LeaderEpoch(0), now_ms=5_000)
    found = log.offset_for_timestamp(-3)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (1, FIRST_MS + 5)
    assert log.offset_for_timestamp(FIRST_MS + 6) is None
    # A caller that may not block gets the same result from a helper.
    with pytest.raises(LongLookUp) as raised:
        log.offset_for_timestamp(-3, may_block=False)
    assert raised.value.search() == found


# --- producers and transactions ------------------------------------------------------------------
@pytest.mark.parametrize("with_kernel", [True, False])
def test_an_emptied_batch_opens_no_transaction(with_kernel: bool) -> None:
    """An emptied batch keeps its producer's sequence; the marker behind it may be removed."""
    files = MemoryFiles()
    log = open_log(files)
    write(log, CleanedBatch(0, 1, [(0, FIRST_MS)]), EMPTIED, CleanedBatch(20, 1, [(0, FIRST_MS)]))
    log = open_log(files.killed(), checks=kernel_checks() if with_kernel else PlainChecks())
    assert log.log_end_offset == 21
    assert log.last_stable_offset == 21
    (producer,) = log.producers
    assert (producer.producer_id, producer.batches[-1].last_sequence) == (7, 2)


def test_segment_files_end_behind_an_emptied_batch(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(EMPTIED.build() + CleanedBatch(20, 1, [(0, FIRST_MS)]).build())
    files = PartitionFiles(tmp_path)
    assert last_stable_offset(files, files.listing(), 0, 21) == 21


def test_a_log_that_starts_in_a_batch_of_an_open_transaction_is_stable_up_to_there(
    tmp_path: Path,
) -> None:
    """DeleteRecords can raise the start into it."""
    records = [(delta, FIRST_MS) for delta in range(3)]
    cut_into = CleanedBatch(10, 3, records, producer_id=7, is_transactional=True)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(cut_into.build() + CleanedBatch(13, 1, [(0, FIRST_MS)]).build())
    files = PartitionFiles(tmp_path)
    assert last_stable_offset(files, files.listing(), 11, 14) == 11


def replayed(tmp_path: Path, *batches: CleanedBatch) -> ProducerReplay:
    path = tmp_path / f"{0:020}{Suffix.LOG}"
    path.write_bytes(b"".join(each.build() for each in batches))
    replay = ProducerReplay(is_complete=True)
    with ReadOnlyFile(path, ReadCounter()) as file:
        for chunk in scan_segment(file, 0):
            assert isinstance(chunk, ScannedBatches)
            assert replay.add(chunk, 0, len(chunk.rows)) is None
    return replay


@pytest.mark.parametrize(
    ("fields", "is_error"),
    [
        ({}, False),
        ({"coordinator_epoch": 5}, False),  # the marker was cleaned away
        ({"producer_epoch": 1, "last_sequence": -1, "last_offset": -1}, False),  # by that marker
        ({"current_transaction_first_offset": 4}, False),  # its first batch was cleaned away
        ({"last_sequence": 9}, True),
        ({"last_offset": 11}, True),
    ],
)
def test_a_snapshot_may_know_more_than_a_cleaned_log(
    tmp_path: Path, fields: dict[str, int], is_error: bool
) -> None:
    entry = ProducerSnapshotEntry(
        ProducerId(7),
        ProducerEpoch(0),
        last_sequence=2,
        last_offset=Offset(12),
        offset_delta=2,
    )._replace(**fields)
    said: list[object] = []
    report = Report(said.append)
    replay = replayed(tmp_path, EMPTIED)
    replay.compare([entry], tmp_path, report, start=0, has_gaps=True)
    assert report.is_sound != is_error, said


# --- coordinators --------------------------------------------------------------------------------
def test_what_an_emptied_batch_was_compressed_with_does_not_matter() -> None:
    data = bytearray(EMPTIED.build())
    at.INT16.pack_into(data, at.ATTRIBUTES_AT, int(Codec.GZIP))
    BatchView(data).update_crc()
    checked = KernelWalk().check(bytes(data))
    assert (checked.checked_bytes, checked.inflated) == (len(data), {})
