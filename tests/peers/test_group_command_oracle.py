"""Kafka's ConsumerGroupCommand on klog and on Apache Kafka prints the same of the same groups."""

import re
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from pyspark_klog.client.admin.topics import Admin, NewTopic
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, KafkaServer, run_tool

COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2"}
TOPICS = {"orders": 2, "audit": 1}
RECORDS = 5

# The order matters: later commands show the changes of earlier ones.
COMMANDS = [
    "--list",
    "--list --state",
    "--list --state stable",
    "--list --type",
    "--list --type consumer",
    "--describe --group idle",
    "--describe --group idle --state",
    "--describe --group busy --members --verbose",
    "--describe --group missing",
    "--delete-offsets --group busy --topic orders --topic audit",
    "--delete-offsets --group idle --topic orders:1",
    "--delete-offsets --group missing --topic orders",
    "--reset-offsets --group idle --topic orders --to-earliest --execute",
    "--reset-offsets --group idle --all-topics --to-latest --dry-run",
    "--reset-offsets --group new --topic audit --to-offset 2 --execute",
    "--reset-offsets --group busy --topic orders --to-latest --execute",
    "--describe --all-groups",
    "--delete --group busy --group new --group missing",
    "--delete --group idle",
    "--list",
]


def prepare(servers: str) -> confluent_kafka.Consumer:
    """Records, a group without members, and one with the member that is returned."""
    with Admin(servers) as admin:
        admin.create_topics(NewTopic(name, count, 1) for name, count in TOPICS.items())
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for topic, count in TOPICS.items():
        for number in range(RECORDS * count):
            producer.produce(topic, b"value", partition=number % count)
    assert producer.flush(30) == 0
    for group in ("idle", "busy"):
        settings = {"bootstrap.servers": servers, "group.id": group}
        consumer = confluent_kafka.Consumer(settings)
        offsets = [
            confluent_kafka.TopicPartition(topic, number, 3)
            for topic, count in TOPICS.items()
            for number in range(count)
        ]
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()
    settings = {"client.id": "member", "enable.auto.commit": "false"}
    member = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "busy", **settings}
    )
    member.subscribe(["orders"])

    def has_partitions() -> bool:
        member.poll(0.1)
        return len(member.assignment()) == TOPICS["orders"]

    eventually(has_partitions, deadline_s=60, what="the member has its partitions")
    return member


def printed(version: str, servers: str, command: str) -> list[str]:
    """Return the command with its exit code, and its output lines, sorted, without random ids."""
    arguments = ["--bootstrap-server", servers, *command.split()]
    result = run_tool(version, COMMAND, arguments)
    text = result.stdout.replace(servers, "the broker")
    text = re.sub(r"member-[0-9a-f-]{36}", "member-id", text)
    # Each broker has its own error texts.
    text = re.sub(r"(GroupIdNotFoundException: ).*", r"\1...", text)
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [f"{command}: {result.returncode}", *sorted(line for line in lines if line)]


def transcript(version: str, servers: str) -> list[str]:
    member = prepare(servers)
    try:
        return [line for each in COMMANDS for line in printed(version, servers, each)]
    finally:
        member.close()


@pytest.fixture(params=[NEWEST_KAFKA, OLDEST_KAFKA])
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaServer]:
    with KafkaServer(request.param, properties=SETTINGS) as server:
        yield server


def test_the_tool_prints_the_same(kafka: KafkaServer, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", SETTINGS) as broker:
        klogs = transcript(kafka.version, broker.bootstrap_servers)
    kafkas = transcript(kafka.version, kafka.bootstrap_servers)
    assert any("GroupSubscribedToTopicException" in line for line in klogs)
    assert "\n".join(klogs) == "\n".join(kafkas)
