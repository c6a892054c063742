"""A disk whose syncs are slow delays only the requests that wait for a sync."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog_broker.runtime.disk.files import RealFiles
from klog_broker.runtime.disk.open_files import RealFile
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.api_versions import ApiVersionsRequest
from pyspark_klog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from pyspark_klog.protocol.apis.delete_topics import DeleteTopicsRequest
from pyspark_klog.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.broker_thread import BrokerThread
from tests.support.raw_client import RawClient
from tests.support.raw_requests import (
    batch,
    create_topic,
    fetch,
    first_partition,
    produce,
    produced,
)


class SlowFile(RealFile):
    __slots__ = ("_disk",)

    def __init__(self, disk: "SlowFiles", path: Path, flags: int) -> None:
        super().__init__(path, flags, disk.open_files)
        self._disk = disk

    def sync(self) -> None:
        self._disk.pass_gate(self.path)
        super().sync()


class SlowFiles(RealFiles):
    """While its gate is closed, syncs below a directory whose name begins with ``name`` wait."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._gate = threading.Event()
        self._gate.set()
        self.waits = threading.Event()

    def close_gate(self) -> None:
        self.waits.clear()
        self._gate.clear()

    def open_gate(self) -> None:
        self._gate.set()

    def pass_gate(self, path: Path) -> None:
        if any(part.startswith(self._name) for part in path.parts[-2:]):
            self.waits.set()
            assert self._gate.wait(120)

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> RealFile:
        flags = os.O_RDWR if writable else os.O_RDONLY
        return SlowFile(self, path, flags | (os.O_CREAT if create else 0))

    def sync_dir(self, path: Path) -> None:
        self.pass_gate(path)
        super().sync_dir(path)

    def rename(self, old: Path, new: Path) -> None:
        # The data directory is synced after a rename, but its name names no partition: wait here.
        self.pass_gate(old)
        super().rename(old, new)


@pytest.fixture
def disk() -> Iterator[SlowFiles]:
    files = SlowFiles("slow-")
    yield files
    files.open_gate()


@pytest.fixture
def broker(tmp_path: Path, disk: SlowFiles) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path / "data", files=disk) as running:
        yield running
        disk.open_gate()


def test_others_are_served_while_a_topic_is_made_and_while_it_is_deleted(
    broker: BrokerThread, disk: SlowFiles
) -> None:
    with broker.client() as client, broker.client() as other, broker.client() as third:
        create_topic(client, "quick")
        disk.close_gate()
        topics = [CreatableTopic(name="slow", num_partitions=3, replication_factor=1)]
        client.send(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)
        assert disk.waits.wait(60)
        use(other)
        assert produce(other, "slow", batch(b"x")).error_code in (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.KAFKA_STORAGE_ERROR,
        ), "there is no log of it yet"
        # A topic that is deleted before it is complete.
        third.send(DeleteTopicsRequest(topic_names=["slow"], timeout_ms=60_000), 5)
        use(other)
        disk.open_gate()
        created = client.receive(CreateTopicsRequest, 7).topics[0]
        assert created.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert third.receive(DeleteTopicsRequest, 5).responses[0].error_code == 0
        assert "slow" not in names(other)

        create_topic(client, "slow", partitions=3)
        produced(client, "slow", batch(b"x"), partition=2)
        disk.close_gate()
        client.send(DeleteTopicsRequest(topic_names=["slow"], timeout_ms=60_000), 5)
        assert disk.waits.wait(60)
        use(other)
        assert "slow" not in names(other)
        disk.open_gate()
        assert client.receive(DeleteTopicsRequest, 5).responses[0].error_code == 0
        create_topic(client, "slow", partitions=3)
        assert produced(client, "slow", batch(b"x"), partition=2) == 0


def test_metadata_of_a_topic_by_name_waits_until_the_topic_is_created(
    broker: BrokerThread, disk: SlowFiles
) -> None:
    with broker.client() as client, broker.client() as other:
        create_topic(other, "quick")
        disk.close_gate()
        request = MetadataRequest(topics=[MetadataRequestTopic(name="slow")])
        client.send(request, 9)
        assert disk.waits.wait(60)
        use(other)
        disk.open_gate()
        asked_again = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert client.receive(request, 9).topics[0].error_code == asked_again
        assert produced(client, "slow", batch(b"x")) == 0


def use(client: RawClient) -> None:
    """All that an ordinary client does, with its topic."""
    assert client.call(ApiVersionsRequest(), 0).error_code == 0
    offset = produced(client, "quick", batch(b"value"))
    assert first_partition(fetch(client, "quick", offset=offset)).records
    assert "quick" in names(client)


def names(client: RawClient) -> set[str]:
    return {topic.name for topic in client.call(MetadataRequest(topics=None), 9).topics}
