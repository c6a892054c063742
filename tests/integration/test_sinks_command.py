"""`klog sinks`, and the groups of exactly-once sinks in `klog groups`, on a running broker."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from klog_broker.cli.commands import command
from pyspark_klog.client.admin.groups import CommittedOffset, commit_offsets
from pyspark_klog.client.admin.sink_progress import ProgressRow, RunMark, SinkId
from pyspark_klog.client.producer.producer import Producer
from pyspark_klog.ids import TopicPartition
from tests.support.broker_thread import BrokerThread
from tests.support.client.cases import batch, client_of, new_topic
from tests.support.client.group_member import joined_member

SETTINGS = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 2}
RUN = "0b7e42f4-0000-4000-8000-000000000001"
TIME_MS = 1_700_000_000_123
TIME = "2023-11-14 22:13:20 UTC"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path_factory.mktemp("sinks") / "data", SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def topic(broker: BrokerThread) -> str:
    """A topic with a record, which a member of a group reads when it has joined."""
    name = new_topic(broker.bootstrap_servers, 2)
    with client_of(broker.bootstrap_servers) as client:
        producer = Producer(client)
        producer.add(TopicPartition(name, 0), *batch([b"k"]))
        producer.flush()
    return name


@pytest.fixture
def sink(broker: BrokerThread, topic: str, request: pytest.FixtureRequest) -> SinkId:
    """A sink whose two tasks have written micro-batches 41 and 42, and whose run has a mark."""
    sink = SinkId("klog-sink", f"query-of-{request.node.name.replace('_', '-')}", "sink")
    commit(broker, sink.task(0), topic, ProgressRow(42, RUN, 5, 600, 0xABC, TIME_MS).to_offset())
    commit(broker, sink.task(1), topic, ProgressRow(41, RUN, 0, 0, 0, TIME_MS - 9_000).to_offset())
    commit(broker, sink.mark, topic, RunMark(40, RUN, TIME_MS, ("before",)).to_offset())
    return sink


def commit(broker: BrokerThread, group: str, topic: str, position: CommittedOffset) -> None:
    with client_of(broker.bootstrap_servers) as client:
        commit_offsets(client, group, {TopicPartition(topic, 0): position})


def klog(broker: BrokerThread, *arguments: str) -> Result:
    servers = ["--bootstrap-server", broker.bootstrap_servers]
    return CliRunner().invoke(command, [*arguments, *servers], prog_name="klog")


def told(broker: BrokerThread, *arguments: str) -> Any:
    result = klog(broker, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def of_sink(rows: Any, sink: SinkId) -> Any:
    return [row for row in rows if row["query"] == sink.query_id]


def test_sinks_are_listed_one_a_line(broker: BrokerThread, sink: SinkId) -> None:
    header, *rows = klog(broker, "sinks", "list").output.splitlines()
    assert header.split() == ["QUERY", "NAME", "PREFIX", "TASKS", "BATCH", "WRITTEN"]
    expected = [sink.query_id, "sink", "klog-sink", "2", "42", *TIME.split()]
    assert expected in [row.split() for row in rows]
    assert of_sink(told(broker, "sinks", "list"), sink) == [
        {
            "query": sink.query_id,
            "name": "sink",
            "prefix": "klog-sink",
            "tasks": 2,
            "batch": 42,
            "written_ms": TIME_MS,
        }
    ]


def test_a_sink_is_described_by_its_rows(broker: BrokerThread, sink: SinkId, topic: str) -> None:
    lines = klog(broker, "sinks", "describe", sink.query_id).output.splitlines()
    assert lines[0] == f"sink sink of query {sink.query_id}  prefix klog-sink"
    assert lines[1] == f"run {RUN} began to commit with batch 40, {TIME}"
    assert [line.split() for line in lines[2:]] == [
        ["TASK", "TOPIC", "BATCH", "RUN", "ROWS", "BYTES", "WRITTEN"],
        ["0", topic, "42", RUN, "5", "600", *TIME.split()],
        ["1", topic, "41", RUN, "0", "0", "2023-11-14", "22:13:11", "UTC"],
    ]
    (found,) = told(broker, "sinks", "describe", sink.query_id)
    assert found["marks"] == [
        {
            "topic": topic,
            "batch": 40,
            "run": RUN,
            "written_ms": TIME_MS,
            "past_runs": ["before"],
        }
    ]
    assert found["rows"][0] == {
        "task": 0,
        "group": sink.task(0),
        "topic": topic,
        "batch": 42,
        "run": RUN,
        "rows": 5,
        "bytes": 600,
        "hash": f"{0xABC:032x}",
        "written_ms": TIME_MS,
    }


def test_groups_of_sinks_stand_apart_from_consumers(
    broker: BrokerThread, sink: SinkId, topic: str
) -> None:
    consumer = f"consumers-of-{sink.query_id}"
    commit(broker, consumer, topic, CommittedOffset(0))
    output = klog(broker, "groups", "list").output
    assert f"\n{consumer} " in output
    assert sink.query_id not in output.replace(consumer, "")
    assert output.splitlines()[-1].endswith(" exactly-once sinks: klog sinks list")
    kinds = {each["group"]: each["kind"] for each in told(broker, "groups", "list")}
    ours = {sink.task(0): "sink", sink.task(1): "sink", sink.mark: "sink", consumer: "consumer"}
    assert ours.items() <= kinds.items()


def test_a_group_of_a_sink_has_rows_and_no_lag(
    broker: BrokerThread, sink: SinkId, topic: str
) -> None:
    lines = klog(broker, "groups", "describe", sink.task(0)).output.splitlines()
    assert lines[0] == f"group {sink.task(0)}  Empty  members 0"
    assert [line.split() for line in lines[1:]] == [
        ["TASK", "TOPIC", "BATCH", "RUN", "ROWS", "BYTES", "WRITTEN"],
        ["0", topic, "42", RUN, "5", "600", *TIME.split()],
    ]
    (found,) = told(broker, "groups", "describe", sink.task(0))
    assert (found["kind"], found["rows"][0]["batch"], "offsets" in found) == ("sink", 42, False)


def test_a_group_that_only_looks_like_a_sinks_is_a_consumers(
    broker: BrokerThread, topic: str
) -> None:
    """An id of four parts and a number, with positions of somebody else, or none at all."""
    for group in ("com.example.orders.1", "com.example.orders.run", "com.example.orders.2"):
        commit(broker, group, topic, CommittedOffset(0, metadata="klog-sink but not really"))
    with client_of(broker.bootstrap_servers) as client:
        commit_offsets(client, "com.example.empty.7", {})
    kinds = {each["group"]: each["kind"] for each in told(broker, "groups", "list")}
    assert {kind for group, kind in kinds.items() if group.startswith("com.")} == {"consumer"}
    (found,) = told(broker, "groups", "describe", "com.example.orders.1")
    assert found["offsets"][0]["lag"] == 1
    assert not [each for each in told(broker, "sinks", "list") if each["prefix"] == "com"]
    result = klog(broker, "sinks", "delete", "example")
    assert (result.exit_code, "no exactly-once sink of query example" in result.stderr) == (1, True)


def test_a_group_with_members_is_a_consumers(broker: BrokerThread, topic: str) -> None:
    member = joined_member(broker.bootstrap_servers, topic, "klog-sink.busy.sink.0")
    kinds = {each["group"]: each["kind"] for each in told(broker, "groups", "list")}
    member.close()
    assert kinds["klog-sink.busy.sink.0"] == "consumer"


def test_a_sinks_rows_are_deleted_and_nothing_else(
    broker: BrokerThread, sink: SinkId, topic: str
) -> None:
    other = SinkId("klog-sink", sink.query_id, "other")
    longer = SinkId("klog-sink", f"{sink.query_id}-2", "sink")
    position = ProgressRow(1, RUN, 1, 1, 1, TIME_MS).to_offset()
    for each in (other, longer):
        commit(broker, each.task(0), topic, position)
    named = [sink.task(0), sink.task(1), sink.mark]
    arguments = ("sinks", "delete", sink.query_id, "--name", "sink")
    assert told(broker, *arguments, "--dry-run") == {"would_delete": named}
    assert len(of_sink(told(broker, "sinks", "list"), sink)) == 2
    assert klog(broker, *arguments, "--prefix", "another").exit_code == 1
    result = klog(broker, *arguments)
    assert (result.exit_code, result.stdout) == (0, "".join(f"deleted {n}\n" for n in named))
    groups = {each["group"] for each in told(broker, "groups", "list")}
    assert {*named, other.task(0), longer.task(0)} & groups == {other.task(0), longer.task(0)}
    assert told(broker, "sinks", "delete", sink.query_id) == {"deleted": [other.task(0)]}
    result = klog(broker, "sinks", "describe", sink.query_id)
    assert result.exit_code == 1
    assert f"no exactly-once sink of query {sink.query_id} was found (with --name" in result.stderr
    assert longer.stem in result.stderr


def test_a_time_that_no_calendar_has(broker: BrokerThread, topic: str) -> None:
    sink = SinkId("klog-sink", "late", "sink")
    commit(broker, sink.task(0), topic, ProgressRow(1, RUN, 1, 1, 1, 2**63 - 1).to_offset())
    assert f"{2**63 - 1} ms" in klog(broker, "sinks", "describe", "late").output


def test_the_mark_that_a_batch_write_leaves_is_no_sink_of_a_query(
    broker: BrokerThread, topic: str
) -> None:
    sink = SinkId("klog-sink", "632f7c320940ffa55097e2ad441bb498", "sink")
    commit(broker, sink.mark, topic, RunMark(0, "run", TIME_MS).to_offset())
    assert of_sink(told(broker, "sinks", "list"), sink) == []
    assert {"group": sink.mark, "kind": "sink"}.items() <= next(
        each.items() for each in told(broker, "groups", "list") if each["group"] == sink.mark
    )
    assert told(broker, "sinks", "delete", sink.query_id) == {"deleted": [sink.mark]}
