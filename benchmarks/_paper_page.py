"""The tables of docs/paper.md, from the figures of `paper`."""

import os
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

from benchmarks._brokers import KLOG
from benchmarks._paper_logs import GENERATOR
from benchmarks._paper_report import (
    GOALS,
    PAPER_FIGURES,
    fastest_queue,
    is_queue,
)
from benchmarks._paper_runs import (
    BATCHES_OF_1,
    BATCHES_OF_50,
    CONSUMING,
    Figure,
    share_of_full_size,
)
from benchmarks._turns import turns

_HEADING = "## Results\n"
_CHART_TEXT = "Messages a second of each broker and client: batches of 1, batches of 50, consuming"


def write_results(page: Path, figures: Sequence[Figure], missing: Sequence[str]) -> None:
    """Replace the last section of the page."""
    before = page.read_text(encoding="utf-8").partition(_HEADING)[0]
    page.write_text(f"{before}{_HEADING}\n{results(figures, missing)}", encoding="utf-8")


def results(figures: Sequence[Figure], missing: Sequence[str]) -> str:
    """The section in Markdown, without its heading."""
    share = share_of_full_size()
    text = f"Measured on {date.today():%Y-%m-%d} on {os.cpu_count()} cores: "
    text += f"medians of {turns()} turns" if turns() > 1 else "one turn"
    text += ".\n" if share == 1 else f", with {share:g} of the messages: a quick look only.\n"
    if missing:
        text += f"Missing on this machine: {', '.join(missing)}.\n"
    text += f"\n![{_CHART_TEXT}](images/paper.svg)\n"
    return text + "".join(f"\n{part}" for part in _parts(figures))


def _parts(figures: Sequence[Figure]) -> Iterator[str]:
    known = [*figures, *PAPER_FIGURES]
    yield _table(("goal", "klog", "fastest broker with queues", "ratio"), _goals(figures))
    yield "Messages a second, produced (a time in parentheses: the runs of slow brokers):\n"
    head = ("broker", "client", "acks", BATCHES_OF_1, BATCHES_OF_50)
    yield _table(head, _produced(known))
    yield "Messages a second, consumed:\n"
    consumed = [each for each in known if each.subject.work == CONSUMING]
    rows = ((each.subject.broker, each.subject.client, _rate(each)) for each in consumed)
    yield _table(("broker", "client", CONSUMING), rows)
    yield "Bytes on disk for each message, beyond the 200 of its value:\n"
    yield _table(("broker", BATCHES_OF_1, BATCHES_OF_50), _overheads(known))


def _goals(figures: Sequence[Figure]) -> Iterator[Sequence[str]]:
    for klog in figures:
        subject = klog.subject
        if (subject.broker, subject.client) != (KLOG, GENERATOR):
            continue
        acks = "" if subject.acks is None else f", acks={subject.acks}"
        peer = fastest_queue(figures, subject.work)
        ratio = "no peer"
        named = ""
        if peer is not None:
            times = klog.per_second / peer.per_second
            verdict = "reached" if times >= GOALS[subject.work] else "missed"
            ratio = f"{times:.0f}x ({verdict})"
            named = f"{peer.subject.broker}: {_rate(peer)}"
        yield f"{subject.work}{acks}: >= {GOALS[subject.work]:.0f}x", _rate(klog), named, ratio


def _produced(figures: Sequence[Figure]) -> Iterator[Sequence[str]]:
    lines: dict[tuple[str, str, int | None], dict[str, str]] = {}
    for each in figures:
        if each.subject.work != CONSUMING:
            key = (each.subject.broker, each.subject.client, each.subject.acks)
            cells = lines.setdefault(key, {})
            cells[each.subject.work] = _rate(each)
            if is_queue(each):
                cells[BATCHES_OF_50] = "has none"
    for (broker, client, acks), cells in lines.items():
        awaited = "not awaited" if acks is None else str(acks)
        yield broker, client, awaited, cells[BATCHES_OF_1], cells.get(BATCHES_OF_50, "")


def _overheads(figures: Sequence[Figure]) -> Iterator[Sequence[str]]:
    lines: dict[str, dict[str, str]] = {}
    for each in figures:
        if each.overhead_bytes is not None:
            cells = lines.setdefault(each.subject.broker, {})
            cells.setdefault(each.subject.work, f"{each.overhead_bytes:.1f}")
    for broker, cells in lines.items():
        yield broker, cells.get(BATCHES_OF_1, ""), cells.get(BATCHES_OF_50, "")


def _rate(figure: Figure) -> str:
    time = f" ({figure.seconds:.0f} s)" if figure.is_short else ""
    return f"{figure.per_second:,.0f}{time}"


def _table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
