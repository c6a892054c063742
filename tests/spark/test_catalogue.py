"""Catalogue reads: topics, partitions, groups and offsets as tables."""

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from pyspark_klog.client.admin.groups import CommittedOffset, commit_offsets
from pyspark_klog.client.admin.sink_progress import ProgressRow, RunMark, SinkId
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.ids import TopicPartition
from tests.support.spark.topics import Topics

pytestmark = pytest.mark.parity("beyond: 12 catalogue", "own option: table")


def _table(topics: Topics, name: str, **options: str) -> DataFrame:
    return topics.batch(table=name, **options)


def test_topics(topics: Topics) -> None:
    topic = topics.create(3)
    found = _table(topics, "topics").where(f"topic = '{topic}'").collect()
    assert [(r.topic, r.isInternal, r.partitions, r.replicationFactor) for r in found] == [
        (topic, False, 3, 1)
    ]
    assert len(found[0].topicId) == 36


@pytest.mark.oldest
def test_partitions_with_their_ends(topics: Topics) -> None:
    topic = topics.create(2)
    topics.put_numbers(topic, range(5), partition=1)
    frame = _table(topics, "partitions").where(f"topic = '{topic}'").orderBy("partition")
    columns = frame.selectExpr(
        "partition", "leader", "replicas", "inSyncReplicas", "earliestOffset", "latestOffset"
    )
    leader = columns.first().leader
    assert [tuple(row) for row in columns.collect()] == [
        (0, leader, [leader], [leader], 0, 0),
        (1, leader, [leader], [leader], 0, 5),
    ]


def test_groups_and_their_offsets_with_lag(topics: Topics) -> None:
    topic = topics.create(2)
    topics.put_numbers(topic, range(5))
    group = f"group-of-{topic}"
    with BlockingClient({"bootstrap.servers": topics.servers}) as client:
        at = {TopicPartition(topic, 0): CommittedOffset(3, metadata="three")}
        commit_offsets(client, group, at | {TopicPartition(topic, 1): CommittedOffset(0)})
    listed = _table(topics, "groups").where(f"groupId = '{group}'").collect()
    assert [(r.state, r.members) for r in listed] == [("Empty", 0)]
    found = _table(topics, "offsets").where(f"groupId = '{group}'").orderBy("partition")
    assert [tuple(row) for row in found.collect()] == [
        (group, topic, 0, 3, "three", 5, 2),
        (group, topic, 1, 0, "", 0, 0),
    ]


def test_groups_of_exactly_once_sinks_have_rows_and_no_lag(topics: Topics) -> None:
    topic = topics.create(1)
    sink = SinkId("klog-sink", f"query-of-{topic}", "sink")
    row, mark = ProgressRow(7, "a-run", 5, 600, 0xAB, 1_000), RunMark(3, "a-run", 500)
    with BlockingClient({"bootstrap.servers": topics.servers}) as client:
        at = TopicPartition(topic, 0)
        commit_offsets(client, sink.task(2), {at: row.to_offset()})
        commit_offsets(client, sink.mark, {at: mark.to_offset()})
        commit_offsets(client, f"group-of-{topic}", {at: CommittedOffset(0)})
    ours = f"groupId like '%of-{topic}%'"
    kinds = _table(topics, "groups").where(ours).select("groupId", "kind").collect()
    assert {r.groupId: r.kind for r in kinds} == {
        sink.task(2): "sink",
        sink.mark: "sink",
        f"group-of-{topic}": "consumer",
    }
    offsets = _table(topics, "offsets").where(ours).collect()
    assert [r.groupId for r in offsets] == [f"group-of-{topic}"]
    found = _table(topics, "sinks").where(ours).orderBy("batchId").collect()
    assert [tuple(r)[1:] for r in found] == [
        (*sink, None, topic, 3, "a-run", None, None, None, 500),
        (*sink, 2, topic, 7, "a-run", 5, 600, f"{0xAB:032x}", 1_000),
    ]


def test_a_deleted_topic_leaves_no_lag_and_spoils_nothing(topics: Topics) -> None:
    gone, there = topics.create(1), topics.create(1)
    group = f"group-of-{gone}"
    with BlockingClient({"bootstrap.servers": topics.servers}) as client:
        both = {TopicPartition(t, 0): CommittedOffset(0) for t in (gone, there)}
        commit_offsets(client, group, both)
    topics.delete(gone)
    rows = _table(topics, "offsets").where(f"groupId = '{group}'").collect()
    # The broker drops the offsets of a deleted topic; a row that is left has no end.
    assert {r.topic: r.lag for r in rows} in ({there: 0}, {there: 0, gone: None})


def test_the_schema_is_known_without_a_broker(spark: SparkSession) -> None:
    reader = spark.read.format("klog").option("kafka.bootstrap.servers", "127.0.0.1:1")
    frame = reader.option("table", "groups").load()
    assert frame.schema.simpleString() == (
        "struct<groupId:string,state:string,protocolType:string,coordinator:int,members:int,kind:string>"
    )


def test_rows_are_those_of_the_run(topics: Topics) -> None:
    frame = _table(topics, "topics").select("topic")
    before = {row.topic for row in frame.collect()}
    topic = topics.create(1)
    assert {row.topic for row in frame.collect()} - before == {topic}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"table": "records"}, "expected topics or partitions or groups or offsets or sinks"),
        ({"table": "topics", "subscribe": "t"}, "not records: leave out subscribe"),
        ({"table": "topics", "maxOffsetsPerTrigger": "5"}, "leave out maxOffsetsPerTrigger"),
    ],
)
def test_what_a_table_cannot_be(topics: Topics, options: dict[str, str], text: str) -> None:
    with pytest.raises(AnalysisException, match=text):
        topics.batch(**options)


def test_no_stream_of_a_table(topics: Topics, tmp_path: object) -> None:
    frame = topics.stream(table="topics")
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(Exception, match="option table is for batches"):
        writer.trigger(availableNow=True).start().awaitTermination(60)
