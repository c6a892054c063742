"""The input that a soak's copies consume, and readers of both topics, by librdkafka."""

import threading
import time
from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.soak.records import Record
from tests.soak.transactions.check import Input, Output, output_of
from tests.support.eventually import eventually

SOURCE, TARGET = "copies-in", "copies-out"
SOURCE_PARTITIONS, TARGET_PARTITIONS = 6, 4
KEYS = 101
_TICK_S = 0.05
_DEADLINE_S = 30.0


class Feed:
    """Writes numbered records of `KEYS` keys at a steady rate, until `stop_writing`."""

    def __init__(
        self, servers: str, rate_a_s: int, settings: Mapping[str, str | int] | None = None
    ) -> None:
        """Start writing; ``settings`` are added to librdkafka's, or replace them."""
        self.acknowledged: list[Record] = []
        self.failures: list[str] = []
        self.longest_gap_s = 0.0
        """The longest time between two acknowledgements of a partition; readers may set it to 0."""
        self._last_s: dict[int | None, float] = {}
        self._each_tick = max(round(rate_a_s * _TICK_S), 1)
        given = {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            "reconnect.backoff.max.ms": 500,
            "log_level": 2,  # the broker is down now and then
            **(settings or {}),
        }
        # When a leader moves, librdkafka may begin a new producer epoch in all of a producer's
        # partitions, and write records again that are written but not acknowledged: decision 48.
        self._producers = [Producer(given) for _ in range(SOURCE_PARTITIONS)]
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def stop_writing(self) -> None:
        """Stop writing."""
        self._end.set()
        self._thread.join(60)

    def left(self) -> int:
        """How many records are neither acknowledged nor failed, after a short wait."""
        return sum(int(each.flush(_TICK_S)) for each in self._producers)

    def _write(self) -> None:
        start = 0
        while not self._end.is_set():
            for number in range(start, start + self._each_tick):
                key = number % KEYS
                partition = key % SOURCE_PARTITIONS
                self._producers[partition].produce(
                    SOURCE,
                    b"%d" % number,
                    b"key-%d" % key,
                    partition=partition,
                    on_delivery=self._delivered,
                )
            start += self._each_tick
            for each in self._producers:
                each.poll(0)
            self._end.wait(_TICK_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        now_s, partition = time.monotonic(), message.partition()
        gap_s = now_s - self._last_s.get(partition, now_s)
        self.longest_gap_s = max(self.longest_gap_s, gap_s)
        self._last_s[partition] = now_s
        if error is not None:
            self.failures.append(str(error))
        else:
            # The offset of a batch that was sent again is unknown.
            offset = message.offset()
            where = message.partition(), -1 if offset is None else offset
            self.acknowledged.append(Record(*where, int(message.value())))


def inputs(servers: str) -> list[Input]:
    """All records of the input topic."""
    return [
        Input(each.partition(), each.offset(), each.key(), int(each.value()))
        for partition in range(SOURCE_PARTITIONS)
        for each in committed_records(servers, SOURCE, partition)
    ]


def outputs(servers: str) -> dict[int, list[Output]]:
    """The committed records of each partition of the output topic, in the log's order."""
    return {
        partition: [
            output_of(partition, each.offset(), each.key(), each.value())
            for each in committed_records(servers, TARGET, partition)
        ]
        for partition in range(TARGET_PARTITIONS)
    }


def committed_records(servers: str, topic: str, partition: int) -> Iterator[Message]:
    """The committed records of a partition, up to its end now."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reads",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            what = f"a record of {topic}-{partition}, or its end"
            for each in eventually(lambda: consumer.consume(1_000, 0.1), _DEADLINE_S, what):
                error = each.error()
                if error is None:
                    yield each
                elif error.code() == KafkaError._PARTITION_EOF:
                    return
                else:
                    raise AssertionError(f"{topic}-{partition}: {error}")
    finally:
        consumer.close()
