"""Consumer groups by the clients that people use: join, share, leave, commit and resume."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPartition
from kafka.structs import OffsetAndMetadata

from tests.support.broker_process import BrokerProcess
from tests.support.client.group_member import joined_member
from tests.support.eventually import eventually

RECORDS = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "num.partitions": 4,
        "group.initial.rebalance.delay.ms": 100,
        "group.min.session.timeout.ms": 1_000,
        "offsets.topic.num.partitions": 5,
    }
    with BrokerProcess(tmp_path_factory.mktemp("clients") / "data", settings) as running:
        yield running


@pytest.fixture
def topic(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    """A topic of four partitions with RECORDS records, numbered from 0, spread evenly."""
    name = request.node.name.replace("[", "-").replace("]", "")
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for number in range(RECORDS):
        producer.send(name, value=str(number).encode(), partition=number % 4)
    producer.flush()
    producer.close()
    return name


# Each of these functions reads ``count`` values in a group, commits, leaves, and returns them.


def read_confluent(servers: str, topic: str, group: str, count: int) -> list[bytes]:
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.auto.offset.store": True,
        }
    )
    consumer.subscribe([topic])
    values: list[bytes] = []

    def enough() -> bool:
        for message in consumer.consume(count - len(values), timeout=0.2):
            assert message.error() is None, message.error()
            values.append(message.value())
        return len(values) == count

    eventually(enough, deadline_s=30, what="the records come")
    consumer.commit(asynchronous=False)
    consumer.close()
    return values


def read_kafka_python(servers: str, topic: str, group: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=1,
        consumer_timeout_ms=30_000,
    )
    values = []
    for message in consumer:
        values.append(message.value)
        if len(values) == count:
            break
    consumer.commit()
    consumer.close()
    return values


def read_aiokafka(servers: str, topic: str, group: str, count: int) -> list[bytes]:
    async def read() -> list[bytes]:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        try:
            values = []
            while len(values) < count:
                message = await asyncio.wait_for(consumer.getone(), 30)
                values.append(message.value)
            await consumer.commit()
            return values
        finally:
            await consumer.stop()

    return asyncio.run(read())


Reader = Callable[[str, str, str, int], list[bytes]]
READERS: list[Reader] = [read_confluent, read_kafka_python, read_aiokafka]


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_a_consumer_resumes_where_its_group_left_off(
    broker: BrokerProcess, topic: str, read: Reader
) -> None:
    first = read(broker.bootstrap_servers, topic, topic, 25)
    rest = read(broker.bootstrap_servers, topic, topic, RECORDS - 25)
    assert sorted(first + rest, key=int) == [str(n).encode() for n in range(RECORDS)]


@pytest.mark.parametrize("first", READERS, ids=lambda read: read.__name__)
@pytest.mark.parametrize("then", READERS, ids=lambda read: read.__name__)
def test_one_client_goes_on_where_another_one_stopped(
    broker: BrokerProcess, topic: str, first: Reader, then: Reader
) -> None:
    group = f"handover-{first.__name__}-{then.__name__}"
    values = first(broker.bootstrap_servers, topic, group, 30)
    values += then(broker.bootstrap_servers, topic, group, 30)
    assert sorted(values, key=int) == [str(n).encode() for n in range(RECORDS)]


def test_two_members_share_the_partitions_and_one_takes_over_when_the_other_leaves(
    broker: BrokerProcess, topic: str
) -> None:
    def member() -> ConfluentConsumer:
        consumer = ConfluentConsumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "shared",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 200,
                "partition.assignment.strategy": "roundrobin",
            }
        )
        consumer.subscribe([topic])
        return consumer

    def assigned(consumer: ConfluentConsumer) -> set[int]:
        consumer.poll(0.05)
        return {each.partition for each in consumer.assignment()}

    one, two = member(), member()
    eventually(
        lambda: (len(assigned(one)), len(assigned(two))) == (2, 2),
        deadline_s=30,
        what="two each",
    )
    assert assigned(one) | assigned(two) == {0, 1, 2, 3}
    two.close()
    eventually(lambda: len(assigned(one)) == 4, deadline_s=30, what="one has all")
    one.close()


def test_static_members_come_back_to_their_partitions_without_a_rebalance(
    broker: BrokerProcess, topic: str
) -> None:
    """One is restarted in another client's shoes; the other one never hears of it."""
    rebalances: list[int] = []

    def confluent(instance: str) -> ConfluentConsumer:
        consumer = ConfluentConsumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "static",
                "group.instance.id": instance,
                "session.timeout.ms": 60_000,
                "heartbeat.interval.ms": 200,
                "partition.assignment.strategy": "roundrobin",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([topic], on_assign=lambda _, parts: rebalances.append(len(parts)))
        return consumer

    def assigned(consumer: ConfluentConsumer) -> set[int]:
        consumer.poll(0.05)
        return {each.partition for each in consumer.assignment()}

    async def as_aiokafka(instance: str) -> set[int]:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap_servers,
            group_id="static",
            group_instance_id=instance,
            session_timeout_ms=60_000,
        )
        await consumer.start()
        try:
            while not consumer.assignment():
                await asyncio.wait_for(consumer.getmany(timeout_ms=100), 30)
            return {each.partition for each in consumer.assignment()}
        finally:
            await consumer.stop()

    one, two = confluent("one"), confluent("two")
    eventually(
        lambda: (len(assigned(one)), len(assigned(two))) == (2, 2),
        deadline_s=60,
        what="two each",
    )
    mine, theirs = assigned(one), assigned(two)
    two.close()
    rebalances.clear()
    again = confluent("two")
    eventually(lambda: assigned(again) == theirs, deadline_s=60, what="it has its place again")
    again.close()
    assert asyncio.run(as_aiokafka("two")) == theirs
    assert assigned(one) == mine
    assert rebalances == [2], "only the one that was restarted was given partitions"
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    described = admin.describe_groups(["static"])["static"]
    admin.close()
    assert described["group_state"] == "Stable"
    assert {each["group_instance_id"] for each in described["members"]} == {"one", "two"}
    one.close()


def test_a_member_that_dies_is_replaced_after_its_session(
    broker: BrokerProcess, topic: str
) -> None:
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "mortal",
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 300,
    }
    silent = joined_member(
        broker.bootstrap_servers,
        topic,
        "mortal",
        session_timeout_ms=1_500,
        heartbeat_interval_ms=300,
    )
    # The client stops without a further request, even without LeaveGroup.
    silent._client.close()
    heir = ConfluentConsumer(settings)
    heir.subscribe([topic])

    def has_all() -> bool:
        heir.poll(0.1)
        return len(heir.assignment()) == 4

    eventually(has_all, deadline_s=40, what="the heir has all partitions")
    heir.close()


def test_admin_clients_see_groups_and_their_lag(broker: BrokerProcess, topic: str) -> None:
    read_confluent(broker.bootstrap_servers, topic, "seen", 10)
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    offsets = admin.list_group_offsets(["seen"])["seen"]
    assert sum(each.offset for p, each in offsets.items() if p.topic == topic) == 10
    assert "seen" in {each["group_id"] for each in admin.list_groups()}
    admin.close()


@pytest.mark.parametrize("version", [(0, 9), (0, 10), (0, 11), (2, 0)])
def test_old_protocol_versions_of_kafka_python(
    broker: BrokerProcess, topic: str, version: tuple[int, ...]
) -> None:
    group = "old-" + "-".join(map(str, version))
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group,
        api_version=version,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=30_000,
    )
    values = []
    for message in consumer:
        values.append(message.value)
        if len(values) == RECORDS:
            break
    consumer.commit()
    partition = KafkaPartition(topic, 0)
    assert consumer.committed(partition) == RECORDS // 4
    consumer.close()
    assert sorted(values, key=int) == [str(n).encode() for n in range(RECORDS)]


def test_offsets_without_a_group_by_commits_of_a_simple_consumer(
    broker: BrokerProcess, topic: str
) -> None:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id="simple")
    partition = KafkaPartition(topic, 1)
    consumer.assign([partition])
    consumer.commit({partition: OffsetAndMetadata(7, "note", -1)})
    consumer.close()
    again = ConfluentConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "simple"})
    (found,) = again.committed([ConfluentPartition(topic, 1)], timeout=10)
    assert found.offset == 7
    again.close()
    # confluent-kafka reads past the end of the metadata (it is not terminated): asked elsewhere.
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    assert admin.list_group_offsets(["simple"])["simple"][partition].metadata == "note"
    admin.close()
