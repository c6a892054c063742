"""How the benchmarks take turns, count CPU, and make rows of what they measured."""

import os
from pathlib import Path

import pytest

from benchmarks._load.jobs import Measured
from benchmarks._processes import cpu_seconds, resident_bytes
from benchmarks._report import load_note, median_of, per_cpu_second
from benchmarks._turns import in_turns, sized, turns
from benchmarks.rows import Row, table


class _Sides:
    """Two sides whose runs take a set time on a clock of their own."""

    def __init__(self, run_s: float) -> None:
        self.order = ""
        self._run_s = run_s
        self._now_s = 0.0

    def now_s(self) -> float:
        return self._now_s

    def run(self, name: str) -> str:
        self.order += name
        self._now_s += self._run_s
        return f"{name}{len(self.order)}"


def test_long_runs_alternate_the_first_side_and_warm_ups_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KLOG_BENCH_TURNS", "2")
    sides = _Sides(run_s=1.0)
    klog, peer = in_turns(
        lambda: sides.run("k"), lambda: sides.run("p"), warm_ups=2, now_s=sides.now_s
    )
    assert sides.order == "kpkp" + "kppk"
    assert (klog, peer) == (["k5", "k8"], ["p6", "p7"])


def test_a_short_run_is_repeated_in_its_turn_up_to_five_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KLOG_BENCH_TURNS", "1")
    sides = _Sides(run_s=0.01)
    (klog,) = in_turns(lambda: sides.run("k"), now_s=sides.now_s)
    assert sides.order == "k" + "kkkkk"
    assert len(klog) == 5


def test_turns_and_sizes_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KLOG_BENCH_TURNS", raising=False)
    monkeypatch.delenv("KLOG_BENCH_SIZE", raising=False)
    assert (turns(), sized(1000)) == (3, 1000)
    monkeypatch.setenv("KLOG_BENCH_TURNS", "0")
    monkeypatch.setenv("KLOG_BENCH_SIZE", "0.0001")
    assert (turns(), sized(1000)) == (1, 1)


def test_cpu_time_and_memory_come_from_proc(tmp_path: Path) -> None:
    folder = tmp_path / "17"
    folder.mkdir()
    # The command may hold anything; user and system time are fields 14 and 15.
    fields = " ".join(str(place) for place in range(4, 53))
    (folder / "stat").write_text(f"17 (a) b (c) S {fields}\n")
    (folder / "statm").write_text("900 50 7 1 0 3 0\n")
    assert cpu_seconds(17, tmp_path) == (14 + 15) / os.sysconf("SC_CLK_TCK")
    assert resident_bytes(17, tmp_path) == 50 * os.sysconf("SC_PAGE_SIZE")


def measured(
    seconds: float, broker_cpu_s: float, requests: int = 100, p99_us: float | None = None
) -> Measured:
    return Measured(
        seconds, seconds / 4, broker_cpu_s, requests, requests * 2, requests * 10, p99_us, p99_us
    )


def test_figures_are_medians_by_second_and_totals_by_cpu_second() -> None:
    runs = [measured(1.0, 0.5), measured(2.0, 1.0), measured(4.0, 3.5)]
    assert median_of(runs, "requests") == 50.0
    assert median_of(runs, "records") == 100.0
    assert per_cpu_second(runs, "log_bytes") == 3000 / 5.0
    assert per_cpu_second([measured(1.0, 0.0)], "requests") == 0.0


def test_the_note_says_what_generator_and_broker_used() -> None:
    note = load_note([measured(2.0, 1.0)], [measured(2.0, 3.0)])
    assert note == "cores klog / peer: generator 0.25 / 0.25, broker 0.50 / 1.50"
    timed = load_note([measured(1.0, 1.0, p99_us=1500)], [measured(1.0, 1.0, p99_us=3000)])
    assert timed.endswith("p50 and p99 in ms 1.50 and 1.50 / 3.00 and 3.00")


def test_a_bar_can_be_for_klogs_figure_in_a_row_with_a_peer() -> None:
    row = Row("start", "s", 0.5, 2.0, 0.7, lower_is_better=True, bar_is_absolute=True)
    assert row.reached is True
    line = table("start", [row]).splitlines()[-1]
    assert "0.25x" in line
    assert "<= 0.7 " in line
    above = Row("start", "s", 0.8, 2.0, 0.7, lower_is_better=True, bar_is_absolute=True)
    assert above.reached is False
