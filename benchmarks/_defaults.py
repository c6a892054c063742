"""Defaults in which klog's connector and Spark's own, which has those of Kafka's clients, differ.

Both are measured as they come: a reader of the figures has to know where that is not the same.
"""

from collections.abc import Iterable

from pyspark_klog.client.settings.setting_rows import READING, WRITING
from tests.support.peers import OLDEST_KAFKA
from tests.support.protocol_oracle import run_java


def kafka_client_defaults() -> dict[str, str]:
    """By setting; of 3.9.1, whose client Spark's connector has."""
    found: dict[str, str] = {}
    for line in run_java(OLDEST_KAFKA, "ClientDefaults.java"):
        name, default = line.split("\t")
        found[name] = default
    return found


def differing(kafka: dict[str, str]) -> Iterable[str]:
    """``name klog's / Kafka's`` for settings of reading and writing that have two defaults."""
    for row in (*READING, *WRITING):
        ours = "" if row.default is None else str(row.default)
        if isinstance(row.default, bool):
            ours = ours.lower()
        theirs = kafka.get(row.name)
        if theirs is not None and theirs != ours:
            yield f"{row.name} {ours} / {theirs}"
