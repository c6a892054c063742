"""Three klog brokers, and three of Kafka 3.9.1, each with a ZooKeeper: RF 3, min ISR 2, acks=all.

``--rows NAME,...`` selects from idle, produce, outstanding, catch_up, gaps and failover.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from threading import Thread

from benchmarks import _clusters
from benchmarks._broker_ends import beside_failover, controller_killed, gap
from benchmarks._clusters import BROKERS, ClusterPair, ClusterSide
from benchmarks._load.generator import Generator
from benchmarks._load.jobs import (
    ConcurrentProduce,
    LoadFailed,
    Measured,
    Messages,
    PipelinedProduce,
)
from benchmarks._memory import HeldMemory, held_memory
from benchmarks._processes import cpu_seconds, resident_bytes
from benchmarks._report import load_note, median_of, per_cpu_second, print_row
from benchmarks._turns import in_turns, median, progress, sized, turns
from benchmarks.rows import Row
from pyspark_klog.protocol.keys import ApiKey
from tests.support.kafka.zookeeper_cluster import SESSION_TIMEOUT_MS

_ACKS_ALL = -1
_GB = 1e9
_MB = 1e6
_PARTITIONS = 1_000
_ONE_OUTSTANDING = 4_000
# Kafka handles one request of a connection at a time: many connections show its full rate.
_CONNECTIONS = 50
_MANY_OUTSTANDING = 40_000
# Records of 200 bytes that make a batch of nearly 1 MB, message.max.bytes of both.
_MEGABYTE = Messages(4_900)
_CATCH_UP_BATCHES = 2_000
# Held pages are released this far ahead of the copy.
_AHEAD_BYTES = 256 * 2**20
_IDLE_S = 20.0
_SETTLING_S = 15.0
_DEADLINE_S = 120.0
_POLL_S = 0.002


@dataclass(frozen=True)
class _Case:
    work: str
    messages: Messages
    requests: int
    unit: str
    """The unit of the rate: "records" or "log_bytes"."""
    bar: float
    cpu_bar: float | None = None


_CASES = (
    _Case("batches of 1, pipelined", Messages(1), 10_000, "records", 10.0),
    _Case("batches of 50, pipelined", Messages(50), 4_000, "records", 3.0, 0.5),
    _Case("batches of 1 MB, pipelined", _MEGABYTE, 400, "log_bytes", 1.2),
)


def run(args: argparse.Namespace) -> list[Row]:
    parts: dict[str, Callable[[ClusterPair], Iterator[Row]]] = {
        "idle": _idle,
        "produce": _produce,
        "outstanding": _outstanding,
        "catch_up": _catch_up,
        "gaps": _gaps,
        "failover": _failover,
    }
    named = [each for each in args.rows.split(",") if each] or list(parts)
    unknown = sorted(set(named) - set(parts))
    if unknown:
        raise SystemExit(f"no such rows: {', '.join(unknown)}; there are: {', '.join(parts)}")
    rows: list[Row] = []
    with _clusters.both_clusters() as pair:
        for name, part in parts.items():
            if name in named:
                rows += part(pair)
    return rows


# --- what producers get ----------------------------------------------------------------------
def _produce(pair: ClusterPair) -> Iterator[Row]:
    version = pair.common_version(ApiKey.PRODUCE)
    with Generator() as generator:
        for case in _CASES:
            progress(case.work)

            def produce(side: ClusterSide, case: _Case = case) -> Measured:
                with side.topic("produce", BROKERS) as topic:
                    number = side.first_led(topic)
                    target = side.target(topic, number)
                    job = PipelinedProduce(target, version, _ACKS_ALL, 1, case.messages)
                    # Followers of a new topic may pause before they fetch, which the measurement
                    # must not include.
                    first = generator.run(job)
                    job = replace(job, requests=sized(case.requests), first_offset=first.records)
                    measured = generator.run(job)
                    side.expect_records(topic, first.records + measured.records, number)
                return measured

            klog, kafka = in_turns(*(partial(produce, side) for side in pair.sides))
            is_bytes = case.unit == "log_bytes"
            size = _MB if is_bytes else 1
            yield print_row(
                Row(
                    f"{case.work} (Produce {version})",
                    "MB/s" if is_bytes else "records/s",
                    median_of(klog, case.unit) / size,
                    median_of(kafka, case.unit) / size,
                    case.bar,
                    note=load_note(klog, kafka) + " (three)",
                )
            )
            yield print_row(
                Row(
                    f"{case.work}, all brokers",
                    "CPU s/GB",
                    _GB / max(per_cpu_second(klog, "log_bytes"), 1.0),
                    _GB / max(per_cpu_second(kafka, "log_bytes"), 1.0),
                    case.cpu_bar,
                    lower_is_better=True,
                    note="user and system time of the three processes; ZooKeeper is not in it",
                )
            )


def _outstanding(pair: ClusterPair) -> Iterator[Row]:
    version = pair.common_version(ApiKey.PRODUCE)
    with Generator() as generator:

        def produce(side: ClusterSide, connections: int, requests: int) -> Measured:
            with side.topic("outstanding", BROKERS) as topic:
                number = side.first_led(topic)
                job = ConcurrentProduce(
                    side.target(topic, number),
                    version,
                    _ACKS_ALL,
                    requests=1,
                    connections=1,
                    messages=Messages(1),
                )
                generator.run(job)
                job = replace(
                    job, requests=sized(requests), connections=connections, first_offset=1
                )
                measured = generator.run(job)
                side.expect_records(topic, 1 + measured.records, number)
            return measured

        progress("one outstanding request")
        klog, kafka = in_turns(
            *(partial(produce, side, 1, _ONE_OUTSTANDING) for side in pair.sides)
        )
        for which in ("p50", "p99"):
            work = f"one outstanding request of 1 record (Produce {version})"
            yield print_row(
                Row(
                    work,
                    f"ms {which}",
                    median([getattr(run, f"{which}_us") / 1000 for run in klog]),
                    median([getattr(run, f"{which}_us") / 1000 for run in kafka]),
                    1.0,
                    lower_is_better=True,
                    note=load_note(klog, kafka) if which == "p50" else "",
                )
            )
        progress(f"one outstanding request on each of {_CONNECTIONS} connections")
        many = (partial(produce, side, _CONNECTIONS, _MANY_OUTSTANDING) for side in pair.sides)
        klog, kafka = in_turns(*many)
        yield print_row(
            Row(
                f"{_CONNECTIONS} connections, one outstanding request of 1 record on each",
                "records/s",
                median_of(klog, "records"),
                median_of(kafka, "records"),
                note=load_note(klog, kafka),
            )
        )


# --- a follower that was away ----------------------------------------------------------------
@dataclass(frozen=True)
class _CaughtUp:
    log_bytes: int
    copying_s: float
    """The time from the first byte copied to the last."""
    whole_s: float
    """The time from the start of the process until the follower was in sync."""
    cpu_s: float


def _catch_up(pair: ClusterPair) -> Iterator[Row]:
    version = pair.common_version(ApiKey.PRODUCE)
    progress("catching up")
    with Generator() as generator:
        both = in_turns(*(partial(_follower_back, side, generator, version) for side in pair.sides))
    note = "; ".join(
        f"{name} in sync {median([each.whole_s for each in runs]):.1f} s after the start of its "
        f"process, {median([each.cpu_s for each in runs]):.1f} s of CPU"
        for name, runs in zip(("klog", "Kafka"), both, strict=True)
    )
    rates = [[each.log_bytes / each.copying_s / _MB for each in runs] for runs in both]
    each = " / ".join(", ".join(f"{rate:,.0f}" for rate in runs) for runs in rates)
    work = f"catching up {both[0][0].log_bytes / _GB:.1f} GB"
    klog, kafka = map(median, rates)
    note = f"first byte to last; each {each} MB/s; {note}"
    yield print_row(Row(work, "MB/s", klog, kafka, 1.5, note=note))


def _follower_back(side: ClusterSide, generator: Generator, version: int) -> _CaughtUp:
    controller = side.controller()
    with side.topic("away", BROKERS) as topic:
        number, info = next(
            (number, info)
            for number, info in side.partitions(topic).items()
            if info.leader == controller
        )
        away = next(each for each in info.replicas if each != controller)
        node = side.nodes[away]
        target = side.target(topic, number)
        node.stop()
        running = tuple(n.pid() for i, n in side.nodes.items() if i not in (away, controller))
        log = node.data / f"{topic}-{number}"

        def size() -> int:
            return sum(each.stat().st_size for each in log.glob("*.log"))

        before = size()
        job = PipelinedProduce(
            replace(target, other_pids=running), version, 1, sized(_CATCH_UP_BATCHES), _MEGABYTE
        )
        filled = generator.run(job)
        times: list[float] = []

        def watch(memory: HeldMemory) -> None:
            end_s = time.monotonic() + _DEADLINE_S
            while size() == before and time.monotonic() < end_s:
                time.sleep(_POLL_S)
            times.append(time.monotonic())
            while (left := before + filled.log_bytes - size()) > 0 and time.monotonic() < end_s:
                memory.keep(left)
                time.sleep(_POLL_S)
            times.append(time.monotonic())

        with held_memory(filled.log_bytes + _AHEAD_BYTES) as memory:
            watcher = Thread(target=watch, args=(memory,))
            watcher.start()
            began_s = time.monotonic()
            node.start()
            watcher.join()
        side.wait_until_whole(topic)
        whole_s = time.monotonic() - began_s
        if size() < before + filled.log_bytes:
            raise LoadFailed(f"{side.name}: the follower has {size()} of {filled.log_bytes} bytes")
        first_s, last_s = times
        return _CaughtUp(filled.log_bytes, last_s - first_s, whole_s, cpu_seconds(node.pid()))


# --- brokers that stop -----------------------------------------------------------------------
def _gaps(pair: ClusterPair) -> Iterator[Row]:
    version = pair.common_version(ApiKey.PRODUCE)
    for is_kill, signal in ((False, "SIGTERM"), (True, "kill -9")):
        progress(f"{signal} of a leader")
        measure = (partial(gap, side, version, is_kill) for side in pair.sides)
        klog, kafka = in_turns(*measure, warm_ups=0)
        both = klog, kafka
        longest = " / ".join(
            ", ".join(f"{each.longest_s * 1000:,.0f}" for each in runs) for runs in both
        )
        if is_kill:
            work, what = "kill -9 of a leader: from its znode gone to the next ack", "beyond_s"
            note = f"whole gaps {longest} ms; sessions of {SESSION_TIMEOUT_MS:,} ms"
        else:
            work, what = "SIGTERM of a leader: longest gap between acks", "longest_s"
            note = f"each {longest} ms"
        figures = (
            median([getattr(each, what) * 1000 for each in klog]),
            median([getattr(each, what) * 1000 for each in kafka]),
        )
        yield print_row(Row(work, "ms", *figures, 1.0, lower_is_better=True, note=note))


# --- many partitions -------------------------------------------------------------------------
def _idle(pair: ClusterPair) -> Iterator[Row]:
    progress(f"{_PARTITIONS:,} idle partitions")
    topics = [side.create_topic("idle", _PARTITIONS) for side in pair.sides]
    time.sleep(_SETTLING_S)
    pids = [[node.pid() for node in side.nodes.values()] for side in pair.sides]
    before = [[cpu_seconds(pid) for pid in each] for each in pids]
    time.sleep(_IDLE_S)
    cpu = [
        [(cpu_seconds(pid) - was_s) / _IDLE_S * 100 for pid, was_s in zip(each, was, strict=True)]
        for each, was in zip(pids, before, strict=True)
    ]
    memory = [[resident_bytes(pid) / 2**20 for pid in each] for each in pids]
    for side, topic in zip(pair.sides, topics, strict=True):
        side.delete_topic(topic)
    for unit, figures, bar in (("% of a core", cpu, 5.0), ("MB resident", memory, 200.0)):
        each = " / ".join(", ".join(f"{value:.1f}" for value in values) for values in figures)
        work = f"{_PARTITIONS:,} idle partitions, the busiest broker"
        yield print_row(
            Row(
                work,
                unit,
                max(figures[0]),
                max(figures[1]),
                bar,
                lower_is_better=True,
                note=f"each broker {each}",
                bar_is_absolute=True,
            )
        )


def _failover(pair: ClusterPair) -> Iterator[Row]:
    progress(f"failover of {_PARTITIONS:,} partitions")
    topics = {side.name: side.create_topic("failover", _PARTITIONS) for side in pair.sides}
    taken = {
        side.name: [controller_killed(side, topics[side.name]) for _ in range(turns())]
        for side in pair.sides
    }
    klog, kafka = (taken[side.name] for side in pair.sides)
    each = " / ".join(", ".join(f"{one.seconds:.2f}" for one in runs) for runs in (klog, kafka))
    yield print_row(
        Row(
            f"the controller killed, {_PARTITIONS:,} partitions: its znode gone to the last served",
            "s",
            median([one.seconds for one in klog]),
            median([one.seconds for one in kafka]),
            1.0,
            lower_is_better=True,
            note=f"{klog[-1].partitions} / {kafka[-1].partitions} lost their leader; each {each}",
        )
    )
    waits = [beside_failover(side, topics[side.name]) for side in pair.sides]
    samples = [count for _, count, _ in waits]
    without = " / ".join(f"{quiet_ms:.2f}" for _, _, quiet_ms in waits)
    yield print_row(
        Row(
            f"Produce at the controller while {_PARTITIONS:,} partitions fail over",
            "ms p99",
            waits[0][0],
            waits[1][0],
            note=f"without {without}; {samples[0]} / {samples[1]} requests, acks=1, one replica",
        )
    )
    for side in pair.sides:
        side.delete_topic(topics[side.name])
