"""Periodic work: aborts transactions that have timed out, and deletes expired transactional ids."""

import logging
from collections.abc import Callable

from klog_broker.coordinator.runtime import RuntimeServices
from klog_broker.coordinator.transaction.decisions import TransactionDecision, aborted, is_expired
from klog_broker.coordinator.transaction.shard_state import TransactionRuntime, TransactionShard
from klog_broker.coordinator.transaction.transaction_machine import TransactionMachine
from klog_broker.coordinator.transaction.transaction_metadata import TransactionMetadata
from klog_broker.log.errors import LogError
from klog_broker.runtime.event_loop.slices import Steps
from klog_broker.runtime.system.rate_limit import RateLimit
from pyspark_klog.errors import BrokerError, ErrorCode

TOMBSTONES_AT_ONCE = 500
"""Largest number of transactional ids that one batch deletes. A batch that exceeds the log's
largest batch size is split."""

_log = logging.getLogger("klog.transaction")

Decide = Callable[[TransactionMetadata | None, int], TransactionDecision]


class Sweeps:
    """Searches all loaded partitions of ``__transaction_state`` that this broker leads for
    timed-out transactions and for expired transactional ids.

    Each search has its own interval, and is divided into slices, between which the event loop
    serves requests. ``abort`` is called with a transactional id and the function that decides to
    abort its timed-out transaction. ``abort`` first gets a new producer id for the function, if the
    decision needs one because the epochs of the present id are exhausted.
    """

    def __init__(
        self,
        runtime: TransactionRuntime,
        services: RuntimeServices,
        *,
        abort: Callable[[str, Decide], None],
        abort_interval_ms: int,
        expire_interval_ms: int,
        id_expiration_ms: int,
    ) -> None:
        self._runtime = runtime
        self._services = services
        self._abort = abort
        self._abort_interval_ms = abort_interval_ms
        self._expire_interval_ms = expire_interval_ms
        self._id_expiration_ms = id_expiration_ms
        self._not_expired = RateLimit()

    def start_sweeps(self) -> None:
        """Start the periodic searches for timed-out transactions and for expired transactional ids;
        each runs for the first time after its interval."""
        self._schedule_sweep(self._abort_interval_ms, self._abort_overdue)
        self._schedule_sweep(self._expire_interval_ms, self._expire)

    def _schedule_sweep(self, interval_ms: int, look: Callable[[], Steps]) -> None:
        def steps() -> Steps:
            yield from look()
            self._schedule_sweep(interval_ms, look)

        def run() -> None:
            self._services.slices.run(steps(), lambda: True)

        self._services.loop.call_later(interval_ms, run)

    def _abort_overdue(self) -> Steps:
        for shard in list(self._runtime.serving()):
            for transactional_id in list(shard.state.ongoing):
                yield 1
                machine = shard.state.machine(transactional_id)
                known = None if machine is None else machine.metadata
                if known is not None and self._is_overdue(known):
                    _log_timed_out(transactional_id, known)
                    self._abort(transactional_id, self._decide_overdue)
                    yield 10

    def _is_overdue(self, known: TransactionMetadata | None) -> bool:
        return known is not None and known.is_overdue(self._services.clock.now_ms())

    def _decide_overdue(
        self, known: TransactionMetadata | None, new_id: int
    ) -> TransactionDecision:
        """Abort the transaction, unless it has ended while a new producer id was fetched."""
        if known is None or not self._is_overdue(known):
            return TransactionDecision(ErrorCode.NONE)
        return TransactionDecision(
            ErrorCode.NONE, aborted(known, self._services.clock.now_ms(), new_id)
        )

    def _expire(self) -> Steps:
        for shard in list(self._runtime.serving()):
            over: list[TransactionMachine] = []
            for machine in list(shard.state.machines.values()):
                yield 1
                if self._is_expired(machine.metadata):
                    over.append(machine)
                if len(over) == TOMBSTONES_AT_ONCE:
                    self._delete_expired(shard, over)
                    yield len(over)
                    over = []
            self._delete_expired(shard, over)

    def _is_expired(self, known: TransactionMetadata | None) -> bool:
        now_ms = self._services.clock.now_ms()
        return known is not None and is_expired(known, now_ms, self._id_expiration_ms)

    def _delete_expired(self, shard: TransactionShard, machines: list[TransactionMachine]) -> None:
        """Delete the transactional ids that are still expired: since the search found an id, a
        producer may have used it again."""
        over = [each for each in machines if self._is_expired(each.metadata)]
        if not over or shard.serving_error() is not ErrorCode.NONE:
            return
        try:
            shard.append_in_parts([(each.transactional_id, None) for each in over])
        except (LogError, BrokerError) as error:
            if self._not_expired.allows(self._services.clock.monotonic_ms()):
                more = self._not_expired.pop_suppressed_note()
                _log.warning(
                    "not all of %d expired transactional ids deleted, the next search tries again:"
                    " %s%s",
                    len(over),
                    error,
                    more,
                )


def _log_timed_out(transactional_id: str, known: TransactionMetadata) -> None:
    _log.info(
        "transaction timed out, aborting id=%r producer_id=%d epoch=%d timeout_ms=%d partitions=%d",
        transactional_id,
        known.producer_id,
        known.producer_epoch,
        known.timeout_ms,
        len(known.partitions),
    )
