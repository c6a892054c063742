"""Kafka's Java clients with all defaults on klog, and tools that are clients of their own."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.client.cases import new_topic
from tests.support.peers import KAFKA_4_4, NEWEST_KAFKA, OLDEST_KAFKA, run_tool
from tests.support.protocol.kafka_definitions import run_java

pytestmark = pytest.mark.peers

TOOLS = "org.apache.kafka.tools"
CONSOLE_PRODUCER = {
    OLDEST_KAFKA: "kafka.tools.ConsoleProducer",
    NEWEST_KAFKA: "ConsoleProducer",
    KAFKA_4_4: "ConsoleProducer",
}
VERSIONS = [OLDEST_KAFKA, NEWEST_KAFKA, KAFKA_4_4]
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    # Kafka's test of a cleaner leaves segments to the broker.
    "log.segment.bytes": 1 << 18,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.cleaner.backoff.ms": 100,
}
RECORDS = 1_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", SETTINGS) as running:
        yield running


def run(version: str, tool: str, *arguments: str, stdin: str | None = None) -> str:
    """Return the output of a tool, which must exit with 0."""
    main_class = tool if tool.startswith("kafka.") else f"{TOOLS}.{tool}"
    result = run_tool(version, main_class, arguments, stdin=stdin, timeout_s=120)
    assert result.returncode == 0, result.stdout[-2_000:] + result.stderr[-2_000:]
    return result.stdout


def said(output: str) -> list[dict[str, Any]]:
    """The lines of a tool that prints JSON."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("version", VERSIONS)
def test_clients_with_all_defaults(broker: BrokerProcess, version: str) -> None:
    found = run_java(version, "AllDefaults.java", arguments=[broker.bootstrap_servers])
    assert found == [
        "topics: [defaults, plain]",
        "partitions: 4",
        "alone: 4",
        "together: 2 2",
        "written: 100",
        "assignor: range 2",
        "read: 100 of 100",
        "all: {false=10, true=10}",
        "committed: {true=10}",
        "position: 1",
        "ends: 100",
        "positions: 100",
        "producers: 1",
        "transactions: [t CompleteAbort]",
        "transaction: CompleteAbort",
        "nodes: 1",
        "directories: 1",
        "features: [transaction.version]",
        "retention: 3600000",
        "of the broker: 1048588",
        "increased: 5",
        "low watermark: 5",
        "left: [plain]",
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_consumer_performance_reads_what_the_console_wrote(
    broker: BrokerProcess, version: str
) -> None:
    servers = broker.bootstrap_servers
    topic = new_topic(servers, 3)
    lines = "".join(f"line {number}\n" for number in range(RECORDS))
    address = ("--bootstrap-server", servers, "--topic", topic)
    run(version, CONSOLE_PRODUCER[version], *address, stdin=lines)
    output = run(version, "ConsumerPerformance", *address, "--messages", str(RECORDS))
    *_, names, figures = output.splitlines()
    row = dict(zip(names.split(", "), figures.split(", "), strict=True))
    assert row["data.consumed.in.nMsg"] == str(RECORDS)


@pytest.mark.parametrize("version", VERSIONS)
def test_end_to_end_latency_reads_each_record_as_it_was_written(
    broker: BrokerProcess, version: str
) -> None:
    """The tool ends with an error for a record that is not the one it has just sent."""
    output = run(version, "EndToEndLatency", broker.bootstrap_servers, "t", "500", "all", "100")
    assert re.search(r"^Percentiles: 50th = \d+, 99th = \d+, 99.9th = \d+$", output, re.M), output


@pytest.mark.parametrize("version", VERSIONS)
def test_verifiable_clients_and_a_copier_with_aborted_transactions(
    broker: BrokerProcess, version: str
) -> None:
    servers = broker.bootstrap_servers
    count = ("--max-messages", str(RECORDS))
    asked = ("--bootstrap-server", servers, "--topic", "source")
    written = said(run(version, "VerifiableProducer", *asked, *count))
    assert (written[-1]["name"], written[-1]["acked"]) == ("tool_data", RECORDS)
    read = said(run(version, "VerifiableConsumer", *asked, *count, "--group-id", "g"))
    assert sum(each["count"] for each in read if each["name"] == "records_consumed") == RECORDS
    commits = [each for each in read if each["name"] == "offsets_committed"]
    assert all(each["success"] for each in commits)
    assert commits[-1]["offsets"][0]["offset"] == RECORDS

    run(
        version,
        "TransactionalMessageCopier",
        *("--broker-list", servers, "--input-topic", "source", "--input-partition", "0"),
        *("--output-topic", "copy", "--transactional-id", "copier", "--consumer-group", "copiers"),
        *("--transaction-size", "17", "--enable-random-aborts"),
        *("--group-mode", "--use-group-metadata"),
    )
    output = run(
        version,
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", servers, "--topic", "copy", "--from-beginning"),
        *("--isolation-level", "read_committed", "--max-messages", str(RECORDS)),
        *("--timeout-ms", "20000"),
    )
    assert output.splitlines() == [str(number) for number in range(RECORDS)]


@pytest.mark.parametrize("version", VERSIONS)
def test_kafkas_test_of_what_clients_need(broker: BrokerProcess, version: str) -> None:
    features = (
        *("offsets-for-times", "cluster-id", "create-topics", "describe-acls"),
        *("describe-configs", "idempotent-producer"),
    )
    output = run(
        version,
        "ClientCompatibilityTest",
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", "t"),
        *(word for name in features for word in (f"--{name}-supported", "True")),
        *("--expect-record-too-large-exception", "False", "--num-cluster-nodes", "1"),
    )
    assert output.splitlines()[-1] == "SUCCESS."


def test_kafkas_test_of_a_cleaner(broker: BrokerProcess) -> None:
    """The tester compares the last value of each key before and after, and deleted keys."""
    output = run(
        NEWEST_KAFKA,
        "LogCompactionTester",
        *("--bootstrap-server", broker.bootstrap_servers, "--messages", "40000"),
        *("--percent-deletes", "20", "--sleep", "5"),
    )
    assert re.search(r"^Validated \d+ values, 0 mismatches\.$", output, re.M), output
    reduction = re.search(r"\((\d+\.\d+)% reduction\)", output)
    assert reduction is not None, output
    assert float(reduction[1]) > 20
