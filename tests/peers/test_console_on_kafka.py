"""`klog produce`, `consume` and `perf` on Apache Kafka, compared with Kafka's console tools."""

import json
from collections.abc import Callable, Iterator

import pytest

from tests.support.cli.console_cases import CASES, as_json, consumed, klog, produced
from tests.support.client.cases import new_topic
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, KafkaServer, run_tool

CONSUME = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRODUCE = {
    OLDEST_KAFKA: "kafka.tools.ConsoleProducer",
    NEWEST_KAFKA: "org.apache.kafka.tools.ConsoleProducer",
}
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
# 4.3 deprecates the names of 3.9's options, and 3.9 does not know 4.3's.
PRINTING_OPTION = {OLDEST_KAFKA: "--property", NEWEST_KAFKA: "--formatter-property"}
READING_OPTION = {OLDEST_KAFKA: "--property", NEWEST_KAFKA: "--reader-property"}
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2"}


@pytest.fixture(params=[NEWEST_KAFKA, OLDEST_KAFKA], scope="module")
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaServer]:
    with KafkaServer(request.param, properties=SETTINGS) as server:
        yield server


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_case(kafka: KafkaServer, case: Callable[[str], None]) -> None:
    case(kafka.bootstrap_servers)


def test_kafkas_console_consumer_prints_what_klog_has_written(kafka: KafkaServer) -> None:
    servers = kafka.bootstrap_servers
    topic = new_topic(servers, 1)
    options = ("--headers", "--key-separator", "=", "--null-value", "-")
    produced(servers, topic, "h:1,n:-\tk=é\n\t-=v\n\tk=-\n", *options)
    printed = run_tool(
        kafka.version,
        CONSUME,
        ["--bootstrap-server", servers, "--topic", topic, "--from-beginning"]
        + ["--max-messages", "3", "--timeout-ms", "20000"]
        + [
            word
            for name in ("partition", "offset", "headers", "key")
            for word in (PRINTING_OPTION[kafka.version], f"print.{name}=true")
        ],
    )
    assert printed.stdout.splitlines() == [
        "Partition:0\tOffset:0\th:1,n:null\tk\té",
        "Partition:0\tOffset:1\tNO_HEADERS\tnull\tv",
        "Partition:0\tOffset:2\tNO_HEADERS\tk\tnull",
    ]


def test_klog_prints_what_kafkas_console_producer_has_written(kafka: KafkaServer) -> None:
    servers = kafka.bootstrap_servers
    topic = new_topic(servers, 1)
    reading = READING_OPTION[kafka.version]
    properties = ("parse.key=true", "key.separator==", "parse.headers=true", "null.marker=-")
    done = run_tool(
        kafka.version,
        PRODUCE[kafka.version],
        ["--bootstrap-server", servers, "--topic", topic, "--compression-codec", "zstd"]
        + [word for each in properties for word in (reading, each)],
        stdin="h:1,n:2\tk=é\n-\tk=-\n",
    )
    assert done.returncode == 0, done.stderr
    found = as_json(servers, topic)
    kept = [(each["key"], each["value"], each["headers"]) for each in found]
    headers = [{"key": "h", "value": "1"}, {"key": "n", "value": "2"}]
    assert kept == [("k", "é", headers), ("k", None, [])]
    assert consumed(servers, topic, "--print", "headers,key,value")[0] == "h:1,n:2\tk\té".encode()


def test_a_position_is_kafkas_tools_and_klogs(kafka: KafkaServer) -> None:
    """Kafka's console consumer continues from the offset that klog has committed."""
    servers = kafka.bootstrap_servers
    topic = new_topic(servers, 1)
    group = f"group-{topic}"
    produced(servers, topic, "1\n2\n3\n")
    of_group = ("--group", group, "--from-beginning", "--max-messages", "2")
    assert klog(servers, "consume", topic, *of_group).stdout == "1\n2\n"
    printed = run_tool(
        kafka.version,
        CONSUME,
        [
            *("--bootstrap-server", servers, "--topic", topic, "--group", group),
            *("--max-messages", "1", "--timeout-ms", "20000"),
        ],
    )
    assert printed.stdout.splitlines() == ["3"]
    (told,) = json.loads(klog(servers, "groups", "describe", group, "--json").stdout)
    assert [each["offset"] for each in told["offsets"]] == [3]
