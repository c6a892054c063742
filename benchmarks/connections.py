"""Produce on 200 connections with one request outstanding on each: 200-byte messages, acks=1."""

import argparse

from benchmarks import _brokers
from benchmarks._brokers import Side
from benchmarks._load.generator import Generator
from benchmarks._load.jobs import ConcurrentProduce, Measured, Messages
from benchmarks._report import found, load_note, median_of, per_cpu_second
from benchmarks._turns import in_turns, progress, sized
from benchmarks.rows import Row
from pyspark_klog.protocol.keys import ApiKey

_CONNECTIONS = 200
_REQUESTS = 250_000


def run(_: argparse.Namespace) -> list[Row]:
    with _brokers.both() as pair, Generator() as generator:
        version = pair.common_version(ApiKey.PRODUCE)
        progress(f"{_CONNECTIONS} connections")

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

        klog, kafka = in_turns(lambda: produce(pair.klog), lambda: produce(pair.kafka))
    work = f"{_CONNECTIONS} connections, one outstanding (Produce {version})"
    return [
        found(
            Row(
                work,
                "requests/s",
                median_of(klog, "requests"),
                median_of(kafka, "requests"),
                1.3,
                note=load_note(klog, kafka),
            )
        ),
        found(
            Row(
                work,
                "requests/CPU s",
                per_cpu_second(klog, "requests"),
                per_cpu_second(kafka, "requests"),
                2.0,
                note="CPU of the broker's process",
            )
        ),
    ]
