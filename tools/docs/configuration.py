"""Prints the settings: docs/configuration.md and broker/server.properties, from the rows."""

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from klog_broker.config.properties import escape
from klog_broker.config.refused_settings import REFUSED, REFUSED_IN_CLUSTER, REFUSED_UNLESS
from klog_broker.config.setting_rows import DIFFERENT_DEFAULTS, KLOGS_OWN, SECTIONS
from klog_broker.config.settings_without_effect import (
    PREFIXES_WITHOUT_EFFECT,
    REMOVED,
    SINCE_4,
    WITHOUT_EFFECT,
)
from klog_broker.config.topic_rows import TOPIC_SETTINGS
from klog_broker.config.types import INT_MAX, LONG_MAX, Setting, render
from tools.docs.kafka4_settings import BROKER_CHANGES, TOPIC_CHANGES
from tools.docs.pages import table

_WIDTH = 100

_INTRODUCTION = """\
<!-- Printed by `./dev python -m tools.docs`; edit the rows in
     broker/klog_broker/config/, not this page. -->
# Configuration

Look up the settings of brokers and topics. Give a broker its settings like this:

```
klog broker --config server.properties --set num.partitions=3 --print-config
```

A broker's settings have the names, types, defaults and bounds of Kafka 3.9.1, with
[exceptions](#what-is-different-here). The file of `--config` overrides the defaults, and
`--set NAME=VALUE` overrides the file; `--port` sets the port of the first of the `listeners` that
is not a controller's, and `--data` sets `log.dirs`. `klog broker --print-config` shows every value
(but hides secrets) and its source. [broker/server.properties](../broker/server.properties) has all
defaults, commented out.

The syntax of a broker's configuration file is that of Java's `.properties`: `name=value`, a line
that begins with `#` or `!` is a comment, a backslash at a line's end joins the next line, `\\u` and
four hexadecimal digits are a character, and the last of two entries for a name counts. The encoding
is UTF-8, or Latin-1 if the file is not valid UTF-8. Lists are comma-separated.

klog distinguishes five kinds of setting names:
- known names, in the tables below: Kafka's, and a few of [klog's own](#what-is-different-here);
- Kafka's names that [change nothing in klog](#kafkas-names-without-effect): accepted, with one
  warning each, so that the file of a Kafka broker can be used; with `strict.configs=true` they are
  refused;
- Kafka's names that [refuse the start](#kafkas-names-that-refuse-the-start), some only with some
  values, since users who set them rely on a feature that klog does not have;
- seven names that Kafka dropped before 3.9.1: refused, with the
  [name to set instead](#what-is-different-here);
- any other name: refused, with the most similar known name if there is one.

Where a setting exists in several units, the finest unit that is set counts (`log.retention.ms`
before `log.retention.minutes` before `log.retention.hours`). Values that are not allowed are
refused at the start, with the reason. Settings of topics, and those settings of the broker
that have "yes" in the column *while it runs* of this page's tables, can be changed
[at any time](operations.md#settings-while-it-runs).
"""


def configuration_page() -> str:
    """docs/configuration.md."""
    parts = [_INTRODUCTION]
    for title, rows in SECTIONS.items():
        parts.append(f"## {title}\n")
        columns: tuple[str, ...] = ("name", "type", "default", "allowed", "while it runs")
        parts.append(table((*columns, "what it does"), _cells(rows)))
    parts.append(
        "## Topics' settings\n\nA topic's settings can be given when the topic is created, and"
        " changed at any time by\nIncrementalAlterConfigs. If a topic does not"
        " set a setting itself, the broker's setting\nin the table's last column counts, or else"
        " the default.\n"
    )
    columns = ("name", "type", "default", "allowed", "what it does", "broker's setting")
    parts.append(table(columns, _topic_cells()))
    parts.append("## What is different here\n\nSettings with another default than in Kafka:\n")
    parts.append(table(("name", "why"), _names(DIFFERENT_DEFAULTS.items())))
    parts.append("Settings of klog that Kafka does not have:\n")
    parts.append(table(("name", "why"), _names(KLOGS_OWN.items())))
    parts.append(
        "`broker.id` and `node.id` of a standalone broker must be at least 0."
        " `log.cleaner.io.buffer.load.factor`\nmust be above 0 and at most 1, and"
        " `log.cleaner.io.max.bytes.per.second` must not be 0: Kafka\nstarts with other values, but"
        " its cleaner cannot work with them.\n\n"
        "Settings of this page's first tables that Kafka 4.x changed or dropped (klog keeps those"
        " of 3.9.1,\nexcept for `num.recovery.threads.per.data.dir`):\n"
    )
    changes = [*BROKER_CHANGES.items(), *TOPIC_CHANGES.items()]
    parts.append(table(("name", "in Kafka 4.x"), _names(changes)))
    parts.append(
        "Settings that Kafka dropped before 3.9.1; klog refuses them, and says what to set"
        " instead:\n"
    )
    parts.append(table(("name", "set instead"), ((f"`{k}`", f"`{v}`") for k, v in REMOVED.items())))
    parts.append(
        "## Kafka's names that refuse the start\n\nSettings with which a broker never starts,"
        " whatever the value is (an empty value counts as not set):\n"
    )
    parts.append(table(("name", "why"), _names((k, f"{v}.") for k, v in REFUSED.items())))
    parts.append(
        "Settings with which a broker does not start, unless it is standalone and the value"
        " describes a KRaft\ncluster of this broker only (an empty value counts as not set):\n"
    )
    parts.append(table(("name", "any value but"), _names(REFUSED_UNLESS.items())))
    parts.append(
        "Settings with which a broker with `zookeeper.connect` does not start, except that the"
        " value `false`\nis allowed (not for `control.plane.listener.name`), and that an empty"
        " value counts as not set:\n"
    )
    refused = ((name, f"{why}.") for name, (_, why) in REFUSED_IN_CLUSTER.items())
    parts.append(table(("name", "why"), _names(refused)))
    parts.append(
        "## Kafka's names without effect\n\nklog accepts and ignores the settings of Kafka listed"
        " here, unless `strict.configs=true` is set; but\nsome values"
        " [refuse the start](#kafkas-names-that-refuse-the-start).\n"
    )
    for reason, names in WITHOUT_EFFECT.items():
        refusing = {*REFUSED_UNLESS, *REFUSED_IN_CLUSTER}
        listed = ", ".join(
            f"`{name}`" + (r"\*" if name in SINCE_4 else "") + ("†" if name in refusing else "")
            for name in names
        )
        notes = [r"\*: new in Kafka 4"] * bool(SINCE_4.intersection(names))
        notes += ["†: some values refuse the start"] * bool(refusing.intersection(names))
        note = f" ({'; '.join(notes)})" if notes else ""
        text = "\n".join(_wrapped(f"**{reason}** No effect{note}: {listed}"))
        parts.append(text + "\n")
    listed = ", ".join(f"`{prefix}`" for prefix in PREFIXES_WITHOUT_EFFECT)
    parts.append(
        "Unless `strict.configs=true` is set, klog ignores all settings whose names begin with\n"
        f"{listed}.\n"
    )
    return "\n".join(parts)


def server_properties() -> str:
    """broker/server.properties: every default, commented out."""
    lines = [
        "# The settings of a klog broker with their defaults: take the # away to change one.",
        "# docs/configuration.md has the bounds, the settings of topics and the file's syntax.",
        "# Printed by `./dev python -m tools.docs`.",
    ]
    for title, rows in SECTIONS.items():
        lines += ["", "", f"##### {title}"]
        for row in rows:
            lines += ["", *(f"# {line}" for line in wrap(row.doc, _WIDTH - 2))]
            default = render(row.default)
            if default is None:
                lines.append(f"# (not set: {_fallback_text(row)})")
            lines.append(f"#{row.name}={escape(default or '')}")
    return "\n".join(lines) + "\n"


def _fallback_text(row: Setting) -> str:
    if not row.fallbacks:
        return "there is none"
    return " then ".join(name for name, _ in row.fallbacks) + " counts"


def _cells(rows: Iterable[Setting]) -> Iterator[Sequence[str]]:
    for row in rows:
        kind, allowed = row.type.name.lower(), str(row.bounds or "")
        changes = "yes" if row.dynamic else ""
        yield f"`{row.name}`", kind, _default(row), allowed, changes, row.doc


def _topic_cells() -> Iterator[Sequence[str]]:
    for row in TOPIC_SETTINGS.values():
        doc = f"{row.doc} **No effect here:** {row.effect}" if row.effect else row.doc
        broker = f"`{row.broker_name}`" if row.broker_name else ""
        kind = row.type.name.lower()
        yield f"`{row.name}`", kind, _default(row), str(row.bounds or ""), doc, broker


def _names(items: Iterable[tuple[str, str]]) -> Iterator[Sequence[str]]:
    for name, text in items:
        yield f"`{name}`", text


def _default(row: Setting) -> str:
    if row.default is None:
        return "not set"
    if row.default == LONG_MAX:
        return "2^63 - 1"
    if row.default == INT_MAX:
        return "2^31 - 1"
    text = render(row.default)
    return f"`{text}`" if text else "empty"


def _wrapped(text: str) -> list[str]:
    return wrap(text, _WIDTH, break_on_hyphens=False, break_long_words=False)
