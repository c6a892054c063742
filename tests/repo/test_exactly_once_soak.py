"""The soak of the exactly-once sink: its plan, and its findings in a copy."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak.copies import Copied, by_key, problems_of_copy, problems_of_ends
from tests.soak.process_faults import (
    MASTERS,
    POINTS,
    QUERIES,
    Fault,
    Kind,
    faults,
    long_plan,
    short_plan,
)
from tests.soak.refusals import failure_of
from tests.soak.traps import FOLDER_VARIABLE, Action, Point, Traps, reach


# --- the plan ------------------------------------------------------------------------------
def _planned(minutes: float, seed: int, fault_s: float = 15) -> list[Fault]:
    """The faults of a soak in which each takes so long."""
    clock_s = [100.0]
    planned = []
    for fault in long_plan(minutes, seed, lambda: clock_s[0]):
        planned.append(fault)
        clock_s[0] += fault_s
    return planned


@pytest.mark.parametrize("seed", range(5))
def test_twenty_minutes_have_every_kind_of_fault_evenly(seed: int) -> None:
    planned = _planned(20, seed)
    assert len(planned) == 20 * 60 / 15
    for kind in Kind:
        assert sum(fault.kind is kind for fault in planned) == 10
    assert {fault.master for fault in planned} == set(MASTERS)
    assert {fault.query for fault in planned} == set(QUERIES)


def test_every_point_of_every_kind_comes_before_one_comes_again() -> None:
    cycles = faults(3)
    longest = max(map(len, POINTS.values()))
    planned = [fault for _, cycle in zip(range(longest), cycles, strict=False) for fault in cycle]
    for kind, points in POINTS.items():
        found = [fault.point for fault in planned if fault.kind is kind]
        assert set(found[: len(points)]) == set(points)
    assert {fault.point for fault in planned} == {None, *Point}


def test_a_soak_has_every_kind_once_however_short_it_is() -> None:
    assert sorted(fault.kind.name for fault in _planned(0.1, 1)) == sorted(k.name for k in Kind)


def test_a_seed_gives_the_same_plan_and_another_one_another() -> None:
    assert _planned(20, 1) == _planned(20, 1)
    assert _planned(20, 1) != _planned(20, 2)


def test_the_short_form_kills_a_driver_a_worker_a_committer_and_the_broker() -> None:
    kinds = {fault.kind for fault in short_plan()}
    assert {Kind.WORKER, Kind.COMMITTER, Kind.BROKER, Kind.ASLEEP, Kind.ZOMBIE} <= kinds


# --- the checks ------------------------------------------------------------------------------
_SOURCE = {b"a": [0, 2, 4, 6], b"b": [1, 3, 5]}
_COPY = [
    Copied(0, offset, key, number)
    for offset, (key, number) in enumerate(
        [(b"a", 0), (b"b", 1), (b"b", 3), (b"a", 2), (b"a", 4), (b"b", 5), (b"a", 6)]
    )
]


def _copy(*numbers: int) -> list[Copied]:
    """A copy into one partition, even numbers under the one key and odd ones under the other."""
    keys = [b"ab"[n % 2 : n % 2 + 1] for n in numbers]
    return [Copied(0, o, k, n) for o, (k, n) in enumerate(zip(keys, numbers, strict=True))]


def test_a_copy_with_every_record_once_and_in_order_per_key_is_right() -> None:
    assert problems_of_copy(_SOURCE, _COPY, "t") == []
    assert problems_of_copy(_SOURCE, _copy(1, 3, 0, 2, 5, 4, 6), "t") == []
    two = [record._replace(partition=int(record.key == b"b")) for record in _COPY]
    assert problems_of_copy(_SOURCE, two[::-1], "t") == []


@pytest.mark.parametrize(
    ("numbers", "problems"),
    [
        ((0, 1, 2, 3, 4, 5), ["t: 1 records lost: 6 of key a"]),
        (
            (),
            ["t: 7 records lost: 0 of key a, 2 of key a, 4 of key a, 6 of key a, 1 of key b, ..."],
        ),
        ((0, 1, 2, 2, 3, 4, 5, 6), ["t: 1 records doubled: 2 of key a at 0@2 0@3"]),
        # A batch that was written again behind the next one: doubled, and in order but for that.
        (
            (0, 1, 2, 3, 4, 5, 6, 2, 3),
            ["t: 2 records doubled: 2 of key a at 0@2 0@7, 3 of key b at 0@3 0@8"],
        ),
        ((0, 1, 4, 3, 2, 5, 6), ["t: out of order: key a has 4 for 2"]),
        ((0, 1, 2, 3, 4, 5, 6, 8), ["t: 1 records not in the source: 8 of key a at 0@7"]),
        # One is lost and another one doubled: the count alone is right.
        (
            (0, 1, 2, 3, 3, 5, 6),
            [
                "t: 1 records doubled: 3 of key b at 0@3 0@4",
                "t: 1 records lost: 4 of key a",
            ],
        ),
    ],
)
def test_what_is_wrong_with_a_copy_is_named(numbers: tuple[int, ...], problems: list[str]) -> None:
    assert problems_of_copy(_SOURCE, _copy(*numbers), "t") == problems


def test_every_mutant_of_a_copy_is_found() -> None:
    """Any record of it doubled, lost, under another key, in another partition, or changed with the
    next one of its key."""
    for at, record in enumerate(_COPY):
        rest = _COPY[:at] + _COPY[at + 1 :]
        for mutant in (
            [*_COPY, record._replace(offset=7)],
            rest,
            [*rest, record._replace(key=b"b" if record.key == b"a" else b"a")],
            [*rest, record._replace(partition=1)],
        ):
            assert problems_of_copy(_SOURCE, mutant, "t") != []
        later = [other for other in _COPY[at + 1 :] if other.key == record.key]
        if later:
            swapped = [other for other in rest if other != later[0]]
            swapped += [
                record._replace(number=later[0].number),
                later[0]._replace(number=record.number),
            ]
            assert problems_of_copy(_SOURCE, swapped, "t") != []


def test_a_key_in_two_partitions_is_named() -> None:
    moved = [r._replace(partition=1) if r.number == 6 else r for r in _COPY]
    assert problems_of_copy(_SOURCE, moved, "t") == ["t: key a is in partitions [0, 1]"]


def test_the_order_of_a_key_is_that_of_its_partition() -> None:
    records = [Copied(1, 3, b"a", 9), Copied(0, 8, b"b", 5), Copied(1, 2, b"a", 7)]
    assert by_key(records) == {b"b": [5], b"a": [7, 9]}


def test_a_transaction_that_stays_open_is_named() -> None:
    assert problems_of_ends({0: 5, 1: 7}, {0: 5, 1: 7}, "t") == []
    assert problems_of_ends({0: 5, 1: 4}, {0: 5, 1: 7}, "t") == [
        "t: partition 1: committed records end at 4, and the log at 7: a transaction is open"
    ]


# --- the traps ------------------------------------------------------------------------------
@pytest.fixture
def traps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Traps:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    return Traps(tmp_path)


def test_a_trap_hits_one_process_at_its_point(
    traps: Traps, monkeypatch: pytest.MonkeyPatch
) -> None:
    hit = []
    monkeypatch.setattr(os, "kill", lambda pid, number: hit.append((pid, number)))
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    traps.arm(Point.ROW_WRITTEN, Action.KILL)
    reach(Point.TASK_ENDED)
    assert hit == [] and traps.sprung(Point.ROW_WRITTEN) is None
    (traps.folder / f"wake.{os.getpid()}").touch()
    reach(Point.ROW_WRITTEN)
    reach(Point.ROW_WRITTEN)
    assert hit == [(os.getpid(), signal.SIGKILL)]
    assert traps.sprung(Point.ROW_WRITTEN) == os.getpid()
    traps.disarm()
    assert traps.sprung(Point.ROW_WRITTEN) is None


def test_a_process_that_was_stopped_stays_so_until_it_is_woken(
    traps: Traps, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops = []

    def kill(pid: int, number: int) -> None:
        """The system wakes the process twice, then the soak does."""
        stops.append(number)
        if len(stops) == 3:
            (traps.folder / f"wake.{pid}").touch()

    monkeypatch.setattr(os, "kill", kill)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    traps.arm(Point.HANDED_OVER, Action.STOP)
    reach(Point.HANDED_OVER)
    assert stops == [signal.SIGSTOP] * 3
    # The next time the same process is stopped again.
    stops.clear()
    traps.arm(Point.HANDED_OVER, Action.STOP)
    reach(Point.HANDED_OVER)
    assert stops == [signal.SIGSTOP] * 3


def test_a_note_that_is_half_written_is_not_read(traps: Traps) -> None:
    notes = traps.folder / "notes.jsonl"
    notes.write_text('{"at_s": 1.5, "pid": 7, "did": "write"}\n{"at_s": 1.6, "pi')
    assert traps.calls() == [(7, "write")]


def test_a_process_that_is_gone_needs_no_waking(traps: Traps) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    traps.wake(gone.pid)


# --- failures ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "failure"),
    [
        (
            "... ExactlyOnceRefused: task 1 ...: the batch was cut into other tasks then",
            "OTHER_ROWS",
        ),
        ("the transaction of task 0 is not open any more: it took longer than", "ENDED_EARLY"),
        (
            "1 of 4 transactions of tasks were committed, and committing the next one failed",
            "CUT_SHORT",
        ),
        ("SparkException: Python worker exited unexpectedly (crashed)", "LOST"),
        ("two queries run with one checkpoint, or with copies of it", "UNKNOWN"),
    ],
)
def test_failures_are_distinguished_by_their_text(text: str, failure: str) -> None:
    """A refusal counts as one also where its text tells of a process that was killed."""
    assert failure_of(text).name == failure
    if failure != "UNKNOWN":
        assert failure_of(f"Python worker exited unexpectedly: {text}").name == failure
