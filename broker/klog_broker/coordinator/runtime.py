"""The coordinator runtime: the shards of one state topic that this broker leads, and their timers.

It loads and unloads shards, finds the shard that a key belongs to, carries out what a machine has
decided (Effects), and calls machines at their deadlines. The group coordinator uses it, as Kafka's
coordinators use their CoordinatorRuntime. Loop thread only.
"""

import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from klog_broker.coordinator.effects import Effects, WaiterReply
from klog_broker.coordinator.errors import append_error, told
from klog_broker.coordinator.hashing import partition_for_key
from klog_broker.coordinator.kernels import PlainReads
from klog_broker.coordinator.loading import BatchWalk, BulkLoading, Loader
from klog_broker.coordinator.shard import Changes, CoordinatorState, Format, Shard, ShardStatus
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
    """What a runtime stands on. ``new_walk`` makes the walk that checks a loading log in a helper
    thread; it returns None as long as the kernels are not loaded."""

    loop: Loop
    purgatory: Purgatory
    clock: Clock
    helpers: Helpers
    slices: Slices
    new_walk: Callable[[], BatchWalk | None]


class CoordinatorRuntime(Generic[K, V, S]):
    """``num_partitions`` returns None while the topic does not exist; ``new_state`` makes a shard's
    state, and the timeline that tells what readers may see of that state; ``new_bulk`` makes what
    loads a state faster than record by record."""

    def __init__(
        self,
        services: RuntimeServices,
        records: Format[K, V],
        new_state: Callable[[], tuple[S, Changes]],
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

    # --- shards ----------------------------------------------------------------------------------
    def lead(self, log: StateLog) -> None:
        """Load a partition, then serve it. One that this broker has served until now it serves on,
        and one that it loads it goes on loading, if nothing in the log is new; else it is loaded
        anew."""
        partition = log.topic_partition.partition
        known = self._shards.get(partition)
        if known is not None and known.go_on(log, self._loaders.get(partition)):
            return
        self.resign(partition)
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
        loader.begin()

    def resign(self, partition: int) -> None:
        """Stop serving a partition: all who wait are told to look for the coordinator anew."""
        loader = self._loaders.pop(partition, None)
        if loader is not None:
            loader.cancel()
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.resign()
            self._services.slices.run(_unloading(shard), lambda: True)

    def shards(self) -> list[Shard[K, V, S]]:
        """All shards that this broker leads, whatever their status."""
        return list(self._shards.values())

    def shard(self, partition: int) -> Shard[K, V, S] | None:
        """That of a partition, whatever its status; None if it is not led."""
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
        """The whole log is applied: set the timers, then serve."""
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
        """How many shards have which status."""
        return Counter(each.status for each in self._shards.values())

    # --- finding ---------------------------------------------------------------------------------
    def partition_for(self, key: str) -> int | None:
        """The partition that has the key's records; None while the topic does not exist."""
        num_partitions = self._num_partitions()
        return partition_for_key(key, num_partitions) if num_partitions else None

    def find(self, key: str) -> tuple[ErrorCode, Shard[K, V, S] | None]:
        """NONE and the shard that serves the key now; or why there is no such shard, and None."""
        num_partitions = self._num_partitions()
        if not num_partitions:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
        shard = self._shards.get(partition_for_key(key, num_partitions))
        if shard is None:
            return ErrorCode.NOT_COORDINATOR, None
        error = shard.error()
        return error, shard if error is _NONE else None

    def serving(self) -> Iterator[Shard[K, V, S]]:
        """The shards that serve now."""
        return (each for each in self.shards() if each.error() is ErrorCode.NONE)

    # --- what machines decide --------------------------------------------------------------------
    def run(self, shard: Shard[K, V, S], key: str, effects: Effects[K, V]) -> None:
        """Carry out what the machine under ``key`` decided, and all decisions that follow."""
        services = self._services
        while True:
            if effects.answers:
                _answer_when_visible(shard, effects.answers)
            if effects.records is None:
                break
            machine = shard.state.machine(key)
            assert machine is not None, f"{key!r} decided, and is not there"
            now_ms = services.loop.now_ms()
            code = self.record(shard, key, effects.records(services.clock.now_ms()))
            if code is _NONE:
                effects = machine.appended(now_ms)
            else:
                effects = machine.append_failed(code, now_ms)
        shard.state.settled(key)
        self.schedule(shard, key)

    def record(
        self, shard: Shard[K, V, S], key: str, records: Sequence[tuple[K, V | None]]
    ) -> ErrorCode:
        """Append and apply what was decided on ``key``. NONE; or what whoever asked is told, and
        none of it counts."""
        try:
            shard.append(records)
        except (LogError, BrokerError) as failure:
            if self._not_recorded.allows(self._services.loop.now_ms()):
                more = self._not_recorded.take_note()
                _log.warning("not-recorded key=%r reason=%s%s", key, failure, more)
            code = append_error(failure)
            too_large = code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            return ErrorCode.UNKNOWN_SERVER_ERROR if too_large else code
        return _NONE

    def schedule(self, shard: Shard[K, V, S], key: str) -> None:
        """Keep one timer a machine. A deadline that moved later is noticed when the timer rings."""
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
            self._give_up(shard)
            return
        machine = shard.state.machine(key)
        # A shard that loads sets its timers before it serves.
        if machine is not None and shard.status in (ShardStatus.LOADING, ShardStatus.SERVING):
            self.run(shard, key, machine.on_deadline(self._services.loop.now_ms()))

    def _give_up(self, shard: Shard[K, V, S]) -> None:
        """The shard's leadership has ended, and no resign came: it can answer nobody any more."""
        partition = shard.log.topic_partition.partition
        if self._shards.get(partition) is shard:
            self.resign(partition)


def counted(states: Sequence[_State]) -> Generator[int, None, Counter[_State]]:
    """How many there are of each, in steps (runtime/event_loop/slices.py)."""
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
            for answer in machine.unload().answers:
                answer.send()
                yield 1
        yield 1


def _answer_when_visible(shard: Shard[Any, Any, Any], answers: list[WaiterReply]) -> None:
    def send(code: ErrorCode) -> None:
        error = told(code)
        for answer in answers:
            answer.send(error)

    shard.when_visible(send)
