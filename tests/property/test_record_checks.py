"""The two implementations of RecordChecks, the plain one and the kernels, give the same result for
the same bytes, whole or damaged; and records that are written in a new form stay the same records,
numbered from 0."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog_broker.log.producers.producer_state import ProducerMarker, ProducerStates
from klog_broker.log.producers.producer_steps import apply_step
from klog_broker.log.validation.batch_digests import Digest
from klog_broker.log.validation.kernel_checks import kernel_checks
from klog_broker.log.validation.plain_checks import PlainChecks
from klog_broker.log.validation.record_checks import (
    NAMED_FAULTS,
    Allowed,
    RecordChecks,
    Wrapper,
)
from pyspark_klog.errors import KlogError
from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder, write_header
from pyspark_klog.records.compression import Codec, decompress
from pyspark_klog.records.control import ControlType, EndTransactionMarker, end_transaction_batch
from pyspark_klog.records.errors import CorruptRecords, InvalidRecords
from pyspark_klog.records.layout import Buffer
from pyspark_klog.records.legacy import LegacyView, encode_message
from pyspark_klog.records.legacy_builder import LegacyBuilder
from tests.support.records.record_sets import encode_end_transaction

PLAIN, KERNELS = FORMS = (PlainChecks(), kernel_checks())
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

FIELD = st.none() | st.binary(max_size=70)
TIMES = st.integers(-1, 200) | st.sampled_from([-1, 1_700_000_000_000, 2**63 - 1])
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2)
NUMBERED_RECORDS = st.lists(
    st.tuples(FIELD, FIELD, TIMES, HEADERS, st.integers(0, 90)), min_size=1, max_size=8
)
ALLOWED = st.builds(
    Allowed,
    st.sampled_from([-(2**63), 0, 50]),
    st.sampled_from([2**63 - 1, 100]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([80, 10**6]),
)
ALLOWS_ALL = Allowed(-(2**63), 2**63 - 1, False, False, 10**6)
DAMAGE = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=3)


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


def damaged(data: Buffer, damage: list[tuple[int, int]]) -> bytearray:
    changed = bytearray(data)
    for place, byte in damage:
        if changed:
            changed[place % len(changed)] = byte
    return changed


def outcome(call: Callable[[], Any]) -> Any:
    """The result of the call, or the type of its exception."""
    try:
        return call()
    except KlogError as error:
        return type(error)


# --- batches -------------------------------------------------------------------------------------
@given(st.lists(batches(), min_size=1, max_size=6), DAMAGE, st.booleans(), st.data())
def test_both_forms_find_the_same_batches(
    sets: list[bytearray], damage: list[tuple[int, int]], check_crc: bool, data: st.DataObject
) -> None:
    buffer = damaged(bytearray(b"".join(sets)), damage)
    end = data.draw(st.integers(0, len(buffer)))
    plain = PLAIN.scan(buffer, 0, end, check_crc=check_crc)
    compiled = KERNELS.scan(buffer, 0, end, check_crc=check_crc)
    if all(row.magic == at.MAGIC_V2 for row in compiled.rows):
        assert plain == compiled
    # No scan goes past the end of the range.
    assert plain.end_position <= end


def digest_of(
    checks: RecordChecks, buffer: bytearray, split: int, interval: int, done_before: int = 0
) -> object:
    """Return all results of a digest of two consecutive pieces; for the producers' states, those
    that hold once all records before ``done_before`` are replicated."""
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
    rows, steps = digest.drain_index_rows(), digest.drain_producer_steps()
    if digest.end_position == split:
        checks.scan_into(digest, buffer[split:], split)
    steps += digest.drain_producer_steps()
    assert [step.offset for step in steps] == sorted(step.offset for step in steps)
    states = ProducerStates()
    aborted = []
    for step in steps:
        if isinstance(step, ProducerMarker) and step.is_abort:
            aborted.append(states.aborted_entry_of(step))
        apply_step(states, step, 0)
    states.transactions.advance_high_watermark(done_before)
    return (
        digest.end_offset,
        digest.end_position,
        digest.is_cut,
        digest.epochs,
        rows + digest.drain_index_rows(),
        digest.last_indexed_position,
        (digest.max_timestamp_ms, digest.max_timestamp_offset),
        digest.has_markers,
        # The steps may differ, but their result is the same.
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
def test_both_forms_give_the_same_digest_of_a_log(
    data: st.DataObject, counts: list[int], follow: bool
) -> None:
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
        assert plain == digest_of(KERNELS, buffer, split, interval, done_before)


def test_an_open_transaction_is_known_from_its_first_batch_on() -> None:
    """A transaction may have more batches than a producer's state remembers, after the commits of
    other producers."""
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
        found = digest_of(KERNELS, buffer, 0, 10**6, done_before)
        assert found == digest_of(PLAIN, buffer, 0, 10**6, done_before)
        assert "[(5, 1), (14, 2)]" in str(found)


# --- records -------------------------------------------------------------------------------------
@given(batches(), DAMAGE, st.integers(-1, 1), st.integers(0, 1_000), st.booleans())
def test_both_forms_walk_alike_over_the_records_of_a_batch(
    data: bytearray, damage: list[tuple[int, int]], more: int, latest_ms: int, key_required: bool
) -> None:
    view = BatchView(data)
    section = damaged(view.records_section(), damage)
    count, base_ms = view.record_count + more, view.base_timestamp_ms
    plain, compiled = (
        outcome(
            lambda form=form: form.walk(
                section, 0, len(section), count, base_ms, 5, latest_ms, key_required
            )
        )
        for form in FORMS
    )
    assert plain == compiled


def stored(data: Any, base_timestamp_ms: int, count: int) -> BatchView:
    """The written records as a batch."""
    batch = bytearray(data)
    write_header(
        batch,
        base_offset=0,
        leader_epoch=0,
        attributes=0,
        last_offset_delta=count - 1,
        timestamps_ms=(base_timestamp_ms, 0),
        producer=(-1, -1, -1),
        record_count=count,
    )
    return BatchView(batch)


@given(NUMBERED_RECORDS, ALLOWED, st.booleans(), DAMAGE)
def test_rewritten_records_are_the_same_records(
    rows: list[Any], allowed: Allowed, claims: bool, damage: list[tuple[int, int]]
) -> None:
    builder = BatchBuilder()
    offset = 0
    for key, value, timestamp_ms, headers, gap in rows:
        offset += gap
        builder.append(key, value, timestamp_ms, headers, offset=offset)
        offset += 1
    view = BatchView(builder.build())
    whole = bytes(view.records_section())
    section = damaged(whole, damage)
    base_ms = view.base_timestamp_ms
    looks = [
        outcome(
            lambda form=form: form.look_at_records(
                section, 0, len(section), len(rows), base_ms, allowed, claims_append_time=claims
            )
        )
        for form in FORMS
    ]
    if isinstance(looks[0], type):
        assert looks[0] is looks[1]
        return
    # The plain form replaces bytes of a header's name that are not UTF-8 by U+FFFD, as readers do.
    found = looks[1]
    assert looks[0]._replace(size_bytes=0) == found._replace(size_bytes=0)
    written = [
        bytes(form.write_records(section, 0, len(section), found, claims_append_time=claims)[61:])
        for form in FORMS
    ]
    assert len(written[1]) == found.size_bytes
    batches = [stored(bytes(61) + each, base_ms, len(rows)) for each in written]
    records = [list(batch.records()) for batch in batches]
    assert records[0] == records[1]
    assert [record.offset for record in records[0]] == list(range(len(rows)))
    if section == whole:
        assert looks[0] == looks[1]
        assert written[0] == written[1]
        assert found.in_order == (not any(gap for *_, gap in rows))
        assert [(r.key, r.value, [tuple(h) for h in r.headers]) for r in records[0]] == [
            (key, value, headers) for key, value, _, headers, _ in rows
        ]
        times = [base_ms] * len(rows) if claims else [row[2] for row in rows]
        assert [record.timestamp_ms for record in records[0]] == times
        assert found.max_timestamp_ms == max(times)


@pytest.mark.parametrize("wrapper", [None, Wrapper(0, None)], ids=["set", "wrapper"])
@pytest.mark.parametrize("size", [-1, 0, 13, 14, 48, 49, 60, 61])
@pytest.mark.parametrize("magic", [2, 3, 127, 255])
def test_both_forms_refuse_bytes_that_are_no_message(
    wrapper: Wrapper | None, size: int, magic: int
) -> None:
    """A batch among messages, if it is long enough for one; or a message that its wrapper cuts off;
    else damage."""
    builder = LegacyBuilder(0, 0, Codec.NONE)
    builder.append(None, b"first", 0)
    entry = bytearray(12 + 60)
    entry[8:12], entry[16] = size.to_bytes(4, "big", signed=True), magic
    data = bytes(builder.build()) + bytes(entry)
    looks = [
        outcome(lambda form=form: form.look_at_messages(data, wrapper, ALLOWS_ALL, 100))
        for form in FORMS
    ]
    assert looks[0] == looks[1]
    if size > 60 and wrapper is None:
        assert looks[0].record_count == 1  # cut off, as any message may be
    else:
        is_batch_or_cut_off = size > 60 or (magic == 2 and size >= 49)
        assert looks[0] is (InvalidRecords if is_batch_or_cut_off else CorruptRecords)


@given(
    st.sampled_from([0, 1]),
    st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP]),
    st.lists(st.tuples(FIELD, FIELD, TIMES), min_size=1, max_size=6),
    ALLOWED,
    st.sampled_from([3, 100]),
    st.booleans(),
    DAMAGE,
    st.integers(0, 20),
)
def test_messages_become_the_same_records(
    magic: int,
    codec: Codec,
    rows: list[Any],
    allowed: Allowed,
    max_records: int,
    claims: bool,
    damage: list[tuple[int, int]],
    cut: int,
) -> None:
    builder = LegacyBuilder(magic, 0, codec)
    for key, value, timestamp_ms in rows:
        builder.append(key, value, timestamp_ms)
    data, wrapper = builder.build(), None
    if codec is not Codec.NONE:
        with LegacyView(data).value_view() as inside:
            data = bytes(decompress(codec, inside, magic=magic))
        wrapper = Wrapper(magic, 77 if claims else None)
    whole = data
    data = damaged(data, damage)[: len(data) - cut]
    looks = [
        outcome(lambda form=form: form.look_at_messages(data, wrapper, allowed, max_records))
        for form in FORMS
    ]
    assert looks[0] == looks[1]
    if isinstance(looks[0], type) or not looks[0].record_count:
        return
    found = looks[0]
    written = [bytes(form.write_messages(data, wrapper, found)) for form in FORMS]
    assert written[0][61:] == written[1][61:]
    assert len(written[0]) == 61 + found.size_bytes
    # No record takes more than its message did.
    assert found.size_bytes <= found.end_position
    if data == whole:
        records = list(stored(written[0], found.first_timestamp_ms, len(rows)).records())
        assert [(r.offset, r.key, r.value) for r in records] == [
            (number, key, value) for number, (key, value, _) in enumerate(rows)
        ]
        times = [-1] * len(rows) if magic == 0 else [row[2] for row in rows]
        if wrapper is not None and wrapper.timestamp_ms is not None:
            times = [77] * len(rows)
        assert [record.timestamp_ms for record in records] == times


@pytest.mark.parametrize("form", FORMS, ids=["plain", "kernels"])
def test_faults_are_counted_and_the_first_are_named(form: Any) -> None:
    allowed = Allowed(0, 10, False, True, 10**6)
    builder = BatchBuilder()
    for number in range(1_000):
        builder.append(None if number % 2 else b"k", None, 5 if number % 4 else 11)
    section = bytes(BatchView(builder.build()).records_section())
    found = form.look_at_records(
        section, 0, len(section), 1_000, 11, allowed, claims_append_time=False
    )
    assert (found.key_faults, found.timestamp_faults) == (500, 250)
    assert len(found.faults) == NAMED_FAULTS
    assert [fault.record for fault in found.faults[:4]] == [0, 1, 3, 4]
    messages = encode_message(1, 0, 11, b"k", None) * 1_000
    found = form.look_at_messages(messages, None, allowed, 1_000)
    assert (found.key_faults, found.timestamp_faults) == (0, 1_000)
    assert len(found.faults) == NAMED_FAULTS
