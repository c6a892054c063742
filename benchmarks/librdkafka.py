"""Produce through librdkafka (C) with enable.idempotence: batches of one, and its defaults."""

import argparse
from dataclasses import dataclass

from benchmarks import _brokers
from benchmarks._brokers import Pair, Side
from benchmarks._load.generator import Generator
from benchmarks._load.jobs import LibrdkafkaProduce, Measured
from benchmarks._report import load_note, median_of, print_row
from benchmarks._turns import in_turns, progress, sized
from benchmarks.rows import Row

_VALUE_BYTES = 200


@dataclass(frozen=True)
class _Case:
    work: str
    count: int
    settings: dict[str, str]
    bar: float


_CASES = (
    _Case("batches of 1", 80_000, {"batch.num.messages": "1", "linger.ms": "0"}, 10.0),
    _Case("default batches", 1_500_000, {}, 1.0),
)


def run(_: argparse.Namespace) -> list[Row]:
    with _brokers.both() as pair, Generator() as generator:
        return [_row(pair, generator, case) for case in _CASES]


def _row(pair: Pair, generator: Generator, case: _Case) -> Row:
    progress(case.work)
    count = sized(case.count)

    def produce(side: Side) -> Measured:
        settings = {"enable.idempotence": "true", **case.settings}
        with side.topic("librdkafka") as topic:
            job = LibrdkafkaProduce(side.target(topic), count, _VALUE_BYTES, settings)
            measured = generator.run(job)
            side.expect_records(topic, count)
        return measured

    klog, kafka = in_turns(lambda: produce(pair.klog), lambda: produce(pair.kafka))
    row = Row(
        f"enable.idempotence, {case.work}",
        "msg/s",
        median_of(klog, "records"),
        median_of(kafka, "records"),
        case.bar,
        note=f"{load_note(klog, kafka)} (the generator: all of librdkafka's threads)",
    )
    return print_row(row)
