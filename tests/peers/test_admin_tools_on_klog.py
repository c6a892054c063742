"""Apache Kafka's admin tools on klog's broker: records deleted, directories, leaders, settings."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.peers import KAFKA_4_4, NEWEST_KAFKA, OLDEST_KAFKA, run_tool
from tests.support.raw_client import RawClient
from tests.support.raw_requests import batch, create_topic, produced

pytestmark = pytest.mark.peers

VERSIONS = [OLDEST_KAFKA, NEWEST_KAFKA, KAFKA_4_4]
DELETE = "org.apache.kafka.tools.DeleteRecordsCommand"
DIRECTORIES = "org.apache.kafka.tools.LogDirsCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
MOVES = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
CONFIGS = dict.fromkeys(VERSIONS, "kafka.admin.ConfigCommand") | {
    KAFKA_4_4: "org.apache.kafka.tools.ConfigCommand"
}
ACLS = dict.fromkeys(VERSIONS, "org.apache.kafka.tools.AclCommand") | {
    OLDEST_KAFKA: "kafka.admin.AclCommand"
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("tools") / "data") as running:
        with RawClient(running.address) as client:
            for version in VERSIONS:
                name = topic_of(version)
                create_topic(client, name, 3)
                produced(client, name, batch(*[b"x"] * 10), version=9)
            create_topic(client, "compacted", 1, cleanup_policy="compact")
        yield running


def topic_of(version: str) -> str:
    return f"orders-{version}"


def run(version: str, broker: BrokerProcess, main_class: str, *arguments: str) -> str:
    """Return all output of the tool."""
    result = run_tool(
        version, main_class, ["--bootstrap-server", broker.bootstrap_servers, *arguments]
    )
    return result.stdout + result.stderr


def written(folder: Path, content: object) -> str:
    path = folder / "asked.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def partitions(version: str) -> list[dict[str, object]]:
    return [{"topic": topic_of(version), "partition": number} for number in range(3)]


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_deleted(broker: BrokerProcess, tmp_path: Path, version: str) -> None:
    topic = topic_of(version)
    rows = [
        {"topic": topic, "partition": 0, "offset": 4},
        {"topic": topic, "partition": 1, "offset": -1},
        {"topic": topic, "partition": 2, "offset": 5},
        {"topic": "compacted", "partition": 0, "offset": 0},
    ]
    asked = written(tmp_path, {"partitions": rows, "version": 1})
    output = run(version, broker, DELETE, "--offset-json-file", asked)
    assert re.search(rf"partition: {topic}-0\s+low_watermark: 4", output), output
    assert re.search(rf"partition: {topic}-1\s+low_watermark: 0", output), output
    assert re.search(rf"partition: {topic}-2\s+error: .*OffsetOutOfRange", output), output
    assert re.search(r"partition: compacted-0\s+error: .*PolicyViolation", output), output
    earliest = run(version, broker, OFFSETS, "--topic", topic, "--time", "earliest")
    assert f"{topic}:0:4\n" in earliest


@pytest.mark.parametrize("version", VERSIONS)
def test_directories_are_described(broker: BrokerProcess, version: str) -> None:
    topic = topic_of(version)
    output = run(version, broker, DIRECTORIES, "--describe", "--topic-list", topic)
    line = next(each for each in output.splitlines() if each.startswith("{"))
    (directory,) = json.loads(line)["brokers"][0]["logDirs"]
    assert directory["error"] is None
    assert directory["logDir"].endswith("/data")
    sizes = {each["partition"]: each["size"] for each in directory["partitions"]}
    assert set(sizes) == {f"{topic}-{number}" for number in range(3)}
    assert sizes[f"{topic}-0"] > 0 == sizes[f"{topic}-1"]
    assert {(each["offsetLag"], each["isFuture"]) for each in directory["partitions"]} == {
        (0, False)
    }


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("election", ["preferred", "unclean"])
def test_no_leader_is_elected(
    broker: BrokerProcess, tmp_path: Path, version: str, election: str
) -> None:
    asked = written(tmp_path, {"partitions": partitions(version)})
    options = ("--election-type", election, "--path-to-json-file", asked)
    output = run(version, broker, ELECTION, *options)
    assert re.search(r"Valid replica already elected for partitions? ", output), output
    for number in range(3):
        assert f"{topic_of(version)}-{number}" in output
    everything = run(
        version, broker, ELECTION, "--election-type", election, "--all-topic-partitions"
    )
    assert "Exception" not in everything


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_stay_where_they_are(
    broker: BrokerProcess, tmp_path: Path, version: str
) -> None:
    rows = [each | {"replicas": [0]} for each in partitions(version)]
    asked = written(tmp_path, {"partitions": rows, "version": 1})
    options = ("--reassignment-json-file", asked)
    output = run(version, broker, MOVES, "--execute", *options)
    assert "Successfully started partition reassignments" in output, output
    output = run(version, broker, MOVES, "--verify", *options)
    assert f"Reassignment of partition {topic_of(version)}-0 is completed." in output, output
    assert "No partition reassignments found." in run(version, broker, MOVES, "--list")


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_are_described_page_by_page(broker: BrokerProcess, version: str) -> None:
    """Kafka's tools ask with DescribeTopicPartitions where a broker serves it."""
    limit = ("--partition-size-limit-per-response", "2")
    output = run(version, broker, TOPICS, "--describe", "--topic", topic_of(version), *limit)
    for number in range(3):
        assert re.search(rf"Partition: {number}\s+Leader: 0\s+Replicas: 0\s+Isr: 0", output), output


@pytest.mark.parametrize("version", VERSIONS)
def test_there_are_no_acls(broker: BrokerProcess, version: str) -> None:
    assert "SecurityDisabledException" in run(version, broker, ACLS[version], "--list")


def configs(version: str, broker: BrokerProcess, *arguments: str) -> str:
    return run(version, broker, CONFIGS[version], *arguments)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_brokers_settings_are_changed(broker: BrokerProcess, version: str) -> None:
    one = ("--entity-type", "brokers", "--entity-name", "0")
    everybody = ("--entity-type", "brokers", "--entity-default")
    change = ("--alter", "--add-config")
    output = configs(version, broker, *everybody, *change, "log.roll.ms=7000,num.io.threads=9")
    assert "Completed updating default config for brokers in the cluster." in output, output
    output = configs(version, broker, *one, *change, "log.roll.ms=5000")
    assert "Completed updating config for broker 0." in output, output
    output = configs(version, broker, *one, "--describe")
    assert re.search(
        r"log\.roll\.ms=5000 sensitive=false synonyms=\{DYNAMIC_BROKER_CONFIG:log\.roll\.ms=5000,"
        r" DYNAMIC_DEFAULT_BROKER_CONFIG:log\.roll\.ms=7000, DEFAULT_CONFIG:log\.roll\.hours=168\}",
        output,
    ), output
    output = configs(version, broker, *everybody, "--describe")
    assert "num.io.threads=9 sensitive=false" in output, output
    output = configs(version, broker, *one, "--describe", "--all")
    assert "node.id=0 sensitive=false" in output, output
    refused = configs(version, broker, *one, *change, "num.partitions=5")
    assert "cannot be changed while the broker runs" in refused, refused
    for whose, names in ((one, "log.roll.ms"), (everybody, "log.roll.ms,num.io.threads")):
        output = configs(version, broker, *whose, "--alter", "--delete-config", names)
        assert "Completed updating" in output, output
    output = configs(version, broker, *everybody, "--describe")
    assert "synonyms" not in output, output


@pytest.mark.parametrize("version", VERSIONS)
def test_quotas_are_set(broker: BrokerProcess, version: str) -> None:
    whose = ("--entity-type", "users", "--entity-name", "ann", "--entity-type", "clients")
    quotas = "producer_byte_rate=1024,request_percentage=12.5"
    output = configs(version, broker, *whose, "--entity-default", "--alter", "--add-config", quotas)
    assert "Completed updating config for user ann." in output, output
    output = configs(version, broker, *whose, "--entity-default", "--describe")
    assert "user-principal 'ann', the default client-id are" in output, output
    assert "producer_byte_rate=1024.0" in output, output
    assert "request_percentage=12.5" in output, output
    address = ("--entity-type", "ips", "--entity-name", "10.0.0.1")
    rate = ("--add-config", "connection_creation_rate=5")
    assert "Completed updating" in configs(version, broker, *address, "--alter", *rate)
    described = configs(version, broker, "--entity-type", "ips", "--describe")
    assert "ip '10.0.0.1' are connection_creation_rate=5.0" in described, described
    deleted = ("--delete-config", "producer_byte_rate,request_percentage")
    assert "Completed updating" in configs(
        version, broker, *whose, "--entity-default", "--alter", *deleted
    )
    deleted = ("--delete-config", "connection_creation_rate")
    assert "Completed updating" in configs(version, broker, *address, "--alter", *deleted)
    described = configs(version, broker, "--entity-type", "users", "--describe")
    assert "ann" not in described, described
