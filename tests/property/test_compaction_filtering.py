"""Compaction of random logs: map and filter agree with the model, and the remaining records are
those that the rule of the last record demands."""

import random
from collections.abc import Callable, Iterable, Iterator

import cramjam
import lz4.frame
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from klog_broker.compaction import decompressed_runs, filtering
from klog_broker.compaction.filtering import KEEP_RECORDS, SET_HORIZON, ChunkFilter
from klog_broker.compaction.key_map import KeyMap
from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec, compress
from pyspark_klog.records.control import (
    ControlType,
    EndTransactionMarker,
    end_transaction_batch,
)
from pyspark_klog.records.errors import CorruptRecords, DecompressedTooLarge, RecordsError
from pyspark_klog.records.record import TimestampType
from pyspark_klog.records.record_sets import entries
from tests.support.compaction.cases import (
    NOW_MS,
    Settings,
    check_damaged,
    check_filter,
    check_map,
    damaged,
    random_case,
    refusals_of_filter,
    refusals_of_map,
    run_seeds,
    scanned,
)
from tests.support.compaction.model import MAX_DECOMPRESSED_BYTES, Model, records_of
from tests.support.records.record_sets import iterate

DAY_MS = 24 * 3600 * 1000
CASES = st.integers(0, 2**64).map(random.Random)


@given(CASES)
def test_map_and_filter_do_what_the_model_does(rng: random.Random) -> None:
    data, skip, verdicts, settings = random_case(rng)
    key_map, model, *_ = check_map(data, skip, settings)
    scanned(check_filter(data, verdicts, key_map, model, settings))


@given(CASES)
def test_what_is_left_of_records_that_are_looked_up(rng: random.Random) -> None:
    data, skip, _, settings = random_case(rng)
    rows = list(entries(data))
    key_map, model_map, *_ = check_map(data, skip, settings)
    left = check_filter(data, [0] * len(rows), key_map, model_map, settings)
    model = Model(model_map, settings.now_ms, 0, settings.keep_old_tombstones)
    expected = [record for row in rows for record in records_of(row) if model.is_kept(row, record)]
    assert list(iterate(left, include_control=True)) == expected
    # A second round after the first changes nothing: tombstones have their horizons now.
    again = check_filter(left, [0] * len(list(entries(left))), key_map, model_map, settings)
    assert settings.delete_retention_ms == 0 or again == left


@pytest.mark.parametrize(("run_bytes", "plain_bytes"), [(1, 1), (300, 400), (3000, 1)])
def test_where_runs_end_makes_no_difference(
    monkeypatch: pytest.MonkeyPatch, run_bytes: int, plain_bytes: int
) -> None:
    expected = run_seeds(range(100))
    monkeypatch.setattr(decompressed_runs, "_RUN_BYTES", run_bytes)
    monkeypatch.setattr(decompressed_runs, "_RUN_BUFFER_BYTES", 2 * run_bytes)
    monkeypatch.setattr(decompressed_runs, "_MOST_KEPT_BYTES", 4 * run_bytes)
    monkeypatch.setattr(decompressed_runs, "_FIRST_GUESS_BYTES", run_bytes)
    monkeypatch.setattr(decompressed_runs, "_SMALL_BYTES", run_bytes)
    monkeypatch.setattr(filtering, "_PLAIN_BYTES", plain_bytes)
    assert run_seeds(range(100)) == expected


def keyed_batches(codec: Codec, batches: int) -> Iterator[BatchView]:
    """Compressed batches of some 3 KB of records, and a marker behind every third."""
    rng = random.Random(5)
    offset = 0
    for number in range(batches):
        builder = BatchBuilder(offset, codec)
        for _ in range(30):
            value = rng.choice([b"seldom", rng.randbytes(200)])
            builder.append(b"%d" % rng.randrange(20 * batches), value, NOW_MS)
        yield BatchView(builder.build())
        offset += 30
        if number % 3 == 2:
            marker = EndTransactionMarker(ControlType.COMMIT, 0)
            made = end_transaction_batch(marker, producer_id=1, producer_epoch=0, timestamp_ms=0)
            yield BatchView(bytearray(made))
            offset += 1


def numbered(batches: Iterable[BatchView]) -> bytes:
    """Return the batches' bytes, with consecutive offsets."""
    data = b""
    offset = 0
    for each in batches:
        view = BatchView(bytearray(each.to_bytes()))
        view.set_base_offset(offset)
        data += view.to_bytes()
        offset = view.next_offset
    return data


def check_keyed(data: bytes, verdict: int) -> None:
    rows = list(entries(data))
    settings = Settings(100_000, 0, NOW_MS, DAY_MS, False)
    is_marker = [int(isinstance(each, BatchView) and each.is_control) for each in rows]
    key_map, model, fits, _ = check_map(data, is_marker, settings)
    assert fits
    verdicts = [KEEP_RECORDS if each else verdict for each in is_marker]
    left = check_filter(data, verdicts, key_map, model, settings)
    assert left != data


@pytest.mark.parametrize("verdict", [0, KEEP_RECORDS | SET_HORIZON])
@pytest.mark.parametrize("codec", list(Codec))
def test_many_batches_of_a_codec(codec: Codec, verdict: int) -> None:
    check_keyed(numbered(keyed_batches(codec, 400)), verdict)


def recoded(batch: BatchView, section: bytes) -> BatchView:
    """The batch with its records as these bytes, in their codec."""
    data = bytearray(batch.to_bytes()[: at.BATCH_HEADER_BYTES]) + section
    at.INT32.pack_into(data, at.BATCH_LENGTH_AT, len(data) - at.LOG_OVERHEAD_BYTES)
    view = BatchView(data)
    view.update_crc()
    return view


def streamed_zstd(data: bytes) -> bytes:
    """Compress as Java's clients do: without the size in the header."""
    writer = zstandard.ZstdCompressor().compressobj()
    return writer.compress(data) + writer.flush()


def in_parts(codec: Codec, data: bytes, cut: int) -> bytes:
    return compress(codec, data[:cut]) + compress(codec, data[cut:])


STREAMS: dict[str, tuple[Codec, Callable[[bytes], bytes]]] = {
    "zstd of unknown size": (Codec.ZSTD, streamed_zstd),
    "unknown sizes": (Codec.ZSTD, lambda data: streamed_zstd(data[:9]) + streamed_zstd(data[9:])),
    "known and unknown": (
        Codec.ZSTD,
        lambda data: compress(Codec.ZSTD, data[:9]) + streamed_zstd(data[9:]),
    ),
    "nothing first": (Codec.ZSTD, lambda data: in_parts(Codec.ZSTD, data, 0)),
    "frames": (Codec.ZSTD, lambda data: in_parts(Codec.ZSTD, data, 100)),
    "nothing last": (Codec.GZIP, lambda data: in_parts(Codec.GZIP, data, len(data))),
    "members": (Codec.GZIP, lambda data: in_parts(Codec.GZIP, data, 100)),
    "lz4's frames": (Codec.LZ4, lambda data: in_parts(Codec.LZ4, data, 100)),
    "lz4 with its size": (Codec.LZ4, lambda data: lz4.frame.compress(data, content_checksum=True)),
    "bare snappy": (Codec.SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
}


@pytest.mark.parametrize("guess_bytes", [1, 100, 1 << 20])
@pytest.mark.parametrize("name", STREAMS)
def test_streams_as_others_write_them(
    monkeypatch: pytest.MonkeyPatch, name: str, guess_bytes: int
) -> None:
    monkeypatch.setattr(decompressed_runs, "_FIRST_GUESS_BYTES", guess_bytes)
    monkeypatch.setattr(decompressed_runs, "_GUESS_FACTOR", 0)
    codec, write = STREAMS[name]
    data = numbered(
        recoded(each, write(bytes(each.records_section(1 << 20)))) if each.codec else each
        for each in keyed_batches(codec, 20)
    )
    check_keyed(data, 0)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("damage", ["cut", "behind", "byte", "streamed", "endless", "bomb"])
def test_a_damaged_stream_among_good_ones(codec: Codec, damage: str) -> None:
    first, second, third, *_ = keyed_batches(codec, 3)
    section = bytes(second.to_bytes()[at.BATCH_HEADER_BYTES :])
    if damage == "streamed" and codec is Codec.ZSTD:
        section = streamed_zstd(bytes(second.records_section(1 << 20))) + b"x"
    elif damage == "endless" and codec is Codec.ZSTD:
        writer = zstandard.ZstdCompressor().compressobj()
        section = writer.compress(bytes(second.records_section(1 << 20)))
        section += writer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    elif damage == "bomb":
        section = compress(codec, bytes(MAX_DECOMPRESSED_BYTES + 1))
    elif damage == "byte":
        section = section[:20] + bytes([section[20] ^ 0xFF]) + section[21:]
    else:
        section = section[:-1] if damage == "cut" else section + b"x"
    data = numbered([first, recoded(second, section), third])
    by_map, by_filter = refusals_of_map(data, [0] * 3, 0), refusals_of_filter(data, [0] * 3)
    assert by_map[0] == by_map[1]
    assert by_filter == by_map
    if damage != "byte":
        # Bytes behind a stream are ignored, but for those behind zstd's.
        assert bool(by_map[0]) == (codec is Codec.ZSTD or damage in ("cut", "bomb"))
    if by_map[0]:
        # The records before the damage are in the map.
        key_map = KeyMap(1 << 20, 0.9, (1, 2), max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)
        table, rows = scanned(data)
        with pytest.raises(RecordsError):
            key_map.add_chunk(data, table, rows, np.zeros(rows, np.uint8), 0)
        assert key_map.latest_offset == 29


@given(CASES)
def test_damage_is_refused_or_changes_nothing_else(rng: random.Random) -> None:
    data, skip, verdicts, settings = random_case(rng)
    check_damaged(damaged(rng, data), skip, verdicts, settings)


@pytest.mark.parametrize("has_headers", [False, True])
def test_any_byte_of_the_records_may_be_damaged(has_headers: bool) -> None:
    builder = BatchBuilder(5)
    headers = [("ab", None), ("c", b"de")] if has_headers else []
    for key, value in ((b"k", b"value"), (None, b""), (b"k", None)):
        builder.append(key, value, NOW_MS, headers)
    whole = builder.build()
    refused = 0
    for place in range(at.RECORDS_AT, len(whole)):
        for byte in (0, 1, 2, 3, 4, 0x7F, 0x80, 0xFF, whole[place] ^ 1):
            changed = bytearray(whole)
            changed[place] = byte
            BatchView(changed).update_crc()
            by_filter = refusals_of_filter(bytes(changed), [0])
            by_map = refusals_of_map(bytes(changed), [0], 0)
            assert len({*by_filter, *by_map}) == 1, (place, byte)
            refused += bool(by_map[0])
    assert refused > 100


def filtered(data: bytes, verdict: int, **options: int) -> bytes:
    """Return the filtered bytes; the map is empty, so all records are kept."""
    each = ChunkFilter(
        KeyMap(10_000, 0.9, (1, 2)),
        now_ms=NOW_MS,
        delete_retention_ms=options.get("delete_retention_ms", DAY_MS),
        max_decompressed_bytes=options.get("max_decompressed_bytes", 10_000),
        keep_old_tombstones=False,
    )
    table, rows = scanned(data)
    pieces = each.filter_chunk(data, table, rows, np.full(rows, verdict, np.uint8))
    return b"".join(pieces)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_horizon_leaves_timestamps_as_they_are(codec: Codec) -> None:
    builder = BatchBuilder(7, codec)
    times = [-1, 0, NOW_MS, 2**63 - 1]
    for timestamp_ms in times:
        builder.append(b"k", b"v", timestamp_ms)
    left = filtered(builder.build(), KEEP_RECORDS | SET_HORIZON)
    view = BatchView(left)
    assert view.delete_horizon_ms == NOW_MS + DAY_MS
    assert (view.codec, view.record_count) == (codec, 4)
    assert [record.timestamp_ms for record in view.records()] == times
    # A second round keeps the horizon.
    assert filtered(left, SET_HORIZON, delete_retention_ms=5) == left


def test_under_append_time_deltas_count_from_the_horizon_too() -> None:
    builder = BatchBuilder(
        0, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=NOW_MS
    )
    for timestamp_ms in (3, 4):
        builder.append(b"k", None, timestamp_ms)
    left = bytearray(filtered(builder.build(), 0))
    view = BatchView(left)
    assert [record.timestamp_ms for record in view.records()] == [NOW_MS, NOW_MS]
    attributes = view.attributes & ~at.TIMESTAMP_TYPE_BIT
    at.INT16.pack_into(left, at.ATTRIBUTES_AT, attributes)
    assert [record.timestamp_ms for record in view.records()] == [NOW_MS, NOW_MS]


def test_more_may_be_left_than_there_was() -> None:
    builder = BatchBuilder()
    for _ in range(300):
        builder.append(b"", None, 2**63 - 1)
    data = builder.build()
    builder = BatchBuilder(300)
    builder.append(b"k", b"v", 0)
    data += builder.build()
    left = filtered(data, 0, delete_retention_ms=1)
    assert len(left) > len(data)
    assert len(list(iterate(left))) == 301


def test_what_a_batch_inflates_to_is_bounded() -> None:
    builder = BatchBuilder(0, Codec.ZSTD)
    builder.append(b"k", bytes(20_000), 0)
    with pytest.raises(DecompressedTooLarge, match="10000 bytes"):
        filtered(builder.build(), 0)


def test_an_error_says_where() -> None:
    builder = BatchBuilder(40)
    for _ in range(3):
        builder.append(b"k", b"v", 0)
    data = bytearray(builder.build())
    data[-1] = 9  # of the third record's headers
    BatchView(data).update_crc()
    with pytest.raises(CorruptRecords, match="record 2 of the batch that ends at offset 42: "):
        filtered(bytes(data), 0)
