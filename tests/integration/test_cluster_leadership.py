"""Three brokers and a ZooKeeper, as processes: topics keep leaders through failures of brokers and
of the controller."""

from collections.abc import Iterator
from typing import TypeVar

import pytest

from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import DeliveryFailed
from pyspark_klog.client.producer.producer import Producer
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import UUID, BrokerId, TopicPartition
from pyspark_klog.protocol.apis.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from pyspark_klog.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    TopicData,
)
from pyspark_klog.protocol.apis.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from pyspark_klog.protocol.apis.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from pyspark_klog.protocol.message import Request, Response
from pyspark_klog.testing import FaultFailed, KlogCluster
from pyspark_klog.testing.faults import end_all_faults
from pyspark_klog.znodes.configs import TOPICS, config_path, encode_config, entity
from pyspark_klog.znodes.paths import (
    delete_topic_path,
    partition_state_path,
    topic_path,
)
from pyspark_klog.znodes.topics import (
    PartitionAssignment,
    TopicAssignment,
    decode_partition_state,
    decode_topic,
    encode_topic,
)
from tests.support.client.cases import batch, client_of, read
from tests.support.client.librdkafka import acknowledged_offset, new_producer, values_of
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient
from tests.support.raw_requests import batch as raw_batch
from tests.support.raw_requests import produce
from tests.support.shared_cluster import agreed_controller, restart_stopped_brokers
from tests.support.zookeeper.client import ZooKeeperClient

R = TypeVar("R", bound=Response)

SESSION_MS = 3_000


@pytest.fixture(scope="module")
def shared() -> Iterator[KlogCluster]:
    with KlogCluster(zookeeper_session_timeout_ms=SESSION_MS) as started:
        yield started


@pytest.fixture
def cluster(shared: KlogCluster) -> KlogCluster:
    return restart_stopped_brokers(shared)


def make_topic(cluster: KlogCluster, name: str, *replicas: tuple[int, ...], **configs: str) -> None:
    """Create a topic in ZooKeeper itself, as Kafka's old tools do."""
    partitions = {
        number: PartitionAssignment(tuple(map(BrokerId, each)))
        for number, each in enumerate(replicas)
    }
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    with ZooKeeperClient(cluster.zookeeper.address) as client:
        client.create(config_path(entity(TOPICS, name)), encode_config(settings))
        client.create(topic_path(name), encode_topic(TopicAssignment(None, partitions)))


def leaders(cluster: KlogCluster, number: int, topic: str) -> dict[int, int]:
    """Return the leaders by partition, as a broker reports them."""
    with Admin(cluster.broker(number).bootstrap_servers) as admin:
        found = admin.describe_topics().get(topic)
    return {} if found is None else {n: each.leader for n, each in found.partitions.items()}


def until_led(
    cluster: KlogCluster, topic: str, expected: dict[int, int], numbers: tuple[int, ...] = (1, 2, 3)
) -> None:
    def is_so() -> bool:
        return all(leaders(cluster, number, topic) == expected for number in numbers)

    eventually(is_so, deadline_s=60, what=f"leaders {expected} of {topic}, told by {numbers}")


def write(cluster: KlogCluster, partition: TopicPartition, *keys: bytes) -> None:
    with client_of(cluster.bootstrap_servers, acks="all") as client:
        producer = Producer(client)
        producer.add(partition, *batch(keys))
        producer.flush()


def written(cluster: KlogCluster, partition: TopicPartition, count: int) -> list[bytes | None]:
    with client_of(cluster.bootstrap_servers) as client:
        return [each.key for each in read(client, partition, 0, count)]


def state(cluster: KlogCluster, partition: TopicPartition) -> tuple[int, int, tuple[int, ...]]:
    """Leader, leader epoch, in-sync set, as ZooKeeper has them."""
    with ZooKeeperClient(cluster.zookeeper.address) as client:
        found = decode_partition_state(partition, client.get(partition_state_path(partition)))
    return found.leader, found.leader_epoch, found.isr


def controller(cluster: KlogCluster) -> int:
    with Admin(cluster.bootstrap_servers) as admin:
        return admin.describe_cluster().controller_id


def test_a_topic_is_led_written_and_read_and_survives_a_kill_of_its_leader(
    cluster: KlogCluster,
) -> None:
    make_topic(cluster, "orders", (1,), (2,), (3,), max_message_bytes="1000")
    until_led(cluster, "orders", {0: 1, 1: 2, 2: 3})
    partition = TopicPartition("orders", 1)
    write(cluster, partition, b"a", b"b")
    assert written(cluster, partition, 2) == [b"a", b"b"]
    cluster.broker(2).kill()
    until_led(cluster, "orders", {0: 1, 1: -1, 2: 3}, (1, 3))
    cluster.broker(2).start()
    until_led(cluster, "orders", {0: 1, 1: 2, 2: 3})
    assert written(cluster, partition, 2) == [b"a", b"b"]
    write(cluster, partition, b"c")
    assert written(cluster, partition, 3) == [b"a", b"b", b"c"]
    with pytest.raises(DeliveryFailed, match="larger than the topic takes"):
        write(cluster, partition, b"too much" * 20)
    leader, leader_epoch, in_sync = state(cluster, partition)
    assert (leader, in_sync) == (2, (2,))
    assert leader_epoch >= 2, "it left and it came back"


def test_another_replica_leads_when_the_leader_is_killed(cluster: KlogCluster) -> None:
    make_topic(cluster, "moved", (1, 2, 3), (2, 3, 1), min_insync_replicas="2")
    until_led(cluster, "moved", {0: 1, 1: 2})
    partition = TopicPartition("moved", 0)
    write(cluster, partition, b"a", b"b")
    cluster.broker(1).kill()
    until_led(cluster, "moved", {0: 2, 1: 2}, (2, 3))
    assert state(cluster, partition) == (2, 1, (2, 3))
    write(cluster, partition, b"c")
    cluster.broker(1).start()
    everybody = {1, 2, 3}
    eventually(
        lambda: set(state(cluster, partition)[2]) == everybody, deadline_s=60, what="all in sync"
    )
    cluster.broker(2).stop()
    until_led(cluster, "moved", {0: state(cluster, partition)[0], 1: 3}, (1, 3))
    assert state(cluster, partition)[0] == 1, "the preferred replica"
    assert written(cluster, partition, 3) == [b"a", b"b", b"c"]


def test_a_stopping_broker_moves_its_leaderships_first(cluster: KlogCluster) -> None:
    make_topic(cluster, "given", (2, 1), (3, 1), (2,))
    until_led(cluster, "given", {0: 2, 1: 3, 2: 2})
    said_before = len(cluster.broker(2).output())
    cluster.broker(2).stop()
    output = cluster.broker(2).output()[said_before:]
    assert "broker_id=2 leads no partition that others can lead" in output
    assert state(cluster, TopicPartition("given", 0)) == (1, 1, (1,))
    until_led(cluster, "given", {0: 1, 1: 3, 2: -1}, (1, 3))


def test_the_next_controller_goes_on_with_what_the_last_one_left(cluster: KlogCluster) -> None:
    make_topic(cluster, "before", (1,), (2,), (3,))
    until_led(cluster, "before", {0: 1, 1: 2, 2: 3})
    first = controller(cluster)
    cluster.broker(first).kill()
    left = tuple(number for number in (1, 2, 3) if number != first)
    make_topic(cluster, "after", *((number,) for number in left))
    until_led(cluster, "after", dict(enumerate(left)), left)
    expected = {number - 1: (-1 if number == first else number) for number in (1, 2, 3)}
    until_led(cluster, "before", expected, left)
    write(cluster, TopicPartition("after", 0), b"a")
    assert written(cluster, TopicPartition("after", 0), 1) == [b"a"]


def test_a_broker_that_stood_still_leads_on_in_its_next_broker_epoch(cluster: KlogCluster) -> None:
    make_topic(cluster, "still", (1,), (2,), (3,))
    until_led(cluster, "still", {0: 1, 1: 2, 2: 3})
    partition = TopicPartition("still", 2)
    write(cluster, partition, b"a")
    cluster.broker(3).pause()
    try:
        until_led(cluster, "still", {0: 1, 1: 2, 2: -1}, (1, 2))
    finally:
        cluster.broker(3).resume()
    until_led(cluster, "still", {0: 1, 1: 2, 2: 3})
    write(cluster, partition, b"b")
    assert written(cluster, partition, 2) == [b"a", b"b"]


def test_a_topic_that_is_deleted_leaves_nothing(cluster: KlogCluster) -> None:
    make_topic(cluster, "gone", (1, 2), (3,))
    until_led(cluster, "gone", {0: 1, 1: 3})
    write(cluster, TopicPartition("gone", 1), b"a")
    cluster.broker(2).kill()
    with ZooKeeperClient(cluster.zookeeper.address) as client:
        client.create(delete_topic_path("gone"), b"")
        until_led(cluster, "gone", {}, (1, 3))
        assert client.exists(topic_path("gone")), "broker 2 still has a replica"
        cluster.broker(2).start()
        eventually(
            lambda: not client.exists(topic_path("gone")), deadline_s=60, what="the deletion"
        )
    for broker in cluster.brokers:
        assert not list(broker.data.glob("gone-?")), broker.bootstrap_servers


def test_requests_of_a_replaced_controller_are_refused(cluster: KlogCluster) -> None:
    make_topic(cluster, "kept", (1,))
    until_led(cluster, "kept", {0: 1})
    with BlockingClient({"bootstrap.servers": cluster.broker(1).bootstrap_servers}) as client:
        link = client.link_to_any(client.deadline())

        def answer(controller_epoch: int, broker_epoch: int) -> int:
            request = LeaderAndIsrRequest(
                controller_epoch=controller_epoch, broker_epoch=broker_epoch
            )
            return client.call(link, LeaderAndIsrResponse, lambda _: request).error_code

        epoch = broker_epoch(cluster, 1)
        with ZooKeeperClient(cluster.zookeeper.address) as zookeeper:
            controllers = int(zookeeper.get("/controller_epoch"))
        assert answer(controllers - 1, epoch) == ErrorCode.STALE_CONTROLLER_EPOCH
        assert answer(controllers, epoch - 1) == ErrorCode.STALE_BROKER_EPOCH
        assert answer(controllers, epoch) == ErrorCode.NONE


def broker_epoch(cluster: KlogCluster, number: int) -> int:
    words = cluster.broker(number).output().split(f"broker_id={number} registered broker_epoch=")
    return int(words[-1].split()[0])


def asked(cluster: KlogCluster, number: int, response_class: type[R], request: Request) -> R:
    """Return a broker's response to a request that other brokers send."""
    with BlockingClient({"bootstrap.servers": cluster.broker(number).bootstrap_servers}) as client:
        link = client.link_to_any(client.deadline())
        return client.call(link, response_class, lambda _: request)


def test_the_controller_answers_what_brokers_ask_and_others_do_not(cluster: KlogCluster) -> None:
    make_topic(cluster, "asked", (1, 2, 3))
    until_led(cluster, "asked", {0: 1})
    first = controller(cluster)
    other = 1 + first % 3
    epochs = {number: broker_epoch(cluster, number) for number in (1, 2, 3)}
    ids = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epochs[1])
    blocks = [asked(cluster, first, AllocateProducerIdsResponse, ids) for _ in range(2)]
    starts = [each.producer_id_start for each in blocks]
    # Brokers that started late may allocate their first block between the two.
    assert starts[1] > starts[0] and [each % 1000 for each in starts] == [0, 0]
    assert [each.producer_id_len for each in blocks] == [1000, 1000]
    stale = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epochs[1] - 1)
    answer = asked(cluster, first, AllocateProducerIdsResponse, stale)
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
    answer = asked(cluster, other, AllocateProducerIdsResponse, ids)
    assert answer.error_code == ErrorCode.NOT_CONTROLLER

    def alter(number: int, partition_epoch: int) -> AlterPartitionResponse:
        data = PartitionData(
            partition_index=0,
            leader_epoch=0,
            new_isr_with_epochs=[
                BrokerState(broker_id=each, broker_epoch=epochs[each]) for each in (1, 3)
            ],
            partition_epoch=partition_epoch,
        )
        topic = TopicData(topic_id=topic_id(cluster, "asked"), partitions=[data])
        request = AlterPartitionRequest(broker_id=1, broker_epoch=epochs[1], topics=[topic])
        return asked(cluster, number, AlterPartitionResponse, request)

    assert alter(other, 0).error_code == ErrorCode.NOT_CONTROLLER
    found = alter(first, 0)
    [result] = found.topics[0].partitions
    assert (found.error_code, result.error_code, result.isr) == (0, 0, [1, 3])
    assert result.partition_epoch == 1
    assert state(cluster, TopicPartition("asked", 0)) == (1, 0, (1, 3))
    leaving = ControlledShutdownRequest(broker_id=1, broker_epoch=epochs[1])
    refused = asked(cluster, other, ControlledShutdownResponse, leaving)
    assert refused.error_code == ErrorCode.NOT_CONTROLLER
    given = asked(cluster, first, ControlledShutdownResponse, leaving)
    assert (given.error_code, given.remaining_partitions) == (0, [])
    leader, leader_epoch, in_sync = state(cluster, TopicPartition("asked", 0))
    assert (leader, leader_epoch) == (3, 1)
    # The next leader may have asked for broker 2 already, which has all there is.
    assert 1 not in in_sync
    until_led(cluster, "asked", {0: 3})
    cluster.broker(1).kill()  # the controller takes it for one that ends


def topic_id(cluster: KlogCluster, name: str) -> UUID:
    """The one that the controller gave: the topic was made without."""
    with ZooKeeperClient(cluster.zookeeper.address) as client:
        found = decode_topic(name, client.get(topic_path(name))).topic_id
    assert found is not None
    return found


def test_a_test_moves_a_leader_to_each_in_sync_replica(cluster: KlogCluster) -> None:
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("steered", 1, 2)])
        for broker in cluster.brokers:
            with client_of(broker.bootstrap_servers) as client:
                eventually(lambda c=client: c.refresh(["steered"]).topics["steered"].partitions, 60)
        replicas = admin.describe_topics(["steered"])["steered"].partitions[0].replicas
        (other,) = {1, 2, 3} - set(replicas)
        for broker_id in (replicas[1], replicas[0]):
            cluster.move_leader("steered", 0, broker_id)
            assert admin.describe_topics(["steered"])["steered"].partitions[0].leader == broker_id
    with pytest.raises(FaultFailed, match=f"broker {other} is no in-sync replica of steered-0"):
        cluster.move_leader("steered", 0, other)


# --- a broker that is cut off ---------------------------------------------------------------------
def test_a_leader_that_is_cut_off_loses_what_it_alone_has(cluster: KlogCluster) -> None:
    """The leader is also the controller."""
    first = agreed_controller(cluster)
    second, third = (number for number in (1, 2, 3) if number != first)
    make_topic(cluster, "cut", (first, second, third))
    until_led(cluster, "cut", {0: first})
    alone = cluster.broker(first).bootstrap_servers
    host, _, port = alone.partition(":")
    producer = new_producer(cluster.bootstrap_servers, "all", client_id="moving")
    assert acknowledged_offset(producer, "cut", b"before") == 0
    with cluster.partition(first) as cut:
        with RawClient((host, int(port))) as client:
            refused = produce(client, "cut", raw_batch(b"never acknowledged"), timeout_ms=200)
        assert refused.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert acknowledged_offset(new_producer(alone, "1"), "cut", b"lost") == 2
        # As long as the producer gets answers from the broker, it asks no other for the leader.
        with cluster.broker(first).faults.blackhole("moving") as unanswered:
            assert acknowledged_offset(producer, "cut", b"kept") == 1
        assert unanswered.fired > 0
        until_led(cluster, "cut", {0: second}, (second, third))
        assert agreed_controller(cluster, (second, third)) != first
        assert leaders(cluster, first, "cut") == {0: first}, "what the broker believes"
        assert cut.fired > 0
    everybody = {1, 2, 3}
    eventually(
        lambda: set(state(cluster, TopicPartition("cut", 0))[2]) == everybody, 60, "all in sync"
    )
    cluster.move_leader("cut", 0, first)
    assert values_of(alone, "cut", 2) == [b"before", b"kept"]


def test_a_partition_ends_with_its_test_even_if_brokers_are_paused(cluster: KlogCluster) -> None:
    make_topic(cluster, "whole", (1, 2, 3), min_insync_replicas="3")
    until_led(cluster, "whole", {0: 1})
    cluster.partition(1)
    for broker in cluster.brokers:
        broker.pause()
    end_all_faults()
    write(cluster, TopicPartition("whole", 0), b"to all brokers")


def test_a_partition_ends_with_the_process_of_its_broker(cluster: KlogCluster) -> None:
    cut = cluster.partition(2)
    eventually(lambda: cut.fired > 0, 60, "a connection that is refused")
    cluster.broker(2).kill()
    fired = cut.fired
    restart_stopped_brokers(cluster)
    assert cut.fired == fired > 0
    cluster.broker(3).kill()
    with pytest.raises(FaultFailed, match="it is not running"):
        cluster.partition(3)
