"""The lag that Apache Kafka's own tool shows for a query: commitGroupId on Apache Kafka."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.eventually import eventually
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, KafkaServer
from tests.support.spark.topics import Topics, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture(scope="module", params=[OLDEST_KAFKA, NEWEST_KAFKA])
def server(request: pytest.FixtureRequest) -> Iterator[KafkaServer]:
    with KafkaServer(request.param, heap_mb=320) as made:
        yield made


@pytest.fixture
def topics(server: KafkaServer) -> Iterator[Topics]:
    made = Topics(server.bootstrap_servers)
    yield made
    made.close()


def _lag(server: KafkaServer, group: str) -> list[tuple[str, ...]]:
    """Partition, position, end and lag, row by row as the tool prints them."""
    arguments = ("--bootstrap-server", server.bootstrap_servers, "--describe", "--group", group)
    printed = server.run_tool(GROUPS, *arguments, timeout_s=120)
    rows = [line.split() for line in printed.stdout.splitlines() if line.startswith(f"{group} ")]
    return sorted(tuple(row[2:6]) for row in rows)


def _start(frame: "DataFrame", checkpoint: Path, **trigger: Any) -> Any:
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    return writer.trigger(**trigger).start()


@pytest.mark.parity("beyond: 3 commitGroupId", "beyond: 3 position")
def test_kafkas_tool_sees_no_lag_after_a_run_and_while_a_query_idles(
    server: KafkaServer, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(2)
    topics.put_numbers(topic, range(10), 0)
    topics.put_numbers(topic, range(5), 1)
    group = "spark-query"
    frame = topics.stream(
        subscribe=topic, startingOffsets="earliest", commitGroupId=group, maxOffsetsPerTrigger=6
    )
    run(_start(frame, tmp_path, availableNow=True))
    expected: list[tuple[str, ...]] = [("0", "10", "10", "0"), ("1", "5", "5", "0")]
    eventually(lambda: _lag(server, group) == expected, deadline_s=120, what="no lag")
    topics.put_numbers(topic, range(3), 1)
    assert _lag(server, group) == [("0", "10", "10", "0"), ("1", "5", "8", "3")]
    query = _start(frame, tmp_path, processingTime="0 seconds")
    try:
        expected = [("0", "10", "10", "0"), ("1", "8", "8", "0")]
        eventually(lambda: _lag(server, group) == expected, deadline_s=120, what="no lag")
        assert query.isActive
    finally:
        query.stop()
    # A new query goes on where the group is.
    topics.put_numbers(topic, [77])
    batch = topics.batch(subscribe=topic, startingOffsets="committed", commitGroupId=group)
    assert [bytes(row.value) for row in batch.select("value").collect()] == [b"77"]
