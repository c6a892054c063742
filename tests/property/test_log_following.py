"""A follower's log and its leader's: the same bytes, indexes, epochs, producers and recovery."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog_broker.log.errors import LogStorageError, OffsetOutOfRange, StaleLeaderEpoch
from klog_broker.log.log_config import LogConfig
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.validation.kernel_checks import kernel_checks
from klog_broker.log.validation.plain_checks import PlainChecks
from klog_broker.log.validation.record_checks import RecordChecks
from pyspark_klog.ids import LeaderEpoch
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.errors import CorruptRecords
from pyspark_klog.records.legacy_builder import LegacyBuilder
from tests.support.log.harness import append_in, batch, open_log, read_all
from tests.support.records.record_sets import set_leader_epoch
from tests.support.runtime.memory_files import MemoryFiles

CONFIGS = st.builds(
    LogConfig,
    segment_bytes=st.integers(700, 3_000),
    segment_index_bytes=st.sampled_from([24, 48, 400, 4_000]),
    index_interval_bytes=st.sampled_from([0, 100, 300, 5_000]),
    segment_ms=st.sampled_from([40, 10**9]),
    retention_ms=st.just(-1),
)
APPENDS = st.lists(
    st.tuples(
        st.integers(0, 1),  # by how much the epoch rises
        st.integers(1, 4),  # records
        st.integers(0, 80),  # timestamp
        st.integers(-1, 2),  # producer
        st.sampled_from([Codec.NONE, Codec.ZSTD]),
    ),
    max_size=30,
)
NOW_MS = 5_000


def checks_of(kernels: bool) -> RecordChecks:
    return kernel_checks() if kernels else PlainChecks()


def led(config: LogConfig, appends: list[tuple[Any, ...]], checks: RecordChecks) -> PartitionLog:
    log = open_log(MemoryFiles(), config, checks=checks)
    epoch, sequences = 0, [0, 0, 0]
    for rise, count, timestamp_ms, producer, codec in appends:
        epoch += rise
        more: dict[str, Any] = {}
        if producer >= 0:
            more = {"producer_id": producer, "base_sequence": sequences[producer]}
            sequences[producer] += count
        records = batch(count, timestamp_ms=timestamp_ms, codec=codec, **more)
        append_in(log, epoch, records, NOW_MS)
    return log


def everything(log: PartitionLog) -> bytes:
    files = (segment.log_file for segment in log.segments)
    return b"".join(file.pread(file.size(), 0) for file in files)


def fetch(
    log: PartitionLog, data: bytes, epoch: int = 99, *, piece: int | None = None
) -> PartitionLog:
    """Feed what the leader holds in pieces that end anywhere, as fetches do."""
    position = 0
    while position < len(data):
        before = log.size_bytes
        size = len(data) if piece is None else piece
        while log.size_bytes == before:
            part = memoryview(data)[position : position + size]
            log.append_as_follower(part, leader_epoch=LeaderEpoch(epoch), now_ms=NOW_MS)
            size *= 2
        position += log.size_bytes - before
    return log


def facts(log: PartitionLog) -> dict[str, Any]:
    return {
        "ends": (log.log_start_offset, log.log_end_offset, log.latest_epoch),
        "segments": {each.base_offset: each.size_bytes for each in log.segments},
        "bytes": everything(log),
        "indexes": [list(each.offset_index.view()) for each in log.segments],
        "times": [list(each.time_index.view()) for each in log.segments],
        "largest": [each.max_timestamp for each in log.segments],
        "epochs": [log.end_offset_for_epoch(epoch) for epoch in range(35)],
        "producers": {
            each.producer_id: (each.producer_epoch, list(each.batches)) for each in log.producers
        },
    }


def crashed(log: PartitionLog, config: LogConfig, checks: RecordChecks) -> PartitionLog:
    files = log.log_directory.files
    assert isinstance(files, MemoryFiles)
    return open_log(files.killed(), config, checks=checks)


@given(
    config=CONFIGS,
    appends=APPENDS,
    piece=st.one_of(st.none(), st.integers(60, 2_000)),
    kernels=st.booleans(),
)
def test_a_follower_holds_what_its_leader_holds(
    config: LogConfig, appends: list[tuple[Any, ...]], piece: int | None, kernels: bool
) -> None:
    checks = checks_of(kernels)
    leader = led(config, appends, checks)
    follower = open_log(MemoryFiles(), config, checks=checks)
    fetch(follower, everything(leader), piece=piece)
    assert facts(follower) == facts(leader)
    # As a leader, the follower's log goes on in the same way.
    for log in (leader, follower):
        append_in(log, 40, batch(2, timestamp_ms=81), NOW_MS)
    assert facts(follower) == facts(leader)
    assert facts(crashed(follower, config, checks)) == facts(crashed(leader, config, checks))


def renumbered(offset: int, epoch: int = 0, count: int = 2, **fields: Any) -> bytes:
    data = bytearray(batch(count, **fields))
    view = BatchView(data, 0)
    view.set_base_offset(offset)
    set_leader_epoch(view, epoch)
    return bytes(data)


@pytest.mark.parametrize("kernels", [False, True])
def test_gaps_of_a_cleaned_leader_are_kept(kernels: bool) -> None:
    config = LogConfig(segment_index_bytes=4_096, index_interval_bytes=0, compact=True)
    log = open_log(MemoryFiles(), config, checks=checks_of(kernels))
    fetch(log, renumbered(5, 1) + renumbered(9, 1) + renumbered(100, 4))
    assert (log.log_start_offset, log.log_end_offset) == (0, 102)
    assert [record.offset for record in read_all(log, 102)] == [5, 6, 9, 10, 100, 101]
    assert log.end_offset_for_epoch(1) == (1, 100)
    found = crashed(log, config, checks_of(kernels))
    assert [record.offset for record in read_all(found, 102)] == [5, 6, 9, 10, 100, 101]


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("magic", [0, 1])
def test_sets_of_older_messages_are_taken(magic: int, kernels: bool) -> None:
    builder = LegacyBuilder(magic, codec=Codec.GZIP)
    for number in range(3):
        builder.append(b"k", b"%d" % number, 1_000)
    data = builder.build()
    log = open_log(MemoryFiles(), checks=checks_of(kernels))
    fetch(log, data + renumbered(3, 2))
    assert (log.log_end_offset, log.latest_epoch) == (5, 2)
    assert everything(log) == data + renumbered(3, 2)
    assert log.end_offset_for_epoch(2) == (2, 5)


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize(
    ("records", "error", "text"),
    [
        (renumbered(2), OffsetOutOfRange, "from offset 2 on, but the log ends at 4"),
        (renumbered(6) + renumbered(5), CorruptRecords, "offsets of the records .* fall"),
        (renumbered(4, 3) + renumbered(6, 2), CorruptRecords, "leader epochs .* fall"),
        (renumbered(4, 0), CorruptRecords, "leader epochs .* fall"),
        (renumbered(4, 8), StaleLeaderEpoch, "epoch 8 was fetched from the leader of epoch 7"),
        (renumbered(4, 1)[:-1] + b"\xff", CorruptRecords, "wrong CRC .* at offset 4 "),
        (renumbered(4, 1) + b"\xff" * 30, CorruptRecords, "structure at offset 6 "),
        (renumbered(2**33, 1), OffsetOutOfRange, "too far for one segment"),
    ],
)
def test_bad_input_changes_nothing(
    records: bytes, error: type[Exception], text: str, kernels: bool
) -> None:
    log = open_log(MemoryFiles(), checks=checks_of(kernels))
    fetch(log, renumbered(0, 1) + renumbered(2, 1))
    before = facts(log)
    with pytest.raises(error, match=text):
        log.append_as_follower(memoryview(records), leader_epoch=LeaderEpoch(7), now_ms=NOW_MS)
    assert facts(log) == before
    fetch(log, renumbered(4, 7), 7)
    assert log.log_end_offset == 6


def test_what_is_only_a_part_of_a_batch_is_left_off() -> None:
    log = open_log(MemoryFiles())
    whole = renumbered(0)
    for size in (0, 5, 12, len(whole) - 1):
        log.append_as_follower(memoryview(whole)[:size], leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
        assert (log.log_end_offset, log.size_bytes) == (0, 0)


def test_one_fetch_is_one_write_and_one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(MemoryFiles(), LogConfig())
    writes: list[int] = []
    write = type(log.segments[0]).write

    def counted(self: Any, data: memoryview, *more: Any) -> None:
        writes.append(len(data))
        write(self, data, *more)

    monkeypatch.setattr(type(log.segments[0]), "write", counted)
    told: list[int] = []
    assert log.listener is not None
    monkeypatch.setattr(log.listener, "log_end_grew", lambda log: told.append(log.log_end_offset))
    data = b"".join(renumbered(2 * number) for number in range(500))
    fetch(log, data)
    assert (writes, told) == ([len(data)], [1_000])


def test_a_full_disk_leaves_whole_batches() -> None:
    files = MemoryFiles()
    config = LogConfig(segment_bytes=1_000, segment_index_bytes=64)
    log = open_log(files, config)
    data = b"".join(renumbered(2 * number) for number in range(20))
    files.free_bytes = 2_500
    with pytest.raises(LogStorageError, match="make room on the disk"):
        fetch(log, data)
    end = log.log_end_offset
    assert len(read_all(log, end)) == end < 40
    files.free_bytes = None
    fetch(log, data[log.size_bytes :])
    assert (log.log_end_offset, everything(log)) == (40, data)
    assert everything(open_log(files.killed(), config)) == data
