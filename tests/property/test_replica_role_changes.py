"""Any role changes, with the disk work done in any order: the roles are those of a simple model."""

from dataclasses import dataclass
from random import Random
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from klog_broker.log.errors import InconsistentTopicId
from klog_broker.metadata.role_changes import RoleChange, RoleRemoval
from klog_broker.replication.errors import StaleRoleChange
from pyspark_klog.ids import TopicId, TopicPartition
from tests.support.cluster.helpers import Helpers
from tests.support.cluster.replicas import ME, OTHER, ReplicaWorld, role_assignment, role_removal
from tests.support.log.harness import batch

PARTITIONS = [TopicPartition(topic, number) for topic in ("a", "b") for number in (0, 1)]
IDS = [TopicId(UUID(int=1)), TopicId(UUID(int=2))]
EPOCHS = st.integers(0, 3)

ORDERS = st.one_of(
    st.builds(
        role_assignment,
        EPOCHS,
        EPOCHS,
        partition=st.sampled_from(PARTITIONS),
        topic_id=st.sampled_from(IDS),
        leader=st.sampled_from((ME, ME, OTHER)),
    ),
    st.builds(
        role_removal,
        EPOCHS,
        partition=st.sampled_from(PARTITIONS),
        topic_id=st.sampled_from(IDS),
        deletes=st.booleans(),
    ),
)


class ShuffledHelpers(Helpers):
    """Helpers that run a randomly chosen piece of work when the test says so."""

    def __init__(self, chance: Random) -> None:
        super().__init__(is_held=True)
        self._chance = chance

    def run_one(self) -> None:
        work = self._chance.choice(list(self.waiting))
        self.waiting.remove(work)
        self.run(*work)


@dataclass
class Replica:
    topic_id: TopicId
    epochs: tuple[int, int] = (-1, -1)
    role: str = "Unassigned"


class Model:
    """Applies role changes one after the other."""

    def __init__(self) -> None:
        self.replicas: dict[TopicPartition, Replica] = {}

    def apply(self, given: RoleChange) -> type[Exception] | None:
        found = self.replicas.get(given.topic_partition)
        if isinstance(given, RoleRemoval):
            if found is None or found.topic_id != given.topic_id:
                return None
            if given.leader_epoch < found.epochs[0]:
                return StaleRoleChange
            found.role = "Unassigned"
            if given.deletes:
                del self.replicas[given.topic_partition]
            return None
        if found is None:
            found = self.replicas[given.topic_partition] = Replica(given.topic_id)
        elif found.topic_id != given.topic_id:
            return InconsistentTopicId
        epochs = (given.leader_epoch, given.partition_epoch)
        if epochs < found.epochs:
            return StaleRoleChange
        found.epochs = epochs
        found.role = "Leader" if given.leader == ME else "Follower"
        return None


@given(st.lists(st.lists(ORDERS, max_size=6), max_size=8), st.randoms(use_true_random=False))
def test_roles_come_out_as_the_model_says(calls: list[list[RoleChange]], chance: Random) -> None:
    world = ReplicaWorld(helpers=ShuffledHelpers(chance))
    model, expected, answered = Model(), [], []
    for number, orders in enumerate(calls):
        results: dict[TopicPartition, type[Exception]] = {}
        for each in orders:
            error = model.apply(each)
            partition: TopicPartition = each.topic_partition
            results.pop(partition, None)
            if error is not None:
                results[partition] = error
        expected.append((number, results))
        world.replicas.apply(
            orders,
            lambda found, number=number: answered.append(
                (number, {key: type(error) for key, error in found.items()})
            ),
        )
        for _ in range(chance.randrange(3)):
            if world.helpers.waiting:
                world.helpers.run_one()
            check(world)
    while world.helpers.waiting:
        world.helpers.run_one()
        check(world)
    world.work()
    assert answered == expected
    for partition in PARTITIONS:
        replica = model.replicas.get(partition)
        assert world.role(partition) == ("" if replica is None else replica.role)
        if replica is not None:
            found = world.replicas.partition(*partition)
            assert found.epochs == replica.epochs
            assert found.topic_id == replica.topic_id
        # Coordinators got leads and resigns in turns; the last one is the present state.
        told = [what.split()[0] for what, where in world.coordinator_calls if where == partition]
        assert told == ["lead", "resign"] * (len(told) // 2) + ["lead"] * (len(told) % 2)
        assert (len(told) % 2 == 1) == (partition in world.replicas.led)


def check(world: ReplicaWorld) -> None:
    """Check properties that hold at any moment: each leader can append."""
    for key, leader in world.replicas.led.items():
        assert leader.ended is None
        assert leader.topic_partition == key
        assert world.replicas.partition(*key).role is leader
        assert world.logs.get(leader.topic_partition) is leader.log
        end = leader.append(batch(), acks_all=True, now_ms=1).last_offset + 1
        assert leader.log.high_watermark == end
