"""Kafka's Java clients as the load of `latency`, in one process for all runs.

The code that its JVM has compiled serves the runs with both brokers.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from benchmarks._load.pipe import Program
from tests.support.peers import NEWEST_KAFKA, java, kafka_jars

_SOURCE = Path(__file__).with_name("Latency.java")
_REPLY_DEADLINE_S = 120.0


@dataclass(frozen=True)
class Latencies:
    """The latencies of one run. Place n of ``quantiles_ms`` is the quantile 1 - 10 ** -(n / 10)."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    worst_ms: float
    quantiles_ms: list[float]
    late_ms: float
    """The longest delay between a record's due time and its sending."""
    client_cores: float


class LatencyClients(Program):
    """The process of the Java clients: a producer and a consumer in each run."""

    def __init__(self) -> None:
        # The heap has space for the young objects of a whole run: a collection would stop the
        # clients.
        memory = ("-Xms3g", "-Xmx3g", "-Xmn2500m", "-XX:+UseSerialGC", "-XX:+AlwaysPreTouch")
        jars = ("-cp", f"{kafka_jars(NEWEST_KAFKA)}{os.sep}*")
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        super().__init__("Latency.java", [java(), *memory, quiet, *jars, str(_SOURCE)])

    def run(
        self, servers: str, topic: str, per_second: int, uncounted: int, records: int
    ) -> Latencies:
        """Send ``uncounted`` records and then ``records`` measured ones at this rate.

        Raises LoadFailed if a record is missing or out of order.
        """
        words = (servers, topic, per_second, uncounted, records)
        planned_s = (uncounted + records) / per_second
        answer = self.send_line(" ".join(map(str, words)), planned_s + _REPLY_DEADLINE_S)
        return Latencies(**answer)
