"""`klog sinks` and the kinds of `klog groups` on Apache Kafka, with rows of real transactions."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from klog_broker.cli.commands import command
from pyspark_klog.client.admin.groups import CommittedOffset, commit_offsets
from pyspark_klog.client.admin.sink_progress import ProgressRow, RunMark, SinkId
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.transactions.producer import TransactionalProducer
from pyspark_klog.ids import TopicPartition
from tests.support.client.cases import batch, client_of, new_topic
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, KafkaServer

SINK = SinkId("klog-sink", "5b1e0d2c-0000-4000-8000-000000000001", "sink")


@pytest.fixture(scope="module", params=[OLDEST_KAFKA, NEWEST_KAFKA])
def server(request: pytest.FixtureRequest) -> Iterator[KafkaServer]:
    with KafkaServer(request.param, heap_mb=320) as made:
        yield made


def told(server: KafkaServer, *arguments: str) -> Any:
    servers = ["--bootstrap-server", server.bootstrap_servers, "--json"]
    result = CliRunner().invoke(command, [*arguments, *servers], prog_name="klog")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def write(client: BlockingClient, topic: str, task: int, row: ProgressRow, *, commit: bool) -> None:
    producer = TransactionalProducer(client, SINK.task(task), transaction_timeout_ms=60_000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.add(TopicPartition(topic, 0), *batch([b"k"]))
    position = {TopicPartition(topic, 0): row.to_offset()}
    producer.send_offsets_to_transaction(position, SINK.task(task))
    if commit:
        producer.commit_transaction()
    else:
        producer.abort_transaction()


def test_rows_of_transactions_are_shown_and_deleted(server: KafkaServer) -> None:
    topic = new_topic(server.bootstrap_servers, 1)
    at = TopicPartition(topic, 0)
    row = ProgressRow(7, "run", 1, 1, 0xAB, 1_700_000_000_123)
    with client_of(server.bootstrap_servers) as client:
        for task in (0, 1):
            write(client, topic, task, row, commit=True)
        write(client, topic, 1, row._replace(batch_id=8), commit=False)
        commit_offsets(client, SINK.mark, {at: RunMark(6, "run", 5).to_offset()})
        commit_offsets(client, "com.example.orders.1", {at: CommittedOffset(0)})
    kinds = {each["group"]: each["kind"] for each in told(server, "groups", "list")}
    ours = [SINK.task(0), SINK.task(1), SINK.mark]
    assert kinds == {**dict.fromkeys(ours, "sink"), "com.example.orders.1": "consumer"}
    (found,) = told(server, "sinks", "describe", SINK.query_id)
    assert [(each["task"], each["batch"], each["rows"]) for each in found["rows"]] == [
        (0, 7, 1),
        (1, 7, 1),
    ]
    assert [each["batch"] for each in found["marks"]] == [6]
    assert told(server, "sinks", "delete", SINK.query_id, "--dry-run") == {"would_delete": ours}
    assert told(server, "sinks", "delete", SINK.query_id) == {"deleted": ours}
    assert [each["group"] for each in told(server, "groups", "list")] == ["com.example.orders.1"]
    assert told(server, "sinks", "list") == []
