"""Data directories: whose they are, their lock, partitions that come and go."""

from pathlib import Path
from random import Random
from uuid import UUID, uuid4

import pytest

from klog_broker.log.errors import InconsistentTopicId, LogDirectoryError, LogStorageError
from klog_broker.log.log_manager import LogManager
from klog_broker.runtime.clock import ManualClock
from klog_broker.runtime.files import Files, RealFiles
from pyspark_klog.ids import NO_TOPIC_ID, BrokerId, TopicId, TopicPartition
from tests.support.log_harness import (
    CLUSTER,
    DATA,
    PARTITION,
    SMALL,
    TOPIC_ID,
    InlineHelpers,
    append,
    open_manager,
    read_all,
)
from tests.support.memory_files import MemoryFiles


def manager_of(
    files: Files,
    *directories: Path,
    broker_id: int = 0,
    cluster_id: str | None = None,
) -> LogManager:
    return LogManager(
        directories or (DATA,),
        files=files,
        clock=ManualClock(),
        helpers=InlineHelpers(),
        broker_id=BrokerId(broker_id),
        cluster_id=cluster_id,
        default_config=SMALL,
    )


# --- whose it is ---------------------------------------------------------------------------------
def test_a_new_directory_becomes_this_brokers() -> None:
    files = MemoryFiles()
    manager = manager_of(files, broker_id=3)
    manager.load()
    assert len(manager.cluster_id) == 22
    text = files.read_bytes(DATA / "meta.properties").decode()
    assert f"cluster.id={manager.cluster_id}\nversion=0\nbroker.id=3\n" in text
    manager.close()
    again = manager_of(files.killed(), broker_id=3)
    again.load()
    assert again.cluster_id == manager.cluster_id


def test_another_brokers_directory_is_refused() -> None:
    files = MemoryFiles()
    open_manager(files).close()
    with pytest.raises(LogDirectoryError) as refused:
        manager_of(files.killed(), broker_id=5).load()
    assert str(refused.value) == (
        "the data directory /data belongs to broker 0, this is broker 5; set broker.id to 0 or "
        "log.dirs to another directory"
    )


def test_another_clusters_directory_is_refused() -> None:
    files = MemoryFiles()
    open_manager(files).close()
    with pytest.raises(LogDirectoryError) as refused:
        manager_of(files.killed(), cluster_id="another").load()
    assert str(refused.value) == (
        f"the data directory /data belongs to cluster {CLUSTER}, this broker to another; set "
        "log.dirs to this cluster's directory"
    )


def test_a_directory_of_another_version_is_refused() -> None:
    files = MemoryFiles()
    files.make_dirs(DATA)
    kraft = b"version=1\ncluster.id=x\nnode.id=1\ndirectory.id=y\n"
    files.write_atomically(DATA / "meta.properties", kraft)
    with pytest.raises(LogDirectoryError, match=r"is not of a data directory that klog can use: "):
        manager_of(files).load()
    # The lock is given back.
    files.remove(DATA / "meta.properties")
    manager_of(files).load()


def test_a_directory_in_use_is_refused() -> None:
    files = MemoryFiles()
    manager = open_manager(files)
    with pytest.raises(LogDirectoryError) as refused:
        manager_of(files).load()
    assert str(refused.value) == (
        "the data directory /data is in use by another broker; stop that one, or give this one a "
        "directory of its own (log.dirs)"
    )
    manager.close()
    manager_of(files).load()


def test_the_lock_of_a_real_directory_keeps_others_out(tmp_path: Path) -> None:
    manager = open_manager(RealFiles(), directory=tmp_path)
    with pytest.raises(LogDirectoryError, match="is in use by another broker"):
        open_manager(RealFiles(), directory=tmp_path)
    manager.close()
    open_manager(RealFiles(), directory=tmp_path).close()


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(LogDirectoryError, match=r"cannot be used: .*\(log\.dirs\)"):
        open_manager(RealFiles(), directory=tmp_path / "file")


def test_a_directory_is_made_with_those_above_it(tmp_path: Path) -> None:
    manager = open_manager(RealFiles(), directory=tmp_path / "a" / "b" / "c")
    manager.close()
    assert (tmp_path / "a" / "b" / "c" / "meta.properties").exists()


# --- partitions ----------------------------------------------------------------------------------
def test_a_created_partition_survives_a_power_cut_at_once() -> None:
    files = MemoryFiles()
    open_manager(files).create(PARTITION, TOPIC_ID, SMALL)
    log = open_manager(files.crash(Random(1))).get(PARTITION)
    assert log is not None
    assert log.topic_id == TOPIC_ID


def test_creating_again_gives_the_same_log_and_another_id_is_refused() -> None:
    manager = open_manager(MemoryFiles())
    log = manager.create(PARTITION, TOPIC_ID, SMALL)
    assert manager.create(PARTITION, TOPIC_ID, SMALL) is log
    assert manager.get(PARTITION) is log
    assert list(manager.logs()) == [log]
    with pytest.raises(InconsistentTopicId, match="belongs to the topic with id EjRW"):
        manager.create(PARTITION, TopicId(uuid4()), SMALL)


def test_a_partition_of_a_broker_without_topic_ids_is_given_one() -> None:
    files = MemoryFiles()
    manager = open_manager(files)
    log = manager.create(PARTITION, TOPIC_ID, SMALL)
    append(log)
    manager.close()
    files = files.killed()
    files.remove(log.path / "partition.metadata")
    manager = open_manager(files)
    old = manager.get(PARTITION)
    assert old is not None
    assert old.topic_id == NO_TOPIC_ID
    assert manager.create(PARTITION, TOPIC_ID, SMALL) is old
    assert old.topic_id == TOPIC_ID
    assert files.read_bytes(log.path / "partition.metadata").startswith(b"version: 0\ntopic_id: ")


def test_a_deleted_partition_is_gone_at_once_and_its_files_later() -> None:
    files = MemoryFiles()
    clock = ManualClock()
    manager = open_manager(files, clock=clock)
    log = manager.create(PARTITION, TOPIC_ID, SMALL)
    append(log)
    region = log.read(0, 1_000).region
    manager.delete(PARTITION)
    manager.delete(PARTITION)
    assert manager.get(PARTITION) is None
    with pytest.raises(LogStorageError, match="was deleted"):
        append(log)
    names = [name for name in files.list_dir(DATA) if name.startswith("topic-0")]
    assert len(names) == 1
    assert names[0].endswith("-delete")
    # A topic of the same name can be made again meanwhile, with another id.
    other = TopicId(UUID(int=99))
    assert manager.create(PARTITION, other, SMALL).log_end_offset == 0
    clock.advance(SMALL.file_delete_delay_ms)
    manager.run_due()
    assert [name for name in files.list_dir(DATA) if name.startswith("topic")] == ["topic-0"]
    assert region is not None
    assert region.file.pread(region.size, region.position)


def test_partitions_that_were_being_deleted_go_at_the_start() -> None:
    files = MemoryFiles()
    manager = open_manager(files)
    append(manager.create(PARTITION, TOPIC_ID, SMALL))
    manager.delete(PARTITION)
    files = files.killed()
    manager = open_manager(files)
    assert manager.get(PARTITION) is None
    manager.run_due()
    assert not [name for name in files.list_dir(DATA) if name.startswith("topic")]


def test_other_directories_are_left_alone() -> None:
    files = MemoryFiles()
    files.make_dirs(DATA / "lost+found")
    manager = open_manager(files)
    assert list(manager.logs()) == []
    assert files.exists(DATA / "lost+found")


def test_a_damaged_partition_metadata_is_refused_in_a_sentence() -> None:
    files = MemoryFiles()
    manager = open_manager(files)
    log = manager.create(PARTITION, TOPIC_ID, SMALL)
    manager.close()
    files = files.killed()
    files.write_atomically(log.path / "partition.metadata", b"nonsense")
    with pytest.raises(LogDirectoryError, match=r"/data/topic-0/partition\.metadata cannot be "):
        open_manager(files)


def test_a_partition_in_two_directories_is_refused() -> None:
    files = MemoryFiles()
    first, second = DATA / "1", DATA / "2"
    manager = manager_of(files, first, second)
    manager.load()
    manager.create(PARTITION, TOPIC_ID, SMALL)
    manager.close()
    files = files.killed()
    files.make_dirs(second / "topic-0")
    with pytest.raises(LogDirectoryError, match="topic-0 is both in /data/1/topic-0 and in "):
        manager_of(files, first, second).load()


def test_partitions_are_spread_over_the_directories() -> None:
    files = MemoryFiles()
    manager = manager_of(files, DATA / "1", DATA / "2", DATA / "3")
    manager.load()
    logs = [manager.create(TopicPartition("t", number), TOPIC_ID, SMALL) for number in range(9)]
    for directory in ("1", "2", "3"):
        assert len([log for log in logs if log.path.parent == DATA / directory]) == 3
    for log in logs:
        append(log)
    manager.close()
    again = manager_of(files.killed(), DATA / "1", DATA / "2", DATA / "3")
    again.load()
    assert again.is_clean_start
    assert all(len(read_all(log)) == 1 for log in again.logs())
    assert len(list(again.logs())) == 9


def test_a_damaged_checkpoint_costs_only_time() -> None:
    files = MemoryFiles()
    manager = open_manager(files)
    append(manager.create(PARTITION, TOPIC_ID, SMALL))
    manager.close()
    files = files.killed()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        files.write_atomically(DATA / name, b"\x00\x00")
    log = open_manager(files).get(PARTITION)
    assert log is not None
    assert len(read_all(log)) == 1
