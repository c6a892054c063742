"""Writing records anew: the plain form and the kernels give the same of the same bytes, and what
they give are the records that went in, numbered from 0. The kernels' three forms give the same."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog_broker.log.record_checks import PlainChecks, kernel_checks
from klog_broker.log.rewriting import NAMED_FAULTS, Allowed, Wrapper
from pyspark_klog.errors import KlogError
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder, write_header
from pyspark_klog.records.compression import Codec, decompress
from pyspark_klog.records.errors import CorruptRecords, InvalidRecords
from pyspark_klog.records.legacy import LegacyView, encode_message
from pyspark_klog.records.legacy_builder import LegacyBuilder
from tests.support.rewriting_cases import run_seeds

ROOT = Path(__file__).parents[2]
SEEDS = 150
FORMS = (PlainChecks(), kernel_checks())

FIELD = st.none() | st.binary(max_size=70)
TIMES = st.integers(-1, 200) | st.sampled_from([-1, 1_700_000_000_000, 2**63 - 1])
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2)
RECORDS = st.lists(
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


def damaged(data: bytes, damage: list[tuple[int, int]]) -> bytes:
    changed = bytearray(data)
    for place, byte in damage:
        if changed:
            changed[place % len(changed)] = byte
    return bytes(changed)


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except KlogError as error:
        return type(error)


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


@given(RECORDS, ALLOWED, st.booleans(), DAMAGE)
def test_records_written_anew_are_the_same_records(
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
    # Of what is no UTF-8 in a header's name the plain form makes U+FFFD, as readers do.
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
def test_what_is_no_message_is_refused_alike(
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


@pytest.fixture(scope="module")
def digest() -> str:
    return run_seeds(range(SEEDS))


@pytest.mark.parametrize(
    "form", [{"NUMBA_DISABLE_JIT": "1"}, {"NUMBA_BOUNDSCHECK": "1"}], ids=["plain", "checked"]
)
def test_another_form_of_the_kernels_gives_the_same(form: dict[str, str], digest: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.rewriting_cases", str(SEEDS)],
        cwd=ROOT,
        env={**os.environ, **form},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr[-2000:]) == (digest, "")
