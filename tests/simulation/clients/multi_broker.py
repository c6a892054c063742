"""Clients of a cluster: they find the leaders, and go from one broker to the next.

Each has one connection at a time, to a leader of one of its partitions, until it moves on or the
broker is no longer the leader.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Sequence
from typing import Any

from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.simulation.checks.records import value_of
from tests.simulation.clients.admin import Admin
from tests.simulation.clients.base import Client, Script
from tests.simulation.clients.consumer import Consumer
from tests.simulation.clients.producer import EXPECTED, Producer
from tests.simulation.machine import Machine

_STAY_MS = (200, 3_000)
MOVED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


class Roaming(Client):
    """The common part of all clients of a cluster; the first base class of each."""

    def __init__(self, *given: Any, machines: Sequence[Machine], **named: Any) -> None:
        super().__init__(*given, **named)
        self.machines = machines
        self._target: Machine | None = None

    @property
    def may_be_late(self) -> bool:
        """Always true: a machine may be suspended, and a broker may wait for other brokers."""
        return True

    def choose_machine(self) -> Machine:
        target, self._target = self._target, None
        return target or self.world.random.choice(self.machines)

    @property
    def here(self) -> int:
        """The id of the broker at the other end of this connection."""
        return self.machines.index(self.machine)

    def go_to(self, broker_id: int) -> Script:
        """Connect to this broker; if it is down, to another one, whose response says so."""
        if self.is_connected and self.here == broker_id:
            return
        self.hang_up()
        self._target = self.machines[broker_id]
        yield from self.connect()

    def ask_leaders(
        self, wanted: Sequence[TopicPartition]
    ) -> Generator[Any, Any, dict[TopicPartition, int]]:
        """The leaders that this broker knows; partitions without a leader are left out."""
        names = {partition.topic: None for partition in wanted}
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
        )
        reply = yield from self.call_broker(request, MetadataResponse)
        leaders = {
            TopicPartition(topic.name, row.partition_index): row.leader_id
            for topic in reply.topics
            for row in topic.partitions
        }
        return {each: at for each in wanted if (at := leaders.get(each, -1)) >= 0}


class Following(Roaming):
    """Goes from leader to leader of its partitions, and does its work there."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._led: list[TopicPartition] = []
        """The partitions that the connected broker leads, by its own metadata."""
        self._moves_at_ms = 0

    @abstractmethod
    def wants(self) -> list[TopicPartition]:
        """The partitions that still have work to do."""

    @property
    def wants_to_move(self) -> bool:
        return self.world.now_ms >= self._moves_at_ms

    def move(self) -> None:
        """Move on: another broker leads."""
        self._moves_at_ms = self.world.now_ms

    def look(self) -> Script:
        """Request the leaders, and choose one of the other brokers for the next connection."""
        yield from self.connect()
        leaders = yield from self.ask_leaders(self.wants())
        here = self.here
        self._led = [each for each, at in leaders.items() if at == here]
        self._moves_at_ms = self.world.now_ms + self.world.between(*_STAY_MS)
        elsewhere = [at for at in leaders.values() if at != here]
        if elsewhere:
            self._target = self.machines[self.world.random.choice(elsewhere)]
        if not self._led:
            self.move()
            self.hang_up()
            yield from self.sleep(self.world.between(1, 200))


class RoamingAdmin(Roaming, Admin):
    """Asks one broker after the other until it finds the controller."""

    _expected = (ErrorCode.NOT_CONTROLLER, ErrorCode.INVALID_REPLICATION_FACTOR)

    def _was_refused(self, code: ErrorCode) -> None:
        if code is ErrorCode.NOT_CONTROLLER:
            self.hang_up()


class FollowingProducer(Following, Producer):
    """Sends its batches to the leaders."""

    pauses_ms = (100, 400)

    def __init__(
        self, *given: Any, leader_of: Callable[[TopicPartition], int], **named: Any
    ) -> None:
        """Create the client. `leader_of` returns the broker that was elected last."""
        super().__init__(*given, **named)
        self._leader_of = leader_of

    def wants(self) -> list[TopicPartition]:
        return self._partitions

    def _ready(self, now_ms: int) -> list[TopicPartition]:
        if self.wants_to_move:
            return []
        return [each for each in self._core.ready(now_ms) if each in self._led]

    def _may_time_out(self, _sent_ms: int) -> bool:
        return True

    def _take_response(self, reply: Any, batches: Any, sent_ms: int) -> None:
        codes = {row.error_code for topic in reply.responses for row in topic.partition_responses}
        if not codes.isdisjoint(MOVED):
            self.move()
        super()._take_response(reply, batches, sent_ms)

    def _is_elected(self, partition: TopicPartition) -> bool:
        """Whether this broker is the elected leader."""
        return self._leader_of(partition) == self.here


class RoamingProducer(FollowingProducer):
    """Sends to one leader after the other."""

    most_records = 300
    _expected = (*EXPECTED, *MOVED, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    _no_identity = (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    )

    def script(self) -> Script:
        self._take_back()
        while not (self.must_end and self._core.is_idle):
            yield from self.look()
            if self._led:
                yield from super().script()
                if self.is_connected:
                    self.hang_up()
                self._take_back()

    def _is_through(self) -> bool:
        return super()._is_through() or (self.wants_to_move and not self._calls)

    def _take_response(self, reply: Any, batches: Any, sent_ms: int) -> None:
        self._forgive_who_leads_no_more(reply, batches)
        super()._take_response(reply, batches, sent_ms)

    def _forgive_who_leads_no_more(self, reply: Any, batches: Any) -> None:
        """Excuse errors of a leader that has not learned that another one was elected.

        A Produce request names no leader epoch. The old leader lacks the batches that the new
        leader took, and calls the next batches out of order, as Kafka's does. The producer repeats
        all batches in flight under a new identity, so that some records may be there twice.
        """
        codes = {
            TopicPartition(topic.name, row.index): row.error_code
            for topic in reply.responses
            for row in topic.partition_responses
        }
        for batch in batches:
            is_out_of_order = codes[batch.partition] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            if is_out_of_order and not self._is_elected(batch.partition):
                number = self._numbers[id(batch)][0]
                self.history.records.excuse([value_of(self.name, number)])

    def _acknowledged(self, partition: TopicPartition, offset: int, numbers: list[int]) -> None:
        """Report only records that all in-sync replicas have: acks=1 promises nothing here."""
        if self._acks == -1:
            super()._acknowledged(partition, offset, numbers)


class RoamingConsumer(Following, Consumer):
    """Reads from one leader after the other."""

    _expected = MOVED

    def script(self) -> Script:
        while not self._is_done():
            yield from self.look()
            if self._led:
                yield from super().script()
                if self.is_connected:
                    self.hang_up()

    def wants(self) -> list[TopicPartition]:
        return list(self._positions)

    def _is_through(self) -> bool:
        return super()._is_through() or self.wants_to_move

    def _wanted(self) -> dict[TopicPartition, int]:
        return {each: at for each, at in super()._wanted().items() if each in self._led}

    def _may_wait_since(self, _asked_ms: int) -> bool:
        return True

    def _was_refused(self, _partition: TopicPartition, _code: ErrorCode) -> None:
        self.move()

    def _position_is_gone(self, partition: TopicPartition) -> None:
        """Start again if the offset may be lost; else an old leader may have fewer records."""
        records = self.history.records
        if self._positions[partition] > records.lost_from(partition):
            self._positions[partition] = records.start_of(partition)
        elif self.must_end:
            super()._position_is_gone(partition)
        self.move()

    def _fetch(self) -> Generator[Any, Any, None]:
        yield from super()._fetch()
        if not self._wanted():
            self.move()
