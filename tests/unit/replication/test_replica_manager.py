"""Role changes: applied in order, refused if stale, answered when the disk work is done."""

from pathlib import Path
from uuid import UUID

import pytest

from klog_broker.log.errors import (
    DiskFull,
    InconsistentTopicId,
    LogStorageError,
    OutOfDescriptors,
)
from klog_broker.metadata.image import NO_BROKER
from klog_broker.replication import settings_updates
from klog_broker.replication.errors import EndReason, StaleRoleChange
from klog_broker.replication.role_change_batch import CONCURRENT_ROLE_CHANGES
from pyspark_klog.ids import TopicId, TopicPartition
from tests.support.cluster.helpers import Helpers
from tests.support.cluster.replicas import ME, OTHER, ReplicaWorld, role_assignment, role_removal
from tests.support.log.harness import DATA, PARTITION, SMALL, TOPIC_ID, batch

OTHER_ID = TopicId(UUID(int=99))


def partitions(count: int) -> list[TopicPartition]:
    return [TopicPartition("many", number) for number in range(count)]


# --- in order ------------------------------------------------------------------------------------
def test_role_changes_are_answered_once_the_disk_has_done_its_part() -> None:
    world = ReplicaWorld()
    found = world.apply_async(role_assignment())
    assert found == []
    assert world.role() == ""
    world.helpers.run_all()
    assert found == [{}]
    assert world.role() == "Leader"


def test_a_few_logs_are_made_at_once() -> None:
    world = ReplicaWorld()
    found = world.apply_async(*(role_assignment(partition=each) for each in partitions(20)))
    while not found:
        assert len(world.helpers.waiting) <= CONCURRENT_ROLE_CHANGES
        world.helpers.run_one()
    assert found == [{}]
    assert set(world.replicas.led) == set(partitions(20))


def test_later_role_changes_wait_for_earlier_ones() -> None:
    world = ReplicaWorld()
    other = TopicPartition("other", 0)
    world.lead(partition=other)
    first = world.apply_async(role_assignment())
    second = world.apply_async(role_assignment(1, leader=OTHER, partition=other))
    assert world.role(other) == "Leader"
    world.helpers.run_all()
    assert (first, second) == ([{}], [{}])
    assert world.role(other) == "Follower"


def test_role_changes_of_one_partition_in_one_call_are_applied_in_order() -> None:
    world = ReplicaWorld()
    assert world.apply(role_assignment(1), role_removal(1), role_assignment(2)) == {}
    assert world.role() == "Leader"
    assert world.leader().leader_epoch == 2
    assert [what for what, _ in world.coordinator_calls] == ["lead 1", "resign", "lead 2"]


def test_a_log_may_be_made_before_anybody_leads() -> None:
    world = ReplicaWorld()
    assert world.apply(role_assignment(leader=NO_BROKER)) == {}
    assert world.role() == "Follower"
    assert world.coordinator_calls == []
    assert world.apply(role_assignment()) == {}
    assert [what for what, _ in world.coordinator_calls] == ["lead 0"]


def test_a_callback_may_apply_role_changes() -> None:
    world = ReplicaWorld(helpers=Helpers())
    answered: list[str] = []

    def first_is_done(results: object) -> None:
        world.replicas.apply([role_removal(deletes=False)], lambda _: answered.append("inner"))
        answered.append("first")

    world.replicas.apply([role_assignment()], first_is_done)
    assert sorted(answered) == ["first", "inner"]
    assert world.role() == "Unassigned"


def test_many_calls_that_wait_for_nothing_do_not_nest() -> None:
    world = ReplicaWorld()
    held = world.apply_async(role_assignment())
    others = [
        world.apply_async(role_removal(partition=each, deletes=False)) for each in partitions(3_000)
    ]
    world.helpers.run_all()
    assert held == [{}]
    assert others == [[{}]] * 3_000


def test_coordinators_hear_of_an_end_before_the_next_beginning() -> None:
    world = ReplicaWorld()
    world.apply(role_assignment(1))
    world.apply(role_assignment(2))
    world.apply(role_assignment(3, leader=OTHER))
    world.apply(role_assignment(4))
    world.apply(role_assignment(4, 1))
    assert [what for what, _ in world.coordinator_calls] == [
        "lead 1",
        "resign",
        "lead 2",
        "resign",
        "lead 4",
    ]


# --- refused -------------------------------------------------------------------------------------
def test_older_epochs_are_refused() -> None:
    world = ReplicaWorld()
    leader = world.lead(5, 3)
    for stale in (role_assignment(4, 9), role_assignment(5, 2), role_removal(4)):
        assert isinstance(world.apply(stale)[PARTITION], StaleRoleChange)
        assert world.leader() is leader
        assert leader.ended is None
    # A repeated role change changes nothing.
    assert world.apply(role_assignment(5, 3)) == {}
    assert world.leader() is leader


def test_an_epoch_that_the_log_is_past_is_refused() -> None:
    world = ReplicaWorld(helpers=Helpers())
    world.lead(5).append(batch(), acks_all=True, now_ms=1)
    world.logs.close()
    again = ReplicaWorld(world.files)
    assert again.role() == "Unassigned"
    assert isinstance(again.apply(role_assignment(4))[PARTITION], StaleRoleChange)
    assert again.role() == "Unassigned"
    assert again.apply(role_assignment(5)) == {}


def test_a_replica_of_another_topic_id_is_not_touched() -> None:
    world = ReplicaWorld()
    leader = world.lead()
    assert isinstance(
        world.apply(role_assignment(9, topic_id=OTHER_ID))[PARTITION], InconsistentTopicId
    )
    assert world.apply(role_removal(9, topic_id=OTHER_ID)) == {}
    assert world.leader() is leader
    assert leader.ended is None


def test_a_foreign_folder_is_not_touched() -> None:
    world = ReplicaWorld()
    strange = DATA / str(PARTITION)
    world.files.make_dirs(strange)
    world.files.write_atomically(strange / "precious", b"data")
    assert isinstance(world.apply(role_assignment())[PARTITION], InconsistentTopicId)
    assert world.files.read_bytes(strange / "precious") == b"data"
    assert world.role() == ""


# --- deleted -------------------------------------------------------------------------------------
def test_a_deleted_log_is_removed_and_its_name_is_free() -> None:
    world = ReplicaWorld()
    world.lead().append(batch(), acks_all=True, now_ms=1)
    found = world.apply_async(role_removal())
    assert found == []
    world.work()
    assert found == [{}]
    assert world.role() == ""
    assert world.lead(topic_id=OTHER_ID).log.log_end_offset == 0


def test_what_is_not_there_can_be_deleted() -> None:
    world = ReplicaWorld()
    assert world.apply(role_removal(), role_removal(partition=TopicPartition("more", 3))) == {}


def test_a_replica_that_is_stopped_keeps_its_log() -> None:
    world = ReplicaWorld()
    world.lead().append(batch(), acks_all=True, now_ms=1)
    assert world.apply(role_removal(deletes=False)) == {}
    assert world.role() == "Unassigned"
    assert world.lead(1).log.log_end_offset == 1


# --- disks that fail -----------------------------------------------------------------------------
def test_a_disk_that_fails_in_the_middle_fails_what_is_on_it() -> None:
    world = ReplicaWorld(directories=(DATA, Path("/data2")))
    first = world.lead(partition=TopicPartition("first", 0))
    found = world.apply_async(*(role_assignment(partition=each) for each in partitions(8)))
    world.helpers.run_one()
    world.files.fail_sync_at = world.files.syncs + 1
    world.work()
    (results,) = found
    failed = [each for each in partitions(8) if world.role(each) == "Offline"]
    assert failed
    assert set(results) <= set(failed)
    assert all(isinstance(error, LogStorageError) for error in results.values())
    assert set(world.replicas.led) >= set(partitions(8)) - set(failed)
    for each in (first, *world.replicas.led.values()):
        assert (each.ended is EndReason.OFFLINE) == each.log.is_offline
    # An existing partition must not be made again, empty: its log may be in the failed directory.
    old = TopicPartition("old", 0)
    assert isinstance(world.apply(role_assignment(partition=old))[old], LogStorageError)
    assert isinstance(world.apply(role_removal(partition=TopicPartition("x", 0))), dict)
    assert world.role(old) == "Offline"
    new = TopicPartition("new", 0)
    assert world.apply(role_assignment(partition=new, is_new=True)) == {}


def test_an_offline_replica_cannot_be_deleted() -> None:
    world = ReplicaWorld()
    leader = world.lead()
    leader.append(batch(), acks_all=True, now_ms=1)
    world.files.fail_sync_at = world.files.syncs + 1
    leader.log.start_flush()
    world.work()
    assert isinstance(world.apply(role_removal())[PARTITION], LogStorageError)
    assert world.role() == "Offline"


def test_without_descriptors_nothing_is_made_and_it_can_be_tried_again() -> None:
    world = ReplicaWorld()
    world.files.has_descriptors = False
    assert isinstance(world.apply(role_assignment())[PARTITION], OutOfDescriptors)
    assert world.role() == ""
    world.files.has_descriptors = True
    assert world.apply(role_assignment()) == {}


def test_on_a_full_disk_nothing_is_made_and_it_can_be_tried_again_or_deleted() -> None:
    world = ReplicaWorld()
    world.files.free_bytes = 0
    assert isinstance(world.apply(role_assignment())[PARTITION], DiskFull)
    assert world.role() == ""
    assert world.apply(role_removal()) == {}
    world.files.free_bytes = None
    assert world.apply(role_assignment()) == {}
    assert world.role() == "Leader"


# --- settings ------------------------------------------------------------------------------------
def test_settings_that_change_while_a_log_is_made_count() -> None:
    world = ReplicaWorld()
    found = world.apply_async(role_assignment())
    world.set(max_message_bytes=77)
    world.work()
    assert found == [{}]
    assert world.leader().log.config.max_message_bytes == 77
    assert SMALL.max_message_bytes != 77


def test_many_partitions_take_their_settings_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_updates, "PARTITIONS_A_TURN", 2)
    world = ReplicaWorld(helpers=Helpers())
    many = [TopicPartition(PARTITION.topic, number) for number in range(5)]
    assert world.apply(*(role_assignment(partition=each) for each in many)) == {}
    taken: list[str] = []

    def sizes(partitions: list[TopicPartition]) -> list[int]:
        return [world.leader(each).log.config.max_message_bytes for each in partitions]

    before, version = SMALL.max_message_bytes, world.replicas.version
    world.set(max_message_bytes=77)
    world.replicas.when_settings_are_taken(lambda: taken.append("first"))
    assert sizes(many) == [77, 77, before, before, before]
    world.set(max_message_bytes=88)
    world.replicas.when_settings_are_taken(lambda: taken.append("second"))
    assert (sizes(many), taken) == ([77, 77, before, before, before], [])
    assert world.apply(role_removal(partition=many[4], deletes=False)) == {}
    world.work()
    assert sizes(many[:4]) == [88] * 4
    assert taken == ["first", "second"]
    assert world.replicas.version > version + 3
    world.replicas.when_settings_are_taken(lambda: taken.append("at once"))
    assert taken[2:] == ["at once"]


def test_only_settings_that_differ_wake_requests_that_wait_for_a_partition() -> None:
    """A topic may have 10,000 partitions, and is announced once more when the image shows it."""
    world = ReplicaWorld(helpers=Helpers())
    world.lead()
    woken = []
    for settings in (
        {},
        {"max_message_bytes": 77},
        {"max_message_bytes": 77},
        {"max_message_bytes": 77, "min_in_sync": 2},
        {"max_message_bytes": 77, "min_in_sync": 2},
    ):
        world.woken.clear()
        world.set(**settings)
        woken.append(PARTITION in world.woken)
        assert world.leader().log.config == world.settings.log
    assert woken == [False, True, False, True, False]


def test_loaded_logs_wait_for_their_role() -> None:
    world = ReplicaWorld(helpers=Helpers())
    world.lead(2).append(batch(3), acks_all=True, now_ms=1)
    world.logs.close()
    again = ReplicaWorld(world.files)
    assert again.role() == "Unassigned"
    assert again.replicas.led == {}
    assert again.apply(role_assignment(2, topic_id=TOPIC_ID)) == {}
    assert again.leader().log.high_watermark == 3
    assert again.leader().broker_id == ME
