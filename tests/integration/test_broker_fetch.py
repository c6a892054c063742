"""Fetch over a real socket: every version, long polls, bounds, sessions, conversion."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from klog_broker.runtime.net.poller import SelectorPoller
from klog_broker.runtime.net.sockets import RealNetwork
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.delete_topics import DeleteTopicsRequest
from pyspark_klog.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from pyspark_klog.protocol.apis.metadata import MetadataRequest
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.layout import MAGIC_AT
from tests.support.broker_thread import BrokerThread
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient
from tests.support.raw_requests import (
    batch,
    create_topic,
    fetch,
    fetch_request,
    first_partition,
    produced,
    read_all,
    records_of,
    topic_id_of,
)


@pytest.fixture(scope="module", params=["epoll and sendfile", "selector and send"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerThread]:
    """All of it once more on what every system has."""
    borders: dict[str, object] = {}
    if request.param == "selector and send":
        borders = {"poller": SelectorPoller(), "network": RealNetwork(sends_files=False)}
    with BrokerThread(tmp_path_factory.mktemp("broker") / "data", **borders) as thread:
        yield thread


@pytest.fixture
def client(broker: BrokerThread) -> Iterator[RawClient]:
    with broker.client() as client:
        yield client


@pytest.fixture
def topic(client: RawClient, request: pytest.FixtureRequest) -> str:
    """A topic of this test's own."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    create_topic(client, name, partitions=3)
    return name


def waiting(broker: BrokerThread) -> int:
    return broker.in_loop(lambda: broker.broker.services.purgatory.waiting)


# -- versions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(19))
def test_every_version_reads_what_was_written(client: RawClient, version: int) -> None:
    name = f"fetch-v{version}"
    topic_id = create_topic(client, name)
    produced(client, name, batch(b"a", b"b"))
    produced(client, name, batch(b"c"))
    response = fetch(client, topic_id if version >= 13 else name, version=version, offset=0)
    data = first_partition(response)
    assert [record.value for record in records_of(data)] == [b"a", b"b", b"c"]
    assert [record.offset for record in records_of(data)] == [0, 1, 2]
    assert data.high_watermark == 3
    assert data.last_stable_offset == (3 if version >= 4 else -1)
    assert data.log_start_offset == (0 if version >= 5 else -1)
    magic = bytes(data.records)[MAGIC_AT]
    assert magic == (2 if version >= 4 else 1 if version >= 2 else 0)
    assert response.session_id == 0


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("version", [1, 3])
def test_old_versions_get_compressed_sets(
    client: RawClient, topic: str, codec: Codec, version: int
) -> None:
    produced(client, topic, batch(b"a" * 300, b"b" * 300, codec=codec))
    data = first_partition(fetch(client, topic, version=version))
    assert [record.value for record in records_of(data)] == [b"a" * 300, b"b" * 300]
    assert len(data.records) < 300


@pytest.mark.parametrize("version", [4, 7, 9, 10])
def test_zstd_is_sent_to_fetch_4_and_later(client: RawClient, topic: str, version: int) -> None:
    values = [b"a" * 300, b"b" * 300]
    produced(client, topic, batch(values[0]))
    produced(client, topic, batch(values[1], codec=Codec.ZSTD))
    data = first_partition(fetch(client, topic, version=version))
    assert [record.value for record in records_of(data)] == values
    behind = first_partition(fetch(client, topic, version=version, offset=1))
    assert [record.value for record in records_of(behind)] == values[1:]


@pytest.mark.parametrize("version", [0, 1, 3])
def test_conversion_down_refuses_zstd(client: RawClient, topic: str, version: int) -> None:
    produced(client, topic, batch(b"a"))
    produced(client, topic, batch(b"b" * 300, codec=Codec.ZSTD))
    before = first_partition(fetch(client, topic, version=version))
    assert [record.value for record in records_of(before)] == [b"a"]
    data = first_partition(fetch(client, topic, version=version, offset=1))
    assert data.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert (data.high_watermark, data.records) == (-1, b"")


@pytest.mark.parametrize("version", [4, 9])
def test_a_topic_that_stores_zstd_is_sent_to_fetch_4_and_later(
    client: RawClient, version: int
) -> None:
    """Kafka 4.3.1 does the same; 3.9.1 refuses such a topic to Fetch before version 10."""
    name = f"stores-zstd-{version}"
    create_topic(client, name, compression_type="zstd")
    produced(client, name, batch(b"a" * 300))
    data = first_partition(fetch(client, name, version=version))
    assert [record.value for record in records_of(data)] == [b"a" * 300]


def test_conversion_down_can_be_forbidden(client: RawClient) -> None:
    create_topic(client, "new-only", message_downconversion_enable="false")
    produced(client, "new-only", batch(b"a"))
    data = first_partition(fetch(client, "new-only", version=3))
    assert data.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert len(records_of(first_partition(fetch(client, "new-only", version=4)))) == 1


def test_unread_records_of_a_batch_are_left_out_by_conversion_only(
    client: RawClient, topic: str
) -> None:
    produced(client, topic, batch(b"a", b"b", b"c"))
    new = records_of(first_partition(fetch(client, topic, version=4, offset=2)))
    old = records_of(first_partition(fetch(client, topic, version=3, offset=2)))
    assert [record.offset for record in new] == [0, 1, 2]
    assert [record.offset for record in old] == [2]


def test_read_committed_has_an_empty_list_of_aborted_transactions(
    client: RawClient, topic: str
) -> None:
    produced(client, topic, batch(b"a"))
    assert first_partition(fetch(client, topic, version=11)).aborted_transactions is None
    committed = first_partition(fetch(client, topic, version=11, isolation_level=1))
    assert committed.aborted_transactions == []
    assert committed.last_stable_offset == 1
    assert len(records_of(committed)) == 1


def test_the_list_of_aborted_transactions_is_null_unless_the_log_was_read(
    client: RawClient, topic: str
) -> None:
    """Kafka's list is empty, not null, with those errors that it finds before it reads."""
    out_of_range = fetch(client, topic, version=11, offset=9, isolation_level=1)
    assert first_partition(out_of_range).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert first_partition(out_of_range).aborted_transactions is None
    absent = first_partition(fetch(client, "absent", version=11))
    assert absent.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert absent.aborted_transactions == []


@pytest.mark.parametrize("version", [6, 12])
def test_a_partition_that_is_named_twice_is_answered_once(
    client: RawClient, topic: str, version: int
) -> None:
    """The partition is read from the offset that is named last, as with Kafka."""
    for value in (b"a", b"b", b"c"):
        produced(client, topic, batch(value))
    request = fetch_request(topic, partitions=(0, 1, 0))
    request.topics[0].partitions[2].fetch_offset = 2
    for _ in range(2):
        [rows] = client.call(request, version).responses
        assert [each.partition_index for each in rows.partitions] == [0, 1]
        assert [each.offset for each in records_of(rows.partitions[0])] == [2]


# -- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [-1, 2, 1000])
def test_an_offset_outside_of_the_log(client: RawClient, topic: str, offset: int) -> None:
    produced(client, topic, batch(b"a"))
    started = fetch(client, topic, offset=offset, max_wait_ms=60_000)
    data = first_partition(started)
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert data.high_watermark == -1


def test_unknown_topics_partitions_and_ids(client: RawClient, topic: str) -> None:
    answers = fetch(client, topic, partitions=(0, 7)).responses[0].partitions
    assert [answer.error_code for answer in answers] == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    absent = first_partition(fetch(client, "absent", max_wait_ms=60_000))
    assert absent.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    stale = fetch(client, uuid4(), max_wait_ms=60_000)
    assert first_partition(stale).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_leader_epochs_fence(client: RawClient, topic: str) -> None:
    produced(client, topic, batch(b"a"))
    newer = first_partition(fetch(client, topic, current_leader_epoch=1))
    assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    for passes in (0, -1, -2):
        # Every negative epoch of a Fetch means that the client knows none, as in Kafka.
        read = first_partition(fetch(client, topic, current_leader_epoch=passes))
        assert len(records_of(read)) == 1


def test_a_reader_that_has_diverged_gets_the_diverging_epoch(client: RawClient, topic: str) -> None:
    produced(client, topic, batch(b"a", b"b"))
    request = fetch_request(topic, offset=1, max_wait_ms=60_000)
    request.topics[0].partitions[0].last_fetched_epoch = 0
    fine = first_partition(client.call(request, 12))
    assert (fine.diverging_epoch.epoch, len(records_of(fine))) == (-1, 2)
    request.topics[0].partitions[0].last_fetched_epoch = 3
    told = first_partition(client.call(request, 12))
    assert told.error_code in (0, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert not told.records


def test_followers_have_no_place_here(client: RawClient, topic: str) -> None:
    produced(client, topic, batch(b"a"))
    data = first_partition(fetch(client, topic, version=11, replica_id=3))
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("session_id", "epoch", "code"),
    [
        (0, -1, 0),
        (5, -1, 0),
        (5, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (5, 2**31 - 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ],
)
def test_a_session_that_is_not_there(
    client: RawClient, topic: str, session_id: int, epoch: int, code: int
) -> None:
    produced(client, topic, batch(b"a"))
    response = fetch(client, topic, session_id=session_id, session_epoch=epoch)
    assert (response.error_code, response.session_id) == (code, 0)
    assert len(response.responses) == (0 if code else 1)


# -- long polls -------------------------------------------------------------------------------


def test_a_fetch_waits_for_data(broker: BrokerThread, client: RawClient, topic: str) -> None:
    with broker.client() as producer:
        request = fetch_request(topic, max_wait_ms=60_000)
        client.send(request, 12)
        eventually(lambda: waiting(broker) == 1)
        produced(producer, topic, batch(b"late"))
        data = first_partition(client.receive(request, 12))
        assert [record.value for record in records_of(data)] == [b"late"]
    assert waiting(broker) == 0


def test_it_waits_until_min_bytes_of_all_partitions_are_there(
    broker: BrokerThread, client: RawClient, topic: str
) -> None:
    with broker.client() as producer:
        request = fetch_request(topic, max_wait_ms=60_000, min_bytes=2500, partitions=(0, 1, 2))
        client.send(request, 12)
        for partition in (0, 1):
            produced(producer, topic, batch(b"x" * 1000), partition=partition)
            assert not client.has_answer(0.05)
        produced(producer, topic, batch(b"x" * 1000), partition=2)
        answers = client.receive(request, 12).responses[0].partitions
        assert [len(records_of(answer)) for answer in answers] == [1, 1, 1]


def test_it_ends_after_max_wait_with_what_there_is(client: RawClient, topic: str) -> None:
    produced(client, topic, batch(b"little"))
    response = fetch(client, topic, max_wait_ms=30, min_bytes=1_000_000)
    assert len(records_of(first_partition(response))) == 1
    empty = first_partition(fetch(client, topic, offset=1, max_wait_ms=30))
    assert (empty.error_code, bytes(empty.records), empty.high_watermark) == (0, b"", 1)


@pytest.mark.parametrize(("max_wait_ms", "min_bytes"), [(0, 1), (-5, 1), (60_000, 0)])
def test_it_does_not_wait_if_not_asked_to(
    client: RawClient, topic: str, max_wait_ms: int, min_bytes: int
) -> None:
    data = first_partition(fetch(client, topic, max_wait_ms=max_wait_ms, min_bytes=min_bytes))
    assert bytes(data.records) == b""


def test_an_error_in_one_partition_ends_the_wait(client: RawClient, topic: str) -> None:
    answers = fetch(client, topic, partitions=(0, 99), max_wait_ms=60_000).responses[0].partitions
    assert answers[1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_deletion_of_a_topic_ends_the_wait(
    broker: BrokerThread, client: RawClient, topic: str
) -> None:
    request = fetch_request(topic_id_of(client, topic), max_wait_ms=60_000)
    client.send(request, 17)
    eventually(lambda: waiting(broker) == 1)
    with broker.client() as admin:
        admin.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 4)
    data = first_partition(client.receive(request, 17))
    assert data.error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_requests_behind_a_parked_fetch_wait_for_it(
    broker: BrokerThread, client: RawClient, topic: str
) -> None:
    request = fetch_request(topic, max_wait_ms=60_000)
    client.send(request, 12)
    client.send(MetadataRequest(topics=[]), 9)
    eventually(lambda: waiting(broker) == 1)
    assert not client.has_answer(0.05)
    with broker.client() as producer:
        produced(producer, topic, batch(b"x"))
    assert len(records_of(first_partition(client.receive(request, 12)))) == 1
    assert client.receive(MetadataRequest, 9).brokers


def test_a_client_that_leaves_does_not_stay_in_the_purgatory(
    broker: BrokerThread, topic: str
) -> None:
    with broker.client() as leaving:
        leaving.send(fetch_request(topic, max_wait_ms=2_000_000), 12)
        eventually(lambda: waiting(broker) == 1)
    eventually(lambda: waiting(broker) == 0)


# -- bounds -----------------------------------------------------------------------------------


def test_at_least_one_batch_comes_whole(client: RawClient, topic: str) -> None:
    produced(client, topic, batch(b"x" * 5000))
    produced(client, topic, batch(b"y" * 5000))
    for options in ({"partition_max_bytes": 1}, {"max_bytes": 1}, {"partition_max_bytes": 0}):
        records = records_of(first_partition(fetch(client, topic, version=12, **options)))
        assert [record.value for record in records] == [b"x" * 5000]


def test_further_partitions_get_what_is_left(client: RawClient, topic: str) -> None:
    for partition in range(3):
        for _ in range(3):
            produced(client, topic, batch(b"x" * 1000), partition=partition)
    size = len(batch(b"x" * 1000))
    answers = fetch(client, topic, partitions=(0, 1, 2), max_bytes=4 * size + 10)
    counts = [len(records_of(answer)) for answer in answers.responses[0].partitions]
    assert counts == [3, 1, 0]
    # A piece of one batch is of no use to anybody: such a partition gets nothing.
    assert bytes(answers.responses[0].partitions[2].records) == b""


def test_old_versions_have_a_hard_limit(client: RawClient, topic: str) -> None:
    produced(client, topic, batch(b"x" * 5000))
    data = first_partition(fetch(client, topic, version=2, partition_max_bytes=1000))
    assert data.error_code == 0
    assert records_of(data) == []
    # Something is there, though, or the client would believe that it has read everything.
    assert 0 < len(data.records) <= 1000


def test_fetch_max_bytes_of_the_broker(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = tmp_path_factory.mktemp("small") / "data"
    with (
        BrokerThread(data, {"fetch.max.bytes": 1024}) as thread,
        thread.client() as client,
    ):
        create_topic(client, "t")
        for _ in range(10):
            produced(client, "t", batch(b"x" * 400))
        records = records_of(first_partition(fetch(client, "t")))
        assert len(records) == 2
        assert len(read_all(client, "t")) == 10


def test_a_megabyte_in_one_answer(client: RawClient) -> None:
    create_topic(client, "big", segment_bytes=100_000_000)
    values = [bytes([number]) * 100_000 for number in range(50)]
    for value in values:
        produced(client, "big", batch(value))
    data = first_partition(fetch(client, "big", partition_max_bytes=10_000_000))
    assert [record.value for record in records_of(data)] == values


def test_hundred_partitions_in_one_fetch(broker: BrokerThread, client: RawClient) -> None:
    create_topic(client, "wide", partitions=100)
    request = fetch_request("wide", partitions=range(100), max_wait_ms=60_000)
    client.send(request, 12)
    eventually(lambda: waiting(broker) == 1)
    with broker.client() as producer:
        produced(producer, "wide", batch(b"x"), partition=61)
    answers = client.receive(request, 12).responses[0].partitions
    assert [answer.partition_index for answer in answers] == list(range(100))
    assert [len(records_of(answer)) for answer in answers].index(1) == 61


def test_topics_keep_their_order(client: RawClient) -> None:
    names = ["order-b", "order-a", "order-c"]
    for name in names:
        create_topic(client, name)
        produced(client, name, batch(name.encode()))
    row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    request = FetchRequest(topics=[FetchTopic(topic=name, partitions=[row]) for name in names])
    response = client.call(request, 11)
    assert [topic.topic for topic in response.responses] == names
    values = [records_of(topic.partitions[0])[0].value for topic in response.responses]
    assert values == [name.encode() for name in names]


def test_a_slow_reader_gets_everything(broker: BrokerThread, client: RawClient) -> None:
    create_topic(client, "slow")
    values = [bytes([number]) * 500_000 for number in range(20)]
    for value in values:
        produced(client, "slow", batch(value))
    with broker.client() as reader:
        request = fetch_request("slow", partition_max_bytes=50_000_000)
        reader.send(request, 12)
        with broker.client() as other:
            for _ in range(20):
                other.call(MetadataRequest(topics=[]), 9)
        records = records_of(first_partition(reader.receive(request, 12)))
    assert [record.value for record in records] == values
