"""Prints docs/options.md from the rows of the options and of the client's settings."""

from collections.abc import Iterable, Iterator, Sequence

from pyspark_klog.client.settings.setting_rows import CONNECTIONS, READING, WITHOUT_EFFECT, WRITING
from pyspark_klog.security.secret import Secret
from pyspark_klog.security.setting_rows import SECURITY
from pyspark_klog.security.setting_types import INT_MAX, LONG_MAX, Effect, Setting
from pyspark_klog.spark.options.rows import (
    BY_KEY,
    OPTIONS,
    REFUSED_BY_SINK,
    REFUSED_BY_SOURCE,
    Option,
    Status,
    Use,
)
from tools.docs.pages import table

_INTRODUCTION = """\
<!-- Printed by `./dev python -m tools.docs`; edit the rows in
     pyspark_klog/spark/options/rows.py and pyspark_klog/client/settings/setting_rows.py,
     not this page. -->
# Options

Those of `format("klog")`: of `spark.readStream` (S), `spark.read` (B), and of the sinks,
`writeStream` and `write` (W). Names, values and defaults are those of `format("kafka")` wherever it
has the option; [what differs](differences.md) is little. Names are case-insensitive, values are
text (Spark turns numbers and truth values into it).

```python
stream = (
    spark.readStream.format("klog")
    .option("kafka.bootstrap.servers", "localhost:9092")
    .option("subscribe", "orders")
    .option("startingOffsets", "earliest")
    .load()
)
```

They are checked when the source or sink is loaded: a value that cannot be is refused with what was
expected, and so is a name that looks misspelt. (What only the brokers know, and what differs
between batch and stream, is checked when the query begins.) Names behind `kafka.` that Kafka's
clients do not have are ignored, as in Java, with one warning on the driver that says what was
meant. They are refused where that would change how connections are secured or which records are
read (`kafka.sasl.username`, a misspelt `kafka.isolation.level`). Other unknown names are ignored,
as Spark passes options of its own along.
Error messages: [troubleshooting](troubleshooting.md).
"""

_SECTIONS: dict[str, tuple[str, ...]] = {
    "Which brokers": ("kafka.bootstrap.servers", "bootstrap.servers"),
    "What is read": (
        *("assign", "subscribe", "subscribePattern", "includeHeaders", "columns", "keys"),
    ),
    "Where it begins and ends": (
        *("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets"),
        *("startingOffsetsByTimestampStrategy", "endingTimestamp", "endingOffsetsByTimestamp"),
        *("endingOffsets", "committedOffsetsMissing"),
    ),
    "How much a micro-batch takes": (
        *("maxOffsetsPerTrigger", "maxOffsetsPerTriggerByTopic", "maxBytesPerTrigger"),
        *("minOffsetsPerTrigger", "maxTriggerDelay"),
    ),
    "How reading is cut into tasks": ("minPartitions", "maxRecordsPerPartition"),
    "When something is missing, or late": (
        *("failOnDataLoss", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries"),
        *("fetchOffset.retryIntervalMs", "idleWaitMs", "allowSlow"),
    ),
    "Progress for other tools": ("commitGroupId", "lagDetails"),
    "Instead of a topic's records": ("table", "path", "stopped"),
    "Writing": ("topic", "timestampColumn", "deadLetterTopic", "deadLetterMax"),
    "Writing exactly once": (
        *("exactlyOnce", "exactlyOnceName", "exactlyOncePrefix", "exactlyOnceTopic"),
        *("exactlyOnceMismatch", "exactlyOnceMissing", "exactlyOnceQuery"),
    ),
}
"""Titles and names. A row that stands nowhere comes last, in a section of its own."""

_NOTES = {
    "Where it begins and ends": (
        "Starting options count for a new query alone: one that goes on begins where its "
        "checkpoint says. JSON has to name exactly the partitions that are read."
    ),
    "How much a micro-batch takes": (
        "These need Spark 4.2 or later. The trigger AvailableNow honours the maxima and ignores "
        "the minimum; Once ignores all."
    ),
    "Writing": (
        "Columns of what is written: `value` (required), `key`, `headers`, `topic`, `partition`, "
        "and the one that `timestampColumn` names; others are ignored, `timestamp` too. Their "
        "types, and what happens to a row that cannot be written, are in [the sink](sink.md)."
    ),
}

_CLIENT = """\
## Settings of the client: `kafka.*`

Kafka's own, with `kafka.` in front: `.option("kafka.fetch.max.wait.ms", "100")`. They hold for what
reads and what writes. Numbers that end in `.ms` are milliseconds, in `.bytes` bytes.
"""


def options_page() -> str:
    """docs/options.md."""
    parts = [_INTRODUCTION]
    named = {name for names in _SECTIONS.values() for name in names}
    others = [r for r in OPTIONS if r.name not in named and r.status is Status.APPLIED]
    sections = {title: [BY_KEY[n.lower()] for n in names] for title, names in _SECTIONS.items()}
    for title, rows in {**sections, "Others": others}.items():
        if rows:
            note = f"{_NOTES[title]}\n\n" if title in _NOTES else ""
            parts.append(f"## {title}\n\n{note}{_optiontable(rows)}")
    none = [row for row in OPTIONS if row.status is Status.NONE]
    reasons = (f"`{row.name}` ({row.doc})" for row in none)
    parts.append(f"## Without effect\n\nAccepted, and change nothing: {', '.join(reasons)}.\n")
    parts.append(_CLIENT)
    for title, settings in (
        ("Connections", CONNECTIONS),
        ("Reading", READING),
        ("Writing", WRITING),
        ("Security", SECURITY),
    ):
        see = "How to write them: [security](security.md).\n\n" if title == "Security" else ""
        parts.append(f"### {title}\n\n{see}{_settingtable(settings)}")
    parts.append("### Refused\n\n" + table(("name", "by", "instead"), _refused()))
    parts.append(
        "### Accepted, without effect\n\nThere is one warning for each, so that a job's settings "
        f"can be brought along.\n\n{_without_effect()}"
    )
    return "\n".join(parts)


def _optiontable(rows: Iterable[Option]) -> str:
    cells = (
        (f"`{r.name}`", _uses(r.use), _code(r.default), r.values, r.doc)
        for r in rows
        if r.status is Status.APPLIED
    )
    return table(("option", "for", "default", "values", "what it does"), cells)


def _uses(use: Use) -> str:
    letters = ((Use.STREAM, "S"), (Use.BATCH, "B"), (Use.SINK, "W"))
    return " ".join(letter for flag, letter in letters if flag in use)


def _settingtable(rows: Iterable[Setting]) -> str:
    cells = (
        (f"`kafka.{row.name}`", _default(row), _allowed(row), row.doc)
        for row in rows
        if row.effect is Effect.APPLIED
        and "not supported" not in row.doc
        and f"kafka.{row.name}".lower() not in BY_KEY
    )
    return table(("setting", "default", "values", "what it does"), cells)


def _default(row: Setting) -> str:
    if row.default in (INT_MAX, LONG_MAX):
        return "2^31 - 1" if row.default == INT_MAX else "2^63 - 1"
    if isinstance(row.default, bool):
        return _code(str(row.default).lower())
    return _code(None if row.default is None else str(row.default))


def _allowed(row: Setting) -> str:
    if row.choices:
        return ", ".join(f"`{choice}`" for choice in row.choices)
    if row.kind is bool:
        return "`true`, `false`"
    if row.kind is Secret:
        return "text, never shown"
    if row.kind is not int:
        return "text"
    if row.high in (INT_MAX, LONG_MAX):
        return f"from {row.low} on"
    return f"{row.low} to {row.high}"


def _refused() -> Iterator[Sequence[str]]:
    for name in dict.fromkeys((*REFUSED_BY_SOURCE, *REFUSED_BY_SINK)):
        sides = [
            (side, refused[name])
            for side, refused in (("a source", REFUSED_BY_SOURCE), ("a sink", REFUSED_BY_SINK))
            if name in refused
        ]
        yield f"`kafka.{name}`", *(" and ".join(cells) for cells in zip(*sides, strict=True))
    for row in SECURITY:
        if "not supported" in row.doc:
            yield f"`kafka.{row.name}`", "both", row.doc.partition(": ")[2]


def _without_effect() -> str:
    by_reason: dict[str, list[str]] = {}
    for row in (*WITHOUT_EFFECT, *(row for row in SECURITY if row.effect is Effect.NONE)):
        by_reason.setdefault(row.without, []).append(f"`kafka.{row.name}`")
    return "".join(f"- {reason}: {', '.join(names)}\n" for reason, names in by_reason.items())


def _code(text: str | None) -> str:
    if text is None:
        return ""
    return f"`{text}`" if text else "empty"
