"""Reads a lake table and the newer records of its topic as one DataFrame."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from pyspark_klog.ids import TopicPartition
from pyspark_klog.lake_tables.border import Origin
from pyspark_klog.lake_tables.pruning import OffsetSpan, files_with_offsets, search_order
from pyspark_klog.lake_tables.reading import TableVersion, read_version
from pyspark_klog.lake_tables.table import TableFile
from pyspark_klog.spark.errors import OptionError
from pyspark_klog.spark.offsets import EARLIEST, LATEST, as_json
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.planning.lake_bounds import LakeLookup, check_start, resolve_spans
from pyspark_klog.spark.source.rows import source_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Spans = Mapping[int, OffsetSpan]

_BOUNDS = (
    *("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets"),
    *("startingOffsetsByTimestampStrategy", "endingTimestamp", "endingOffsetsByTimestamp"),
    "endingOffsets",
)
_OF_TABLE = frozenset(name.lower() for name in (*_BOUNDS, "includeHeaders", "columns"))
"""The options, in lower case, that a read of the table alone takes."""
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("assign", "subscribe", "subscribePattern"), "name the one topic by topic="),
    **dict.fromkeys(("path", "stopped", "table"), "the records come from the table and brokers"),
    "keys": "filter the DataFrame by its column key",
    **dict.fromkeys(
        ("commitGroupId", "committedOffsetsMissing"),
        "begin at earliest, at JSON with offsets, or at a time",
    ),
}
"""Options of the batch source that `lake` does not take, and what to do instead."""
_ISOLATION = "kafka.isolation.level"


def lake(
    spark: "SparkSession",
    table: str,
    topic: str | None = None,
    *,
    snapshot: int | None = None,
    columns: Sequence[str] | str | None = None,
    catalog: Mapping[str, str] | None = None,
    **options: Any,
) -> "DataFrame":
    """A DataFrame of a topic: the records that `klog lake` has copied to a table, and with
    ``topic`` also those that brokers have behind the end of the table, each committed record once::

        orders = pyspark_klog.lake(
            spark,
            "iceberg:lake.klog.orders",
            topic="orders",
            **{"kafka.bootstrap.servers": "host:9092"},
        )

    ``table`` is ``iceberg:CATALOG.NAMESPACE.TABLE`` or ``delta:PATH/TABLE``; ``catalog`` has the
    properties of the Iceberg catalog (by default those of pyiceberg's configuration), or delta-rs'
    storage options. The columns are those of klog's source; ``columns`` names the only ones to
    read. ``options`` are those of klog's batch source. Its options for the start and the end cut
    the table, too, and skip files of the table.

    This call reads the table's file list and end once, and looks up times; the records are read
    when the DataFrame is used. So the table's part of the DataFrame stays the same, and the
    topic's part has all records that are committed by then, unless an option sets the end.

    Without ``topic`` no broker is needed, and ``snapshot`` may name an older version of the table:
    an Iceberg snapshot id or a Delta version.

    :raises KlogError: if the table is missing, has row-level deletes, or belongs to another topic
        (perhaps of the same name), or for an option that is wrong or does not apply
    """
    if topic is not None and snapshot is not None:
        raise OptionError(
            "snapshot and topic are given; expected snapshot alone, which reads an older version "
            "of the table, or topic, whose newest records follow the newest version"
        )
    given = {name: _text(value) for name, value in options.items()}
    if columns is not None:
        given["columns"] = columns if isinstance(columns, str) else ",".join(columns)
    _check_names(given, topic)
    version = read_version(table, catalog or {}, snapshot)
    if topic is None:
        return _table_alone(spark, version, given)
    return _union(spark, version, topic, given)


def _table_alone(
    spark: "SparkSession", version: TableVersion, given: Mapping[str, str]
) -> "DataFrame":
    topic = version.origin.topic
    # With the option path read_options expects no broker.
    read = replace(read_options({**given, "subscribe": topic, "path": version.name}), path=None)
    read.check_batch()
    check_start(read)
    border = {TopicPartition(topic, number): at for number, at in version.border.items()}
    lookup = LakeLookup(border, _TimeSearch(spark, version.files), None)
    spans = resolve_spans(lookup, read, frozenset(border))
    cold = _table_rows(spark, version, spans, read)
    return spark.createDataFrame([], _schema(read)) if cold is None else cold


def _union(
    spark: "SparkSession", version: TableVersion, topic: str, given: Mapping[str, str]
) -> "DataFrame":
    from pyspark_klog.client.cluster.blocking_client import BlockingClient
    from pyspark_klog.spark.planning.discovery import Discovery

    read = read_options({_ISOLATION: "read_committed", **given, "subscribe": topic})
    read.check_batch()
    check_start(read)
    if not read.read_committed:
        raise OptionError(
            f"{_ISOLATION} is {read.client['isolation.level']}; expected read_committed, because "
            "the table has committed records only"
        )
    border = {TopicPartition(topic, number): at for number, at in version.border.items()}
    with BlockingClient(read.client) as client:
        brokers = Discovery(client, read)
        partitions = brokers.partitions() | border.keys()
        topic_id = brokers.topic_ids([topic]).get(topic)
        found = Origin(client.view.cluster_id or "", topic, str(topic_id or ""))
        version.origin.check_union(found, version.name)
        lookup = LakeLookup(border, _TimeSearch(spark, version.files), brokers)
        spans = resolve_spans(lookup, read, partitions)
    cold = _table_rows(spark, version, spans, read)
    hot = _topic_rows(spark, partitions, version, spans, given)
    if hot is None:
        return spark.createDataFrame([], _schema(read)) if cold is None else cold
    return hot if cold is None else cold.unionByName(hot)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_names(given: Mapping[str, str], topic: str | None) -> None:
    names = {name.lower(): name for name in given}
    for name, instead in _REFUSED.items():
        if name.lower() in names:
            raise OptionError(f"option {name} is not for lake: {instead}")
    others = sorted(names[name] for name in names.keys() - _OF_TABLE)
    if topic is None and others:
        raise OptionError(
            f"{', '.join(others)} applies to brokers, and lake reads none without a topic: give "
            "topic=, or leave the option out"
        )


def _schema(read: Options) -> "StructType":
    return source_schema(include_headers=read.include_headers, columns=read.columns)


def _table_rows(
    spark: "SparkSession", version: TableVersion, spans: Spans | None, read: Options
) -> "DataFrame | None":
    """The table's rows in ``spans`` (None: all rows); None if no file can have such a row."""
    files = version.files if spans is None else files_with_offsets(version.files, spans)
    if not files:
        return None
    rows = _parquet(spark, files)
    if spans is not None:
        rows = rows.where(_condition(spans))
    return rows.select(_schema(read).fieldNames())


def _parquet(spark: "SparkSession", files: Iterable[TableFile]) -> "DataFrame":
    schema = source_schema(include_headers=True)
    return spark.read.schema(schema).parquet(*(_address(file.path) for file in files))


def _address(path: str) -> str:
    """The address of a file for Spark, whose default file system may be another one than the local
    one."""
    return f"file:{path}" if path.startswith("/") else path


def _condition(spans: Spans) -> str:
    """A condition of SQL on the rows in ``spans``."""
    parts = []
    for number, span in sorted(spans.items()):
        part = f"`partition` = {number} AND `offset` >= {span.start}"
        parts.append(f"({part} AND `offset` < {span.end})" if span.end is not None else f"({part})")
    return " OR ".join(parts)


def _topic_rows(
    spark: "SparkSession",
    partitions: Iterable[TopicPartition],
    version: TableVersion,
    spans: Spans | None,
    given: Mapping[str, str],
) -> "DataFrame | None":
    """The topic's records from the border on, in ``spans`` (None: all); None if ``spans`` has no
    offset behind the border. Only these partitions are read, even if others are added later."""
    start: dict[TopicPartition, int] = {}
    end: dict[TopicPartition, int] = {}
    for each in partitions:
        border = version.border.get(each.partition, EARLIEST)
        span = OffsetSpan(EARLIEST) if spans is None else spans[each.partition]
        first = max(border, span.start)
        if span.end is None or span.end > first:
            start[each] = first
            end[each] = LATEST if span.end is None else span.end
    if not start:
        return None
    bounds = {name.lower() for name in _BOUNDS}
    options = {name: value for name, value in given.items() if name.lower() not in bounds}
    assigned: dict[str, list[int]] = {}
    for each in sorted(start):
        assigned.setdefault(each.topic, []).append(each.partition)
    options |= {
        _ISOLATION: "read_committed",
        "assign": json.dumps(assigned),
        "startingOffsets": as_json(start),
        "endingOffsets": as_json(end),
    }
    return spark.read.format("klog").options(**options).load()


class _TimeSearch:
    """Finds offsets by time in a table, by small Spark jobs: as a rule each reads three columns of
    one file for each partition."""

    def __init__(self, spark: "SparkSession", files: Sequence[TableFile]) -> None:
        self._spark = spark
        self._files = files

    def __call__(self, times_ms: Mapping[int, int]) -> dict[int, int]:
        """Return by partition the first offset whose record is not older than the partition's time;
        partitions without such a record are left out."""
        found: dict[int, int] = {}
        for turn in (0, 1):
            left = {number: t for number, t in times_ms.items() if number not in found}
            orders = {n: search_order(self._files, n, t * 1_000)[turn] for n, t in left.items()}
            found |= self._search({n: files for n, files in orders.items() if files}, times_ms)
        return found

    def _search(
        self, files: Mapping[int, Sequence[TableFile]], times_ms: Mapping[int, int]
    ) -> dict[int, int]:
        if not files:
            return {}
        unique = {file.path: file for some in files.values() for file in some}
        condition = " OR ".join(
            f"(`partition` = {number} AND `timestamp` >= timestamp_millis({times_ms[number]}))"
            for number in sorted(files)
        )
        rows = _parquet(self._spark, unique.values()).where(condition)
        found = rows.groupBy("partition").agg(f.min("offset").alias("first")).collect()
        return {row["partition"]: row["first"] for row in found}
