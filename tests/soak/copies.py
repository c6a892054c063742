"""Copies of a topic and their checks. librdkafka reads them, not klog's client.

The copied records have keys, and one partition for each key: the values of a key have one order in
the source topic, and must have the same order in every copy.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Place

Ends = dict[int, int]
_DEADLINE_S = 60.0
_POLL_S = 0.5
_SHOWN = 5


class Copied(NamedTuple):
    """A record with its partition and offset."""

    partition: int
    offset: int
    key: bytes
    number: int


class Read(NamedTuple):
    """All records of a topic, partition by partition, and the end of each partition."""

    records: list[Copied]
    ends: Ends


def read_all(servers: str, topic: str, isolation: str = "read_committed") -> Read:
    """Read a topic from its beginning to the end that readers of this isolation level see now.

    :raises AssertionError: if that takes more than a minute
    """
    settings = {
        "bootstrap.servers": servers,
        "group.id": "reader-of-copies",
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
    }
    consumer = Consumer(settings)
    try:
        partitions = consumer.list_topics(topic, _DEADLINE_S).topics[topic].partitions
        consumer.assign([Place(topic, partition, 0) for partition in partitions])
        return _read(consumer, topic, set(partitions))
    finally:
        consumer.close()


def _read(consumer: Consumer, topic: str, open_partitions: set[int]) -> Read:
    records: list[Copied] = []
    ends: Ends = {}
    end_s = time.monotonic() + _DEADLINE_S
    while open_partitions - ends.keys():
        if time.monotonic() > end_s:
            raise AssertionError(
                f"{topic} was not read within {_DEADLINE_S:g} s: partitions "
                f"{sorted(open_partitions - ends.keys())} have not ended"
            )
        for message in consumer.consume(10_000, _POLL_S):
            error = message.error()
            if error is None:
                number = int(message.value().split()[0])
                place = _place(message)
                records.append(Copied(*place, message.key(), number))
            elif error.code() == KafkaError._PARTITION_EOF:
                ends.update([_place(message)])
            elif not error.retriable():
                raise KafkaException(error)
    return Read(records, ends)


def _place(message: Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None
    return partition, offset


def by_key(records: Iterable[Copied]) -> dict[bytes, list[int]]:
    """The numbers of each key, in the order of their partition."""
    found: dict[bytes, list[int]] = defaultdict(list)
    for record in sorted(records):
        found[record.key].append(record.number)
    return dict(found)


def problems_of_copy(
    source: Mapping[bytes, Sequence[int]], copied: Sequence[Copied], topic: str
) -> list[str]:
    """Problems of a copy.

    Each number of ``source`` (`by_key`) must be in it once, under its key, and the numbers of a key
    in their order and in one partition.
    """
    due = Counter((key, number) for key, numbers in source.items() for number in numbers)
    there = Counter((record.key, record.number) for record in copied)
    where: dict[tuple[bytes, int], list[str]] = defaultdict(list)
    partitions: dict[bytes, set[int]] = defaultdict(set)
    for record in copied:
        where[record.key, record.number].append(f"{record.partition}@{record.offset}")
        partitions[record.key].add(record.partition)
    more = there - due
    doubled = {each: count for each, count in more.items() if each in due}
    found = _named(topic, "doubled", [_where(each, where) for each in sorted(doubled)])
    strangers = [_where(each, where) for each in sorted(more.keys() - due.keys())]
    found += _named(topic, "not in the source", strangers)
    found += _named(topic, "lost", [f"{n} of key {k.decode()}" for k, n in sorted(due - there)])
    spread = sorted(key for key, several in partitions.items() if len(several) > 1)
    found += [
        f"{topic}: key {key.decode()} is in partitions {sorted(partitions[key])}" for key in spread
    ]
    return found + _out_of_order(source, by_key(copied), topic)


def _out_of_order(
    source: Mapping[bytes, Sequence[int]], copied: Mapping[bytes, Sequence[int]], topic: str
) -> list[str]:
    """Compare the order of the numbers that both have, each at its first place.

    Doubled and lost numbers are reported elsewhere.
    """
    found = []
    for key, numbers in sorted(copied.items()):
        once = list(dict.fromkeys(numbers))
        both = set(once) & set(source.get(key, ()))
        due = [number for number in dict.fromkeys(source.get(key, ())) if number in both]
        have = [number for number in once if number in both]
        for before, after in zip(due, have, strict=True):
            if before != after:
                found.append(f"{topic}: out of order: key {key.decode()} has {after} for {before}")
                break
    return found


def problems_of_ends(committed: Ends, all_records: Ends, topic: str) -> list[str]:
    """Open transactions: readers of committed records stop before them."""
    return [
        f"{topic}: partition {partition}: committed records end at {committed.get(partition)}, "
        f"and the log at {end}: a transaction is open"
        for partition, end in sorted(all_records.items())
        if committed.get(partition) != end
    ]


def _where(each: tuple[bytes, int], where: Mapping[tuple[bytes, int], Sequence[str]]) -> str:
    key, number = each
    return f"{number} of key {key.decode()} at {' '.join(where[each])}"


def _named(topic: str, what: str, those: Sequence[str]) -> list[str]:
    if not those:
        return []
    more = ", ..." if len(those) > _SHOWN else ""
    return [f"{topic}: {len(those)} records {what}: {', '.join(those[:_SHOWN])}{more}"]
