"""Numbered records and their checks. kafka-python writes and reads them, not klog's client."""

import json
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.soak.checkpoint import Positions

_TICK_S = 0.1
VALUE_BYTES = 100


class Record(NamedTuple):
    """The place of a number."""

    partition: int
    offset: int
    number: int


class Numbers:
    """Writes 0, 1, 2 ... at a steady rate, and notes the acknowledged records.

    Each number is its record's key. With ``keys``, that many keys take turns, and each key has one
    partition.
    """

    def __init__(self, servers: str, topic: str, rate_a_s: int, keys: int | None = None) -> None:
        self.acknowledged: list[Record] = []
        self.failures: list[str] = []
        self._topic = topic
        self._keys = keys
        self._each_tick = max(round(rate_a_s * _TICK_S), 1)
        self._producer = KafkaProducer(
            bootstrap_servers=servers, metadata_max_age_ms=1_000, reconnect_backoff_max_ms=500
        )
        self._next = 0
        self._running = threading.Event()
        self._idle = threading.Event()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def resume(self) -> None:
        """Go on writing."""
        self._idle.clear()
        self._running.set()

    def pause(self, deadline_s: float = 120) -> None:
        """Stop writing, and wait until all written records are acknowledged or have failed."""
        if self._running.is_set():
            self._running.clear()
            if not self._idle.wait(deadline_s):
                raise AssertionError("the producer did not come to rest")
        self._producer.flush(timeout=deadline_s)

    def close(self) -> None:
        """End the thread and the connections."""
        self._end.set()
        self._running.set()
        self._thread.join(60)
        self._producer.close(timeout=10)

    def _write(self) -> None:
        while not self._end.is_set():
            if not self._running.is_set():
                self._idle.set()
                self._running.wait()
                continue
            try:
                partitions = sorted(self._producer.partitions_for(self._topic) or ())
                for number in range(self._next, self._next + self._each_tick):
                    key = number if self._keys is None else number % self._keys
                    self._send(number, key, partitions[key % len(partitions)])
            except Exception as error:
                self.failures.append(f"{type(error).__name__}: {error}")
            self._next += self._each_tick
            self._end.wait(_TICK_S)

    def _send(self, number: int, key: int, partition: int) -> None:
        value = (b"%d " % number).ljust(VALUE_BYTES, b".")
        sent = self._producer.send(self._topic, value, key=b"%d" % key, partition=partition)
        sent.add_callback(
            lambda where: self.acknowledged.append(Record(where.partition, where.offset, number))
        )
        sent.add_errback(lambda error: self.failures.append(f"{type(error).__name__}: {error}"))


class Log:
    """The broker's log of a topic: kafka-python reads each record once."""

    def __init__(self, servers: str, topic: str) -> None:
        self._topic = topic
        self._servers = servers
        self.numbers: dict[int, list[int]] = {}
        """For each partition, the number at each offset from 0."""

    def ends(self) -> Positions:
        """The end of each partition now."""
        with _Consumer(self._servers) as consumer:
            return self._ends(consumer.it)

    def committed(self, group: str) -> Positions:
        """The offsets that a group has committed."""
        with _Consumer(self._servers, group) as consumer:
            parts = [TopicPartition(self._topic, p) for p in self._ends(consumer.it)]
            found = {part.partition: consumer.it.committed(part) for part in parts}
        return {partition: offset for partition, offset in found.items() if offset is not None}

    def read_on(self) -> Positions:
        """Read the records written since the last call; return the end of each partition."""
        with _Consumer(self._servers) as consumer:
            ends = self._ends(consumer.it)
            for partition in ends:
                self.numbers.setdefault(partition, [])
            parts = [TopicPartition(self._topic, partition) for partition in ends]
            consumer.it.assign(parts)
            for part in parts:
                consumer.it.seek(part, len(self.numbers[part.partition]))
            while any(len(self.numbers[p]) < end for p, end in ends.items()):
                for part, records in consumer.it.poll(timeout_ms=1_000).items():
                    for record in records:
                        numbers = self.numbers[part.partition]
                        if record.offset != len(numbers):
                            raise AssertionError(
                                f"partition {part.partition}: offset {record.offset} follows "
                                f"{len(numbers) - 1}"
                            )
                        numbers.append(int(record.key))
        return {partition: len(numbers) for partition, numbers in self.numbers.items()}

    def _ends(self, consumer: Any) -> Positions:
        partitions = consumer.partitions_for_topic(self._topic) or set()
        ends = consumer.end_offsets([TopicPartition(self._topic, p) for p in partitions])
        return {part.partition: end for part, end in ends.items()}


class _Consumer:
    """A short-lived consumer: its threads and connections do not outlive a broker."""

    def __init__(self, servers: str, group: str | None = None) -> None:
        self.it = KafkaConsumer(bootstrap_servers=servers, group_id=group, enable_auto_commit=False)

    def __enter__(self) -> "_Consumer":
        return self

    def __exit__(self, *_: object) -> None:
        self.it.close()


@dataclass
class Seen:
    """The records that a recording sink has seen, from its file."""

    batches: dict[int, list[list[Record]]] = field(default_factory=dict)
    """Every version of each micro-batch, in order."""

    @classmethod
    def read(cls, file: Path) -> "Seen":
        """Read the file of an ended sink; a last line that a kill cut short is ignored."""
        seen = cls()
        lines = file.read_bytes().split(b"\n") if file.exists() else [b""]
        for line in lines:
            try:
                found = json.loads(line)
            except ValueError:
                continue  # the empty end, or a line that a kill cut short
            records = [Record(*record) for record in found["records"]]
            seen.batches.setdefault(found["batch"], []).append(records)
        return seen

    def last(self) -> list[Record]:
        """The records of each micro-batch's last version."""
        return [record for batch in self.batches.values() for record in batch[-1]]

    @property
    def repeated(self) -> int:
        """How many micro-batches came more than once."""
        return sum(len(versions) > 1 for versions in self.batches.values())


def problems_of(
    seen: Seen, start: Mapping[int, int], numbers: Mapping[int, Sequence[int]]
) -> list[str]:
    """Problems of a query that began at ``start`` (a missing partition: at 0).

    ``numbers`` is the log. Each of its records from there on must be in the last version of one
    micro-batch, exactly once; a repeated micro-batch must have the same records each time.
    """
    found = []
    ids = sorted(seen.batches)
    if ids != list(range(len(ids))):
        found.append(f"micro-batches are missing: {len(ids)} of {ids[-1] + 1 if ids else 0}")
    for batch, versions in seen.batches.items():
        if any(sorted(version) != sorted(versions[0]) for version in versions):
            found.append(f"micro-batch {batch} had other records when it came again")
    times = Counter((record.partition, record.offset) for record in seen.last())
    due = {
        (partition, offset)
        for partition, all_of_it in numbers.items()
        for offset in range(start.get(partition, 0), len(all_of_it))
    }
    found += _named("never seen", due - times.keys())
    found += _named("seen, though before the start or not in the log", times.keys() - due)
    found += _named("seen twice by batch id", {where for where, n in times.items() if n > 1})
    wrong = {
        (r.partition, r.offset)
        for r in seen.last()
        if (r.partition, r.offset) in due and numbers[r.partition][r.offset] != r.number
    }
    return found + _named("seen with another number", wrong)


def problems_of_start(
    start: Positions | None, durable: Positions | None, before: Positions, after: Positions
) -> list[str]:
    """Problems of the start of a query at `latest`.

    The start must equal the one in the checkpoint (``durable``) when the query was first killed,
    and must lie between the ends of the log before its start and after.
    """
    if start is None:
        return ["it never put its start into the checkpoint"]
    if durable is not None and start != durable:
        return [f"its start moved from {durable} to {start}"]
    if start.keys() != before.keys() or any(
        not before[partition] <= offset <= after[partition] for partition, offset in start.items()
    ):
        return [f"it began at {start}, and the log ended at {before} before, at {after} after"]
    return []


def lost_of(acknowledged: Iterable[Record], numbers: Mapping[int, Sequence[int]]) -> list[str]:
    """Acknowledged records that are missing in the log at their offsets.

    A repeated batch is acknowledged without an offset (-1): then any offset of its partition
    counts.
    """
    everywhere = {partition: set(there) for partition, there in numbers.items()}
    lost = set()
    for record in acknowledged:
        there = numbers.get(record.partition, ())
        if record.offset < 0:
            found = record.number in everywhere.get(record.partition, ())
        else:
            found = record.offset < len(there) and there[record.offset] == record.number
        if not found:
            lost.add((record.partition, record.offset))
    return _named("acknowledged and not in the log", lost)


def _named(what: str, where: set[tuple[int, int]]) -> list[str]:
    if not where:
        return []
    some = ", ".join(f"{partition}@{offset}" for partition, offset in sorted(where)[:5])
    return [f"{len(where)} records {what}: {some}{', ...' if len(where) > 5 else ''}"]
