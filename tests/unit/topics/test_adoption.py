"""Folders that klog-metadata does not know: refused at the start, taken in with --adopt."""

from collections.abc import Callable
from dataclasses import replace
from errno import EACCES, ENOSPC
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from klog_broker.app import BrokerServer
from klog_broker.lifecycle.exit_codes import CannotStart, ExitCode
from klog_broker.metadata.image import CONSUMER_OFFSETS, TRANSACTION_STATE, Topic
from klog_broker.metadata.interface import ProducerIdBlock
from klog_broker.topics.adoption import KEEP_ALL
from klog_broker.topics.changes import add_partitions, create_topics
from klog_broker.topics.planning import MorePartitions, plan_new_topic
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import Offset, TopicId
from pyspark_klog.records.builder import plain_batch
from pyspark_klog.state_records.transaction_log import (
    TransactionLogValue,
    encode_key,
    encode_value,
)
from pyspark_klog.storage.names import Suffix, segment_file_name
from pyspark_klog.storage.producer_snapshot import ProducerSnapshotEntry, encode_producer_snapshot
from tests.support.cluster.local_store import BlockingStore
from tests.support.cluster.server import (
    ALONE,
    asked,
    copy_folder,
    log_of,
    make_topic,
    set_id,
    start,
    tree,
)
from tests.support.log.harness import CLUSTER, DATA, append, batch, read_all
from tests.support.runtime.memory_files import Crashed, MemoryFiles

ID = UUID(int=0x1234567890ABCDEF1234567890ABCDEF)
OTHER = UUID(int=77)
META = DATA / "klog-metadata"
TO_ADOPT = "start once with --adopt to take "


def refusal(files: MemoryFiles, *, adopt: bool = False, **options: Any) -> str:
    """The sentence of a start that is refused; nothing on the disk has changed by it."""
    before = tree(files)
    with pytest.raises(CannotStart) as refused:
        start(files, adopt=adopt, **options)
    assert refused.value.exit_code is ExitCode.REFUSED_DIRECTORY
    assert not files.locks
    after = tree(files)
    locks = {path: data for path, data in after.items() if path.name == ".lock"}
    assert after == before | locks
    return str(refused.value)


def values(broker: BrokerServer, name: str, partition: int = 0) -> int:
    return len(read_all(log_of(broker, name, partition)))


def written(*topics: tuple[str, int, UUID], clean: bool = True) -> MemoryFiles:
    """The disk of a broker that has these topics, stopped or killed."""
    files = MemoryFiles()
    broker = start(files)
    for name, partitions, topic_id in topics:
        make_topic(broker, name, partitions, topic_id)
    if clean:
        broker.close()
    else:
        for log in broker.services.logs.logs():
            log.flush()
    return files.killed()


def without_metadata(*topics: tuple[str, int, UUID], clean: bool = True) -> MemoryFiles:
    files = written(*topics, clean=clean)
    files.remove(META)
    files.sync_dir(DATA)
    return files


# --- klog-metadata is lost -----------------------------------------------------------------------
def test_without_klog_metadata_the_folders_are_listed_and_refused() -> None:
    files = without_metadata(("a", 2, ID), ("b", 1, OTHER))
    assert refusal(files) == (
        "there are partition folders, but no file klog-metadata, which would name their"
        " topics: /data/a-0, /data/a-1, /data/b-0; restore the file if there is a copy,"
        " set zookeeper.connect if this is a broker of a cluster, or"
        f" {TO_ADOPT}the folders in"
    )


def test_many_folders_are_counted() -> None:
    assert "/data/a-26 and 10 more; restore the" in refusal(without_metadata(("a", 30, ID)))


@pytest.mark.parametrize("clean", [True, False])
def test_adopted_topics_keep_their_ids_records_and_the_cluster(clean: bool) -> None:
    files = without_metadata(("a", 2, ID), (CONSUMER_OFFSETS, 3, OTHER), clean=clean)
    epochs = {number: _epoch_on_disk(files, number) for number in (0, 1)}
    broker = start(files, adopt=True)
    image = broker.services.metadata.image
    a, offsets = image.topics["a"], image.topics[CONSUMER_OFFSETS]
    assert (a.topic_id, len(a.partitions), a.configs) == (ID, 2, KEEP_ALL)
    assert (offsets.topic_id, len(offsets.partitions)) == (OTHER, 3)
    assert offsets.configs["cleanup.policy"] == "compact"
    for number in (0, 1):
        log = log_of(broker, "a", number)
        # The new leader epoch fences the partition's earlier leader.
        assert log.leader_epoch > epochs[number]
        assert epochs[number] < a.partitions[number].leader_epoch <= log.leader_epoch
        assert log.config.retention_ms == log.config.retention_bytes == -1
        assert not log.config.compact
        append(log, now_ms=5_000)
    broker.close()
    again = start(files.killed())
    assert values(again, "a", 0) == values(again, "a", 1) == 2
    assert again.services.metadata.image.topics["a"].topic_id == ID
    assert again.services.cluster_id == broker.services.cluster_id


def _epoch_on_disk(files: MemoryFiles, number: int) -> int:
    text = files.read_bytes(DATA / f"a-{number}" / "leader-epoch-checkpoint").decode()
    return int(text.split()[-2])


def test_no_client_gets_the_id_of_a_producer_that_the_logs_remember() -> None:
    files = written(("a", 1, ID), clean=False)
    broker = start(files)
    for producer_id in (4_321, 2**63 - 1):
        append(log_of(broker, "a"), batch(producer_id=producer_id, base_sequence=0))
    broker.close()
    files = files.killed()
    files.remove(META)
    broker = start(files, adopt=True)
    block = asked(broker, broker.services.metadata.allocate_producer_ids)
    assert isinstance(block, ProducerIdBlock)
    # Neither one of 4,000 to 4,999 nor one of the block after it.
    assert (block.first, block.end) == (6_000, 7_000)


def test_no_client_gets_the_id_of_a_transaction_that_has_written_nothing() -> None:
    files = written((TRANSACTION_STATE, 1, ID), clean=False)
    broker = start(files)
    for number, (producer_id, next_id) in enumerate(((8_100, -1), (17, 9_200))):
        value = TransactionLogValue(
            producer_id=producer_id, next_producer_id=next_id, transaction_partitions=None
        )
        record = (encode_key(f"id-{number}"), encode_value(value))
        append(log_of(broker, TRANSACTION_STATE), bytes(plain_batch([record], 1)))
    append(log_of(broker, TRANSACTION_STATE), bytes(plain_batch([(b"no key", b"no value")], 1)))
    broker.close()
    files = files.killed()
    files.remove(META)
    broker = start(files, adopt=True)
    block = asked(broker, broker.services.metadata.allocate_producer_ids)
    assert isinstance(block, ProducerIdBlock)
    assert (block.first, block.end) == (11_000, 12_000)


@pytest.mark.parametrize("position", [16, 17, 80], ids=["magic", "crc", "record"])
def test_damaged_transaction_state_refuses_the_adoption_and_names_the_folder(
    position: int,
) -> None:
    files = written((TRANSACTION_STATE, 1, ID), ("a", 1, OTHER), clean=False)
    broker = start(files)
    value = TransactionLogValue(producer_id=8_100, next_producer_id=-1, transaction_partitions=None)
    for number in range(100):
        record = (encode_key(f"id-{number}"), encode_value(value))
        append(log_of(broker, TRANSACTION_STATE), bytes(plain_batch([record], 1)))
    broker.close()
    files = files.killed()
    files.remove(META)
    folder = DATA / f"{TRANSACTION_STATE}-0"
    file = files.open(folder / segment_file_name(0, Suffix.LOG))
    file.pwrite(b"\xff", position)
    with pytest.raises(CannotStart) as refused:
        start(files, adopt=True)
    assert refused.value.exit_code is ExitCode.REFUSED_DIRECTORY
    assert f"no folder was adopted, because {folder} is damaged: " in str(refused.value)
    # The remedy in the message.
    files = files.killed()
    files.remove_tree(folder)
    files.make_dirs(folder)
    assert set(start(files, adopt=True).services.metadata.image.topics) == {TRANSACTION_STATE, "a"}


def test_with_nothing_to_adopt_the_option_changes_nothing() -> None:
    files = written(("a", 1, ID))
    before = files.read_bytes(META)
    broker = start(files, adopt=True)
    assert files.read_bytes(META) == before
    assert values(broker, "a") == 1


def test_the_disk_with_klog_metadata_was_replaced() -> None:
    """The second directory knows the cluster; its partitions come back once all are there."""
    one, two = Path("/one"), Path("/two")
    files = MemoryFiles()
    broker = start(files, data=(one, two))
    make_topic(broker, "a", 4, ID)
    cluster = broker.services.cluster_id
    kept = {
        log.topic_partition.partition
        for log in broker.services.logs.logs()
        if log.path.parent == two
    }
    broker.close()
    files = files.killed()
    files.remove_tree(one)
    with pytest.raises(CannotStart, match="no file klog-metadata"):
        start(files, data=(one, two))
    with pytest.raises(CannotStart, match="is there, but not a-"):
        start(files, adopt=True, data=(one, two))
    for number in set(range(4)) - kept:
        files.make_dirs(two / f"a-{number}")
    again = start(files, adopt=True, data=(one, two))
    assert again.services.cluster_id == cluster
    assert {n for n in range(4) if values(again, "a", n)} == kept


# --- folders that were brought ------------------------------------------------------------------
Change = Callable[[MemoryFiles], None]


def brought(
    *folders: str, topic_id: UUID | None = OTHER, source_topic: str = "x", to: Path = DATA
) -> Change:
    """Copies of another broker's partition x-0, under these names."""

    def change(files: MemoryFiles) -> None:
        source = written((source_topic, 1, OTHER))
        for name in folders:
            copy_folder(source, DATA / f"{source_topic}-0", files, to / name)
            set_id(files, to / name, topic_id)

    return change


def all_of(*changes: Change) -> Change:
    def change(files: MemoryFiles) -> None:
        for each in changes:
            each(files)

    return change


def deletion_begun(files: MemoryFiles) -> None:
    """The broker was killed when it had begun to delete `known`."""
    store = BlockingStore(files, DATA, 0)
    store.begin_topic_deletion(TopicId(ID))


def file(path: str, data: bytes = b"x") -> Change:
    def change(files: MemoryFiles) -> None:
        files.make_dirs((DATA / path).parent)
        files.write_atomically(DATA / path, data)

    return change


ADOPTABLE: dict[str, tuple[Change, dict[str, tuple[UUID | None, int]]]] = {
    "another topic": (brought("b-0", "b-1"), {"b": (OTHER, 2)}),
    "folders without an id, of releases before 2.8": (
        brought("b-0", "b-1", topic_id=None),
        {"b": (None, 2)},
    ),
    "one with an id and one without": (
        all_of(brought("b-0", topic_id=None), brought("b-1")),
        {"b": (OTHER, 2)},
    ),
    "an empty folder for a partition that is lost": (
        all_of(brought("b-1"), lambda files: files.make_dirs(DATA / "b-0")),
        {"b": (OTHER, 2)},
    ),
    "more partitions of a known topic": (brought("known-2", topic_id=ID), {"known": (ID, 3)}),
    "more of it without an id": (brought("known-2", topic_id=None), {"known": (ID, 3)}),
    "what Kafka set aside lies beside": (
        all_of(brought("b-0"), brought(f"b-1.{'a' * 32}-stray", f"b-2.{'b' * 32}-future")),
        {"b": (OTHER, 1)},
    ),
}


@pytest.mark.parametrize("name", ADOPTABLE)
def test_what_can_be_adopted(name: str) -> None:
    change, topics = ADOPTABLE[name]
    files = written(("known", 2, ID))
    change(files)
    assert f"; {TO_ADOPT}them in" in refusal(files)
    broker = start(files, adopt=True)
    for topic_name, (topic_id, count) in topics.items():
        topic = broker.services.metadata.image.topics[topic_name]
        assert len(topic.partitions) == count
        assert topic_id is None or topic.topic_id == topic_id
        assert sum(values(broker, topic_name, number) for number in range(count)) > 0
        assert {log_of(broker, topic_name, n).topic_id for n in range(count)} == {topic.topic_id}
    assert values(broker, "known") == 1
    image = broker.services.metadata.image
    broker.close()
    assert start(files.killed()).services.metadata.image.topics == image.topics


REFUSED: dict[str, tuple[Change, str]] = {
    "a topic of the same name": (
        brought("known-0"),
        "/data/known-0 is of another topic named known: its id is AAAAAAAAAAAAAAAAAAAATQ, that of"
        " klog-metadata is EjRWeJCrze8SNFZ4kKvN7w; move it out of the data directory",
    ),
    "the same beside the known partitions": (
        brought("known-2"),
        "/data/known-2 is of another topic named known: ",
    ),
    "two topics' partitions": (
        all_of(brought("b-0"), brought("b-1", topic_id=UUID(int=78))),
        "the partitions of b are of different topics: /data/b-0 has AAAAAAAAAAAAAAAAAAAATQ,"
        " /data/b-1 has AAAAAAAAAAAAAAAAAAAATg; move those of all but one out of the data"
        " directory",
    ),
    "a copy of a known topic under another name": (
        brought("copy-0", topic_id=ID),
        "the topics known and copy have the same id EjRWeJCrze8SNFZ4kKvN7w: one is a copy",
    ),
    "two unknown topics of one id": (
        brought("b-0", "c-0"),
        "the topics b and c have the same id AAAAAAAAAAAAAAAAAAAATQ: one is a copy of the other;",
    ),
    "a hole": (
        brought("b-0", "b-2"),
        "b-2 is there, but not b-1; copy the missing partitions in, or make an empty folder for"
        " each that is to begin empty, or move b-2 out of the data directory",
    ),
    "a name with a year": (
        brought("b-2024"),
        "b-19 and 2004 more; copy the missing partitions in",
    ),
    "a number that no memory would hold": (brought("b-2000000000"), "b-19 and 1999999980 more; "),
    "a hole behind a known topic": (brought("known-3", topic_id=ID), "but not known-2; copy"),
    "no topic's name": (brought("..-0"), "a folder has an invalid topic name: a topic cannot be"),
    "what is left of a topic that is being deleted": (
        all_of(deletion_begun, brought("known-5", topic_id=None)),
        "/data/known-5 is of topic known, whose deletion is not finished; move it out",
    ),
    "another topic of a name that is being deleted": (
        all_of(deletion_begun, brought("known-5")),
        "/data/known-5 is of another topic named known: ",
    ),
    "a damaged id": (
        all_of(brought("b-0"), file("b-0/partition.metadata")),
        "/data/b-0/partition.metadata cannot be read: ",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_adopted(name: str) -> None:
    change, text = REFUSED[name]
    files = written(("known", 2, ID))
    change(files)
    assert text in refusal(files, adopt=True)
    refusal(files)


def test_a_deletion_that_was_cut_short_is_no_unknown_folder() -> None:
    files = written(("known", 2, ID))
    deletion_begun(files)
    files = files.killed()
    broker = start(files)
    assert "known" not in broker.services.metadata.image.topics
    assert not [name for name in files.list_dir(DATA) if name in ("known-0", "known-1")]


def test_the_same_partition_in_two_directories() -> None:
    one, two = DATA / "one", DATA / "two"
    files = MemoryFiles()
    for each in (one, two):
        brought("b-0", to=each)(files)
    assert refusal(files, adopt=True, data=(one, two)) == (
        "b-0 is both in /data/one/b-0 and in /data/two/b-0; move one of them away"
    )


def test_different_ids_in_two_directories() -> None:
    one, two = DATA / "one", DATA / "two"
    files = MemoryFiles()
    brought("b-0", to=one)(files)
    brought("b-1", topic_id=ID, to=two)(files)
    assert "are of different topics" in refusal(files, adopt=True, data=(one, two))


def test_a_folder_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    files = written(("known", 1, ID))
    brought("b-0")(files)
    list_dir = MemoryFiles.list_dir

    def refuse(self: MemoryFiles, path: Path) -> list[str]:
        if path.name == "b-0":
            raise PermissionError(EACCES, "Permission denied", str(path))
        return list_dir(self, path)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFiles, "list_dir", refuse)
        with pytest.raises(CannotStart, match="nothing was adopted, a folder cannot be read"):
            start(files, adopt=True)
    assert values(start(files, adopt=True), "b") == 1


def test_transactions_that_are_not_finished() -> None:
    files = written(("known", 1, ID))
    brought("b-0")(files)
    entry = ProducerSnapshotEntry(
        5, 0, 0, Offset(0), 0, 1, 0, current_transaction_first_offset=Offset(0)
    )
    file("b-0/00000000000000000001.snapshot", encode_producer_snapshot([entry]))(files)
    log = log_of(start(files, adopt=True), "b")
    assert (log.last_stable_offset, log.high_watermark) == (0, 1)


# --- Kafka's directories -------------------------------------------------------------------------
KRAFT = (
    f"#\n#a date\ncluster.id={CLUSTER}\ndirectory.id=kL8p2T8sQsGUmSWyWPmZyQ\nnode.id=0\nversion=1\n"
).encode()
ZOOKEEPER = f"#\n#a date\nbroker.id=0\ncluster.id={CLUSTER}\nversion=0\n".encode()


@pytest.mark.parametrize("meta", [KRAFT, ZOOKEEPER], ids=["KRaft", "ZooKeeper"])
def test_a_directory_of_kafkas(meta: bytes) -> None:
    files = MemoryFiles()
    brought("b-0", "b-1")(files)
    file("meta.properties", meta)(files)
    controllers = DATA / "__cluster_metadata-0"
    if meta is KRAFT:
        file("__cluster_metadata-0/00000000000000000000.log")(files)
        assert "/data/b-0, /data/b-1, /data/__cluster_metadata-0" in refusal(files)
    broker = start(files, adopt=True)
    assert list(broker.services.metadata.image.topics) == ["b"]
    assert broker.services.cluster_id == CLUSTER
    make_topic(broker, "mine")
    broker.close()
    files = files.killed()
    again = start(files)
    assert values(again, "b", 1) == values(again, "mine") == 1
    # Kafka's own is as it was, except that a file without a directory.id got one.
    now = files.read_bytes(DATA / "meta.properties")
    if meta is ZOOKEEPER:
        (added,) = set(now.split()) - set(meta.split())
        assert added.startswith(b"directory.id=")
    else:
        assert now == meta
        assert files.list_dir(controllers) == ["00000000000000000000.log"]
        assert files.read_bytes(controllers / "00000000000000000000.log") == b"x"


def test_a_directory_of_kafkas_without_topics_is_refused_too() -> None:
    files = MemoryFiles()
    file("meta.properties", KRAFT)(files)
    file("__cluster_metadata-0/00000000000000000000.log")(files)
    assert "their topics: /data/__cluster_metadata-0; restore the file" in refusal(files)
    assert start(files, adopt=True).services.cluster_id == CLUSTER


def test_another_nodes_directory_names_the_setting() -> None:
    files = MemoryFiles()
    brought("b-0")(files)
    file("meta.properties", KRAFT.replace(b"node.id=0", b"node.id=3"))(files)
    assert "belongs to broker 3, this is broker 0; set broker.id to 3" in refusal(files, adopt=True)
    assert list(start(files, adopt=True, node_id=3).services.metadata.image.topics) == ["b"]


def test_missing_offsets_of_a_compacted_log_are_no_damage() -> None:
    """Kafka was killed, and its cleaner had taken the last records of a segment before."""
    files = MemoryFiles()
    broker = start(files, log_segment_bytes=600, log_index_interval_bytes=1)
    make_topic(broker, "b", 1, OTHER)
    log = log_of(broker, "b")
    for _ in range(11):
        append(log)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 2
    kept = len(read_all(log))
    first = log.segments[0].log_file
    size = first.size() * (bases[1] - 1) // bases[1]
    files = files.killed()
    files.remove(META)
    for name in ("00000000000000000000.index", "00000000000000000000.timeindex"):
        files.remove(DATA / "b-0" / name)
    shortened = files.open(first.path)
    shortened.truncate(size)
    shortened.sync()
    broker = start(files, adopt=True)
    assert values(broker, "b") == kept - 1
    # The next start, after a kill, loses no record either; the topic is an ordinary one then.
    append(log_of(broker, "b"))
    assert values(start(files.killed()), "b") == kept


# --- cut short and repeated ----------------------------------------------------------------------
def to_be_adopted() -> MemoryFiles:
    files = written(("known", 1, ID), clean=False)
    brought("b-0", topic_id=None)(files)
    brought("b-1", topic_id=None)(files)
    for folder in (DATA / "b-0", DATA / "b-1", DATA):
        files.sync_dir(folder)
    return files


@pytest.mark.parametrize("is_power_cut", [False, True], ids=["kill -9", "power cut"])
def test_at_every_step(is_power_cut: bool) -> None:
    before = to_be_adopted()
    files = before.killed()
    start(files, adopt=True)
    assert files.steps > 40
    outcomes = set()
    for step in range(1, files.steps + 1):
        files = before.killed()
        files.crash_at_step = step
        with pytest.raises(Crashed):
            start(files, adopt=True)
        after = files.crash(Random(step)) if is_power_cut else files.killed()
        try:
            broker = start(after)
            outcomes.add("adopted")
        except CannotStart as refused:
            assert TO_ADOPT in str(refused)
            outcomes.add("refused")
            broker = start(after, adopt=True)
        topic = broker.services.metadata.image.topics["b"]
        assert [values(broker, "b", number) for number in (0, 1)] == [1, 1], step
        assert {log_of(broker, "b", n).topic_id for n in (0, 1)} == {topic.topic_id}
        assert values(broker, "known") == 1
        broker.services.logs.release_locks()
        again = start(after.killed()).services.metadata.image.topics["b"]
        # Only the epochs are newer, after one more unclean stop.
        assert [each.leader_epoch for each in again.partitions] == [
            each.leader_epoch + 1 for each in topic.partitions
        ]
        assert replace(again, partitions=topic.partitions) == topic
    assert outcomes == {"adopted", "refused"}


def test_what_was_just_copied_in_is_made_durable() -> None:
    """Once the topic is written down, a power cut does not take what the log says it has."""
    source = written(("b", 1, OTHER))
    for seed in range(10):
        files = written(("known", 1, ID))
        folder = DATA / "b-0"
        files.make_dirs(folder)
        for name in source.list_dir(folder):
            files.open(folder / name, create=True).pwrite(source.read_bytes(folder / name), 0)
        start(files, adopt=True)
        assert values(start(files.crash(Random(seed))), "b") == 1


@pytest.mark.parametrize("name", ["klog-metadata", "recovery-point-offset-checkpoint"])
def test_a_full_disk_adopts_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write = MemoryFiles.write_atomically

    def refuse(self: MemoryFiles, path: Path, data: bytes) -> None:
        if path.name == name:
            raise OSError(ENOSPC, "No space left on device", str(path))
        write(self, path, data)

    files = to_be_adopted()
    monkeypatch.setattr(MemoryFiles, "write_atomically", refuse)
    with pytest.raises(CannotStart) as refused:
        start(files, adopt=True)
    assert str(refused.value).startswith("the adoption failed: ")
    assert str(refused.value).endswith("; start with --adopt again once the cause is removed")
    assert refused.value.exit_code is ExitCode.REFUSED_DIRECTORY
    monkeypatch.undo()
    files = files.killed()
    assert TO_ADOPT in refusal(files)
    assert values(start(files, adopt=True), "b") == 1


# --- folders that appear while the broker runs ---------------------------------------------------
def created(broker: BrokerServer, name: str) -> Topic | BrokerError:
    planned = [plan_new_topic(broker.services, name)]
    (outcome,) = asked(broker, lambda done: create_topics(broker.services, planned, done))
    return outcome


@pytest.mark.parametrize("folder", ["b-0", "b-7"])
@pytest.mark.parametrize("topic_id", [None, OTHER])
def test_a_new_topic_does_not_take_what_lies_there(folder: str, topic_id: UUID | None) -> None:
    files = MemoryFiles()
    broker = start(files)
    brought(folder, topic_id=topic_id)(files)
    before = tree(files)
    error = created(broker, "b")
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.INCONSISTENT_TOPIC_ID
    assert f"/data/{folder} does not belong to this topic" in str(error.text)
    assert broker.services.metadata.image.topic("b") is None
    assert tree(files) == before
    assert isinstance(created(broker, "b-0"), Topic)
    # Move the folder away: it no longer blocks the partition.
    files.remove_tree(DATA / folder)
    assert isinstance(created(broker, "b"), Topic)
    assert values(broker, "b") == 0


def test_nor_do_new_partitions() -> None:
    files = MemoryFiles()
    broker = start(files)
    make_topic(broker, "b", 1, OTHER)
    brought("b-1")(files)

    def grown() -> Topic | BrokerError:
        more = MorePartitions(1, ALONE)
        return asked(broker, lambda done: add_partitions(broker.services, "b", more, done))

    refused = grown()
    assert isinstance(refused, BrokerError)
    assert refused.code is ErrorCode.INCONSISTENT_TOPIC_ID
    assert len(broker.services.metadata.image.topics["b"].partitions) == 1
    files.remove_tree(DATA / "b-1")
    assert isinstance(grown(), Topic)


def test_the_name_of_kafkas_own_metadata_is_no_topics() -> None:
    broker = start(MemoryFiles())
    with pytest.raises(BrokerError) as refused:
        plan_new_topic(broker.services, "__cluster_metadata")
    assert refused.value.code is ErrorCode.INVALID_REQUEST
