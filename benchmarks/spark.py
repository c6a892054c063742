"""Spark's batch source, stream source and sink, local[2], beside Spark's own Kafka connector."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

from benchmarks import _brokers
from benchmarks._brokers import Pair, Side
from benchmarks._load.generator import Generator, SparkDriver
from benchmarks._load.jobs import Messages, PipelinedProduce
from benchmarks._load.spark_jobs import Kind, SparkJob, SparkMeasured
from benchmarks._report import found
from benchmarks._turns import in_turns, median, progress, sized
from benchmarks.rows import Row
from pyspark_klog.protocol.keys import ApiKey
from tests.support.peers import spark_connector_jars

_PARTITIONS = 4
_SOURCE_RECORDS = 4_000_000
_SINK_ROWS = 1_000_000
_MESSAGES = Messages(per_request=76, value_bytes=200, key_bytes=10)
# The JVM compiles what it runs often: the first runs of a driver are far from its last ones.
_WARM_UPS = 2


@dataclass(frozen=True)
class _Engine:
    """A driver with its data source, and the broker that it works on."""

    driver: SparkDriver
    side: Side

    def run(self, kind: Kind, topic: str, records: int) -> SparkMeasured:
        return self.driver.run(SparkJob(kind, self.side.bootstrap_servers, topic, records))


def run(_: argparse.Namespace) -> list[Row]:
    with _brokers.both() as pair, ExitStack() as stack:
        klog_driver = stack.enter_context(SparkDriver("klog", []))
        kafka_driver = stack.enter_context(SparkDriver("kafka", spark_connector_jars()))
        engines = (
            _Engine(klog_driver, pair.klog),
            _Engine(kafka_driver, pair.kafka),
            _Engine(kafka_driver, pair.klog),
        )
        rows = _sources(pair, engines)
        return [*rows, _sink("keyed", engines), _sink("unkeyed", engines)]


def _sources(pair: Pair, engines: tuple[_Engine, ...]) -> list[Row]:
    batches = sized(_SOURCE_RECORDS) // (_PARTITIONS * _MESSAGES.per_request)
    records = batches * _PARTITIONS * _MESSAGES.per_request
    progress(f"filling a topic with {records} records on each side")
    with (
        _filled(pair.klog, pair, batches) as on_klog,
        _filled(pair.kafka, pair, batches) as on_kafka,
    ):
        topics = {pair.klog.name: on_klog, pair.kafka.name: on_kafka}
        for engine in engines:
            engine.run("check", topics[engine.side.name], records)

        def measuring(kind: Kind) -> list[Callable[[], SparkMeasured]]:
            return [partial(e.run, kind, topics[e.side.name], records) for e in engines]

        progress("batch source")
        batch = _row("batch source to noop", 3.0, measuring("batch"))
        progress("stream source")
        stream = _row("stream source, availableNow, to noop", 2.5, measuring("stream"))
    return [batch, stream]


def _sink(kind: Kind, engines: tuple[_Engine, ...]) -> Row:
    progress(f"sink, {kind}")
    rows = sized(_SINK_ROWS)

    def write(engine: _Engine) -> SparkMeasured:
        with engine.side.topic("sink", _PARTITIONS) as topic:
            measured = engine.run(kind, topic, rows)
            engine.side.expect_records(topic, rows, _PARTITIONS)
            return measured

    return _row(
        f"sink, rows of a range, {kind}",
        1.5,
        [partial(write, engine) for engine in engines],
    )


def _row(work: str, bar: float, measuring: list[Callable[[], SparkMeasured]]) -> Row:
    given = in_turns(*measuring, warm_ups=_WARM_UPS)
    klog, kafka, kafka_on_klog = (
        median([run.records / run.seconds for run in runs]) for runs in given
    )
    note = f"local[2]; for information: Spark's connector on klog's broker {kafka_on_klog:,.0f}"
    triggers = [[run.records / run.triggers_s for run in runs if run.triggers_s] for runs in given]
    if all(triggers):
        rates = " / ".join(f"{median(rates):,.0f}" for rates in triggers[:2])
        note += f"; the micro-batches alone, klog / peer {rates}"
    row = Row(
        f"{work} (Spark {version('pyspark')})",
        "records/s",
        klog,
        kafka,
        bar,
        note=note,
    )
    return found(row)


@contextmanager
def _filled(side: Side, pair: Pair, batches: int) -> Iterator[str]:
    """A topic with so many batches in each partition."""
    newest = pair.common_version(ApiKey.PRODUCE)
    with side.topic("spark", _PARTITIONS) as topic, Generator() as generator:
        for partition in range(_PARTITIONS):
            target = side.target(topic, partition)
            generator.run(PipelinedProduce(target, newest, 1, batches, _MESSAGES))
        side.expect_records(topic, batches * _PARTITIONS * _MESSAGES.per_request, _PARTITIONS)
        yield topic
