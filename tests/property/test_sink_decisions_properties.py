"""Decisions of a task of an exactly-once sink: the table, and properties for any rows."""

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_klog.client.admin.sink_progress import ProgressRow, RunMark
from pyspark_klog.spark.sink.exactly_once.decisions import (
    CurrentTask,
    Fail,
    Verify,
    Wait,
    Write,
    after_fenced,
    decide_task,
    difference,
    explain_foreign_row,
    needs_mark,
    refuse_row_elsewhere,
)

_NOW = CurrentTask(3, 7, "now")


def _row(batch: int, run: str, count: int = 2, row_hash: int = 5) -> ProgressRow:
    return ProgressRow(batch, run, count, 20, row_hash, 1)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (None, Write(ends_itself=False)),
        (_row(6, "now"), Write(ends_itself=True)),
        # An index that batches with fewer tasks did not have.
        (_row(2, "now"), Write(ends_itself=True)),
        (_row(6, "old"), Write(ends_itself=False)),
        (_row(0, "old"), Write(ends_itself=False)),
        (_row(7, "now"), Verify(_row(7, "now"))),
        (_row(7, "old"), Verify(_row(7, "old"))),
    ],
)
def test_the_table(row: ProgressRow | None, expected: object) -> None:
    assert decide_task(row, _NOW, None) == expected


def test_a_batch_write_is_never_repeated_by_others() -> None:
    now = CurrentTask(3, 0, "uuid", is_repeatable=False)
    assert decide_task(None, now, None) == Write(ends_itself=True)
    assert decide_task(_row(0, "uuid"), now, None) == Verify(_row(0, "uuid"))


@pytest.mark.parametrize(
    ("run", "text"),
    [
        ("now", "its own run, now: this attempt comes too late, and has written nothing"),
        (
            "old",
            "run old; this run is now: its checkpoint was reset, or a copy of the query runs; "
            "let one copy run, and give each other one a checkpoint of its own",
        ),
    ],
)
def test_a_later_batch_fails_the_task(run: str, text: str) -> None:
    found = decide_task(_row(8, run), _NOW, None)
    begin = "task 3 of micro-batch 7 finds micro-batch 8 written by"
    assert found == Fail(f"{begin} {text}")


# --- marks ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("mark", "is_foreign"),
    [
        (None, False),
        (RunMark(6, "now", 1), True),
        # The marks are stored when all tasks of the batch are done.
        (RunMark(7, "now", 1), True),
        (RunMark(7, "copy", 1, ("now",)), True),
        (RunMark(3, "old", 1), False),
        (RunMark(7, "old", 1, ("older",)), False),
    ],
)
def test_a_copy_of_the_query_is_found(mark: RunMark | None, is_foreign: bool) -> None:
    row = _row(7, "copy")
    assert needs_mark(row, _NOW)
    found = decide_task(row, _NOW, mark)
    assert found == (Fail(str(explain_foreign_row(row, _NOW, mark))) if is_foreign else Verify(row))
    if is_foreign:
        assert explain_foreign_row(row, _NOW, mark) == (
            "task 3 of micro-batch 7 was written by run copy of the query while this run, now, was "
            "at work: two copies of the query write with the same ids, as with a copied "
            "checkpoint; let one copy run, and give each other one a checkpoint of its own"
        )


def test_ones_own_row_is_never_a_copys() -> None:
    for mark in (None, RunMark(6, "now", 1), RunMark(9, "other", 1, ("now",))):
        assert explain_foreign_row(_row(7, "now"), _NOW, mark) is None


def test_marks_are_asked_for_only_where_they_count() -> None:
    rows = [None, _row(6, "old"), _row(7, "now"), _row(8, "old")]
    assert not any(needs_mark(row, _NOW) for row in rows)
    marks = [None, RunMark(1, "now", 1), RunMark(9, "x", 1, ("now",))]
    for row in rows:
        assert len({decide_task(row, _NOW, mark) for mark in marks}) == 1


# --- fenced --------------------------------------------------------------------------------------
def test_a_fenced_attempt_waits_for_the_other_one() -> None:
    assert after_fenced(None, _NOW) == Wait()
    for run in ("now", "old"):
        assert after_fenced(_row(6, run), _NOW) == Wait()
    assert after_fenced(_row(7, "now"), _NOW) == Verify(_row(7, "now"))


@pytest.mark.parametrize("row", [_row(7, "newer"), _row(8, "newer"), _row(8, "now")])
def test_a_zombie_fails_at_once(row: ProgressRow) -> None:
    found = after_fenced(row, _NOW)
    assert isinstance(found, Fail)
    assert found.error.startswith(
        f"task 3 of micro-batch 7 lost its transactional id to run {row.run_id} of the query, "
        f"which has written micro-batch {row.batch_id}"
    )


# --- other topics, other rows --------------------------------------------------------------------
def test_a_batch_under_another_topic_is_not_written_again() -> None:
    assert refuse_row_elsewhere({"t": _row(7, "old"), "other": _row(6, "old")}, "t", _NOW) is None
    for batch in (7, 8):
        found = refuse_row_elsewhere({"t": _row(6, "now"), "other": _row(batch, "old")}, "t", _NOW)
        assert found == Fail(
            f"task 3 of micro-batch 7 finds that run old has written micro-batch {batch} with its "
            "progress under topic other, but this run stores progress under t: set option "
            "exactlyOnceTopic=other"
        )


def test_other_rows_than_those_committed_fail_the_task() -> None:
    found, made = _row(7, "old"), _row(7, "now", row_hash=6)
    assert difference(found, _row(7, "now"), _NOW, keep=False) is None
    assert difference(found, made, _NOW, keep=False) == (
        "task 3 of micro-batch 7 has 2 rows with 20 bytes "
        "(hash 00000000000000000000000000000006) now, and run old committed 2 rows with 20 bytes "
        "(hash 00000000000000000000000000000005): the batch was cut into other tasks then, or the "
        "query does not give the same rows again: repeat it with as many cores and shuffle "
        "partitions as then, and with the same query; if its values cannot be the same, as with "
        "sums of floats, exactlyOnceMismatch=keep takes what was committed"
    )
    assert difference(found, made, _NOW, keep=True) is None


@pytest.mark.parametrize("keep", [True, False])
def test_another_number_of_rows_is_never_kept(keep: bool) -> None:
    found = difference(_row(7, "old"), _row(7, "now", count=3, row_hash=6), _NOW, keep=keep)
    assert found is not None
    assert found.endswith("with the same query")
    # No rows hash to 0: the number alone tells them from rows whose hashes add up to 0.
    assert difference(_row(7, "o", 0, 0), _row(7, "n", 1, 0), _NOW, keep=keep) is not None


# --- any history ---------------------------------------------------------------------------------
_RUNS = st.sampled_from(["a", "b", "c"])
_SOME_ROW = st.none() | st.builds(_row, st.integers(0, 4), _RUNS)
_MARKS = st.none() | st.builds(
    RunMark, st.integers(0, 4), _RUNS, st.just(1), st.lists(_RUNS, max_size=2).map(tuple)
)
_NOWS = st.builds(CurrentTask, st.just(0), st.integers(0, 4), _RUNS, st.booleans())


@given(_SOME_ROW, _NOWS, _MARKS)
def test_no_batch_is_written_twice_and_only_a_runs_later_batches_end_themselves(
    row: ProgressRow | None, now: CurrentTask, mark: RunMark | None
) -> None:
    found = decide_task(row, now, mark)
    if isinstance(found, Write):
        assert row is None or row.batch_id < now.batch_id
        if found.ends_itself and now.is_repeatable:
            assert row is not None
            assert row.run_id == now.run_id
    if isinstance(found, Verify):
        assert found.row == row
        assert found.row.batch_id == now.batch_id
    fenced = after_fenced(row, now)
    if isinstance(fenced, Verify):
        assert (fenced.row.batch_id, fenced.row.run_id) == (now.batch_id, now.run_id)


class _Copy:
    """A run that writes batches of one task each."""

    def __init__(self, run: str) -> None:
        self.run, self.batch, self.is_stopped = run, 0, False


@given(st.lists(st.booleans(), max_size=40))
@example([False, True] * 20)
@example([False, False, True] * 10)
@example([False] * 5 + [True] * 8 + [False] * 5)
def test_two_copies_write_each_batch_once_and_one_is_stopped(turns: list[bool]) -> None:
    copies = _Copy("a"), _Copy("b")
    row: ProgressRow | None = None
    mark: RunMark | None = None
    written: list[int] = []
    for turn in turns:
        copy = copies[turn]
        if copy.is_stopped:
            continue
        now = CurrentTask(0, copy.batch, copy.run)
        found = decide_task(row, now, mark)
        leaves_open = isinstance(found, Write) and not found.ends_itself
        if leaves_open and row is not None and explain_foreign_row(row, now, mark):
            found = Fail("the driver's part")
        if isinstance(found, Fail):
            copy.is_stopped = True
            continue
        is_mine = isinstance(found, Verify) and found.row.run_id == copy.run
        if isinstance(found, Write):
            written.append(copy.batch)
            row = _row(copy.batch, copy.run)
        ends_itself = isinstance(found, Write) and found.ends_itself
        if not ends_itself and not is_mine and (mark is None or mark.run_id != copy.run):
            mark = RunMark.next_mark(mark, copy.batch, copy.run, 1)
        copy.batch += 1
    assert written == list(range(len(written)))
    changes = [a for a, b in itertools.pairwise(turns) if a != b]
    if len(changes) > 4:
        assert any(copy.is_stopped for copy in copies)
