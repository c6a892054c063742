"""A consumer: reads its partitions from the beginning, or again, and notes what it is given."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tests.simulation.checks.marks import BACK, EARLY
from tests.simulation.checks.records import records_in
from tests.simulation.clients.base import WAKING, Client, Script, check_code
from tests.simulation.world import Violation

GAPS = "a consumer misses nothing"
_SMALL_BYTES = 5_000
_PROMPT_MS = 4_000
"""So long an answer of few bytes may be under way."""
_NAMED = 12  # from version 13 on topics go by id


class Consumer(Client):
    """With ``reads_to`` (ends by partition) it reads up to these, and is over."""

    def __init__(
        self,
        *given: Any,
        partitions: list[TopicPartition],
        reads_to: dict[TopicPartition, int] | None = None,
        **named: Any,
    ) -> None:
        super().__init__(*given, **named)
        self._positions = dict.fromkeys(partitions, 0)
        self._watermarks: dict[TopicPartition, int] = {}
        self._reads_to = reads_to
        self._power_cuts = 0
        sizes = (200, 2_000, 1 << 20)
        self._max_bytes = self.world.random.choice(sizes if reads_to is None else sizes[-1:])
        self._version = self.world.random.choice((4, 7, 11, 12))

    def script(self) -> Script:
        yield from self.connect()
        self._watermarks.clear()
        while not self._is_done():
            yield from self._fetch()

    def _is_done(self) -> bool:
        if self._reads_to is None:
            return self.must_end
        return all(self._positions[p] >= end for p, end in self._reads_to.items())

    def _fetch(self) -> Generator[Any, Any, None]:
        world = self.world
        asked: dict[str, FetchTopic] = {}
        for partition, position in self._positions.items():
            wanted = asked.setdefault(partition.topic, FetchTopic(topic=partition.topic))
            wanted.partitions.append(
                FetchPartition(
                    partition=partition.partition,
                    fetch_offset=position,
                    partition_max_bytes=self._max_bytes,
                )
            )
        wait_ms = 0 if self._reads_to else world.random.choice((0, 100, 700, 9_000))
        least_bytes = world.random.choice((1, 500))
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=least_bytes,
            topics=list(asked.values()),
        )
        asked_ms = world.now_ms
        reply = yield from self.ask(
            request, FetchResponse, low=4, high=min(self._version, _NAMED), waits_ms=wait_ms
        )
        check_code(self, reply.error_code)
        got = 0
        is_prompt = least_bytes == 1 and not self.was_stalled
        is_prompt &= self.machine.last_trouble_ms < asked_ms
        since_ms = asked_ms if is_prompt else world.now_ms
        for topic in reply.responses:
            for row in topic.partitions:
                got += self._take(TopicPartition(topic.topic, row.partition_index), row, since_ms)
        if not got and not wait_ms:
            yield from self.sleep(world.between(1, 100))

    def _take(self, partition: TopicPartition, row: PartitionData, since_ms: int) -> int:
        code = check_code(
            self,
            row.error_code,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        records = self.history.records
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if records.power_cuts == self._power_cuts:
                at = self._positions[partition]
                raise Violation(GAPS, f"{self.name}: {partition} has no offset {at}")
            self._positions[partition] = 0
            return 0
        if code is not ErrorCode.NONE:
            return 0
        if row.high_watermark < self._watermarks.get(partition, 0):
            raise Violation(BACK, f"{partition}: watermark {row.high_watermark}")
        self._watermarks[partition] = row.high_watermark
        position, count = self._positions[partition], 0
        data = bytes(row.records or b"")
        is_small = len(data) < _SMALL_BYTES
        for record in records_in(data, f"{self.name}: {partition}"):
            if record.offset < position:
                continue
            if record.offset != position:
                raise Violation(GAPS, f"{partition}: {record.offset} came, not {position}")
            if record.offset >= row.high_watermark:
                raise Violation(EARLY, f"{partition}: {record.offset} of {row.high_watermark}")
            value = bytes(record.value or b"")
            known_ms = records.was_delivered(partition, record.offset, value)
            if is_small and self.world.now_ms - max(known_ms, since_ms) > _PROMPT_MS:
                raise Violation(WAKING, f"{self.name} waited for {value!r} since {known_ms}")
            position, count = position + 1, count + 1
        self._positions[partition] = position
        return count
