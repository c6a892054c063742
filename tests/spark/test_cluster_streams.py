"""Spark from and to topics with three replicas, while the brokers that lead them go away."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient

import pyspark_klog
from pyspark_klog.client.admin.groups import committed_offsets
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.testing import KlogCluster
from tests.soak.cluster.cluster_view import lacks, seen_by
from tests.soak.copies import Copied, by_key, problems_of_copy, problems_of_ends, read_all
from tests.soak.records import Record, Seen, problems_of
from tests.soak.transactions.feed import SOURCE, SOURCE_PARTITIONS, Feed, inputs
from tests.support.eventually import eventually
from tests.support.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

PLAIN, ONCE = "copied-plain", "copied-once"
GROUP = "copying"
RATE_A_S = 60
_TRIGGER = {"processingTime": "1 second"}
NUMBERS = (1, 2, 3)


@pytest.fixture(scope="module")
def cluster() -> Iterator[KlogCluster]:
    settings = {
        "zookeeper_session_timeout_ms": 4_000,
        "zookeeper_connection_timeout_ms": 60_000,
        "offsets_topic_num_partitions": 3,
        "transaction_state_log_num_partitions": 3,
    }
    with KlogCluster(**settings) as started:
        with Admin(started.bootstrap_servers) as admin:
            partitions = {SOURCE: SOURCE_PARTITIONS, PLAIN: 2, ONCE: 2}
            configs = {"min.insync.replicas": "2"}
            admin.create_topics([NewTopic(n, c, 3, configs) for n, c in partitions.items()])
        yield started


class Streams:
    """Two queries that copy a topic: by a foreachBatch that writes with the plain sink, and by the
    exactly-once sink."""

    def __init__(self, topics: Topics, folder: Path) -> None:
        self.seen: dict[int, list[list[Record]]] = {}
        self._topics = topics
        source = topics.stream(subscribe=SOURCE, startingOffsets="earliest", commitGroupId=GROUP)
        plain = source.writeStream.foreachBatch(self._record)
        copied = topics.stream(subscribe=SOURCE, startingOffsets="earliest")
        once = copied.select("key", "value").writeStream.format("klog")
        once = once.options(**topics.options(topic=ONCE, exactlyOnce="true"))
        self.plain, self.once = (
            writer.option("checkpointLocation", str(folder / name)).trigger(**_TRIGGER).start()
            for name, writer in (("plain", plain), ("once", once))
        )

    @property
    def queries(self) -> "Sequence[StreamingQuery]":
        """Both."""
        return (self.plain, self.once)

    def _record(self, batch: "DataFrame", batch_id: int) -> None:
        rows = batch.selectExpr("partition", "offset", "int(string(value)) as n").collect()
        self.seen.setdefault(batch_id, []).append([Record(*row) for row in rows])
        options = self._topics.options(topic=PLAIN)
        batch.select("key", "value").write.format("klog").options(**options).mode("append").save()

    def go_on(self, what: str) -> None:
        """Wait until both have begun a micro-batch and ended it."""
        begun = [_batch_of(query) for query in self.queries]

        def have() -> bool:
            for query in self.queries:
                assert query.isActive, f"{what}: {query.exception()}"
            pairs = zip(self.queries, begun, strict=True)
            return all(_batch_of(query) > before + 1 for query, before in pairs)

        eventually(have, 300, f"two micro-batches of both queries {what}")

    def stop(self) -> None:
        """Both."""
        for query in self.queries:
            query.stop()


def _batch_of(query: "StreamingQuery") -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def _rest(cluster: KlogCluster) -> None:
    eventually(lambda: lacks(cluster, (SOURCE, PLAIN, ONCE)) is None, 60, "a whole cluster")


@pytest.mark.timeout(1_200)
def test_copies_go_on_through_a_kill_moved_leaders_and_a_rolling_restart(
    spark: Any, cluster: KlogCluster, tmp_path: Path
) -> None:
    servers = cluster.bootstrap_servers
    topics = Topics(servers)
    feed = Feed(servers, RATE_A_S)
    streams = Streams(topics, tmp_path)
    try:
        streams.go_on("at the start")
        sight = seen_by(cluster.broker(1))
        assert sight is not None
        killed = cluster.broker(sight.leaders[SOURCE, 0])
        killed.kill()
        streams.go_on("after the kill of a leader")
        killed.start()
        _rest(cluster)
        admin = AdminClient({"bootstrap.servers": servers})
        admin.elect_leaders(ElectionType.PREFERRED, None).result(30)
        for broker in cluster.brokers:
            broker.stop()
            broker.start()
            _rest(cluster)
        streams.go_on("after leaders moved and a rolling restart")
        feed.stop_writing()
        eventually(lambda: not feed.left(), 60, "the acknowledgement of all records")
        assert feed.failures == []
        for query in streams.queries:
            query.processAllAvailable()
        source = inputs(servers)
        ends = {p: sum(each.partition == p for each in source) for p in range(SOURCE_PARTITIONS)}
        _lag_is_0(streams, servers, ends)
    finally:
        feed.stop_writing()
        streams.stop()
        topics.close()
    numbers: dict[int, list[int]] = {p: [] for p in ends}
    for each in source:
        numbers[each.partition].append(each.number)
    assert sum(map(len, numbers.values())) == len(feed.acknowledged)
    assert problems_of(Seen(streams.seen), {}, numbers) == []
    due = by_key(Copied(*each) for each in source)
    assert {each.number for each in read_all(servers, PLAIN).records} == {
        each.number for each in source
    }
    once = read_all(servers, ONCE)
    assert problems_of_copy(due, once.records, ONCE) == []
    assert problems_of_ends(once.ends, read_all(servers, ONCE, "read_uncommitted").ends, ONCE) == []


def _lag_is_0(streams: Streams, servers: str, ends: dict[int, int]) -> None:
    """Check the lag in both queries' progress, and in the group that follows one of them."""
    for query in streams.queries:

        def is_at_the_end(query: "StreamingQuery" = query) -> bool:
            [found] = pyspark_klog.lag(query.lastProgress)
            return set(found.records.values()) == {0} and len(found.records) == len(ends)

        eventually(is_at_the_end, 60, "a progress without a lag")

    def group() -> dict[int, int]:
        with BlockingClient({"bootstrap.servers": servers}) as client:
            found = committed_offsets(client, GROUP)
        return {where.partition: each.offset for where, each in found.items()}

    eventually(lambda: group() == ends, 60, f"a group at {ends}")
