"""One partition of a Fetch, before and after it was read."""

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
"""With these errors Kafka's list of aborted transactions is empty. With all others it is null."""


class Reads(Enum):
    """How far a fetch reads."""

    VISIBLE = "to the high watermark"
    COMMITTED = "to the last stable offset (READ_COMMITTED)"
    ALL = "to the log's end"


class ReadPartition:
    """One partition of a fetch: what was asked, and what the last read found."""

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
        # The topic's name also where it was asked for by id.
        self.name = name
        self.request = request
        self.leader: Leader | None = None
        self.may_block = False
        self.is_noted = False
        """For a follower's fetch: the leader has noted what the follower asks for."""
        self._reads = Reads.VISIBLE
        self._seen_end_offset: int = -1
        self.begin()

    def begin(self) -> None:
        """Forgets what the last read found."""
        self.error_code = _NONE
        self.high_watermark: int = -1
        self.last_stable_offset: int = -1
        self.log_start_offset: int = -1
        self.aborted_transactions: list[AbortedTransaction] | None = None
        self.diverging_epoch: EpochEndOffset | None = None
        self.region: ReadRegion | None = None
        """The record set, where it is sent as it lies in the file: not empty."""
        self.records: memoryview | bytes = b""
        """The record set that was converted."""
        self.size_bytes = 0
        self.is_at_end = False
        """Nothing is behind the offset that was asked for, as far as this client may read."""
        self.ends_the_wait = False
        self.cold: Callable[[], object] | None = None
        """Reads the pages that the look-up needs; for a helper thread. The ColdRead that had this
        function is not stored: the frames of its traceback refer to this partition, and the cycle
        would keep a deleted segment on the disk until a garbage collection."""
        self.to_convert: SetToConvert | None = None

    @property
    def has_moved(self) -> bool:
        """Whether another read can find anything else than the last one did."""
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

    def see(self, leader: Leader, reads: Reads) -> int:
        """Notes who leads, and how far the log goes. Returns where the reading ends."""
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
        """The partition's answer is an error: the fetch need not wait for others."""
        self.begin()
        self.error_code = code
        if code in _REFUSED_BEFORE_READING:
            self.aborted_transactions = []
        self.ends_the_wait = True

    def note_answered(self) -> None:
        """Counts the bytes of the response, which has taken the records over, and lets go."""
        if self.size_bytes and self.leader is not None and not self.is_noted:
            # Converted records have another size than those in the file.
            self.leader.log.counts.bytes_out += len(self.records) or self.size_bytes
        self.let_go()

    def let_go(self) -> None:
        """Drops the records and everything else that refers to the log's files, which would keep
        the space of a deleted segment. For the end of a fetch, answered or not."""
        self.region = None
        self.records = b""
        self.cold = self.to_convert = None
        # A helper has read pages for this one read.
        self.may_block = False

    def answer(self) -> PartitionData:
        """What the last read found, for the codec."""
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
