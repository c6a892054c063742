"""Catalogue reads: topics, groups, offsets of a cluster and klog's exactly-once sinks as tables.

A batch with ``option("table", ...)`` reads one table. Each table has a fixed schema, which needs no
broker; its rows show the cluster at the moment when the query runs. One task reads all rows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.options.rows import TABLES
from pyspark_klog.spark.workers.error_display import one_line_in_rows
from pyspark_klog.spark.workers.tcp_acknowledgement import Prompt

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from pyspark_klog.client.cluster.blocking_client import BlockingClient
    from pyspark_klog.client.cluster.metadata import ClusterView

Row = tuple[Any, ...]


def _columns(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


_TEXT, _INT, _LONG, _FLAG = StringType(), IntegerType(), LongType(), BooleanType()
_SCHEMAS: Mapping[str, StructType] = {
    "topics": _columns(
        topic=_TEXT, topicId=_TEXT, isInternal=_FLAG, partitions=_INT, replicationFactor=_INT
    ),
    "partitions": _columns(
        topic=_TEXT,
        partition=_INT,
        leader=_INT,
        leaderEpoch=_INT,
        replicas=ArrayType(_INT),
        inSyncReplicas=ArrayType(_INT),
        earliestOffset=_LONG,
        latestOffset=_LONG,
    ),
    "groups": _columns(
        groupId=_TEXT,
        state=_TEXT,
        protocolType=_TEXT,
        coordinator=_INT,
        members=_INT,
        kind=_TEXT,
    ),
    "offsets": _columns(
        groupId=_TEXT,
        topic=_TEXT,
        partition=_INT,
        committedOffset=_LONG,
        metadata=_TEXT,
        latestOffset=_LONG,
        lag=_LONG,
    ),
    "sinks": _columns(
        groupId=_TEXT,
        prefix=_TEXT,
        queryId=_TEXT,
        name=_TEXT,
        task=_INT,
        topic=_TEXT,
        batchId=_LONG,
        runId=_TEXT,
        rows=_LONG,
        bytes=_LONG,
        hash=_TEXT,
        writtenMs=_LONG,
    ),
}
"""The columns of each catalogue table. Null stands for an unknown value, such as the leader and the
offsets of a partition without a leader, or an epoch or topic id that brokers do not have.
``latestOffset`` is the high watermark, or under read_committed the last stable offset. ``lag`` is
``latestOffset`` minus ``committedOffset``, at least 0. A group's ``kind`` is consumer or sink. The
offsets of exactly-once sinks are not in table ``offsets`` but in ``sinks``: a row for each task,
with what the task wrote last, and a row for the query's last run, in which task, rows, bytes and
hash are null. If option exactlyOnceTopic, or option topic in its place, was changed, there are such
rows for each ``topic`` for which offsets are committed."""


def table_schema(table: str) -> StructType:
    """The columns of a catalogue table: topics, partitions, groups, offsets or sinks."""
    return _SCHEMAS[table]


class TableReader(Prompt, DataSourceReader):
    """Reads one catalogue table, such as topics or groups, in one task."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """One task, which asks the brokers, so that the rows are of the moment when it runs."""
        return [InputPartition(self._options.table)]

    @one_line_in_rows
    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        """All rows of the table as one Arrow batch."""
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        from pyspark_klog.spark.workers.clients import client_for

        table = str(partition.value)
        client = client_for(self._options.client)
        rows = _TABLES[table](client, self._options)
        schema = to_arrow_schema(table_schema(table))
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _topics(client: "BlockingClient", _: Options) -> list[Row]:
    rows: list[Row] = []
    for name, topic in sorted(client.refresh(None).topics.items()):
        sizes = [len(info.replicas) for info in topic.partitions.values()]
        topic_id = str(topic.topic_id) if topic.topic_id.int else None
        rows.append(
            (name, topic_id, topic.is_internal, len(topic.partitions), max(sizes, default=None))
        )
    return rows


def _partitions(client: "BlockingClient", options: Options) -> list[Row]:
    from pyspark_klog.client.consumer.offsets import EARLIEST, LATEST

    view = client.refresh(None)
    earliest = _offsets_at(client, view, EARLIEST, options)
    latest = _offsets_at(client, view, LATEST, options)
    rows: list[Row] = []
    for name, topic in sorted(view.topics.items()):
        for number, info in sorted(topic.partitions.items()):
            at = TopicPartition(name, number)
            leader = info.leader if info.leader >= 0 else None
            epoch = info.leader_epoch if info.leader_epoch >= 0 else None
            replicas, in_sync = list(info.replicas), list(info.in_sync)
            rows.append((*at, leader, epoch, replicas, in_sync, earliest.get(at), latest.get(at)))
    return rows


def _groups(client: "BlockingClient", _: Options) -> list[Row]:
    from pyspark_klog.client.admin.groups import list_groups
    from pyspark_klog.client.admin.sink_listing import find_sinks

    groups = list_groups(client)
    of_sinks = find_sinks(client, groups)
    return [
        (
            *(g.group_id, g.state, g.protocol_type, g.coordinator_id, g.member_count),
            "sink" if g.group_id in of_sinks else "consumer",
        )
        for g in groups
    ]


def _sinks(client: "BlockingClient", _: Options) -> list[Row]:
    from pyspark_klog.client.admin.groups import list_groups
    from pyspark_klog.client.admin.sink_listing import find_sinks

    rows: list[Row] = []
    for group in find_sinks(client, list_groups(client)).values():
        begin = (group.group_id, *group.sink, group.task)
        for at, row in group.rows.items():
            sizes = (row.row_count, row.byte_count, f"{row.row_hash:032x}", row.time_ms)
            rows.append((*begin, at.topic, row.batch_id, row.run_id, *sizes))
        for at, mark in group.marks.items():
            rows.append(
                (*begin, at.topic, mark.batch_id, mark.run_id, None, None, None, mark.time_ms)
            )
    return rows


def _offsets(client: "BlockingClient", options: Options) -> list[Row]:
    from pyspark_klog.client.admin.groups import committed_offsets, list_groups
    from pyspark_klog.client.admin.sink_listing import find_sinks
    from pyspark_klog.client.consumer.offsets import LATEST

    listed = list_groups(client)
    of_sinks = find_sinks(client, listed)
    groups = [g.group_id for g in listed if g.has_offsets and g.group_id not in of_sinks]
    found = {group_id: committed_offsets(client, group_id) for group_id in groups}
    wanted = {partition for offsets in found.values() for partition in offsets}
    latest = _offsets_at(client, client.refresh(None), LATEST, options, wanted)
    rows: list[Row] = []
    for group_id, offsets in found.items():
        for partition, at in sorted(offsets.items()):
            end = latest.get(partition)
            lag = None if end is None else max(end - at.offset, 0)
            rows.append((group_id, *partition, at.offset, at.metadata, end, lag))
    return rows


def _offsets_at(
    client: "BlockingClient",
    view: "ClusterView",
    time_ms: int,
    options: Options,
    wanted: set[TopicPartition] | None = None,
) -> dict[TopicPartition, int]:
    """The offsets for ``time_ms``, a timestamp, EARLIEST or LATEST, of those partitions (all, or
    those in ``wanted``) that have a leader, still exist and may be described by this user."""
    from pyspark_klog.client.consumer.offsets import list_offsets
    from pyspark_klog.client.errors import TopicMissing

    by_topic: dict[str, dict[TopicPartition, int]] = {}
    for name, topic in view.topics.items():
        led = [TopicPartition(name, n) for n, info in topic.partitions.items() if info.leader >= 0]
        by_topic[name] = {p: time_ms for p in led if wanted is None or p in wanted}

    def request_offsets(times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = list_offsets(client, times, read_committed=options.read_committed)
        return {partition: at.offset for partition, at in found.items()}

    with suppress(TopicMissing, BrokerError):
        return request_offsets({p: time_ms for times in by_topic.values() for p in times})
    # One topic can fail the request for all: send a request for each topic, and leave out topics
    # that are missing or that this user may not describe.
    found: dict[TopicPartition, int] = {}
    for times in by_topic.values():
        try:
            found |= request_offsets(times)
        except TopicMissing:
            continue
        except BrokerError as error:
            if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
    return found


_TABLES: Mapping[str, Callable[["BlockingClient", Options], list[Row]]] = {
    "topics": _topics,
    "partitions": _partitions,
    "groups": _groups,
    "offsets": _offsets,
    "sinks": _sinks,
}

assert tuple(_TABLES) == tuple(_SCHEMAS) == TABLES
