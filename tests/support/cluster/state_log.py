"""A coordinator's log in memory, whose high watermark and faults the test sets."""

from typing import Any

from klog_broker.log.errors import OffsetOutOfRange, RecordTooLarge
from klog_broker.log.read.read_results import ReadInfo
from klog_broker.runtime.disk.files import ReadRegion
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import Offset, TopicPartition
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.control import EndTransactionMarker, end_transaction_batch


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
        region = ReadRegion(Bytes(data), 0, len(data)) if data else None
        return ReadInfo(region, self.high_watermark, self.log_start_offset, None)


class Bytes:
    """The part of a File that a loader needs."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def pread(self, size: int, position: int) -> bytes:
        return self._data[position : position + size]

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a loader needs no {name}")
