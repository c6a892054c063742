"""Records, directories, settings and leaders in the hands of admin clients."""

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import TopicPartition as AioPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.records_to_delete import RecordsToDelete
from confluent_kafka import ElectionType, KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPartition
from kafka.admin import ConfigResource as KafkaResource
from kafka.admin import ConfigResourceType
from kafka.errors import InvalidUpdateVersionError, PolicyViolationError

from tests.support.broker_process import BrokerProcess
from tests.support.raw_client import RawClient
from tests.support.raw_requests import batch, create_topic, produced

OFFSET_OUT_OF_RANGE, POLICY_VIOLATION, SECURITY_DISABLED = 1, 44, 54
ELECTION_NOT_NEEDED, RESOURCE_NOT_FOUND = 84, 91
RECORDS = 10


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("admin") / "data") as running:
        with RawClient(running.address) as client:
            create_topic(client, "compacted", 1, cleanup_policy="compact")
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
def topic(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own: three partitions, the first one with records."""
    name = str(request.node.name)
    with RawClient(broker.address) as client:
        create_topic(client, name, 3)
        produced(client, name, batch(*[b"x"] * RECORDS), version=9)
    return name


def failure(error: BaseException | None) -> int:
    assert isinstance(error, KafkaException)
    return int(error.args[0].code())


def test_librdkafka_deletes_records(confluent: AdminClient, topic: str) -> None:
    asked = [
        ConfluentPartition(topic, 0, 4),
        ConfluentPartition(topic, 1, -1),
        ConfluentPartition(topic, 2, 99),
        ConfluentPartition("compacted", 0, 0),
    ]
    futures = confluent.delete_records(asked)
    assert futures[asked[0]].result(20).low_watermark == 4
    assert futures[asked[1]].result(20).low_watermark == 0
    assert failure(futures[asked[2]].exception(20)) == OFFSET_OUT_OF_RANGE
    assert failure(futures[asked[3]].exception(20)) == POLICY_VIOLATION


def test_kafka_python_deletes_records(kafka_python: KafkaAdminClient, topic: str) -> None:
    where = KafkaPartition(topic, 0)
    assert kafka_python.delete_records({where: 7})[where]["low_watermark"] == 7
    with pytest.raises(PolicyViolationError):
        kafka_python.delete_records({KafkaPartition("compacted", 0): 0})


def test_aiokafka_deletes_records(broker: BrokerProcess, topic: str) -> None:
    where = AioPartition(topic, 0)

    async def delete() -> dict[AioPartition, int]:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        await admin.start()
        try:
            found: dict[AioPartition, int] = await admin.delete_records({where: RecordsToDelete(9)})
            return found
        finally:
            await admin.close()

    assert asyncio.run(delete()) == {where: 9}


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
def test_librdkafka_replaces_settings(confluent: AdminClient, topic: str) -> None:
    def own() -> dict[str, str]:
        (future,) = confluent.describe_configs(
            [ConfigResource(ConfigResource.Type.TOPIC, topic)]
        ).values()
        return {name: each.value for name, each in future.result(20).items() if each.source == 1}

    for given in ({"retention.ms": "5", "flush.ms": "7"}, {"flush.ms": "8"}, {}):
        asked = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config=given)
        (future,) = confluent.alter_configs([asked]).values()
        assert future.result(20) is None
        assert own() == given


def test_kafka_python_replaces_settings(kafka_python: KafkaAdminClient, topic: str) -> None:
    asked = KafkaResource(ConfigResourceType.TOPIC, topic, {"flush.ms": "8"})
    found = kafka_python.alter_configs([asked], incremental=False)
    assert found == {"topic": {topic: "OK"}}


def test_librdkafka_changes_a_brokers_settings(confluent: AdminClient) -> None:
    this = ConfigResource(ConfigResource.Type.BROKER, "0")

    def told() -> tuple[str, int, list[str]]:
        (future,) = confluent.describe_configs([this]).values()
        found = future.result(20)["log.roll.ms"]
        return found.value, found.source, list(found.synonyms)

    for operation, value, expected in (
        (AlterConfigOpType.SET, "5000", ("5000", 2, ["log.roll.ms", "log.roll.hours"])),
        (AlterConfigOpType.DELETE, None, (None, 5, [])),
    ):
        entry = ConfigEntry("log.roll.ms", value, incremental_operation=operation)
        asked = ConfigResource(ConfigResource.Type.BROKER, "0", incremental_configs=[entry])
        (future,) = confluent.incremental_alter_configs([asked]).values()
        assert future.result(20) is None
        assert told() == expected


def test_kafka_python_changes_a_brokers_settings(kafka_python: KafkaAdminClient) -> None:
    asked = KafkaResource(ConfigResourceType.BROKER, "0", {"log.segment.bytes": "1048576"})
    assert kafka_python.alter_configs([asked]) == {"broker": {"0": "OK"}}
    this = KafkaResource(ConfigResourceType.BROKER, "0")
    found = kafka_python.describe_configs([this])["broker"]["0"]["log.segment.bytes"]
    assert (found["value"], found["config_source"]) == ("1048576", "DYNAMIC_BROKER_CONFIG")
    assert kafka_python.reset_configs([asked]) == {"broker": {"0": "OK"}}
    found = kafka_python.describe_configs([this])["broker"]["0"]
    assert "log.segment.bytes" not in found


def test_librdkafka_elects_no_leader(confluent: AdminClient, topic: str) -> None:
    for election in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        asked = [ConfluentPartition(topic, number) for number in range(3)]
        found = confluent.elect_leaders(election, asked).result(20)
        assert [error.code() for error in found.values()] == [ELECTION_NOT_NEEDED] * 3
        assert confluent.elect_leaders(election, None).result(20) == {}


def test_kafka_python_moves_nothing(kafka_python: KafkaAdminClient, topic: str) -> None:
    found = kafka_python.elect_leaders(0, {topic: [0]}, raise_errors=False)
    (row,) = found.replica_election_results[0].partition_result
    assert row.error_code == ELECTION_NOT_NEEDED
    here, elsewhere, none = (KafkaPartition(topic, number) for number in range(3))
    outcomes = kafka_python.alter_partition_reassignments({here: [0], elsewhere: [9], none: None})
    assert outcomes[here] is None
    assert outcomes[elsewhere].__name__ == "InvalidReplicationAssignmentError"
    assert outcomes[none].__name__ == "NoReassignmentInProgressError"
    assert kafka_python.list_partition_reassignments() == {}


def test_kafka_python_describes_directories(kafka_python: KafkaAdminClient, topic: str) -> None:
    (broker,) = kafka_python.describe_log_dirs({topic: [0, 1]})
    (directory,) = broker["log_dirs"]
    (described,) = directory["topics"]
    sizes = {each["partition_index"]: each["partition_size"] for each in described["partitions"]}
    assert set(sizes) == {0, 1}
    assert sizes[0] > sizes[1] == 0
    assert 0 < directory["usable_bytes"] < directory["total_bytes"]


def test_kafka_python_pages_through_topics(kafka_python: KafkaAdminClient, topic: str) -> None:
    first = kafka_python.describe_topic_partitions([topic], response_partition_limit=2)
    assert first["next_cursor"] == {"topic_name": topic, "partition_index": 2}
    rest = kafka_python.describe_topic_partitions([topic], cursor=first["next_cursor"])
    assert rest["next_cursor"] is None
    pages = [page["topics"][0]["partitions"] for page in (first, rest)]
    numbers = [[each["partition_index"] for each in page] for page in pages]
    assert numbers == [[0, 1], [2]]
    assert {each["leader_id"] for page in pages for each in page} == {0}


def test_kafka_python_lists_resources(kafka_python: KafkaAdminClient, topic: str) -> None:
    found = kafka_python.list_config_resources()
    assert found["broker"] == ["0"]
    assert {topic, "compacted"} <= set(found["topic"])
    assert set(kafka_python.list_config_resources(["TOPIC"])) == {"topic"}


def test_librdkafka_gets_security_disabled(confluent: AdminClient) -> None:
    rule = AclBinding(
        ResourceType.TOPIC,
        "x",
        ResourcePatternType.LITERAL,
        "User:a",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    (made,) = confluent.create_acls([rule]).values()
    assert failure(made.exception(20)) == SECURITY_DISABLED
    assert confluent.describe_user_scram_credentials().result(20) == {}
    (described,) = confluent.describe_user_scram_credentials(["a"]).values()
    assert failure(described.exception(20)) == RESOURCE_NOT_FOUND


def test_kafka_python_updates_no_feature(kafka_python: KafkaAdminClient) -> None:
    assert kafka_python.update_features({"transaction.version": 2}) == {"transaction.version": "OK"}
    with pytest.raises(InvalidUpdateVersionError):
        kafka_python.update_features({"transaction.version": 3})
