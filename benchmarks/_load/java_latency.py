"""Kafka's Java clients as the load of `latency`: one process for all runs, so that what its JVM has
compiled serves both brokers alike."""

import os
from dataclasses import dataclass
from pathlib import Path

from benchmarks._load.pipe import Program
from tests.support.peers import NEWEST_KAFKA, java, kafka_jars

_SOURCE = Path(__file__).with_name("Latency.java")
_REPLY_DEADLINE_S = 120.0


@dataclass(frozen=True)
class Latencies:
    """Of one run. ``quantiles_ms`` are those of 1 - 10 ** -(place / 10), by place."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    worst_ms: float
    quantiles_ms: list[float]
    late_ms: float
    """The most that a record was sent later than it was due."""
    client_cores: float


class LatencyClients(Program):
    """The process: a producer and a consumer in each run."""

    def __init__(self) -> None:
        # Young objects alone, and room for those of a whole run: a collection stops the clients.
        memory = ("-Xms3g", "-Xmx3g", "-Xmn2500m", "-XX:+UseSerialGC", "-XX:+AlwaysPreTouch")
        jars = ("-cp", f"{kafka_jars(NEWEST_KAFKA)}{os.sep}*")
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        super().__init__("Latency.java", [java(), *memory, quiet, *jars, str(_SOURCE)])

    def run(
        self, servers: str, topic: str, per_second: int, uncounted: int, records: int
    ) -> Latencies:
        """``records`` records at this rate, behind ``uncounted`` ones; LoadFailed if one is missing
        or comes out of its order."""
        words = (servers, topic, per_second, uncounted, records)
        planned_s = (uncounted + records) / per_second
        answer = self.ask(" ".join(map(str, words)), planned_s + _REPLY_DEADLINE_S)
        return Latencies(**answer)
