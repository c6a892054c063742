"""The client whose first broker is cut off from the controller, and tells what was before."""


from pyspark_klog.client.blocking import BlockingClient
from pyspark_klog.client.consumer.offsets_lost import OffsetsLost
from pyspark_klog.client.groups import list_group_ids
from pyspark_klog.client.producer.producer import Producer
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.planning.discovery import Discovery
from tests.support.client_cases import batch, client_of
from tests.support.eventually import eventually
from tests.support.two_opinions import OpinionatedBroker, cut_off_and_whole

_P = TopicPartition("t", 0)


def _client(
    first: OpinionatedBroker, *others: OpinionatedBroker, **settings: str
) -> BlockingClient:
    servers = ",".join(each.bootstrap_servers for each in (first, *others))
    waits = {"retry_backoff_ms": 1, "reconnect_backoff_ms": 1, "default_api_timeout_ms": 5_000}
    return client_of(servers, **waits, **settings)


def _fail(lost: OffsetsLost) -> None:
    raise lost


def _discovery(client: BlockingClient) -> Discovery:
    options = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t"}
    options["fetchOffset.retryIntervalMs"] = "1"
    return Discovery(client, read_options(options).for_batch())


def test_a_listing_of_all_topics_takes_no_leader_back() -> None:
    with cut_off_and_whole() as (_, new), _client(new) as client:
        client.refresh(["t"])
        new.opinion.leader, new.opinion.leader_epoch = 1, 3
        leader = client.refresh(None).leader(_P)
        assert leader is not None and (leader.leader, leader.leader_epoch) == (2, 4)
        new.opinion.has_topic = False
        assert not client.refresh(None).topics


def test_what_a_broker_had_that_left_meanwhile_is_asked_of_the_others() -> None:
    """It died, and is in the cluster for as long as its session lasts."""
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
