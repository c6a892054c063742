"""Raw pipelined produce on one connection: 200-byte messages, one or fifty a request."""

import argparse
from dataclasses import dataclass

from benchmarks import _brokers
from benchmarks._brokers import Pair, Side
from benchmarks._load.generator import Generator
from benchmarks._load.jobs import Measured, Messages, PipelinedProduce
from benchmarks._report import load_note, median_of, print_row
from benchmarks._turns import in_turns, progress, sized
from benchmarks.rows import Row
from pyspark_klog.protocol.keys import ApiKey


@dataclass(frozen=True)
class _Case:
    work: str
    acks: int
    requests: int
    per_request: int
    bar: float
    is_idempotent: bool = False


_CASES = (
    _Case("1 message a request, acks=0", 0, 120_000, 1, 50.0),
    _Case("1 message a request, acks=1", 1, 80_000, 1, 50.0),
    _Case("1 message a request, acks=-1, idempotent", -1, 80_000, 1, 30.0, is_idempotent=True),
    _Case("50 messages a request, acks=0", 0, 20_000, 50, 8.0),
    _Case("50 messages a request, acks=1", 1, 20_000, 50, 8.0),
)


def run(_: argparse.Namespace) -> list[Row]:
    with _brokers.both() as pair, Generator() as generator:
        version = pair.common_version(ApiKey.PRODUCE)
        return [_row(pair, generator, case, version) for case in _CASES]


def _row(pair: Pair, generator: Generator, case: _Case, version: int) -> Row:
    progress(case.work)

    def produce(side: Side) -> Measured:
        producer_id, epoch = side.producer_id() if case.is_idempotent else (-1, -1)
        requests = sized(case.requests)
        with side.topic("produce") as topic:
            measured = generator.run(
                PipelinedProduce(
                    side.target(topic),
                    version,
                    case.acks,
                    requests,
                    Messages(case.per_request),
                    producer_id=producer_id,
                    producer_epoch=epoch,
                )
            )
            side.expect_records(topic, measured.records)
        return measured

    klog, kafka = in_turns(lambda: produce(pair.klog), lambda: produce(pair.kafka))
    row = Row(
        f"{case.work} (Produce {version})",
        "msg/s",
        median_of(klog, "records"),
        median_of(kafka, "records"),
        case.bar,
        note=load_note(klog, kafka),
    )
    return print_row(row)
