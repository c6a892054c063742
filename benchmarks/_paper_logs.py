"""A turn of klog or Kafka in `paper`: with the load generator, and with librdkafka."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from itertools import product

from benchmarks._brokers import Side
from benchmarks._load.generator import Generator
from benchmarks._load.jobs import (
    FetchAll,
    Job,
    LibrdkafkaConsume,
    LibrdkafkaProduce,
    Messages,
    PipelinedProduce,
)
from benchmarks._paper_runs import (
    BATCHES,
    CONSUMING,
    MESSAGES,
    VALUE_BYTES,
    Run,
    Subject,
    measure,
)
from benchmarks._turns import sized
from pyspark_klog.protocol.keys import ApiKey

GENERATOR = "load generator"
LIBRDKAFKA = "librdkafka"
CLIENTS = (GENERATOR, LIBRDKAFKA)
# The acks of each client's producer. librdkafka reports messages as delivered before they are
# appended with acks=0.
_ACKS = {GENERATOR: (0, 1), LIBRDKAFKA: (1,)}

_CHUNK_BYTES = 204_800
_MOST = max(BATCHES)
_UNCOUNTED = {1: 50_000, _MOST: 1_000_000}
_DEADLINE_S = 600.0


class LogTurn:
    """The runs of one turn: a new broker, which both clients drive."""

    def __init__(
        self, name: str, start: Callable[[], AbstractContextManager[Side]], generator: Generator
    ) -> None:
        self._name = name
        self._start = start
        self._generator = generator

    def __call__(self) -> list[Run]:
        with self._start() as side:
            return [*self._produce(side), *self._consume(side)]

    def _produce(self, side: Side) -> Iterator[Run]:
        for client, (batch, work) in product(CLIENTS, BATCHES.items()):
            for acks in _ACKS[client]:
                subject = Subject(self._name, client, work, acks)
                once = partial(self._produce_once, side, subject, batch)
                yield measure(once, _UNCOUNTED[batch], batch)

    def _produce_once(self, side: Side, subject: Subject, batch: int, messages: int) -> Run:
        with side.topic("paper") as topic:
            job = _produce_job(side, topic, subject, batch, messages)
            measured = self._generator.run(job)
            side.expect_records(topic, messages)
            return Run(subject, measured, _log_bytes(side, topic) / messages - VALUE_BYTES)

    def _consume(self, side: Side) -> Iterator[Run]:
        filled = Subject(self._name, GENERATOR, CONSUMING, acks=1)
        messages = sized(MESSAGES) // _MOST * _MOST
        with side.topic("paper") as topic:
            self._generator.run(_produce_job(side, topic, filled, _MOST, messages))
            for client in CLIENTS:
                subject = Subject(self._name, client, CONSUMING)
                once = partial(self._consume_once, side, topic, subject)
                yield measure(once, messages, _MOST)

    def _consume_once(self, side: Side, topic: str, subject: Subject, messages: int) -> Run:
        return Run(subject, self._generator.run(_consume_job(side, topic, subject, messages)))


def _produce_job(side: Side, topic: str, subject: Subject, batch: int, messages: int) -> Job:
    target = side.target(topic)
    acks = subject.acks or 0
    if subject.client == LIBRDKAFKA:
        settings = {
            "acks": str(acks),
            "batch.num.messages": str(batch),
            # A batch of 50 has time to fill; a batch of 1 is sent at once.
            "linger.ms": "0" if batch == 1 else "5",
        }
        return LibrdkafkaProduce(target, messages, VALUE_BYTES, settings, _DEADLINE_S)
    version = side.newest_version(ApiKey.PRODUCE)
    requests = messages // batch
    each = Messages(batch, VALUE_BYTES)
    return PipelinedProduce(target, version, acks, requests, each, timeout_s=_DEADLINE_S)


def _consume_job(side: Side, topic: str, subject: Subject, messages: int) -> Job:
    target = side.target(topic)
    if subject.client == LIBRDKAFKA:
        settings = {"fetch.message.max.bytes": str(_CHUNK_BYTES), "check.crcs": "true"}
        return LibrdkafkaConsume(target, messages, VALUE_BYTES, settings, _DEADLINE_S)
    version = side.newest_version(ApiKey.FETCH)
    return FetchAll(target, version, _CHUNK_BYTES, messages, check_crc=True, timeout_s=_DEADLINE_S)


def _log_bytes(side: Side, topic: str) -> int:
    """The bytes of a topic's segments, without their indexes."""
    return sum(path.stat().st_size for path in (side.data / f"{topic}-0").glob("*.log"))
