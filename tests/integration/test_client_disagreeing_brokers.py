"""The client whose first broker is cut off from the controller, and reports an old state."""

import pytest

from pyspark_klog.client.admin.groups import committed_offsets, list_group_ids
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.admin.transaction_listing import fence_producers
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.consumer.fetcher import RangeFetcher
from pyspark_klog.client.consumer.lost_offsets import OffsetsLost
from pyspark_klog.client.consumer.offsets import LATEST, list_offsets
from pyspark_klog.client.producer.producer import Producer
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.planning.discovery import Discovery
from tests.support.client.cases import batch, client_of
from tests.support.client.disagreeing_brokers import DisagreeingBroker, cut_off_and_whole
from tests.support.eventually import eventually
from tests.support.records.record_sets import iterate

_P = TopicPartition("t", 0)


def _client(
    first: DisagreeingBroker, *others: DisagreeingBroker, **settings: str
) -> BlockingClient:
    servers = ",".join(each.bootstrap_servers for each in (first, *others))
    waits = {"retry_backoff_ms": 1, "reconnect_backoff_ms": 1, "default_api_timeout_ms": 5_000}
    return client_of(servers, **waits, **settings)


def _fail(lost: OffsetsLost) -> None:
    raise lost


@pytest.mark.parametrize("start", [5, 7])
def test_a_replaced_leader_does_not_make_records_lost(start: int) -> None:
    """The replaced leader's log ends before the range, or where the range begins."""
    with cut_off_and_whole() as (old, new), _client(old) as client:
        fetcher = RangeFetcher(client, _P, start, 10, progress_timeout_ms=5_000, on_lost=_fail)
        found = [record.offset for chunk in fetcher for record in iterate(chunk.data)]
        assert found == list(range(start, 10))
        assert ApiKey.FETCH in old.opinion.asked and ApiKey.FETCH in new.opinion.asked


def _discovery(client: BlockingClient) -> Discovery:
    options = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t"}
    options["fetchOffset.retryIntervalMs"] = "1"
    return Discovery(client, read_options(options).for_batch())


def test_an_end_before_a_known_offset_is_checked_with_the_leader_that_others_name() -> None:
    with cut_off_and_whole() as (old, _), _client(old) as client:
        assert _discovery(client).latest([_P], {}) == {_P: 5}
        assert _discovery(client).latest([_P], {_P: 8}) == {_P: 10}


def test_partitions_that_one_broker_does_not_know_are_not_gone() -> None:
    with cut_off_and_whole() as (old, _), _client(old) as client:
        old.opinion.has_topic = False
        assert _discovery(client).existing_partitions([_P]) == {_P}


def test_a_listing_of_all_topics_takes_no_leader_back() -> None:
    with cut_off_and_whole() as (_, new), _client(new) as client:
        client.refresh(["t"])
        new.opinion.leader, new.opinion.leader_epoch = 1, 3
        leader = client.refresh(None).leader(_P)
        assert leader is not None and (leader.leader, leader.leader_epoch) == (2, 4)
        new.opinion.has_topic = False
        assert not client.refresh(None).topics


def test_a_partition_that_one_broker_does_not_know_has_offsets() -> None:
    with cut_off_and_whole() as (old, _), _client(old) as client:
        client.refresh([])
        old.opinion.has_topic = False
        assert list_offsets(client, {_P: LATEST})[_P].offset == 10


def test_a_topic_that_one_broker_does_not_know_is_written_to() -> None:
    with cut_off_and_whole() as (old, _), _client(old, max_block_ms="5000") as client:
        old.opinion.has_topic = False
        assert Producer(client).partition_count("t") == 1


def test_a_coordinator_that_moved_is_found() -> None:
    with cut_off_and_whole() as (old, new), _client(old, new) as client:
        assert committed_offsets(client, "group")[_P].offset == 5


def test_a_coordinator_of_transactions_that_moved_is_found() -> None:
    with cut_off_and_whole() as (old, new), _client(old, new) as client:
        assert fence_producers(client, "id", transaction_timeout_ms=1_000) == (7, 1)


def test_a_controller_that_moved_is_found() -> None:
    with cut_off_and_whole() as (old, new), _client(old) as client, Admin(client=client) as admin:
        admin.create_topics([NewTopic("t")])
        assert ApiKey.CREATE_TOPICS in new.opinion.asked


def test_a_broker_in_doubt_is_asked_if_nobody_else_answers() -> None:
    with cut_off_and_whole() as (old, new), _client(old) as client:
        client.refresh(["t"])
        new.close()
        for _ in range(3):
            client.mark_doubtful()
            assert client.refresh(["t"]).topic_id("t").int


def test_a_broker_with_newer_metadata_is_not_in_doubt() -> None:
    with cut_off_and_whole() as (old, new), _client(old) as client:
        client.refresh(["t"])
        client.forget_topic("t")
        old.opinion.leader, old.opinion.leader_epoch = 2, 4
        client.refresh(["t"])
        client.forget_topic("t")
        client.refresh(["t"])
        assert not new.opinion.asked
        client.refresh(["t"])
        assert new.opinion.asked


def test_what_a_broker_had_that_left_meanwhile_is_asked_of_the_others() -> None:
    """The broker died, and stays in the cluster until its session expires."""
    with cut_off_and_whole() as (old, new):
        new.opinion.groups = ["before"]
        old.close()

        def sleep(_: float) -> None:
            new.opinion.brokers.pop(1, None)
            new.opinion.groups = ["before", "of the other"]

        settings = {"bootstrap.servers": new.bootstrap_servers}
        with BlockingClient(settings, sleep=sleep) as client:
            found = list_group_ids(client, client.deadline(5_000))
        assert found == ["before", "of the other"]


def test_without_acknowledgements_a_connection_that_ends_has_the_leader_looked_for() -> None:
    with cut_off_and_whole() as (old, new), _client(old, acks="0") as client:
        producer = Producer(client)
        producer.add(_P, *batch([b"k"]))
        producer.flush()
        eventually(lambda: old.opinion.produced, what="the first record")
        old.opinion.leader, old.opinion.leader_epoch = 2, 4

        def arrives() -> bool:
            producer.add(_P, *batch([b"k"]))
            producer.flush()
            return new.opinion.produced > 0

        eventually(arrives, what="a record at the new leader")
