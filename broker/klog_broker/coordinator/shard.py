"""State that lives in one partition's log: decide, append, apply.

A handler decides on records and a reply; ``append`` writes the records and applies each of them to
the state at once; the reply waits in ``when_visible`` until the high watermark has passed
everything that the state was made of. Loading is replaying ``apply`` (loading.py).
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from klog_broker.coordinator.effects import Machine
from klog_broker.coordinator.loading import Loader
from klog_broker.coordinator.state_log import StateLog
from klog_broker.log.errors import RecordBatchTooLarge, RecordTooLarge
from klog_broker.runtime.event_loop.purgatory import DelayedOperation, Purgatory
from klog_broker.runtime.event_loop.wheel import Timer
from klog_broker.runtime.system.clock import Clock
from pyspark_klog.errors import BrokerError, ErrorCode, InvariantViolation
from pyspark_klog.ids import Offset
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import (
    BatchBuilder,
    compressed_batch,
    finish_plain_batch,
    plain_batch,
)
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.control import (
    ControlType,
    EndTransactionMarker,
    control_type_of,
)
from pyspark_klog.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from pyspark_klog.records.record import Record

K = TypeVar("K")
V = TypeVar("V")

_log = logging.getLogger("klog.coordinator")


class Producer(NamedTuple):
    """Whose transaction a record belongs to."""

    producer_id: int
    producer_epoch: int


class CoordinatorState(Protocol[K, V]):
    """The state that a shard keeps. What survives a restart changes by ``apply``, ``apply_marker``
    and what ``Shard.append_packed`` is given instead of ``apply``."""

    def apply(self, offset: Offset, key: K, value: V | None, producer: Producer | None, /) -> None:
        """A record at ``offset`` is in the log; a None ``value`` is a tombstone.

        With a ``producer`` it is part of a transaction: nothing of it counts before its marker.
        """

    def apply_marker(self, producer: Producer, *, is_commit: bool) -> None:
        """The producer's transaction has ended: what it wrote counts now, or never."""

    def machine(self, key: str) -> Machine[K, V] | None: ...

    def keys(self) -> Iterable[str]:
        """Of the machines."""

    def settled(self, key: str) -> None:
        """All that was decided on the key is done: the state may drop what nobody needs."""


S = TypeVar("S", bound=CoordinatorState[Any, Any])


class Changes(Protocol):
    """What a shard tells of the batches that it applies (a Timeline)."""

    def begin(self, end_offset: Offset, high_watermark: Offset) -> None: ...


class Format(NamedTuple, Generic[K, V]):
    """Between records and bytes; ``decode`` gives None for a record that is to be skipped."""

    encode: Callable[[K, V | None], tuple[bytes, bytes | None]]
    decode: Callable[[bytes, bytes | None], tuple[K, V | None] | None]


class ShardStatus(Enum):
    """The stages of a shard's life: LOADING is the first, FAILED and RESIGNED are the last."""

    LOADING = "loading"
    SERVING = "serving"
    FAILED = "failed"
    RESIGNED = "resigned"


_NONE = ErrorCode.NONE
_SERVING = ShardStatus.SERVING

_TOLD = {
    ShardStatus.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ShardStatus.SERVING: ErrorCode.NONE,
    ShardStatus.FAILED: ErrorCode.NOT_COORDINATOR,
    ShardStatus.RESIGNED: ErrorCode.NOT_COORDINATOR,
}


class Shard(Generic[K, V, S]):
    """One partition of a state topic: its log, the state made of it, and the timers of that."""

    def __init__(
        self,
        log: StateLog,
        state: S,
        changes: Changes,
        records: Format[K, V],
        *,
        purgatory: Purgatory,
        clock: Clock,
        timeout_ms: int,
        codec: Codec,
    ) -> None:
        self.log = log
        self.state = state
        self.status = ShardStatus.LOADING
        self.timers: dict[str, tuple[int, Timer]] = {}
        """By key: the deadline of each machine that has one."""
        self.when_serving: list[Callable[[], None]] = []
        """Called when loading has ended."""
        self._changes = changes
        self._records = records
        self._purgatory = purgatory
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._codec = codec
        self._written_offset = self._loaded_offset = Offset(0)
        self._is_appending = False

    def error(self) -> ErrorCode:
        """NONE if requests can be served now, else the error that is answered."""
        if self.log.ended is not None:
            return ErrorCode.NOT_COORDINATOR
        status = self.status
        return _NONE if status is _SERVING else _TOLD[status]

    # --- writing ---------------------------------------------------------------------------------
    def append(
        self, records: Sequence[tuple[K, V | None]], producer: Producer | None = None
    ) -> Offset:
        """Append as one batch, then apply; returns the batch's end offset.

        With a ``producer`` as a part of its transaction. Nothing has changed when it raises
        LogError or BrokerError (see StateLog.append); or the shard has failed, because what is in
        the log could not be applied (NOT_COORDINATOR).
        """
        now_ms = self._clock.now_ms()
        encode = self._records.encode
        encoded = [encode(key, value) for key, value in records]

        def apply(end_offset: Offset) -> None:
            offset = end_offset - len(records)
            for key, value in records:
                self.state.apply(Offset(offset), key, value, producer)
                offset += 1

        if producer is None and self._codec is Codec.NONE:
            batch = plain_batch(encoded, now_ms)
            return self._append(partial(self.log.append_plain, batch, len(records), now_ms), apply)
        return self._append(partial(self.log.append, self._batch(encoded, now_ms, producer)), apply)

    def append_in_parts(self, records: Sequence[tuple[K, V | None]]) -> None:
        """As :meth:`append`, of records that need not be appended together: as several batches if
        they are more than a batch of the log may hold. When it raises some may have been."""
        try:
            self.append(records)
        except (RecordTooLarge, RecordBatchTooLarge):
            half = len(records) // 2
            if half == 0:
                raise
            self.append_in_parts(records[:half])
            self.append_in_parts(records[half:])

    def append_packed(
        self, batch: bytearray, record_count: int, now_ms: int, apply: Callable[[int], None]
    ) -> Offset:
        """As :meth:`append`, of records that are packed behind the room for a batch's header
        (append_plain_record). ``apply`` is called with the first one's offset, and changes the
        state as applying each record would."""
        log = self.log
        if self._codec is Codec.NONE:
            finish_plain_batch(batch, record_count, now_ms)
            write = partial(log.append_plain, batch, record_count, now_ms)
        else:
            write = partial(log.append, compressed_batch(batch, record_count, now_ms, self._codec))
        return self._append(write, lambda end_offset: apply(end_offset - record_count))

    def _batch(
        self,
        encoded: Sequence[tuple[bytes, bytes | None]],
        now_ms: int,
        producer: Producer | None,
    ) -> bytearray:
        producer_id, producer_epoch = producer or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        builder = BatchBuilder(
            codec=self._codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            # As Kafka's coordinators write it; a coordinator's appends are not held to sequences.
            base_sequence=NO_SEQUENCE if producer is None else 0,
            is_transactional=producer is not None,
        )
        for key, value in encoded:
            builder.append(key, value, now_ms)
        return bytearray(builder.build())

    def append_marker(
        self, producer: Producer, marker: EndTransactionMarker, *, transaction_version: int
    ) -> Offset:
        """End a producer's transaction on this partition; returns the marker's end offset. Raises
        as :meth:`append` does."""
        producer_id, producer_epoch = producer
        is_commit = marker.control_type is ControlType.COMMIT
        return self._append(
            partial(
                self.log.append_marker,
                producer_id,
                producer_epoch,
                marker,
                transaction_version=transaction_version,
            ),
            lambda _: self.state.apply_marker(producer, is_commit=is_commit),
        )

    def _append(self, write: Callable[[], Offset], apply: Callable[[Offset], None]) -> Offset:
        """Write, then apply. Meanwhile the watermark may pass records that are not applied yet:
        nobody is answered until they are."""
        if self._is_appending:
            raise InvariantViolation(f"{self.log.topic_partition}: an append within an append")
        self._is_appending = True
        try:
            end_offset = write()
            self._written_offset = end_offset
            self._changes.begin(end_offset, self.log.high_watermark)
            try:
                apply(end_offset)
            except Exception as error:
                # The log has records that the state has not: none of them is acknowledged.
                self.fail(error)
                raise BrokerError(ErrorCode.NOT_COORDINATOR, str(error)) from error
        finally:
            self._is_appending = False
            self._purgatory.check(self)
        return end_offset

    # --- replaying -------------------------------------------------------------------------------
    def replay(self, batch: BatchView, records: Iterable[Record], from_offset: Offset) -> int:
        """Apply a batch of the log, those records that lie at or behind ``from_offset``.

        Returns how many records it has.
        """
        self._written_offset = self._loaded_offset = Offset(batch.next_offset)
        self._changes.begin(self._written_offset, self.log.high_watermark)
        is_control, state, decode = batch.is_control, self.state, self._records.decode
        producer = None
        if batch.is_transactional or is_control:
            producer = Producer(batch.producer_id, batch.producer_epoch)
        count = 0
        for record in records:
            count += 1
            if record.offset < from_offset or record.key is None:
                continue
            if is_control:
                if producer is not None:
                    self._replay_marker(record, producer)
                continue
            decoded = decode(record.key, record.value)
            if decoded is not None:
                state.apply(Offset(record.offset), *decoded, producer)
        return count

    def begin_run(self, end_offset: Offset) -> bool:
        """Whether readers may see all before ``end_offset``. If so, the batches up to there may be
        applied at once, now, by any way that comes to what :meth:`replay` comes to."""
        high_watermark = self.log.high_watermark
        if end_offset > high_watermark:
            return False
        self._written_offset = self._loaded_offset = end_offset
        self._changes.begin(end_offset, high_watermark)
        return True

    def _replay_marker(self, record: Record, producer: Producer) -> None:
        kind = control_type_of(record.key)
        if kind in (ControlType.COMMIT, ControlType.ABORT):
            self.state.apply_marker(producer, is_commit=kind is ControlType.COMMIT)

    # --- what readers may see --------------------------------------------------------------------
    def when_visible(self, callback: Callable[[ErrorCode], None]) -> None:
        """Call back once the high watermark has passed all that was written or replayed so far.

        With NONE; REQUEST_TIMED_OUT after the time-out; NOT_LEADER_OR_FOLLOWER if this broker leads
        the partition no longer, or has failed to keep its state.
        """
        code = self.seen(self._written_offset)
        if code is not None:
            callback(code)
            return
        waiting = _WaitUntilVisible(self, self._written_offset, callback)
        self._purgatory.watch(waiting, (self.log.topic_partition, self), self._timeout_ms)

    @property
    def shows_less_than_told(self) -> bool:
        """Whether the high watermark has not come to where the log ended when it was loaded: a
        leader before this one may have acknowledged more than readers may see."""
        return self.log.high_watermark < self._loaded_offset

    @property
    def is_visible(self) -> bool:
        """Whether :meth:`when_visible` would call back at once, with NONE."""
        return self.seen(self._written_offset) is _NONE

    def seen(self, offset: Offset) -> ErrorCode | None:
        """NONE if records before ``offset`` may be shown; None as long as they may not."""
        if self._is_appending:
            return None
        log, status = self.log, self.status
        if log.ended is not None or status in (ShardStatus.FAILED, ShardStatus.RESIGNED):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE if log.high_watermark >= offset else None

    # --- ends ------------------------------------------------------------------------------------
    def go_on(self, log: StateLog, loader: Loader | None) -> bool:
        """The same broker leads on, in a newer epoch. Returns whether the state is that of the log,
        or will be, by the ``loader`` that is at it: then who waits for the watermark waits for it
        there."""
        if loader is not None:
            will_be = self.status is ShardStatus.LOADING and loader.go_on_in(log)
        else:
            is_used = self.status in (ShardStatus.LOADING, _SERVING)
            will_be = is_used and log.log_end_offset == self._written_offset
        if will_be:
            self.log = log
        return will_be

    def fail(self, error: BaseException) -> None:
        """The state is incomplete: nobody is served from it. As in Kafka, the shard's keys have no
        coordinator then."""
        partition = self.log.topic_partition
        if self.status is ShardStatus.LOADING:
            _log.error("load-failed partition=%s reason=%r", partition, error)
        else:
            _log.error("apply-failed partition=%s", partition, exc_info=error)
        self.status = ShardStatus.FAILED
        self._purgatory.check(self)

    def resign(self) -> None:
        """Another broker leads the partition: all requests that wait for the watermark are told."""
        self.status = ShardStatus.RESIGNED
        self._purgatory.check(self)


class _WaitUntilVisible(DelayedOperation):
    __slots__ = ("_callback", "_end_offset", "_shard")
    kind = "Coordinator"

    def __init__(
        self,
        shard: Shard[Any, Any, Any],
        end_offset: Offset,
        callback: Callable[[ErrorCode], None],
    ) -> None:
        self._shard = shard
        self._end_offset = end_offset
        self._callback = callback

    def try_complete(self, _now_ms: int) -> bool:
        code = self._shard.seen(self._end_offset)
        if code is None:
            return False
        self._callback(code)
        return True

    def on_expire(self, _now_ms: int) -> None:
        self._callback(ErrorCode.REQUEST_TIMED_OUT)
