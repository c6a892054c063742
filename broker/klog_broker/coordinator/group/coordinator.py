"""The group coordinator of a broker: finds a group's shard and calls the group's state machine.

``answer`` is a callable that sends the response. The coordinator calls ``answer`` once the high
watermark has passed all records that the response depends on. Loop thread only.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass

from klog_broker.coordinator.effects import Waiter
from klog_broker.coordinator.group.classic.group import ClassicGroup
from klog_broker.coordinator.group.classic.group_machine import GroupSettings
from klog_broker.coordinator.group.classic.member import Joiner
from klog_broker.coordinator.group.classic.states import GroupState
from klog_broker.coordinator.group.commit_loading import CommitLoading
from klog_broker.coordinator.group.commits import (
    Commit,
    CommitRequest,
    MemberName,
    RequestedCommits,
    TurnCommits,
)
from klog_broker.coordinator.group.deletions import Deletions
from klog_broker.coordinator.group.offset_cleanup import GroupRuntime, GroupShard, OffsetCleanup
from klog_broker.coordinator.group.shard_state import (
    GROUP_RECORDS,
    GroupEntry,
    GroupShardState,
    OffsetTimeline,
    VisibleOffsets,
)
from klog_broker.coordinator.group.transactional_commits import append_in_transaction
from klog_broker.coordinator.runtime import CoordinatorRuntime, RuntimeServices, count_in_steps
from klog_broker.coordinator.shard import RecordProducer, ShardStatus
from klog_broker.coordinator.state_log import StateLog
from klog_broker.runtime.event_loop.slices import Steps
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse
from pyspark_klog.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.control import EndTransactionMarker

CONSUMER_OFFSETS = "__consumer_offsets"

__all__ = [
    "CONSUMER_OFFSETS",
    "Commit",
    "CommitRequest",
    "CoordinatorSettings",
    "GroupCoordinator",
    "MemberName",
]

MAX_PROTOCOLS = 100
"""Largest number of assignors a member may offer; each rebalance compares the assignors of all
members."""


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """The group.* and offsets.* settings of the broker that the group coordinator uses."""

    group: GroupSettings
    min_session_timeout_ms: int
    max_session_timeout_ms: int
    offset_metadata_max_bytes: int
    commit_timeout_ms: int
    retention_ms: int
    retention_check_interval_ms: int
    codec: Codec


class GroupCoordinator:
    """All groups whose partition of ``__consumer_offsets`` this broker leads.

    ``num_partitions`` returns None while the topic does not exist.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        services: RuntimeServices,
        *,
        new_member_id: Callable[[str], str],
        num_partitions: Callable[[], int | None],
    ) -> None:
        self._settings = settings
        self._loop = services.loop
        self._clock = services.clock
        self._slices = services.slices

        def new_state() -> tuple[GroupShardState, OffsetTimeline]:
            timeline = OffsetTimeline()
            return GroupShardState(settings.group, new_member_id, timeline), timeline

        self._runtime: GroupRuntime = CoordinatorRuntime(
            services,
            GROUP_RECORDS,
            new_state,
            num_partitions=num_partitions,
            append_timeout_ms=settings.commit_timeout_ms,
            codec=settings.codec,
            new_bulk=CommitLoading,
        )
        self.commits = TurnCommits(services.loop, services.clock)
        """Collects offset commits. A handler that has found the group's shard with ``shard_of``
        calls this object directly, instead of ``commit``."""
        self._offset_cleanup = OffsetCleanup(
            self._runtime,
            services.clock,
            services.slices,
            retention_ms=settings.retention_ms,
        )
        self.deletions = Deletions(self._runtime, services.slices)
        """Carries out DeleteGroups and OffsetDelete requests."""
        self._loop.call_later(settings.retention_check_interval_ms, self._expire_offsets)

    # --- loading, unloading and finding shards (led partitions of __consumer_offsets) ------------
    def on_lead(self, log: StateLog) -> None:
        """Load and then serve a partition of ``__consumer_offsets`` that this broker now leads."""
        self._runtime.load_shard(log)

    def on_resign(self, topic_partition: TopicPartition) -> None:
        """Stop serving a partition that this broker no longer leads.

        Pending requests of clients get NOT_COORDINATOR, so that they look the coordinator up again.
        """
        self._runtime.unload_shard(topic_partition.partition)

    def shard_of(self, group_id: str) -> GroupShard | None:
        """Return the shard (a partition of ``__consumer_offsets`` with the state of its groups)
        that serves the group now; None if this broker does not serve the group."""
        return self._runtime.find(group_id)[1]

    def serving_error(self, group_id: str) -> ErrorCode:
        """Return NONE if this broker serves the group now, else the error for the client."""
        return self._runtime.find(group_id)[0]

    # --- requests of members ---------------------------------------------------------------------
    def join(self, request: JoinGroupRequest, joiner: Joiner, answer: Waiter) -> None:
        settings, group_id = self._settings, request.group_id
        error, shard = self._find_for_member(group_id)
        bounds = (settings.min_session_timeout_ms, settings.max_session_timeout_ms)
        if error is ErrorCode.NONE and not bounds[0] <= request.session_timeout_ms <= bounds[1]:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        if error is ErrorCode.NONE and len(request.protocols) > MAX_PROTOCOLS:
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if shard is not None and request.member_id and group_id not in shard.state.groups:
            error = error or ErrorCode.UNKNOWN_MEMBER_ID
        if shard is None or error is not ErrorCode.NONE:
            answer(JoinGroupResponse(error_code=error, member_id=request.member_id))
            return
        machine = shard.state.get_or_create(group_id).machine
        effects = machine.join(request, joiner, answer, self._loop.now_ms())
        self._runtime.carry_out_effects(shard, group_id, effects)

    def sync(self, request: SyncGroupRequest, answer: Waiter) -> None:
        error, shard, entry = self._member_entry(request.group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The rebalance that this SyncGroup belongs to was only in the previous coordinator's
            # memory: as in Kafka, the member must join again.
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if shard is None or entry is None:
            answer(SyncGroupResponse(error_code=error))
            return
        effects = entry.machine.sync(request, answer, self._loop.now_ms())
        self._runtime.carry_out_effects(shard, request.group_id, effects)

    def heartbeat(self, group_id: str, name: MemberName, generation_id: int) -> ErrorCode:
        error, shard = self._find_for_member(group_id)
        if shard is None:
            # Kafka answers NONE during loading, too. After loading, all members get a new session.
            is_loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return ErrorCode.NONE if is_loading else error
        entry = shard.state.groups.get(group_id)
        if entry is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id, instance_id = name
        return entry.machine.heartbeat(member_id, generation_id, self._loop.time_ms, instance_id)

    def leave(
        self, group_id: str, names: Iterable[MemberName]
    ) -> tuple[ErrorCode, list[ErrorCode]]:
        """Remove the members ``names`` (LeaveGroup). Returns the request's error and, if it is
        NONE, an error code for each member."""
        error, shard, entry = self._member_entry(group_id)
        if shard is None:
            return error, []
        results = []
        for name in names:
            if entry is not None:
                now_ms = self._loop.now_ms()
                error, effects = entry.machine.leave(name.member_id, now_ms, name.instance_id)
                self._runtime.carry_out_effects(shard, group_id, effects)
            results.append(error)
        return ErrorCode.NONE, results

    def rebalance(self, group_id: str) -> ErrorCode:
        """Start a rebalance of a group, as when its leader joins again. Returns an error if this
        broker does not serve the group, or UNKNOWN_MEMBER_ID if the group has no members. For
        faults that a test adds (klog_broker.faults)."""
        error, shard, entry = self._member_entry(group_id)
        if shard is None or entry is None or not entry.group.members:
            return error
        effects = entry.machine.rebalance(self._loop.now_ms())
        self._runtime.carry_out_effects(shard, group_id, effects)
        return ErrorCode.NONE

    # --- committing, reading and deleting offsets ------------------------------------------------
    def commit(self, request: CommitRequest) -> None:
        """Append the commits in this event-loop turn.

        ``request.answer`` gets their results once the high watermark has passed them.
        """
        error, shard = self._runtime.find(request.group_id)
        if shard is None:
            request.answer([error] * len(request.commits))
        else:
            longest = self._settings.offset_metadata_max_bytes
            self.commits.add(shard, RequestedCommits(request, longest))

    def commit_in_transaction(self, request: CommitRequest, producer: RecordProducer) -> None:
        """Append the commits now; they take effect when the producer's transaction is committed.

        The caller has verified with the transaction coordinator that the producer's open
        transaction includes the group's partition of ``__consumer_offsets``.
        """
        error, shard = self._runtime.find(request.group_id)
        if shard is None:
            request.answer([error] * len(request.commits))
            return
        append_in_transaction(
            shard,
            request,
            producer,
            metadata_max_bytes=self._settings.offset_metadata_max_bytes,
            now_ms=self._clock.now_ms(),
        )

    def partition_for(self, group_id: str) -> TopicPartition | None:
        """The partition that stores the group's offsets; None while the topic does not exist."""
        partition = self._runtime.partition_for(group_id)
        return None if partition is None else TopicPartition(CONSUMER_OFFSETS, partition)

    def committed(self, group_id: str) -> tuple[ErrorCode, VisibleOffsets | None]:
        """Return NONE and a group's visible offsets, or an error and None.

        A group that does not exist has no offsets. At a new leader, the high watermark is at first
        behind the log end offset. Until it has reached the log end offset of loading time, this
        method returns COORDINATOR_LOAD_IN_PROGRESS, because readers would see offsets that are
        older than offsets acknowledged before. (Kafka 3.9's GroupCoordinator shows offsets that are
        not replicated yet and may be lost.)
        """
        error, shard = self._runtime.find(group_id)
        if shard is None:
            return error, None
        if shard.is_behind_loaded_end:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None
        return error, shard.state.visible_offsets(group_id, shard.log.high_watermark)

    def delete_topic_offsets(self, topic: str) -> None:
        """Delete the offsets that were committed in a topic which has been deleted."""
        self._offset_cleanup.delete_topic_offsets(topic)

    def append_marker(
        self,
        partition: int,
        producer: RecordProducer,
        marker: EndTransactionMarker,
        transaction_version: int,
        answer: Callable[[ErrorCode], None],
    ) -> None:
        """Append a transaction's marker to ``partition``, a partition of __consumer_offsets.

        The offsets that the transaction committed in the partition take effect now (COMMIT), or are
        dropped (ABORT). ``answer`` is called when the high watermark has passed the marker. Raises
        LogError or BrokerError, as ``Shard.append`` does.
        """
        shard = self._runtime.shard(partition)
        if shard is None or shard.serving_error() is not ErrorCode.NONE:
            answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        shard.append_marker(producer, marker, transaction_version=transaction_version)
        shard.when_visible(answer)

    # --- groups for administrators and metrics ---------------------------------------------------
    def describe(self, group_id: str) -> tuple[ErrorCode, ClassicGroup | None]:
        """Return NONE and the group (None if no such group exists), or an error and None."""
        error, shard = self._runtime.find(group_id)
        entry = None if shard is None else shard.state.groups.get(group_id)
        return error, None if entry is None else entry.group

    def groups(self) -> tuple[ErrorCode, list[ClassicGroup]]:
        """Return the groups of all partitions of ``__consumer_offsets`` that this broker leads,
        except for failed ones, with NONE; or with COORDINATOR_LOAD_IN_PROGRESS if groups may be
        missing, because a partition is still being loaded."""
        errors = [(each, each.serving_error()) for each in self._runtime.shards()]
        led = [(each, error) for each, error in errors if error is not ErrorCode.NOT_COORDINATOR]
        is_loading = any(error is not ErrorCode.NONE for _, error in led)
        found = [entry.group for each, _ in led for entry in each.state.groups.values()]
        return (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NONE), found

    def statuses(self) -> Counter[ShardStatus]:
        """The number of shards (partitions of ``__consumer_offsets`` that this broker leads) in
        each status."""
        return self._runtime.statuses()

    def partitions_in(self, status: ShardStatus) -> list[int]:
        """The numbers of these partitions whose shards have this status, in ascending order."""
        return self._runtime.partitions_in(status)

    def count_states(self) -> Generator[int, None, Counter[GroupState]]:
        """Return the number of groups in each state. A generator that yields after each part of the
        work, so that the event loop can serve requests in between (Slices)."""
        counts: Counter[GroupState] = Counter()
        for shard in self._runtime.shards():
            states = [each.group.state for each in shard.state.groups.values()]
            counts += yield from count_in_steps(states)
        return counts

    # --- look-ups of shards and groups, and the periodic expiry of offsets -----------------------
    def _find_for_member(self, group_id: str) -> tuple[ErrorCode, GroupShard | None]:
        """Return the group's shard, or an error; INVALID_GROUP_ID for the empty id.

        A group with the empty id has no members, but may have offsets, because clients without a
        group id once committed under it.
        """
        return self._runtime.find(group_id) if group_id else (ErrorCode.INVALID_GROUP_ID, None)

    def _member_entry(
        self, group_id: str
    ) -> tuple[ErrorCode, GroupShard | None, GroupEntry | None]:
        """Return the group's shard, and the group's entry in it: its state machine and offsets.

        If shard or entry is None, the returned error is the answer to the requesting member.
        """
        error, shard = self._find_for_member(group_id)
        if shard is None:
            return error, None, None
        return ErrorCode.UNKNOWN_MEMBER_ID, shard, shard.state.groups.get(group_id)

    def _expire_offsets(self) -> None:
        def steps() -> Steps:
            yield from self._offset_cleanup.expire()
            self._loop.call_later(self._settings.retention_check_interval_ms, self._expire_offsets)

        self._slices.run(steps(), lambda: True)
