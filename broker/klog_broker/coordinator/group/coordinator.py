"""The group coordinator of a broker: finds a request's shard, runs its machine, keeps its timers.

Answers are callables: the group's replies leave through them when what they rest on is visible.
Loop thread only.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from klog_broker.coordinator.group.classic.effects import Effects, Reply
from klog_broker.coordinator.group.classic.group import Group
from klog_broker.coordinator.group.classic.machine import GroupSettings, Joiner
from klog_broker.coordinator.group.classic.records import snapshot
from klog_broker.coordinator.group.commits import (
    Commit,
    CommitAnswer,
    OffsetCommits,
    retriable,
)
from klog_broker.coordinator.group.offsets import CommittedOffset
from klog_broker.coordinator.group.shards import CONSUMER_OFFSETS, GroupShard, GroupShards
from klog_broker.coordinator.group.state import GroupEntry, GroupShardState
from klog_broker.coordinator.shard import append_error
from klog_broker.log.errors import LogError
from klog_broker.log.partition_log import PartitionLog
from klog_broker.runtime.clock import Clock
from klog_broker.runtime.loop import Loop
from klog_broker.runtime.purgatory import Purgatory
from klog_broker.runtime.rate_limit import RateLimit
from klog_broker.runtime.slices import Slices, Steps
from klog_broker.runtime.wheel import Timer
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import LeaderEpoch, TopicPartition
from pyspark_klog.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse
from pyspark_klog.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from pyspark_klog.records.compression import Codec
from pyspark_klog.state_records.group_metadata import GroupMetadataKey

__all__ = [
    "CONSUMER_OFFSETS",
    "Commit",
    "CoordinatorSettings",
    "GroupCoordinator",
    "MemberName",
]

MAX_PROTOCOLS = 100
"""Assignors that a member may offer. Those of all members are compared with every join."""

_log = logging.getLogger("klog.group")
Answer = Callable[[Reply], None]


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """The broker's group.* and offsets.* settings."""

    group: GroupSettings
    min_session_timeout_ms: int
    max_session_timeout_ms: int
    offset_metadata_max_bytes: int
    commit_timeout_ms: int
    retention_ms: int
    retention_check_interval_ms: int
    codec: Codec


class MemberName(NamedTuple):
    """How a request names a member: by id, and a static one by its instance id too."""

    member_id: str
    instance_id: str | None = None


class GroupCoordinator:
    """All groups whose partition of ``__consumer_offsets`` this broker leads.

    ``num_partitions`` is None while the topic does not exist; ``leader_epoch`` gives a partition's.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        *,
        loop: Loop,
        purgatory: Purgatory,
        clock: Clock,
        new_member_id: Callable[[str], str],
        num_partitions: Callable[[], int | None],
        leader_epoch: Callable[[TopicPartition], LeaderEpoch],
    ) -> None:
        self._settings = settings
        self._loop = loop
        self._clock = clock
        self._not_recorded = RateLimit()
        self._shards = GroupShards(
            settings.group,
            commit_timeout_ms=settings.commit_timeout_ms,
            codec=settings.codec,
            loop=loop,
            purgatory=purgatory,
            clock=clock,
            new_member_id=new_member_id,
            num_partitions=num_partitions,
            leader_epoch=leader_epoch,
            on_loaded=self._on_loaded,
        )
        self._commits = OffsetCommits(
            self._shards,
            clock,
            metadata_max_bytes=settings.offset_metadata_max_bytes,
            retention_ms=settings.retention_ms,
            on_buried=self._on_buried,
        )
        self._slices = Slices(loop)
        self._timers: dict[str, tuple[int, Timer]] = {}
        self._loop.call_later(settings.retention_check_interval_ms, self._expire_offsets)

    # Shards

    def lead(self, partition: int, log: PartitionLog) -> None:
        """Take over a partition of ``__consumer_offsets``: load it, a slice a turn."""
        self._shards.lead(partition, log)

    def leads(self, partition: int, log: PartitionLog) -> bool:
        """Whether this log of the partition is served (a topic made anew has another)."""
        return self._shards.leads(partition, log)

    def resign(self, partition: int) -> None:
        """Give a partition up: whoever waits is told to look for the coordinator again."""
        for entry in self._shards.resign(partition):
            self._drop_timer(entry.group.group_id)
            for answer in entry.machine.unload().answers:
                _call(answer.waiter, answer.reply)

    def find(self, group_id: str) -> ErrorCode:
        """Whether this broker serves the group now."""
        return self._shards.find(group_id)

    # Members

    def join(self, request: JoinGroupRequest, joiner: Joiner, answer: Answer) -> None:
        settings, group_id = self._settings, request.group_id
        error = self._check_group(group_id)
        bounds = (settings.min_session_timeout_ms, settings.max_session_timeout_ms)
        if error is ErrorCode.NONE and not bounds[0] <= request.session_timeout_ms <= bounds[1]:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        if error is ErrorCode.NONE and len(request.protocols) > MAX_PROTOCOLS:
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error is ErrorCode.NONE and request.member_id and self._shards.entry(group_id) is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is not ErrorCode.NONE:
            answer(JoinGroupResponse(error_code=error, member_id=request.member_id))
            return
        entry = self._shards.get_or_create(group_id)
        self._run(entry, entry.machine.join(request, joiner, answer, self._loop.now_ms()))

    def sync(self, request: SyncGroupRequest, answer: Answer) -> None:
        error, entry = self._member_entry(request.group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The rebalance that it belongs to is lost: as in Kafka, the member starts it over.
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if entry is None:
            answer(SyncGroupResponse(error_code=error))
            return
        self._run(entry, entry.machine.sync(request, answer, self._loop.now_ms()))

    def heartbeat(self, group_id: str, name: MemberName, generation_id: int) -> ErrorCode:
        error, entry = self._member_entry(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # As in Kafka: all members get a session to show themselves once the group is loaded.
            return ErrorCode.NONE
        if entry is None:
            return error
        now_ms = self._loop.now_ms()
        return entry.machine.heartbeat(name.member_id, generation_id, now_ms, name.instance_id)

    def leave(
        self, group_id: str, names: Iterable[MemberName]
    ) -> tuple[ErrorCode, list[ErrorCode]]:
        """An error for the request; if there is none, one for each of the members."""
        error, entry = self._member_entry(group_id)
        if error is not ErrorCode.UNKNOWN_MEMBER_ID:
            return error, []
        results = []
        for name in names:
            if entry is not None:
                now_ms = self._loop.now_ms()
                error, effects = entry.machine.leave(name.member_id, now_ms, name.instance_id)
                self._run(entry, effects)
            results.append(error)
        return ErrorCode.NONE, results

    # Offsets

    def commit(
        self,
        group_id: str,
        name: MemberName,
        generation_id: int,
        commits: Iterable[Commit],
        answer: CommitAnswer,
    ) -> None:
        """Append the commits; answer each partition's result once the records are visible."""
        commits = list(commits)
        error = self._check_group(group_id)
        if error is ErrorCode.NONE:
            error = self._check_commit(group_id, name, generation_id)
        if error is not ErrorCode.NONE:
            answer({commit.partition: error for commit in commits})
            return
        self._commits.commit(group_id, commits, answer)

    def committed(self, group_id: str) -> tuple[ErrorCode, dict[TopicPartition, CommittedOffset]]:
        """All of a group's offsets; none for a group that nobody knows."""
        error = self._check_group(group_id)
        return error, self._commits.committed(group_id) if error is ErrorCode.NONE else {}

    def forget_topic(self, topic: str) -> None:
        """The topic was deleted: so are the offsets committed in it."""
        self._commits.forget_topic(topic)

    # What tools see

    def describe(self, group_id: str) -> tuple[ErrorCode, Group | None]:
        """The group; None with error NONE if there is no such group (its state is Dead)."""
        error = self.find(group_id)
        entry = self._shards.entry(group_id) if error is ErrorCode.NONE else None
        return error, None if entry is None else entry.group

    def groups(self) -> tuple[ErrorCode, list[Group]]:
        """All groups of the loaded shards; COORDINATOR_LOAD_IN_PROGRESS if some still load."""
        loading = bool(self._shards.loading())
        found = [entry.group for entry in self._shards.entries()]
        return (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE), found

    # Inside

    def _on_loaded(self, partition: int) -> None:
        _, state = self._shards.at(partition)
        for entry in state.groups.values():
            entry.machine.reloaded(self._loop.now_ms())
            self._schedule(entry)
        self._commits.loaded(partition)

    def _check_group(self, group_id: str) -> ErrorCode:
        return self.find(group_id) if group_id else ErrorCode.INVALID_GROUP_ID

    def _member_entry(self, group_id: str) -> tuple[ErrorCode, GroupEntry | None]:
        """The group, if it is there; the error is what its members are told if it is not."""
        error = self._check_group(group_id)
        if error is not ErrorCode.NONE:
            return error, None
        return ErrorCode.UNKNOWN_MEMBER_ID, self._shards.entry(group_id)

    def _check_commit(self, group_id: str, name: MemberName, generation_id: int) -> ErrorCode:
        entry = self._shards.entry(group_id)
        if entry is None:
            return ErrorCode.NONE if generation_id < 0 else ErrorCode.ILLEGAL_GENERATION
        now_ms = self._loop.now_ms()
        return entry.machine.check_commit(name.member_id, generation_id, now_ms, name.instance_id)

    def _run(self, entry: GroupEntry, effects: Effects) -> None:
        """Carry out what the machine decided, and what follows from that."""
        group_id = entry.group.group_id
        shard = self._shards.shard(group_id)
        while True:
            for waiting in effects.answers:
                _answer_when_visible(shard, waiting.waiter, waiting.reply)
            if effects.assignments is None:
                break
            value = snapshot(entry.group, effects.assignments, self._clock.now_ms())
            try:
                shard.append([(GroupMetadataKey(group=group_id), value)])
            except LogError as failure:
                if self._not_recorded.allows(self._loop.now_ms()):
                    more = self._not_recorded.take_note()
                    _log.warning("group-not-recorded group=%r reason=%s%s", group_id, failure, more)
                code = append_error(failure)
                too_large = code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
                code = ErrorCode.UNKNOWN_SERVER_ERROR if too_large else code
                effects = entry.machine.append_failed(code, self._loop.now_ms())
            else:
                effects = entry.machine.appended(self._loop.now_ms())
        if entry.is_forgettable and entry.group.generation_id == 0:
            self._shards.forget(group_id)
            self._drop_timer(group_id)
        else:
            self._schedule(entry)

    def _schedule(self, entry: GroupEntry) -> None:
        """One timer a group. Deadlines that move later are found out when it rings."""
        group_id = entry.group.group_id
        deadline_ms = entry.machine.next_deadline_ms()
        current = self._timers.get(group_id)
        if deadline_ms is None:
            self._drop_timer(group_id)
        elif current is None or deadline_ms < current[0]:
            self._drop_timer(group_id)
            timer = self._loop.call_at(deadline_ms, lambda: self._on_timer(group_id))
            self._timers[group_id] = (deadline_ms, timer)

    def _drop_timer(self, group_id: str) -> None:
        found = self._timers.pop(group_id, None)
        if found is not None:
            found[1].cancel()

    def _on_timer(self, group_id: str) -> None:
        self._timers.pop(group_id, None)
        if self.find(group_id) is not ErrorCode.NONE:
            return
        entry = self._shards.entry(group_id)
        if entry is not None:
            self._run(entry, entry.machine.on_deadline(self._loop.now_ms()))

    def _expire_offsets(self) -> None:
        def steps() -> Steps:
            yield from self._commits.expire()
            self._loop.call_later(self._settings.retention_check_interval_ms, self._expire_offsets)

        self._slices.run(steps(), lambda: True)

    def _on_buried(self, state: GroupShardState, entry: GroupEntry) -> None:
        if entry.group.group_id not in state.groups:
            self._drop_timer(entry.group.group_id)


def _answer_when_visible(shard: GroupShard, waiter: object, reply: Reply) -> None:
    def answer(code: ErrorCode) -> None:
        failed = retriable(code)
        if failed is not ErrorCode.NONE:
            _call(waiter, type(reply)(error_code=failed))
        else:
            _call(waiter, reply)

    shard.when_visible(answer)


def _call(waiter: object, reply: Reply) -> None:
    assert callable(waiter)
    waiter(reply)
