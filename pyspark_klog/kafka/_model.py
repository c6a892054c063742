"""The small values of admin calls and callbacks."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from enum import Enum
from operator import index

from pyspark_klog.kafka._topic_partition import TopicPartition

_64_BITS = 2**64


class Uuid:
    """A topic's id. Its text is that of Kafka's tools: Base64 without the last two characters."""

    __slots__ = ("_least", "_most")

    def __init__(self, most_significant_bits: int, least_significant_bits: int) -> None:
        self._most = _signed_64_bits(most_significant_bits)
        self._least = _signed_64_bits(least_significant_bits)

    def get_most_significant_bits(self) -> int:
        """Return the first 64 bits as a signed integer."""
        return self._most

    def get_least_significant_bits(self) -> int:
        """Return the last 64 bits as a signed integer."""
        return self._least

    def __int__(self) -> int:
        return self._most % _64_BITS * _64_BITS + self._least % _64_BITS

    def __str__(self) -> str:
        return urlsafe_b64encode(int(self).to_bytes(16, "big")).decode().rstrip("=")

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return int(self) == int(other) if isinstance(other, Uuid) else NotImplemented

    def __hash__(self) -> int:
        return hash(int(self))


def _signed_64_bits(value: int) -> int:
    number = index(value)
    if not -(_64_BITS // 2) <= number < _64_BITS // 2:
        raise OverflowError(f"expected a signed integer of 64 bits, not {number}")
    return number


class Node:
    """A broker; ``rack`` is None if it has none."""

    def __init__(
        self,
        id: int,  # noqa: A002
        host: str,
        port: int,
        rack: str | None = None,
    ) -> None:
        self.id = id
        self.id_string = str(id)
        self.host = host
        self.port = port
        self.rack = rack

    def __str__(self) -> str:
        rack = f"(Rack - {self.rack})" if self.rack else ""
        return f"({self.id}) {self.host}:{self.port} {rack}"


class ThrottleEvent:
    """A broker has delayed a response because of a quota, by ``throttle_time`` seconds."""

    def __init__(self, broker_name: str, broker_id: int, throttle_time: float) -> None:
        self.broker_name = broker_name
        self.broker_id = broker_id
        self.throttle_time = throttle_time

    def __str__(self) -> str:
        delay_ms = int(self.throttle_time * 1000)
        return f"{self.broker_name}/{self.broker_id} throttled for {delay_ms} ms"


class TopicCollection:
    """Topics by their names."""

    def __init__(self, topic_names: list[str]) -> None:
        self.topic_names = topic_names


class TopicPartitionInfo:
    """A partition with its leader, its replicas and its in-sync replicas."""

    def __init__(
        self,
        id: int,  # noqa: A002
        leader: Node,
        replicas: list[Node],
        isr: list[Node],
    ) -> None:
        self.id = id
        self.leader = leader
        self.replicas = replicas
        self.isr = isr


class ConsumerGroupTopicPartitions:
    """Partitions of a group; None stands for all partitions with committed offsets."""

    def __init__(self, group_id: str, topic_partitions: list[TopicPartition] | None = None) -> None:
        self.group_id = group_id
        self.topic_partitions = topic_partitions


class _Ordered(Enum):
    def __lt__(self, other: object) -> bool:
        return self.value < other.value if isinstance(other, type(self)) else NotImplemented


class ConsumerGroupState(_Ordered):
    """The state of a consumer group."""

    UNKNOWN = 0
    UNKOWN = UNKNOWN
    """A name that confluent_kafka misspelled at first, and keeps."""
    PREPARING_REBALANCING = 1
    COMPLETING_REBALANCING = 2
    STABLE = 3
    DEAD = 4
    EMPTY = 5


class ConsumerGroupType(_Ordered):
    """The protocol of a group: its broker assigns partitions (CONSUMER), or a member (CLASSIC)."""

    UNKNOWN = 0
    CONSUMER = 1
    CLASSIC = 2


class IsolationLevel(_Ordered):
    """Which records are read: all, or those of committed transactions and of none."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class ElectionType(_Ordered):
    """Which replica is elected: the preferred one, or, if none is in sync, one that may lack
    records (UNCLEAN)."""

    PREFERRED = 0
    UNCLEAN = 1
