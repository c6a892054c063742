"""Services of coordinators: a loop on a manual clock, helpers, and a log in memory."""

from collections.abc import Callable

from klog_broker.coordinator.group.classic.group_machine import GroupSettings
from klog_broker.coordinator.group.offset_cleanup import GroupRuntime, GroupShard
from klog_broker.coordinator.group.shard_state import (
    GROUP_RECORDS,
    GroupShardState,
    OffsetTimeline,
)
from klog_broker.coordinator.loading import BatchWalk, BulkLoading
from klog_broker.coordinator.runtime import CoordinatorRuntime, RuntimeServices
from klog_broker.runtime.event_loop.purgatory import Purgatory
from klog_broker.runtime.event_loop.slices import Slices
from pyspark_klog.records.compression import Codec
from tests.support.cluster.helpers import Helpers
from tests.support.cluster.state_log import MemoryStateLog
from tests.support.cluster.virtual_time import VirtualTime

NewWalk = Callable[[], BatchWalk | None]


class CoordinatorTime(VirtualTime):
    """Virtual time, and the services of a coordinator runtime on it."""

    def __init__(self, now_ms: int = 1_000, new_walk: NewWalk = lambda: None) -> None:
        super().__init__(now_ms)
        self.services = RuntimeServices(
            loop=self.loop,
            purgatory=Purgatory(self.loop),
            clock=self.clock,
            helpers=Helpers(self.loop),
            slices=Slices(self.loop),
            new_walk=new_walk,
        )


class HostedGroups:
    """A runtime of groups, with one shard that has loaded a log."""

    def __init__(
        self,
        log: MemoryStateLog,
        settings: GroupSettings | None = None,
        new_member_id: Callable[[str], str] = str,
        *,
        append_timeout_ms: int = 1_000,
        new_bulk: Callable[[GroupShardState], BulkLoading] | None = None,
        new_walk: NewWalk = lambda: None,
    ) -> None:
        self.log = log
        self.time = CoordinatorTime(new_walk=new_walk)

        def new_state() -> tuple[GroupShardState, OffsetTimeline]:
            timeline = OffsetTimeline()
            given = settings or GroupSettings(0, 10)
            return GroupShardState(given, new_member_id, timeline), timeline

        self.runtime: GroupRuntime = CoordinatorRuntime(
            self.time.services,
            GROUP_RECORDS,
            new_state,
            num_partitions=lambda: 1,
            append_timeout_ms=append_timeout_ms,
            codec=Codec.NONE,
            new_bulk=new_bulk,
        )
        self.runtime.load_shard(log)
        self.time.settle()

    @property
    def shard(self) -> GroupShard:
        """The shard, even if its load has failed."""
        (shard,) = self.runtime.shards()
        return shard

    @property
    def serving_shard(self) -> GroupShard:
        """The shard, which serves requests."""
        (shard,) = self.runtime.serving()
        return shard
