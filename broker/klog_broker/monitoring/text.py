"""Writes metrics in Prometheus' text format, version 0.0.4."""

from collections.abc import Mapping, Sequence

from klog_broker.metrics.histogram import BOUNDS_MS, BUCKETS, SUM
from klog_broker.monitoring.catalog import BY_NAME, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_LINES_A_PART = 256
_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_BOUNDS = (*(f"{bound:g}" for bound in BOUNDS_MS), "+Inf")


def labels(**values: object) -> str:
    """Return a sample's labels as text in braces, which follows the sample's name."""
    pairs = (f'{name}="{str(value).translate(_ESCAPED)}"' for name, value in values.items())
    return "{" + ",".join(pairs) + "}"


class MetricsText:
    """A text of metrics that is encoded in parts while it grows, so that ``finish`` costs
    little."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._lines: list[str] = []

    def family(self, name: str, samples: Mapping[str, float]) -> None:
        """Add a metric. ``samples`` has its values by the text of their labels (see ``labels``;
        empty without labels). Do nothing if there are no samples."""
        if samples:
            self.head(name)
            self.lines([f"{name}{of} {value}" for of, value in samples.items()])

    def histogram(self, name: str, rows: Mapping[str, Sequence[int]]) -> None:
        """Add a histogram. ``rows`` has its bucket counts, and the sum of its values, by the text
        of their labels (a row as in metrics/histogram.py). Do nothing if ``rows`` is empty."""
        if rows:
            self.head(name)
        for of, row in rows.items():
            begin = f"{name}_bucket{of[:-1]}," if of else f"{name}_bucket{{"
            count = 0
            for place in range(BUCKETS):
                count += row[place]
                self._lines.append(f'{begin}le="{_BOUNDS[place]}"}} {count}')
            self._lines.append(f"{name}_sum{of} {row[SUM] / 1e6}")
            self.lines([f"{name}_count{of} {count}"])

    def head(self, name: str) -> None:
        """Add the HELP and TYPE lines of a metric."""
        metric = BY_NAME[name]
        self.lines([f"# HELP {name} {_help(metric)}", f"# TYPE {name} {metric.kind}"])

    def lines(self, lines: Sequence[str]) -> None:
        self._lines += lines
        if len(self._lines) >= _LINES_A_PART:
            self._cut()

    def finish(self) -> list[bytes]:
        """Return the encoded text of all metrics, in parts. The text must not grow afterwards."""
        self._cut()
        return self._parts

    def _cut(self) -> None:
        if self._lines:
            self._lines.append("")
            self._parts.append("\n".join(self._lines).encode())
            self._lines = []


def _help(metric: Metric) -> str:
    return metric.meaning.replace("\\", r"\\").replace("\n", r"\n")
