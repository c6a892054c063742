"""Produce on 200 connections with one request outstanding on each: 200-byte messages, acks=1.

The costs of idle connections are measured, too: the memory of each, and the effect on an active
one.
"""

import argparse
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks import _brokers
from benchmarks._brokers import Side
from benchmarks._load.generator import Generator
from benchmarks._load.jobs import ConcurrentProduce, LoadFailed, Measured, Messages
from benchmarks._processes import resident_bytes
from benchmarks._report import load_note, median_of, per_cpu_second, print_row
from benchmarks._turns import in_turns, progress, sized
from benchmarks.rows import Row
from pyspark_klog.protocol.apis.metadata import MetadataRequest
from pyspark_klog.protocol.headers import RequestHeader, encode_request
from pyspark_klog.protocol.keys import ApiKey

_CONNECTIONS = 200
_REQUESTS = 250_000
_IDLE = 1_000
_ACTIVE_REQUESTS = 20_000
_MOST_IDLE_KB = 12
_METADATA_VERSION = 9


@contextmanager
def _idle(side: Side) -> Iterator[None]:
    """Connections that have requested metadata once, as clients do, and then nothing more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < 4 * _IDLE:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4 * _IDLE, hard), hard))
    header = RequestHeader(ApiKey.METADATA, _METADATA_VERSION, 1, "idle")
    asked = encode_request(header, MetadataRequest(topics=[]))
    with ExitStack() as stack:
        for _ in range(_IDLE):
            each = stack.enter_context(socket.create_connection((side.host, side.port), 30))
            each.sendall(asked)
            if not each.recv(4096):
                raise LoadFailed(f"{side.name} closed a connection that asked for metadata")
        yield


def _idle_kb(side: Side) -> float:
    """Resident KB of the broker for each idle connection."""
    before = resident_bytes(side.pid)
    with _idle(side):
        return (resident_bytes(side.pid) - before) / _IDLE / 1_024


def run(_: argparse.Namespace) -> list[Row]:
    with _brokers.both() as pair, Generator() as generator:
        version = pair.common_version(ApiKey.PRODUCE)

        def produce(side: Side) -> Measured:
            with side.topic("connections") as topic:
                measured = generator.run(
                    ConcurrentProduce(
                        side.target(topic),
                        version,
                        acks=1,
                        requests=sized(_REQUESTS),
                        connections=_CONNECTIONS,
                        messages=Messages(1),
                    )
                )
                side.expect_records(topic, measured.records)
            return measured

        def active(side: Side, *, idle: bool) -> Measured:
            with ExitStack() as stack:
                if idle:
                    stack.enter_context(_idle(side))
                topic = stack.enter_context(side.topic("active"))
                job = ConcurrentProduce(
                    side.target(topic),
                    version,
                    acks=1,
                    requests=sized(_ACTIVE_REQUESTS),
                    connections=1,
                    messages=Messages(1),
                )
                return generator.run(job)

        progress(f"{_IDLE} idle connections")
        memory = [_idle_kb(side) for side in (pair.klog, pair.kafka)]
        alone, beside, kafka_alone, kafka_beside = in_turns(
            lambda: active(pair.klog, idle=False),
            lambda: active(pair.klog, idle=True),
            lambda: active(pair.kafka, idle=False),
            lambda: active(pair.kafka, idle=True),
        )
        progress(f"{_CONNECTIONS} connections")
        klog, kafka = in_turns(lambda: produce(pair.klog), lambda: produce(pair.kafka))
    work = f"{_CONNECTIONS} connections, one outstanding (Produce {version})"
    return [
        print_row(
            Row(
                work,
                "requests/s",
                median_of(klog, "requests"),
                median_of(kafka, "requests"),
                1.3,
                note=load_note(klog, kafka),
            )
        ),
        print_row(
            Row(
                work,
                "requests/CPU s",
                per_cpu_second(klog, "requests"),
                per_cpu_second(kafka, "requests"),
                2.0,
                note="CPU of the broker's process",
            )
        ),
        print_row(
            Row(
                f"memory of each of {_IDLE:,} idle connections",
                "KB",
                memory[0],
                memory[1],
                _MOST_IDLE_KB,
                lower_is_better=True,
                note="resident, the broker's process",
                bar_is_absolute=True,
            )
        ),
        print_row(
            Row(
                f"one connection beside {_IDLE:,} idle ones",
                "us p99",
                median_of(beside, "p99_us"),
                median_of(kafka_beside, "p99_us"),
                note=f"alone {median_of(alone, 'p99_us'):.0f} and "
                f"{median_of(kafka_alone, 'p99_us'):.0f}",
            )
        ),
    ]
