"""Client defaults in which klog's connector and Spark's own, with Kafka's clients, differ.

Both are measured with their defaults, so a reader of the figures must know the differences.
"""

from collections.abc import Iterable

from pyspark_klog.client.settings.setting_rows import READING, WRITING
from tests.support.peers import OLDEST_KAFKA
from tests.support.protocol.kafka_definitions import run_java


def kafka_client_defaults() -> dict[str, str]:
    """The client defaults of Kafka 3.9.1, whose client Spark's connector has, by setting."""
    found: dict[str, str] = {}
    for line in run_java(OLDEST_KAFKA, "ClientDefaults.java"):
        name, default = line.split("\t")
        found[name] = default
    return found


def differing(kafka: dict[str, str]) -> Iterable[str]:
    """``name klog's / Kafka's`` for each setting of reading and writing with two defaults."""
    for row in (*READING, *WRITING):
        ours = "" if row.default is None else str(row.default)
        if isinstance(row.default, bool):
            ours = ours.lower()
        theirs = kafka.get(row.name)
        if theirs is not None and theirs != ours:
            yield f"{row.name} {ours} / {theirs}"
