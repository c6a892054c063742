"""The plain checks and the compiled ones say the same of the same bytes, whole or damaged."""

from hypothesis import given
from hypothesis import strategies as st

from klog_broker.log.digests import Digest
from klog_broker.log.producer_state import ProducerMarker, ProducerStates
from klog_broker.log.producer_steps import take_step
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
from pyspark_klog.records.control import ControlType, EndTransactionMarker, end_transaction_batch
from pyspark_klog.records.errors import CorruptRecords
from tests.support.record_sets import encode_end_transaction

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


def digest_of(
    checks: RecordChecks, buffer: bytearray, split: int, interval: int, done_before: int = 0
) -> object:
    """All that a digest says, of two pieces one after the other; of the states what is so once all
    before ``done_before`` is replicated."""
    digest = Digest(
        position=0,
        end_offset=0,
        end_limit=60,
        index_interval_bytes=interval,
        max_timestamp_ms=3,
        max_timestamp_offset=0,
        follows_producers=True,
        commits_done_before=done_before,
    )
    checks.scan_into(digest, buffer[:split], 0)
    rows, steps = digest.take_index_rows(), digest.take_producer_steps()
    if digest.end_position == split:
        checks.scan_into(digest, buffer[split:], split)
    steps += digest.take_producer_steps()
    assert [step.offset for step in steps] == sorted(step.offset for step in steps)
    states = ProducerStates()
    aborted = []
    for step in steps:
        if isinstance(step, ProducerMarker) and step.is_abort:
            aborted.append(states.aborted_by(step))
        take_step(states, step, 0)
    states.transactions.reach(done_before)
    return (
        digest.end_offset,
        digest.end_position,
        digest.is_cut,
        digest.epochs,
        rows + digest.take_index_rows(),
        digest.last_indexed_position,
        (digest.max_timestamp_ms, digest.max_timestamp_offset),
        digest.has_markers,
        # The steps may be others, what they come to is the same.
        sorted(states.snapshot()),
        {each.producer_id: each.batches for each in states},
        list(states.transactions),
        states.transactions.first_unstable_offset,
        aborted,
    )


def marker(data: st.DataObject, offset: int, producer_id: int, kinds: list[ControlType]) -> bytes:
    """A marker; some are written as no broker does it, some are none."""
    kind = data.draw(st.sampled_from(kinds))
    found = EndTransactionMarker(kind, data.draw(st.integers(0, 3)))
    if data.draw(st.integers(0, 5)):
        return end_transaction_batch(
            found, producer_id=producer_id, producer_epoch=0, timestamp_ms=7, base_offset=offset
        )
    builder = BatchBuilder(
        offset,
        data.draw(st.sampled_from([Codec.NONE, Codec.GZIP])),
        producer_id=producer_id,
        producer_epoch=1,
        is_transactional=True,
        is_control=True,
    )
    key, value = encode_end_transaction(found)
    damage = data.draw(st.sampled_from([0, 0, 1, 3]))
    builder.append(key[: len(key) - damage], value, 7, [("h", b"")])
    return builder.build()


@given(st.data(), st.lists(st.integers(0, 3), min_size=1, max_size=20), st.booleans())
def test_digests_agree(data: st.DataObject, counts: list[int], follow: bool) -> None:
    buffer, ends, offset = bytearray(), [0], 0
    kinds = data.draw(
        st.sampled_from([[ControlType.COMMIT], [ControlType.ABORT, ControlType.COMMIT]])
    )
    for count in counts:
        producer_id = data.draw(st.integers(-1, 2))
        if not count:
            buffer += marker(data, offset, max(producer_id, 0), kinds)
        else:
            builder = BatchBuilder(
                offset,
                producer_id=producer_id,
                producer_epoch=min(producer_id, 0),
                base_sequence=producer_id,
                is_transactional=producer_id >= 0 and data.draw(st.booleans()),
                partition_leader_epoch=data.draw(st.integers(-1, 4)),
            )
            for _ in range(count):
                builder.append(None, b"v", data.draw(st.integers(-1, 20)))
            buffer += builder.build()
        ends.append(len(buffer))
        offset += (count or 1) + (0 if follow else data.draw(st.integers(-1, 1)))
        offset = max(offset, 0)
    split = data.draw(st.sampled_from(ends))
    interval = data.draw(st.sampled_from([0, 68, 69, 100, 200, 10**6]))
    for done_before in (0, 10, 10**6):
        plain = digest_of(PLAIN, buffer, split, interval, done_before)
        assert plain == digest_of(kernel_checks(), buffer, split, interval, done_before)


def test_an_open_transaction_is_known_from_its_first_batch_on() -> None:
    """Also where it has more batches than a producer's state remembers, behind others' commits."""
    buffer, offset = bytearray(), 0
    commit = EndTransactionMarker(ControlType.COMMIT, 4)
    for producer_id, batches in ((1, 2), (2, 1), (1, 9), (2, 7)):
        for sequence in range(batches):
            builder = BatchBuilder(
                offset,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
            )
            builder.append(None, b"v", 1)
            buffer += builder.build()
            offset += 1
        if offset < 5:
            buffer += end_transaction_batch(
                commit,
                producer_id=producer_id,
                producer_epoch=0,
                timestamp_ms=7,
                base_offset=offset,
            )
            offset += 1
    for done_before in (0, 10**6):
        found = digest_of(kernel_checks(), buffer, 0, 10**6, done_before)
        assert found == digest_of(PLAIN, buffer, 0, 10**6, done_before)
        assert "[(5, 1), (14, 2)]" in str(found)
