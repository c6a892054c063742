"""A leader's requests for other in-sync sets, lost, late and refused: the leader always waits for
every replica that the controller has in sync. The rules are klog's; the network is a model.
"""

from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from klog_broker.controller.decisions import isr_changes
from klog_broker.controller.decisions.context import ControllerContext, Leadership, RegisteredBroker
from klog_broker.controller.decisions.leader_election import LeaderAndIsr
from klog_broker.metadata.image import BrokerRegistration
from klog_broker.replication.isr import Committed
from klog_broker.replication.isr_changes import CommittedIsr, IsrChange, IsrResult
from klog_broker.replication.leader_replicas import LeaderReplicas
from klog_broker.replication.replica_progress import FollowerFetch
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, LeaderEpoch, TopicPartition
from pyspark_klog.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from tests.simulation.mutants.mutant import Mutant
from tests.support.cluster.replicas import ME, OTHER, THIRD, role_assignment
from tests.support.log.harness import TOPIC_ID

ALL = (ME, OTHER, THIRD)
PARTITION = TopicPartition("t", 0)
MAX_LAG_MS = 100
STEPS = 60


@dataclass(frozen=True, eq=False)
class Sending:
    change: IsrChange


class Asking:
    """One leadership, one controller (after another: what is known of it outlives all of them), and
    requests that arrive whenever they like."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.leader = LeaderReplicas(
            ME,
            1,
            role_assignment(4, 9, replicas=ALL, in_sync=ALL),
            epoch_start_offset=0,
            min_in_sync=1,
            max_lag_ms=MAX_LAG_MS,
            now_ms=0,
        )
        self.context = ControllerContext()
        self.context.put_topic("t", TOPIC_ID)
        self.context.assign(PARTITION, ALL)
        self._put(LeaderAndIsr(ME, LeaderEpoch(4), ALL), 9)
        for each in ALL:
            self.registers(each, 1)
        self.now_ms = 0
        self.under_way: list[Sending] = []
        self.last: Sending | None = None
        """The last request, while it has no response."""
        self.states = [self.known]
        """States that were sent to all brokers (UpdateMetadata); they may arrive late."""
        self.is_told = seed % 4 == 0
        self.is_tampered_with = False

    def _put(self, state: LeaderAndIsr, partition_epoch: int) -> None:
        self.context.put_leadership(PARTITION, Leadership(state, 1, partition_epoch, 0))

    def somebody_writes(self) -> None:
        """Into the partition's znode, by hand: a follower is out, the leader epoch is as it was."""
        some = tuple(each for each in self.known.state.in_sync if each in (ME, OTHER))
        self._put(LeaderAndIsr(ME, LeaderEpoch(4), some), self.known.partition_epoch + 1)
        self.states.append(self.known)
        self.is_tampered_with = True

    def deliver_state(self, known: Leadership) -> None:
        state = known.state
        self.leader.apply_partition_state(
            CommittedIsr(state.leader_epoch, known.partition_epoch, state.in_sync)
        )

    def registers(self, broker: BrokerId, epoch: int) -> None:
        """The controller reads a new registration; followers still fetch under the earlier one."""
        self.context.put_broker(RegisteredBroker(BrokerRegistration(broker, ()), epoch))

    def step(self) -> None:
        follower = self.chance.choice((OTHER, THIRD))
        match self.chance.randrange(9 if self.is_told else 7):
            case 0:
                self.now_ms += 60
                self.leader.shrink(10, self.now_ms)
            case 1 | 2:
                self.fetch(follower)
            case 3:
                self.send()
            case 4 | 5 if self.under_way:
                self.arrive(self.chance.randrange(len(self.under_way)))
            case 6:
                self.registers(follower, self.chance.randint(1, 2))
            case 7 if not self.is_tampered_with:
                self.somebody_writes()
            case 8:
                self.deliver_state(self.chance.choice(self.states))

    def fetch(self, follower: BrokerId) -> None:
        self.leader.fetched(follower, FollowerFetch(10, 0, 1), 10, self.now_ms)
        self.leader.grow(follower, 10)

    def send(self) -> None:
        if self.last is not None:
            self.leader.handle_lost_request(self.last.change)
        asked = self.leader.pending_change
        self.last = Sending(asked) if asked is not None else None
        if self.last is not None:
            self.under_way.append(self.last)

    def arrive(self, number: int) -> None:
        """A request arrives at the controller; only the last request's response is used."""
        sending = self.under_way.pop(number)
        answer = self.decided(sending.change)
        if sending is self.last:
            self.last = None
            self.leader.handle_result(sending.change, answer)

    def decided(self, change: IsrChange) -> IsrResult:
        members = [
            BrokerState(broker_id=each, broker_epoch=epoch) for each, epoch in change.members
        ]
        data = PartitionData(
            partition_index=0,
            leader_epoch=change.leader_epoch,
            partition_epoch=change.partition_epoch,
            new_isr_with_epochs=members,
        )
        request = AlterPartitionRequest(
            broker_id=ME, broker_epoch=1, topics=[TopicData(topic_id=TOPIC_ID, partitions=[data])]
        )
        decision = isr_changes.decide_isr_changes(self.context, request)
        for state in decision.changes.values():
            self._put(state, self.known.partition_epoch + 1)
            self.states.append(self.known)
        response = isr_changes.alter_partition_response(self.context, request, decision)
        result = response.topics[0].partitions[0]
        if result.error_code:
            return ErrorCode(result.error_code)
        members_now = tuple(BrokerId(each) for each in result.isr)
        return CommittedIsr(LeaderEpoch(result.leader_epoch), result.partition_epoch, members_now)

    @property
    def known(self) -> Leadership:
        known = self.context.leadership(PARTITION)
        assert known is not None
        return known

    def fault(self) -> str:
        """Return the present fault, "" if there is none."""
        in_sync, maximal = self.known.state.in_sync, self.leader.in_sync.maximal
        if set(in_sync) <= set(maximal):
            return ""
        return f"{in_sync} may lead, and {maximal} are waited for"


def first_fault(seed: int) -> str:
    world = Asking(seed)
    for number in range(STEPS):
        world.step()
        if world.fault():
            return f"step {number}: {world.fault()}"
    # The present request gets a response, while late requests arrive in between.
    for _ in range(4):
        world.send()
        while world.under_way:
            world.arrive(len(world.under_way) - 1)
        if world.leader.awaits_leader_and_isr:
            world.deliver_state(world.known)
    leader = world.leader
    is_told = not world.is_tampered_with or leader.partition_epoch == world.known.partition_epoch
    if leader.pending_change or (
        is_told and leader.in_sync != Committed(world.known.state.in_sync)
    ):
        return f"never over: {leader.in_sync}, {world.known}"
    return world.fault()


@pytest.mark.parametrize("first", range(0, 2_000, 500))
def test_each_replica_that_may_be_in_sync_is_waited_for_and_every_change_ends(first: int) -> None:
    assert [
        (seed, first_fault(seed)) for seed in range(first, first + 500) if first_fault(seed)
    ] == []


def _forgets(_original: Any) -> Any:
    return lambda replicas, change: None


def _raises_no_epoch(original: Any) -> Any:
    def decide(context: ControllerContext, request: AlterPartitionRequest) -> Any:
        decision = original(context, request)
        for partition, state in list(decision.changes.items()):
            known = context.leadership(partition)
            if known is not None and known.state == state:
                del decision.changes[partition]
        return decision

    return decide


def _takes_all(_original: Any) -> Any:
    def told(replicas: LeaderReplicas, state: CommittedIsr) -> bool:
        replicas._commit(state.partition_epoch, state.members)
        return True

    return told


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant("a refusal is final", LeaderReplicas, "handle_lost_request", _forgets),
        Mutant("the epoch is not raised", isr_changes, "decide_isr_changes", _raises_no_epoch),
        Mutant(
            "an order is waited for, though none comes",
            LeaderReplicas,
            "apply_partition_state",
            _forgets,
        ),
        Mutant("what is told late is taken", LeaderReplicas, "apply_partition_state", _takes_all),
    ],
    ids=lambda mutant: mutant.name,
)
def test_a_bug_is_found(mutant: Mutant) -> None:
    with mutant.applied():
        assert any(first_fault(seed) for seed in range(500))
