"""Three brokers and a ZooKeeper, as processes: changes by clients, and the responses to clients.

Real clients send to any broker; they find the controller themselves.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from pyspark_klog.client.admin.topics import Admin
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis import find_coordinator
from pyspark_klog.protocol.apis.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pyspark_klog.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pyspark_klog.protocol.apis.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyspark_klog.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from pyspark_klog.testing import KlogCluster
from pyspark_klog.znodes.paths import CONFIG_CHANGES
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient
from tests.support.zookeeper.client import ZooKeeperClient

NUMBERS = (1, 2, 3)


@pytest.fixture(scope="module")
def cluster() -> Iterator[KlogCluster]:
    with KlogCluster(zookeeper_session_timeout_ms=6_000) as started:
        eventually(
            lambda: all(controller(started, number) in NUMBERS for number in NUMBERS),
            deadline_s=60,
            what="a controller",
        )
        yield started


def controller(cluster: KlogCluster, number: int) -> int:
    with Admin(cluster.broker(number).bootstrap_servers) as admin:
        return admin.describe_cluster().controller_id


def other_than_controller(cluster: KlogCluster) -> int:
    return next(number for number in NUMBERS if number != controller(cluster, 1))


def librdkafkas(cluster: KlogCluster, number: int = 1) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.broker(number).bootstrap_servers})


def wait_for_all(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(30)


def call_broker(cluster: KlogCluster, number: int, response: Any, request: Any) -> Any:
    """Return one broker's response."""
    with BlockingClient({"bootstrap.servers": cluster.broker(number).bootstrap_servers}) as client:
        link = client.link_to_any(client.deadline())
        return client.call(link, response, lambda _: request)


def told(cluster: KlogCluster, number: int, topic: str) -> dict[int, tuple[int, tuple[int, ...]]]:
    """Return leader and replicas by partition, as a broker reports them; {} without the topic."""
    with Admin(cluster.broker(number).bootstrap_servers) as admin:
        found = admin.describe_topics().get(topic)
    if found is None:
        return {}
    return {each: (state.leader, tuple(state.replicas)) for each, state in found.partitions.items()}


def test_a_topic_is_made_anywhere_extended_and_deleted(cluster: KlogCluster) -> None:
    admin = librdkafkas(cluster, other_than_controller(cluster))
    wait_for_all(admin.create_topics([NewTopic("orders", 6, 2)]))
    asked = controller(cluster, 1)
    rows = told(cluster, asked, "orders")
    assert sorted(rows) == list(range(6))
    assert sorted(leader for leader, _ in rows.values()) == [1, 1, 2, 2, 3, 3]
    assert all(len(set(replicas)) == 2 for _, replicas in rows.values())
    assert all(replicas[0] == leader for leader, replicas in rows.values())
    for number in NUMBERS:
        eventually(lambda n=number: told(cluster, n, "orders") == rows, deadline_s=30, what="it")
    wait_for_all(admin.create_partitions([NewPartitions("orders", 8)]))
    assert len(told(cluster, asked, "orders")) == 8
    wait_for_all(admin.delete_topics(["orders"]))
    assert not told(cluster, asked, "orders")
    for number in NUMBERS:
        eventually(lambda n=number: not told(cluster, n, "orders"), deadline_s=30, what="its end")
    with ZooKeeperClient(cluster.zookeeper.address) as client:
        eventually(
            lambda: not client.exists("/brokers/topics/orders"), deadline_s=30, what="its znode"
        )
    wait_for_all(admin.create_topics([NewTopic("orders", 1, 3)]))
    assert len(told(cluster, asked, "orders")[0][1]) == 3


def test_refusals(cluster: KlogCluster) -> None:
    admin = librdkafkas(cluster)
    wait_for_all(admin.create_topics([NewTopic("taken.name", 1, 1)]))
    for wrong, code in (
        (NewTopic("taken.name", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic("taken_name", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("large", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("no", 1, replica_assignment=[[1, 9]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ):
        [future] = admin.create_topics([wrong]).values()
        assert future.exception(30).args[0].code() == code
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="elsewhere", num_partitions=1, replication_factor=1)]
    )
    answer = call_broker(cluster, other_than_controller(cluster), CreateTopicsResponse, request)
    assert answer.topics[0].error_code == ErrorCode.NOT_CONTROLLER
    # A timeout of 0 means: do not wait for the topic.
    request.timeout_ms = 0
    answer = call_broker(cluster, controller(cluster, 1), CreateTopicsResponse, request)
    assert answer.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    eventually(lambda: told(cluster, 1, "elsewhere"), deadline_s=30, what="the topic")


@pytest.mark.parametrize("is_controller", [True, False])
def test_a_topic_is_made_for_a_producer(cluster: KlogCluster, is_controller: bool) -> None:
    number = controller(cluster, 1) if is_controller else other_than_controller(cluster)
    servers = cluster.broker(number).bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "acks": "1", "message.timeout.ms": 30_000})
    errors: list[Any] = []
    name = f"made-{is_controller}"
    producer.produce(name, b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors == [None]
    assert told(cluster, number, name)


def test_settings_are_changed_anywhere_and_in_force_everywhere(cluster: KlogCluster) -> None:
    admin = librdkafkas(cluster)
    wait_for_all(admin.create_topics([NewTopic("set", 3, 1, config={"retention.ms": "7"})]))

    def described(number: int, kind: Any, name: str, key: str) -> str:
        resource = ConfigResource(kind, name)
        admin = librdkafkas(cluster, number)
        [future] = admin.describe_configs([resource]).values()
        return str(future.result(30)[key].value)

    def everywhere(kind: Any, name: str, key: str, value: str) -> None:
        for number in NUMBERS:
            eventually(
                lambda n=number: described(n, kind, name or str(n), key) == value,
                deadline_s=30,
                what=f"{key}={value} at broker {number}",
            )

    everywhere(ResourceType.TOPIC, "set", "retention.ms", "7")
    for number in NUMBERS:
        entry = ConfigEntry(
            "retention.ms", str(number), incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ResourceType.TOPIC, "set", incremental_configs=[entry])
        admin = librdkafkas(cluster, number)
        wait_for_all(admin.incremental_alter_configs([resource]))
        assert described(number, ResourceType.TOPIC, "set", "retention.ms") == str(number)
        everywhere(ResourceType.TOPIC, "set", "retention.ms", str(number))
    with ZooKeeperClient(cluster.zookeeper.address) as client:
        found = json.loads(client.get("/config/topics/set"))
        assert found == {"version": 1, "config": {"retention.ms": "3"}}
        assert len(client.children(CONFIG_CHANGES)) == 3
        client.set("/config/topics/set", b'{"version":1,"config":{"retention.ms":"99"}}')
        path = f"{CONFIG_CHANGES}/config_change_9999999998"
        client.create(path, b'{"version":2,"entity_path":"topics/set"}')
        everywhere(ResourceType.TOPIC, "set", "retention.ms", "99")
        # Another release, or a tool, has stored values that no broker can use.
        config = {"retention.ms": "98", "of.tomorrow": "1", "segment.bytes": "many"}
        config["unclean.leader.election.enable"] = "perhaps"
        written = json.dumps({"version": 1, "config": config})
        client.set("/config/topics/set", written.encode())
        path = f"{CONFIG_CHANGES}/config_change_9999999999"
        client.create(path, b'{"version":2,"entity_path":"topics/set"}')
    everywhere(ResourceType.TOPIC, "set", "retention.ms", "98")
    assert all(broker.is_running for broker in cluster.brokers)


def test_all_brokers_name_the_same_coordinator_whose_topic_is_fully_replicated(
    cluster: KlogCluster,
) -> None:
    def coordinator_from(number: int) -> tuple[int, int, str]:
        request = find_coordinator.FindCoordinatorRequest(coordinator_keys=["group"])
        answer = call_broker(cluster, number, find_coordinator.FindCoordinatorResponse, request)
        [each] = answer.coordinators
        return each.error_code, each.node_id, f"{each.host}:{each.port}"

    eventually(
        lambda: all(coordinator_from(number)[0] == ErrorCode.NONE for number in NUMBERS),
        deadline_s=60,
        what="a coordinator",
    )
    [one] = {coordinator_from(number) for number in NUMBERS}
    assert one[2] == cluster.broker(one[1]).bootstrap_servers
    rows = told(cluster, 1, "__consumer_offsets")
    assert len(rows) == 50
    assert all(sorted(replicas) == [1, 2, 3] for _, replicas in rows.values())


def test_version_0_has_offsets_in_zookeeper(cluster: KlogCluster) -> None:
    """One broker reads the offsets that another one has written; the coordinator plays no role."""
    admin = librdkafkas(cluster)
    wait_for_all(admin.create_topics([NewTopic("old", 2, 1)]))
    eventually(
        lambda: all(len(told(cluster, number, "old")) == 2 for number in NUMBERS),
        deadline_s=60,
        what="the topic at each broker",
    )

    def call(number: int, request: Any) -> Any:
        host, _, port = cluster.broker(number).bootstrap_servers.partition(":")
        with RawClient((host, int(port))) as client:
            return client.call(request, 0)

    def committed(number: int) -> dict[int, tuple[int, int]]:
        topic = OffsetFetchRequestTopic(name="old", partition_indexes=[0, 1, 2])
        [found] = call(number, OffsetFetchRequest(group_id="g", topics=[topic])).topics
        return {
            each.partition_index: (each.error_code, each.committed_offset)
            for each in found.partitions
        }

    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert committed(1) == dict.fromkeys(range(3), unknown)
    partitions = [
        OffsetCommitRequestPartition(partition_index=each, committed_offset=40 + each)
        for each in (0, 2)
    ]
    topic = OffsetCommitRequestTopic(name="old", partitions=partitions)
    answer = call(2, OffsetCommitRequest(group_id="g", topics=[topic]))
    assert [each.error_code for each in answer.topics[0].partitions] == [0, unknown[0]]
    with ZooKeeperClient(cluster.zookeeper.address) as client:
        assert client.get("/consumers/g/offsets/old/0") == b"40"
    eventually(
        lambda: [committed(number)[0] for number in NUMBERS] == [(0, 40)] * 3,
        deadline_s=30,
        what="the offset at each broker",
    )
    assert committed(1)[1] == unknown


def test_producer_ids_of_all_brokers_are_different(cluster: KlogCluster) -> None:
    def producer_id(number: int) -> int:
        def asked() -> InitProducerIdResponse | None:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
            answer = call_broker(cluster, number, InitProducerIdResponse, request)
            return answer if answer.error_code == ErrorCode.NONE else None

        return eventually(asked, deadline_s=30, what="a producer id").producer_id

    ids = [producer_id(number) for number in NUMBERS * 3]
    assert len(set(ids)) == 9
    assert len({each // 1000 for each in ids}) == 3, "each broker has a block of its own"


def test_preferred_leaders_lead_again_when_they_are_elected(cluster: KlogCluster) -> None:
    admin = librdkafkas(cluster)
    topic = NewTopic("elected", 2, replica_assignment=[[2, 3], [3, 2]])
    wait_for_all(admin.create_topics([topic]))
    write(cluster, "elected", 0)
    cluster.broker(2).stop()
    eventually(lambda: told(cluster, 3, "elected")[0][0] == 3, deadline_s=60, what="another leader")
    cluster.broker(2).start()
    partitions = [TopicPartition("elected", number) for number in (0, 1)]

    def elected() -> bool:
        # The replica may be out of sync for a moment yet: PREFERRED_LEADER_NOT_AVAILABLE.
        admin = librdkafkas(cluster, 3)
        future = admin.elect_leaders(ElectionType.PREFERRED, partitions)
        errors = {each.partition: error for each, error in future.result(30).items()}
        assert errors[1].code() == ErrorCode.ELECTION_NOT_NEEDED
        return errors[0] is None

    eventually(elected, deadline_s=60, what="the election")
    assert told(cluster, controller(cluster, 1), "elected")[0][0] == 2
    write(cluster, "elected", 0)


def test_replicas_out_of_sync_lead_once_all_brokers_allow_it(cluster: KlogCluster) -> None:
    chosen = controller(cluster, 1)
    first, second = (number for number in NUMBERS if number != chosen)
    admin = librdkafkas(cluster, chosen)
    wait_for_all(
        admin.create_topics([NewTopic("unclean", 1, replica_assignment=[[first, second]])])
    )

    def is_led_by(number: int) -> bool:
        return told(cluster, chosen, "unclean")[0][0] == number

    eventually(lambda: is_led_by(first), deadline_s=60, what="a leader")
    cluster.broker(second).stop()
    cluster.broker(first).kill()
    cluster.broker(second).start()
    eventually(lambda: is_led_by(-1), deadline_s=60, what="nobody who may lead")
    entry = AlterableConfig(name="unclean.leader.election.enable", config_operation=0, value="true")
    everybody = AlterConfigsResource(resource_type=4, resource_name="", configs=[entry])
    request = IncrementalAlterConfigsRequest(resources=[everybody])
    answer = call_broker(cluster, second, IncrementalAlterConfigsResponse, request)
    assert [each.error_code for each in answer.responses] == [ErrorCode.NONE]
    eventually(lambda: is_led_by(second), deadline_s=60, what="the other replica leads")
    cluster.broker(first).start()


def write(cluster: KlogCluster, topic: str, partition: int) -> None:
    """Produce a record with acks=all."""
    errors: list[Any] = []
    servers = cluster.broker(3).bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    producer.produce(topic, b"x", partition=partition, on_delivery=lambda e, _: errors.append(e))
    assert producer.flush(30) == 0
    assert errors == [None]
