"""The time until a consumer has a record, at 1, 10 and 100 thousand records a second.

``--plot`` draws the quantiles of both brokers into docs/images/latency.png, or into a FILE, whose
suffix chooses the format.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import _brokers
from benchmarks._brokers import KAFKA, KLOG, Side
from benchmarks._latency_plot import Curves, draw
from benchmarks._load.java_latency import Latencies, LatencyClients
from benchmarks._processes import cpu_seconds
from benchmarks._report import print_row
from benchmarks._turns import in_turns, median, progress, sized
from benchmarks.rows import Row
from tests.support.peers import ROOT

# Records a second, and the number that count: the slowest thousandth has 20 records at least.
_RECORDS = {1_000: 20_000, 10_000: 100_000, 100_000: 1_000_000}
_UNCOUNTED_S = 2
_QUANTILES = {"p50": "p50_ms", "p99": "p99_ms", "p99.9": "p999_ms"}
_BAR = 1.0
_PICTURE = ROOT / "docs" / "images" / "latency.png"


@dataclass(frozen=True)
class Run:
    latencies: Latencies
    broker_cores: float


def run(args: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    curves: Curves = {}
    with _brokers.both() as pair, LatencyClients() as clients:
        # A run with few records does not make the JVMs and klog compile all their code: use many
        # first.
        progress("what is compiled on the way")
        for side in (pair.klog, pair.kafka):
            _measure(side, clients, max(_RECORDS), sized(_RECORDS[max(_RECORDS)]))
        for per_second, records in _RECORDS.items():
            work = f"{per_second:,} records a second"
            progress(work)
            klog, kafka = in_turns(
                *(
                    partial(_measure, side, clients, per_second, sized(records))
                    for side in (pair.klog, pair.kafka)
                )
            )
            rows += rows_of(work, klog, kafka)
            curves[work] = {KLOG: _curve(klog), KAFKA: _curve(kafka)}
    if args.plot is not None:
        draw(curves, Path(args.plot or _PICTURE))
    return rows


def _measure(side: Side, clients: LatencyClients, per_second: int, records: int) -> Run:
    uncounted = per_second * _UNCOUNTED_S
    with side.topic("latency") as topic:
        before_s = cpu_seconds(side.pid)
        measured = clients.run(side.bootstrap_servers, topic, per_second, uncounted, records)
        cpu_s = cpu_seconds(side.pid) - before_s
        side.expect_records(topic, uncounted + records)
    return Run(measured, cpu_s * per_second / (uncounted + records))


def rows_of(work: str, klog: Sequence[Run], kafka: Sequence[Run]) -> list[Row]:
    return [
        print_row(
            Row(
                f"{work}, {name}",
                "ms",
                median(_each(klog, figure)),
                median(_each(kafka, figure)),
                _BAR,
                lower_is_better=True,
                note=_cores_note(klog, kafka)
                if name == "p50"
                else _range_note(figure, klog, kafka),
            )
        )
        for name, figure in _QUANTILES.items()
    ]


def _each(runs: Sequence[Run], figure: str) -> list[float]:
    return [getattr(run.latencies, figure) for run in runs]


def _cores_note(klog: Sequence[Run], kafka: Sequence[Run]) -> str:
    both = (klog, kafka)
    clients = " / ".join(f"{median(_each(runs, 'client_cores')):.2f}" for runs in both)
    brokers = " / ".join(f"{median([run.broker_cores for run in runs]):.2f}" for runs in both)
    late = " / ".join(f"{max(_each(runs, 'late_ms')):.1f}" for runs in both)
    return (
        f"cores klog / peer: clients {clients}, broker {brokers}; "
        f"sent at most {late} ms later than due"
    )


def _range_note(figure: str, klog: Sequence[Run], kafka: Sequence[Run]) -> str:
    """The best and the worst turn of each broker."""
    ranges = " / ".join(
        f"{min(found):.2f} to {max(found):.2f}"
        for found in (_each(klog, figure), _each(kafka, figure))
    )
    return f"turns {ranges} ms"


def _curve(runs: Sequence[Run]) -> list[float]:
    """The median of each quantile over the runs."""
    by_place = zip(*(run.latencies.quantiles_ms for run in runs), strict=True)
    return [median(place) for place in by_place]
