"""Drives an old release of a Kafka client, in an environment that has that client only.

``python old_client.py CLIENT``: reads lines of JSON from stdin, each a command with its arguments,
and prints one line of JSON for each, its result. Imports nothing but the standard library and
CLIENT. A row is ``[key, value, [[header name, header value], ...]]``, all bytes in base64, null for
null.

``write``   sends rows to partition 0; prints their offsets
``read``    reads ``count`` rows of partition 0 from its beginning, without a group; prints them
``resume``  joins ``group``, reads ``count`` rows, commits, leaves; prints them
``member``  joins ``group`` and stays in it, reading, until stdin ends; then leaves; prints null
"""

import asyncio
import base64
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

TIMEOUT_S = 60

Headers = list[tuple[str, bytes | None]]
Row = tuple[bytes | None, bytes | None, Headers]


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def row_to_json(key: bytes | None, value: bytes | None, headers: Any) -> list[Any]:
    """A row for JSON; ``headers`` may be None, as some clients have it without any."""
    pairs = [[name, _encoded(content)] for name, content in headers or ()]
    return [_encoded(key), _encoded(value), pairs]


def row_from_json(row: list[Any]) -> Row:
    """Decode a row: the inverse of ``row_to_json``."""
    key, value, pairs = row
    return _decoded(key), _decoded(value), [(name, _decoded(text)) for name, text in pairs]


def _until_stdin_ends() -> Callable[[], bool]:
    """Return a function that returns whether stdin has ended."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended.is_set


# -- kafka-python -----------------------------------------------------------------------------


class KafkaPython:
    def __init__(self, servers: str) -> None:
        self.servers = servers

    def write(self, topic: str, rows: list[Row], codec: str | None) -> list[int]:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=self.servers, compression_type=codec, linger_ms=50, acks="all"
        )
        futures = []
        for key, value, headers in rows:
            # Releases before 1.4.4 have no headers: neither this argument nor the attribute below.
            options = {"headers": headers} if headers else {}
            futures.append(producer.send(topic, key=key, value=value, partition=0, **options))
        producer.flush(TIMEOUT_S)
        offsets = [future.get(TIMEOUT_S).offset for future in futures]
        producer.close(TIMEOUT_S)
        return offsets

    @contextmanager
    def _consumer(self, *topics: str, **options: Any) -> Iterator[Any]:
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(
            *topics,
            bootstrap_servers=self.servers,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            consumer_timeout_ms=TIMEOUT_S * 1000,
            **options,
        )
        yield consumer
        consumer.close()

    def _take(self, consumer: Any, count: int) -> list[Any]:
        rows = []
        for message in consumer:
            headers = getattr(message, "headers", ())
            rows.append(row_to_json(message.key, message.value, headers))
            if len(rows) == count:
                break
        return rows

    def read(self, topic: str, count: int) -> list[Any]:
        from kafka import TopicPartition

        with self._consumer(group_id=None) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            consumer.seek_to_beginning(TopicPartition(topic, 0))
            return self._take(consumer, count)

    def resume(self, topic: str, group: str, count: int) -> list[Any]:
        with self._consumer(topic, group_id=group, max_poll_records=1) as consumer:
            rows = self._take(consumer, count)
            consumer.commit()
            return rows

    def member(self, topic: str, group: str) -> None:
        ended = _until_stdin_ends()
        with self._consumer(topic, group_id=group, heartbeat_interval_ms=200) as consumer:
            while not ended():
                consumer.poll(200)


# -- confluent-kafka --------------------------------------------------------------------------


class Confluent:
    def __init__(self, servers: str) -> None:
        self.servers = servers

    def write(self, topic: str, rows: list[Row], codec: str | None) -> list[int]:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "compression.type": codec or "none",
                "linger.ms": 50,
            }
        )
        offsets: list[int] = []

        def delivered(error: object, message: Any) -> None:
            assert error is None, error
            offsets.append(message.offset())

        for key, value, headers in rows:
            producer.produce(
                topic,
                key=key,
                value=value,
                headers=headers or None,
                partition=0,
                on_delivery=delivered,
            )
        assert producer.flush(TIMEOUT_S) == 0
        return offsets

    @contextmanager
    def _consumer(self, group: str, **options: Any) -> Iterator[Any]:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **options,
            }
        )
        yield consumer
        consumer.close()

    def _take(self, consumer: Any, count: int) -> list[Any]:
        rows: list[Any] = []
        while len(rows) < count:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"only {len(rows)} of {count} rows came"
            assert message.error() is None, message.error()
            rows.append(row_to_json(message.key(), message.value(), message.headers()))
        return rows

    def read(self, topic: str, count: int) -> list[Any]:
        from confluent_kafka import TopicPartition

        with self._consumer("unused") as consumer:
            consumer.assign([TopicPartition(topic, 0, 0)])
            return self._take(consumer, count)

    def resume(self, topic: str, group: str, count: int) -> list[Any]:
        with self._consumer(group) as consumer:
            consumer.subscribe([topic])
            rows = self._take(consumer, count)
            consumer.commit(asynchronous=False)
            return rows

    def member(self, topic: str, group: str) -> None:
        ended = _until_stdin_ends()
        with self._consumer(group, **{"heartbeat.interval.ms": 200}) as consumer:
            consumer.subscribe([topic])
            while not ended():
                message = consumer.poll(0.2)
                assert message is None or message.error() is None, message.error()


# -- aiokafka ---------------------------------------------------------------------------------


class Aiokafka:
    def __init__(self, servers: str) -> None:
        self.servers = servers

    def write(self, topic: str, rows: list[Row], codec: str | None) -> list[int]:
        return asyncio.run(self._write(topic, rows, codec))

    async def _write(self, topic: str, rows: list[Row], codec: str | None) -> list[int]:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(bootstrap_servers=self.servers, compression_type=codec)
        await producer.start()
        futures = []
        for key, value, headers in rows:
            futures.append(
                await producer.send(topic, key=key, value=value, headers=headers, partition=0)
            )
        offsets = [(await asyncio.wait_for(future, TIMEOUT_S)).offset for future in futures]
        await producer.stop()
        return offsets

    def _consumer(self, *topics: str, **options: Any) -> Any:
        from aiokafka import AIOKafkaConsumer

        return AIOKafkaConsumer(
            *topics,
            bootstrap_servers=self.servers,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **options,
        )

    async def _take(self, consumer: Any, count: int) -> list[Any]:
        rows = []
        while len(rows) < count:
            message = await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
            rows.append(row_to_json(message.key, message.value, message.headers))
        return rows

    def read(self, topic: str, count: int) -> list[Any]:
        async def read() -> list[Any]:
            from aiokafka import TopicPartition

            consumer = self._consumer()
            await consumer.start()
            consumer.assign([TopicPartition(topic, 0)])
            await consumer.seek_to_beginning(TopicPartition(topic, 0))
            rows = await self._take(consumer, count)
            await consumer.stop()
            return rows

        return asyncio.run(read())

    def resume(self, topic: str, group: str, count: int) -> list[Any]:
        async def resume() -> list[Any]:
            consumer = self._consumer(topic, group_id=group)
            await consumer.start()
            rows = await self._take(consumer, count)
            await consumer.commit()
            await consumer.stop()
            return rows

        return asyncio.run(resume())

    def member(self, topic: str, group: str) -> None:
        ended = _until_stdin_ends()

        async def stay() -> None:
            consumer = self._consumer(topic, group_id=group, heartbeat_interval_ms=200)
            await consumer.start()
            while not ended():
                await consumer.getmany(timeout_ms=200)
            await consumer.stop()

        asyncio.run(stay())


CLIENTS = {"kafka-python": KafkaPython, "confluent-kafka": Confluent, "aiokafka": Aiokafka}


def main() -> None:
    (client,) = sys.argv[1:]
    while line := sys.stdin.readline():
        arguments = json.loads(line)
        driver = CLIENTS[client](arguments.pop("servers"))
        if "rows" in arguments:
            arguments["rows"] = [row_from_json(row) for row in arguments["rows"]]
        print(json.dumps(getattr(driver, arguments.pop("command"))(**arguments)), flush=True)


if __name__ == "__main__":
    main()
