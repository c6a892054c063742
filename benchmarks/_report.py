"""Figures and notes of rows, computed from measurements."""

from collections.abc import Sequence

import numpy as np

from benchmarks._load.jobs import LoadFailed, Measured
from benchmarks._load.steady import Samples
from benchmarks._turns import median, progress
from benchmarks.rows import Row


def median_of(runs: Sequence[Measured], what: str) -> float:
    """The median of ``what`` ("records", "requests", "log_bytes") a second."""
    return median([getattr(run, what) / run.seconds for run in runs])


def per_cpu_second(runs: Sequence[Measured], what: str) -> float:
    """``what`` for each second of the broker's CPU, over all runs: its clock has steps of 10 ms."""
    cpu_s = sum(run.broker_cpu_s for run in runs)
    return sum(getattr(run, what) for run in runs) / cpu_s if cpu_s else 0.0


def load_note(klog: Sequence[Measured], peer: Sequence[Measured]) -> str:
    """The share of a core that the generator used, and the broker, for klog and then the peer."""
    shares = [
        " / ".join(f"{median([getattr(run, which) for run in runs]):.2f}" for runs in (klog, peer))
        for which in ("generator_cores", "broker_cores")
    ]
    note = f"cores klog / peer: generator {shares[0]}, broker {shares[1]}"
    if all(run.p99_us is not None for run in (*klog, *peer)):
        latencies = " / ".join(
            f"{median([run.p50_us or 0 for run in runs]) / 1000:.2f} and "
            f"{median([run.p99_us or 0 for run in runs]) / 1000:.2f}"
            for runs in (klog, peer)
        )
        note += f"; p50 and p99 in ms {latencies}"
    return note


def ceiling_note(
    klog: Sequence[Measured],
    ceiling: Sequence[Measured],
    what: str,
    unit: str,
    unit_size: float = 1,
) -> str:
    """The rate of a bare loop in the same turns, by time and by CPU, and klog's share of it."""
    most = median_of(ceiling, what)
    per_cpu = per_cpu_second(ceiling, what)
    note = f"a bare loop: {most / unit_size:,.0f} {unit}, of which klog has"
    note += f" {median_of(klog, what) / most:.2f}"
    if per_cpu:
        requests = per_cpu_second(ceiling, "requests")
        note += f"; {1e6 / requests:.1f} us of CPU a request, klog"
        note += f" {1e6 / max(per_cpu_second(klog, 'requests'), 1.0):.1f}"
    return note


def print_row(row: Row) -> Row:
    """Print the row's figures for a waiting person, and return the row: the table comes last."""
    peer = "" if row.peer is None else f", peer {row.peer:,.2f}"
    progress(f"  {row.work}: klog {row.klog:,.2f}{peer} {row.unit}")
    return row


def p99_ms(
    samples: Samples, windows: Sequence[tuple[float, float]]
) -> tuple[tuple[float, float], int]:
    """p99 of Produce and Fetch in ms for requests due in the windows, and their number."""
    whole = min(len(samples.produce_us), len(samples.fetch_us))
    due_s = np.array(samples.due_s[:whole])
    inside = np.zeros(whole, np.bool_)
    for start_s, end_s in windows:
        inside |= (due_s >= start_s) & (due_s < end_s)
    if not inside.any():
        raise LoadFailed("no request was due meanwhile: what is measured was over too soon")
    produce, fetch = (
        float(np.percentile(np.array(each[:whole])[inside], 99)) / 1000
        for each in (samples.produce_us, samples.fetch_us)
    )
    return (produce, fetch), int(inside.sum())
