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
    Option("startingOffsets", _SB, None, "latest (stream's default), earliest (batch's), or JSON"),
    Option("endingOffsets", _B, "latest", "latest, or JSON"),
    Option("failOnDataLoss", _SB, "true", "whether a query fails when records are gone"),
    Option("maxOffsetsPerTrigger", _S, None, "most offsets of one micro-batch"),
    Option("includeHeaders", _SB, "false", "whether there is a column headers"),
    Option("kafkaConsumer.pollTimeoutMs", _SB, "120000", "longest wait for records"),
    Option("fetchOffset.numRetries", _SB, "3", "attempts to find topics and offsets"),
    Option("fetchOffset.retryIntervalMs", _SB, "1000", "wait between them"),
    Option("idleWaitMs", _S, "50", "longest wait in latestOffset after an empty poll; 0 = never"),
    Option("allowSlow", _ALL, "false", "run without numba, orders of magnitude slower"),
    Option("topic", Use.SINK, None, "where rows go; wins over the column topic"),
    *(
        Option(name, use, None, "", Status.NONE)
        for name, use in (
            ("groupIdPrefix", _SB),
            ("useDeprecatedOffsetFetching", _SB),
        )
    ),
    *(
        Option(name, use, None, "", Status.LATER)
        for name, use in (
            ("subscribePattern", _SB),
            ("startingTimestamp", _SB),
            ("startingOffsetsByTimestamp", _SB),
            ("startingOffsetsByTimestampStrategy", _SB),
            ("endingTimestamp", _B),
            ("endingOffsetsByTimestamp", _B),
            ("minOffsetsPerTrigger", _S),
            ("maxTriggerDelay", _S),
            ("minPartitions", _SB),
            ("maxRecordsPerPartition", _SB),
            ("commitGroupId", _SB),
            ("committedOffsetsMissing", _SB),
            ("pushdown", _B),
            ("columns", _SB),
            ("maxBytesPerTrigger", _S),
            ("maxOffsetsPerTriggerByTopic", _S),
            ("lagDetails", _S),
            ("deadLetterTopic", Use.SINK),
            ("deadLetterMax", Use.SINK),
            ("path", _B),
            ("stopped", _B),
            ("table", _B),
        )
    ),
)

BY_KEY: dict[str, Option] = {row.name.lower(): row for row in OPTIONS}

SPARKS_OWN = frozenset(
    {
        "checkpointlocation",
        "dbtable",
        "header",
        "mergeschema",
        "outputmode",
        "paths",
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
