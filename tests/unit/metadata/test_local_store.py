"""The local store: what is written is there again, and a file that is not right is refused."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog_broker.metadata.errors import (
    InvalidTopicName,
    PartitionsChanged,
    StoreFailed,
    StoreRefused,
    TopicExists,
    UnknownTopic,
)
from klog_broker.metadata.interface import MetadataStore, NewTopic
from klog_broker.metadata.local import LocalStore
from klog_broker.metadata.local_file import FILE_NAME
from klog_broker.metadata.role_changes import RoleRemoval
from klog_broker.runtime.disk.files import RealFiles
from pyspark_klog.ids import BrokerId, TopicPartition
from pyspark_klog.records.checksums import crc32c
from pyspark_klog.storage.text_files import (
    MetaProperties,
    decode_topic_id,
    encode_meta_properties,
)
from tests.support.cluster.local_store import BlockingStore

ONE = BrokerId(1)
ALONE = ((ONE,),)


class FailingFiles(RealFiles):
    """The machine's disk, whose next writes fail with the errors of a list (None: succeed)."""

    def __init__(self, *failures: int | None) -> None:
        super().__init__()
        self.failures = list(failures)

    def write_atomically(self, path: Path, data: bytes) -> None:
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise OSError(failure, "no")
        super().write_atomically(path, data)


def begun(directory: Path, files: RealFiles | None = None) -> BlockingStore:
    return BlockingStore(files or RealFiles(), directory).register_broker()


def again(directory: Path) -> LocalStore:
    return LocalStore.open(RealFiles(), directory, ONE)


def restarted(directory: Path, **more: Any) -> BlockingStore:
    return BlockingStore(RealFiles(), directory, **more)


def test_a_store_is_one(tmp_path: Path) -> None:
    store: MetadataStore = begun(tmp_path).store
    assert store.image.brokers[ONE].broker_id == ONE
    assert store.image.controller_id == ONE


def test_opening_writes_nothing_and_registering_begins_the_file(tmp_path: Path) -> None:
    store = LocalStore.open(RealFiles(), tmp_path, ONE)
    assert list(tmp_path.iterdir()) == []
    assert store.is_new
    begun(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
    cluster_id = again(tmp_path).image.cluster_id
    assert decode_topic_id(cluster_id)
    assert again(tmp_path).image.cluster_id == cluster_id


def test_a_new_store_takes_the_cluster_that_its_directory_has(tmp_path: Path) -> None:
    store = LocalStore.open(RealFiles(), tmp_path, ONE, cluster_id="abc")
    assert store.image.cluster_id == "abc"


def test_a_new_store_takes_the_cluster_that_a_crash_left_in_meta_properties(tmp_path: Path) -> None:
    meta = encode_meta_properties(MetaProperties("abc", 1))
    (tmp_path / "meta.properties").write_bytes(meta)
    assert again(tmp_path).image.cluster_id == "abc"
    (tmp_path / "meta.properties").write_bytes(b"nonsense")
    assert again(tmp_path).image.cluster_id != "abc"


def test_all_of_a_topic_is_there_again(tmp_path: Path) -> None:
    store = begun(tmp_path)
    made = store.create_topic("a", ALONE * 3, {"retention.ms": "5", "cleanup.policy": "compact"})
    found = again(tmp_path).image.topic("a")
    assert found == made
    assert found is not None
    assert again(tmp_path).image.topic_by_id(made.topic_id) == made


def test_a_recreated_topic_has_another_id_and_the_old_one_is_unknown(tmp_path: Path) -> None:
    store = begun(tmp_path)
    old = store.create_topic("a", ALONE, {})
    store.delete_topic(old.topic_id)
    new = store.create_topic("a", ALONE, {})
    assert new.topic_id != old.topic_id
    image = again(tmp_path).image
    assert image.topic_by_id(old.topic_id) is None
    assert image.topic("a") == new


def test_a_given_id_is_taken(tmp_path: Path) -> None:
    topic_id = decode_topic_id("A" * 21 + "g")
    assert begun(tmp_path).create_topic("a", ALONE, {}, topic_id).topic_id == topic_id


def test_a_name_can_be_taken_once(tmp_path: Path) -> None:
    store = begun(tmp_path)
    topic = store.create_topic("a", ALONE, {})
    with pytest.raises(TopicExists, match="topic a already exists"):
        store.create_topic("a", ALONE, {})
    store.begin_topic_deletion(topic.topic_id)
    with pytest.raises(TopicExists, match="topic a is still being deleted"):
        store.create_topic("a", ALONE, {})
    store.finish_deletions()
    store.create_topic("a", ALONE, {})


def test_a_deletion_is_two_steps_and_a_start_does_the_second(tmp_path: Path) -> None:
    store = begun(tmp_path)
    topic = store.create_topic("a", ALONE * 2, {})
    store.begin_topic_deletion(topic.topic_id)
    image = again(tmp_path).image
    assert image.topic("a") is None
    assert image.deleting == {topic.topic_id: topic}
    later = restarted(tmp_path)
    (orders,) = later.role_changes.given
    assert [(type(order), order.topic_partition) for order in orders] == [
        (RoleRemoval, TopicPartition("a", 0)),
        (RoleRemoval, TopicPartition("a", 1)),
    ]
    assert not later.image.deleting
    assert not again(tmp_path).image.deleting


def test_partitions_and_configs(tmp_path: Path) -> None:
    store = begun(tmp_path)
    store.create_topic("a", ALONE, {"retention.ms": "5"})
    store.create_topic("b", ALONE, {})
    store.create_partitions("a", 1, ALONE * 2)
    store.update_topic_configs("a", lambda configs: {"segment.bytes": str(len(configs))})
    image = again(tmp_path).image
    topic = image.topic("a")
    assert topic is not None
    assert len(topic.partitions) == 3
    assert topic.configs == {"segment.bytes": "1"}
    state = image.partition("b", 0)
    assert state is not None
    assert (state.leader_epoch, state.leader, state.in_sync) == (0, ONE, (ONE,))


def test_what_is_not_there(tmp_path: Path) -> None:
    store = begun(tmp_path)
    store.create_topic("a", ALONE, {})
    for change in (
        lambda: store.create_partitions("b", 1, ALONE),
        lambda: store.update_topic_configs("b", dict),
        lambda: store.begin_topic_deletion(decode_topic_id("A" * 21 + "g")),
    ):
        with pytest.raises(UnknownTopic, match="there is no"):
            change()
    with pytest.raises(InvalidTopicName):
        store.create_topic("a b", ALONE, {})


def test_two_at_once_do_not_add_up(tmp_path: Path) -> None:
    store = begun(tmp_path)
    store.create_topic("a.b", ALONE, {})
    store.create_partitions("a.b", 1, ALONE)
    with pytest.raises(PartitionsChanged, match=r"topic a\.b has 2 partitions by now, not 1"):
        store.create_partitions("a.b", 1, ALONE)
    with pytest.raises(InvalidTopicName, match="differs from the existing topic"):
        store.create_topic("a_b", ALONE, {})


def test_what_an_update_raises_comes_out_and_nothing_is_changed(tmp_path: Path) -> None:
    store = begun(tmp_path)
    store.create_topic("a", ALONE, {"retention.ms": "5"})
    before = store.image

    def refuse(_: object) -> dict[str, str]:
        raise KeyError("no")

    with pytest.raises(KeyError):
        store.update_topic_configs("a", refuse)
    assert store.image is before
    store.update_topic_configs("a", dict)


def test_producer_ids_are_handed_out_once_also_after_a_restart(tmp_path: Path) -> None:
    store = begun(tmp_path)
    blocks = [store.allocate_producer_ids(), store.allocate_producer_ids()]
    blocks.append(restarted(tmp_path).allocate_producer_ids())
    assert [tuple(block) for block in blocks] == [(0, 1000), (1000, 2000), (2000, 3000)]


def test_a_full_disk_changes_nothing_and_may_pass(tmp_path: Path) -> None:
    store = begun(tmp_path, FailingFiles(None, errno.ENOSPC))
    with pytest.raises(StoreFailed, match=r"cannot write .*klog-metadata"):
        store.create_topic("a", ALONE, {})
    assert store.image.topic("a") is None
    store.create_topic("a", ALONE, {})
    assert again(tmp_path).image.topic("a") is not None


def test_a_deletion_that_failed_did_not_begin(tmp_path: Path) -> None:
    files = FailingFiles()
    store = begun(tmp_path, files)
    topic = store.create_topic("a", ALONE, {})
    files.failures = [errno.ENOSPC]
    with pytest.raises(StoreFailed):
        store.begin_topic_deletion(topic.topic_id)
    store.create_topic("b", ALONE, {})
    assert set(again(tmp_path).image.topics) == {"a", "b"}


def test_after_any_other_failure_the_store_takes_no_more_changes(tmp_path: Path) -> None:
    store = begun(tmp_path, FailingFiles(None, errno.EIO))
    with pytest.raises(StoreFailed, match="cannot write"):
        store.allocate_producer_ids()
    with pytest.raises(StoreFailed, match="takes no changes since a write of it failed"):
        store.create_topic("a", ALONE, {})
    assert store.image.topic("a") is None


def refusal(path: Path, broker_id: int = 1, cluster_id: str | None = None) -> str:
    with pytest.raises(StoreRefused) as caught:
        LocalStore.open(RealFiles(), path.parent, BrokerId(broker_id), cluster_id)
    return str(caught.value)


def test_another_brokers_or_clusters_file(tmp_path: Path) -> None:
    store = begun(tmp_path)
    path = tmp_path / FILE_NAME
    assert refusal(path, broker_id=2) == (
        f"{path} belongs to broker 1, but this is broker 2: set broker.id=1, or give another data"
        " directory"
    )
    assert refusal(path, cluster_id="other") == (
        f"{path} belongs to cluster {store.image.cluster_id}, but its directory to cluster other"
        " (meta.properties): put back the file that was exchanged"
    )


def test_another_versions_file(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_text('{"format":"klog-metadata","version":3,"all":"else differs"}\n')
    assert refusal(path) == (
        f"{path} has version 3; this release of klog reads versions 1 and 2. Start the release"
        " that wrote it"
    )


@pytest.mark.parametrize("data", [b"", b"\n", b"\x00" * 100, b"[1]\n", b'{"format":"x"}\n', b"{}"])
def test_a_file_that_is_something_else(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(data)
    assert refusal(path) == (
        f"{path} is damaged: its first line is not the header of a klog-metadata file. Replace"
        " the file by a copy, or start with another data directory"
    )


def test_any_damage_is_found(tmp_path: Path) -> None:
    store = begun(tmp_path)
    store.create_topic("a", ALONE, {"retention.ms": "5"})
    path = tmp_path / FILE_NAME
    good = path.read_bytes()
    damaged = [good[:end] for end in range(len(good))]
    for position in range(len(good)):
        changed = bytearray(good)
        changed[position] ^= 1
        damaged.append(bytes(changed))
    damaged.append(good + b"x")
    for data in damaged:
        path.write_bytes(data)
        text = refusal(path)
        assert "is damaged" in text or "has version" in text


@pytest.mark.parametrize(
    "lines",
    [
        [{"cluster_id": "c", "broker_id": 1, "next_producer_id": 0, "topics": 1}],
        [{"cluster_id": "c", "broker_id": 1, "topics": 0}],
        [
            {"cluster_id": "c", "broker_id": 1, "next_producer_id": 0, "topics": 1},
            {"topic": "a", "id": "short", "partitions": [], "configs": {}},
        ],
        [
            {"cluster_id": "c", "broker_id": 1, "next_producer_id": 0, "topics": 1},
            {"topic": "a", "id": "A" * 22, "partitions": [[1]], "configs": {}},
        ],
        [
            {"cluster_id": "c", "broker_id": 1, "next_producer_id": 0, "topics": 2},
            {"topic": "a", "id": "A" * 21 + "g", "partitions": [], "configs": {}},
            {"topic": "a", "id": "A" * 21 + "Q", "partitions": [], "configs": {}},
        ],
    ],
)
def test_a_right_checksum_over_wrong_fields(tmp_path: Path, lines: list[dict[str, object]]) -> None:
    lines[0] = {"format": "klog-metadata", "version": 1, **lines[0]}
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    path = tmp_path / FILE_NAME
    path.write_bytes(body + f'{{"crc32c":"{crc32c(body):08x}"}}\n'.encode())
    assert "its checksum is correct, but its fields are invalid" in refusal(path)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(["create", "delete", "finish", "grow", "set", "ids"])))
def test_every_state_is_there_again(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    directory = tmp_path_factory.mktemp("store")
    store = begun(directory)
    for number, step in enumerate(steps):
        topics = list(store.image.topics.values())
        if step == "create":
            store.create_topic(f"t{number}", ALONE * (1 + number % 3), {"n": str(number)})
        elif step == "ids":
            store.allocate_producer_ids()
        elif step == "finish":
            store.finish_deletions()
        elif topics and step == "delete":
            store.begin_topic_deletion(topics[0].topic_id)
        elif topics and step == "grow":
            store.create_partitions(topics[-1].name, len(topics[-1].partitions), ALONE)
        elif topics and step == "set":
            store.update_topic_configs(topics[0].name, lambda _: {"é": "\u2028"})
        found = again(directory).image
        assert found.topics == store.image.topics
        assert found.topics_by_id == store.image.topics_by_id
        assert found.deleting == store.image.deleting


class CountingFiles(FailingFiles):
    writes = 0

    def write_atomically(self, path: Path, data: bytes) -> None:
        self.writes += 1
        super().write_atomically(path, data)


def new_topics(*names: str) -> list[NewTopic]:
    return [NewTopic(name, ALONE, {"retention.ms": "5"}) for name in names]


def test_several_topics_are_one_write_and_each_has_its_own_result(tmp_path: Path) -> None:
    files = CountingFiles()
    store = begun(tmp_path, files)
    store.create_topic("there", ALONE, {})
    before = files.writes
    results = store.create_topics(new_topics("a.b", "there", "?", "a_b", "c", "c"))
    assert files.writes == before + 1
    kinds = [type(each).__name__ for each in results]
    wrong = "InvalidTopicName"
    assert kinds == ["Topic", "TopicExists", wrong, wrong, "Topic", "TopicExists"]
    assert set(again(tmp_path).image.topics) == {"there", "a.b", "c"}
    assert again(tmp_path).image.topics["c"] == results[4]


def test_several_topics_of_which_none_can_be_are_no_write(tmp_path: Path) -> None:
    files = CountingFiles()
    store = begun(tmp_path, files)
    before = files.writes
    assert [type(each) for each in store.create_topics(new_topics("?"))] == [InvalidTopicName]
    assert files.writes == before


def test_several_topics_that_cannot_be_written_are_none(tmp_path: Path) -> None:
    store = begun(tmp_path, FailingFiles(None, errno.ENOSPC))
    results = store.create_topics(new_topics("a", "?", "b"))
    assert [type(each) for each in results] == [StoreFailed, InvalidTopicName, StoreFailed]
    assert not store.image.topics
    assert not again(tmp_path).image.topics
