"""The partitions of ``__consumer_offsets`` that this broker leads, and the groups in them."""

import logging
from collections.abc import Callable, Iterator

from klog_broker.coordinator.group.classic.machine import GroupSettings
from klog_broker.coordinator.group.hashing import partition_for_group
from klog_broker.coordinator.group.state import (
    GroupEntry,
    GroupShardState,
    decode_record,
    encode_record,
)
from klog_broker.coordinator.shard import Shard, wants_descriptor
from klog_broker.log.partition_log import PartitionLog
from klog_broker.runtime.clock import Clock
from klog_broker.runtime.loop import Loop
from klog_broker.runtime.purgatory import Purgatory
from pyspark_klog.errors import ErrorCode, KlogError
from pyspark_klog.ids import LeaderEpoch, TopicPartition
from pyspark_klog.records.compression import Codec
from pyspark_klog.state_records.consumer_offsets import Key, Value

CONSUMER_OFFSETS = "__consumer_offsets"
_log = logging.getLogger("klog.group")
# A shard that could not be read for want of a descriptor is read again after this.
_NO_DESCRIPTOR_PAUSE_MS = 1_000

GroupShard = Shard[Key, Value]


class GroupShards:
    """Shards and their states by partition number. Loop thread only.

    ``num_partitions`` is None while the topic does not exist; ``leader_epoch`` gives a partition's;
    ``on_loaded`` is called with a partition whose groups can be served from now on.
    """

    def __init__(
        self,
        settings: GroupSettings,
        *,
        commit_timeout_ms: int,
        codec: Codec,
        loop: Loop,
        purgatory: Purgatory,
        clock: Clock,
        new_member_id: Callable[[str], str],
        num_partitions: Callable[[], int | None],
        leader_epoch: Callable[[TopicPartition], LeaderEpoch],
        on_loaded: Callable[[int], None],
    ) -> None:
        self._settings = settings
        self._commit_timeout_ms = commit_timeout_ms
        self._codec = codec
        self._loop = loop
        self._purgatory = purgatory
        self._clock = clock
        self._new_member_id = new_member_id
        self._num_partitions = num_partitions
        self._leader_epoch = leader_epoch
        self._on_loaded = on_loaded
        self._shards: dict[int, GroupShard] = {}
        self._states: dict[int, GroupShardState] = {}

    def lead(self, partition: int, log: PartitionLog) -> None:
        """Take over a partition: load it, a slice a turn."""
        state = GroupShardState(self._settings, self._new_member_id)
        where = TopicPartition(CONSUMER_OFFSETS, partition)
        self._states[partition] = state
        self._shards[partition] = Shard(
            log,
            encode=encode_record,
            decode=decode_record,
            apply=state.apply,
            purgatory=self._purgatory,
            clock=self._clock,
            timeout_ms=self._commit_timeout_ms,
            leader_epoch=lambda: self._leader_epoch(where),
            codec=self._codec,
        )
        self._load(partition)

    def leads(self, partition: int, log: PartitionLog) -> bool:
        """Whether this log of the partition is served (a topic made anew has another)."""
        shard = self._shards.get(partition)
        return shard is not None and shard.log is log

    def resign(self, partition: int) -> list[GroupEntry]:
        """Give a partition up; returns the groups that were in it."""
        self._shards.pop(partition, None)
        state = self._states.pop(partition, None)
        return list(state.groups.values()) if state else []

    def find(self, group_id: str) -> ErrorCode:
        """Whether this broker serves the group now."""
        num_partitions = self._num_partitions()
        if not num_partitions:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        shard = self._shards.get(partition_for_group(group_id, num_partitions))
        if shard is None or shard.log.is_offline or shard.has_failed:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE if shard.is_loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    # What a group that was found is kept in

    def shard(self, group_id: str) -> GroupShard:
        return self._shards[self._partition(group_id)]

    def of_group(self, group_id: str) -> tuple[GroupShard, GroupShardState]:
        return self.at(self._partition(group_id))

    def entry(self, group_id: str) -> GroupEntry | None:
        return self._states[self._partition(group_id)].groups.get(group_id)

    def get_or_create(self, group_id: str) -> GroupEntry:
        return self._states[self._partition(group_id)].get_or_create(group_id)

    def forget(self, group_id: str) -> None:
        """A group of which nothing was ever recorded."""
        self._states[self._partition(group_id)].groups.pop(group_id, None)

    # All of them

    def loaded(self) -> Iterator[tuple[GroupShard, GroupShardState]]:
        for partition, shard in list(self._shards.items()):
            if shard.is_loaded:
                yield shard, self._states[partition]

    def loading(self) -> list[int]:
        """The partitions that cannot be served yet."""
        shards = self._shards.items()
        return [number for number, each in shards if not each.is_loaded and not each.has_failed]

    def at(self, partition: int) -> tuple[GroupShard, GroupShardState]:
        return self._shards[partition], self._states[partition]

    def entries(self) -> list[GroupEntry]:
        """Every group that is known so far; none of a partition that cannot be loaded."""
        return [
            entry
            for number, state in self._states.items()
            if not self._shards[number].has_failed
            for entry in state.groups.values()
        ]

    def _load(self, partition: int) -> None:
        shard = self._shards.get(partition)
        if shard is None:
            return
        try:
            done = shard.load_slice()
        except (KlogError, OSError) as error:
            if wants_descriptor(error):
                self._loop.call_later(_NO_DESCRIPTOR_PAUSE_MS, lambda: self._load(partition))
                return
            # Nobody is served from half of a state: as with Kafka, its groups have no coordinator.
            _log.error("load-failed partition=%s-%d reason=%s", CONSUMER_OFFSETS, partition, error)
            return
        if done:
            self._on_loaded(partition)
        else:
            self._loop.call_soon(lambda: self._load(partition))

    def _partition(self, group_id: str) -> int:
        return partition_for_group(group_id, self._num_partitions() or 1)
