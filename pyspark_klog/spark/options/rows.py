"""Every option of the data source as a row; `reader.py` reads them.

Names are those of Spark's Kafka connector where it has the option; keys are case-insensitive.
"""

import enum
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from pyspark_klog.spark.options.values import (
    INT_MAX,
    Choice,
    Duration,
    Flag,
    IdPart,
    Kind,
    Text,
    Timestamp,
    WholeNumber,
    Words,
)

_T = TypeVar("_T")


class Use(enum.Flag):
    """The kinds of queries to which an option applies."""

    STREAM = enum.auto()
    BATCH = enum.auto()
    SINK = enum.auto()
    SOURCE = STREAM | BATCH


class Status(enum.Enum):
    """Whether klog applies an option, or accepts it without effect."""

    APPLIED = "applied"
    NONE = "without effect"


class Option(NamedTuple):
    """One option: `read_option` parses and tools/docs/options.py prints what is declared here."""

    name: str
    use: Use
    default: str | None
    """The default, as a user would write it."""
    doc: str
    kind: Kind | str = ""
    """The values that the option may have: a `Kind`, which parses them, or a text that describes
    values which another function parses."""
    example: str = ""
    status: Status = Status.APPLIED

    @property
    def values(self) -> str:
        """The values that may be given, in words, with an example where they are not obvious."""
        unit = "ms, " if self.name.endswith("Ms") else ""
        example = f": `{self.example}`" if self.example else ""
        return f"{unit}{self.kind}{example}"


_S, _B, _SB = Use.STREAM, Use.BATCH, Use.SOURCE
_ALL = Use.SOURCE | Use.SINK

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""The words that the option ``columns`` accepts: the names of a source's columns."""

TABLES = ("topics", "partitions", "groups", "offsets", "sinks")
"""The words that the option ``table`` accepts, each for one table of facts about the cluster."""

OPTIONS: tuple[Option, ...] = (
    # Options that name brokers
    Option(
        *("kafka.bootstrap.servers", _ALL, None),
        "one or more brokers of the cluster; required without `path`",
        "`host:port,host:port`",
    ),
    Option(
        "bootstrap.servers", _ALL, None, "as `kafka.bootstrap.servers`", "`host:port,host:port`"
    ),
    # Options that select the records and columns to read
    Option(
        *("assign", _SB, None),
        "these partitions; a read needs exactly one of `assign`, `subscribe`, `subscribePattern`",
        """JSON: `{"orders":[0,1],"bills":[0]}`""",
    ),
    Option("subscribe", _SB, None, "all partitions of these topics", "`orders,bills`"),
    Option(
        *("subscribePattern", _SB, None),
        "topics whose names contain a match, including new topics, without internal topics",
        "Java's regular expressions: `^orders-.*`",
    ),
    Option(
        *("includeHeaders", _SB, "false"),
        "adds the column `headers`, `array<struct<key:string,value:binary>>`",
        Flag(),
    ),
    Option(
        *("columns", _SB, None),
        "make only these columns, in this order, so that Spark copies less; all by default",
        Words(COLUMNS),
        "key,value",
    ),
    Option(
        *("keys", _B, None),
        "only records with one of these keys, from the partitions in which the default partitioner "
        "puts them ([backfills](backfills.md))",
        """JSON: `["customer-1","customer-7"]`""",
    ),
    # Options for the start and the end of a read
    Option(
        *("startingTimestamp", _SB, None),
        "begin at the first record that is not older; overrides the other starting options",
        Timestamp(),
    ),
    Option(
        *("startingOffsetsByTimestamp", _SB, None),
        "`startingTimestamp` for each partition; overrides `startingOffsets`",
        """JSON: `{"orders":{"0":1700000000000}}`""",
    ),
    Option(
        *("startingOffsets", _SB, None),
        "where a new query begins: by default streams at `latest`, batches at `earliest`. "
        "`committed`: at the offsets of the group `commitGroupId`",
        "`earliest`, `latest` (streams), `committed`, or JSON with an offset for every partition, "
        """-2 for earliest, -1 for latest (streams), or a word for a topic: """
        """`{"orders":{"0":23,"1":-2},"bills":"earliest"}`""",
    ),
    Option(
        *("startingOffsetsByTimestampStrategy", _SB, "error"),
        "if no record is as new as the starting timestamp: fail, or begin at the end",
        Choice(("error", "latest")),
    ),
    Option(
        *("endingTimestamp", _B, None),
        "end before the first record that is not older, even if older records follow; without such "
        "a record at the end ([backfills](backfills.md))",
        Timestamp(),
    ),
    Option(
        *("endingOffsetsByTimestamp", _B, None),
        "`endingTimestamp` for each partition; overrides `endingOffsets`",
        """JSON: `{"orders":{"0":1700000000000}}`""",
    ),
    Option(
        *("endingOffsets", _B, "latest"),
        "where a batch ends (exclusive); `latest` is found when the first query is planned",
        """`latest`, or JSON, -1 for latest: `{"orders":{"0":50,"1":-1}}`""",
    ),
    # Options that limit a micro-batch, for Spark 4.2 and later
    Option(
        *("maxOffsetsPerTrigger", _S, None),
        "most offsets of one micro-batch, shared by backlog; a partition with records gets at "
        "least one",
        WholeNumber(1),
    ),
    Option(
        *("maxOffsetsPerTriggerByTopic", _S, None),
        "`maxOffsetsPerTrigger` for single topics; both can be combined",
        """JSON: `{"orders":1000}`""",
    ),
    Option(
        *("maxBytesPerTrigger", _S, None),
        "most bytes of one micro-batch, compressed as in the log; estimated from samples",
        WholeNumber(1),
        "67108864",
    ),
    Option(
        *("minOffsetsPerTrigger", _S, None),
        "a micro-batch, except the first, waits for this many offsets",
        WholeNumber(1),
    ),
    Option("maxTriggerDelay", _S, "15m", "longest wait for `minOffsetsPerTrigger`", Duration()),
    # Options that divide a read into tasks
    Option(
        *("minPartitions", _SB, None),
        "cut large ranges of offsets into about this many tasks; by default one task a partition",
        WholeNumber(1, INT_MAX),
    ),
    Option(
        *("maxRecordsPerPartition", _SB, None),
        "most offsets of one task; applied before `minPartitions`",
        WholeNumber(1),
    ),
    # Options for lost data, retries and waits, and to read without the package numba
    Option(
        *("failOnDataLoss", _SB, "true"),
        "fail if records, partitions or topics were deleted before they were read; `false` warns "
        "and reads the rest",
        Flag(),
    ),
    Option(
        *("kafkaConsumer.pollTimeoutMs", _SB, "120000"),
        "a task fails after this time without progress, retries included",
        WholeNumber(1, INT_MAX),
    ),
    Option(
        *("fetchOffset.numRetries", _SB, "3"),
        "most attempts to find topics and offsets",
        WholeNumber(1, INT_MAX),
    ),
    Option(
        *("fetchOffset.retryIntervalMs", _SB, "1000"),
        "wait between the attempts of `fetchOffset.numRetries`",
        WholeNumber(0, INT_MAX),
    ),
    Option(
        *("idleWaitMs", _S, "50"),
        "wait before an idle stream looks for records again (no wait before Spark 4.2, or with 0)",
        WholeNumber(0, INT_MAX),
    ),
    Option(
        *("allowSlow", _ALL, "false"),
        "run without numba, orders of magnitude slower, instead of failing",
        Flag(),
    ),
    # Options about consumer groups and lag, through which other tools see a stream's progress
    Option(
        *("commitGroupId", _SB, None),
        "commit a stream's position to this consumer group, without active members, for lag tools, "
        "once it is in Spark's checkpoint; also the group of `startingOffsets=committed`",
        Text("the id of a consumer group"),
    ),
    Option(
        *("committedOffsetsMissing", _SB, "error"),
        "where `startingOffsets=committed` begins in a partition without an offset of the group",
        Choice(("error", "earliest", "latest")),
    ),
    Option(
        *("lagDetails", _S, "false"),
        "add the lag in time to the progress, for `pyspark_klog.lag`",
        Flag(),
    ),
    # Options to read tables of facts about the cluster, or files without a broker
    Option(
        *("table", _B, None),
        "read facts about the cluster "
        "([columns](progress-and-lag.md#what-the-cluster-knows-table))",
        Choice(TABLES),
    ),
    Option(
        *("path", _B, None),
        "read the files of a broker's data directory (`log.dirs`) without a broker; `load(DIR)` is "
        "the same ([segment files](segment-files.md))",
        "a directory that the driver and all executors see",
    ),
    Option(
        *("stopped", _B, "false"),
        "states that no broker runs on `path`, so that files without a high watermark can be read",
        Flag(),
    ),
    # Options of sinks
    Option(
        *("topic", Use.SINK, None),
        "the topic of all rows; overrides the column `topic`. One of both is required",
        Text("the name of a topic"),
    ),
    Option(
        *("timestampColumn", Use.SINK, None),
        "the column, of Spark's type timestamp, with the records' timestamps; by default, and for "
        "null, the time of writing ([timestamps](sink.md#the-records-timestamps))",
        "a column's name: `timestamp`",
    ),
    Option(
        *("deadLetterTopic", Use.SINK, None),
        "the topic for rows that cannot be written, with the reason; without it the first such row "
        "fails the job ([dead letters](sink.md#dead-letters))",
        Text("the name of a topic"),
    ),
    Option(
        *("deadLetterMax", Use.SINK, None),
        "most dead letters of one batch; more fail it",
        WholeNumber(0),
    ),
    Option(
        *("exactlyOnce", Use.SINK, "false"),
        "write each row exactly once, in transactions, for readers of committed records "
        "([exactly once](exactly-once.md))",
        Flag(),
    ),
    Option(
        *("exactlyOnceName", Use.SINK, "sink"),
        "the sink's name within its query; required by `batch_writer`. Do not change it later: "
        "under another name the sink has no progress",
        IdPart(),
        "orders",
    ),
    Option(
        *("exactlyOncePrefix", Use.SINK, "klog-sink"),
        "the first part of the sink's transactional ids and groups, "
        "`<prefix>.<query id>.<name>.<task>`. Do not change it later",
        IdPart(may_have_dots=True),
    ),
    Option(
        *("exactlyOnceTopic", Use.SINK, None),
        "the existing topic whose partition 0 the progress rows name as their offset; by default "
        "the option `topic`, without which it is required. Do not change it later",
        Text("the name of a topic"),
    ),
    Option(
        *("exactlyOnceMismatch", Use.SINK, "fail"),
        "if a repeated task has other rows than were committed: fail, or keep the committed rows "
        "if the number of rows is equal (for sums of floats, which depend on the order)",
        Choice(("fail", "keep")),
    ),
    Option(
        *("exactlyOnceMissing", Use.SINK, "fail"),
        "if progress rows are missing: fail, or continue, which may write a micro-batch again. Set "
        "`continue` for one start only, also to begin with exactlyOnce on an older checkpoint",
        Choice(("fail", "continue")),
    ),
    Option(
        *("exactlyOnceQuery", Use.SINK, None),
        "for `batch_writer` under Spark Connect, which does not know the query's id: a name that "
        "only this query has. Do not change it later",
        IdPart(),
        "orders-copy",
    ),
    # Options of Spark's Kafka connector that klog accepts without effect
    *(
        Option(name, use, None, doc, status=Status.NONE)
        for name, use, doc in (
            ("groupIdPrefix", _SB, "klog reads given offsets: it joins no group"),
            ("useDeprecatedOffsetFetching", _SB, "klog asks brokers for offsets in only one way"),
        )
    ),
)

REMOVED: dict[str, str] = {
    "pushdown": "Spark reused the filters of one query for others; give assign, "
    "startingTimestamp, startingOffsets, endingOffsets or keys, and let Spark filter the rows",
}
"""Options of earlier releases that are refused, and what to do instead."""

BY_KEY: dict[str, Option] = {row.name.lower(): row for row in OPTIONS}


def read_optional(options: Mapping[str, str], name: str, value_type: type[_T]) -> _T | None:
    """The value that ``options`` has for the option ``name``, else the option's default, else None.

    The keys of ``options`` are in lower case. ``value_type`` is the Python type of the value.

    :raises OptionError: if the user gave a text that is no value of this option
    """
    row = BY_KEY[name.lower()]
    text = options.get(name.lower(), row.default)
    if text is None:
        return None
    assert not isinstance(row.kind, str)
    value = row.kind.parse(row.name, text)
    assert isinstance(value, value_type)
    return value


def read_option(options: Mapping[str, str], name: str, value_type: type[_T]) -> _T:
    """The value of an option that has a default or is given; see `read_optional`."""
    value = read_optional(options, name, value_type)
    assert value is not None
    return value


SPARKS_OWN = frozenset(
    {
        "checkpointlocation",
        "dbtable",
        "header",
        "mergeschema",
        "outputmode",
        "provider",
        "queryname",
        "schema",
        "trigger",
        "truncate",
    }
)
"""Options of any source or sink that are Spark's own: Spark adds them, or users set them."""

REFUSED_BY_SOURCE: dict[str, str] = {
    "auto.offset.reset": "use startingOffsets",
    "key.deserializer": "keys are binary: cast the column",
    "value.deserializer": "values are binary: cast the column",
    "enable.auto.commit": "progress is kept in Spark's checkpoint",
    "interceptor.classes": "interceptors are Java classes, and could change what is read",
}
"""Kafka's settings that no source takes, as in Spark's connector, and what to do instead."""

REFUSED_BY_SINK: dict[str, str] = {
    "key.serializer": "keys are string or binary: cast the column",
    "value.serializer": "values are string or binary: cast the column",
    "interceptor.classes": "interceptors are Java classes, and could change what is written",
    "transactional.id": "use exactlyOnce=true; the sink makes an id for each task",
}
"""Kafka's settings that no sink takes, and what to do instead. Spark's connector refuses the first
two, applies the third, and fails at the first row with the fourth."""
