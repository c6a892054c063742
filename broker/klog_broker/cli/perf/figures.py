"""The figures of `klog perf`: counts, rates and latencies, computed without I/O."""

from collections import Counter
from dataclasses import dataclass, field

_MB = 1 << 20
_STEPS_A_MS = 10
"""Latencies are counted by steps of a tenth of a millisecond, so percentiles have this
precision."""
PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99_9": 0.999}


@dataclass(slots=True)
class Latencies:
    """The latencies of records: from their hand-over to the producer until it handles their
    acknowledgement (with acks=0: until they are sent)."""

    max_ms: float = 0.0
    _sum_ms: float = 0.0
    _count: int = 0
    _steps: Counter[int] = field(default_factory=Counter)

    def add(self, latency_ms: float, records: int) -> None:
        """Count ``records`` records, each with the latency ``latency_ms``."""
        self.max_ms = max(self.max_ms, latency_ms)
        self._sum_ms += latency_ms * records
        self._count += records
        self._steps[int(latency_ms * _STEPS_A_MS)] += records

    @property
    def average_ms(self) -> float:
        """The average latency in milliseconds; 0 without records."""
        return self._sum_ms / self._count if self._count else 0.0

    def percentile_ms(self, share: float) -> float:
        """Return the latency, in milliseconds, that this share of the records did not exceed; 0
        without records."""
        wanted = share * self._count
        passed = 0
        for step in sorted(self._steps):
            passed += self._steps[step]
            if passed >= wanted:
                # Latencies are counted only by steps of a tenth of a millisecond: return the upper
                # end of this step, or the maximum latency if it is less.
                return min((step + 1) / _STEPS_A_MS, self.max_ms)
        return 0.0


@dataclass(slots=True)
class Flow:
    """The number of records read or written since ``start_s``, and of their bytes."""

    start_s: float
    records: int = 0
    size_bytes: int = 0

    def add(self, records: int, size_bytes: int) -> None:
        """Add records and their bytes."""
        self.records += records
        self.size_bytes += size_bytes

    def figures(self, now_s: float) -> dict[str, float]:
        """Return the totals until now, and rates per second; MB are 2^20 bytes, as in Kafka's
        tools."""
        seconds = max(now_s - self.start_s, 1e-6)
        return {
            "records": self.records,
            "seconds": round(seconds, 3),
            "records_per_second": round(self.records / seconds, 1),
            "mb": round(self.size_bytes / _MB, 2),
            "mb_per_second": round(self.size_bytes / _MB / seconds, 2),
        }


def latency_figures(latencies: Latencies) -> dict[str, float]:
    """Return the average, maximum and percentiles of the latencies in milliseconds."""
    found = {"avg_ms": latencies.average_ms, "max_ms": latencies.max_ms}
    for name, share in PERCENTILES.items():
        found[f"{name}_ms"] = latencies.percentile_ms(share)
    return {name: round(value, 2) for name, value in found.items()}


def line(figures: dict[str, float]) -> str:
    """Return the figures of an interval (counts and rates, and for writes latencies) as a line of
    text."""
    text = (
        f"{figures['records']:.0f} records, {figures['records_per_second']:.1f} records/s "
        f"({figures['mb_per_second']:.2f} MB/s)"
    )
    if "avg_ms" in figures:
        text += f", {figures['avg_ms']:.1f} ms average, {figures['max_ms']:.1f} ms at most"
    return text
