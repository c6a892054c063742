"""Keeps a coordinator's state in the log of one partition: decide, append, apply.

A handler decides on the records and the response to a request. ``append`` writes the records and
applies each of them to the state at once. The response waits in ``when_visible`` until the high
watermark has passed all records that the state was built from. Loading a shard replays its log
through ``apply`` (loading.py).
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


class RecordProducer(NamedTuple):
    """The producer whose transaction a record belongs to."""

    producer_id: int
    producer_epoch: int


class CoordinatorState(Protocol[K, V]):
    """The state that a shard keeps in memory.

    The log's records change the state only in ``apply``, in ``apply_marker``, and in code that
    replaces ``apply``: ``BulkLoading.apply``, and the function that callers of
    ``Shard.append_packed`` pass.
    """

    def apply(
        self, offset: Offset, key: K, value: V | None, producer: RecordProducer | None, /
    ) -> None:
        """Apply the record at ``offset`` of the log; a None ``value`` is a tombstone.

        A record with a ``producer`` is part of a transaction: it has no effect until the
        transaction's commit marker is applied.
        """

    def apply_marker(self, producer: RecordProducer, *, is_commit: bool) -> None:
        """End the producer's transaction: its records take effect now, or are dropped."""

    def machine(self, key: str) -> Machine[K, V] | None: ...

    def keys(self) -> Iterable[str]:
        """The keys of all state machines: group ids, or transactional ids."""

    def drop_if_unused(self, key: str) -> None:
        """Drop the entry of ``key`` if it holds nothing: a group that has no members and no offsets
        and never had a generation, or a transactional id without a record. Called after decisions
        about the key, because a refused request may have created the entry."""


S = TypeVar("S", bound=CoordinatorState[Any, Any])


class BatchObserver(Protocol):
    """Is notified before a shard applies batches to its state. Implemented by Timeline, which
    stores the values that the batches replace, and by UntrackedChanges, which does nothing."""

    def begin_batch(self, end_offset: Offset, high_watermark: Offset) -> None: ...


class StateRecordFormat(NamedTuple, Generic[K, V]):
    """Encodes and decodes records; ``decode`` returns None for a record that this release of klog
    cannot read; the shard skips the record."""

    encode: Callable[[K, V | None], tuple[bytes, bytes | None]]
    decode: Callable[[bytes, bytes | None], tuple[K, V | None] | None]


class ShardStatus(Enum):
    """The stages of a shard. LOADING is the first. A shard never serves again after FAILED (the log
    or appended records could not be applied) or RESIGNED (this broker no longer leads the
    partition, or loads its log again into a new shard)."""

    LOADING = "loading"
    SERVING = "serving"
    FAILED = "failed"
    RESIGNED = "resigned"


_NONE = ErrorCode.NONE
_SERVING = ShardStatus.SERVING

_STATUS_ERRORS = {
    ShardStatus.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ShardStatus.SERVING: ErrorCode.NONE,
    ShardStatus.FAILED: ErrorCode.NOT_COORDINATOR,
    ShardStatus.RESIGNED: ErrorCode.NOT_COORDINATOR,
}


class Shard(Generic[K, V, S]):
    """One partition of a state topic: its log, the state built from the log, and its timers."""

    def __init__(
        self,
        log: StateLog,
        state: S,
        changes: BatchObserver,
        records: StateRecordFormat[K, V],
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
        """The deadline and timer of each state machine that has a deadline, by its key: a group id
        or transactional id."""
        self.when_serving: list[Callable[[], None]] = []
        """Callbacks to run once, when the loaded shard starts to serve."""
        self._changes = changes
        self._records = records
        self._purgatory = purgatory
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._codec = codec
        self._written_offset = self._loaded_offset = Offset(0)
        self._is_appending = False

    def serving_error(self) -> ErrorCode:
        """NONE if the shard can serve requests now, else the error for the client."""
        if self.log.ended is not None:
            return ErrorCode.NOT_COORDINATOR
        status = self.status
        return _NONE if status is _SERVING else _STATUS_ERRORS[status]

    # --- appending to the log --------------------------------------------------------------------
    def append(
        self, records: Sequence[tuple[K, V | None]], producer: RecordProducer | None = None
    ) -> Offset:
        """Append the records as one batch, then apply them; returns the batch's end offset.

        With a ``producer``, the records are part of its transaction. If this method raises LogError
        or BrokerError, either nothing has changed (see StateLog.append), or the shard has failed
        because the appended records could not be applied (NOT_COORDINATOR).
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
        """Append and apply records that may be split over several batches.

        A list that exceeds the log's largest batch is halved until each part fits. If this method
        raises, some of the records may have been appended.
        """
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
        """Append and apply records that the caller has encoded into ``batch``.

        ``batch`` starts with free bytes for the header; :func:`append_plain_record` wrote the
        records after it. The shard calls ``apply`` with the first record's offset instead of the
        state's ``apply`` for each record; both must change the state in the same way. Raises as
        :meth:`append` does.
        """
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
        producer: RecordProducer | None,
    ) -> bytearray:
        producer_id, producer_epoch = producer or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        builder = BatchBuilder(
            codec=self._codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            # Kafka's coordinators write sequence 0, too. The log does not check the sequence
            # numbers of a coordinator's batches.
            base_sequence=NO_SEQUENCE if producer is None else 0,
            is_transactional=producer is not None,
        )
        for key, value in encoded:
            builder.append(key, value, now_ms)
        return bytearray(builder.build())

    def append_marker(
        self, producer: RecordProducer, marker: EndTransactionMarker, *, transaction_version: int
    ) -> Offset:
        """Append the marker that ends a producer's transaction; returns the marker's end offset.

        Raises as :meth:`append` does.
        """
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
        """Write records, then apply them.

        During the write the high watermark may pass records that are not applied yet:
        ``visibility_at`` returns None until ``apply`` is done, so no response leaves early.
        """
        if self._is_appending:
            raise InvariantViolation(
                f"{self.log.topic_partition}: append while another append was running"
            )
        self._is_appending = True
        try:
            end_offset = write()
            self._written_offset = end_offset
            self._changes.begin_batch(end_offset, self.log.high_watermark)
            try:
                apply(end_offset)
            except Exception as error:
                # The log has records that are missing from the state: acknowledge none of them.
                self.fail(error)
                raise BrokerError(ErrorCode.NOT_COORDINATOR, str(error)) from error
        finally:
            self._is_appending = False
            self._purgatory.check(self)
        return end_offset

    # --- replay of the log -----------------------------------------------------------------------
    def replay(self, batch: BatchView, records: Iterable[Record], from_offset: Offset) -> int:
        """Apply those records of a logged batch that are at or after ``from_offset``.

        Returns the number of records in ``records``, which includes the skipped ones.
        """
        self._written_offset = self._loaded_offset = Offset(batch.next_offset)
        self._changes.begin_batch(self._written_offset, self.log.high_watermark)
        is_control, state, decode = batch.is_control, self.state, self._records.decode
        producer = None
        if batch.is_transactional or is_control:
            producer = RecordProducer(batch.producer_id, batch.producer_epoch)
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
        """Return whether the high watermark has reached ``end_offset``.

        If so, the caller must apply the batches before ``end_offset`` now, by any method that has
        the same effect as :meth:`replay`.
        """
        high_watermark = self.log.high_watermark
        if end_offset > high_watermark:
            return False
        self._written_offset = self._loaded_offset = end_offset
        self._changes.begin_batch(end_offset, high_watermark)
        return True

    def _replay_marker(self, record: Record, producer: RecordProducer) -> None:
        kind = control_type_of(record.key)
        if kind in (ControlType.COMMIT, ControlType.ABORT):
            self.state.apply_marker(producer, is_commit=kind is ControlType.COMMIT)

    # --- waiting until the high watermark has passed all records ---------------------------------
    def when_visible(self, callback: Callable[[ErrorCode], None]) -> None:
        """Call ``callback`` once the high watermark has passed all records written or replayed.

        The argument is NONE on success, REQUEST_TIMED_OUT after the shard's time-out, and
        NOT_LEADER_OR_FOLLOWER if this broker has stopped leading the partition or the shard failed.
        """
        code = self.visibility_at(self._written_offset)
        if code is not None:
            callback(code)
            return
        waiting = _WaitUntilVisible(self, self._written_offset, callback)
        self._purgatory.watch(waiting, (self.log.topic_partition, self), self._timeout_ms)

    @property
    def is_behind_loaded_end(self) -> bool:
        """Whether the high watermark is still below the log end offset of loading time.

        If so, the previous leader may have acknowledged records that readers cannot see yet.
        """
        return self.log.high_watermark < self._loaded_offset

    @property
    def is_visible(self) -> bool:
        """Whether :meth:`when_visible` would call its callback at once with NONE."""
        return self.visibility_at(self._written_offset) is _NONE

    def visibility_at(self, offset: Offset) -> ErrorCode | None:
        """Return NONE if the high watermark has passed all records before ``offset``, so that
        readers may see them; None if not yet, or while an append is in progress.

        Returns NOT_LEADER_OR_FOLLOWER if the shard will not show the records, because it has failed
        or this broker no longer leads the partition.
        """
        if self._is_appending:
            return None
        log, status = self.log, self.status
        if log.ended is not None or status in (ShardStatus.FAILED, ShardStatus.RESIGNED):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE if log.high_watermark >= offset else None

    # --- the end of the leadership, and failures of the shard ------------------------------------
    def continue_in_epoch(self, log: StateLog, loader: Loader | None) -> bool:
        """Continue with ``log``: this broker leads the partition again, in a newer epoch.

        Returns whether the state has all records of ``log``, or will have them when the running
        ``loader`` has finished. If so, pending ``when_visible`` callbacks stay and wait for the new
        log's high watermark.
        """
        if loader is not None:
            will_be = self.status is ShardStatus.LOADING and loader.continue_with_log(log)
        else:
            is_used = self.status in (ShardStatus.LOADING, _SERVING)
            will_be = is_used and log.log_end_offset == self._written_offset
        if will_be:
            self.log = log
        return will_be

    def fail(self, error: BaseException) -> None:
        """Stop serving, because the state is incomplete: requests for the shard's groups or
        transactional ids get NOT_COORDINATOR.

        The groups or ids have no coordinator until the partition's next leader election, as in
        Kafka.
        """
        partition = self.log.topic_partition
        if self.status is ShardStatus.LOADING:
            _log.error(
                "load-failed partition=%s could not be read: its groups or transactional ids have "
                "no coordinator until its next leader election: %r",
                partition,
                error,
            )
        else:
            _log.error(
                "apply-failed partition=%s records were appended, and changing the coordinator's "
                "state by them failed: a bug of klog. The partition's groups or transactional ids "
                "have no coordinator until its next leader election",
                partition,
                exc_info=error,
            )
        self.status = ShardStatus.FAILED
        self._purgatory.check(self)

    def resign(self) -> None:
        """Stop serving, because this broker no longer leads the partition, or loads its log again;
        call all pending callbacks of `when_visible` with an error."""
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
        code = self._shard.visibility_at(self._end_offset)
        if code is None:
            return False
        self._callback(code)
        return True

    def on_expire(self, _now_ms: int) -> None:
        self._callback(ErrorCode.REQUEST_TIMED_OUT)
