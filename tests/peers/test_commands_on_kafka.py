"""`klog`'s commands on Apache Kafka 3.9 and 4.3, compared with Kafka's own tools."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyspark_klog.client.admin.groups import CommittedOffset, commit_offsets, committed_offsets
from pyspark_klog.client.transactions.producer import TransactionalProducer
from pyspark_klog.ids import TopicPartition
from tests.support.cli.command_cases import (
    CASES,
    RECORDS,
    a_hanging_transaction_is_found_and_aborted,
    json_output,
    klog,
    rows,
    written,
)
from tests.support.client.cases import batch, client_of, new_topic
from tests.support.client.group_member import joined_member
from tests.support.eventually import eventually
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, KafkaServer
from tests.support.raw_client import RawClient
from tests.support.raw_requests import batch as raw_batch
from tests.support.raw_requests import produced

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONFIGS = "kafka.admin.ConfigCommand"
API_VERSIONS = {
    OLDEST_KAFKA: "kafka.admin.BrokerApiVersionsCommand",
    NEWEST_KAFKA: "org.apache.kafka.tools.BrokerApiVersionsCommand",
}
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"


@pytest.fixture(scope="module", params=[OLDEST_KAFKA, NEWEST_KAFKA])
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaServer]:
    # For the transaction that hangs: its leader takes what the coordinator has not heard of.
    unverified = {"transaction.partition.verification.enable": "false"}
    with KafkaServer(request.param, properties=unverified, heap_mb=400) as server:
        yield server


@pytest.fixture
def group(kafka: KafkaServer, request: pytest.FixtureRequest) -> tuple[str, str]:
    """A group with 3 and 8 committed in the two partitions of a topic, and that topic."""
    topic = written(kafka.bootstrap_servers, 2)
    name = f"group-of-{topic}"
    offsets = {TopicPartition(topic, n): CommittedOffset(at) for n, at in enumerate((3, 8))}
    with client_of(kafka.bootstrap_servers) as client:
        commit_offsets(client, name, offsets)
    return name, topic


def tool(kafka: KafkaServer, main_class: str, *arguments: str) -> str:
    """Return the output of one of Kafka's tools."""
    words = ("--bootstrap-server", kafka.bootstrap_servers, *arguments)
    return kafka.run_tool(main_class, *words, timeout_s=120).stdout


def table(printed: str, first: str) -> list[list[str]]:
    """The lines of a table that begin with a word, as words."""
    lines = (line.split() for line in printed.splitlines())
    return [words for words in lines if words[:1] == [first]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_case(kafka: KafkaServer, case: Callable[[str], None]) -> None:
    case(kafka.bootstrap_servers)


# --- groups --------------------------------------------------------------------------------------
def test_groups_are_described_as_kafkas_tool_does(
    kafka: KafkaServer, group: tuple[str, str]
) -> None:
    name, topic = group
    servers = kafka.bootstrap_servers
    at_rest = table(tool(kafka, GROUPS, "--describe", "--group", name), name)
    shown = [[name, *words] for words in rows(servers, "groups", "describe", name)[1:]]
    assert sorted(each[:6] for each in at_rest) == [
        [name, topic, "0", "3", "10", "7"],
        [name, topic, "1", "8", "10", "2"],
    ]
    assert sorted(shown) == sorted(at_rest)
    member = joined_member(servers, topic, name, client_id="reader")
    found = table(tool(kafka, GROUPS, "--describe", "--group", name), name)
    shown = [[name, *words] for words in rows(servers, "groups", "describe", name)[1:]]
    assert sorted(shown) == sorted(found)
    assert found[0][-1] == "reader"
    members = table(tool(kafka, GROUPS, "--describe", "--group", name, "--members"), name)
    (mine,) = rows(servers, "groups", "describe", name, "--members")[1:]
    # Kafka's tool names instances only if there is one.
    assert [[name, mine[0], *mine[2:]]] == members
    (states,) = table(tool(kafka, GROUPS, "--describe", "--group", name, "--state"), name)
    (mine,) = rows(servers, "groups", "describe", name, "--state")
    assert mine[-2:] == states[-2:] == ["Stable", "1"]
    assert mine[1:3] == states[1:3]
    refused = tool(kafka, GROUPS, "--reset-offsets", "--group", name, "--all-topics", "--to-latest")
    assert "is inactive, but the current state is Stable" in refused
    result = klog(servers, "groups", "reset-offsets", name, "--all-topics", "--to-latest")
    assert (result.exit_code, "Stable, its member count 1" in result.stderr) == (1, True)
    member.close()


def test_a_group_of_the_newer_protocol(kafka: KafkaServer) -> None:
    import confluent_kafka

    if kafka.version == OLDEST_KAFKA:
        pytest.skip("Kafka before 4.0 has no groups of the newer protocol")
    topic = written(kafka.bootstrap_servers, 2)
    name = f"newer-of-{topic}"
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": name}
    more = {"group.protocol": "consumer", "client.id": "newer", "auto.offset.reset": "earliest"}
    member = confluent_kafka.Consumer({**settings, **more, "enable.auto.commit": "false"})
    member.subscribe([topic])
    assert len(member.consume(2 * RECORDS, 60)) == 2 * RECORDS
    member.commit(asynchronous=False)
    found = table(tool(kafka, GROUPS, "--describe", "--group", name), name)
    shown = rows(kafka.bootstrap_servers, "groups", "describe", name)[1:]
    assert sorted([name, *words] for words in shown) == sorted(found)
    assert [words[4] for words in shown] == ["0", "0"]
    (listed,) = [
        each
        for each in json_output(kafka.bootstrap_servers, "groups", "list")
        if each["group"] == name
    ]
    assert (listed["type"], listed["members"]) == ("consumer", 1)
    member.close()
    reset = ("groups", "reset-offsets", name, "--all-topics", "--to-earliest", "--execute")
    assert klog(kafka.bootstrap_servers, *reset).exit_code == 0
    with client_of(kafka.bootstrap_servers) as client:
        assert {at.offset for at in committed_offsets(client, name).values()} == {0}


WAYS = [
    "--to-earliest",
    "--to-latest",
    "--to-current",
    "--to-offset 5",
    "--to-offset 99",
    "--shift-by 1",
    "--shift-by -5",
    "--shift-by 100",
    "--to-datetime 1970-01-01T00:00:00.000",
    "--to-datetime 1970-01-01T02:00:00.000+02:00",
    "--to-datetime 2999-01-01T00:00:00.000",
    "--by-duration P1D",
    "--by-duration PT0S",
]


def test_offsets_are_reset_as_kafkas_tool_does(kafka: KafkaServer, group: tuple[str, str]) -> None:
    name, topic = group
    for scope in (["--all-topics"], ["--topic", f"{topic}:1"]):
        # Kafka's tool takes seconds for each: in the second scope only some.
        for way in WAYS if scope == ["--all-topics"] else WAYS[:1]:
            words = (*scope, *way.split(), "--export")
            theirs = tool(kafka, GROUPS, "--reset-offsets", "--group", name, *words)
            ours = klog(kafka.bootstrap_servers, "groups", "reset-offsets", name, *words)
            assert ours.exit_code == 0, ours.stderr
            assert sorted(csv.reader(io.StringIO(ours.stdout))) == sorted(
                row for row in csv.reader(io.StringIO(theirs)) if row[:1] == [topic]
            ), way


def test_files_of_offsets_go_both_ways(
    kafka: KafkaServer, group: tuple[str, str], tmp_path: Path
) -> None:
    name, topic = group
    servers = kafka.bootstrap_servers
    file = tmp_path / "offsets.csv"
    way = ("--all-topics", "--shift-by", "1", "--export")
    file.write_text(klog(servers, "groups", "reset-offsets", name, *way).stdout)
    by_file = ("--from-file", str(file), "--execute")
    tool(kafka, GROUPS, "--reset-offsets", "--group", name, *by_file)
    with client_of(servers) as client:
        found = {each.partition: at.offset for each, at in committed_offsets(client, name).items()}
    assert found == {0: 4, 1: 9}
    exported = tool(kafka, GROUPS, "--reset-offsets", "--group", name, *way)
    file.write_text("".join(f"{line}\n" for line in exported.splitlines() if line[:4] == topic[:4]))
    assert klog(servers, "groups", "reset-offsets", name, *by_file).exit_code == 0
    with client_of(servers) as client:
        found = {each.partition: at.offset for each, at in committed_offsets(client, name).items()}
    assert found == {0: 5, 1: 10}
    assert klog(servers, "groups", "delete", name).output == f"deleted {name}\n"


# --- settings and quotas -------------------------------------------------------------------------
def test_settings_of_groups_and_metrics(kafka: KafkaServer) -> None:
    servers = kafka.bootstrap_servers
    metrics = ["--client-metrics", "mine"]
    cases = [(metrics, "interval.ms", "7000", "dynamic client metrics config")]
    if kafka.version == NEWEST_KAFKA:
        timeout = "consumer.session.timeout.ms"
        cases.append((["--group", "g"], timeout, "50000", "dynamic group config"))

    def shown(of: list[str], name: str) -> list[tuple[str, str]]:
        (found,) = json_output(servers, "configs", "describe", *of)
        return [
            (each["value"], each["source"]) for each in found["configs"] if each["name"] == name
        ]

    # Brokers hear of what the controller has taken a moment later.
    for of, name, value, source in cases:
        altered = klog(servers, "configs", "alter", *of, "--set", f"{name}={value}")
        assert altered.exit_code == 0, altered.stderr
        eventually(lambda a=(of, name), b=(value, source): shown(*a) == [b])
        assert klog(servers, "configs", "alter", *of, "--delete", name).exit_code == 0
        eventually(lambda a=(of, name): shown(*a) == [])


def test_kafkas_tool_sees_the_same_settings(kafka: KafkaServer) -> None:
    topic = new_topic(kafka.bootstrap_servers, 1)
    of = ("--entity-type", "topics", "--entity-name", topic, "--describe", "--all")
    eventually(lambda: "retention.ms=-1 " in tool(kafka, CONFIGS, *of), deadline_s=60)
    found = dict(re.findall(r"^  (\S+?)=(.*?) sensitive=", tool(kafka, CONFIGS, *of), re.M))
    (shown,) = json_output(
        kafka.bootstrap_servers, "configs", "describe", "--topic", topic, "--all"
    )
    ours = {each["name"]: each["value"] or "" for each in shown["configs"]}
    assert ours == found
    assert len(found) > 20


def test_kafkas_tool_sees_the_same_quotas(kafka: KafkaServer) -> None:
    rate = ("--set", "producer_byte_rate=1024")
    altered = klog(kafka.bootstrap_servers, "configs", "alter", "--user", "bob", *rate)
    assert altered.output == "altered user bob\n"
    described = ("--entity-type", "users", "--describe")
    (line,) = eventually(
        lambda: [each for each in tool(kafka, CONFIGS, *described).splitlines() if "'bob'" in each],
        deadline_s=60,
    )
    assert "producer_byte_rate=1024.0" in line
    back = ("configs", "alter", "--user", "bob", "--delete", "producer_byte_rate")
    assert klog(kafka.bootstrap_servers, *back).exit_code == 0


# --- brokers and leaders -------------------------------------------------------------------------
def test_kafkas_tool_sees_the_same_versions(kafka: KafkaServer) -> None:
    printed = kafka.run_tool(
        *(API_VERSIONS[kafka.version], "--bootstrap-server", kafka.bootstrap_servers)
    ).stdout
    # A range is `0 to 13 [usable: 12]`; a range of one version is `0 [usable: 0]`.
    found = re.findall(r"^\t(\w+)\((\d+)\): (\d+)(?: to (\d+))? \[", printed, re.M)
    theirs = {int(key): (name, int(low), int(high or low)) for name, key, low, high in found}
    (ours,) = json_output(kafka.bootstrap_servers, "brokers", "describe")
    shown = {each["key"]: (each["min_version"], each["max_version"]) for each in ours["apis"]}
    assert {key: versions for key, (_, *versions) in theirs.items()} == {
        key: [*versions] for key, versions in shown.items() if key in theirs
    }
    assert len(theirs) > 50
    # API 74 has another name before Kafka 4.1: ListClientMetricsResources.
    same = [each for each in ours["apis"] if (each["key"], kafka.version) != (74, OLDEST_KAFKA)]
    for each in same:
        assert each["name"] in (None, theirs[each["key"]][0])
    # The brokers of a KRaft cluster do not name the controller.
    assert ours["controller"] is None
    assert ours["features"]["metadata.version"] > 0


def test_kafkas_tool_needs_no_election_either(kafka: KafkaServer) -> None:
    topic = new_topic(kafka.bootstrap_servers, 1)
    at = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    printed = tool(kafka, ELECTION, *at)
    assert f"Valid replica already elected for partitions {topic}-0" in printed
    (row,) = rows(kafka.bootstrap_servers, "leaders", "elect", f"{topic}:0")
    assert row == [topic, "0", "not", "needed"]


# --- disks and transactions ----------------------------------------------------------------------
def test_kafkas_tool_sees_the_same_sizes(kafka: KafkaServer) -> None:
    topic = written(kafka.bootstrap_servers, 2)
    printed = tool(kafka, LOG_DIRS, "--describe", "--topic-list", topic)
    (line,) = [line for line in printed.splitlines() if line.startswith("{")]
    (directory,) = json.loads(line)["brokers"][0]["logDirs"]
    theirs = {each["partition"]: each["size"] for each in directory["partitions"]}
    (found,) = json_output(kafka.bootstrap_servers, "log-dirs", "--topic", topic)
    assert found["directory"] == directory["logDir"]
    assert {f"{topic}-{each['partition']}": each["bytes"] for each in found["replicas"]} == theirs


def test_kafkas_tool_sees_the_same_transaction(kafka: KafkaServer) -> None:
    servers = kafka.bootstrap_servers
    topic = new_topic(servers, 1)
    with client_of(servers) as client:
        producer = TransactionalProducer(client, f"tx-{topic}")
        producer.init_transactions()
        producer.begin_transaction()
        producer.add(TopicPartition(topic, 0), *batch([b"k"]))
        producer.flush()
        printed = tool(kafka, TRANSACTIONS, "describe", "--transactional-id", f"tx-{topic}")
        theirs = [cell.strip() for cell in printed.splitlines()[1].rstrip().split("\t")]
        (ours,) = json_output(servers, "transactions", "describe", f"tx-{topic}")
        shown = (ours["coordinator_id"], ours["transactional_id"], ours["producer_id"])
        shown += (ours["producer_epoch"], ours["state"], ours["timeout_ms"], ours["start_ms"])
        assert [str(each) for each in shown] == theirs[:7]
        assert theirs[-1] == f"{topic}-0"
        at = ("--topic", topic, "--partition", "0")
        printed = tool(kafka, TRANSACTIONS, "describe-producers", *at)
        theirs = [cell.strip() for cell in printed.splitlines()[1].rstrip().split("\t")]
        (active,) = json_output(servers, "transactions", "describe-producers", topic)
        assert [str(value) for value in list(active.values())[2:4]] == theirs[:2]
        assert [str(active[name]) for name in ("last_sequence", "last_timestamp_ms")] == theirs[3:5]
        assert str(active["start_offset"]) == theirs[5] == "0"
        assert klog(servers, "transactions", "abort", f"tx-{topic}").exit_code == 0


def test_a_hanging_transaction(kafka: KafkaServer) -> None:
    servers = kafka.bootstrap_servers
    topic = new_topic(servers, 1)
    with client_of(servers) as client:
        dead = TransactionalProducer(client, f"dead-{topic}")
        dead.init_transactions()
        identity = dead.identity
    data = raw_batch(
        b"1",
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    with RawClient(("127.0.0.1", kafka.port)) as raw:
        # Before version 12 of Produce the leader verifies only if the setting says so.
        offset = produced(raw, topic, data, version=11, transactional_id=f"dead-{topic}")
    a_hanging_transaction_is_found_and_aborted(servers, topic, offset)


def test_a_transaction_is_aborted_by_its_epochs(kafka: KafkaServer) -> None:
    """Abort by epochs, as on brokers before Kafka 3.0, which report no transaction's start."""
    servers = kafka.bootstrap_servers
    topic = new_topic(servers, 1)
    with client_of(servers) as client:
        producer = TransactionalProducer(client, f"tx-{topic}")
        producer.init_transactions()
        producer.begin_transaction()
        producer.add(TopicPartition(topic, 0), *batch([b"k"]))
        producer.flush()
        identity = producer.identity
    at = ("--topic", topic, "--partition", "0", "--coordinator-epoch", "0")
    who = ("--producer-id", str(identity.producer_id))
    done = klog(
        *(servers, "transactions", "abort", *at, *who),
        *("--producer-epoch", str(identity.producer_epoch)),
    )
    assert done.output == f"aborted {topic}-0 of producer {identity.producer_id}\n"
    (active,) = json_output(servers, "transactions", "describe-producers", topic)
    assert active["start_offset"] == -1
