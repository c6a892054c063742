"""Faults of a test's broker, as Kafka's Java clients notice them."""

import re

import pytest

from pyspark_klog import testing
from tests.support.peers import NEWEST_KAFKA, run_tool

pytestmark = pytest.mark.peers

TOPIC = "java"
RECORDS = 100


def run(tool: str, *arguments: str) -> str:
    """Return the output of one of Kafka's tools, which must exit with 0."""
    result = run_tool(NEWEST_KAFKA, f"org.apache.kafka.tools.{tool}", arguments, timeout_s=120)
    assert result.returncode == 0, result.stdout[-2_000:] + result.stderr[-2_000:]
    return result.stdout


def test_javas_clients_go_on_after_each_fault() -> None:
    with testing.Broker(num_partitions=1, offsets_topic_num_partitions=1) as broker:
        servers, faults = broker.bootstrap_servers, broker.faults
        of_producer = [
            faults.answer("Metadata", "LEADER_NOT_AVAILABLE", topic=TOPIC),
            faults.answer("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS"),
            faults.answer("Produce", "NOT_LEADER_OR_FOLLOWER", topic=TOPIC, partition=0),
            faults.disconnect("Produce", after=True),
        ]
        produced = run(
            "ProducerPerformance",
            *("--topic", TOPIC, "--num-records", str(RECORDS), "--payload-monotonic"),
            *("--throughput", "-1", "--command-property", f"bootstrap.servers={servers}"),
            # With several requests in flight, Kafka accepts the second one of a new producer id
            # after it has refused the first one, and the records change their order.
            "max.in.flight.requests.per.connection=1",
        )
        assert re.search(rf"^{RECORDS} records sent, ", produced, re.M), produced
        of_consumer = [
            faults.answer("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS"),
            faults.disconnect("SyncGroup", before=True),
            faults.delay("Fetch", 50, times=1),
            faults.answer("Fetch", "NOT_LEADER_OR_FOLLOWER", topic=TOPIC, partition=0),
            faults.answer("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", topic=TOPIC, partition=0),
        ]
        consumed = run(
            "consumer.ConsoleConsumer",
            *("--bootstrap-server", servers, "--topic", TOPIC, "--group", "g", "--from-beginning"),
            *("--max-messages", str(RECORDS), "--timeout-ms", "60000"),
        )
        assert consumed.split() == [str(number) for number in range(RECORDS)]
        assert [each.fired for each in of_producer + of_consumer] == [1] * 9
