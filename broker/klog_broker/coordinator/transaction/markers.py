"""Ends transactions: writes the markers to all partitions, then the record of the completion.

Markers are sent only when the high watermark has passed the record of the decision, because after a
failure only this record tells how the transaction was to end. Markers are sent again until every
partition has answered, even after a restart; writing the same marker twice does no harm.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from klog_broker.coordinator.transaction.decisions import completed
from klog_broker.coordinator.transaction.shard_state import TransactionRuntime, TransactionShard
from klog_broker.coordinator.transaction.states import ENDING
from klog_broker.coordinator.transaction.transaction_machine import TransactionMachine
from klog_broker.coordinator.transaction.transaction_metadata import TransactionMetadata
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.system.rate_limit import RateLimit
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.state_records.transaction_log import TransactionState

RETRY_PAUSE_MS = 100
"""The pause after the first failed send of markers; doubled after each further failure,
up to LONGEST_PAUSE_MS."""
LONGEST_PAUSE_MS = 1_000

_log = logging.getLogger("klog.transaction")

_FINAL_ERRORS = frozenset(
    (
        # The partition was deleted with its topic.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        # The transaction has already ended in the partition, which has a newer epoch of this
        # producer, or (transaction.version 2) an open transaction of the same epoch.
        ErrorCode.INVALID_PRODUCER_EPOCH,
        # The partition has a marker of this producer from a newer coordinator epoch.
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    )
)
"""Errors after which no marker is sent to the partition again."""


class TransactionMarker(NamedTuple):
    """A marker of WriteTxnMarkers: the result of a producer's transaction for some partitions."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    partitions: Sequence[TopicPartition]
    transaction_version: int


MarkerResults = Mapping[tuple[int, TopicPartition], ErrorCode]
"""Result codes by producer id and partition. UNKNOWN_TOPIC_OR_PARTITION means that the partition
was deleted; an unreachable partition has another error."""


class MarkerSender(Protocol):
    """Sends markers to the leaders of their partitions."""

    def send(
        self, markers: Sequence[TransactionMarker], done: Callable[[MarkerResults], None]
    ) -> None:
        """Send the markers; ``done`` is called once with all results, possibly at once."""


class _Ending:
    """A transaction whose end is decided, and its partitions that have no marker yet (``left``)."""

    __slots__ = ("left", "machine", "pause_ms", "shard")

    def __init__(
        self, shard: TransactionShard, machine: TransactionMachine, known: TransactionMetadata
    ) -> None:
        self.shard = shard
        self.machine = machine
        self.left = known.partitions
        self.pause_ms = RETRY_PAUSE_MS

    def known(self) -> TransactionMetadata | None:
        """The transactional id's state; None once the transaction has ended, or the shard is no
        longer served."""
        metadata = self.machine.metadata
        if self.shard.serving_error() is not ErrorCode.NONE:
            return None
        return metadata if metadata is not None and metadata.state in ENDING else None


class TransactionCompletion:
    """Completes transactions whose end is decided: writes the markers, then the record of the
    completion. Loop thread only."""

    def __init__(
        self, runtime: TransactionRuntime, sender: MarkerSender, loop: Loop, clock: Clock
    ) -> None:
        self._runtime = runtime
        self._sender = sender
        self._loop = loop
        self._clock = clock
        self._endings: dict[TransactionMachine, _Ending] = {}
        self._not_sent = RateLimit()

    def begin_completion(self, shard: TransactionShard, machine: TransactionMachine) -> None:
        """Start to write the transaction markers of a transactional id, if the end of its
        transaction is decided and the markers are not being written already."""
        known = machine.metadata
        if known is None or known.state not in ENDING or machine in self._endings:
            return
        ending = self._endings[machine] = _Ending(shard, machine, known)
        if shard.is_visible:
            self._send(ending)
        else:
            self._await_visible(ending)

    def _await_visible(self, ending: _Ending) -> None:
        def seen(code: ErrorCode) -> None:
            # The high watermark is moving while this callback runs, and sending may append to the
            # same log. Send in a later callback.
            self._loop.call_soon(partial(self._seen, ending, code))

        ending.shard.when_visible(seen)

    def _seen(self, ending: _Ending, code: ErrorCode) -> None:
        if code is ErrorCode.REQUEST_TIMED_OUT:
            self._await_visible(ending)
        elif code is ErrorCode.NONE:
            self._send(ending)
        else:
            self._drop(ending)

    def _send(self, ending: _Ending) -> None:
        known = ending.known()
        if known is None:
            self._drop(ending)
            return
        if not ending.left:
            self._complete(ending, known)
            return
        marker = TransactionMarker(
            known.producer_id,
            known.producer_epoch,
            known.state is TransactionState.PREPARE_COMMIT,
            ending.shard.log.leader_epoch,
            ending.left,
            known.client_version,
        )
        self._sender.send([marker], partial(self._sent, ending, known))

    def _sent(self, ending: _Ending, known: TransactionMetadata, results: MarkerResults) -> None:
        if all(code is ErrorCode.NONE for code in results.values()):
            ending.left = ()
            self._send(ending)
            return
        codes = {each: results[known.producer_id, each] for each in ending.left}
        gone = {each: code for each, code in codes.items() if code in _FINAL_ERRORS}
        failed = {
            each: code
            for each, code in codes.items()
            if code is not ErrorCode.NONE and each not in gone
        }
        for partition, code in (*gone.items(), *failed.items()):
            self._log_failure(ending, "marker-not-written", f"{partition} {code.name}")
        ending.left = tuple(failed)
        if failed:
            self._send_later(ending)
        else:
            self._send(ending)

    def _complete(self, ending: _Ending, known: TransactionMetadata) -> None:
        transactional_id = ending.machine.transactional_id
        record = (transactional_id, completed(known, self._clock.now_ms()))
        self._runtime.append_decision(ending.shard, transactional_id, (record,))
        if ending.known() is None:
            self._drop(ending)
        else:
            self._send_later(ending)

    def _send_later(self, ending: _Ending) -> None:
        self._loop.call_later(ending.pause_ms, partial(self._send, ending))
        ending.pause_ms = min(2 * ending.pause_ms, LONGEST_PAUSE_MS)

    def _drop(self, ending: _Ending) -> None:
        if self._endings.get(ending.machine) is ending:
            del self._endings[ending.machine]

    def _log_failure(self, ending: _Ending, what: str, why: str) -> None:
        """Log ``what``: that a transaction marker was not written; ``why`` names partition and
        error."""
        if self._not_sent.allows(self._clock.monotonic_ms()):
            more = self._not_sent.pop_suppressed_note()
            _log.warning(
                "%s transactional_id=%r reason=%s%s",
                what,
                ending.machine.transactional_id,
                why,
                more,
            )
