"""State that lives in one partition's log: decide, append, apply.

A handler decides on records and a reply; ``append`` writes the records and applies each of them to
the state at once; the reply waits in ``when_visible`` until the high watermark has passed
everything that the state was made of. Loading is replaying ``apply``, a slice a turn.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from klog_broker.log.errors import LogError, OutOfDescriptors, RecordBatchTooLarge, RecordTooLarge
from klog_broker.log.partition_log import AppendOrigin, PartitionLog
from klog_broker.runtime.clock import Clock
from klog_broker.runtime.descriptors import is_exhausted
from klog_broker.runtime.purgatory import DelayedOperation, Purgatory
from pyspark_klog.errors import ErrorCode, InvariantViolation, KlogError
from pyspark_klog.ids import LeaderEpoch, Offset
from pyspark_klog.records.batch import split_batches
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec

K = TypeVar("K")
V = TypeVar("V")

LOAD_SLICE_BYTES = 256 * 1024
"""What one turn of the loop reads and applies while a shard loads: a few milliseconds."""


class Shard(Generic[K, V]):
    """A partition of a state topic. ``apply`` is the only thing that changes the state.

    ``encode`` and ``decode`` turn (key, value) into a record's bytes and back; ``decode`` returns
    None for a record that is to be skipped. A None value is a tombstone.
    """

    def __init__(
        self,
        log: PartitionLog,
        *,
        encode: Callable[[K, V | None], tuple[bytes, bytes | None]],
        decode: Callable[[bytes, bytes | None], tuple[K, V | None] | None],
        apply: Callable[[K, V | None], None],
        purgatory: Purgatory,
        clock: Clock,
        timeout_ms: int,
        leader_epoch: Callable[[], LeaderEpoch],
        codec: Codec = Codec.NONE,
    ) -> None:
        self.log = log
        self.is_loaded = False
        self.has_failed = False
        self._encode = encode
        self._decode = decode
        self._apply = apply
        self._purgatory = purgatory
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._leader_epoch = leader_epoch
        self._codec = codec
        self._position = log.log_start_offset
        self._load_end = log.log_end_offset

    def load_slice(self, max_bytes: int = LOAD_SLICE_BYTES) -> bool:
        """Replay up to ``max_bytes`` more; True once everything is applied.

        The read may wait for the disk, as recovery at start does: a shard answers nobody before.
        Raises KlogError or OSError where the log is damaged or its disk fails: then the shard has
        failed for good, and answers nobody either, unless only a descriptor was wanting.
        """
        try:
            return self._load_slice(max_bytes)
        except (KlogError, OSError) as error:
            self.has_failed = not wants_descriptor(error)
            raise

    def _load_slice(self, max_bytes: int) -> bool:
        if self._position < self._load_end:
            found = self.log.read(
                self._position, max_bytes, end_offset=self._load_end, min_one_batch=True
            )
            if found.region is None:
                raise InvariantViolation(
                    f"{self.log.topic_partition}: nothing at offset {self._position}, "
                    f"but the log ends at {self._load_end}"
                )
            data = found.region.file.pread(found.region.size, found.region.position)
            for batch in split_batches(data, allow_partial=True):
                batch.check_crc()
                if not batch.is_control:
                    for record in batch.records():
                        if record.offset >= self._position:
                            self._replay(record.key, record.value)
                self._position = Offset(batch.next_offset)
        self.is_loaded = self._position >= self._load_end
        return self.is_loaded

    def append(self, records: Sequence[tuple[K, V | None]]) -> None:
        """Append as one batch, then apply. Nothing has changed when it raises (LogError)."""
        builder = BatchBuilder(codec=self._codec)
        now_ms = self._clock.now_ms()
        for key, value in records:
            key_bytes, value_bytes = self._encode(key, value)
            builder.append(key_bytes, value_bytes, now_ms)
        self.log.append_as_leader(
            bytearray(builder.build()),
            leader_epoch=self._leader_epoch(),
            now_ms=now_ms,
            origin=AppendOrigin.COORDINATOR,
        )
        for key, value in records:
            self._apply(key, value)

    def when_visible(self, callback: Callable[[ErrorCode], None]) -> None:
        """Call back once the high watermark has passed all that was appended so far.

        With NONE; REQUEST_TIMED_OUT after the time-out; KAFKA_STORAGE_ERROR if the log fails.
        """
        log = self.log
        if log.high_watermark >= log.log_end_offset and not log.is_offline:
            callback(ErrorCode.NONE)
            return
        waiting = _WaitForHighWatermark(log, callback)
        self._purgatory.watch(waiting, [log.topic_partition], self._timeout_ms)
        log.when_flushed(log.log_end_offset, lambda _: self._check())

    def _check(self) -> None:
        self._purgatory.check(self.log.topic_partition)

    def _replay(self, key: bytes | None, value: bytes | None) -> None:
        decoded = None if key is None else self._decode(key, value)
        if decoded is not None:
            self._apply(*decoded)


class _WaitForHighWatermark(DelayedOperation):
    __slots__ = ("_callback", "_end_offset", "_log")

    def __init__(self, log: PartitionLog, callback: Callable[[ErrorCode], None]) -> None:
        self._log = log
        self._end_offset = log.log_end_offset
        self._callback = callback

    def try_complete(self, _now_ms: int) -> bool:
        if self._log.is_offline:
            self._callback(ErrorCode.KAFKA_STORAGE_ERROR)
            return True
        if self._log.high_watermark < self._end_offset:
            return False
        self._callback(ErrorCode.NONE)
        return True

    def on_expire(self, _now_ms: int) -> None:
        self._callback(ErrorCode.REQUEST_TIMED_OUT)


def wants_descriptor(error: Exception) -> bool:
    """Whether loading failed only because no file descriptor was left: it can be tried again."""
    return isinstance(error, OutOfDescriptors) or is_exhausted(error)


def append_error(error: LogError) -> ErrorCode:
    """What clients of a coordinator are told when its log refuses: look for it again, or too large.

    As Kafka's GroupMetadataManager translates them.
    """
    if isinstance(error, RecordTooLarge | RecordBatchTooLarge):
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return ErrorCode.NOT_COORDINATOR
