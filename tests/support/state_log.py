"""A coordinator's log in memory, with a watermark and faults of the test's own."""

from collections.abc import Callable
from typing import Any

from klog_broker.coordinator.loading import BatchWalk
from klog_broker.coordinator.runtime import RuntimeServices
from klog_broker.log.errors import OffsetOutOfRange, RecordTooLarge
from klog_broker.log.read.read_results import ReadInfo
from klog_broker.runtime.disk.files import ReadRegion
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.purgatory import Purgatory
from klog_broker.runtime.event_loop.slices import Slices
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import Offset, TopicPartition
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.control import EndTransactionMarker, end_transaction_batch
from tests.support.cluster.helpers import Helpers
from tests.support.manual_clock import ManualClock


class MemoryStateLog:
    """A StateLog. ``follows``: whether the watermark rises with the log's end."""

    def __init__(self, topic: str = "__consumer_offsets", start: int = 0) -> None:
        self.topic_partition = TopicPartition(topic, 0)
        self.leader_epoch = 0
        self.log_start_offset = Offset(start)
        self.log_end_offset = Offset(start)
        self.high_watermark = Offset(start)
        self.ended: object | None = None
        self.follows = True
        self.fails: KlogError | None = None
        self.max_message_bytes: int | None = None
        self.batches: list[bytes] = []

    def append(self, records: bytearray) -> Offset:
        if self.fails is not None:
            raise self.fails
        if self.max_message_bytes is not None and len(records) > self.max_message_bytes:
            raise RecordTooLarge(f"a batch of {len(records)} bytes")
        return self.put(bytes(records))

    def append_plain(self, batch: bytearray, record_count: int, now_ms: int) -> Offset:
        return self.append(batch)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: EndTransactionMarker,
        *,
        transaction_version: int,
    ) -> Offset:
        batch = end_transaction_batch(
            marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp_ms=0
        )
        return self.append(bytearray(batch))

    def put(self, batch: bytes, *, gap: int = 0) -> Offset:
        """A batch as it is, ``gap`` offsets behind the log's end."""
        data = bytearray(batch)
        view = BatchView(data)
        view.set_base_offset(self.log_end_offset + gap)
        self.batches.append(bytes(data))
        self.log_end_offset = Offset(view.next_offset)
        if self.follows:
            self.high_watermark = self.log_end_offset
        return self.log_end_offset

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int | None = None,
        min_one_batch: bool = False,
        may_block: bool = True,
    ) -> ReadInfo:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(f"offset {offset}")
        limit = self.high_watermark if end_offset is None else end_offset
        data = b""
        for batch in self.batches:
            view = BatchView(batch)
            if view.next_offset > offset and view.base_offset < limit:
                if data and len(data) + len(batch) > max_bytes:
                    break
                data += batch
        region = ReadRegion(_Bytes(data), 0, len(data)) if data else None
        return ReadInfo(region, self.high_watermark, self.log_start_offset, None)


class _Bytes:
    """The part of a File that a loader needs."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def pread(self, size: int, position: int) -> bytes:
        return self._data[position : position + size]

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a loader needs no {name}")


class _NoPoller:
    """A poller for which no descriptor is ever ready."""

    def poll(self, timeout_ms: int | None) -> list[tuple[int, int]]:
        return []

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class VirtualTime:
    """A loop on a clock of the test's, and all that a coordinator runtime stands on."""

    def __init__(
        self, now_ms: int = 1_000, new_walk: Callable[[], BatchWalk | None] = lambda: None
    ) -> None:
        self.clock = ManualClock(now_ms)
        self.loop = Loop(self.clock, _NoPoller())
        self.helpers = Helpers(self.loop)
        self.services = RuntimeServices(
            loop=self.loop,
            purgatory=Purgatory(self.loop),
            clock=self.clock,
            helpers=self.helpers,
            slices=Slices(self.loop),
            new_walk=new_walk,
        )

    @property
    def now_ms(self) -> int:
        return self.loop.now_ms()

    def turns(self) -> int:
        """Run turns until nothing is left to do at this time; return their number."""
        count = 0
        while (wake_ms := self.loop.next_wake_ms()) is not None and wake_ms <= self.loop.now_ms():
            self.loop.run_turn(0)
            count += 1
        return count

    def advance(self, ms: int) -> None:
        """Let virtual time pass, deadline by deadline."""
        end_ms = self.now_ms + ms
        while (wake_ms := self.loop.next_wake_ms()) is not None and wake_ms <= end_ms:
            self._turn_at(max(wake_ms, self.now_ms))
        self._turn_at(end_ms)

    def _turn_at(self, now_ms: int) -> None:
        self.clock.advance(now_ms - self.clock.monotonic_ms())
        self.loop.run_turn(0)
