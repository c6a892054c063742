"""The scanner of batches and the walk over a batch's records."""

import numpy as np
import pytest

from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.kernels import record_validation, scan, status, validate_records
from pyspark_klog.records.layout import INT64_MAX
from pyspark_klog.records.legacy_builder import LegacyBuilder
from pyspark_klog.records.varint import append_varint
from tests.support.records.scan_cases import scan_rows

INT64_MIN = -(2**63)


def batch(base_offset: int, records: int = 3, **options: object) -> bytes:
    builder = BatchBuilder(base_offset, **options)  # type: ignore[arg-type]
    for index in range(records):
        builder.append(b"k%d" % index, b"v" * index, 1000 + index)
    return builder.build()


def test_scan_gives_a_row_for_each_batch() -> None:
    first = batch(5, 3, producer_id=77, producer_epoch=4, base_sequence=9, partition_leader_epoch=6)
    data = first + batch(20, 2, codec=Codec.LZ4)
    found, end, rows = scan_rows(data)
    assert (found, end) == (status.OK, len(data))
    assert rows[0] == [0, len(first), 2, 0, 5, 7, 1000, 1002, 3, 6, 77, 4, 9]
    assert rows[1][scan.POSITION] == len(first)
    assert rows[1][scan.ATTRIBUTES] == Codec.LZ4
    assert rows[1][scan.LAST_OFFSET] == 21


@pytest.mark.parametrize("magic", [0, 1])
def test_scan_reads_legacy_messages_and_wrappers(magic: int) -> None:
    plain = LegacyBuilder(magic, base_offset=8)
    plain.append(b"k", b"v", 500 if magic else -1)
    wrapper = LegacyBuilder(magic, base_offset=9, codec=Codec.GZIP)
    for _ in range(3):
        wrapper.append(b"k", b"v", 600 if magic else -1)
    found, _, rows = scan_rows(plain.build() + wrapper.build())
    assert found == status.OK
    columns = [scan.MAGIC, scan.BASE_OFFSET, scan.LAST_OFFSET, scan.MAX_TIMESTAMP_MS]
    assert [rows[0][c] for c in columns] == [magic, 8, 8, 500 if magic else -1]
    assert [rows[1][c] for c in columns] == [magic, 11, 11, 600 if magic else -1]
    assert [row[scan.RECORD_COUNT] for row in rows] == [1, -1]


def test_scan_stops_at_a_full_table_and_after_max_bytes_and_goes_on() -> None:
    data = b"".join(batch(3 * i) for i in range(5))
    buf = np.frombuffer(data, np.uint8)
    state = np.zeros(scan.STATE_FIELDS, np.int64)
    table = np.zeros(2 * scan.TABLE_COLUMNS, np.int64)
    offsets: list[int] = []
    position, answers = 0, []
    while position < len(data):
        answers.append(scan.scan_batches(buf, position, len(data), 1, INT64_MAX, table, state))
        rows = table.reshape(2, -1)[: state[scan.STATE_BATCHES]]
        offsets += rows[:, scan.BASE_OFFSET].tolist()
        position = int(state[scan.STATE_POSITION])
    assert offsets == [0, 3, 6, 9, 12]
    assert answers == [status.FULL, status.FULL, status.OK]
    assert scan.scan_batches(buf, 0, len(data), 1, 1, table, state) == status.FULL
    assert state[scan.STATE_BATCHES] == 1


@pytest.mark.parametrize("kept", [1, 8, 12, 16, 17, 60, 61, 70])
def test_scan_ends_before_a_batch_that_is_cut_off(kept: int) -> None:
    whole, cut = batch(0), batch(3)[:kept]
    assert scan_rows(whole + cut)[:2] == (status.INCOMPLETE, len(whole))


@pytest.mark.parametrize(
    ("at", "value", "expected"),
    [
        (8, b"\x00\x00\x00\x30", status.BAD_LENGTH),
        (8, b"\xff\xff\xff\xff", status.BAD_LENGTH),
        (8, b"\x7f\xff\xff\xff", status.INCOMPLETE),
        (16, b"\x03", status.BAD_MAGIC),
        (16, b"\xff", status.BAD_MAGIC),
        (17, b"\x00\x00\x00\x00", status.BAD_CRC),
        (70, b"\xfe", status.BAD_CRC),
    ],
)
def test_scan_says_what_is_wrong_with_a_batch(at: int, value: bytes, expected: int) -> None:
    whole, bad = batch(0), bytearray(batch(3))
    bad[at : at + len(value)] = value
    found, end, rows = scan_rows(whole + bytes(bad))
    assert (found, end, len(rows)) == (expected, len(whole), 1)


@pytest.mark.parametrize(
    ("at", "value", "expected"),
    [
        (23, b"\xff\xff\xff\xff", status.BAD_LAST_OFFSET),
        (0, b"\x7f" + b"\xff" * 7, status.BAD_LAST_OFFSET),
        (57, b"\xff\xff\xff\xff", status.BAD_COUNT),
    ],
)
def test_scan_refuses_numbers_that_cannot_be(at: int, value: bytes, expected: int) -> None:
    bad = bytearray(batch(0))
    bad[at : at + len(value)] = value
    BatchView(bad).update_crc()
    assert scan_rows(bytes(bad))[:2] == (expected, 0)


@pytest.mark.parametrize("tail", [bytes(100), b"\xff" * 100, b"nonsense " * 12])
def test_scan_ends_at_a_tail_of_nonsense(tail: bytes) -> None:
    whole = batch(0)
    found, end, _ = scan_rows(whole + tail)
    assert found not in (status.OK, status.FULL)
    assert end == len(whole)


def test_scan_of_nothing() -> None:
    assert scan_rows(b"") == (status.OK, 0, [])


# --- walk ----------------------------------------------------------------------------------------
def record(offset_delta: int, timestamp_delta: int = 0, key: bytes | None = b"k") -> bytes:
    body = bytearray(1)
    append_varint(body, timestamp_delta)
    append_varint(body, offset_delta)
    append_varint(body, -1 if key is None else len(key))
    body += key or b""
    append_varint(body, 1)
    body += b"v"
    append_varint(body, 0)
    out = bytearray()
    append_varint(out, len(body))
    return bytes(out + body)


def run_walk(
    section: bytes,
    count: int,
    *,
    base_ms: int = 1000,
    earliest_ms: int = INT64_MIN,
    latest_ms: int = INT64_MAX,
    key_required: bool = False,
) -> tuple[int, list[int]]:
    result = np.zeros(record_validation.RESULT_FIELDS, np.int64)
    array = np.frombuffer(b"before" + section + b"after", np.uint8)
    answer = validate_records(
        *(array, 6, 6 + len(section), count, base_ms),
        *(earliest_ms, latest_ms, int(key_required), result),
    )
    return answer, result.tolist()


def test_walk_finds_the_largest_timestamp_and_the_first_record_that_has_it() -> None:
    section = record(0, 5) + record(1, 9) + record(2, 9) + record(3, -2)
    answer, result = run_walk(section, 4)
    assert answer == status.OK
    assert result == [6 + len(section), 4, 1009, 1]


@pytest.mark.parametrize(
    ("section", "count", "expected", "index"),
    [
        (record(0) + record(1), 1, status.BAD_SECTION_END, 1),
        (record(0) + record(1), 3, status.BAD_COUNT, 0),
        (record(0) + record(1), -1, status.BAD_COUNT, 0),
        (record(0) + record(2), 2, status.OFFSET_DELTA_NOT_INDEX, 1),
        (record(1) + record(0), 2, status.OFFSET_DELTA_NOT_INDEX, 0),
        (record(0) + b"\x01" + bytes(9), 2, status.BAD_RECORD_LENGTH, 1),
        (record(0) + b"\x40" + bytes(9), 2, status.BAD_RECORD_LENGTH, 1),
        (record(0) + b"\xff" * 9, 2, status.BAD_NUMBER, 1),
        (b"\x0e" + bytes([0, 0, 0, 0x20, 0, 0, 0]), 1, status.BAD_KEY_LENGTH, 0),
        (b"\x0e" + bytes([0, 0, 0, 0, 0x20, 0, 0]), 1, status.BAD_VALUE_LENGTH, 0),
        (b"\x0e" + bytes([0, 0, 0, 0, 0, 0, 0]), 1, status.BAD_RECORD_END, 0),
        (b"\x0e" + bytes([0, 0, 0, 0, 0, 1, 0]), 1, status.BAD_HEADER_COUNT, 0),
        (b"\x0e" + bytes([0, 0, 0, 0, 0, 4, 0]), 1, status.BAD_HEADER_COUNT, 0),
        (b"\x10" + bytes([0, 0, 0, 0, 0, 2, 1, 0]), 1, status.BAD_HEADER_KEY_LENGTH, 0),
        (b"\x10" + bytes([0, 0, 0, 0, 0, 2, 0, 8]), 1, status.BAD_HEADER_VALUE_LENGTH, 0),
    ],
)
def test_walk_says_what_is_wrong_and_where(
    section: bytes, count: int, expected: int, index: int
) -> None:
    answer, result = run_walk(section, count)
    assert (answer, result[record_validation.RESULT_RECORD]) == (expected, index)
    assert result[record_validation.RESULT_POSITION] == 6 + (len(record(0)) if index else 0)


def test_walk_wants_keys_for_a_compacted_topic() -> None:
    section = record(0) + record(1, key=None)
    assert run_walk(section, 2)[0] == status.OK
    assert run_walk(section, 2, key_required=True)[0] == status.MISSING_KEY
    assert run_walk(record(0, key=b""), 1, key_required=True)[0] == status.OK


def test_walk_bounds_timestamps_but_lets_none_pass() -> None:
    section = record(0, 0) + record(1, 10)
    assert run_walk(section, 2, earliest_ms=1000, latest_ms=1010)[0] == status.OK
    assert run_walk(section, 2, latest_ms=1009)[0] == status.TIMESTAMP_NOT_ALLOWED
    assert run_walk(section, 2, earliest_ms=1001)[0] == status.TIMESTAMP_NOT_ALLOWED
    assert run_walk(record(0, -1001), 1, earliest_ms=900)[0] == status.OK


def test_walk_wraps_sums_of_timestamps_as_kafka_does() -> None:
    answer, result = run_walk(record(0, 2), 1, base_ms=INT64_MAX)
    assert answer == status.OK
    assert result[record_validation.RESULT_MAX_TIMESTAMP_MS] == -1
    _, result = run_walk(record(0, INT64_MAX) + record(1, INT64_MIN), 2, base_ms=-5)
    assert (
        result[record_validation.RESULT_MAX_TIMESTAMP_MS] == INT64_MAX - 4
    )  # MIN - 5 wrapped around


def test_walk_of_a_crafted_length_near_the_largest_number() -> None:
    # The lengths that overflow a sum of position and length.
    for number in (2**31 - 1, -(2**31)):
        body = bytearray()
        append_varint(body, number)
        section = bytes(body) + bytes(20)
        assert run_walk(section, 1)[0] == status.BAD_RECORD_LENGTH


def test_every_answer_but_the_harmless_ones_has_an_error() -> None:
    answers = {
        number
        for name, number in vars(status).items()
        if name.isupper() and isinstance(number, int) and not name.startswith("ROW_")
    }
    assert answers - set(status.MESSAGES) == {status.OK, status.FULL, status.NOT_PLAIN}
    error = status.error_for(status.BAD_CRC, "t-0, batch at byte 7")
    assert str(error) == "t-0, batch at byte 7: the CRC does not fit the bytes"
