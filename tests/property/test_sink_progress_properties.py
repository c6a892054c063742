"""Names and rows of the exactly-once sink: what is stored is read back, and nothing else is."""

import pickle

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_klog.client.admin.sink_progress import ForeignProgress, ProgressRow, RunMark
from pyspark_klog.client.group_offsets import CommittedOffset
from pyspark_klog.spark.sink.exactly_once.names import SinkId, parse_sink_id
from pyspark_klog.spark.sink.exactly_once.progress import TaskProgress

_WORDS = st.text("abcXYZ019_-", min_size=1, max_size=20)
_PREFIXES = st.text("abcXYZ019_-.", min_size=1, max_size=20)
_INDICES = st.integers(0, 2**31 - 1)
_COUNTS = st.integers(0, 2**63 - 1)
_IDS = st.integers(-1, 2**63 - 1)
_ROWS = st.builds(
    ProgressRow,
    *(_COUNTS, _WORDS, _COUNTS, _COUNTS, st.integers(0, 2**128 - 1), _COUNTS, _IDS),
    st.integers(-1, 2**15),
)


# --- names ---------------------------------------------------------------------------------------
@given(_PREFIXES, _WORDS, _WORDS, _INDICES)
@example("a.b", "q", "run", 0)
@example(".", "0", "run", 7)
def test_an_id_contains_its_sink_and_task(prefix: str, query: str, name: str, index: int) -> None:
    sink = SinkId(prefix, query, name)
    assert sink.task(index) == f"{prefix}.{query}.{name}.{index}"
    assert parse_sink_id(sink.task(index)) == (sink, index)
    assert parse_sink_id(sink.mark) == (sink, None)


@given(st.text("ab01.-", max_size=12))
def test_what_is_taken_for_an_id_is_one(text: str) -> None:
    found = parse_sink_id(text)
    if found is not None:
        sink, index = found
        assert text == (sink.mark if index is None else sink.task(index))


@pytest.mark.parametrize(
    "text", ["", "a.b.c", "a.b.c.x", "a.b.c.01", "a.b.c.-1", "a.b.c.²", "a.b.c.+1", "a..c.1", "..."]
)
def test_what_is_no_id(text: str) -> None:
    assert parse_sink_id(text) is None


@pytest.mark.parametrize(
    "sink",
    [SinkId("p", "q.r", "n"), SinkId("p", "", "n"), SinkId("p", "q", "n."), SinkId("", "q", "n")],
)
def test_an_ambiguous_id_is_refused(sink: SinkId) -> None:
    with pytest.raises(ValueError, match=r"expected text without dots|is empty"):
        sink.task(0)
    with pytest.raises(ValueError, match=r"expected text without dots|is empty"):
        print(sink.mark)


# --- rows ----------------------------------------------------------------------------------------
@given(_ROWS, st.integers(-1, 100))
def test_a_row_is_read_as_it_was_stored(row: ProgressRow, leader_epoch: int) -> None:
    position = row.to_offset()
    assert position.offset == row.batch_id
    assert ProgressRow.from_offset(position._replace(leader_epoch=leader_epoch)) == row
    assert len(position.metadata) < 300


def test_the_text_of_a_row_and_a_mark_stays() -> None:
    # Rows of earlier releases have to be read.
    row = ProgressRow(7, "run-1", 3, 40, 0xAB, 1_700_000_000_000, 12, 3)
    text = "klog-sink 1 run-1 3 40 000000000000000000000000000000ab 1700000000000 12 3"
    assert row.to_offset() == CommittedOffset(7, metadata=text)
    mark = RunMark(7, "run-1", 50)
    assert mark.to_offset() == CommittedOffset(7, metadata="klog-sink-run 1 50 run-1")
    mark = RunMark(7, "run-2", 60, ("run-1", "run-0"))
    assert mark.to_offset().metadata == "klog-sink-run 1 60 run-2 run-1 run-0"


@given(_ROWS, st.data())
def test_a_row_that_was_changed_is_not_taken(row: ProgressRow, data: st.DataObject) -> None:
    text = row.to_offset().metadata
    place = data.draw(st.integers(0, len(text) - 1))
    changed = data.draw(
        st.sampled_from([text[:place] + text[place + 1 :], text[:place] + " " + text[place:]])
        | st.just(text + "0 ")
    )
    try:
        found = ProgressRow.from_offset(CommittedOffset(row.batch_id, metadata=changed))
    except ForeignProgress:
        return
    # Without one digit a number may still be valid; then the row is read exactly as written.
    assert found.to_offset().metadata == changed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mine",
        "klog-sink 2 r 1 1 00000000000000000000000000000000 1 2 3",
        "klog-sink 1 r 1 1 0 1 2 3",
        "klog-sink 1 r -1 1 00000000000000000000000000000000 1 2 3",
        "klog-sink 1 r 1_0 1 00000000000000000000000000000000 1 2 3",
        "klog-sink 1 r 1 1 0000000000000000000000000000000G 1 2 3",
        "klog-sink 1 r 1 1 000000000000000000000000000000000 1 2 3",
        "klog-sink 1 r 1 1 00000000000000000000000000000000",
        "klog-sink 1  1 1 00000000000000000000000000000000 1 2 3",
        "klog-sink 1 r 1 1 00000000000000000000000000000000 1 2",
        "klog-sink 1 r 1 1 00000000000000000000000000000000 1 2 x",
        "klog-sink-run 1 5 r",
    ],
)
def test_a_foreign_position_is_distinguished_from_a_row(text: str) -> None:
    with pytest.raises(ForeignProgress) as caught:
        ProgressRow.from_offset(CommittedOffset(9, metadata=text))
    assert f"a position of the sink is 9 with metadata {text!r}; expected" in str(caught.value)


# --- marks ---------------------------------------------------------------------------------------
@given(_COUNTS, _WORDS, _COUNTS, st.lists(_WORDS, max_size=20))
def test_a_mark_is_read_as_it_was_stored(
    batch: int, run: str, time_ms: int, past: list[str]
) -> None:
    mark = RunMark(batch, run, time_ms, tuple(past))
    assert RunMark.from_offset(mark.to_offset()) == mark


@pytest.mark.parametrize(
    "text",
    [
        *("", "run", "klog-sink-run 1 ", "klog-sink-run 1 5", "klog-sink-run 1 5  a"),
        *("klog-sink-run 1 5 a ", "klog-sink-run 1 x a", "klog-sink-run 1 -5 a"),
    ],
)
def test_a_foreign_position_is_distinguished_from_a_mark(text: str) -> None:
    with pytest.raises(ForeignProgress, match="expected metadata that begins 'klog-sink-run 1 '"):
        RunMark.from_offset(CommittedOffset(9, metadata=text))


def test_marks_remember_the_runs_before() -> None:
    mark = RunMark.next_mark(None, 3, "a", 50)
    assert mark == RunMark(3, "a", 50)
    mark = RunMark.next_mark(mark, 5, "b", 60)
    assert mark == RunMark(5, "b", 60, ("a",))
    assert RunMark.next_mark(mark, 6, "a", 70) == RunMark(6, "a", 70, ("b",))
    for number in range(100):
        mark = RunMark.next_mark(mark, 7 + number, f"run-{number}", 80)
    assert (mark.earlier_run_ids[0], len(mark.earlier_run_ids)) == ("run-98", 20)
    # Far from offset.metadata.max.bytes, 4096.
    assert len(RunMark(0, "u" * 36, 10**12, ("u" * 36,) * 20).to_offset().metadata) < 1_000


@pytest.mark.parametrize("run", ["", "a b"])
def test_a_run_that_could_not_be_read_is_not_stored(run: str) -> None:
    with pytest.raises(ValueError, match="expected text without spaces"):
        RunMark(0, run, 1).to_offset()
    with pytest.raises(ValueError, match="expected text without spaces"):
        ProgressRow(0, run, 0, 0, 0, 0).to_offset()


# --- messages ------------------------------------------------------------------------------------
def test_the_progress_of_a_task_can_be_pickled() -> None:
    row = ProgressRow(7, "run-1", 3, 40, 0xAB, 1)
    told = TaskProgress("p.q.n.0", "t", row, None, None, "run-1")
    assert pickle.loads(pickle.dumps(told)) == told
