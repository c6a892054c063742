"""Prints docs/options.md from the rows of the options and of the client's settings."""

from collections.abc import Iterable, Iterator, Sequence

from pyspark_klog.client.settings.setting_rows import CONNECTIONS, READING, WITHOUT_EFFECT, WRITING
from pyspark_klog.security.secret import Secret
from pyspark_klog.security.setting_rows import SECURITY
from pyspark_klog.security.setting_types import INT_MAX, LONG_MAX, ClientSetting, Effect
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

Look up the options of `format("klog")`: of `spark.readStream` (S), of `spark.read` (B), and of the
sinks `writeStream` and `write` (W).

```python
stream = (
    spark.readStream.format("klog")
    .option("kafka.bootstrap.servers", "localhost:9092")
    .option("subscribe", "orders")
    .option("startingOffsets", "earliest")
    .load()
)
```

Options of `format("kafka")` have the same names, values and defaults, with [few
differences](differences.md). Names are case-insensitive; Spark turns numbers and truth values into
text.

klog checks options when the source or sink is loaded, and refuses an invalid value or a name that
looks misspelt. Checks that need the brokers, or differ between batch and stream, follow when the
query begins. A `kafka.` name that Kafka's clients do not have is ignored, as in Java; the driver
warns and, if one is similar, proposes a name. The name is refused if ignoring it could change the
security of connections or the records that are read (`kafka.sasl.username`, a misspelt
`kafka.isolation.level`). Other unknown names are ignored, because Spark passes its own options
along.
Errors: [troubleshooting](troubleshooting.md).
"""

_SECTIONS: dict[str, tuple[str, ...]] = {
    "Brokers": ("kafka.bootstrap.servers", "bootstrap.servers"),
    "Topics, partitions, columns": (
        *("assign", "subscribe", "subscribePattern", "includeHeaders", "columns", "keys"),
    ),
    "Start and end": (
        *("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets"),
        *("startingOffsetsByTimestampStrategy", "endingTimestamp", "endingOffsetsByTimestamp"),
        *("endingOffsets", "committedOffsetsMissing"),
    ),
    "Size of a micro-batch": (
        *("maxOffsetsPerTrigger", "maxOffsetsPerTriggerByTopic", "maxBytesPerTrigger"),
        *("minOffsetsPerTrigger", "maxTriggerDelay"),
    ),
    "Number of tasks": ("minPartitions", "maxRecordsPerPartition"),
    "Missing data, and waits": (
        *("failOnDataLoss", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries"),
        *("fetchOffset.retryIntervalMs", "idleWaitMs", "allowSlow"),
    ),
    "Progress for other tools": ("commitGroupId", "lagDetails"),
    "Other sources than topics": ("table", "path", "stopped"),
    "Writing": ("topic", "timestampColumn", "deadLetterTopic", "deadLetterMax"),
    "Writing exactly once": (
        *("exactlyOnce", "exactlyOnceName", "exactlyOncePrefix", "exactlyOnceTopic"),
        *("exactlyOnceMismatch", "exactlyOnceMissing", "exactlyOnceQuery"),
    ),
}
"""Titles and names of options. Options that no section names come last, under "Others"."""

_NOTES = {
    "Start and end": (
        "In a stream, the options whose names begin with `starting` count only for a new query; a "
        "query with a checkpoint continues from it. JSON in an option that begins with `starting` "
        "or `ending` must name exactly the partitions that are read."
    ),
    "Size of a micro-batch": (
        "Limits of a micro-batch (`maxOffsetsPerTrigger` and the other options below) need Spark "
        "4.2 or later. The trigger AvailableNow honours the maxima and ignores "
        "`minOffsetsPerTrigger`; the trigger Once ignores all limits."
    ),
    "Writing": (
        "The sink writes the columns `value` (required), `key`, `headers`, `topic`, `partition`, "
        "and the one that `timestampColumn` names. The sink ignores other columns, also "
        "`timestamp`: [the sink](sink.md)."
    ),
}

_CLIENT = """\
## Settings of the client: `kafka.*`

Put `kafka.` before the name of a client's setting: `.option("kafka.fetch.max.wait.ms", "100")`. The
settings under Reading are for sources, those under Writing for sinks, the others for both. Numbers
are milliseconds in names that end in `.ms`, and bytes in `.bytes`.
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
    parts.append(
        f"## Without effect\n\nklog accepts these options without effect: {', '.join(reasons)}.\n"
    )
    parts.append(_CLIENT)
    for title, settings in (
        ("Connections", CONNECTIONS),
        ("Reading", READING),
        ("Writing", WRITING),
        ("Security", SECURITY),
    ):
        see = "How to use TLS and SASL: [security](security.md).\n\n" if title == "Security" else ""
        parts.append(f"### {title}\n\n{see}{_settingtable(settings)}")
    parts.append("### Refused\n\n" + table(("name", "by", "instead"), _refused()))
    parts.append(
        "### Accepted, without effect\n\nklog ignores these settings of Kafka's clients. The "
        f"driver warns of each that a job sets; the job can keep them.\n\n{_without_effect()}"
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


def _settingtable(rows: Iterable[ClientSetting]) -> str:
    cells = (
        (f"`kafka.{row.name}`", _default(row), _allowed(row), row.doc)
        for row in rows
        if row.effect is Effect.APPLIED
        and "not supported" not in row.doc
        and f"kafka.{row.name}".lower() not in BY_KEY
    )
    return table(("setting", "default", "values", "what it does"), cells)


def _default(row: ClientSetting) -> str:
    if row.default in (INT_MAX, LONG_MAX):
        return "2^31 - 1" if row.default == INT_MAX else "2^63 - 1"
    if isinstance(row.default, bool):
        return _code(str(row.default).lower())
    return _code(None if row.default is None else str(row.default))


def _allowed(row: ClientSetting) -> str:
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
    return "".join(
        f"- {reason}; so klog ignores {', '.join(names)}\n" for reason, names in by_reason.items()
    )


def _code(text: str | None) -> str:
    if text is None:
        return ""
    return f"`{text}`" if text else "empty"
