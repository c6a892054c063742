"""The soak: its plan, its reports of losses, and its distinction of growth from noise."""

import json
from pathlib import Path

import pytest

from tests.soak.plan import MOST_PARTITIONS, Kind, Step, When, long_plan, short_plan
from tests.soak.processes import Sample, descendants, growth_bytes
from tests.soak.records import Record, Seen, lost_of, problems_of, problems_of_start
from tests.support.process_table import Process


def _planned(minutes: float, seed: int, step_s: float = 8) -> tuple[list[Step], float]:
    """The steps of a soak in which each takes so long beside its own time, and their end."""
    clock_s = [100.0]
    steps = []
    for step in long_plan(minutes, seed, lambda: clock_s[0]):
        steps.append(step)
        clock_s[0] += step.seconds + step_s * (step.kind is not Kind.STEADY)
    return steps, clock_s[0] - 100


@pytest.mark.parametrize("seed", range(5))
def test_twenty_minutes_have_every_fault_at_every_moment(seed: int) -> None:
    steps, took_s = _planned(20, seed)
    assert {step.kind for step in steps} == set(Kind)
    assert {step.when for step in steps if step.kind is Kind.LATEST} == set(When)
    assert took_s == pytest.approx(20 * 60)
    added = sum(step.kind is Kind.ADD_PARTITION for step in steps)
    assert 3 + added <= MOST_PARTITIONS
    # Memory is compared over the longest time without a fault.
    assert steps[-1].kind is Kind.STEADY
    assert 270 < steps[-1].seconds <= 300


def test_a_soak_has_every_fault_once_however_short_or_slow_it_is() -> None:
    for minutes, step_s in ((0.5, 8), (20, 600)):
        steps, _ = _planned(minutes, 3, step_s)
        assert {step.kind for step in steps} == set(Kind)
        assert steps[-1].seconds == pytest.approx(minutes * 60 / 8)


def test_a_seed_gives_the_same_plan_and_another_one_another() -> None:
    assert _planned(20, 1) == _planned(20, 1)
    assert _planned(20, 1) != _planned(20, 2)


def test_the_short_form_has_every_fault() -> None:
    assert {step.kind for step in short_plan()} == set(Kind) - {Kind.STEADY}


def _seen(*batches: list[tuple[int, int, int]]) -> Seen:
    seen = Seen()
    for number, batch in enumerate(batches):
        seen.batches[number] = [[Record(*record) for record in batch]]
    return seen


_LOG = {0: [0, 2, 4], 1: [1, 3]}


def test_what_is_seen_once_is_right() -> None:
    seen = _seen([(0, 0, 0), (1, 0, 1)], [], [(0, 1, 2), (0, 2, 4), (1, 1, 3)])
    assert problems_of(seen, {}, _LOG) == []
    later = _seen([], [(0, 1, 2), (0, 2, 4), (1, 0, 1), (1, 1, 3)])
    assert problems_of(later, {0: 1}, _LOG) == []


@pytest.mark.parametrize(
    ("batches", "problem"),
    [
        ([[(0, 0, 0), (0, 1, 2), (1, 0, 1), (1, 1, 3)]], "1 records never seen: 0@2"),
        ([[(0, 0, 0), (0, 1, 2), (0, 2, 4), (1, 0, 1), (1, 1, 3)], [(1, 1, 3)]], "twice by batch"),
        ([[(0, 0, 0), (0, 1, 2), (0, 2, 5), (1, 0, 1), (1, 1, 3)]], "with another number: 0@2"),
        ([[(0, n, 2 * n) for n in range(4)] + [(1, 0, 1), (1, 1, 3)]], "not in the log: 0@3"),
    ],
)
def test_what_is_wrong_is_named(batches: list[list[tuple[int, int, int]]], problem: str) -> None:
    (found,) = problems_of(_seen(*batches), {}, _LOG)
    assert problem in found


def test_the_last_version_of_a_micro_batch_counts_and_must_be_as_the_first(tmp_path: Path) -> None:
    file = tmp_path / "main.jsonl"
    whole = [[0, 0, 0], [0, 1, 2], [0, 2, 4], [1, 0, 1], [1, 1, 3]]
    lines = [json.dumps({"batch": 0, "records": records}) for records in (whole, whole[::-1])]
    file.write_text("\n".join([*lines, '{"batch": 1, "rec']), encoding="utf-8")
    seen = Seen.read(file)
    assert seen.repeated == 1
    assert problems_of(seen, {}, _LOG) == []
    seen.batches[0].insert(0, [Record(0, 0, 0)])
    assert problems_of(seen, {}, _LOG) == ["micro-batch 0 had other records when it came again"]
    seen.batches[2] = [[]]
    assert "micro-batches are missing: 2 of 3" in problems_of(seen, {}, _LOG)


def test_a_query_that_saw_nothing_lost_everything(tmp_path: Path) -> None:
    (found,) = problems_of(Seen.read(tmp_path / "none"), {}, _LOG)
    assert found == "5 records never seen: 0@0, 0@1, 0@2, 1@0, 1@1"


def test_acknowledged_records_must_be_where_they_were_acknowledged() -> None:
    assert lost_of([Record(0, 1, 2), Record(1, -1, 3)], _LOG) == []
    assert lost_of([Record(0, 0, 2), Record(1, 2, 5), Record(1, -1, 9)], _LOG) == [
        "3 records acknowledged and not in the log: 0@0, 1@-1, 1@2"
    ]


@pytest.mark.parametrize(
    ("start", "durable", "problem"),
    [
        ({0: 5, 1: 7}, {0: 5, 1: 7}, None),
        ({0: 5, 1: 7}, None, None),
        (None, None, "never put its start into the checkpoint"),
        ({0: 6, 1: 7}, {0: 5, 1: 7}, "its start moved from {0: 5, 1: 7} to {0: 6, 1: 7}"),
        ({0: 4, 1: 7}, None, "it began at {0: 4, 1: 7}, and the log ended at {0: 5, 1: 7} before"),
        ({0: 5, 1: 10}, None, "it began at {0: 5, 1: 10}"),
        ({0: 5}, None, "it began at {0: 5}"),
    ],
)
def test_a_start_at_latest_lies_between_two_looks_and_does_not_move(
    start: dict[int, int] | None, durable: dict[int, int] | None, problem: str | None
) -> None:
    found = problems_of_start(start, durable, {0: 5, 1: 7}, {0: 9, 1: 9})
    if problem is None:
        assert found == []
    else:
        assert len(found) == 1 and problem in found[0]


def test_growth_is_distinguished_from_warming_up_and_from_peaks() -> None:
    flat = [Sample(n, {"source": 100 - max(10 - n, 0)}) for n in range(40)]
    flat[25] = Sample(25, {"source": 900})
    assert growth_bytes(flat, "source") == 0
    leak = [Sample(n, {"source": 100 + n}) for n in range(40)]
    assert growth_bytes(leak, "source") == 20
    assert growth_bytes(leak[:8], "source") is None
    assert growth_bytes(leak, "broker") is None


def test_descendants_are_found_through_the_tree() -> None:
    there = [Process(pid, parent, 0, "x") for pid, parent in [(2, 1), (3, 2), (4, 3), (5, 9)]]
    assert [process.pid for process in descendants(2, there)] == [3, 4]
