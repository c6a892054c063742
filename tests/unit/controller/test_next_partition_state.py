"""A partition's next state when brokers start, fail, bounce or are about to stop."""

import pytest

from klog_broker.controller.decisions.context import ControllerContext, Leadership, RegisteredBroker
from klog_broker.controller.decisions.leader_election import LeaderAndIsr
from klog_broker.controller.decisions.next_state import next_state
from klog_broker.metadata.image import BrokerRegistration
from pyspark_klog.ids import UUID, BrokerId, LeaderEpoch, TopicId, TopicPartition

PARTITION = TopicPartition("t", 0)
WRITTEN_AT = 100


def context(
    leader: int,
    in_sync: tuple[int, ...],
    epochs: dict[int, int],
    *,
    leaving: tuple[int, ...] = (),
    replicas: tuple[int, ...] = (1, 2, 3),
) -> ControllerContext:
    made = ControllerContext()
    for number, epoch in epochs.items():
        broker = BrokerRegistration(BrokerId(number), ())
        made.put_broker(RegisteredBroker(broker, epoch))
    for number in leaving:
        made.begin_shutdown(BrokerId(number))
    made.put_topic("t", TopicId(UUID(int=7)))
    made.assign(PARTITION, tuple(map(BrokerId, replicas)))
    if in_sync:
        state = LeaderAndIsr(BrokerId(leader), LeaderEpoch(5), tuple(map(BrokerId, in_sync)))
        made.put_leadership(PARTITION, Leadership(state, 1, 0, WRITTEN_AT))
    return made


OLD, NEW = 10, 110
"""Registered before and after the state was written."""


@pytest.mark.parametrize(
    ("leader", "in_sync", "epochs", "leaving", "expected"),
    [
        pytest.param(1, (1, 2), {1: OLD, 2: OLD}, (), None, id="all is well"),
        pytest.param(1, (1, 2), {2: OLD, 3: OLD}, (), (2, (2,)), id="the leader died"),
        pytest.param(1, (1, 2), {1: OLD, 3: OLD}, (), (1, (1,)), id="a follower died"),
        pytest.param(1, (1,), {2: OLD}, (), (-1, (1,)), id="the last one died"),
        pytest.param(1, (1, 2), {3: OLD}, (), (-1, (1,)), id="all died, and the leader is kept"),
        pytest.param(-1, (1,), {2: OLD}, (), None, id="nobody can lead yet"),
        pytest.param(-1, (1,), {1: NEW}, (), (1, (1,)), id="the last one is back"),
        pytest.param(1, (1, 2), {1: NEW, 2: OLD}, (), (2, (2,)), id="the leader bounced"),
        pytest.param(1, (1, 2), {1: OLD, 2: NEW}, (), (1, (1,)), id="a follower bounced"),
        pytest.param(1, (1,), {1: NEW, 2: OLD}, (), (1, (1,)), id="the last one bounced"),
        pytest.param(2, (1, 2), {1: NEW, 2: NEW}, (), (2, (2,)), id="all bounced"),
        pytest.param(1, (1, 2), {2: NEW}, (), (-1, (1,)), id="one died, the other bounced"),
        pytest.param(1, (1, 2), {1: OLD, 2: OLD}, (1,), (2, (2,)), id="the leader is to stop"),
        pytest.param(1, (1, 2), {1: OLD, 2: OLD}, (2,), (1, (1,)), id="a follower is to stop"),
        pytest.param(1, (1,), {1: OLD, 2: OLD}, (1,), None, id="the last one leads until it stops"),
        pytest.param(1, (1, 2), {1: OLD, 2: NEW}, (1,), (1, (1,)), id="nobody else can lead"),
    ],
)
def test_what_becomes_of_it(
    leader: int,
    in_sync: tuple[int, ...],
    epochs: dict[int, int],
    leaving: tuple[int, ...],
    expected: tuple[int, tuple[int, ...]] | None,
) -> None:
    state = next_state(context(leader, in_sync, epochs, leaving=leaving), PARTITION, unclean=False)
    if expected is None:
        assert state is None
    else:
        assert state is not None
        assert (state.leader, state.in_sync) == expected
        # However much has changed, it is one new epoch.
        assert (state.leader_epoch, state.is_recovering) == (6, False)


def test_a_replica_out_of_sync_leads_only_with_unclean_election() -> None:
    made = context(1, (1,), {2: OLD, 3: OLD})
    state = next_state(made, PARTITION, unclean=True)
    assert state == LeaderAndIsr(BrokerId(2), LeaderEpoch(6), (BrokerId(2),), is_recovering=True)


def test_a_new_partition_is_led_once_one_of_its_brokers_is_registered() -> None:
    assert next_state(context(-1, (), {4: OLD}), PARTITION, unclean=True) is None
    state = next_state(context(-1, (), {3: OLD, 2: OLD}), PARTITION, unclean=False)
    assert state == LeaderAndIsr(BrokerId(2), LeaderEpoch(0), (BrokerId(2), BrokerId(3)))
