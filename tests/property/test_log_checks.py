"""The plain checks and the compiled ones say the same of the same bytes, whole or damaged."""

from hypothesis import given
from hypothesis import strategies as st

from klog_broker.log.digests import Digest
from klog_broker.log.record_checks import (
    NotInOrder,
    PlainChecks,
    RecordChecks,
    RecordNotAllowed,
    Walk,
    kernel_checks,
)
from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.errors import CorruptRecords

PLAIN = PlainChecks()
RECORDS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.binary(max_size=8)),
        st.one_of(st.none(), st.binary(max_size=8)),
        st.integers(-1, 1_000),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
    ),
    min_size=1,
    max_size=5,
)


@st.composite
def batches(draw: st.DrawFn) -> bytearray:
    codec = draw(st.sampled_from([Codec.NONE, Codec.GZIP]))
    producer_id = draw(st.integers(-1, 5))
    builder = BatchBuilder(
        draw(st.integers(0, 100)), codec, producer_id=producer_id, base_sequence=producer_id
    )
    for key, value, timestamp_ms, headers in draw(RECORDS):
        builder.append(key, value, timestamp_ms, headers)
    return bytearray(builder.build())


DAMAGE = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=3)


def damaged(data: bytearray, damage: list[tuple[int, int]]) -> bytearray:
    for place, byte in damage:
        data[place % len(data)] = byte
    return data


@given(st.lists(batches(), min_size=1, max_size=6), DAMAGE, st.booleans(), st.data())
def test_scans_agree(
    sets: list[bytearray], damage: list[tuple[int, int]], check_crc: bool, data: st.DataObject
) -> None:
    buffer = damaged(bytearray(b"".join(sets)), damage)
    end = data.draw(st.integers(0, len(buffer)))
    plain = PLAIN.scan(buffer, 0, end, check_crc=check_crc)
    compiled = kernel_checks().scan(buffer, 0, end, check_crc=check_crc)
    if all(row.magic == at.MAGIC_V2 for row in compiled.rows):
        assert plain == compiled
    # What neither scan took lies behind what both did.
    assert plain.end_position <= end


def outcome(checks: RecordChecks, section: bytearray, *arguments: int) -> Walk | type[Exception]:
    count, base_timestamp_ms, earliest_ms, latest_ms, key_required = arguments
    try:
        return checks.walk(
            section,
            0,
            len(section),
            count,
            base_timestamp_ms,
            earliest_ms,
            latest_ms,
            bool(key_required),
        )
    except (CorruptRecords, NotInOrder, RecordNotAllowed) as error:
        return type(error)


@given(batches(), DAMAGE, st.integers(-1, 1), st.integers(0, 1_000), st.booleans())
def test_walks_agree(
    data: bytearray, damage: list[tuple[int, int]], more: int, latest_ms: int, key_required: bool
) -> None:
    view = BatchView(data)
    section = bytearray(view.records_section())
    section = damaged(section, damage) if section else section
    arguments = (view.record_count + more, view.base_timestamp_ms, 5, latest_ms, key_required)
    assert outcome(PLAIN, section, *arguments) == outcome(kernel_checks(), section, *arguments)


def digest_of(checks: RecordChecks, buffer: bytearray, split: int, interval: int) -> object:
    """All that a digest says, of two pieces one after the other."""
    digest = Digest(
        position=0,
        end_offset=0,
        end_limit=40,
        index_interval_bytes=interval,
        max_timestamp_ms=3,
        max_timestamp_offset=0,
    )
    checks.scan_into(digest, buffer[:split], 0)
    rows = digest.take_index_rows()
    if digest.end_position == split:
        checks.scan_into(digest, buffer[split:], split)
    producers: dict[int, list[tuple[int, ...]]] = {}
    for row in digest.take_producer_rows():
        producers.setdefault(row.producer_id, []).append(tuple(row)[3:])
    return (
        digest.end_offset,
        digest.end_position,
        digest.is_cut,
        digest.epochs,
        rows + digest.take_index_rows(),
        digest.last_indexed_position,
        (digest.max_timestamp_ms, digest.max_timestamp_offset),
        # A state depends on a producer's last five batches only.
        {producer: each[-5:] for producer, each in producers.items()},
    )


@given(st.data(), st.lists(st.integers(1, 3), min_size=1, max_size=20), st.booleans())
def test_digests_agree(data: st.DataObject, counts: list[int], follow: bool) -> None:
    buffer, ends, offset = bytearray(), [0], 0
    for count in counts:
        producer_id = data.draw(st.integers(-1, 2))
        builder = BatchBuilder(
            offset,
            producer_id=producer_id,
            base_sequence=producer_id,
            partition_leader_epoch=data.draw(st.integers(-1, 4)),
        )
        for _ in range(count):
            builder.append(None, b"v", data.draw(st.integers(-1, 20)))
        buffer += builder.build()
        ends.append(len(buffer))
        offset += count + (0 if follow else data.draw(st.integers(-1, 1)))
        offset = max(offset, 0)
    split = data.draw(st.sampled_from(ends))
    interval = data.draw(st.sampled_from([0, 68, 69, 100, 200, 10**6]))
    plain = digest_of(PLAIN, buffer, split, interval)
    assert plain == digest_of(kernel_checks(), buffer, split, interval)
