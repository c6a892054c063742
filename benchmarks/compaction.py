"""Cleaning 2 GB of keyed log, plain and compressed, and the latency of small requests during it.

Rows for ``--rows``: plain, lz4, gzip, zstd (speed with 10 % and 50 % of the records surviving), and
p99_plain, p99_lz4, p99_gzip, p99_zstd (Produce and Fetch during a cleaning, 50 %).
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import _brokers, _keyed_log
from benchmarks._brokers import Pair, Side
from benchmarks._cleaning import BROKER_SETTINGS, Cleaned, clean, dirty_topic
from benchmarks._keyed_log import KeyedLog
from benchmarks._load.jobs import LoadFailed
from benchmarks._load.steady import Steady, SteadyLoad
from benchmarks._report import p99_ms, print_row
from benchmarks._turns import in_turns, median, progress, sized
from benchmarks.rows import Row
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.records.compression import Codec

# Together they take 2 GB in uncompressed batches.
_RECORDS = 11_600_000
_MEGABYTE = 1e6
_SURVIVING = (0.1, 0.5)
_CODECS = {"plain": Codec.NONE, "lz4": Codec.LZ4, "gzip": Codec.GZIP, "zstd": Codec.ZSTD}
_BARS = {Codec.NONE: 2.0, Codec.LZ4: 2.0, Codec.GZIP: 1.2, Codec.ZSTD: 1.2}
_P99 = "p99_"
_P99_SURVIVING = 0.5
_P99_BAR = 1.5
_PAIRS_PER_S = 200.0
_QUIET_S = 10.0
_LEAST_QUIET_S = 2.0
_SETTLING_S = 0.5
ROWS = (*_CODECS, *(f"{_P99}{name}" for name in _CODECS))


def run(args: argparse.Namespace) -> list[Row]:
    wanted = _wanted(args.rows)
    rows: list[Row] = []
    with ExitStack() as stack:
        pair = stack.enter_context(_brokers.both(BROKER_SETTINGS))
        load = stack.enter_context(SteadyLoad())
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="klog-bench-")))
        for name, codec in _CODECS.items():
            warm_ups = 1  # the code that a JVM has compiled for a codec serves the other share, too
            for surviving in _SURVIVING:
                with_p99 = surviving == _P99_SURVIVING and f"{_P99}{name}" in wanted
                if name not in wanted and not with_p99:
                    continue
                progress(f"{name}, {surviving:.0%}: making the log")
                log = _keyed_log.make(folder / "log", codec, surviving, sized(_RECORDS))
                work = f"{name}, {surviving:.0%} survive"
                if name in wanted:
                    rows += _speed(pair, log, work, warm_ups)
                    warm_ups = 0
                if with_p99:
                    rows += _latencies(pair, load, log, work, warm_ups)
                log.path.unlink()
    return rows


def _wanted(names: str) -> set[str]:
    chosen = {name.strip() for name in names.split(",") if name.strip()}
    unknown = sorted(chosen.difference(ROWS))
    if unknown:
        raise SystemExit(f"no such row: {', '.join(unknown)}; there are: {', '.join(ROWS)}")
    return chosen or set(ROWS)


# --- speed ----------------------------------------------------------------------------------------
def _speed(pair: Pair, log: KeyedLog, work: str, warm_ups: int) -> Iterator[Row]:
    progress(f"{work}: cleaning {sum(log.sizes) / _MEGABYTE:,.0f} MB")

    def measure(side: Side) -> Cleaned:
        with dirty_topic(side, log) as topic:
            return clean(side, topic, log)

    sides = [partial(measure, side) for side in (pair.klog, pair.kafka)]
    klog, kafka = in_turns(*sides, warm_ups=warm_ups)
    facts = {(each.log_bytes, each.kept_records) for each in (*klog, *kafka)}
    if len(facts) > 1:
        raise LoadFailed(f"{work}: the brokers cleaned different logs (bytes, kept): {facts}")
    ((log_bytes, kept),) = facts
    note = f"{log_bytes / _MEGABYTE:,.0f} MB of log, {log.plain_bytes / _MEGABYTE:,.0f} of keys "
    note += f"and values; {kept:,} of {len(log.keys):,} records kept, in "
    note += " / ".join(f"{each[0].kept_bytes / _MEGABYTE:,.0f}" for each in (klog, kafka))
    note += " MB; seconds "
    note += " / ".join(f"{median([run.seconds for run in each]):.2f}" for each in (klog, kafka))
    bar = _BARS[log.codec]
    yield print_row(Row(work, "MB/s", _rate(klog), _rate(kafka), bar, note=note))
    yield print_row(
        Row(
            work,
            "CPU ms/MB",
            _cpu_ms(klog),
            _cpu_ms(kafka),
            lower_is_better=True,
            note="CPU of the broker's process",
        )
    )


def _rate(runs: Sequence[Cleaned]) -> float:
    """MB of log a second, by the broker's own clock."""
    return median([run.log_bytes / run.seconds for run in runs]) / _MEGABYTE


def _cpu_ms(runs: Sequence[Cleaned]) -> float:
    log_bytes = sum(run.log_bytes for run in runs)
    return 1000 * sum(run.broker_cpu_s for run in runs) / (log_bytes / _MEGABYTE)


# --- latency during a cleaning --------------------------------------------------------------------
@dataclass(frozen=True)
class _Waits:
    """p99 in ms of Produce and of Fetch, during a cleaning and without; number of samples."""

    during: tuple[float, float]
    without: tuple[float, float]
    samples: int

    @property
    def ratios(self) -> list[float]:
        return [mine / other for mine, other in zip(self.during, self.without, strict=True)]


def _latencies(
    pair: Pair, load: SteadyLoad, log: KeyedLog, work: str, warm_ups: int
) -> Iterator[Row]:
    progress(f"{work}: small requests beside it")
    versions = pair.common_version(ApiKey.PRODUCE), pair.common_version(ApiKey.FETCH)
    sides = [
        partial(_beside_a_cleaning, side, load, log, versions) for side in (pair.klog, pair.kafka)
    ]
    klog, kafka = in_turns(*sides, warm_ups=warm_ups)
    for place, name in enumerate(("Produce", "Fetch")):
        during = median([run.during[place] for run in klog])
        without = median([run.without[place] for run in klog])
        theirs = [
            median([run.during[place] for run in kafka]),
            median([run.without[place] for run in kafka]),
        ]
        note = f"both klog's: beside a cleaning / without; {klog[0].samples:,} requests beside; "
        note += f"Kafka {theirs[0]:.2f} / {theirs[1]:.2f} ms, {theirs[0] / theirs[1]:.2f}x"
        ratios = ", ".join(f"{run.ratios[place]:.2f}" for run in klog)
        note += f"; turns {ratios}"
        row = f"{name} beside {work}"
        yield print_row(
            Row(row, "p99 ms", during, without, _P99_BAR, lower_is_better=True, note=note)
        )


def _beside_a_cleaning(
    side: Side, load: SteadyLoad, log: KeyedLog, versions: tuple[int, int]
) -> _Waits:
    """Measure quiet, a cleaning, and quiet again, under one steady load."""
    quiet_s = max(_LEAST_QUIET_S, sized(int(_QUIET_S * 1000)) / 1000)
    with dirty_topic(side, log) as topic, side.topic("steady") as small:
        load.start_load(Steady(side.target(small), *versions, _PAIRS_PER_S))
        time.sleep(_SETTLING_S)
        first_s = time.monotonic()
        try:
            time.sleep(quiet_s / 2)
            cleaned = clean(side, topic, log)
            time.sleep(_SETTLING_S)
            second_s = time.monotonic()
            time.sleep(quiet_s / 2)
        finally:
            samples = load.stop_load()
    before = first_s, first_s + quiet_s / 2
    after = second_s, second_s + quiet_s / 2
    during, count = p99_ms(samples, [(cleaned.began_s, cleaned.ended_s)])
    without, _ = p99_ms(samples, [before, after])
    return _Waits(during, without, count)
