"""Every option of the data source as a row; `options.py` reads them.

Names are those of Spark's Kafka connector where it has the option; keys are case-insensitive.
"""

from enum import Enum, Flag, auto
from typing import NamedTuple


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
    LATER = "not supported yet"


class Option(NamedTuple):
    """One option; ``default`` is shown as a user would write it."""

    name: str
    use: Use
    default: str | None
    doc: str
    status: Status = Status.APPLIED


_S, _B, _SB = Use.STREAM, Use.BATCH, Use.SOURCE
_ALL = Use.SOURCE | Use.SINK

OPTIONS: tuple[Option, ...] = (
    Option("kafka.bootstrap.servers", _ALL, None, "host:port of one or more brokers; required"),
    Option("bootstrap.servers", _ALL, None, "the same without the prefix"),
    Option("assign", _SB, None, 'partitions to read: {"t":[0,1]}'),
    Option("subscribe", _SB, None, "topics to read: a,b"),
    Option("subscribePattern", _SB, None, "topics in whose names this Java regex is found"),
    Option("startingTimestamp", _SB, None, "ms since 1970; goes before the next two"),
    Option("startingOffsetsByTimestamp", _SB, None, 'the same by partition: {"t":{"0":1000}}'),
    Option("startingOffsets", _SB, None, "latest (stream's), earliest (batch's), committed, JSON"),
    Option(
        "startingOffsetsByTimestampStrategy",
        _SB,
        "error",
        "error or latest, where no record is as young as a starting timestamp",
    ),
    Option("endingTimestamp", _B, None, "ms since 1970; goes before the next two"),
    Option("endingOffsetsByTimestamp", _B, None, "the same by partition; no match is latest"),
    Option("endingOffsets", _B, "latest", "latest, or JSON"),
    Option("failOnDataLoss", _SB, "true", "whether a query fails when records are gone"),
    Option("maxOffsetsPerTrigger", _S, None, "most offsets of one micro-batch"),
    Option("maxOffsetsPerTriggerByTopic", _S, None, 'the same for some topics: {"t":1000}'),
    Option("maxBytesPerTrigger", _S, None, "about the most bytes of one, compressed as they are"),
    Option("minOffsetsPerTrigger", _S, None, "a micro-batch waits for so many offsets"),
    Option("maxTriggerDelay", _S, "15m", "the longest such wait: 15m, 90s, 1h"),
    Option("minPartitions", _SB, None, "tasks to cut large ranges into, about"),
    Option("maxRecordsPerPartition", _SB, None, "most offsets of one task"),
    Option("includeHeaders", _SB, "false", "whether there is a column headers"),
    Option("kafkaConsumer.pollTimeoutMs", _SB, "120000", "longest wait for records"),
    Option("fetchOffset.numRetries", _SB, "3", "attempts to find topics and offsets"),
    Option("fetchOffset.retryIntervalMs", _SB, "1000", "wait between them"),
    Option(
        "commitGroupId",
        _SB,
        None,
        "a consumer group that a stream's position is committed to, for lag tools",
    ),
    Option(
        "committedOffsetsMissing",
        _SB,
        "error",
        "error, earliest or latest: startingOffsets=committed in a partition without an offset",
    ),
    Option("idleWaitMs", _S, "50", "longest wait in latestOffset after an empty poll; 0 = never"),
    Option("lagDetails", _S, "false", "whether the progress has the lag in time, too"),
    Option("allowSlow", _ALL, "false", "run without numba, orders of magnitude slower"),
    Option("topic", Use.SINK, None, "where rows go; wins over the column topic"),
    Option("deadLetterTopic", Use.SINK, None, "where rows go that cannot be written"),
    Option("deadLetterMax", Use.SINK, None, "most such rows of one batch; more fail it"),
    Option("table", _B, None, "read the cluster's topics, partitions, groups or offsets instead"),
    *(
        Option(name, use, None, doc, Status.NONE)
        for name, use, doc in (
            ("groupIdPrefix", _SB, "klog reads given offsets: it joins no group"),
            ("useDeprecatedOffsetFetching", _SB, "klog asks brokers for offsets in one way"),
        )
    ),
    Option("path", _B, None, "a broker's data directory: read its files, no broker is asked"),
    Option("stopped", _B, "false", "whether no broker runs on path"),
    *(
        Option(name, use, None, "", Status.LATER)
        for name, use in (
            ("pushdown", _B),
            ("columns", _SB),
        )
    ),
)

BY_KEY: dict[str, Option] = {row.name.lower(): row for row in OPTIONS}

TABLES = ("topics", "partitions", "groups", "offsets")
"""What the option ``table`` can name."""

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

REFUSED_SETTINGS: dict[str, str] = {
    "auto.offset.reset": "use startingOffsets",
    "key.deserializer": "keys are binary: cast the column",
    "value.deserializer": "values are binary: cast the column",
    "key.serializer": "keys are string or binary: cast the column",
    "value.serializer": "values are string or binary: cast the column",
    "enable.auto.commit": "progress is kept in Spark's checkpoint",
    "interceptor.classes": "interceptors are Java classes, and could change what is read",
}
"""Kafka's settings that Spark's connector refuses too, and what to do instead."""
