"""A leadership's promises: allowed appends, the end that readers see, and the leadership's end."""

import pytest

from klog_broker.log.errors import LogStorageError
from klog_broker.replication.errors import EndReason, LeadershipEnded, NotEnoughReplicas
from klog_broker.replication.leader import Leader
from klog_broker.replication.replica_progress import FollowerFetch
from tests.support.cluster.replicas import (
    ME,
    OTHER,
    THIRD,
    ReplicaWorld,
    role_assignment,
    role_removal,
)
from tests.support.log.harness import PARTITION, batch

BOTH = (ME, OTHER)


def append(leader: Leader, count: int = 1, *, acks_all: bool = True) -> int:
    info = leader.append(batch(count), acks_all=acks_all, now_ms=5_000)
    return info.last_offset + 1


def test_without_followers_readers_see_appended_records_at_once() -> None:
    world = ReplicaWorld()
    leader = world.lead(4)
    assert world.role() == "Leader"
    assert append(leader, 3) == 3
    assert leader.log.high_watermark == 3
    assert world.woken[-1] == PARTITION
    assert leader.log.leader_epoch == leader.leader_epoch == 4


def test_the_watermark_waits_for_the_slowest_in_sync_and_never_falls() -> None:
    leader = ReplicaWorld().lead(replicas=(ME, OTHER, THIRD), in_sync=BOTH)
    append(leader, 10)
    assert leader.log.high_watermark == 0
    leader.fetched(OTHER, FollowerFetch(6))
    assert leader.log.high_watermark == 6
    leader.fetched(THIRD, FollowerFetch(2))
    leader.fetched(OTHER, FollowerFetch(3))
    assert leader.log.high_watermark == 6
    leader.fetched(OTHER, FollowerFetch(10))
    assert leader.log.high_watermark == 10


def test_a_set_that_shrinks_lets_the_watermark_go_on() -> None:
    world = ReplicaWorld()
    leader = world.lead(replicas=BOTH)
    append(leader, 10)
    assert world.lead(0, 1, replicas=BOTH, in_sync=(ME,)) is leader
    assert leader.log.high_watermark == 10


def test_where_replies_wait_for_the_flush_readers_do_too() -> None:
    world = ReplicaWorld()
    leader = world.lead()
    world.set(flush_messages=1)
    append(leader, 2)
    assert leader.log.high_watermark == 0
    world.work()
    assert leader.log.high_watermark == 2
    world.set(flush_messages=1 << 40)
    append(leader)
    assert leader.log.high_watermark == 3


def test_settings_that_no_longer_wait_for_the_flush_show_what_is_there() -> None:
    world = ReplicaWorld()
    leader = world.lead()
    world.set(flush_messages=1)
    append(leader, 2)
    world.set(flush_messages=1 << 40)
    assert leader.log.high_watermark == 2


def test_acks_all_needs_as_many_in_sync_as_the_setting_says() -> None:
    world = ReplicaWorld()
    leader = world.lead(replicas=BOTH, in_sync=(ME,))
    append(leader)
    version = world.replicas.version
    world.set(min_in_sync=2)
    assert world.replicas.version > version
    with pytest.raises(NotEnoughReplicas):
        append(leader)
    assert append(leader, acks_all=False) == 2
    world.apply(role_assignment(0, 1, replicas=BOTH))
    assert append(leader) == 3


def test_no_more_are_needed_than_the_partition_has() -> None:
    world = ReplicaWorld()
    leader = world.lead()
    world.set(min_in_sync=3)
    assert append(leader) == 1


def test_a_newer_epoch_is_another_leadership() -> None:
    world = ReplicaWorld()
    old = world.lead(1)
    append(old)
    new = world.lead(2)
    assert new is not old
    assert old.ended is EndReason.RESIGNED
    assert old.present is new
    with pytest.raises(LeadershipEnded):
        append(old)
    assert new.replicas.epoch_start_offset == 1
    assert append(new) == 2
    assert new.log.end_offset_for_epoch(1).end_offset == 1


def test_a_follower_refuses_appends_of_producers() -> None:
    world = ReplicaWorld()
    old = world.lead(1, replicas=BOTH)
    woken = len(world.woken)
    assert world.apply(role_assignment(2, leader=OTHER, replicas=BOTH)) == {}
    assert world.role() == "Follower"
    assert old.ended is EndReason.RESIGNED
    assert len(world.woken) == woken + 1
    assert PARTITION not in world.replicas.led
    again = world.lead(3, replicas=BOTH)
    assert again.present is again
    assert old.present is old, "what it had appended may have been cut"


@pytest.mark.parametrize(
    ("deletes", "ended"), [(True, EndReason.DELETED), (False, EndReason.RESIGNED)]
)
def test_a_replica_that_is_stopped_leads_no_more(deletes: bool, ended: EndReason) -> None:
    world = ReplicaWorld()
    leader = world.lead()
    world.apply_async(role_removal(deletes=deletes))
    assert leader.ended is ended, "as soon as it is ordered, not when the disk has done its part"
    assert PARTITION not in world.replicas.led


def test_a_log_that_goes_offline_ends_its_leadership() -> None:
    world = ReplicaWorld()
    leader = world.lead()
    append(leader)
    world.woken.clear()
    world.files.fail_sync_at = world.files.syncs + 1
    leader.log.start_flush()
    world.work()
    assert leader.ended is EndReason.OFFLINE
    assert world.role() == "Offline"
    assert world.woken == [PARTITION]
    assert world.coordinator_calls == [("lead 0", PARTITION), ("resign", PARTITION)]
    with pytest.raises(LeadershipEnded):
        append(leader)
    # Role changes do not bring the leadership back.
    assert isinstance(world.apply(role_assignment(1))[PARTITION], LogStorageError)
    assert world.role() == "Offline"
