"""Batches read from segment files, without Spark: existing, visible and deleted records."""

import json
import pickle
import re
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.batch import split_batches
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.errors import CorruptRecords
from pyspark_klog.spark.errors import DataLost, OffsetError, OptionError
from pyspark_klog.spark.files import discovery as segment_discovery
from pyspark_klog.spark.files.segment_range import SegmentRange
from pyspark_klog.spark.options.paths import local_directory
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.planning.losses import Loss
from pyspark_klog.spark.planning.ranges import OffsetRange
from pyspark_klog.spark.source.reader import RangePartition
from pyspark_klog.spark.source.rows import RangeReader
from pyspark_klog.spark.source.segment_reader import SegmentReader
from pyspark_klog.storage import names
from pyspark_klog.storage.names import Suffix
from pyspark_klog.storage.text_files import EpochStart, encode_leader_epochs
from tests.support.spark.segment_files import LogFiles, write_checkpoint

pytestmark = pytest.mark.parity("beyond: 11 segment files")

_P = TopicPartition("t", 0)
_COMMITTED = {"kafka.isolation.level": "read_committed"}


@pytest.fixture
def log(tmp_path: Path) -> LogFiles:
    return LogFiles(tmp_path / "data")


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_discovery, "PAUSE_S", 0.0)


def _reader(data: Path, **options: str) -> SegmentReader:
    given = {"path": str(data), "subscribe": "t"} | options
    if "assign" in options or "subscribePattern" in options:
        del given["subscribe"]
    read = read_options(given)
    read.check_source()
    batch = read.for_batch()
    batch.check_batch()
    return SegmentReader(batch)


def _ranges(data: Path, **options: str) -> list[OffsetRange]:
    parts = _reader(data, **options).partitions()
    return [part.offsets for part in parts if isinstance(part, RangePartition)]


def _rows(data: Path, **options: str) -> list[dict[str, Any]]:
    reader = _reader(data, **options)
    return [
        row
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]


def _offsets(data: Path, **options: str) -> list[int]:
    return [row["offset"] for row in _rows(data, **options)]


def _json(offset: int) -> str:
    return json.dumps({"t": {"0": offset}})


# --- what is there --------------------------------------------------------------------------------
def test_all_formats_and_codecs(log: LogFiles) -> None:
    expected = []
    for magic in (0, 1, 2):
        for codec in Codec:
            if magic < 2 and codec is Codec.ZSTD:
                continue
            expected += [(log.end + n, magic) for n in range(3)]
            log.append(3, magic=magic, codec=codec)
        log.roll()
    log.commit()
    rows = _rows(log.data, includeHeaders="true")
    assert [row["offset"] for row in rows] == [offset for offset, _ in expected]
    assert [row["value"] for row in rows] == [b"v%d" % offset for offset, _ in expected]
    assert [row["timestampType"] for row in rows] == [
        -1 if magic == 0 else 0 for _, magic in expected
    ]
    assert {(row["topic"], row["partition"], row["key"]) for row in rows} == {("t", 0, b"k")}


def test_columns_are_chosen(log: LogFiles) -> None:
    log.append(2)
    log.commit()
    assert _rows(log.data, columns="value,offset") == [
        {"value": b"v0", "offset": 0},
        {"value": b"v1", "offset": 1},
    ]


def test_ranges_are_cut_and_read_by_index(log: LogFiles) -> None:
    for _ in range(5):
        for _ in range(8):
            log.append(3)
        log.roll()
    log.commit()
    assert _offsets(log.data) == list(range(120))
    assert _offsets(log.data, startingOffsets=_json(31), endingOffsets=_json(100)) == list(
        range(31, 100)
    )
    parts = _ranges(log.data, minPartitions="7")
    assert len(parts) == 7
    assert sorted(_offsets(log.data, maxRecordsPerPartition="11")) == list(range(120))
    for start in range(0, 120, 7):
        for end in (start + 1, start + 2, start + 30):
            found = _offsets(
                log.data, startingOffsets=_json(start), endingOffsets=_json(min(end, 120))
            )
            assert found == list(range(start, min(end, 120)))


def test_a_batch_larger_than_a_chunk(log: LogFiles) -> None:
    log.append(2, value=b"x" * 500)
    log.append(200, value=b"y" * 500)
    log.append(2)
    reading, batches = _read_chunks(log, 0, log.end, chunk_bytes=1_000)
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(
        range(204)
    )
    size = log.file(Suffix.LOG).stat().st_size
    assert size <= reading.counter.total_bytes <= size + 2_000  # nothing is read twice


def _read_chunks(
    log: LogFiles, start: int, end: int, *, chunk_bytes: int, read_committed: bool = False
) -> tuple[SegmentRange, list[pa.RecordBatch]]:
    offsets = OffsetRange("t", 0, start, end)
    options = read_options({"path": str(log.data), "subscribe": "t"})
    decoder = RangeReader(options).decoder(offsets)
    reading = SegmentRange(
        log.data, offsets, read_committed=read_committed, on_lost=_fail, chunk_bytes=chunk_bytes
    )
    batches = list(reading.batches(decoder))
    rest = decoder.flush()
    return reading, [*batches, rest] if rest is not None else batches


def _fail(loss: Loss) -> None:
    raise DataLost(str(loss))


@pytest.mark.parametrize("damage", ["missing", "nonsense", "zeros"])
def test_indexes_that_are_of_no_use(log: LogFiles, damage: str) -> None:
    for number in range(40):
        log.append(3, at_ms=number * 1_000)
    log.roll()
    log.append()
    log.commit()
    for suffix in (Suffix.OFFSET_INDEX, Suffix.TIME_INDEX):
        path = log.file(suffix, 0)
        if damage == "missing":
            path.unlink()
        elif suffix is Suffix.OFFSET_INDEX:
            size = path.stat().st_size
            path.write_bytes(bytes(size) if damage == "zeros" else bytes(range(1, 9)) * (size // 8))
    assert _offsets(log.data, startingOffsets=_json(100)) == list(range(100, 121))
    assert _ranges(log.data, startingTimestamp="20000")[0].start == 60


# --- what may be seen -----------------------------------------------------------------------------
def test_the_high_watermark_is_the_end(log: LogFiles) -> None:
    log.append(10)
    log.append(10)
    log.commit(13)
    assert _offsets(log.data) == list(range(13))
    with pytest.raises(
        DataLost, match=r"offsets 13 to 20 of t-0 .* end at offset 13 .*failOnDataLoss"
    ):
        _ranges(log.data, endingOffsets=_json(20))
    assert _ranges(log.data, endingOffsets=_json(20), failOnDataLoss="false") == [
        OffsetRange("t", 0, 0, 13)
    ]
    log.commit(0)
    assert _ranges(log.data) == []


def test_a_partition_that_the_checkpoint_lacks_has_nothing_yet(log: LogFiles) -> None:
    log.append(10)
    write_checkpoint(log.data, names.HIGH_WATERMARK_CHECKPOINT, {})
    assert _ranges(log.data) == []


def test_checkpoints_that_kafka_has_just_made_are_empty(log: LogFiles) -> None:
    log.append(10)
    (log.data / names.HIGH_WATERMARK_CHECKPOINT).write_bytes(b"")
    assert _ranges(log.data) == []
    assert _offsets(log.data, stopped="true") == list(range(10))
    log.commit()
    for path in (
        log.data / names.LOG_START_OFFSET_CHECKPOINT,
        log.data / names.RECOVERY_POINT_CHECKPOINT,
        log.path / names.LEADER_EPOCH_CHECKPOINT,
    ):
        path.write_bytes(b"")
    assert _offsets(log.data) == list(range(10))


@pytest.mark.parity("own option: stopped")
def test_without_a_checkpoint_only_stopped_files_are_read(log: LogFiles) -> None:
    log.append(10)
    with pytest.raises(OptionError, match=r"no replication-offset-checkpoint in .*stopped=true"):
        _ranges(log.data)
    assert _offsets(log.data, stopped="true") == list(range(10))
    log.commit(7)
    assert _offsets(log.data, stopped="true") == list(range(7))


@pytest.mark.parity("own option: stopped")
@pytest.mark.parametrize(
    "tail", ["cut off", "bad crc", "zeros", "lower offset", "noise", "nothing"]
)
def test_stopped_files_are_read_up_to_the_last_whole_batch(log: LogFiles, tail: str) -> None:
    log.append(5)
    log.roll()
    log.append(5)
    path = log.file(Suffix.LOG)
    size = path.stat().st_size
    if tail != "nothing":
        log.append(5)
    whole = path.read_bytes()
    bad = {
        "cut off": whole[:-1],
        "bad crc": whole[:-1] + bytes([whole[-1] ^ 1]),
        "zeros": whole[:size] + bytes(1_000),
        "lower offset": whole[:size] + whole[:size],
        "noise": whole[:size] + Random(1).randbytes(500),
        "nothing": whole,
    }
    path.write_bytes(bad[tail])
    assert _offsets(log.data, stopped="true") == list(range(10))
    # From the recovery point on all is checked: what a broker would drop is not read.
    first = log.file(Suffix.LOG, 0)
    first.write_bytes(first.read_bytes()[:-1])
    write_checkpoint(log.data, names.RECOVERY_POINT_CHECKPOINT, {_P: 0})
    assert _offsets(log.data, stopped="true") == []


def test_records_that_were_deleted_are_not_read(log: LogFiles) -> None:
    log.append(10)
    log.commit()
    write_checkpoint(log.data, names.LOG_START_OFFSET_CHECKPOINT, {_P: 4})
    assert _offsets(log.data) == [4, 5, 6, 7, 8, 9]
    with pytest.raises(DataLost, match="t-0 begins at offset 4 now: offsets 2 to 10"):
        _offsets(log.data, startingOffsets=_json(2))
    found = _offsets(log.data, startingOffsets=_json(2), failOnDataLoss="false")
    assert found == [4, 5, 6, 7, 8, 9]


def test_damage_in_the_middle_is_said(log: LogFiles) -> None:
    log.append(10)
    log.append(10)
    log.commit()
    path = log.file(Suffix.LOG)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    words = r"t-0/00000000000000000000\.log, from byte 0 on: t-0, batch at byte 0, offset 0: .* CRC"
    with pytest.raises(CorruptRecords, match=words):
        _offsets(log.data)


@pytest.mark.parametrize("start", [0, 15])
@pytest.mark.parametrize("damage", ["a length that passes the end", "cut off"])
def test_a_segment_that_ends_within_a_batch_is_not_passed_over(
    log: LogFiles, start: int, damage: str
) -> None:
    """No CRC covers a batch's length."""
    _three_segments(log)
    path = log.file(Suffix.LOG, 0)
    data = bytearray(path.read_bytes())
    last = list(split_batches(data))[-1].position
    if damage == "cut off":
        del data[-1:]
    else:
        data[last + 8] = 1  # the highest byte of the length
    path.write_bytes(data)
    words = rf"t-0/0{{20}}\.log, from byte {last} on: a batch .* the segment of offset 20 follows"
    with pytest.raises(CorruptRecords, match=words):
        _offsets(log.data, startingOffsets=_json(start), failOnDataLoss="false")


def test_a_time_is_not_looked_for_behind_a_batch_that_is_cut_off(log: LogFiles) -> None:
    log.append(5, at_ms=10)
    log.append(5, at_ms=20)
    log.roll()
    log.append(5, at_ms=30)
    log.commit()
    path = log.file(Suffix.LOG, 0)
    path.write_bytes(path.read_bytes()[:-1])
    assert _ranges(log.data, startingTimestamp="10")[0].start == 0
    with pytest.raises(CorruptRecords, match=r"0\.log, batch at byte .* the bytes end inside"):
        _ranges(log.data, startingTimestamp="20")


def test_damage_on_the_way_to_what_is_wanted_is_named_with_its_file(log: LogFiles) -> None:
    _three_segments(log)
    path = log.file(Suffix.LOG, 0)
    data = bytearray(path.read_bytes())
    data[list(split_batches(data))[1].position + 16] = 9  # the magic
    path.write_bytes(data)
    with pytest.raises(CorruptRecords, match=r"t-0/0{20}\.log, from byte .*magic"):
        _offsets(log.data, startingOffsets=_json(7))


# --- transactions ---------------------------------------------------------------------------------
def test_aborted_and_open_transactions_are_left_out(log: LogFiles) -> None:
    log.append(2)  # 0, 1
    log.in_transaction(7, 2)  # 2, 3: aborted
    log.in_transaction(8, 2)  # 4, 5: committed
    log.finish(7, abort=True)  # 6
    log.in_transaction(7, 1)  # 7: committed
    log.roll()
    log.finish(8, abort=False)  # 8
    log.finish(7, abort=False)  # 9
    log.append(1)  # 10
    log.in_transaction(9, 1)  # 11: open
    log.append(1)  # 12
    log.commit()
    assert _offsets(log.data, **_COMMITTED) == [0, 1, 4, 5, 7, 10]
    assert _offsets(log.data) == [0, 1, 2, 3, 4, 5, 7, 10, 11, 12]
    assert _offsets(log.data, startingOffsets=_json(3), endingOffsets=_json(8), **_COMMITTED) == [
        4,
        5,
        7,
    ]
    with pytest.raises(DataLost, match="offsets 11 to 13 of t-0"):
        _ranges(log.data, endingOffsets=_json(13), **_COMMITTED)
    # Committed, but not known to be: its marker lies behind the high watermark.
    log.commit(8)
    assert _offsets(log.data, **_COMMITTED) == [0, 1]


def test_an_end_behind_an_open_transaction_names_it_and_since_when(log: LogFiles) -> None:
    log.append(2)
    log.in_transaction(9, 3, at_ms=1_700_000_000_000)
    log.append(1)
    log.commit()
    with pytest.raises(DataLost) as caught:
        _ranges(log.data, endingOffsets=_json(6), **_COMMITTED)
    text = str(caught.value)
    assert "end at offset 2 (ends exclusive): t-0 has an open transaction since " in text
    assert "since 2023-11-14 22:13:20+00:00, which begins at offset 2; nothing is lost" in text
    assert "set option failOnDataLoss=false to go on" not in text
    assert "\n" not in text


def test_an_end_before_the_start_names_the_open_transaction(log: LogFiles) -> None:
    log.append(2)
    log.in_transaction(9, 3, at_ms=1_700_000_000_000)
    log.append(1)
    log.commit()
    with pytest.raises(OffsetError) as caught:
        _ranges(log.data, startingOffsets=_json(4), **_COMMITTED)
    assert str(caught.value) == (
        "a batch would end before it begins: t-0 from 4 to 2; t-0 has an open transaction since "
        "2023-11-14 22:13:20+00:00, which begins at offset 2; nothing is lost: run the query again "
        "when the transaction has ended (klog transactions list shows it)"
    )
    # Waiting does not help behind the high watermark.
    with pytest.raises(OffsetError, match="from 7 to 2; startingOffsets is beyond the end"):
        _ranges(log.data, startingOffsets=_json(7), **_COMMITTED)
    with pytest.raises(OffsetError, match="from 7 to 6; startingOffsets is beyond the end"):
        _ranges(log.data, startingOffsets=_json(7))


def test_an_end_behind_the_high_watermark_names_no_transaction(log: LogFiles) -> None:
    log.append(4)
    log.commit(2)
    with pytest.raises(DataLost, match="set option failOnDataLoss=false to read up to") as caught:
        _ranges(log.data, endingOffsets=_json(4), **_COMMITTED)
    assert "transaction" not in str(caught.value)


def test_random_transactions_are_read_as_a_model_has_them(tmp_path: Path) -> None:
    for seed in range(12):
        random = Random(seed)
        log = LogFiles(tmp_path / str(seed))
        owner: dict[int, int] = {}
        void: set[int] = set()
        marks: set[int] = set()
        began: list[tuple[int, int]] = []  # (first offset, marker's) of each transaction
        for _ in range(120):
            what = random.random()
            if what < 0.25:
                log.append(random.randint(1, 3))
            elif what < 0.6:
                producer = random.randint(1, 4)
                count = random.randint(1, 3)
                owner |= dict.fromkeys(range(log.end, log.end + count), producer)
                log.in_transaction(producer, count)
            elif what < 0.92 and log.open:
                producer = random.choice(list(log.open))
                abort = random.random() < 0.5
                first = log.open[producer]
                began.append((first, log.end))
                if abort:
                    void |= {o for o in range(first, log.end) if owner.get(o) == producer}
                marks.add(log.end)
                log.finish(producer, abort=abort)
            elif what >= 0.92:
                log.roll()
        began += [(first, 1 << 40) for first in log.open.values()]
        watermark = random.randint(log.end // 2, log.end)
        log.commit(watermark)
        stable = min([first for first, mark in began if first < watermark <= mark] + [watermark])
        if not stable:
            assert _ranges(log.data, **_COMMITTED) == []
            continue
        start, end = sorted(random.sample(range(stable + 1), 2))
        expected = [o for o in range(start, end) if o not in void and o not in marks]
        assert _ranges(log.data, **_COMMITTED)[0].end == stable
        _, batches = _read_chunks(log, start, end, chunk_bytes=300, read_committed=True)
        assert [o for b in batches for o in b["offset"].to_pylist()] == expected, seed


def test_snapshots_of_no_use_cost_a_walk(log: LogFiles) -> None:
    log.in_transaction(3)
    log.append(2)
    log.roll()
    log.append(2)
    log.commit()
    assert _ranges(log.data, endingOffsets="latest", **_COMMITTED) == []
    log.file(Suffix.PRODUCER_SNAPSHOT).write_bytes(b"nonsense")
    assert _ranges(log.data, **_COMMITTED) == []


# --- by time --------------------------------------------------------------------------------------
def test_timestamps_are_found_as_a_broker_finds_them(tmp_path: Path) -> None:
    for seed in range(10):
        random = Random(seed)
        log = LogFiles(tmp_path / str(seed))
        times: list[int] = []
        for _ in range(60):
            count = random.randint(1, 4)
            at_ms = max(1, len(times) * 10 + random.randint(-60, 60))
            times += range(at_ms, at_ms + count)
            log.append(count, at_ms=at_ms, codec=random.choice(list(Codec)))
            if random.random() < 0.15:
                log.roll()
        end = random.randint(1, len(times))
        log.commit(end)
        for _ in range(25):
            wanted = random.randint(0, max(times) + 5)
            first = next((o for o, t in enumerate(times[:end]) if t >= wanted), None)
            if first is None:
                with pytest.raises(OffsetError, match="no record at or after the timestamp"):
                    _ranges(log.data, startingTimestamp=str(wanted))
                assert _ranges(log.data, endingTimestamp=str(wanted))[0].end == end
            else:
                assert _ranges(log.data, startingTimestamp=str(wanted))[0].start == first
                found = _ranges(log.data, endingTimestamp=str(wanted))
                assert [r.end for r in found] == ([first] if first else [])


def test_a_timestamp_in_an_open_transaction_has_no_match(log: LogFiles) -> None:
    log.append(2, at_ms=10)
    log.in_transaction(1, at_ms=500)
    log.commit()
    assert _ranges(log.data, startingTimestamp="400")[0].start == 2
    with pytest.raises(OffsetError, match="no record at or after the timestamp"):
        _ranges(log.data, startingTimestamp="400", **_COMMITTED)


def test_an_hour_of_a_week_reads_that_hour(log: LogFiles, caplog: pytest.LogCaptureFixture) -> None:
    hour_ms = 3_600_000
    for hour in range(7 * 24):
        for part in range(20):
            log.append(30, at_ms=hour * hour_ms + part * 60_000, value=b"x" * 100)
        if hour % 24 == 23:
            log.roll()
    log.commit()
    whole = sum(path.stat().st_size for path in log.path.glob("*.log"))
    for options in ({}, _COMMITTED):
        caplog.clear()
        with caplog.at_level("INFO"):
            rows = _rows(
                log.data,
                startingTimestamp=str(100 * hour_ms),
                endingTimestamp=str(101 * hour_ms),
                **options,
            )
        assert len(rows) == 600
        assert (rows[0]["offset"], rows[-1]["offset"]) == (60_000, 60_599)
        [planned, read] = [
            int(record.getMessage().rpartition("_bytes=")[2]) for record in caplog.records
        ]
        assert whole / 7 / 24 * 0.99 < read < whole / 7 / 24 * 1.05
        assert planned < whole / 7 / 4


# --- what has gone --------------------------------------------------------------------------------
def _planned(log: LogFiles, **options: str) -> tuple[SegmentReader, list[Any]]:
    reader = _reader(log.data, **options)
    return reader, list(reader.partitions())


def _three_segments(log: LogFiles) -> None:
    for _ in range(3):
        for _ in range(4):
            log.append(5)
        log.roll()
    log.commit()


@pytest.mark.parametrize("fail", [True, False])
def test_segments_that_vanish_go_by_fail_on_data_loss(log: LogFiles, fail: bool) -> None:
    _three_segments(log)
    reader, [part] = _planned(log, failOnDataLoss=str(fail))
    log.delete(0)
    log.delete(20)
    if fail:
        with pytest.raises(DataLost, match="t-0 begins at offset 40 now: offsets 0 to 60"):
            list(reader.read(part))
        return
    found = [o for batch in reader.read(part) for o in batch["offset"].to_pylist()]
    assert found == list(range(40, 60))


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("fail", [True, False])
def test_a_partition_that_vanishes_goes_by_it_too(log: LogFiles, fail: bool) -> None:
    _three_segments(log)
    reader, [part] = _planned(log, failOnDataLoss=str(fail))
    log.path.rename(log.data / f"t-0.{'0' * 32}-delete")
    if fail:
        with pytest.raises(DataLost, match=r"has gone: offsets 0 to 60 .* were to be read"):
            list(reader.read(part))
        return
    assert list(reader.read(part)) == []


def test_a_log_that_ends_too_early_goes_by_it_too(log: LogFiles) -> None:
    _three_segments(log)
    reader, [part] = _planned(log)
    log.delete(20)
    log.delete(40)
    log.delete(60)
    with pytest.raises(DataLost, match="t-0 ends at offset 20: offsets 20 to 60"):
        list(reader.read(part))


class _Meddling(SegmentRange):
    """Does something to the files when the reading has come to an offset."""

    def __init__(self, *arguments: Any, meddle: dict[int, Any], **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._meddle = meddle

    def _read(self, segment: Any, decoder: Any) -> Any:
        meddle = self._meddle.pop(segment.base, None)
        if meddle is not None:
            meddle()
        return super()._read(segment, decoder)


def _meddled(log: LogFiles, meddle: dict[int, Any], lost: list[Loss]) -> list[int]:
    offsets = OffsetRange("t", 0, 0, 60)
    decoder = RangeReader(read_options({"path": str(log.data), "subscribe": "t"})).decoder(offsets)
    reading = _Meddling(log.data, offsets, read_committed=False, on_lost=lost.append, meddle=meddle)
    batches = [*reading.batches(decoder), decoder.flush()]
    return [o for batch in batches if batch is not None for o in batch["offset"].to_pylist()]


def test_an_open_segment_is_read_to_its_end_though_deleted(log: LogFiles) -> None:
    _three_segments(log)
    lost: list[Loss] = []
    assert _meddled(log, {0: lambda: log.delete(0)}, lost) == list(range(60))
    assert lost == []


def test_what_goes_while_another_is_read_is_reported(log: LogFiles) -> None:
    _three_segments(log)
    lost: list[Loss] = []

    def retention() -> None:
        log.delete(0)
        log.delete(20)

    assert _meddled(log, {0: retention}, lost) == [*range(20), *range(40, 60)]
    [loss] = lost
    assert "t-0 begins at offset 40 now: offsets 20 to 60" in loss.text


def test_segments_that_a_cleaner_merges_are_followed(log: LogFiles) -> None:
    _three_segments(log)
    lost: list[Loss] = []

    def clean() -> None:
        merged = b"".join(log.file(Suffix.LOG, base).read_bytes() for base in (0, 20))
        log.delete(20)
        log.delete(0)
        log.file(Suffix.LOG, 0).write_bytes(merged)

    assert _meddled(log, {0: clean}, lost) == list(range(60))
    assert lost == []


def test_gaps_of_a_cleaned_log_are_no_loss(log: LogFiles) -> None:
    log.append(5)
    log.append(5)
    log.roll()
    log.end = 20
    log.append(5)
    log.commit()
    first = log.file(Suffix.LOG, 0)
    first.write_bytes(first.read_bytes()[: first.stat().st_size // 2])
    assert _offsets(log.data) == [*range(5), *range(20, 25)]
    assert _offsets(log.data, startingOffsets=_json(7), endingOffsets=_json(22)) == [20, 21]


@pytest.mark.usefixtures("no_pauses")
def test_a_cleaner_that_was_stopped_halfway(log: LogFiles) -> None:
    _three_segments(log)
    path = log.file(Suffix.LOG, 0)
    path.rename(path.with_name(path.name + ".swap"))
    with pytest.raises(OffsetError, match=r"log cleaner is replacing .*start the broker once"):
        _ranges(log.data)


def test_segments_in_a_remote_tier_are_refused(log: LogFiles) -> None:
    _three_segments(log)
    log.delete(0)
    epochs = log.path / names.LEADER_EPOCH_CHECKPOINT
    epochs.write_bytes(encode_leader_epochs([EpochStart(0, 0)]))  # type: ignore[arg-type]
    write_checkpoint(log.data, names.LOG_START_OFFSET_CHECKPOINT, {_P: 0})
    with pytest.raises(OffsetError, match=r"t-0 has its offsets 0 to 20 .* in a remote tier"):
        _ranges(log.data)
    assert _offsets(log.data, startingOffsets=_json(20)) == list(range(20, 60))
    # The checkpoint alone may be old: then the segments were deleted for good.
    epochs.write_bytes(encode_leader_epochs([EpochStart(0, 20)]))  # type: ignore[arg-type]
    assert _offsets(log.data) == list(range(20, 60))


# --- which partitions, which directories ----------------------------------------------------------
def test_partitions_are_chosen_as_usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = [LogFiles(tmp_path, topic, number) for topic in ("ab", "ac") for number in (0, 1)]
    logs += [LogFiles(tmp_path, "__consumer_offsets", 0), LogFiles(tmp_path, "gone", 0)]
    for log in logs:
        log.append()
    (tmp_path / "gone-0").rename(tmp_path / f"gone-0.{'0' * 32}-delete")
    write_checkpoint(tmp_path, names.HIGH_WATERMARK_CHECKPOINT, {log.partition: 1 for log in logs})

    def chosen_partitions(**options: str) -> list[str]:
        return [f"{r.topic}-{r.partition}" for r in _ranges(tmp_path, **options)]

    assert chosen_partitions(subscribe="ab") == ["ab-0", "ab-1"]
    assert chosen_partitions(subscribePattern=".*") == ["ab-0", "ab-1", "ac-0", "ac-1"]
    assert chosen_partitions(assign='{"ac":[1]}') == ["ac-1"]
    # A pattern may match anywhere in the name, as when brokers are asked.
    assert chosen_partitions(subscribePattern="c") == ["ac-0", "ac-1"]
    assert chosen_partitions(subscribePattern="none.*") == []
    options = {"path": str(tmp_path), "stopped": "true", "subscribePattern": "a"}
    discovery = segment_discovery.SegmentDiscovery(read_options(options))
    compiled: list[str] = []

    def compile_once(pattern: str) -> re.Pattern[str]:
        compiled.append(pattern)
        return re.compile(pattern)

    monkeypatch.setattr("pyspark_klog.spark.options.java_regex.compile_java", compile_once)
    assert len(discovery.partitions()) == 4
    assert compiled == ["a"], "not for each of a thousand partitions"
    monkeypatch.undo()
    with pytest.raises(OffsetError, match=r"topic gone has no directory in .*called gone-0"):
        chosen_partitions(subscribe="gone")
    with pytest.raises(OffsetError, match=r"assign names ac-7: there is no such directory"):
        chosen_partitions(assign='{"ac":[1,7]}')
    (tmp_path / "ab-0").rename(tmp_path / "elsewhere")
    with pytest.raises(OffsetError, match=r"lacks partitions 0 of topic ab: .*has, 1$"):
        chosen_partitions(subscribe="ab")


def test_directories_that_cannot_be_read(tmp_path: Path, log: LogFiles) -> None:
    log.append()
    log.commit()
    with pytest.raises(OptionError, match=r"path .*/nowhere is no directory on .*log\.dirs"):
        _ranges(tmp_path / "nowhere")
    with pytest.raises(OptionError, match="is the directory of one partition"):
        _ranges(log.path)
    assert _offsets(log.data, path=f"file://{log.data}") == [0]


@pytest.mark.parity("own option: path")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"path": "s3://bucket/data"},
            r"path is 's3://bucket/data'; .*s3://bucket cannot be read, mount",
        ),
        ({"path": "hdfs:/data"}, "hdfs:// cannot be read"),
        ({"path": "file://host/data"}, "file://host cannot be read"),
        ({"path": " "}, "option path is empty"),
        ({"paths": '["a","b"]'}, "several paths are given"),
        ({"stopped": "true", "kafka.bootstrap.servers": "h:1"}, "counts only together with path"),
        ({"stopped": "yes", "path": "/x"}, "option stopped is 'yes'; expected true or false"),
        ({"path": "/x", "startingOffsets": "committed", "commitGroupId": "g"}, "files do not"),
    ],
)
def test_what_is_refused(tmp_path: Path, given: dict[str, str], words: str) -> None:
    if "startingOffsets" in given:
        log = LogFiles(tmp_path)
        log.commit()
        given["path"] = str(tmp_path)
    with pytest.raises(KlogError, match=words):
        options = read_options({"subscribe": "t"} | given)
        options.check_source()
        SegmentReader(options.for_batch()).partitions()


@pytest.mark.parity("own option: path")
def test_a_stream_has_no_path() -> None:
    options = read_options({"path": "/x", "subscribe": "t", "kafka.bootstrap.servers": "h:1"})
    with pytest.raises(OptionError, match="a path is given, '/x'; a stream reads topics"):
        options.for_stream().check_stream()


def test_a_relative_path_is_meant_where_the_query_is_planned(
    log: LogFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append(3)
    log.commit()
    monkeypatch.chdir(tmp_path)
    reader = _reader(Path("data"))
    parts = reader.partitions()
    (tmp_path / "executor").mkdir()
    monkeypatch.chdir(tmp_path / "executor")
    sent: SegmentReader = pickle.loads(pickle.dumps(reader))
    assert [batch.num_rows for part in parts for batch in sent.read(part)] == [3]


def test_paths_are_made_absolute() -> None:
    assert local_directory("/a/b") == local_directory("file:///a/b") == "/a/b"
    assert local_directory("file:/a%20b") == "/a b"
    assert local_directory("c/d") == str(Path.cwd() / "c" / "d")
