"""The parts of the demo that need neither Spark nor a broker."""

from pathlib import Path
from typing import Any

import pytest

from examples.flights.checkpoint import committed_offsets, read_checkpoint
from examples.flights.data import ROWS, extract_flights
from examples.flights.demo import differences
from examples.flights.progress import Progress
from examples.flights.report import table
from pyspark_klog.ids import TopicPartition

_ROW = {"origin": "EWR", "hour": 5, "flights": 9, "departed": 8, "delay_sum": 20, "late": 1}


def _checkpoint(folder: Path, planned: int, committed: int) -> Path:
    for log, count in (("offsets", planned), ("commits", committed)):
        (folder / log).mkdir()
        for number in range(count):
            text = f'v1\n{{}}\n{{"flights": {{"0": {number * 10}, "1": {number}}}}}'
            (folder / log / str(number)).write_text(text)
            (folder / log / f".{number}.crc").write_text("x")
    return folder


def test_a_checkpoint_says_which_batches_were_begun_and_which_are_done(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path).has_uncommitted is False
    assert committed_offsets(tmp_path) == {}
    _checkpoint(tmp_path, planned=12, committed=11)
    found = read_checkpoint(tmp_path)
    assert (found.planned[-1], found.committed[-1], found.has_uncommitted) == (11, 10, True)
    assert committed_offsets(tmp_path) == {
        TopicPartition("flights", 0): 100,
        TopicPartition("flights", 1): 10,
    }


def test_a_checkpoint_with_everything_done(tmp_path: Path) -> None:
    assert not read_checkpoint(_checkpoint(tmp_path, 3, 3)).has_uncommitted


def test_the_flights_are_found_without_importing_their_package(tmp_path: Path) -> None:
    with extract_flights(tmp_path).open(encoding="utf-8") as file:
        assert next(file).startswith("year,month,day,dep_time")
        assert sum(1 for _ in file) == ROWS


def _found(**changes: Any) -> dict[str, Any]:
    good = {"expected": ROWS, "count": ROWS, "missing": 0, "extra": 0}
    return good | {"in_topic": [_ROW], "in_file": [_ROW]} | changes


def test_what_is_wrong_is_said() -> None:
    assert differences(_found()) == []
    assert differences(_found(count=5)) == ["the first topic has 5 records"]
    assert differences(_found(missing=1, extra=2)) == ["1 flights are missing and 2 are too many"]
    assert len(differences(_found(in_topic=[{**_ROW, "delay_sum": 21}]))) == 1
    assert len(differences(_found(expected=3, count=3))) == 1


def test_the_table_shows_means_and_missing_cells() -> None:
    nobody_left = {**_ROW, "origin": "JFK", "hour": 6, "departed": 0}
    lines = table([_ROW, nobody_left]).splitlines()
    assert [line.split() for line in lines] == [
        ["hour", "EWR", "JFK"],
        ["flights", "mean", "delay", "flights", "mean", "delay"],
        ["5", "9", "2.5", "min", "-", "-"],
        ["6", "-", "-", "9", "none", "left"],
    ]
    assert len({len(line) for line in lines}) == 1


def test_progress_in_a_file_is_lines(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("processed", 100)
    progress.show(0, {0: 60, 1: 40})
    progress.show(50, {1: 30, 0: 20})
    progress.end()
    first, second = capsys.readouterr().out.splitlines()
    assert "Spark is starting" in first
    assert "50 of 100 " in second and second.endswith("lag p0:20 p1:30")
