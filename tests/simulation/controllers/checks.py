"""The promises of controllers, checked by ZooKeeper's commits and the brokers' roles."""

from collections.abc import Callable
from dataclasses import dataclass, field

from klog_broker.runtime.zookeeper.requests import Exists, Get, ListChildren, Multi
from klog_broker.runtime.zookeeper.sessions import Create, Set, ZooKeeperError
from pyspark_klog.ids import BrokerId, TopicId, TopicPartition
from pyspark_klog.znodes.paths import (
    BROKER_IDS,
    CONTROLLER_EPOCH,
    TOPICS,
    broker_path,
    partition_state_path,
    topic_path,
)
from pyspark_klog.znodes.topics import (
    NO_LEADER,
    LeaderRecoveryState,
    PartitionState,
    TopicAssignment,
    decode_partition_state,
    decode_topic,
)
from tests.simulation.world import Violation
from tests.simulation.zookeeper import SimulatedZooKeeper
from tests.simulation.zookeeper.tree import Tree


@dataclass
class Known:
    """A partition's state, and the broker epoch in which each ISR member joined the ISR."""

    state: PartitionState
    lives: dict[BrokerId, int] = field(default_factory=dict)


Key = tuple[TopicId, int]


class Checks:
    """Follows the commits with a tree of its own."""

    def __init__(self, zookeeper: SimulatedZooKeeper) -> None:
        self.tree = Tree()
        self.writes = 0
        self.elections = 0
        self.on_write: Callable[[], None] = lambda: None
        """Called at each commit of partition states, before the controller has the response."""
        self.on_registered: Callable[[], None] = lambda: None
        """Called when a broker registers, before any other broker can know it."""
        self.counts: dict[TopicId | None, set[int]] = {}
        """The partition counts that each topic has or has had, by topic id."""
        self._zookeeper = zookeeper
        self._applied = 0
        self._known: dict[Key, Known] = {}
        self._leaders: dict[tuple[Key, int], BrokerId] = {}
        self._states: dict[tuple[Key, int, int], PartitionState] = {}
        self._led: dict[tuple[Key, int], tuple[BrokerId, int]] = {}
        self._met: dict[tuple[Key, int, BrokerId], int] = {}
        self._producer_ids: set[int] = set()

    # --- commits ----------------------------------------------------------------------------------
    def follow(self) -> None:
        """Check all commits since the last call."""
        entries = self._zookeeper.entries
        while self._applied < len(entries):
            entry = entries[self._applied]
            self._applied += 1
            if entry.request is None:
                self.tree.end_session(entry.session_id, self._applied)
                continue
            answer, _ = self.tree.write(entry.request, self._applied, entry.session_id)
            if isinstance(answer, ZooKeeperError):
                continue
            request = entry.request
            parts = request.operations if isinstance(request, Multi) else (request,)
            if any(isinstance(each, Create) and each.ephemeral for each in parts):
                self.on_registered()
            written = [each for each in parts if isinstance(each, Create | Set)]
            for part in written:
                parent, _, name = part.path.rpartition("/")
                if parent == TOPICS:
                    topic = decode_topic(name, part.data)
                    self.counts.setdefault(topic.topic_id, set()).add(len(topic.partitions))
            states = [each for each in written if each.path.endswith("/state")]
            for part in states:
                self._written(part)
            if states:
                self.writes += 1
                self.on_write()

    def _written(self, part: Create | Set) -> None:
        *_, topic, _, number, _ = part.path.split("/")
        partition = TopicPartition(topic, int(number))
        assignment = self.assignment(topic)
        assert assignment is not None and assignment.topic_id is not None
        key = (assignment.topic_id, partition.partition)
        after = decode_partition_state(partition, part.data)
        if after.controller_epoch != self.controller_epoch():
            self._fail("a deposed controller writes nothing", partition, after)
        if not after.isr or after.leader not in (*after.isr, NO_LEADER):
            self._fail("a leader is in sync", partition, after)
        before = self._known.get(key)
        if before is None:
            lives = {each: self._life(each) or 0 for each in after.isr}
            known = Known(after, lives)
        else:
            known = self._next(key, partition, before, after)
        self._known[key] = known
        leader = self._leaders.setdefault((key, after.leader_epoch), after.leader)
        if leader != after.leader:
            self._fail("one leader an epoch", partition, after)
        version = self.tree.read(Exists(part.path)).version
        self._states[key, after.leader_epoch, version] = after

    def _next(
        self, key: Key, partition: TopicPartition, before: Known, after: PartitionState
    ) -> Known:
        same_epoch = after.leader_epoch == before.state.leader_epoch
        self.elections += not same_epoch
        if after.leader_epoch < before.state.leader_epoch:
            self._fail("leader epochs rise", partition, after)
        if after.leader_recovery_state is LeaderRecoveryState.RECOVERING:
            if not is_unclean(partition.topic):
                self._fail("only an in-sync replica leads", partition, after)
            if not same_epoch:
                return Known(after, {each: self._life(each) or 0 for each in after.isr})
        elif not set(after.isr) & set(before.state.isr):
            self._fail("the last in-sync replica stays", partition, after)
        lives = {}
        for each in after.isr:
            life, now = before.lives.get(each), self._life(each)
            if life is None:
                life = self._life_met(key, after.leader_epoch, each) if same_epoch else None
                if life is None or now not in (None, life):
                    self._fail("a joiner has caught up since it registered", partition, after)
            elif now not in (None, life):
                # The broker may have lost records after its restart: only the last ISR member may
                # stay.
                if after.isr != (each,):
                    self._fail("a restarted broker leaves the ISR", partition, after)
                if same_epoch:
                    self._fail("a restart begins a leader epoch", partition, after)
            lives[each] = now or life
        return Known(after, lives)

    def _life_met(self, key: Key, leader_epoch: int, follower: BrokerId) -> int | None:
        """The broker epoch in which the leader of that epoch saw the follower catch up."""
        return self._met.get((key, leader_epoch, follower))

    def _life(self, broker_id: BrokerId) -> int | None:
        stat = self.tree.read(Exists(broker_path(broker_id)))
        return None if stat is None else int(stat.czxid)

    def _fail(self, check: str, partition: TopicPartition, state: PartitionState) -> None:
        raise Violation(check, f"{partition} {state}")

    # --- reports of brokers -----------------------------------------------------------------------
    def leads(self, key: Key, leader_epoch: int, broker_id: BrokerId, broker_epoch: int) -> None:
        """A broker has become the partition's leader."""
        self.follow()
        if self._leaders.get((key, leader_epoch)) != broker_id:
            raise Violation("each leader was elected", f"{key} epoch {leader_epoch}: {broker_id}")
        life = self._led.setdefault((key, leader_epoch), (broker_id, broker_epoch))
        if life != (broker_id, broker_epoch):
            raise Violation(
                "one registration leads in an epoch",
                f"{key} epoch {leader_epoch}: {broker_id} {life}",
            )

    def met(self, key: Key, leader_epoch: int, follower: BrokerId, broker_epoch: int) -> None:
        """A follower with this broker epoch has caught up with its leader."""
        self._met[key, leader_epoch, follower] = broker_epoch

    def altered(self, key: Key, leader_epoch: int, version: int, isr: list[int]) -> None:
        """A leader's ISR request was answered with this ISR."""
        self.follow()
        state = self._states.get((key, leader_epoch, version))
        if state is None or list(state.isr) != isr:
            raise Violation(
                "what is acknowledged is written", f"{key} {leader_epoch} {isr} {state}"
            )

    def allocated(self, first: int) -> None:
        """A broker got a block of producer ids."""
        if first in self._producer_ids:
            raise Violation("producer ids are given once", str(first))
        self._producer_ids.add(first)

    # --- the committed tree -----------------------------------------------------------------------
    def controller_epoch(self) -> int:
        return int(self.tree.read(Get(CONTROLLER_EPOCH)).data)

    def children(self, path: str) -> tuple[str, ...]:
        listed = self.tree.read(ListChildren(path))
        return () if isinstance(listed, ZooKeeperError) else tuple(listed.names)

    def topics(self) -> dict[str, TopicAssignment]:
        found = {name: self.assignment(name) for name in self.children(TOPICS)}
        return {name: each for name, each in found.items() if each is not None}

    def assignment(self, topic: str) -> TopicAssignment | None:
        node = self.tree.read(Get(topic_path(topic)))
        return None if isinstance(node, ZooKeeperError) else decode_topic(topic, node.data)

    def state(self, partition: TopicPartition) -> tuple[PartitionState, int] | None:
        """The partition's state, and the version of its node."""
        node = self.tree.read(Get(partition_state_path(partition)))
        if isinstance(node, ZooKeeperError):
            return None
        return decode_partition_state(partition, node.data), node.stat.version

    def registered(self) -> dict[int, int]:
        """The registered brokers, with their broker epochs."""
        names = self.children(BROKER_IDS)
        return {int(name): self._life(BrokerId(int(name))) or 0 for name in names}


def is_unclean(topic: str) -> bool:
    """Whether unclean leader election is enabled for the topic."""
    return topic.startswith("unclean")
