"""A consumer: reads its partitions from the beginning, or again, and reports the records."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import UUID, TopicPartition
from pyspark_klog.protocol.apis.fetch import FetchRequest, FetchResponse
from pyspark_klog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.simulation.clients.base import Script, check_code
from tests.simulation.clients.fetch_session import SESSIONS, Asking
from tests.simulation.clients.reader import GAPS, Reader
from tests.simulation.world import Violation

_NAMED = 12  # from version 13 on topics go by id
_WITH_SESSIONS = 7


class Consumer(Reader):
    """Ends once it has all promised records.

    With ``reads_to`` (ends by partition) it reads up to these offsets.
    """

    def __init__(
        self,
        *given: Any,
        partitions: list[TopicPartition],
        reads_to: dict[TopicPartition, int] | None = None,
        **named: Any,
    ) -> None:
        super().__init__(*given, **named)
        self._positions = dict.fromkeys(partitions, 0)
        self._reads_to = reads_to
        self._power_cuts = 0
        random = self.world.random
        sizes = (500, 2_000, 1 << 20)
        self._max_bytes = random.choice(sizes if reads_to is None else sizes[-1:])
        self._version = random.choice((4, 7, 11, 12, 13, 18))
        self._with_session = self._version >= _WITH_SESSIONS and random.random() < 0.7
        self._asking = Asking(with_session=False, max_bytes=0, ids=None, reads_committed=False)
        self._paused: TopicPartition | None = None

    def script(self) -> Script:
        yield from self.connect()
        self._watermarks.clear()
        ids = (yield from self._find_ids()) if self._version > _NAMED else None
        self._asking = Asking(
            with_session=self._with_session,
            max_bytes=self._max_bytes,
            ids=ids,
            reads_committed=self._reads_committed,
        )
        while not self._is_through():
            yield from self._fetch()

    def _is_through(self) -> bool:
        """Whether all has been read that this connection can read."""
        return self._is_done()

    def _may_wait_since(self, asked_ms: int) -> bool:
        """Whether a fault allows a response to come late."""
        return self.was_stalled or self.machine.last_trouble_ms >= asked_ms

    def _position_is_gone(self, partition: TopicPartition) -> None:
        records = self.history.records
        at, start = self._positions[partition], records.start_of(partition)
        if at >= start and records.power_cuts == self._power_cuts:
            raise Violation(GAPS, f"{self.name}: {partition} has no offset {at}")
        self._positions[partition] = start

    def _is_done(self) -> bool:
        if self._reads_to is not None:
            return all(self._positions[p] >= end for p, end in self._reads_to.items())
        records, transactions = self.history.records, self.history.transactions
        end = transactions.stable_end if self._reads_committed else records.promised_end
        return self.must_end and all(
            position >= end(partition) for partition, position in self._positions.items()
        )

    def _find_ids(self) -> Generator[Any, Any, dict[str, UUID]]:
        names = {partition.topic: None for partition in self._positions}
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
        )
        reply = yield from self.call_broker(request, MetadataResponse, low=10)
        return {row.name: row.topic_id for row in reply.topics}

    def _wanted(self) -> dict[TopicPartition, int]:
        """The positions to fetch; at times one partition is paused."""
        world = self.world
        if self.must_end or (self._paused is not None and world.chance(0.3)):
            self._paused = None
        elif self._with_session and len(self._positions) > 1 and world.chance(0.1):
            self._paused = world.random.choice(list(self._positions))
        return {p: at for p, at in self._positions.items() if p != self._paused}

    def _confuse(self) -> Generator[Any, Any, None]:
        """Send a request that does not follow the last one: it must be refused."""
        reply = yield from self._ask(self._asking.wrong_request(), 0)
        if ErrorCode(reply.error_code) is ErrorCode.NONE:
            raise Violation(SESSIONS, f"{self.name} left an epoch out")
        self._asking.begin_anew()

    def _ask(self, request: FetchRequest, wait_ms: int) -> Generator[Any, Any, FetchResponse]:
        return (
            yield from self.call_broker(
                request, FetchResponse, low=4, high=self._version, waits_ms=wait_ms
            )
        )

    def _fetch(self) -> Generator[Any, Any, None]:
        world = self.world
        asking = self._asking
        if asking.has_session and not self.must_end and world.chance(0.02):
            yield from self._confuse()
        waits = (0, 100) if self.must_end else (0, 100, 700, 9_000)
        wait_ms = 0 if self._reads_to else world.random.choice(waits)
        least_bytes = 1 if self.must_end else world.random.choice((1, 500))
        request = asking.request(self._wanted(), max_wait_ms=wait_ms, min_bytes=least_bytes)
        asked_ms = world.now_ms
        reply = yield from self._ask(request, wait_ms)
        check_code(self, reply.error_code)
        asking.took(reply)
        got = 0
        is_prompt = least_bytes == 1 and not self._may_wait_since(asked_ms)
        since_ms = asked_ms if is_prompt else world.now_ms
        for topic in reply.responses:
            for row in topic.partitions:
                partition = asking.partition(topic.topic, topic.topic_id, row.partition_index)
                got += self._take(partition, row, since_ms)
        if not got and not wait_ms:
            yield from self.sleep(world.between(1, 100))
