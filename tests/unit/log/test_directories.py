"""Data directories: their owner, their lock, partitions that are made and deleted."""

from dataclasses import replace
from errno import EACCES, EIO, ENOSPC
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID, uuid4

import pytest

from klog_broker.log.errors import InconsistentTopicId, LogDirectoryError, LogStorageError
from klog_broker.log.manager.log_manager import LogManager
from klog_broker.metadata.changes import partition_assignments, role_removals
from klog_broker.metadata.image import PartitionRegistration, Topic
from klog_broker.metadata.role_changes import RoleChange, RoleChangeErrors
from klog_broker.replication.replica_manager import ReplicaManager
from klog_broker.replication.settings_updates import TopicSettings
from klog_broker.runtime.disk.files import Files, RealFiles
from pyspark_klog.ids import NO_TOPIC_ID, BrokerId, TopicId, TopicPartition
from pyspark_klog.storage.text_files import (
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
    encode_topic_id,
)
from tests.support.cluster.helpers import Helpers
from tests.support.log.harness import (
    CLUSTER,
    DATA,
    PARTITION,
    SMALL,
    TOPIC_ID,
    append,
    open_manager,
    read_all,
)
from tests.support.runtime.manual_clock import ManualClock
from tests.support.runtime.memory_files import MemoryFiles

OTHER_DATA = Path("/other")


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
        helpers=Helpers(),
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


def test_each_directory_gets_an_id_of_its_own_and_keeps_it() -> None:
    files = MemoryFiles()
    manager = manager_of(files, DATA, OTHER_DATA)
    manager.load()
    ids = [each.directory_id for each in manager.directories]
    assert len(set(ids)) == 2
    assert None not in ids
    again = manager_of(files.crash(Random(1)), DATA, OTHER_DATA)
    again.load()
    assert [each.directory_id for each in again.directories] == ids


@pytest.mark.parametrize("version", [0, 1])
def test_a_directory_of_an_earlier_release_gets_an_id(version: int) -> None:
    """Kafka before 3.7 wrote none either, with ZooKeeper (0) or KRaft (1)."""
    files = MemoryFiles()
    files.make_dirs(DATA)
    meta = MetaProperties("x", 0, version=version)
    files.write_atomically(DATA / "meta.properties", encode_meta_properties(meta))
    manager = manager_of(files)
    manager.load()
    (directory,) = manager.directories
    assert directory.directory_id is not None
    found = decode_meta_properties(files.crash(Random(1)).read_bytes(DATA / "meta.properties"))
    assert found == meta._replace(directory_id=directory.directory_id)


def test_two_directories_with_the_same_id_are_refused() -> None:
    files = MemoryFiles()
    open_manager(files).close()
    files.make_dirs(OTHER_DATA)
    meta = files.read_bytes(DATA / "meta.properties")
    files.write_atomically(OTHER_DATA / "meta.properties", meta)
    text = encode_topic_id(decode_meta_properties(meta).directory_id or UUID(int=0))
    with pytest.raises(LogDirectoryError) as refused:
        manager_of(files.killed(), DATA, OTHER_DATA).load()
    assert str(refused.value) == (
        f"the data directories /data and /other have the same directory.id {text} in"
        " meta.properties: one is a copy of the other; take the copy out of log.dirs"
    )


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
    newer = b"version=2\ncluster.id=x\nnode.id=0\ndirectory.id=y\n"
    files.write_atomically(DATA / "meta.properties", newer)
    with pytest.raises(LogDirectoryError, match="klog cannot use the data directory of "):
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
        "the data directory /data is in use by another broker, or log.dirs names it twice by a "
        "symbolic link; stop the other broker, or give this one a directory of its own (log.dirs)"
    )
    manager.close()
    manager_of(files).load()


def test_the_lock_of_a_real_directory_keeps_others_out(tmp_path: Path) -> None:
    manager = open_manager(RealFiles(), directory=tmp_path)
    with pytest.raises(LogDirectoryError, match="is in use by another broker"):
        open_manager(RealFiles(), directory=tmp_path)
    manager.close()
    open_manager(RealFiles(), directory=tmp_path).close()


EXPECTED = "expected a directory that this user can read and write (--data or log.dirs)"


def test_a_file_in_a_directorys_place_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    for data, what in (
        (file, "is a file"),
        (file / "a" / "b", f"cannot be made: {file} is a file"),
    ):
        with pytest.raises(LogDirectoryError) as refused:
            open_manager(RealFiles(), directory=data)
        assert str(refused.value) == f"the data directory {data} {what}; {EXPECTED}"


class NoRights(MemoryFiles):
    """A disk that refuses the operation ``refused`` on one path."""

    def __init__(self, refused: str, path: Path) -> None:
        super().__init__()
        super().make_dirs(DATA)
        self._refused, self._path = refused, path

    def _check(self, name: str, path: Path) -> None:
        if (name, path) == (self._refused, self._path):
            raise PermissionError(EACCES, "Permission denied", str(path))

    def make_dirs(self, path: Path) -> None:
        self._check("make_dirs", path)
        super().make_dirs(path)

    def list_dir(self, path: Path) -> list[str]:
        self._check("list_dir", path)
        return super().list_dir(path)

    def lock(self, path: Path) -> Any:
        self._check("lock", path)
        return super().lock(path)

    def read_bytes(self, path: Path) -> bytes:
        self._check("read_bytes", path)
        return super().read_bytes(path)


@pytest.mark.parametrize(
    "refused, on, data, text",
    [
        ("make_dirs", "/data/a/b", "/data/a/b", "the data directory /data/a/b cannot be made: "),
        ("lock", "/data/.lock", "/data", "the data directory /data cannot be used: "),
        ("list_dir", "/data", "/data", "the data directory /data cannot be used: "),
    ],
)
def test_missing_rights_are_named(refused: str, on: str, data: str, text: str) -> None:
    files = NoRights(refused, Path(on))
    with pytest.raises(LogDirectoryError) as caught:
        open_manager(files, directory=Path(data))
    assert str(caught.value) == f"{text}this user has no right to {on}; {EXPECTED}"
    assert not files.locks


def test_an_owner_that_cannot_be_read_is_refused() -> None:
    meta = DATA / "meta.properties"
    files = NoRights("read_bytes", meta)
    files.write_atomically(meta, b"x")
    with pytest.raises(LogDirectoryError, match=r"^/data/meta\.properties cannot be read: Permiss"):
        open_manager(files)


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


def test_a_deleted_partition_is_removed_at_once_and_its_files_later() -> None:
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


@pytest.mark.parametrize("is_being_written", [False, True])
def test_what_is_noted_of_a_deleted_partition_does_not_count_for_the_next_one(
    is_being_written: bool,
) -> None:
    """A start after a power cut must not take unsynced data for synced."""
    config = replace(SMALL, segment_bytes=3_000, index_interval_bytes=200)
    checkpoint = "recovery-point-offset-checkpoint"
    for seed in range(20):
        files, helpers, clock = MemoryFiles(), Helpers.held(), ManualClock()
        manager = open_manager(files, config=config, helpers=helpers, clock=clock)
        log = manager.create(PARTITION, TOPIC_ID, config)
        for _ in range(200):
            append(log)
        helpers.run_all()
        log.flush()
        clock.advance(61_000)
        manager.run_due()
        if not is_being_written:
            helpers.run_all()
            assert log.log_directory.read_checkpoint(checkpoint) == {PARTITION: 200}
        manager.delete(PARTITION)
        told: list[bool] = []
        manager.renew_checkpoints(lambda told=told: told.append(True))
        helpers.run_all()
        assert told == [True]
        assert log.log_directory.read_checkpoint(checkpoint) == {}
        log = manager.create(PARTITION, TopicId(UUID(int=99)), config)
        # Its segments' syncs do not come to be done.
        for _ in range(60):
            append(log)
        found = open_manager(files.crash(Random(seed)), config=config).get(PARTITION)
        assert found is not None
        offsets = [record.offset for record in read_all(found)]
        assert offsets == list(range(found.log_end_offset))


def test_a_checkpoint_that_cannot_be_replaced_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint would name a deleted partition; without a checkpoint, a start scans more."""

    def write(_self: MemoryFiles, path: Path, _data: bytes) -> None:
        raise OSError(ENOSPC, "no space left", str(path))

    files = MemoryFiles()
    manager = open_manager(files)
    log = manager.create(PARTITION, TOPIC_ID, SMALL)
    path = DATA / "recovery-point-offset-checkpoint"
    log.log_directory.write_checkpoint(path.name, {PARTITION: 200})
    manager.delete(PARTITION)
    monkeypatch.setattr(MemoryFiles, "write_atomically", write)
    told: list[bool] = []
    manager.renew_checkpoints(lambda: told.append(True))
    assert told == [True]
    assert not files.exists(path)
    assert not log.log_directory.is_offline


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


def test_other_directories_are_not_touched() -> None:
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
    assert all(len(read_all(log, log.log_end_offset)) == 1 for log in again.logs())
    assert len(list(again.logs())) == 9


def test_a_partition_of_an_offline_directory_is_neither_created_again_nor_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An empty log would take its place, and be in its way once the disk is in order; one whose
    topic was deleted would come back."""
    first, second = Path("/first"), Path("/second")
    files = MemoryFiles()
    manager = manager_of(files, first, second)
    manager.load()
    replicas = (BrokerId(0),)
    states = tuple(PartitionRegistration(replicas, replicas, replicas[0]) for _ in range(4))
    topic = Topic("topic", TOPIC_ID, states)

    def ordered(orders: list[RoleChange]) -> RoleChangeErrors:
        replicas = ReplicaManager(
            BrokerId(0),
            manager,
            settings_of=lambda _: TopicSettings(SMALL, 1),
            wake=lambda _: None,
            call_soon=lambda _: None,
        )
        results: list[RoleChangeErrors] = []
        replicas.apply(orders, results.append)
        return results[0]

    assert ordered(partition_assignments(topic, is_new=True)) == {}
    logs = list(manager.logs())
    for log in logs:
        append(log)
    # The start after a crash finds that one of them fails.
    files = files.killed()
    with monkeypatch.context() as patch:
        sync_dir = MemoryFiles.sync_dir

        def refuse(self: MemoryFiles, path: Path) -> None:
            if second in path.parents:
                raise OSError(EIO, "input/output error", str(path))
            sync_dir(self, path)

        patch.setattr(MemoryFiles, "sync_dir", refuse)
        manager = manager_of(files, first, second)
        manager.load()
        not_made = ordered(partition_assignments(topic, is_new=False))
        lost = [order for order in role_removals(topic) if order.topic_partition in not_made]
        not_stopped = ordered(lost)
    for failures in (not_made, not_stopped):
        assert set(failures) == set(not_made)
        assert all(isinstance(failure, LogStorageError) for failure in failures.values())
    assert {log.path.parent for log in logs} == {first, second}
    # A log is missing exactly if it was reported as not made.
    assert set(not_made) == {
        log.topic_partition for log in logs if manager.get(log.topic_partition) is None
    }
    assert 0 < len(not_made) < 4
    for log in logs:
        found = manager.get(log.topic_partition)
        assert found is None or found.path == log.path
    # With the disk in order all is there.
    manager = manager_of(files.killed(), first, second)
    manager.load()
    assert [log.log_end_offset for log in manager.logs()] == [1] * 4


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
