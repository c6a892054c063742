"""The rows and the plot of the latency benchmark; programs that respond with lines of JSON."""

import sys
from pathlib import Path

import pytest

from benchmarks import latency
from benchmarks._latency_plot import draw
from benchmarks._load.java_latency import Latencies
from benchmarks._load.jobs import LoadFailed
from benchmarks._load.pipe import Program


def run_of(p50_ms: float, p99_ms: float, p999_ms: float, late_ms: float = 0.1) -> latency.Run:
    measured = Latencies(
        p50_ms, p99_ms, p999_ms, 9.0, [p50_ms, p99_ms, p999_ms], late_ms, client_cores=0.5
    )
    return latency.Run(measured, broker_cores=0.25)


def test_rows_are_medians_of_the_turns() -> None:
    klog = [run_of(1, 4, 7), run_of(2, 5, 8, late_ms=3), run_of(9, 6, 9)]
    rows = latency.rows_of("a rate", klog, [run_of(4, 4, 4)])
    assert [(row.work, row.klog, row.peer) for row in rows] == [
        ("a rate, p50", 2, 4),
        ("a rate, p99", 5, 4),
        ("a rate, p99.9", 8, 4),
    ]
    assert [row.reached for row in rows] == [True, False, False]
    assert "broker 0.25 / 0.25; sent at most 3.0 / 0.1 ms later" in rows[0].note
    assert rows[1].note == "turns 4.00 to 6.00 / 4.00 to 4.00 ms"


def test_the_image_has_the_format_of_its_file_name(tmp_path: Path) -> None:
    curves = {rate: {"klog": [0.1, 0.2, 3.0], "Kafka": [0.2, 0.2, 1.0]} for rate in ("1", "10")}
    for name, begins in (("picture.png", b"\x89PNG"), ("picture.svg", b"<?xml")):
        draw(curves, tmp_path / "new" / name)
        assert (tmp_path / "new" / name).read_bytes().startswith(begins)


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        ('{"error": "record 2 came where 1 was expected"}', "record 2 came where 1 was expected"),
        ("", "the program ended: see what it printed above"),
    ],
)
def test_an_error_of_a_program_is_reported(answer: str, failure: str) -> None:
    source = f"import sys; sys.stdin.readline(); sys.stdout.write({answer!r})"
    with (
        Program("the program", [sys.executable, "-c", source]) as program,
        pytest.raises(LoadFailed, match=failure),
    ):
        program.send_line("a line", 20)
