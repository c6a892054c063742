"""Batches that may be appended, and their stored form, as Kafka's LogValidator has it."""

import tracemalloc
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from klog_broker.log.errors import InvalidTimestamp, RecordsRefused, RecordTooLarge
from klog_broker.log.log_config import LogConfig
from klog_broker.log.validation import log_validator
from klog_broker.log.validation.append_rules import AppendOrigin
from klog_broker.log.validation.kernel_checks import kernel_checks
from klog_broker.log.validation.log_validator import Validated, validate, validate_and_convert
from klog_broker.log.validation.loop_share import BATCH_WORK_BYTES, LoopShare, LoopShareExceeded
from klog_broker.log.validation.plain_checks import PlainChecks
from klog_broker.log.validation.record_checks import MAX_RECORDS, NAMED_FAULTS, RecordChecks
from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder, write_header
from pyspark_klog.records.compression import Codec, compress
from pyspark_klog.records.errors import (
    CorruptRecords,
    DamagedCompression,
    DecompressedTooLarge,
    InvalidRecords,
    UnsupportedCodec,
)
from pyspark_klog.records.legacy import encode_message
from pyspark_klog.records.legacy_builder import LegacyBuilder
from pyspark_klog.records.record import Header, TimestampType
from tests.support.log.harness import batch

NOW_MS = 50_000
CODECS = list(Codec)


@pytest.fixture(params=["plain", "kernels"])
def checks(request: pytest.FixtureRequest) -> RecordChecks:
    return PlainChecks() if request.param == "plain" else kernel_checks()


class Validator:
    def __init__(self, checks: RecordChecks) -> None:
        self.checks = checks

    def __call__(
        self,
        records: bytes | bytearray | memoryview,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        **config: Any,
    ) -> Validated:
        return validate(
            records,
            first_offset=1_000,
            leader_epoch=3,
            now_ms=NOW_MS,
            config=LogConfig(**config),
            checks=self.checks,
            origin=origin,
        )


@pytest.fixture
def check(checks: RecordChecks) -> Validator:
    return Validator(checks)


def patched(records: bytes, at_byte: int, value: int, size: int) -> bytes:
    """The batch with another number in its header, and the CRC that fits."""
    data = bytearray(records)
    data[at_byte : at_byte + size] = value.to_bytes(size, "big", signed=True)
    BatchView(data).update_crc()
    return bytes(data)


# --- what is stored ------------------------------------------------------------------------------
@pytest.mark.parametrize("codec", CODECS)
def test_a_good_batch_gets_offsets_and_epoch_and_keeps_the_rest(
    check: Validator, codec: Codec
) -> None:
    sent = batch(5, codec=codec, producer_id=4, base_sequence=10)
    stored = check(sent)
    view = BatchView(stored.data)
    view.check_crc()
    assert (view.base_offset, view.last_offset, view.partition_leader_epoch) == (1_000, 1_004, 3)
    assert bytes(stored.data)[at.CRC_AT :] == sent[at.CRC_AT :]
    assert stored.row.last_offset == 1_004
    assert stored.row.max_timestamp_ms == 1_004
    assert stored.log_append_time_ms == -1


def test_a_writable_buffer_is_patched_in_place_and_a_read_only_one_copied(
    check: Validator,
) -> None:
    buffer = bytearray(batch())
    stored = check(memoryview(buffer))
    assert BatchView(buffer).base_offset == 1_000
    assert bytes(stored.data) == bytes(buffer)
    sent = batch()
    check(sent)
    assert BatchView(sent).base_offset == 0


def test_a_wrong_largest_timestamp_is_put_right_with_a_new_crc(check: Validator) -> None:
    sent = patched(batch(3), at.MAX_TIMESTAMP_AT, 999_999, 8)
    view = BatchView(check(sent).data)
    assert view.max_timestamp_ms == 1_002
    view.check_crc()


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time_is_set_with_a_new_crc(check: Validator, codec: Codec) -> None:
    stored = check(batch(3, codec=codec), message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    view = BatchView(stored.data)
    view.check_crc()
    assert view.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {record.timestamp_ms for record in view.records()} == {NOW_MS}
    assert stored.log_append_time_ms == stored.row.max_timestamp_ms == NOW_MS


@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", CODECS)
def test_compression_type_decides_the_codec(check: Validator, source: Codec, target: Codec) -> None:
    builder = BatchBuilder(0, source, producer_id=9, producer_epoch=1, base_sequence=7)
    builder.append(b"k", b"v" * 50, 100, (Header("h", None), Header("h", b"x")))
    builder.append(None, None, 90)
    stored = check(builder.build(), compression=target)
    view = BatchView(stored.data)
    view.check_crc()
    assert view.codec is target
    assert (view.producer_id, view.producer_epoch, view.base_sequence) == (9, 1, 7)
    assert (view.base_offset, view.last_offset, view.max_timestamp_ms) == (1_000, 1_001, 100)
    assert [(r.key, r.value, r.timestamp_ms, r.headers) for r in view.records()] == [
        (b"k", b"v" * 50, 100, (Header("h", None), Header("h", b"x"))),
        (None, None, 90, ()),
    ]


def test_a_coordinators_batch_is_kept_as_it_was_made(check: Validator) -> None:
    buffer = bytearray(batch(3))
    stored = check(buffer, origin=AppendOrigin.COORDINATOR)
    assert stored.data is buffer
    view = BatchView(buffer)
    view.check_crc()
    assert (view.base_offset, view.last_offset, view.partition_leader_epoch) == (1_000, 1_002, 3)
    assert stored.row.last_offset == 1_002


def test_a_coordinators_batch_obeys_the_settings_of_its_topic(check: Validator) -> None:
    def stored(**config: Any) -> BatchView:
        view = BatchView(check(bytearray(batch(3)), origin=AppendOrigin.COORDINATOR, **config).data)
        view.check_crc()
        return view

    assert stored(compression=Codec.GZIP).codec is Codec.GZIP
    assert stored(compression=Codec.NONE).codec is Codec.NONE
    compressed = bytearray(batch(3, codec=Codec.GZIP))
    plain = check(compressed, origin=AppendOrigin.COORDINATOR, compression=Codec.NONE)
    assert BatchView(plain.data).codec is Codec.NONE
    append_time = stored(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert append_time.max_timestamp_ms == NOW_MS
    with pytest.raises(RecordTooLarge):
        stored(max_message_bytes=len(batch(3)) - 1)


def test_control_records_of_a_coordinator_are_never_compressed(check: Validator) -> None:
    control = batch(is_control=True, producer_id=3)
    stored = check(control, origin=AppendOrigin.COORDINATOR, compression=Codec.GZIP)
    assert BatchView(stored.data).codec is Codec.NONE
    assert BatchView(stored.data).is_control


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_older_formats_become_one_batch(check: Validator, magic: int, codec: Codec) -> None:
    builder = LegacyBuilder(magic, 0, codec)
    for number in range(4):
        builder.append(b"k%d" % number, b"v", 700 + number)
    stored = check(builder.build())
    view = BatchView(stored.data)
    view.check_crc()
    assert view.codec is codec
    assert view.partition_leader_epoch == 3
    found = [(r.offset, r.key, r.timestamp_ms) for r in view.records()]
    timestamps = [-1] * 4 if magic == 0 else [700, 701, 702, 703]
    assert found == [(1_000 + n, b"k%d" % n, timestamps[n]) for n in range(4)]


def test_a_compressed_batch_with_wrong_inner_offsets_is_rewritten(check: Validator) -> None:
    builder = BatchBuilder(0, Codec.GZIP)
    builder.append(b"a", b"1", 5)
    builder.append(b"b", b"2", 6, offset=7)
    # Kafka goes by the count: the header must be right.
    sent = patched(builder.build(), at.LAST_OFFSET_DELTA_AT, 1, 4)
    view = BatchView(check(sent).data)
    view.check_crc()
    assert [(r.offset, r.key) for r in view.records()] == [(1_000, b"a"), (1_001, b"b")]
    plain = BatchBuilder(0)
    plain.append(b"a", b"1", 5)
    plain.append(b"b", b"2", 6, offset=7)
    with pytest.raises(InvalidRecords):
        check(patched(plain.build(), at.LAST_OFFSET_DELTA_AT, 1, 4))


# --- what is refused -----------------------------------------------------------------------------
@pytest.mark.parametrize("records", [b"", b"\x00" * 11, batch()[:-1], batch()[:30]])
def test_records_without_a_whole_batch_are_refused(check: Validator, records: bytes) -> None:
    with pytest.raises(InvalidRecords, match="hold no whole batch"):
        check(records)


def test_more_than_one_batch_is_refused_and_a_cut_off_rest_dropped(check: Validator) -> None:
    with pytest.raises(InvalidRecords, match="more than one batch"):
        check(batch() + batch())
    assert len(check(batch() + batch()[:20]).data) == len(batch())


def test_a_wrong_crc_is_corrupt(check: Validator) -> None:
    damaged = bytearray(batch())
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecords, match="CRC"):
        check(damaged)


@pytest.mark.parametrize(
    ("records", "text"),
    [
        (patched(batch(), at.BASE_OFFSET_AT, 5, 8), "has base offset 5"),
        (patched(batch(), at.LAST_OFFSET_DELTA_AT, -1, 4), "begins at offset 0, but ends at -1"),
        (patched(batch(), at.RECORD_COUNT_AT, 0, 4), "counts 0 records"),
        (patched(batch(), at.RECORD_COUNT_AT, -1, 4), "counts -1 records"),
        (patched(batch(2), at.RECORD_COUNT_AT, 1, 4), "has offsets 0 to 1, and counts 1"),
        (batch(is_control=True), "not allowed to write control records"),
        (batch(producer_id=5), "has sequence -1"),
    ],
)
def test_headers_that_a_client_must_not_send(check: Validator, records: bytes, text: str) -> None:
    with pytest.raises(InvalidRecords, match=text):
        check(records)


def test_counts_and_lengths_must_fit_the_records(check: Validator) -> None:
    """CorruptRecords would become CORRUPT_MESSAGE, which Java's producer repeats."""
    three = patched(batch(2), at.RECORD_COUNT_AT, 3, 4)
    with pytest.raises(InvalidRecords):
        check(patched(three, at.LAST_OFFSET_DELTA_AT, 2, 4))
    one = patched(batch(2), at.RECORD_COUNT_AT, 1, 4)
    with pytest.raises(InvalidRecords):
        check(patched(one, at.LAST_OFFSET_DELTA_AT, 0, 4))


def test_an_unknown_codec_and_a_damaged_one(check: Validator) -> None:
    with pytest.raises(UnsupportedCodec):
        check(patched(batch(), at.ATTRIBUTES_AT, 7, 2))
    with pytest.raises(DamagedCompression):
        check(patched(batch(), at.ATTRIBUTES_AT, Codec.GZIP, 2))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("way", ["two streams", "bytes behind"])
def test_compressed_bytes_that_librdkafka_cannot_read_are_written_again(
    check: Validator, codec: Codec, way: str
) -> None:
    sent = batch(5, codec=codec, producer_id=4, base_sequence=10, value=b"v" * 99)
    section = bytes(BatchView(sent).records_section())
    payload = sent[at.BATCH_HEADER_BYTES :] + b"xyz"
    if way == "two streams" and codec is not Codec.LZ4:
        payload = compress(codec, section[:200]) + compress(codec, section[200:])
    odd = with_payload(sent, payload)
    stored = BatchView(check(odd).data)
    stored.check_crc()
    assert bytes(stored.to_bytes()[at.RECORDS_AT :]) == compress(codec, section)
    assert (stored.producer_id, stored.base_sequence, stored.record_count) == (4, 10, 5)
    assert [record.offset for record in stored.records()] == list(range(1_000, 1_005))


def test_two_zstd_frames_are_stored_as_they_were_sent(check: Validator) -> None:
    sent = batch(5, codec=Codec.ZSTD)
    section = bytes(BatchView(sent).records_section())
    payload = compress(Codec.ZSTD, section[:40]) + compress(Codec.ZSTD, section[40:])
    stored = check(with_payload(sent, payload))
    assert bytes(stored.data)[at.RECORDS_AT :] == payload


@pytest.mark.parametrize("cut", [0, 40, 100])
def test_records_in_a_second_lz4_frame_are_missing(check: Validator, cut: int) -> None:
    sent = batch(5, codec=Codec.LZ4)
    section = bytes(BatchView(sent).records_section())
    payload = compress(Codec.LZ4, section[:cut]) + compress(Codec.LZ4, section[cut:])
    with pytest.raises(InvalidRecords):
        check(with_payload(sent, payload))


@pytest.mark.parametrize("magic", [0, 1])
def test_no_message_of_a_wrapper_is_dropped(check: Validator, magic: int) -> None:
    """Kafka drops those in a second lz4 frame, and one that is cut off."""
    messages = encode_message(magic, 0, -1, None, b"v")

    def wrapper(codec: Codec, value: bytes) -> bytes:
        return encode_message(magic, 1, -1, None, value, codec)

    frame = compress(Codec.LZ4, messages, magic=magic)
    with pytest.raises(InvalidRecords, match="more than one lz4 frame"):
        check(wrapper(Codec.LZ4, frame + frame))
    for codec in (Codec.GZIP, Codec.LZ4):
        with pytest.raises(InvalidRecords, match="end inside the message"):
            check(wrapper(codec, compress(codec, messages + messages[:-1], magic=magic)))


def with_payload(records: bytes, payload: bytes) -> bytes:
    """The batch with other compressed bytes, and the length and CRC that fit."""
    data = bytearray(records[: at.BATCH_HEADER_BYTES]) + payload
    at.INT32.pack_into(data, at.BATCH_LENGTH_AT, len(data) - at.LOG_OVERHEAD_BYTES)
    BatchView(data).update_crc()
    return bytes(data)


def test_a_bomb_is_refused_naming_the_limit(check: Validator) -> None:
    bomb = batch(value=bytes(1 << 20), codec=Codec.GZIP)
    with pytest.raises(DecompressedTooLarge, match="4096"):
        check(bomb, max_decompressed_bytes=4096)


def test_a_second_wrapper_is_refused_before_it_is_inflated(check: Validator) -> None:
    """Each wrapper alone would be within the limit, but the limit holds for the whole request."""
    legacy = LegacyBuilder(1, 0, Codec.GZIP)
    legacy.append(b"k", bytes(4_000), 5)
    wrapper = legacy.build()
    legacy = LegacyBuilder(1, 0)
    legacy.append(b"k", b"v", 5)
    plain = legacy.build()
    bomb = LegacyBuilder(1, 0, Codec.GZIP)
    bomb.append(b"k", bytes(5_000), 5)
    for first, second in ((wrapper, bomb.build()), (plain, bomb.build()), (wrapper, plain)):
        with pytest.raises(InvalidRecords, match="a set holds one wrapper and nothing else"):
            check(first + second, max_decompressed_bytes=4_096)


def test_max_message_bytes_counts_before_and_after(check: Validator) -> None:
    with pytest.raises(RecordTooLarge, match=r"larger than max\.message\.bytes=100"):
        check(batch(), max_message_bytes=100)
    small = batch(value=bytes(10_000), codec=Codec.GZIP)
    assert len(small) < 500
    with pytest.raises(RecordTooLarge, match="a batch of 10"):
        check(small, max_message_bytes=500, compression=Codec.NONE)


def test_compacted_topics_need_keys(check: Validator) -> None:
    builder = BatchBuilder(0)
    for key in (b"a", None, b"c", None):
        builder.append(key, b"v", 5)
    with pytest.raises(RecordsRefused) as refused:
        check(builder.build(), compact=True)
    assert [fault.batch_index for fault in refused.value.record_errors] == [1, 3]
    assert not isinstance(refused.value, InvalidTimestamp)
    assert check(builder.build()).row.record_count == 4
    legacy = LegacyBuilder(1, 0)
    legacy.append(None, b"v", 5)
    with pytest.raises(RecordsRefused):
        check(legacy.build(), compact=True)


def test_timestamps_out_of_bounds_are_named_one_by_one(check: Validator) -> None:
    bounds = {
        "message_timestamp_before_max_ms": 100,
        "message_timestamp_after_max_ms": 10,
    }
    builder = BatchBuilder(0)
    for timestamp_ms in (NOW_MS - 100, NOW_MS - 101, -1, NOW_MS + 10, NOW_MS + 11):
        builder.append(b"k", b"v", timestamp_ms)
    with pytest.raises(InvalidTimestamp) as refused:
        check(builder.build(), **bounds)
    assert [fault.batch_index for fault in refused.value.record_errors] == [1, 4]
    assert "expected 49900 to 50010" in str(refused.value)
    # Timestamps that the broker sets itself are valid, whatever the producer sent.
    stored = check(builder.build(), message_timestamp_type=TimestampType.LOG_APPEND_TIME, **bounds)
    assert stored.row.max_timestamp_ms == NOW_MS


def test_a_missing_key_and_a_bad_timestamp_together_are_no_timestamp_fault(
    check: Validator,
) -> None:
    builder = BatchBuilder(0)
    builder.append(b"k", b"v", NOW_MS + 11)
    builder.append(None, b"v", NOW_MS)
    with pytest.raises(RecordsRefused) as refused:
        check(builder.build(), compact=True, message_timestamp_after_max_ms=10)
    assert not isinstance(refused.value, InvalidTimestamp)
    assert [fault.batch_index for fault in refused.value.record_errors] == [0, 1]


def test_a_producer_must_not_claim_log_append_time(check: Validator) -> None:
    claims = batch(2, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=NOW_MS - 5)
    with pytest.raises(InvalidTimestamp, match="must not set the timestamp type"):
        check(claims, message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    # Kafka takes it on a topic of create time, as the timestamp of every record.
    view = BatchView(check(claims).data)
    assert view.timestamp_type is TimestampType.CREATE_TIME
    assert view.max_timestamp_ms == NOW_MS - 5
    view.check_crc()


def test_mixed_formats_are_refused(check: Validator) -> None:
    legacy = LegacyBuilder(1, 0)
    legacy.append(b"k", b"v", 5)
    with pytest.raises(InvalidRecords):
        check(legacy.build() + batch())
    with pytest.raises(InvalidRecords):
        check(batch() + legacy.build())


# --- how much it may take ------------------------------------------------------------------------
EMPTY_RECORD = bytes([12, 0, 0, 0, 1, 1, 0])


def many_empty(count: int, attributes: int = 0, **header: int) -> bytes:
    """A gzip batch of records that take seven bytes each, all with the offset delta 0."""
    section = compress(Codec.GZIP, EMPTY_RECORD * count)
    data = bytearray(at.BATCH_HEADER_BYTES) + section
    write_header(
        data,
        base_offset=0,
        leader_epoch=-1,
        attributes=Codec.GZIP | attributes,
        last_offset_delta=header.get("record_count", count) - 1,
        timestamps_ms=(NOW_MS, NOW_MS),
        producer=(-1, -1, -1),
        record_count=header.get("record_count", count),
    )
    return bytes(data)


def test_more_records_than_any_client_sends_are_refused_before_they_are_inflated(
    check: Validator,
) -> None:
    with pytest.raises(DecompressedTooLarge, match=f"at most {MAX_RECORDS} are accepted"):
        check(many_empty(1, record_count=MAX_RECORDS + 1))
    with pytest.raises(InvalidRecords):
        check(many_empty(1, record_count=MAX_RECORDS))


def test_as_many_records_as_are_accepted_are_rewritten(
    check: Validator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_validator, "MAX_RECORDS", 1_000)
    assert check(many_empty(1_000)).row.last_offset == 1_999
    with pytest.raises(DecompressedTooLarge):
        check(many_empty(1_001))
    for count in (1_000, 1_001):
        old = encode_message(1, 0, NOW_MS, None, None) * count
        packed = encode_message(1, 0, NOW_MS, None, compress(Codec.GZIP, old), Codec.GZIP)
        for records in (old, packed):
            if count == 1_000:
                assert check(records).row.last_offset == 1_999
                continue
            with pytest.raises(DecompressedTooLarge, match="more records than the limit"):
                check(records)


@pytest.mark.parametrize(
    ("records", "config"),
    [
        (many_empty(300_000), {}),
        (many_empty(300_000), {"message_timestamp_type": TimestampType.LOG_APPEND_TIME}),
        (many_empty(300_000), {"compression": Codec.NONE, "max_message_bytes": 1 << 23}),
        (many_empty(300_000), {"compression": Codec.ZSTD}),
        (
            many_empty(300_000, at.TIMESTAMP_TYPE_BIT),
            {"compression": Codec.LZ4, "max_message_bytes": 1 << 22},
        ),
        (encode_message(1, 0, NOW_MS, None, bytes(8)) * 60_000, {"max_message_bytes": 1 << 22}),
        (batch(1, value=bytes(3_000_000), codec=Codec.SNAPPY), {}),
        (batch(1, value=bytes(3_000_000), codec=Codec.ZSTD), {"compression": Codec.GZIP}),
    ],
)
def test_memory_stays_within_three_times_what_was_inflated(
    records: bytes, config: dict[str, Any]
) -> None:
    check = Validator(kernel_checks())
    check(batch(3))
    inflated_bytes = max(len(records), 2_100_000 if len(records) < 10_000 else 3_000_000)
    tracemalloc.start()
    try:
        before_bytes = tracemalloc.get_traced_memory()[0]
        check(records, **config)
        peak_bytes = tracemalloc.get_traced_memory()[1] - before_bytes
    finally:
        tracemalloc.stop()
    assert peak_bytes <= 3 * inflated_bytes + (1 << 16)


@pytest.mark.parametrize(
    ("records", "config"),
    [
        (batch(1, value=bytes(BATCH_WORK_BYTES), codec=Codec.GZIP), {}),
        (batch(1, value=bytes(BATCH_WORK_BYTES), codec=Codec.SNAPPY), {}),
        (many_empty(30_000), {}),
        (batch(1, value=bytes(BATCH_WORK_BYTES // 8)), {"compression": Codec.ZSTD}),
        (batch(3_000), {"compression": Codec.GZIP}),
        (encode_message(1, 0, NOW_MS, None, bytes(40)) * 5_000, {"compression": Codec.LZ4}),
    ],
)
def test_what_is_more_than_the_loop_s_share_is_left_as_it_was(
    checks: RecordChecks, records: bytes, config: dict[str, Any]
) -> None:
    buffer = bytearray(records)

    def prepared(share: LoopShare | None) -> Validated:
        settings = LogConfig(**config)
        return validate_and_convert(
            buffer, now_ms=NOW_MS, config=settings, checks=checks, share=share
        )

    with pytest.raises(LoopShareExceeded):
        prepared(LoopShare())
    assert buffer == records
    assert prepared(LoopShare(1 << 40, 1 << 40)) == prepared(None)


def test_the_loop_s_share_is_of_a_batch_and_of_a_turn() -> None:
    share = LoopShare(batch_bytes=10, turn_bytes=25)
    taken = []
    for turn in (1, 1, 1, 2):
        share.begin_batch(turn)
        taken.append(share.left_bytes)
        share.count_work(share.left_bytes)
        with pytest.raises(LoopShareExceeded):
            share.count_work(1)
    assert taken == [10, 10, 5, 10]


def test_ordinary_batches_are_within_the_loop_s_share() -> None:
    """Batches of the size that Java's producer sends by default, and ten times as many records."""
    share = LoopShare()
    for turn, (codec, count) in enumerate(product(Codec, [130, 1_300])):
        share.begin_batch(turn)
        records = batch(count, codec=codec)
        validate_and_convert(
            records, now_ms=NOW_MS, config=LogConfig(), checks=kernel_checks(), share=share
        )


def test_of_many_faults_the_first_are_named_and_all_are_counted(check: Validator) -> None:
    with pytest.raises(RecordsRefused, match="1500 records are not accepted") as refused:
        check(batch(1_500, key=None), compact=True)
    indexes = [fault.batch_index for fault in refused.value.record_errors]
    assert indexes == list(range(NAMED_FAULTS))


def test_a_timestamp_below_none_cannot_be_rewritten(check: Validator) -> None:
    sent = patched(many_empty(2), at.BASE_TIMESTAMP_AT, -5, 8)
    with pytest.raises(InvalidRecords, match="timestamp -5 ms: expected -1"):
        check(sent)
    old = encode_message(1, 0, -5, None, None)
    with pytest.raises(InvalidRecords, match="timestamp -5 ms: expected -1"):
        check(old)


def test_rewritten_records_keep_their_times_and_headers(check: Validator) -> None:
    builder = BatchBuilder(0, Codec.GZIP, producer_id=9, producer_epoch=1, base_sequence=7)
    rows = [(b"a", None, 500), (None, b"2", 90), (b"", b"", 10**12)]
    for number, (key, value, timestamp_ms) in enumerate(rows):
        builder.append(key, value, timestamp_ms, [Header("h", b"x")] * number, offset=9 * number)
    for target in Codec:
        sent = patched(builder.build(), at.LAST_OFFSET_DELTA_AT, 2, 4)
        view = BatchView(check(sent, compression=target).data)
        view.check_crc()
        assert (view.codec, view.max_timestamp_ms) == (target, 10**12)
        assert (view.producer_id, view.producer_epoch, view.base_sequence) == (9, 1, 7)
        found = [(r.offset, r.key, r.value, r.timestamp_ms, len(r.headers)) for r in view.records()]
        assert found == [(1_000 + n, *row, n) for n, row in enumerate(rows)]


def test_the_config_of_topics_maps_to_rules() -> None:
    tc = {
        "cleanup.policy": ("compact", "delete"),
        "compression.type": "zstd",
        "compression.zstd.level": 5,
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.before.max.ms": 2**63 - 1,
        "message.timestamp.after.max.ms": 2**63 - 1,
        "message.timestamp.difference.max.ms": 1_000,
        "segment.bytes": 1,
        "segment.ms": 2,
        "segment.jitter.ms": 3,
        "segment.index.bytes": 4,
        "index.interval.bytes": 5,
        "preallocate": True,
        "max.message.bytes": 6,
        "retention.ms": 7,
        "retention.bytes": 8,
        "file.delete.delay.ms": 9,
        "flush.messages": 1,
        "flush.ms": 10,
        "min.cleanable.dirty.ratio": 0.25,
        "min.compaction.lag.ms": 11,
        "max.compaction.lag.ms": 12,
        "delete.retention.ms": 13,
    }
    config = LogConfig.from_topic_config(tc)
    assert config == replace(
        LogConfig(),
        delete=True,
        compact=True,
        compression=Codec.ZSTD,
        compression_level=5,
        message_timestamp_type=TimestampType.LOG_APPEND_TIME,
        message_timestamp_before_max_ms=1_000,
        message_timestamp_after_max_ms=1_000,
        segment_bytes=1,
        segment_ms=2,
        segment_jitter_ms=3,
        segment_index_bytes=4,
        index_interval_bytes=5,
        preallocate=True,
        max_message_bytes=6,
        retention_ms=7,
        retention_bytes=8,
        file_delete_delay_ms=9,
        flush_messages=1,
        flush_ms=10,
        min_cleanable_dirty_ratio=0.25,
        min_compaction_lag_ms=11,
        max_compaction_lag_ms=12,
        delete_retention_ms=13,
    )
    assert config.responses_wait_for_flush
    assert config.roll_bytes == 1
    large = tc | {"segment.bytes": 1 << 30}
    assert LogConfig.from_topic_config(large).roll_bytes == 1 << 30
    # A coordinator's segments are rolled early, so that a start has little to load.
    assert LogConfig.from_topic_config(large, holds_state=True).roll_bytes == 4 << 20
    untouched = LogConfig.from_topic_config(
        {**tc, "cleanup.policy": "delete", "compression.type": "uncompressed", "flush.messages": 2}
    )
    assert (untouched.delete, untouched.compact) == (True, False)
    assert untouched.compression is Codec.NONE
    assert not untouched.responses_wait_for_flush
