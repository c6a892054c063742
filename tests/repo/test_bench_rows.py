"""The bench's rows: ratios, bars, and what a reader sees."""

import re
from pathlib import Path

import pytest

from benchmarks.__main__ import main, parse
from benchmarks.rows import Row, table

ROOT = Path(__file__).parents[2]


def test_a_ratio_is_klogs_figure_over_the_peers() -> None:
    assert Row("produce", "msg/s", klog=300.0, peer=100.0).ratio == 3.0
    assert Row("start", "s", klog=0.5).ratio is None
    assert Row("produce", "msg/s", klog=300.0, peer=0.0).ratio is None


@pytest.mark.parametrize(
    ("row", "reached"),
    [
        (Row("w", "u", klog=50.0, peer=1.0, bar=50.0), True),
        (Row("w", "u", klog=49.0, peer=1.0, bar=50.0), False),
        (Row("w", "u", klog=0.6, peer=1.0, bar=0.6, lower_is_better=True), True),
        (Row("w", "u", klog=0.8, bar=0.7, lower_is_better=True), False),
        (Row("w", "u", klog=0.8), None),
    ],
)
def test_a_bar_is_reached_or_missed(row: Row, reached: bool | None) -> None:
    assert row.reached is reached


def test_the_table_shows_figures_ratio_bar_and_verdict() -> None:
    rows = [
        Row("produce", "msg/s", klog=1_234_567.0, peer=1000.0, bar=50.0, note="generator 0.4 core"),
        Row("start", "s", klog=0.81, bar=0.7, lower_is_better=True),
    ]
    first, second = table("broker", rows).splitlines()[-2:]
    for part in ("1,234,567", "1,000", "1234.57x", ">= 50x", "reached", "generator 0.4 core"):
        assert part in first
    for part in ("0.81", "<= 0.7", "missed"):
        assert part in second


def test_a_name_without_a_benchmark_is_refused_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as refused:
        parse(["no_such_benchmark"])
    assert refused.value.code == 2
    assert "no such benchmark: no_such_benchmark; there are:" in capsys.readouterr().err


def test_the_list_is_printed_without_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert "rows" not in capsys.readouterr().out.split()


def test_the_page_says_of_each_bar_whether_it_was_missed() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:-1] for line in page.splitlines() if line.startswith("|")]
    assert all(len(row) == 5 for row in rows)  # work, klog, peer, ratio, date
    barred = [row for row in rows if re.search(r"[<>]=", row[3])]
    assert len(barred) >= 10
    for row in barred:
        bar = re.search(r"([<>]=)([\d.]+)(x?)[^:]*: (reached|missed)\)", row[3])
        assert bar is not None, row
        sign, text, is_ratio, verdict = bar.groups()
        figure = float(re.findall(r"-?[\d.]+", row[3] if is_ratio else row[1])[0])
        is_reached = figure >= float(text) if sign == ">=" else figure <= float(text)
        assert verdict == ("reached" if is_reached else "missed"), row


def test_the_figure_of_the_first_screen_is_that_of_the_page() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| `spark`: batch read,"))
    ratio = float(re.findall(r"([\d.]+)x", row)[0])
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    claimed = re.search(r"([\d.]+) times as fast as with Spark's own connector", readme)
    assert claimed is not None
    assert claimed[1] == f"{ratio:.1f}"
