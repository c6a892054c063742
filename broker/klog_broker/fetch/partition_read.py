"""One partition of a Fetch: the request, and the result of the last read."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from klog_broker.fetch.down_conversion import SetToConvert
from klog_broker.replication.leader import Leader
from klog_broker.runtime.disk.files import ReadRegion
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import UUID
from pyspark_klog.protocol.apis.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    PartitionData,
)
from pyspark_klog.protocol.fields import FileRegion

_NONE = ErrorCode.NONE

_REFUSED_BEFORE_READING = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
"""A partition with one of these errors has an empty list of aborted transactions in the response,
as in Kafka; with other errors the list is null."""


class Reads(Enum):
    """The offset up to which a fetch reads."""

    VISIBLE = "to the high watermark"
    COMMITTED = "to the last stable offset (READ_COMMITTED)"
    ALL = "to the log's end"


class ReadPartition:
    """One partition of a fetch: the request, and the result of the last read."""

    __slots__ = (
        "_reads",
        "_seen_end_offset",
        "aborted_transactions",
        "cold",
        "diverging_epoch",
        "ends_the_wait",
        "error_code",
        "high_watermark",
        "is_at_end",
        "is_noted",
        "last_stable_offset",
        "leader",
        "log_start_offset",
        "may_block",
        "name",
        "records",
        "region",
        "request",
        "size_bytes",
        "to_convert",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: UUID, name: str, request: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        # The topic's name, also if the request identifies the topic by its id; empty if the id is
        # unknown.
        self.name = name
        self.request = request
        self.leader: Leader | None = None
        self.may_block = False
        self.is_noted = False
        """Whether the fetch is a follower's, and the leader has noted the progress that it
        reports."""
        self._reads = Reads.VISIBLE
        self._seen_end_offset: int = -1
        self.forget_result()

    def forget_result(self) -> None:
        """Forget the result of the last read."""
        self.error_code = _NONE
        self.high_watermark: int = -1
        self.last_stable_offset: int = -1
        self.log_start_offset: int = -1
        self.aborted_transactions: list[AbortedTransaction] | None = None
        self.diverging_epoch: EpochEndOffset | None = None
        self.region: ReadRegion | None = None
        """The region of a log file with the records to send, or None if there are none, or if they
        are converted down. A region is never empty."""
        self.records: memoryview | bytes = b""
        """The records, converted to an older format, for a client that cannot read the format of
        the log file."""
        self.size_bytes = 0
        self.is_at_end = False
        """Whether the log has no record at or after the fetch offset that this client may read
        now."""
        self.ends_the_wait = False
        self.cold: Callable[[], object] | None = None
        """If the last read would have blocked on the disk: a function that reads the missing pages,
        to be called in a helper thread. The function comes from a ColdRead exception, which is not
        stored: the frames of its traceback refer to this partition, and the cycle would keep a
        deleted segment on the disk until a garbage collection."""
        self.to_convert: SetToConvert | None = None

    @property
    def has_moved(self) -> bool:
        """Whether another read may have another result than the last read: the offset up to which
        this fetch may read has changed, or the leadership has ended."""
        leader = self.leader
        if leader is None:
            return False
        log = leader.log
        reads = self._reads
        if reads is Reads.VISIBLE:
            end_offset = log.high_watermark
        else:
            end_offset = log.last_stable_offset if reads is Reads.COMMITTED else log.log_end_offset
        return leader.ended is not None or end_offset != self._seen_end_offset

    def note_leader(self, leader: Leader, reads: Reads) -> int:
        """Store the leader and its log's offsets as a part of the result. Return the offset up to
        which this fetch may read."""
        log = leader.log
        self.leader = leader
        self.high_watermark = end_offset = log.high_watermark
        self.last_stable_offset = log.last_stable_offset
        self.log_start_offset = log.log_start_offset
        self._reads = reads
        if reads is Reads.COMMITTED:
            end_offset = self.last_stable_offset
            self.aborted_transactions = []
        elif reads is Reads.ALL:
            end_offset = log.log_end_offset
        self._seen_end_offset = end_offset
        return end_offset

    def refuse(self, code: ErrorCode) -> None:
        """Set an error as the partition's result. A fetch with an error is answered without waiting
        for more records."""
        self.forget_result()
        self.error_code = code
        if code in _REFUSED_BEFORE_READING:
            self.aborted_transactions = []
        self.ends_the_wait = True

    def count_bytes_out(self) -> None:
        """Count the bytes of the partition in a response to a consumer (not those for a
        follower)."""
        if self.size_bytes and self.leader is not None and not self.is_noted:
            # Converted records have another size than the records in the file.
            sent_bytes = len(self.records) if self.region is None else self.size_bytes
            self.leader.log.counts.bytes_out += sent_bytes

    def release_records(self) -> None:
        """Drop the records and all other references to the log's files, which would keep a deleted
        segment on the disk. Called at the end of a fetch, answered or not."""
        self.region = None
        self.records = b""
        self.cold = self.to_convert = None
        # The last read may have been allowed to block, after a helper thread had read the missing
        # pages. The next fetch must not block the event loop.
        self.may_block = False

    def response_part(self) -> PartitionData:
        """Return the result of the last read as a part of FetchResponse."""
        data = PartitionData(
            partition_index=self.request.partition,
            error_code=self.error_code,
            high_watermark=self.high_watermark,
            last_stable_offset=self.last_stable_offset,
            log_start_offset=self.log_start_offset,
            aborted_transactions=self.aborted_transactions,
            records=self.records if self.region is None else FileRegion(*self.region),
        )
        if self.diverging_epoch is not None:
            data.diverging_epoch = self.diverging_epoch
        return data
