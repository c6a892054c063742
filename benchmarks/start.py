"""Times of start, recovery and compilation, and memory when idle.

Rows for ``--rows``: start (to the first request), embedded, idle, recovery (after a kill),
partitions (many), compile (all kernels).
"""

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import klog_broker
import pyspark_klog
from benchmarks import _brokers, _restarts
from benchmarks._brokers import Side
from benchmarks._load.generator import Generator
from benchmarks._load.jobs import Messages, PipelinedProduce
from benchmarks._processes import resident_bytes
from benchmarks._report import print_row
from benchmarks._restarts import ManyPartitions
from benchmarks._turns import in_turns, median, progress, sized
from benchmarks.rows import Row
from pyspark_klog.protocol.apis.api_versions import ApiVersionsRequest
from pyspark_klog.protocol.headers import RequestHeader, encode_request
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.testing import Broker
from pyspark_klog.testing.ports import free_port

_START_DEADLINE_S = 60.0
_END_DEADLINE_S = 30.0
_COMPILE_DEADLINE_S = 300.0
_ASK_AGAIN_S = 0.002
_IDLE_S = 3.0
_MEGABYTE = 1e6
_LOAD_REQUESTS = 20_000
_RECOVERY_BYTES = 6_500_000_000
# The bars by number of partitions: a fifth of Kafka's time.
_RECOVERED = {6: 0.2, 200: 0.2}
_MANY = 10_000
_IDLE_CPU_S = 60.0
_FACTS_OF_MANY: tuple[tuple[str, str, Callable[[ManyPartitions], float]], ...] = (
    ("start after a stop", "s", lambda of: of.start_s),
    ("start after a kill", "s", lambda of: of.start_after_kill_s),
    ("stop", "s", lambda of: of.stop_s),
    ("resident", "MB", lambda of: of.resident_bytes / _MEGABYTE),
    ("descriptors", "", lambda of: of.descriptors),
    ("CPU when idle", "ms/s", lambda of: of.idle_cpu_ms_a_second),
)
# Every broker supports the oldest version.
_FIRST_REQUEST = encode_request(
    RequestHeader(ApiKey.API_VERSIONS, 0, 1, "klog-bench"), ApiVersionsRequest()
)


def run(args: argparse.Namespace) -> list[Row]:
    chosen = {name.strip() for name in args.rows.split(",") if name.strip()} or set(_WORK)
    unknown = sorted(chosen.difference(_WORK))
    if unknown:
        raise SystemExit(f"no such row: {', '.join(unknown)}; there are: {', '.join(_WORK)}")
    return [print_row(row) for name, work in _WORK.items() if name in chosen for row in work()]


def _start() -> Iterator[Row]:
    progress("start to first request")
    # A node of Kafka is formatted once; each start reuses the command line of its process.
    with _brokers.kafka_broker() as kafka:
        command = Path(f"/proc/{kafka.pid}/cmdline").read_bytes().decode().split("\0")[:-1]
        folder = Path(f"/proc/{kafka.pid}/cwd").resolve()
        os.kill(kafka.pid, signal.SIGTERM)
        _wait_until_closed(kafka.port)
        klog, peer = in_turns(_start_klog, lambda: _time_to_answer(command, kafka.port, folder))
    yield Row(
        "start to first request",
        "s",
        median(klog),
        median(peer),
        0.7,
        lower_is_better=True,
        bar_is_absolute=True,
        note="to the first answer; empty log, warm caches",
    )


def _start_klog() -> float:
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="klog-bench-") as folder:
        command = [sys.executable, "-P", "-m", "klog_broker", "--port", str(port)]
        return _time_to_answer([*command, "--data", f"{folder}/data"], port, Path(folder))


def _time_to_answer(command: Sequence[str], port: int, folder: Path) -> float:
    """Start a broker, return the seconds until it has answered a request, and end it."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
    )
    try:
        while not _answers(port):
            if process.poll() is not None:
                raise RuntimeError(f"{command[0]} ended with {process.returncode} at its start")
            if time.perf_counter() - start > _START_DEADLINE_S:
                raise RuntimeError(f"{command[0]} did not serve in {_START_DEADLINE_S:g} s")
            time.sleep(_ASK_AGAIN_S)
        return time.perf_counter() - start
    finally:
        process.terminate()
        try:
            process.wait(_END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(port: int) -> bool:
    # A port may open before the broker serves: only an answer counts.
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), timeout=5) as connection,
    ):
        connection.sendall(_FIRST_REQUEST)
        return len(connection.recv(4)) > 0
    return False


def _wait_until_closed(port: int) -> None:
    end = time.monotonic() + _END_DEADLINE_S
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except ConnectionRefusedError:
            return
        time.sleep(0.1)
    raise RuntimeError(f"the broker on port {port} did not end in {_END_DEADLINE_S:g} s")


def _embedded() -> Iterator[Row]:
    progress("embedded broker")

    def ready() -> float:
        start = time.perf_counter()
        with Broker():
            return time.perf_counter() - start

    (seconds,) = in_turns(ready)
    yield Row("testing.Broker() ready", "s", median(seconds), bar=0.7, lower_is_better=True)


def _idle() -> Iterator[Row]:
    progress("memory when idle")
    with _brokers.both() as pair, Generator() as generator:
        time.sleep(_IDLE_S)
        yield _memory("resident when idle, after the start", pair.klog, pair.kafka)
        version = pair.common_version(ApiKey.PRODUCE)
        for side in (pair.klog, pair.kafka):
            with side.topic("start") as topic:
                target = side.target(topic)
                generator.run(PipelinedProduce(target, version, 1, _LOAD_REQUESTS, Messages(1)))
        time.sleep(_IDLE_S)
        yield _memory("resident when idle, after pipelined produce", pair.klog, pair.kafka)


def _memory(work: str, klog: Side, kafka: Side) -> Row:
    own, peer = (resident_bytes(side.pid) / _MEGABYTE for side in (klog, kafka))
    return Row(work, "MB", own, peer, 160.0, lower_is_better=True, bar_is_absolute=True)


def _recovery() -> Iterator[Row]:
    for partitions, bar in _RECOVERED.items():
        size = sized(_RECOVERY_BYTES)
        progress(f"recovery of {size / 1e9:.2f} GB in {partitions} partitions")
        with _restarts.klog() as broker:
            klog = _restarts.recoveries(broker, size, partitions)
        with _restarts.kafka() as broker:
            peer = _restarts.recoveries(broker, size, partitions)
        yield Row(
            f"ready after a kill, {size / 1e9:.2f} GB unflushed in {partitions} partitions",
            "s",
            median(klog),
            median(peer),
            bar,
            lower_is_better=True,
            note="page cache warm, no checkpoint; to the first answer",
        )


def _many_partitions() -> Iterator[Row]:
    count = sized(_MANY)
    progress(f"{count:,} partitions")
    with _restarts.klog() as broker:
        klog = _restarts.many_partitions(broker, count, _IDLE_CPU_S)
    with _restarts.kafka() as broker:
        kafka = _restarts.many_partitions(broker, count, _IDLE_CPU_S)
    for work, unit, read in _FACTS_OF_MANY:
        own, peer = read(klog), read(kafka)
        yield Row(f"{count:,} partitions: {work}", unit, own, peer, 1.0, lower_is_better=True)


def _first_compile() -> Iterator[Row]:
    progress("first compile of all kernels")
    start = time.perf_counter()
    with _fresh_copy() as environment:
        for package in ("pyspark_klog", "klog_broker"):
            subprocess.run(
                [sys.executable, "-m", f"{package}.warm"],
                check=True,
                stdout=subprocess.DEVNULL,
                env=environment,
                cwd=environment["PYTHONPATH"],
                timeout=_COMPILE_DEADLINE_S,
            )
        seconds = time.perf_counter() - start
    yield Row(
        "first compile of all kernels",
        "s",
        seconds,
        bar=20.0,
        lower_is_better=True,
        note="python -m pyspark_klog.warm, then klog_broker.warm, on a copy without caches",
    )


@contextmanager
def _fresh_copy() -> Iterator[dict[str, str]]:
    """The environment of a process that finds both packages as on a new machine."""
    with tempfile.TemporaryDirectory(prefix="klog-bench-") as folder:
        for package in (pyspark_klog, klog_broker):
            source = Path(package.__path__[0])
            shutil.copytree(
                source, Path(folder, source.name), ignore=shutil.ignore_patterns("__pycache__")
            )
        yield {**os.environ, "PYTHONPATH": folder, "NUMBA_CACHE_DIR": f"{folder}/kernels"}


_WORK: dict[str, Callable[[], Iterator[Row]]] = {
    "start": _start,
    "embedded": _embedded,
    "idle": _idle,
    "recovery": _recovery,
    "partitions": _many_partitions,
    "compile": _first_compile,
}
