"""Logs that are made and set aside in helpers, while the loop goes on and asks for other things."""

import errno
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from klog_broker.log.errors import InconsistentTopicId, LogStorageError
from klog_broker.log.manager.log_manager import LogManager
from klog_broker.log.partition_log import PartitionLog
from klog_broker.runtime.system.chance import Chance
from pyspark_klog.ids import BrokerId, TopicId, TopicPartition
from tests.support.cluster.helpers import Helpers
from tests.support.log.harness import (
    CLUSTER,
    DATA,
    PARTITION,
    SMALL,
    TOPIC_ID,
    append,
    open_manager,
)
from tests.support.runtime.manual_clock import ManualClock
from tests.support.runtime.memory_files import MemoryFiles

OTHER_ID = TopicId(UUID(int=99))


class World:
    """A log manager whose helpers do one piece of work when the test says so."""

    def __init__(self, files: MemoryFiles | None = None) -> None:
        self.files = files or MemoryFiles()
        self.helpers = Helpers.held()
        self.manager = open_manager(self.files, helpers=self.helpers)
        self.made: list[PartitionLog] = []
        self.errors: list[BaseException] = []
        self.deleted = 0

    def create(self, partition: TopicPartition = PARTITION, topic_id: TopicId = TOPIC_ID) -> None:
        def on_created(log: PartitionLog | None, error: BaseException | None) -> None:
            assert (log is None) != (error is None)
            if log is not None:
                self.made.append(log)
            if error is not None:
                self.errors.append(error)

        self.manager.changes.create_async(partition, topic_id, SMALL, on_created)

    def delete(self, topic_id: TopicId = TOPIC_ID) -> None:
        def on_deleted(error: BaseException | None) -> None:
            if error is None:
                self.deleted += 1
            else:
                self.errors.append(error)

        self.manager.changes.delete_async(PARTITION, topic_id, on_deleted)

    def names(self) -> list[str]:
        return [name for name in self.files.list_dir(DATA) if name.startswith("topic")]


def test_a_log_is_there_when_the_helper_has_made_it_and_durable() -> None:
    world = World()
    world.create()
    assert (world.names(), world.manager.get(PARTITION)) == ([], None)
    world.helpers.run_all()
    (log,) = world.made
    assert world.manager.get(PARTITION) is log
    assert (log.leader_epoch, log.topic_id, log.high_watermark) == (-1, TOPIC_ID, 0)
    again = open_manager(world.files.crash(Random(1))).get(PARTITION)
    assert again is not None
    assert (again.topic_id, again.was_unclean) == (TOPIC_ID, True)


def test_a_second_request_meanwhile_gets_the_same_log() -> None:
    world = World()
    world.create()
    world.create()
    world.create(topic_id=OTHER_ID)
    world.helpers.run_all()
    assert len(world.made) == 2 and world.made[0] is world.made[1]
    assert [type(error) for error in world.errors] == [InconsistentTopicId]
    world.create()
    assert len(world.made) == 3, "what is there needs no helper"


def test_what_is_deleted_while_it_is_made_goes_when_it_is_there() -> None:
    world = World()
    world.create()
    world.delete()
    assert world.deleted == 0
    world.helpers.run_all()
    assert (len(world.made), world.deleted) == (1, 1)
    assert world.manager.get(PARTITION) is None
    (left,) = world.names()
    assert left.endswith("-delete")


def test_a_deleted_log_refuses_at_once_and_may_be_created_again_afterwards() -> None:
    world = World()
    world.create()
    world.helpers.run_all()
    world.delete(OTHER_ID)
    assert world.deleted == 1, "there is none of that topic"
    world.delete()
    assert world.manager.get(PARTITION) is None
    with pytest.raises(LogStorageError, match="was deleted"):
        append(world.made[0])
    world.create(topic_id=OTHER_ID)
    assert world.names() == ["topic-0"], "renamed by the helper, not yet"
    world.helpers.run_all()
    assert (world.deleted, world.made[-1].topic_id) == (2, OTHER_ID)
    assert sorted(name[-7:] for name in world.names()) == ["-delete", "topic-0"]


def test_a_full_disk_refuses_and_leaves_nothing() -> None:
    world = World()
    world.create()
    world.files.free_bytes = 0
    world.helpers.run_all()
    (error,) = world.errors
    assert isinstance(error, LogStorageError)
    assert "make room on the disk" in str(error)
    assert world.names() == []
    world.files.free_bytes = None
    world.create()
    world.helpers.run_all()
    assert len(world.made) == 1


def test_a_failed_sync_takes_the_directory_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.create()

    def fail(_: object, path: Path) -> None:
        raise OSError(errno.EIO, "no", str(path))

    monkeypatch.setattr(MemoryFiles, "sync_dir", fail)
    world.helpers.run_all()
    world.create()
    assert [type(error) for error in world.errors] == [LogStorageError, LogStorageError]
    assert "every data directory is offline" in str(world.errors[1])


def test_a_directory_that_goes_offline_meanwhile_gets_no_log() -> None:
    world = World()
    world.create()
    world.create(PARTITION._replace(partition=1))
    world.helpers.run_one()
    world.made[0].log_directory.go_offline(OSError(errno.EIO, "no"))
    world.helpers.run_all()
    assert len(world.made) == 1
    assert "is offline after" in str(world.errors[0])
    world.delete()
    assert "is offline after" in str(world.errors[1])


def test_what_is_being_made_counts_where_it_is_made() -> None:
    files = MemoryFiles()
    helpers = Helpers.held()
    directories = [Path("/one"), Path("/two")]
    manager = LogManager(
        directories,
        files=files,
        clock=ManualClock(),
        helpers=helpers,
        broker_id=BrokerId(0),
        cluster_id=CLUSTER,
        default_config=SMALL,
        chance=Chance(0),
    )
    manager.load()
    for number in range(6):
        partition = TopicPartition("topic", number)
        manager.changes.create_async(partition, TOPIC_ID, SMALL, lambda *_: None)
    helpers.run_all()
    places = [log.path.parent for log in manager.logs()]
    assert [places.count(directory) for directory in directories] == [3, 3]
