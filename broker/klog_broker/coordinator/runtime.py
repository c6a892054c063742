"""The coordinator runtime: the shards of one state topic that this broker leads, and their timers.

The runtime loads and unloads shards, finds the shard of a key (a group or transactional id),
carries out the decisions (Effects) of the keys' state machines, and calls the machines at their
deadlines. The group and transaction coordinators use one runtime each, like Kafka's coordinators
use CoordinatorRuntime. Loop thread only.
"""

import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from klog_broker.coordinator.effects import Effects, ParkedResponse
from klog_broker.coordinator.errors import append_client_error, client_error
from klog_broker.coordinator.hashing import partition_for_key
from klog_broker.coordinator.kernels import PlainReads
from klog_broker.coordinator.loading import BatchWalk, BulkLoading, Loader
from klog_broker.coordinator.shard import (
    BatchObserver,
    CoordinatorState,
    Shard,
    ShardStatus,
    StateRecordFormat,
)
from klog_broker.coordinator.state_log import StateLog
from klog_broker.log.errors import LogError
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.purgatory import Purgatory
from klog_broker.runtime.event_loop.slices import Slices, Steps
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.system.rate_limit import RateLimit
from klog_broker.runtime.threads.helpers import Helpers
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.records.compression import Codec

K = TypeVar("K")
V = TypeVar("V")
_State = TypeVar("_State")
S = TypeVar("S", bound=CoordinatorState[Any, Any])

_NONE = ErrorCode.NONE
_COUNTED_A_STEP = 1000
_COUNTED_AN_ELEMENT = 50

_log = logging.getLogger("klog.coordinator")


@dataclass(frozen=True, slots=True)
class RuntimeServices:
    """The broker's services that a coordinator runtime uses.

    ``new_walk`` makes a BatchWalk, which checks batches of a log in a helper thread while a shard
    is loaded; it returns None until the compiled kernels are loaded.
    """

    loop: Loop
    purgatory: Purgatory
    clock: Clock
    helpers: Helpers
    slices: Slices
    new_walk: Callable[[], BatchWalk | None]


class CoordinatorRuntime(Generic[K, V, S]):
    """The shards of one state topic that this broker leads.

    ``num_partitions`` returns None while the topic does not exist. ``new_state`` makes the state of
    a new shard, and the BatchObserver that the shard notifies before it applies batches.
    ``new_bulk`` makes the object that decodes and applies many batches at once during loading.
    """

    def __init__(
        self,
        services: RuntimeServices,
        records: StateRecordFormat[K, V],
        new_state: Callable[[], tuple[S, BatchObserver]],
        *,
        num_partitions: Callable[[], int | None],
        append_timeout_ms: int,
        codec: Codec,
        new_bulk: Callable[[S], BulkLoading] | None = None,
    ) -> None:
        self._services = services
        self._records = records
        self._new_state = new_state
        self._num_partitions = num_partitions
        self._append_timeout_ms = append_timeout_ms
        self._codec = codec
        self._new_bulk = new_bulk
        self._plain_reads = PlainReads()
        self._shards: dict[int, Shard[K, V, S]] = {}
        self._loaders: dict[int, Loader] = {}
        self._not_recorded = RateLimit()

    # --- loading and unloading shards (partitions of the state topic) ----------------------------
    def load_shard(self, log: StateLog) -> None:
        """Load the log of a partition that this broker leads, then serve it.

        If this broker led the partition until now and the log has no new records, the shard goes on
        serving, or loading; otherwise the log is loaded again.
        """
        partition = log.topic_partition.partition
        known = self._shards.get(partition)
        if known is not None and known.continue_in_epoch(log, self._loaders.get(partition)):
            return
        self.unload_shard(partition)
        services = self._services
        state, changes = self._new_state()
        shard: Shard[K, V, S] = Shard(
            log,
            state,
            changes,
            self._records,
            purgatory=services.purgatory,
            clock=services.clock,
            timeout_ms=self._append_timeout_ms,
            codec=self._codec,
        )
        self._shards[partition] = shard
        self._loaders[partition] = loader = Loader(
            log,
            shard.replay,
            lambda error: self._replayed(partition, shard, error),
            new_walk=services.new_walk,
            plain_reads=self._plain_reads,
            bulk=None if self._new_bulk is None else self._new_bulk(state),
            begin_run=shard.begin_run,
            loop=services.loop,
            slices=services.slices,
            helpers=services.helpers,
        )
        loader.start_loading()

    def unload_shard(self, partition: int) -> None:
        """Stop serving a partition; pending requests of clients get NOT_COORDINATOR."""
        loader = self._loaders.pop(partition, None)
        if loader is not None:
            loader.cancel()
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.resign()
            self._services.slices.run(_unloading(shard), lambda: True)

    def shards(self) -> list[Shard[K, V, S]]:
        """The shards of all partitions that this broker leads, whatever their status."""
        return list(self._shards.values())

    def shard(self, partition: int) -> Shard[K, V, S] | None:
        """The shard of a partition, whatever its status; None if this broker does not lead the
        partition."""
        return self._shards.get(partition)

    def _replayed(self, partition: int, shard: Shard[K, V, S], error: Exception | None) -> None:
        del self._loaders[partition]
        if error is not None:
            shard.fail(error)
            return

        def is_wanted() -> bool:
            return shard.status is ShardStatus.LOADING

        self._services.slices.run(self._starting(shard), is_wanted)

    def _starting(self, shard: Shard[K, V, S]) -> Steps:
        """Set the timers of all state machines of a shard (a partition of the state topic) whose
        log was replayed, then start to serve requests for the shard's groups or transactional
        ids."""
        for key in list(shard.state.keys()):
            machine = shard.state.machine(key)
            if machine is not None:
                machine.reloaded(self._services.loop.now_ms())
                self.schedule(shard, key)
                yield 1
        shard.status = ShardStatus.SERVING
        waiting, shard.when_serving = shard.when_serving, []
        for each in waiting:
            each()

    def statuses(self) -> Counter[ShardStatus]:
        """The number of shards (partitions of the state topic that this broker leads) in each
        status."""
        return Counter(each.status for each in self._shards.values())

    def partitions_in(self, status: ShardStatus) -> list[int]:
        """The partitions of the state topic whose shards have this status, in ascending order."""
        return sorted(each for each, shard in self._shards.items() if shard.status is status)

    # --- finding the shard of a group or transactional id ----------------------------------------
    def partition_for(self, key: str) -> int | None:
        """The partition that stores the records of ``key``, a group or transactional id; None while
        the state topic does not exist."""
        num_partitions = self._num_partitions()
        return partition_for_key(key, num_partitions) if num_partitions else None

    def find(self, key: str) -> tuple[ErrorCode, Shard[K, V, S] | None]:
        """Return NONE and the shard that serves the key, a group or transactional id; or else the
        error for the client, and None."""
        num_partitions = self._num_partitions()
        if not num_partitions:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
        shard = self._shards.get(partition_for_key(key, num_partitions))
        if shard is None:
            return ErrorCode.NOT_COORDINATOR, None
        error = shard.serving_error()
        return error, shard if error is _NONE else None

    def serving(self) -> Iterator[Shard[K, V, S]]:
        """The shards (partitions of the state topic that this broker leads) that can serve requests
        now."""
        return (each for each in self.shards() if each.serving_error() is ErrorCode.NONE)

    # --- decisions and deadlines of state machines -----------------------------------------------
    def carry_out_effects(self, shard: Shard[K, V, S], key: str, effects: Effects[K, V]) -> None:
        """Append the records and send the responses that the key's state machine decided (Effects);
        then do the same for each decision that the machine returns after an append."""
        services = self._services
        while True:
            if effects.responses:
                _answer_when_visible(shard, effects.responses)
            if effects.records is None:
                break
            machine = shard.state.machine(key)
            assert machine is not None, f"the machine {key!r} made a decision, but does not exist"
            now_ms = services.loop.now_ms()
            code = self.append_decision(shard, key, effects.records(services.clock.now_ms()))
            if code is _NONE:
                effects = machine.appended(now_ms)
            else:
                effects = machine.append_failed(code, now_ms)
        shard.state.drop_if_unused(key)
        self.schedule(shard, key)

    def append_decision(
        self, shard: Shard[K, V, S], key: str, records: Sequence[tuple[K, V | None]]
    ) -> ErrorCode:
        """Append the records that the state machine of ``key`` (a group or transactional id) has
        decided, and apply them.

        Returns NONE, or the error for the client. After an error, either none of the records was
        written, or the shard has failed because it could not apply them (Shard.append).
        """
        try:
            shard.append(records)
        except (LogError, BrokerError) as failure:
            if self._not_recorded.allows(self._services.loop.now_ms()):
                more = self._not_recorded.pop_suppressed_note()
                _log.warning(
                    "key=%r records not appended, or not applied, so clients get an error: %s%s",
                    key,
                    failure,
                    more,
                )
            code = append_client_error(failure)
            too_large = code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            return ErrorCode.UNKNOWN_SERVER_ERROR if too_large else code
        return _NONE

    def schedule(self, shard: Shard[K, V, S], key: str) -> None:
        """Set the timer of the state machine of ``key``, a group or transactional id, to the
        machine's next deadline.

        A machine has at most one timer. If the deadline has moved later, the timer stays: when it
        fires, the machine has nothing to do, and the timer is set again.
        """
        machine = shard.state.machine(key)
        deadline_ms = None if machine is None else machine.next_deadline_ms()
        current = shard.timers.get(key)
        if current is not None:
            if deadline_ms is not None and deadline_ms >= current[0]:
                return
            current[1].cancel()
            del shard.timers[key]
        if deadline_ms is not None:
            timer = self._services.loop.call_at(deadline_ms, lambda: self._on_timer(shard, key))
            shard.timers[key] = (deadline_ms, timer)

    def _on_timer(self, shard: Shard[K, V, S], key: str) -> None:
        shard.timers.pop(key, None)
        if shard.log.ended is not None:
            self._unload_ended_shard(shard)
            return
        machine = shard.state.machine(key)
        # The timers are set while the shard still has the status LOADING, so a timer can fire
        # before the shard serves.
        if machine is not None and shard.status in (ShardStatus.LOADING, ShardStatus.SERVING):
            self.carry_out_effects(shard, key, machine.on_deadline(self._services.loop.now_ms()))

    def _unload_ended_shard(self, shard: Shard[K, V, S]) -> None:
        """Unload a shard whose timer has fired after this broker had stopped leading the partition,
        but before ``unload_shard`` was called."""
        partition = shard.log.topic_partition.partition
        if self._shards.get(partition) is shard:
            self.unload_shard(partition)


def count_in_steps(states: Sequence[_State]) -> Generator[int, None, Counter[_State]]:
    """Count the groups or transactional ids in each state; ``states`` has one state for each. A
    generator that yields after each part of the work, so that the event loop can serve requests in
    between (Slices)."""
    counts: Counter[_State] = Counter()
    for start in range(0, len(states), _COUNTED_A_STEP):
        counts.update(states[start : start + _COUNTED_A_STEP])
        yield _COUNTED_A_STEP // _COUNTED_AN_ELEMENT
    return counts


def _unloading(shard: Shard[Any, Any, Any]) -> Steps:
    for key in list(shard.state.keys()):
        current = shard.timers.pop(key, None)
        if current is not None:
            current[1].cancel()
        machine = shard.state.machine(key)
        if machine is not None:
            for answer in machine.unload().responses:
                answer.send()
                yield 1
        yield 1


def _answer_when_visible(shard: Shard[Any, Any, Any], answers: list[ParkedResponse]) -> None:
    def send(code: ErrorCode) -> None:
        error = client_error(code)
        for answer in answers:
            answer.send(error)

    shard.when_visible(send)
