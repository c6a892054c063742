"""The group coordinator of a broker: finds a request's shard, runs its machine, keeps its timers.

Answers are callables: the group's replies leave through them when what they rest on is visible.
Loop thread only.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from klog_broker.coordinator.group.effects import Effects, Reply
from klog_broker.coordinator.group.group import Group
from klog_broker.coordinator.group.hashing import partition_for_group
from klog_broker.coordinator.group.machine import GroupSettings, Joiner
from klog_broker.coordinator.group.offsets import CommittedOffset, commit_key
from klog_broker.coordinator.group.records import snapshot
from klog_broker.coordinator.group.state import (
    GroupEntry,
    GroupShardState,
    Records,
    decode_record,
    encode_record,
)
from klog_broker.coordinator.shard import Shard, append_error
from klog_broker.log.errors import LogError
from klog_broker.log.partition_log import PartitionLog
from klog_broker.runtime.clock import Clock
from klog_broker.runtime.loop import Loop
from klog_broker.runtime.purgatory import Purgatory
from klog_broker.runtime.wheel import Timer
from pyspark_klog.errors import ErrorCode, KlogError
from pyspark_klog.ids import LeaderEpoch, TopicPartition
from pyspark_klog.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse
from pyspark_klog.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from pyspark_klog.records.compression import Codec
from pyspark_klog.state_records.consumer_offsets import Key, Value
from pyspark_klog.state_records.group_metadata import GroupMetadataKey
from pyspark_klog.state_records.offset_commit import OffsetCommitValue

CONSUMER_OFFSETS = "__consumer_offsets"
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


@dataclass(frozen=True, slots=True)
class Commit:
    """One partition of an OffsetCommit; ``commit_ms`` and ``expire_ms`` are -1 unless given."""

    partition: TopicPartition
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int = -1
    expire_ms: int = -1


class GroupCoordinator:
    """All shards of ``__consumer_offsets`` that this broker leads.

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
        self._purgatory = purgatory
        self._clock = clock
        self._new_member_id = new_member_id
        self._num_partitions = num_partitions
        self._leader_epoch = leader_epoch
        self._shards: dict[int, Shard[Key, Value]] = {}
        self._states: dict[int, GroupShardState] = {}
        self._deleted_topics: dict[int, set[str]] = {}
        """By partition that still loads: topics whose offsets are to be forgotten afterwards."""
        self._timers: dict[str, tuple[int, Timer]] = {}
        self._loop.call_later(settings.retention_check_interval_ms, self._expire_offsets)

    # Shards

    def lead(self, partition: int, log: PartitionLog) -> None:
        """Take over a partition of ``__consumer_offsets``: load it, a slice a turn."""
        state = GroupShardState(self._settings.group, self._new_member_id)
        where = TopicPartition(CONSUMER_OFFSETS, partition)
        self._states[partition] = state
        self._shards[partition] = Shard(
            log,
            encode=encode_record,
            decode=decode_record,
            apply=state.apply,
            purgatory=self._purgatory,
            clock=self._clock,
            timeout_ms=self._settings.commit_timeout_ms,
            leader_epoch=lambda: self._leader_epoch(where),
            codec=self._settings.codec,
        )
        self._load(partition)

    def leads(self, partition: int, log: PartitionLog) -> bool:
        """Whether this log of the partition is served (a topic made anew has another)."""
        shard = self._shards.get(partition)
        return shard is not None and shard.log is log

    def resign(self, partition: int) -> None:
        """Give a partition up: whoever waits is told to look for the coordinator again."""
        self._shards.pop(partition, None)
        state = self._states.pop(partition, None)
        for entry in list(state.groups.values()) if state else ():
            self._drop_timer(entry.group.group_id)
            for answer in entry.machine.unload().answers:
                _call(answer.waiter, answer.reply)

    def find(self, group_id: str) -> ErrorCode:
        """Whether this broker serves the group now."""
        num_partitions = self._num_partitions()
        if not num_partitions:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        shard = self._shards.get(partition_for_group(group_id, num_partitions))
        if shard is None or shard.log.is_offline:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE if shard.is_loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    # Members

    def join(self, request: JoinGroupRequest, joiner: Joiner, answer: Answer) -> None:
        settings, group_id = self._settings, request.group_id
        error = self.find(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
        bounds = (settings.min_session_timeout_ms, settings.max_session_timeout_ms)
        if error is ErrorCode.NONE and not bounds[0] <= request.session_timeout_ms <= bounds[1]:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        if error is ErrorCode.NONE and request.member_id and self._entry(group_id) is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is not ErrorCode.NONE:
            answer(JoinGroupResponse(error_code=error, member_id=request.member_id))
            return
        entry = self._get_or_create(group_id)
        self._run(entry, entry.machine.join(request, joiner, answer, self._loop.now_ms()))

    def sync(self, request: SyncGroupRequest, answer: Answer) -> None:
        error, entry = self._member_entry(request.group_id)
        if entry is None:
            answer(SyncGroupResponse(error_code=error))
            return
        self._run(entry, entry.machine.sync(request, answer, self._loop.now_ms()))

    def heartbeat(self, group_id: str, member_id: str, generation_id: int) -> ErrorCode:
        error, entry = self._member_entry(group_id)
        if entry is None:
            return error
        return entry.machine.heartbeat(member_id, generation_id, self._loop.now_ms())

    def leave(self, group_id: str, member_id: str) -> ErrorCode:
        error, entry = self._member_entry(group_id)
        if entry is None:
            return error
        error, effects = entry.machine.leave(member_id, self._loop.now_ms())
        self._run(entry, effects)
        return error

    # Offsets

    def commit(
        self,
        group_id: str,
        member_id: str,
        generation_id: int,
        commits: Iterable[Commit],
        answer: Callable[[dict[TopicPartition, ErrorCode]], None],
    ) -> None:
        """Append the commits; answer each partition's result once the records are visible."""
        commits = list(commits)
        error = self.find(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
        if error is ErrorCode.NONE:
            error = self._check_commit(group_id, member_id, generation_id)
        if error is not ErrorCode.NONE:
            answer({commit.partition: error for commit in commits})
            return
        longest = self._settings.offset_metadata_max_bytes
        results = {
            c.partition: ErrorCode.OFFSET_METADATA_TOO_LARGE
            if len(c.metadata.encode()) > longest
            else ErrorCode.NONE
            for c in commits
        }
        now_ms = self._clock.now_ms()
        records: Records = [
            (commit_key(group_id, c.partition), _commit_value(c, now_ms))
            for c in commits
            if results[c.partition] is ErrorCode.NONE
        ]
        shard = self._shard(group_id)
        try:
            if records:
                shard.append(records)
        except LogError as failure:
            answer(_failed(results, append_error(failure)))
            return
        shard.when_visible(lambda code: answer(_failed(results, _retriable(code))))

    def committed(self, group_id: str) -> tuple[ErrorCode, dict[TopicPartition, CommittedOffset]]:
        """All of a group's offsets; none for a group that nobody knows."""
        error = self.find(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
        entry = self._entry(group_id) if error is ErrorCode.NONE else None
        if entry is None:
            return error, {}
        book = entry.offsets
        return error, {p: found for p in book if (found := book.get(p)) is not None}

    def forget_topic(self, topic: str) -> None:
        """The topic was deleted: so are the offsets committed in it."""
        for partition, shard in self._shards.items():
            if shard.is_loaded:
                self._forget_topics(partition, {topic})
            else:
                self._deleted_topics.setdefault(partition, set()).add(topic)

    # What tools see

    def describe(self, group_id: str) -> tuple[ErrorCode, Group | None]:
        """The group; None with error NONE if there is no such group (its state is Dead)."""
        error = self.find(group_id)
        entry = self._entry(group_id) if error is ErrorCode.NONE else None
        return error, None if entry is None else entry.group

    def groups(self) -> tuple[ErrorCode, list[Group]]:
        """All groups of the loaded shards; COORDINATOR_LOAD_IN_PROGRESS if some still load."""
        loading = any(not shard.is_loaded for shard in self._shards.values())
        found = [e.group for state in self._states.values() for e in state.groups.values()]
        return (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE), found

    # Inside

    def _load(self, partition: int) -> None:
        shard = self._shards.get(partition)
        if shard is None:
            return
        try:
            done = shard.load_slice()
        except KlogError as error:
            # The shard stays unloaded, so nobody is served from half of a state.
            _log.error("load-failed partition=%s-%d reason=%s", CONSUMER_OFFSETS, partition, error)
            return
        if not done:
            self._loop.call_soon(lambda: self._load(partition))
            return
        for entry in self._states[partition].groups.values():
            entry.machine.reloaded(self._loop.now_ms())
            self._schedule(entry)
        self._forget_topics(partition, self._deleted_topics.pop(partition, set()))

    def _partition(self, group_id: str) -> int:
        return partition_for_group(group_id, self._num_partitions() or 1)

    def _shard(self, group_id: str) -> Shard[Key, Value]:
        return self._shards[self._partition(group_id)]

    def _entry(self, group_id: str) -> GroupEntry | None:
        return self._states[self._partition(group_id)].groups.get(group_id)

    def _get_or_create(self, group_id: str) -> GroupEntry:
        return self._states[self._partition(group_id)].get_or_create(group_id)

    def _member_entry(self, group_id: str) -> tuple[ErrorCode, GroupEntry | None]:
        error = self.find(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
        if error is not ErrorCode.NONE:
            return error, None
        return ErrorCode.UNKNOWN_MEMBER_ID, self._entry(group_id)

    def _check_commit(self, group_id: str, member_id: str, generation_id: int) -> ErrorCode:
        entry = self._entry(group_id)
        if entry is None:
            return ErrorCode.NONE if generation_id < 0 else ErrorCode.ILLEGAL_GENERATION
        return entry.machine.check_commit(member_id, generation_id, self._loop.now_ms())

    def _run(self, entry: GroupEntry, effects: Effects) -> None:
        """Carry out what the machine decided, and what follows from that."""
        group_id = entry.group.group_id
        shard = self._shard(group_id)
        while True:
            for waiting in effects.answers:
                self._answer_when_visible(shard, waiting.waiter, waiting.reply)
            if effects.assignments is None:
                break
            value = snapshot(entry.group, effects.assignments, self._clock.now_ms())
            try:
                shard.append([(GroupMetadataKey(group=group_id), value)])
            except LogError as failure:
                _log.warning("group-not-recorded group=%r reason=%s", group_id, failure)
                code = append_error(failure)
                too_large = code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
                code = ErrorCode.UNKNOWN_SERVER_ERROR if too_large else code
                effects = entry.machine.append_failed(code, self._loop.now_ms())
            else:
                effects = entry.machine.appended(self._loop.now_ms())
        if entry.is_forgettable and entry.group.generation_id == 0:
            self._states[self._partition(group_id)].groups.pop(group_id, None)
            self._drop_timer(group_id)
        else:
            self._schedule(entry)

    def _answer_when_visible(self, shard: Shard[Key, Value], waiter: object, reply: Reply) -> None:
        def answer(code: ErrorCode) -> None:
            failed = _retriable(code)
            if failed is not ErrorCode.NONE:
                _call(waiter, type(reply)(error_code=failed))
            else:
                _call(waiter, reply)

        shard.when_visible(answer)

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
        entry = self._entry(group_id)
        if entry is not None:
            self._run(entry, entry.machine.on_deadline(self._loop.now_ms()))

    def _expire_offsets(self) -> None:
        now_ms = self._clock.now_ms()
        for partition, state in self._states.items():
            if self._shards[partition].is_loaded:
                for entry in list(state.groups.values()):
                    records = state.expire(entry, now_ms, self._settings.retention_ms)
                    self._bury(partition, entry, records)
        self._loop.call_later(self._settings.retention_check_interval_ms, self._expire_offsets)

    def _forget_topics(self, partition: int, topics: set[str]) -> None:
        state = self._states[partition]
        for topic in topics:
            for entry in list(state.groups.values()):
                self._bury(partition, entry, state.forget_topic(entry, topic))

    def _bury(self, partition: int, entry: GroupEntry, records: Records) -> None:
        if not records:
            return
        try:
            self._shards[partition].append(records)
        except LogError as error:
            _log.warning("not-expired group=%r reason=%s", entry.group.group_id, error)
            return
        if entry.group.group_id not in self._states[partition].groups:
            self._drop_timer(entry.group.group_id)


def _call(waiter: object, reply: Reply) -> None:
    assert callable(waiter)
    waiter(reply)


def _commit_value(commit: Commit, now_ms: int) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=commit.offset,
        leader_epoch=commit.leader_epoch,
        metadata=commit.metadata,
        commit_timestamp=commit.commit_ms if commit.commit_ms >= 0 else now_ms,
        expire_timestamp=commit.expire_ms,
    )


def _retriable(code: ErrorCode) -> ErrorCode:
    """Why a record did not become visible, as clients of a coordinator know it."""
    if code is ErrorCode.NONE:
        return code
    storage = code is ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NOT_COORDINATOR if storage else ErrorCode.COORDINATOR_NOT_AVAILABLE


def _failed(
    results: dict[TopicPartition, ErrorCode], error: ErrorCode
) -> dict[TopicPartition, ErrorCode]:
    if error is ErrorCode.NONE:
        return results
    return {p: error if code is ErrorCode.NONE else code for p, code in results.items()}
