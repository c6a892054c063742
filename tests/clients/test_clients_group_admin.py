"""Groups in the hands of admin clients: listed, described, their offsets set, deleted, reset."""

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPartition
from kafka.structs import OffsetAndMetadata

from pyspark_klog.client.admin.topics import Admin, NewTopic
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually

NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, GROUP_SUBSCRIBED_TO_TOPIC = 68, 69, 86
PARTITIONS = 3


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 5}
    with BrokerProcess(tmp_path_factory.mktemp("group-admin") / "data", settings) as running:
        with Admin(running.bootstrap_servers) as admin:
            names = ["orders", "audit"]
            admin.create_topics(NewTopic(name, PARTITIONS, 1) for name in names)
        yield running


@pytest.fixture
def confluent(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def kafka_python(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    yield admin
    admin.close()


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def commit(broker: BrokerProcess, group: str) -> None:
    """Offsets 5, 6 and 7 of both topics."""
    consumer = ConfluentConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    offsets = [
        ConfluentPartition(topic, number, 5 + number)
        for topic in ("orders", "audit")
        for number in range(PARTITIONS)
    ]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def joined(broker: BrokerProcess, group: str) -> ConfluentConsumer:
    """Return a member that has subscribed to `orders`."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group}
    member = ConfluentConsumer(settings)
    member.subscribe(["orders"])

    def has_partitions() -> bool:
        member.poll(0.1)
        return len(member.assignment()) == PARTITIONS

    eventually(has_partitions, deadline_s=30, what="the member has its partitions")
    return member


def committed(admin: AdminClient, group: str) -> dict[tuple[str, int], int]:
    asked = ConsumerGroupTopicPartitions(group)
    (future,) = admin.list_consumer_group_offsets([asked], require_stable=True).values()
    found = future.result(20).topic_partitions
    return {(each.topic, each.partition): each.offset for each in found}


def test_librdkafka_deletes_groups(
    broker: BrokerProcess, confluent: AdminClient, group: str
) -> None:
    for each in (group, f"{group}-2"):
        commit(broker, each)
    busy = joined(broker, f"{group}-busy")
    names = [group, f"{group}-2", f"{group}-busy", f"{group}-missing"]
    futures = confluent.delete_consumer_groups(names)
    codes = []
    for name in names:
        try:
            futures[name].result(20)
            codes.append(0)
        except KafkaException as error:
            codes.append(error.args[0].code())
    assert codes == [0, 0, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND]
    busy.close()
    listed = confluent.list_consumer_groups().result(20).valid
    assert {each.group_id for each in listed} & set(names) == {f"{group}-busy"}
    assert committed(confluent, group) == {}


def test_librdkafka_lists_by_state_and_describes(
    broker: BrokerProcess, confluent: AdminClient, group: str
) -> None:
    commit(broker, group)
    member = joined(broker, f"{group}-busy")

    def listed(state: ConsumerGroupState) -> set[str]:
        found = confluent.list_consumer_groups(states={state}).result(20)
        assert not found.errors
        return {each.group_id for each in found.valid}

    assert group in listed(ConsumerGroupState.EMPTY) - listed(ConsumerGroupState.STABLE)
    assert f"{group}-busy" in listed(ConsumerGroupState.STABLE)
    described = confluent.describe_consumer_groups(
        [group, f"{group}-busy"], include_authorized_operations=True
    )
    empty, busy = (described[name].result(20) for name in (group, f"{group}-busy"))
    assert (empty.state, busy.state) == (ConsumerGroupState.EMPTY, ConsumerGroupState.STABLE)
    (told,) = busy.members
    assert {each.partition for each in told.assignment.topic_partitions} == set(range(PARTITIONS))
    assert {each.name for each in busy.authorized_operations} >= {"READ", "DELETE", "DESCRIBE"}
    member.close()


def test_librdkafka_sets_offsets(broker: BrokerProcess, confluent: AdminClient, group: str) -> None:
    commit(broker, group)
    wanted = ConsumerGroupTopicPartitions(group, [ConfluentPartition("orders", 0, 50)])
    (future,) = confluent.alter_consumer_group_offsets([wanted]).values()
    assert [each.error for each in future.result(20).topic_partitions] == [None]
    found = committed(confluent, group)
    assert found["orders", 0] == 50
    assert found["audit", 2] == 7


def test_kafka_python_deletes_resets_and_sets(
    broker: BrokerProcess, kafka_python: KafkaAdminClient, group: str
) -> None:
    commit(broker, group)
    orders, audit = KafkaPartition("orders", 0), KafkaPartition("audit", 1)
    kafka_python.alter_group_offsets(group, {orders: OffsetAndMetadata(60, "set", -1)})
    assert kafka_python.list_group_offsets([group])[group][orders].offset == 60
    member = joined(broker, group)
    gone = kafka_python.delete_group_offsets(group, [orders, audit])
    codes = {where: getattr(error, "errno", error) for where, error in gone.items()}
    assert codes[orders] == GROUP_SUBSCRIBED_TO_TOPIC
    assert not codes[audit]
    left = kafka_python.list_group_offsets([group])[group]
    assert orders in left
    assert audit not in left
    member.close()
    result = kafka_python.delete_groups([group, f"{group}-missing"])
    assert {name: getattr(code, "errno", code) for name, code in dict(result).items()} == {
        group: "OK",
        f"{group}-missing": "GroupIdNotFoundError",
    }
    assert not kafka_python.list_group_offsets([group])[group]


def test_kafka_python_lists_by_type(
    broker: BrokerProcess, kafka_python: KafkaAdminClient, group: str
) -> None:
    commit(broker, group)
    by_type = {
        kind: {each["group_id"] for each in kafka_python.list_groups(types_filter=[kind])}
        for kind in ("classic", "consumer")
    }
    assert group in by_type["classic"]
    assert by_type["consumer"] == set()


def test_aiokafka_sees_groups(broker: BrokerProcess, group: str) -> None:
    commit(broker, group)

    async def look() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        await admin.start()
        try:
            listed = await admin.list_consumer_groups()
            assert group in {each[0] for each in listed}
            offsets = await admin.list_consumer_group_offsets(group)
            assert sorted((*where, each.offset) for where, each in offsets.items()) == [
                (topic, number, 5 + number)
                for topic in ("audit", "orders")
                for number in range(PARTITIONS)
            ]
            (described,) = await admin.describe_consumer_groups([group])
            assert described.groups[0][2] == "Empty"
        finally:
            await admin.close()

    asyncio.run(look())
