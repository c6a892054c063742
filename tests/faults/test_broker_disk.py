"""A running broker on a disk that is slow, full, or fails."""

from collections.abc import Iterator
from errno import EIO
from pathlib import Path
from threading import Thread

import pytest

from klog_broker.app import BrokerServer
from klog_broker.config import BrokerConfig
from klog_broker.lifecycle.exit_codes import CannotStart, ExitCode
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from pyspark_klog.protocol.apis.metadata import MetadataRequest
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyspark_klog.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from pyspark_klog.protocol.apis.produce import ProduceRequest
from tests.support.broker_thread import BrokerThread
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient
from tests.support.raw_requests import (
    NOW_MS,
    batch,
    create_topic,
    fetch_request,
    first_partition,
    produce,
    produce_request,
    produced,
    read_all,
    records_of,
)
from tests.support.runtime.memory_files import MemoryFiles

# Indexes are preallocated, here in memory: with 10 MiB each a test would take 1.7 GB.
SETTINGS = {"log.index.size.max.bytes": 4096}


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def broker(files: MemoryFiles) -> Iterator[BrokerThread]:
    with BrokerThread(Path("/data"), SETTINGS, files=files) as thread:
        yield thread
        files.thaw.set()


@pytest.fixture
def client(broker: BrokerThread) -> Iterator[RawClient]:
    with broker.client() as client:
        yield client


@pytest.mark.parametrize("version", [3, 4, 12])
def test_others_are_answered_while_a_cold_read_is_held(
    broker: BrokerThread, files: MemoryFiles, client: RawClient, version: int
) -> None:
    """Version 3 is converted; 4 and 12 go from the file to the socket."""
    create_topic(client, "cold", segment_bytes=20_000)
    create_topic(client, "other")
    values = [b"%d" % number * 2000 for number in range(50)]
    for value in values:
        produced(client, "cold", batch(value))
    files.freeze()
    with broker.client() as reader:
        request = fetch_request("cold", max_wait_ms=60_000)
        reader.send(request, version)
        eventually(lambda: files.cold_waits, what="the cold read")
        for number in range(20):
            assert produced(client, "other", batch(b"meanwhile")) == number
            assert produced(client, "cold", batch(b"meanwhile")) == 50 + number
            assert client.call(MetadataRequest(topics=[]), 9).brokers
        assert not reader.has_answer(0.05)
        files.thaw.set()
        records = records_of(first_partition(reader.receive(request, version)))
    assert [record.value for record in records] == values[: len(records)]
    assert records
    assert "broker" not in files.cold_waits


def test_a_parked_fetch_that_wakes_up_to_cold_pages(
    broker: BrokerThread, files: MemoryFiles, client: RawClient
) -> None:
    create_topic(client, "cold")
    produced(client, "cold", batch(b"x" * 5000))
    purgatory = broker.broker.services.purgatory
    with broker.client() as reader:
        request = fetch_request("cold", offset=1, max_wait_ms=60_000)
        reader.send(request, 12)
        eventually(lambda: purgatory.waiting == 1)
        files.freeze()
        assert produced(client, "cold", batch(b"woken")) == 1
        eventually(lambda: files.cold_waits, what="the cold read")
        assert client.call(MetadataRequest(topics=[]), 9).brokers
        files.thaw.set()
        assert records_of(first_partition(reader.receive(request, 12)))[0].value == b"woken"
    assert "broker" not in files.cold_waits


def test_a_cold_look_up_by_time_is_held_by_nobody_else(
    broker: BrokerThread, files: MemoryFiles, client: RawClient
) -> None:
    create_topic(client, "cold")
    for _ in range(20):
        produced(client, "cold", batch(b"x" * 3000))
    files.freeze()
    with broker.client() as asker:
        row = ListOffsetsPartition(partition_index=0, timestamp=NOW_MS)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name="cold", partitions=[row])]
        )
        asker.send(request, 5)
        eventually(lambda: files.cold_waits, what="the cold look-up")
        assert client.call(MetadataRequest(topics=[]), 9).brokers
        files.thaw.set()
        answer = asker.receive(request, 5).topics[0].partitions[0]
    assert (answer.error_code, answer.offset) == (0, 0)
    assert "broker" not in files.cold_waits


def test_many_cold_partitions_in_one_fetch(
    broker: BrokerThread, files: MemoryFiles, client: RawClient
) -> None:
    create_topic(client, "cold", partitions=40)
    for partition in range(40):
        produced(client, "cold", batch(b"%d" % partition * 100), partition=partition)
    files.freeze()
    with broker.client() as reader:
        request = fetch_request("cold", partitions=range(40), max_wait_ms=60_000)
        reader.send(request, 12)
        eventually(lambda: files.cold_waits)
        files.thaw.set()
        answers = reader.receive(request, 12).responses[0].partitions
    assert [records_of(answer)[0].value for answer in answers] == [
        b"%d" % partition * 100 for partition in range(40)
    ]
    assert "broker" not in files.cold_waits


def test_a_reader_that_leaves_during_its_cold_read(
    broker: BrokerThread, files: MemoryFiles, client: RawClient
) -> None:
    create_topic(client, "cold")
    produced(client, "cold", batch(b"x" * 10_000))
    files.freeze()
    with broker.client() as reader:
        reader.send(fetch_request("cold", max_wait_ms=60_000), 12)
        eventually(lambda: files.cold_waits)
    files.thaw.set()
    assert len(read_all(client, "cold")) == 1


def test_a_first_start_on_a_full_disk_refuses_in_one_sentence() -> None:
    has_started, refused = False, set()
    # klog-syncs takes 16 KiB; the files written before and after it are small.
    for free_bytes in (*range(0, 1_000, 20), *range(16_000, 18_000, 20)):
        files = MemoryFiles()
        files.free_bytes = free_bytes
        try:
            BrokerThread(Path("/data"), files=files).stop()
            has_started = True
        except CannotStart as error:
            assert not has_started
            refused.add(error.exit_code)
            assert "\n" not in str(error)
            assert str(error).endswith("start the broker again once the disk is in order")
    assert has_started
    assert refused == {ExitCode.DISKS_LOST, ExitCode.REFUSED_DIRECTORY}


def test_a_full_disk_refuses_records_until_there_is_free_space(
    broker: BrokerThread, files: MemoryFiles, client: RawClient
) -> None:
    create_topic(client, "t")
    produced(client, "t", batch(b"before"))
    files.free_bytes = 100
    answers = [produce(client, "t", batch(b"x" * 1000), acks=acks) for acks in (1, -1)]
    assert [each.error_code for each in answers] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    for each in answers:
        assert each.error_message is not None
        assert each.error_message.startswith("no space left in the data directory /data for t-0: ")
    files.free_bytes = None
    assert produced(client, "t", batch(b"after")) == 1
    assert [record.value for record in read_all(client, "t")] == [b"before", b"after"]


def test_a_full_disk_makes_no_topic_and_says_so() -> None:
    """Each write of a creation fails in turn; topics are created once there is space again."""
    words, settings = set(), {**SETTINGS, "log.dir.min.free.bytes": 0}
    for free_bytes in range(0, 30_000, 20):
        files = MemoryFiles()
        broker = BrokerThread(Path("/data"), settings, files=files)
        with broker, broker.client() as client:
            topic = CreatableTopic(name="full", num_partitions=2, replication_factor=1)
            request = CreateTopicsRequest(topics=[topic], timeout_ms=20_000)
            files.free_bytes = free_bytes
            answer = client.call(request, 7).topics[0]
            files.free_bytes = None
            create_topic(client, "topic")
            assert produced(client, "topic", batch(b"a")) == 0
        if answer.error_code == ErrorCode.NONE:
            break
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR, answer
        assert "[Errno 28]" in answer.error_message
        words.add(answer.error_message.split(" /data", 1)[0])
    assert words == {"cannot write", "no space left in the data directory"}


def test_without_a_descriptor_a_topic_is_created_completely_or_not_at_all(
    broker: BrokerThread, files: MemoryFiles, client: RawClient
) -> None:
    """Each open of a creation fails in turn; the error says what to do, and a retry works."""
    refused, is_made = 0, False
    while not is_made:
        topic = CreatableTopic(name="topic", num_partitions=2, replication_factor=1)
        files.fail_open_at = files.opens + refused + 1
        request = CreateTopicsRequest(topics=[topic], timeout_ms=20_000)
        answer = client.call(request, 7).topics[0]
        is_made = files.opens < files.fail_open_at
        files.fail_open_at = None
        if not is_made:
            refused += 1
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert "`ulimit -n`" in answer.error_message
            assert client.call(MetadataRequest(topics=None), 9).topics == []
            assert {"topic-0", "topic-1"}.isdisjoint(files.list_dir(Path("/data")))
    assert answer.error_code == 0
    assert refused > 10
    for partition in range(2):
        assert produced(client, "topic", batch(b"a"), partition=partition) == 0
    files.has_descriptors = False
    refusal = produce(client, "topic", batch(b"b"))
    assert refusal.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "`ulimit -n`" in str(refusal.error_message)
    read = first_partition(client.call(fetch_request("topic"), 12))
    assert read.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    files.has_descriptors = True
    assert produced(client, "topic", batch(b"b")) == 1
    assert [record.value for record in read_all(client, "topic")] == [b"a", b"b"]
    assert broker.stop() == ExitCode.OK


def test_a_start_without_descriptors_refuses_in_one_sentence_and_harms_nothing(
    files: MemoryFiles,
) -> None:
    with BrokerThread(Path("/data"), SETTINGS, files=files) as running, running.client() as client:
        create_topic(client, "topic", partitions=2)
        assert produced(client, "topic", batch(b"a")) == 0
    refused, has_started = 0, False
    while not has_started:
        disk = files.killed()
        disk.fail_open_at = refused + 1
        try:
            again = BrokerThread(Path("/data"), SETTINGS, files=disk)
        except CannotStart as error:
            refused += 1
            assert error.exit_code == ExitCode.REFUSED
            assert "`ulimit -n`" in str(error)
            assert "a broker needs at least 128" in str(error)
            assert disk.locks == set()
            files = disk
            continue
        has_started = disk.opens < disk.fail_open_at
        with again, again.client() as client:
            disk.fail_open_at = None
            assert [record.value for record in read_all(client, "topic")] == [b"a"]
    assert refused > 10


def test_groups_that_could_not_be_read_for_want_of_a_descriptor_are_read_later(
    files: MemoryFiles,
) -> None:
    settings = SETTINGS | {"offsets.topic.num.partitions": 1}
    coordinator = FindCoordinatorRequest(key="group")

    def commit(offset: int) -> OffsetCommitRequest:
        row = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata="m" * 4000
        )
        return OffsetCommitRequest(
            group_id="group",
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[OffsetCommitRequestTopic(name="topic", partitions=[row])],
        )

    ask = OffsetFetchRequest(
        group_id="group",
        topics=[OffsetFetchRequestTopic(name="topic", partition_indexes=[0])],
    )
    with BrokerThread(Path("/data"), settings, files=files) as old, old.client() as client:
        create_topic(client, "topic")
        eventually(lambda: client.call(coordinator, 2).error_code == 0, what="the coordinator")
        # Write more than the broker loads in the turn of its start.
        for offset in range(80):
            assert client.call(commit(offset), 6).topics[0].partitions[0].error_code == 0
    disk = files.killed()
    overrides = {name: str(value) for name, value in settings.items()}
    overrides["listeners"] = "PLAINTEXT://127.0.0.1:0"
    broker = BrokerServer(BrokerConfig.load(None, overrides, data=Path("/data")), files=disk)
    broker.start()
    disk.has_descriptors = False
    opens = disk.opens

    def is_tried() -> bool:
        broker.loop.run_turn(0)
        return disk.opens > opens

    eventually(is_tried, what="the first try")
    disk.has_descriptors = True
    thread = Thread(target=broker.serve_forever)
    thread.start()
    try:
        with RawClient(broker.address) as client:
            eventually(lambda: client.call(ask, 7).error_code == 0, what="the group")
            assert client.call(ask, 7).topics[0].partitions[0].committed_offset == 79
    finally:
        broker.stop()
        thread.join(60)


def test_a_short_write_is_cut_back(
    broker: BrokerThread, files: MemoryFiles, client: RawClient
) -> None:
    create_topic(client, "t")
    files.short_write_bytes = 30
    assert produce(client, "t", batch(b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert produced(client, "t", batch(b"y")) == 0
    assert [record.value for record in read_all(client, "t")] == [b"y"]


def test_a_failed_sync_fails_all_that_waited_for_it_and_ends_the_broker(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "klog.life")
    thread = BrokerThread(Path("/data"), {"log.flush.interval.messages": 1}, files=files)
    twice = (batch(b"lost"), batch(b"lost"))
    with thread.client() as client:
        create_topic(client, "t")
        produced(client, "t", batch(b"good"))
        files.fail_sync_at = files.syncs + 1
        # Send both requests at once: the broker must fail the second one, too.
        client.send_bytes(b"".join(client.frame(produce_request("t", lost), 9) for lost in twice))
        codes = [
            client.receive(ProduceRequest, 9).responses[0].partition_responses[0].error_code
            for _ in twice
        ]
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    # The failed directory was the last data directory.
    assert thread.stop() == ExitCode.DISKS_LOST
    assert any("reason='the last data directory went" in line for line in caplog.messages)


def test_a_start_that_loses_the_last_directory_does_not_say_that_it_serves(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BrokerThread(Path("/data"), SETTINGS, files=files) as thread, thread.client() as client:
        create_topic(client, "t")
    # After an unclean stop a start syncs the logs that it finds.
    files.remove(Path("/data/.kafka_cleanshutdown"))
    sync_dir = MemoryFiles.sync_dir

    def fail(self: MemoryFiles, path: Path) -> None:
        if path.name == "t-0":
            raise OSError(EIO, "input/output error", str(path))
        sync_dir(self, path)

    monkeypatch.setattr(MemoryFiles, "sync_dir", fail)
    config = BrokerConfig.load(None, {"listeners": "PLAINTEXT://127.0.0.1:0"}, data=Path("/data"))
    with pytest.raises(CannotStart, match=r"no data directory can be used.*: /data;") as refused:
        BrokerServer(config, files=files).start()
    assert refused.value.exit_code is ExitCode.DISKS_LOST
    assert not files.locks
    monkeypatch.undo()
    files = files.killed()
    with BrokerThread(Path("/data"), SETTINGS, files=files) as thread, thread.client() as client:
        produced(client, "t", batch(b"good"))


def test_one_of_two_directories_may_fail(files: MemoryFiles) -> None:
    settings = {"log.dirs": "/one,/two", "log.flush.interval.messages": 1}
    with BrokerThread(None, settings, files=files) as thread, thread.client() as client:
        create_topic(client, "t", partitions=2)
        for partition in (0, 1):
            produced(client, "t", batch(b"good"), partition=partition)
        files.fail_sync_at = files.syncs + 1
        failed = produce(client, "t", batch(b"lost"), partition=0)
        assert failed.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        again = produce(client, "t", batch(b"lost"), partition=0)
        assert again.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert produced(client, "t", batch(b"fine"), partition=1) == 1
        request = fetch_request("t", partitions=(0, 1), max_wait_ms=60_000)
        answers = client.call(request, 12).responses[0].partitions
        assert answers[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(records_of(answers[1])) == 2
        topic = client.call(MetadataRequest(topics=None), 9).topics[0]
        by_number = {each.partition_index: each for each in topic.partitions}
        assert by_number[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert by_number[0].offline_replicas == [0]
        assert by_number[1].error_code == 0
