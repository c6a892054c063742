"""Every option of the data source as a row; `reader.py` reads them.

Names are those of Spark's Kafka connector where it has the option; keys are case-insensitive.
"""

from enum import Enum, Flag, auto
from typing import NamedTuple

from pyspark_klog.spark.options.exactly_once import DEFAULT_NAME, DEFAULT_PREFIX


class Use(Flag):
    """Where an option counts."""

    STREAM = auto()
    BATCH = auto()
    SINK = auto()
    SOURCE = STREAM | BATCH


class Status(Enum):
    """What klog does with an option."""

    APPLIED = "applied"
    NONE = "without effect"


class Option(NamedTuple):
    """One option, as docs/options.md shows it: tools/docs/options.py prints that page."""

    name: str
    use: Use
    default: str | None
    """The default, as a user would write it."""
    doc: str
    values: str = ""
    """The values that may be given, with an example where they are not obvious."""
    status: Status = Status.APPLIED


_S, _B, _SB = Use.STREAM, Use.BATCH, Use.SOURCE
_ALL = Use.SOURCE | Use.SINK
_FLAG = "`true`, `false`"
_FROM_1 = "a whole number from 1 on"
_MS = "ms, from 0 on"
_PART = "letters of a to z, A to Z, digits, `_`, `-`"

OPTIONS: tuple[Option, ...] = (
    # Which brokers
    Option(
        *("kafka.bootstrap.servers", _ALL, None),
        "required (but for `path`): one or more brokers of the cluster, to begin with",
        "`host:port,host:port`",
    ),
    Option("bootstrap.servers", _ALL, None, "the same without the prefix", "the same"),
    # What is read
    Option(
        *("assign", _SB, None),
        "these partitions; exactly one of this and the next two is required to read",
        """JSON: `{"orders":[0,1],"bills":[0]}`""",
    ),
    Option("subscribe", _SB, None, "all partitions of these topics", "`orders,bills`"),
    Option(
        *("subscribePattern", _SB, None),
        "topics in whose names the expression is found, new ones too; internal ones are left out",
        "Java's regular expressions: `^orders-.*`",
    ),
    Option(
        *("includeHeaders", _SB, "false"),
        "adds the column `headers`, `array<struct<key:string,value:binary>>`",
        _FLAG,
    ),
    Option(
        *("columns", _SB, None),
        "only these columns are made, in this order: less for Spark to copy; all unless given",
        "`key,value`; any of `key`, `value`, `topic`, `partition`, `offset`, `timestamp`, "
        "`timestampType`, `headers`",
    ),
    Option(
        *("keys", _B, None),
        "only records with one of these keys, from the partitions in which the default partitioner "
        "puts them: see [backfills](backfills.md)",
        """JSON: `["customer-1","customer-7"]`""",
    ),
    # Where it begins and ends
    Option(
        *("startingTimestamp", _SB, None),
        "begin at the first record that is not older; goes before the next two",
        "ms since 1970: `1700000000000`",
    ),
    Option(
        *("startingOffsetsByTimestamp", _SB, None),
        "the same with a time for each partition; goes before `startingOffsets`",
        """JSON: `{"orders":{"0":1700000000000}}`""",
    ),
    Option(
        *("startingOffsets", _SB, None),
        "where a new query begins: `latest` is a stream's default, `earliest` a batch's; a stream "
        "that goes on has its checkpoint. `committed`: where the group of `commitGroupId` is",
        "`earliest`, `latest` (streams), `committed`, or JSON with an offset for every partition, "
        """-2 for earliest, -1 for latest (streams), or a word for a topic: """
        """`{"orders":{"0":23,"1":-2},"bills":"earliest"}`""",
    ),
    Option(
        *("startingOffsetsByTimestampStrategy", _SB, "error"),
        "where no record is as young as a starting timestamp: fail, or begin at the end",
        "`error`, `latest`",
    ),
    Option(
        *("endingTimestamp", _B, None),
        "end before the first record that is not older, whatever stands behind it; at the end if "
        "there is none: see [backfills](backfills.md)",
        "ms since 1970",
    ),
    Option(
        *("endingOffsetsByTimestamp", _B, None),
        "the same with a time for each partition",
        "JSON, as above",
    ),
    Option(
        *("endingOffsets", _B, "latest"),
        "where a batch ends (exclusive), as of when the query runs first",
        """`latest`, or JSON, -1 for latest: `{"orders":{"0":50,"1":-1}}`""",
    ),
    # How much a micro-batch takes (Spark 4.2 and later)
    Option(
        *("maxOffsetsPerTrigger", _S, None),
        "most offsets of one micro-batch, shared by backlog; a partition with records gets at "
        "least 1",
        _FROM_1,
    ),
    Option(
        *("maxOffsetsPerTriggerByTopic", _S, None),
        "the same for some of the topics, beside or without it",
        """JSON: `{"orders":1000}`""",
    ),
    Option(
        *("maxBytesPerTrigger", _S, None),
        "about the most bytes of one micro-batch, compressed as they are in the log; by samples",
        f"{_FROM_1}: `67108864`",
    ),
    Option(
        *("minOffsetsPerTrigger", _S, None),
        "a micro-batch waits until so many offsets are there; the first does not",
        _FROM_1,
    ),
    Option(
        *("maxTriggerDelay", _S, "15m"),
        "but no longer than this",
        "a number and us, ms, s, m, min, h or d: `90s`",
    ),
    # How it is cut into tasks
    Option(
        *("minPartitions", _SB, None),
        "about so many tasks: large ranges of offsets are cut; without it a partition is a task",
        _FROM_1,
    ),
    Option(
        *("maxRecordsPerPartition", _SB, None),
        "most offsets of one task; applied before `minPartitions`",
        _FROM_1,
    ),
    # When something is missing, or late
    Option(
        *("failOnDataLoss", _SB, "true"),
        "fail when records, partitions or topics that were to be read are gone; else warn and go "
        "on with what is there",
        _FLAG,
    ),
    Option(
        *("kafkaConsumer.pollTimeoutMs", _SB, "120000"),
        "longest time without progress in a task, retries included; then it fails",
        f"ms, {_FROM_1}",
    ),
    Option(
        *("fetchOffset.numRetries", _SB, "3"),
        "how often topics and offsets are asked for in all while they are not there",
        _FROM_1,
    ),
    Option("fetchOffset.retryIntervalMs", _SB, "1000", "wait between these attempts", _MS),
    Option(
        *("idleWaitMs", _S, "50"),
        "wait before a stream that has read all looks again (none before Spark 4.2); 0 never waits",
        _MS,
    ),
    Option(
        *("allowSlow", _ALL, "false"),
        "run without numba, orders of magnitude slower, instead of refusing to",
        _FLAG,
    ),
    # Progress for other tools
    Option(
        *("commitGroupId", _SB, None),
        "a stream commits its position to this consumer group, for lag tools, once Spark has it in "
        "the checkpoint; also the group of `startingOffsets=committed`",
        "a group's id, without active members",
    ),
    Option(
        *("committedOffsetsMissing", _SB, "error"),
        "what `startingOffsets=committed` does in a partition in which the group has no offset",
        "`error`, `earliest`, `latest`",
    ),
    Option(
        *("lagDetails", _S, "false"),
        "the progress tells the lag in time, too, as `pyspark_klog.lag` reads it",
        _FLAG,
    ),
    # Something else than a topic's records
    Option(
        *("table", _B, None),
        "these facts of the cluster as rows, instead of records",
        "`topics`, `partitions`, `groups`, `offsets`, `sinks`",
    ),
    Option(
        *("path", _B, None),
        "a broker's data directory (`log.dirs`): its files are read and no broker is asked; "
        "`load(DIR)` is the same ([segment files](segment-files.md))",
        "a directory that the driver and all executors see",
    ),
    Option(
        *("stopped", _B, "false"),
        "no broker runs on `path`: all that is in its files counts",
        _FLAG,
    ),
    # Writing
    Option(
        *("topic", Use.SINK, None),
        "where all rows go; goes before the column `topic`. One of both is required",
        "a topic's name",
    ),
    Option(
        *("timestampColumn", Use.SINK, None),
        "the column of Spark's type timestamp whose values are the records' timestamps; without "
        "this option, and for a null, that is the time of writing "
        "([timestamps](sink.md#the-records-timestamps))",
        "a column's name: `timestamp`",
    ),
    Option(
        *("deadLetterTopic", Use.SINK, None),
        "where rows go that cannot be written, with the reason; else the first one fails the job "
        "([the sink](sink.md))",
        "a topic's name",
    ),
    Option(
        *("deadLetterMax", Use.SINK, None),
        "most such rows of one batch; more fail it",
        "a whole number from 0 on",
    ),
    Option(
        *("exactlyOnce", Use.SINK, "false"),
        "each row is written exactly once, in transactions, for those who read committed records",
        _FLAG,
    ),
    Option(
        *("exactlyOnceName", Use.SINK, DEFAULT_NAME),
        "tells the sinks of one query apart; `batch_writer` requires it. Once a query runs, keep "
        "it: by another name nothing of what was written is known",
        f"{_PART}: `orders`",
    ),
    Option(
        *("exactlyOncePrefix", Use.SINK, DEFAULT_PREFIX),
        "the first part of the sink's transactional ids and groups, "
        "`<prefix>.<query id>.<name>.<task>`; keep it, too",
        f"{_PART}, `.`",
    ),
    Option(
        *("exactlyOnceTopic", Use.SINK, None),
        "the topic under which the groups' positions are stored; the option `topic` unless given, "
        "and required without that. It must exist; keep it, too",
        "a topic's name",
    ),
    Option(
        *("exactlyOnceMismatch", Use.SINK, "fail"),
        "what a repeated micro-batch does that has other rows than what was committed of it: fail, "
        "or keep what was committed",
        "`fail`, `keep`",
    ),
    Option(
        *("exactlyOnceMissing", Use.SINK, "fail"),
        "what a query does that goes on while what it wrote last is not known any more: fail, or "
        "continue, which may write a micro-batch again; also to begin with exactlyOnce on a "
        "checkpoint that was without it",
        "`fail`, `continue`",
    ),
    Option(
        *("exactlyOnceQuery", Use.SINK, None),
        "for `batch_writer` under Spark Connect, which cannot tell the query's id: a name of this "
        "query alone; keep it, too",
        f"{_PART}: `orders-copy`",
    ),
    # Without effect
    *(
        Option(name, use, None, doc, status=Status.NONE)
        for name, use, doc in (
            ("groupIdPrefix", _SB, "klog reads given offsets: it joins no group"),
            ("useDeprecatedOffsetFetching", _SB, "klog asks brokers for offsets in one way"),
        )
    ),
)

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""The words of the option ``columns``."""

REMOVED: dict[str, str] = {
    "pushdown": "Spark reused the filters of one query for others; give assign, "
    "startingTimestamp, startingOffsets, endingOffsets or keys, and let Spark filter the rows",
}
"""Options of earlier releases that are refused, and what to do instead."""

BY_KEY: dict[str, Option] = {row.name.lower(): row for row in OPTIONS}

TABLES = ("topics", "partitions", "groups", "offsets", "sinks")
"""The words of the option ``table``."""

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
"""Options that Spark itself passes to, or that users set for Spark on, any source or sink."""

REFUSED_BY_SOURCE: dict[str, str] = {
    "auto.offset.reset": "use startingOffsets",
    "key.deserializer": "keys are binary: cast the column",
    "value.deserializer": "values are binary: cast the column",
    "enable.auto.commit": "progress is kept in Spark's checkpoint",
    "interceptor.classes": "interceptors are Java classes, and could change what is read",
}
"""Kafka's settings that no source takes, and what to do instead: those of Spark's connector."""

REFUSED_BY_SINK: dict[str, str] = {
    "key.serializer": "keys are string or binary: cast the column",
    "value.serializer": "values are string or binary: cast the column",
    "interceptor.classes": "interceptors are Java classes, and could change what is written",
    "transactional.id": "use exactlyOnce=true; the sink makes an id for each task",
}
"""Kafka's settings that no sink takes, and what to do instead. Spark's connector refuses the first
two, applies the third, and fails at the first row with the fourth."""
