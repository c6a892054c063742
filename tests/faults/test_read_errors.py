"""Bad sectors: a failed read takes its data directory offline; the other directory serves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from klog_broker.lifecycle.exit_codes import ExitCode
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyspark_klog.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.support.broker_thread import BrokerThread
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient
from tests.support.raw_requests import (
    NOW_MS,
    batch,
    create_topic,
    fetch_request,
    produce,
    produced,
    records_of,
)
from tests.support.runtime.memory_files import MemoryFiles

SETTINGS = {
    "log.dirs": "/one,/two",
    "log.index.size.max.bytes": 4096,
    "log.index.interval.bytes": 0,
    "offsets.topic.num.partitions": 1,
}
STORAGE = ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def broker(files: MemoryFiles) -> Iterator[BrokerThread]:
    with BrokerThread(None, SETTINGS, files=files) as thread:
        yield thread


@pytest.fixture
def client(broker: BrokerThread) -> Iterator[RawClient]:
    """A client; the topic's partitions are on two disks, and each has some batches."""
    with broker.client() as client:
        create_topic(client, "t", partitions=2)
        for partition in (0, 1):
            for number in range(10):
                produced(client, "t", batch(b"%d" % number * 900), partition=partition)
        yield client


def is_of(partition: int, suffix: str):
    folder = f"t-{partition}"
    return lambda path: path.parent.name == folder and path.suffix == suffix


def fetched(client: RawClient, version: int, offset: int = 3) -> list:
    request = fetch_request("t", offset=offset, partitions=(0, 1))
    return client.call(request, version).responses[0].partitions


def list_offsets(client: RawClient, timestamp: int) -> list[tuple[int, int]]:
    rows = [ListOffsetsPartition(partition_index=n, timestamp=timestamp) for n in (0, 1)]
    topics = [ListOffsetsTopic(name="t", partitions=rows)]
    found = client.call(ListOffsetsRequest(replica_id=-1, topics=topics), 7).topics[0].partitions
    return [(row.error_code, row.offset) for row in found]


def check_others(broker: BrokerThread, client: RawClient) -> None:
    """Check that the first directory is offline for everything, and the other serves."""
    assert produce(client, "t", batch(b"lost"), partition=0).error_code == STORAGE
    assert fetched(client, 12)[0].error_code == STORAGE
    assert list_offsets(client, -1)[0] == (STORAGE, -1)
    written = produced(client, "t", batch(b"good"), partition=1)
    assert list_offsets(client, -1)[1] == (0, written + 1)
    assert records_of(fetched(client, 12, written)[1])[-1].value == b"good"
    offline = [each.path for each in broker.broker.services.logs.directories if each.is_offline]
    assert offline == [Path("/one")]


@pytest.mark.parametrize("version", [3, 4, 12], ids=["converted", "looked_through", "as_it_lies"])
def test_fetch(files: MemoryFiles, broker: BrokerThread, client: RawClient, version: int) -> None:
    files.bad_files = is_of(0, ".log")
    answers = fetched(client, version)
    assert [each.error_code for each in answers] == [STORAGE, 0]
    assert records_of(answers[1])[0].offset == 3
    files.bad_files = lambda _: False
    check_others(broker, client)


def test_list_offsets(files: MemoryFiles, broker: BrokerThread, client: RawClient) -> None:
    files.bad_files = is_of(0, ".log")
    assert list_offsets(client, NOW_MS - 5) == [(STORAGE, -1), (0, 0)]
    files.bad_files = lambda _: False
    check_others(broker, client)


def test_the_last_directory_ends_the_broker(files: MemoryFiles) -> None:
    thread = BrokerThread(Path("/data"), files=files)
    with thread.client() as client:
        create_topic(client, "t", partitions=2)
        for partition in (0, 1):
            produced(client, "t", batch(b"x"), partition=partition)
        files.bad_files = is_of(0, ".log")
        assert fetched(client, 12, 0)[0].error_code == STORAGE
    assert thread.stop() == ExitCode.DISKS_LOST


@pytest.mark.parametrize(
    "is_bad",
    [
        is_of(0, ".log"),
        lambda path: path == Path("/one/recovery-point-offset-checkpoint"),
        lambda path: path == Path("/one/replication-offset-checkpoint"),
        lambda path: path == Path("/one/log-start-offset-checkpoint"),
        lambda path: path.parent.name == "t-0" and path.name == "leader-epoch-checkpoint",
        is_of(0, ".snapshot"),
    ],
    ids=["log", "recovery_point", "high_watermark", "log_start", "epochs", "snapshot"],
)
@pytest.mark.parametrize("is_killed", [True, False])
def test_a_start_leaves_the_directory_out(
    files: MemoryFiles, broker: BrokerThread, client: RawClient, is_bad, is_killed: bool
) -> None:
    """A start leaves the directory out, or works without the file; the other disk is served."""
    broker.stop()
    disk = files.killed()
    if is_killed:
        for directory in ("/one", "/two"):
            disk.remove(Path(directory, ".kafka_cleanshutdown"))
            disk.remove(Path(directory, "recovery-point-offset-checkpoint"))
    disk.bad_files = is_bad
    with BrokerThread(None, SETTINGS, files=disk) as again, again.client() as reader:
        answers = fetched(reader, 12)
        assert answers[0].error_code in (0, STORAGE)
        assert records_of(answers[1])[0].offset == 3
        assert produced(reader, "t", batch(b"more"), partition=1) == 10


def test_groups_whose_log_cannot_be_read_are_not_there_and_others_are_served(
    files: MemoryFiles, broker: BrokerThread, client: RawClient
) -> None:
    coordinator = FindCoordinatorRequest(key="group")
    eventually(lambda: client.call(coordinator, 2).error_code == 0, what="the coordinator")
    row = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata="m" * 4000
    )
    commit = OffsetCommitRequest(
        group_id="group",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name="t", partitions=[row])],
    )
    for _ in range(80):
        assert client.call(commit, 6).topics[0].partitions[0].error_code == 0
    broker.stop()
    disk = files.killed()
    wanted = OffsetFetchRequest(
        group_id="group", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    )
    with BrokerThread(None, SETTINGS, files=disk) as again, again.client() as reader:
        eventually(lambda: reader.call(wanted, 7).error_code == 0, what="the group")
        again.stop()
        disk = disk.killed()
    disk.bad_files = lambda path: path.parent.name == "__consumer_offsets-0"
    with BrokerThread(None, SETTINGS, files=disk) as again, again.client() as reader:
        assert reader.call(wanted, 7).error_code != 0
        assert any(each.error_code == 0 for each in fetched(reader, 12))
