"""Restarts of brokers on their data: how long they take, and what an idle broker costs.

Each broker works on a folder of its own, filled by the same load; the other one does not run.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import _brokers
from benchmarks._brokers import Side
from benchmarks._load.generator import Generator
from benchmarks._load.jobs import Messages, PipelinedProduce
from benchmarks._processes import cpu_seconds, resident_bytes
from benchmarks._turns import turns
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.testing import Broker
from tests.support.peers import KafkaServer

# The deadline allows for thousands of logs after a kill, on a busy machine.
_START_DEADLINE_S = 600.0
_BATCH_MESSAGES = 80
_REQUEST_BYTES = 16_600
_CLIENT = {"request.timeout.ms": "300000", "default.api.timeout.ms": "300000"}
_RECOVERY_POINTS = "recovery-point-offset-checkpoint"
_READ_BYTES = 8 << 20
_TOPIC_PARTITIONS = 1000
_SETTLING_S = 10.0


@dataclass(frozen=True)
class Restartable:
    """A broker that can be killed or stopped, and started again."""

    side: Side
    kill_and_start: Callable[[Callable[[], None]], int]
    """Kills the broker, calls the argument, starts the broker again; returns its new process id."""
    stop: Callable[[], None]
    start: Callable[[], int]


@contextmanager
def klog() -> Iterator[Restartable]:
    broker = Broker(start_timeout_s=_START_DEADLINE_S, stop_timeout_s=_START_DEADLINE_S)

    def start() -> int:
        broker.start()
        return broker.pid

    def again(meanwhile: Callable[[], None]) -> int:
        broker.kill()
        meanwhile()
        return start()

    with broker, _side(_brokers.KLOG, broker.bootstrap_servers, broker.pid, broker.data) as side:
        yield Restartable(side, again, broker.stop, start)


@contextmanager
def kafka() -> Iterator[Restartable]:
    server = KafkaServer(heap_mb=1024, start_deadline_s=_START_DEADLINE_S)

    def start() -> int:
        server.start_again()
        return server.pid

    def again(meanwhile: Callable[[], None]) -> int:
        server.restart(meanwhile)
        return server.pid

    with server, _side(_brokers.KAFKA, server.bootstrap_servers, server.pid, server.log_dir) as s:
        yield Restartable(s, again, server.shut_down, start)


@contextmanager
def _side(name: str, servers: str, pid: int, data: Path) -> Iterator[Side]:
    host, _, port = servers.rpartition(":")
    with BlockingClient({"bootstrap.servers": servers, **_CLIENT}) as client:
        yield Side(name, host, int(port), pid, data, client, lambda: "")


def recoveries(broker: Restartable, total_bytes: int, partitions: int) -> list[float]:
    """Seconds to the first answer after kills, without a checkpoint: all bytes are scanned."""
    side = broker.side
    topic = side.create_topic("recovery", partitions)
    version = side.newest_version(ApiKey.PRODUCE)
    requests = max(1, total_bytes // partitions // _REQUEST_BYTES)
    with Generator() as generator:
        for partition in range(partitions):
            target = side.target(topic, partition)
            messages = Messages(_BATCH_MESSAGES)
            generator.run(PipelinedProduce(target, version, 1, requests, messages))
    seconds = []
    for _ in range(turns() + 1):
        began_s = 0.0

        def prepare() -> None:
            nonlocal began_s
            (side.data / _RECOVERY_POINTS).unlink(missing_ok=True)
            _read(side.data)
            began_s = time.perf_counter()

        broker.kill_and_start(prepare)
        seconds.append(time.perf_counter() - began_s)
    return seconds[1:]


def _read(data: Path) -> None:
    """Sync the logs to the disk, and read them into the page cache."""
    for path in data.glob("*/*.log"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            while file.read(_READ_BYTES):
                pass


@dataclass(frozen=True)
class ManyPartitions:
    """The costs of a broker with many partitions and no requests."""

    start_s: float
    start_after_kill_s: float
    stop_s: float
    resident_bytes: int
    descriptors: int
    idle_cpu_ms_a_second: float


def many_partitions(broker: Restartable, count: int, idle_s: float) -> ManyPartitions:
    """Create empty partitions, then stop, start and kill the broker."""
    side = broker.side
    for first in range(0, count, _TOPIC_PARTITIONS):
        side.create_topic("many", min(_TOPIC_PARTITIONS, count - first))
    stop_s = _seconds(broker.stop)
    pid = 0

    def start() -> None:
        nonlocal pid
        pid = broker.start()

    start_s = _seconds(start)
    time.sleep(_SETTLING_S)
    before_s = cpu_seconds(pid)
    time.sleep(idle_s)
    idle = 1000 * (cpu_seconds(pid) - before_s) / idle_s
    resident, descriptors = resident_bytes(pid), len(list(Path(f"/proc/{pid}/fd").iterdir()))
    kill_s = _seconds(lambda: broker.kill_and_start(lambda: None))
    return ManyPartitions(start_s, kill_s, stop_s, resident, descriptors, idle)


def _seconds(call: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    call()
    return time.perf_counter() - began_s
