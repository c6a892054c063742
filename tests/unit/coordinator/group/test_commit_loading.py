"""Which committed offsets are loaded in runs, and that the others are loaded as well."""

import sys
from collections.abc import Callable
from functools import partial

import pytest

from klog_broker.coordinator import kernels, loading
from klog_broker.coordinator.group import commit_kernel
from klog_broker.coordinator.group.commit_loading import COMMIT_KERNEL, MOST_ROWS, CommitLoading
from klog_broker.coordinator.kernels import loaded_kernel, records_kernels_loaded
from klog_broker.coordinator.loading import BatchRun, BatchWalk, KernelWalk
from klog_broker.coordinator.shard import ShardStatus
from klog_broker.runtime.event_loop.slices import SLICE_ELEMENTS, Steps
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import Offset, TopicPartition
from pyspark_klog.records import kernels as records_kernels
from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.kernels import cache
from pyspark_klog.records.legacy import encode_message
from pyspark_klog.state_records.consumer_offsets import encode_key, encode_offset_key, encode_value
from pyspark_klog.state_records.group_metadata import GroupMetadataKey
from pyspark_klog.state_records.offset_commit import OffsetCommitValue
from pyspark_klog.state_records.versions import encode_versioned
from tests.support.cluster.state_log import MemoryStateLog
from tests.support.coordinator.offsets_loading import BY_RECORD, IN_RUNS, found_in, loaded, logged
from tests.support.coordinator.offsets_logs import Row

KEY = encode_offset_key("g", "t", 0)


def value(offset: int, metadata: str = "") -> bytes:
    return encode_value(OffsetCommitValue(offset=offset, metadata=metadata, commit_timestamp=1_000))


def batch(*rows: Row, codec: Codec = Codec.NONE, producer_id: int = -1) -> bytes:
    is_transactional = producer_id >= 0
    builder = BatchBuilder(
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0 if is_transactional else -1,
        base_sequence=0 if is_transactional else -1,
        is_transactional=is_transactional,
    )
    for key, found in rows:
        builder.append(key, found, 1)
    return bytes(builder.build())


def log_of(*batches: bytes) -> MemoryStateLog:
    log = MemoryStateLog()
    for each in batches:
        log.put(each)
    return log


class Watched(CommitLoading):
    """Records the rows that were loaded in runs."""

    applied: list[tuple[int, int]]

    def apply(self, run: BatchRun) -> Steps:
        pairs = run.rows.pairs[run.first_pair : run.pairs_end]
        self.applied.append((run.end, sum(pair[5] - pair[4] for pair in pairs)))
        return super().apply(run)


def rows_in_runs(log: MemoryStateLog) -> list[int]:
    """How many rows each run had; the state is that of the other way, in any case."""
    made = partial(Watched, load_kernel=lambda: commit_kernel, least_bytes=0)
    Watched.applied = []
    with logged() as said_of_records:
        by_record = loaded(log, BY_RECORD)
    with logged() as said:
        in_runs = loaded(log, made)
    assert said == said_of_records
    assert in_runs.status is by_record.status
    if in_runs.status is ShardStatus.SERVING:
        assert found_in(in_runs) == found_in(by_record)
    return [rows for _, rows in Watched.applied]


def with_crc(data: bytearray) -> bytes:
    BatchView(data).update_crc()
    return bytes(data)


# --- what is in a run ----------------------------------------------------------------------------
@pytest.mark.parametrize("codec", list(Codec))
def test_neighbouring_batches_are_one_run(codec: Codec) -> None:
    plain = [batch((KEY, value(n, "m" * n))) for n in range(5)]
    many = batch(*((encode_offset_key("g", "t", n), value(n)) for n in range(200)), codec=codec)
    assert rows_in_runs(log_of(*plain, many, batch((KEY, None)), *plain)) == [211]


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 32_767])
@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_metadata_of_any_length(size: int, version: int) -> None:
    found = OffsetCommitValue(offset=1, metadata="x" * size, commit_timestamp=2)
    assert rows_in_runs(log_of(batch((KEY, encode_versioned(found, version))))) == [1]


def test_names_of_the_same_bytes_are_distinguished() -> None:
    pairs = [("", "\0\1x"), ("\0\3", "x")]
    keys = [encode_offset_key(*pair, 0) for pair in pairs]
    assert keys[0][4:] == keys[1][4:]  # behind version and length
    rows = [(key, value(number)) for number, key in enumerate(keys)]
    assert rows_in_runs(log_of(batch(*rows))) == [2]
    shard = loaded(log_of(batch(rows[0]), batch(rows[1])), IN_RUNS)
    assert set(shard.state.groups) == {"", "\0\3"}


def test_what_was_forgotten_is_found_again() -> None:
    """A place that one run has found may be deleted in the next run."""
    metadata_tombstone = batch((encode_key(GroupMetadataKey(group="g")), None))
    log = log_of(
        batch((KEY, value(1))),
        batch((KEY, None)),
        batch((KEY, value(2))),
        batch((KEY, None), (encode_key(GroupMetadataKey(group="g")), None)),
        batch((KEY, value(3))),
        metadata_tombstone,
        batch((KEY, value(4))),
    )
    assert rows_in_runs(log) == [3, 1, 1]


# --- what is not ---------------------------------------------------------------------------------
def trailing() -> bytes:
    data = bytearray(batch((KEY, value(1)))) + b"\0"
    at.INT32.pack_into(data, at.BATCH_LENGTH_AT, len(data) - at.LOG_OVERHEAD_BYTES)
    return with_crc(data)


def count_of(count: int) -> bytes:
    data = bytearray(batch((KEY, value(1))))
    at.INT32.pack_into(data, at.RECORD_COUNT_AT, count)
    return with_crc(data)


def delta_of(delta: int) -> bytes:
    data = bytearray(batch((KEY, value(1))))
    data[at.RECORDS_AT + 3] = delta  # behind the length, attributes and the timestamp's delta
    return with_crc(data)


def bad_header() -> bytes:
    builder = BatchBuilder()
    builder.append(KEY, value(1), 1, [("h", b"v")])
    data = bytearray(builder.build())
    data[-2] = 60  # the length of the header's value
    return with_crc(data)


NOT_IN_RUNS: dict[str, Callable[[], bytes]] = {
    "bytes behind the last record": trailing,
    "fewer records than it counts": lambda: count_of(2),
    "more records than fit": lambda: count_of(2**31 - 1),
    "an offset behind the batch": lambda: delta_of(2),
    "an offset before the batch": lambda: delta_of(1),
    "a header that is cut off": bad_header,
    "a transaction": lambda: batch((KEY, value(1)), producer_id=3),
    "a group": lambda: batch((encode_key(GroupMetadataKey(group="g")), None)),
    "a later kind": lambda: batch((b"\0\3" + KEY[2:], value(1))),
    "a negative kind": lambda: batch((b"\xff\xff" + KEY[2:], value(1))),
    "a key without a kind": lambda: batch((b"\0", value(1))),
    "a key that is cut off": lambda: batch((KEY[:-1], value(1))),
    "a group that is no UTF-8": lambda: batch((KEY[:4] + b"\xff" + KEY[5:], value(1))),
    "a topic that is no UTF-8": lambda: batch((KEY[:7] + b"\xff" + KEY[8:], value(1))),
    "a group that is null": lambda: batch((KEY[:2] + b"\xff\xff" + KEY[4:], value(1))),
    "a topic that is null": lambda: batch((KEY[:5] + b"\xff\xff" + KEY[7:], value(1))),
    "a later version": lambda: batch((KEY, b"\0\5" + value(1)[2:])),
    "a negative version": lambda: batch((KEY, b"\xff\xff" + value(1)[2:])),
    "a value that is cut off": lambda: batch((KEY, value(1)[:-1])),
    "a value without a version": lambda: batch((KEY, b"\0")),
    "metadata that is null": lambda: batch((KEY, b"\0\0" + bytes(8) + b"\xff\xff" + bytes(8))),
    "compact metadata that is null": lambda: batch((KEY, b"\0\4" + bytes(12 + 1 + 8 + 1))),
    "metadata that is no UTF-8": lambda: batch((KEY, b"\0\0" + bytes(8) + b"\0\1\xff" + bytes(8))),
    "a field of later": lambda: batch((KEY, b"\0\4" + bytes(12) + b"\1" + bytes(8) + b"\1\7\1x")),
    "a topic id that is cut off": lambda: batch(
        (KEY, b"\0\4" + bytes(12) + b"\1" + bytes(8) + b"\1\0\x10" + bytes(15))
    ),
    "a metadata length of five bytes": lambda: batch(
        (KEY, b"\0\4" + bytes(12) + b"\x81\x80\x80\x80\0" + bytes(8) + b"\0")
    ),
}


@pytest.mark.parametrize("name", NOT_IN_RUNS)
@pytest.mark.parametrize("kind", ["alone", "between"])
def test_anything_else_is_applied_record_by_record(name: str, kind: str) -> None:
    bad = NOT_IN_RUNS[name]()
    good = batch((KEY, value(7)), (encode_offset_key("g", "u", 1), value(8)))
    log = log_of(bad) if kind == "alone" else log_of(good, bad, good)
    found = rows_in_runs(log)
    if kind == "alone":
        assert found == []
    else:
        assert found[0] == 2
        assert all(rows == 2 for rows in found)


def test_a_batch_of_an_older_format_is_damage() -> None:
    legacy_entry = encode_message(1, 1, 1, KEY, value(1))
    log = log_of(batch((KEY, value(1))))
    data = log.batches[0] + legacy_entry
    checked = KernelWalk().check(data)
    assert checked.checked_bytes == len(data)
    shard = loaded(MemoryStateLog(), BY_RECORD)
    runs = CommitLoading(shard.state, lambda: commit_kernel, 0).read(checked, Offset(0))
    assert [run.end for run in runs.values()] == [len(log.batches[0])]


def test_what_readers_may_not_see_yet_is_applied_record_by_record() -> None:
    log = log_of(*(batch((KEY, value(n))) for n in range(4)))
    log.high_watermark = Offset(3)
    assert rows_in_runs(log) == []
    shard = loaded(log, IN_RUNS)
    seen = shard.state.visible_offsets("g", log.high_watermark).get(TopicPartition("t", 0))
    assert seen is not None
    assert seen.offset == 2


def test_a_region_has_so_many_rows_at_most() -> None:
    rows = [(encode_offset_key("g", "t", n), value(n)) for n in range(MOST_ROWS)]
    few = batch((KEY, value(9)))
    assert rows_in_runs(log_of(few, batch(*rows, codec=Codec.GZIP), few)) == [1, 1]


# --- in a helper thread --------------------------------------------------------------------------
def test_one_group_with_very_many_offsets_is_applied_in_slices() -> None:
    rows = [(encode_offset_key("g", "t", n), value(n)) for n in range(30_000)]
    walk = KernelWalk()
    checked = walk.check(batch(*rows, codec=Codec.ZSTD))
    shard = loaded(MemoryStateLog(), IN_RUNS)
    bulk = CommitLoading(shard.state, lambda: commit_kernel, 0)
    (run,) = bulk.read(checked, Offset(0)).values()
    costs = list(bulk.apply(run))
    assert len(costs) > 5
    assert max(costs) < SLICE_ELEMENTS // 2
    assert len(shard.state.groups["g"].offsets) == 30_000


def test_a_small_log_loads_no_kernel() -> None:
    asked: list[str] = []

    def load_kernel() -> None:
        asked.append("kernel")

    small = log_of(batch((KEY, value(1))))
    loaded(small, lambda state: CommitLoading(state, load_kernel))
    assert not asked
    large = log_of(*(batch((KEY, value(n, "m" * 30_000))) for n in range(10)))
    shard = loaded(large, lambda state: CommitLoading(state, load_kernel))
    assert asked == ["kernel"]
    assert shard.serving_error() is ErrorCode.NONE


def test_kernels_that_are_not_compiled_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_kernels, "kernels_compiled", lambda: False)
    assert loaded_kernel(COMMIT_KERNEL) is None
    assert not records_kernels_loaded()


def test_kernels_that_are_not_in_their_cache_are_not_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cache, "is_warm", lambda _: False)
    monkeypatch.delitem(sys.modules, COMMIT_KERNEL)
    assert loaded_kernel(COMMIT_KERNEL) is None
    assert COMMIT_KERNEL not in sys.modules
    assert not records_kernels_loaded()


class _Walk(KernelWalk):
    made = 0

    def __init__(self) -> None:
        super().__init__()
        _Walk.made += 1


@pytest.mark.parametrize("has_kernels", [False, True])
def test_kernels_are_loaded_once_much_was_read_without(
    has_kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "KernelWalk", _Walk)
    monkeypatch.setattr(loading, "records_kernels_loaded", lambda: has_kernels)
    _Walk.made = 0
    batches = [batch((encode_offset_key("g", "t", n), value(n, "m" * 30_000))) for n in range(120)]

    def no_walk() -> BatchWalk | None:
        return None

    few = loaded(log_of(*batches[:20]), IN_RUNS, no_walk)
    assert _Walk.made == 0
    assert 20 * 30_000 < kernels.KERNEL_WORTHWHILE_BYTES < 120 * 30_000
    many = loaded(log_of(*batches), IN_RUNS, no_walk)
    assert _Walk.made == int(has_kernels)
    assert (len(few.state.groups["g"].offsets), len(many.state.groups["g"].offsets)) == (20, 120)
