"""The latency of small requests during 100 metrics scrapes a second (10 and 2,000 partitions).

Both sides are klog: the scrapes go to the measured broker, or to another idle one. So both sides
share the machine with the scraper, which reads up to 60 MB/s. Kafka is no peer here, since it
exposes its metrics through JMX.
"""

import argparse
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException
from threading import Event, Thread

from benchmarks import _brokers
from benchmarks._brokers import Side
from benchmarks._load.jobs import LoadFailed
from benchmarks._load.steady import Steady, SteadyLoad
from benchmarks._report import p99_ms, print_row
from benchmarks._turns import in_turns, median, progress, sized
from benchmarks.rows import Row
from pyspark_klog.protocol.keys import ApiKey

_PARTITIONS = (10, 2_000)
_SCRAPES_PER_S = 100.0
# The time of scrapes for either side in a turn.
_SECONDS = 10.0
_LEAST_S = 2.0
_SETTLING_S = 0.5
_PAIRS_PER_S = 200.0
_BAR = 1.1
_SETTINGS = {"metrics.listener": "127.0.0.1:0"}
_PORT = re.compile(r"metrics host=\S+ port=(\d+)")


def run(_: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    with (
        _brokers.klog_broker(_SETTINGS) as klog,
        _brokers.klog_broker(_SETTINGS) as other,
        SteadyLoad() as load,
    ):
        ports = _port(klog), _port(other)
        for partitions in _PARTITIONS:
            with klog.topic("metrics", partitions), other.topic("metrics", partitions):
                rows += _beside_scrapes(klog, load, ports, partitions)
    return rows


def _port(klog: Side) -> int:
    found = _PORT.search(klog.output())
    if found is None:
        raise LoadFailed("the broker has not said where it tells metrics")
    return int(found[1])


@dataclass(frozen=True)
class _Waits:
    """p99 in ms of Produce and of Fetch, during scrapes and without.

    ``samples`` counts requests; ``text_bytes`` is the size of a scrape.
    """

    during: tuple[float, float]
    without: tuple[float, float]
    samples: int
    scrapes_per_s: float
    text_bytes: int


def _beside_scrapes(
    klog: Side, load: SteadyLoad, ports: tuple[int, int], partitions: int
) -> Iterator[Row]:
    progress(f"{partitions:,} partitions: small requests beside scrapes")
    own, others = in_turns(*(partial(_turn, klog, load, port) for port in ports))
    for place, name in enumerate(("Produce", "Fetch")):
        itself, other = (median([each.during[place] for each in runs]) for runs in (own, others))
        without = median([each.without[place] for each in (*own, *others)])
        note = f"both klog's: it is scraped / another broker is; {without:.2f} ms without scrapes; "
        note += f"{own[0].samples:,} requests; {median([each.scrapes_per_s for each in own]):.0f} "
        note += f"scrapes/s of {own[0].text_bytes / 1000:,.0f} KB"
        work = f"{name} beside {_SCRAPES_PER_S:.0f} scrapes/s of {partitions:,} partitions"
        yield print_row(Row(work, "p99 ms", itself, other, _BAR, lower_is_better=True, note=note))


def _turn(klog: Side, load: SteadyLoad, port: int) -> _Waits:
    """Measure quiet, scrapes, and quiet again, under one steady load."""
    seconds = max(_LEAST_S, sized(int(_SECONDS * 1000)) / 1000)
    versions = klog.newest_version(ApiKey.PRODUCE), klog.newest_version(ApiKey.FETCH)
    with klog.topic("steady") as small:
        load.start_load(Steady(klog.target(small), *versions, _PAIRS_PER_S))
        try:
            before = _window(seconds / 2)
            with _scraping(port) as scraper:
                beside = _window(seconds)
            after = _window(seconds / 2)
        finally:
            samples = load.stop_load()
    during, count = p99_ms(samples, [beside])
    without, _ = p99_ms(samples, [before, after])
    return _Waits(during, without, count, scraper.rate(), scraper.text_bytes)


def _window(seconds: float) -> tuple[float, float]:
    """Let time pass; return its start and end, after a pause to settle."""
    time.sleep(_SETTLING_S)
    began_s = time.monotonic()
    time.sleep(seconds)
    return began_s, time.monotonic()


class _Scraper:
    """Scrapes on one connection, in a thread of its own."""

    def __init__(self, port: int) -> None:
        self.text_bytes = 0
        self._port = port
        self._scrapes = 0
        self._seconds = 0.0
        self._error: Exception | None = None
        self._is_over = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def rate(self) -> float:
        """Scrapes a second, after the end."""
        return self._scrapes / self._seconds

    def stop_scraping(self) -> None:
        self._is_over.set()
        self._thread.join()
        if self._error is not None:
            raise LoadFailed(f"scraping: {self._error!r}")

    def _run(self) -> None:
        began_s = due_s = time.monotonic()
        connection = HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            while not self._is_over.is_set():
                time.sleep(max(due_s - time.monotonic(), 0))
                connection.request("GET", "/metrics")
                answer = connection.getresponse()
                self.text_bytes = len(answer.read())
                if answer.status != 200:
                    raise LoadFailed(f"status {answer.status}")
                self._scrapes += 1
                due_s += 1 / _SCRAPES_PER_S
        except (OSError, HTTPException, LoadFailed) as error:
            self._error = error
        finally:
            self._seconds = time.monotonic() - began_s
            connection.close()


@contextmanager
def _scraping(port: int) -> Iterator[_Scraper]:
    scraper = _Scraper(port)
    try:
        yield scraper
    finally:
        scraper.stop_scraping()
