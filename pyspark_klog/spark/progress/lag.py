"""Computes from a query's progress how far it is behind the ends of its topics. Pure.

A source's `latestOffset` in the progress has the form of Spark's connector. With option lagDetails
it has additional keys that cannot be names of topics: ``{"t":{"0":120},"t:lagMs":{"0":1500}}``.
Tools that read topics, partitions and numbers can read these keys, too. Tools that subtract
`endOffset` from `latestOffset` can skip these keys, which `endOffset` does not have.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark_klog.ids import TopicPartition

LAG_MS = ":lagMs"
"""The end of a key with lags in ms by partition; the key begins with the topic's name. Names of
topics cannot end so."""


@dataclass(frozen=True, slots=True)
class SourceLag:
    """The lag of one source of a query. ``records`` counts offsets, gaps included."""

    description: str
    records: Mapping[TopicPartition, int]
    """The number of offsets in each partition after the end of the micro-batch."""
    time_ms: Mapping[TopicPartition, int]
    """By partition, the age in ms of the first record after the micro-batch, or of an earlier
    record in the same batch of the log; 0 if there is none. Partitions whose time is unknown are
    left out. Empty if the source has no option lagDetails."""

    @property
    def min_offsets_behind_latest(self) -> int:
        """The smallest number in ``records``, which Spark's connector reports as
        minOffsetsBehindLatest."""
        return min(self.records.values())

    @property
    def max_offsets_behind_latest(self) -> int:
        """The largest number in ``records``, which Spark's connector reports as
        maxOffsetsBehindLatest."""
        return max(self.records.values())

    @property
    def avg_offsets_behind_latest(self) -> float:
        """The mean of the numbers in ``records``, which Spark's connector reports as
        avgOffsetsBehindLatest."""
        return sum(self.records.values()) / len(self.records)

    @property
    def metrics(self) -> dict[str, str]:
        """The metrics, as texts by name, that Spark's connector puts into `sources[].metrics`."""
        return {
            "minOffsetsBehindLatest": str(self.min_offsets_behind_latest),
            "maxOffsetsBehindLatest": str(self.max_offsets_behind_latest),
            "avgOffsetsBehindLatest": str(self.avg_offsets_behind_latest),
        }


def progress_offsets(
    latest: Mapping[TopicPartition, int], lag_ms: Mapping[TopicPartition, int] | None
) -> dict[str, dict[str, int]]:
    """The value of `latestOffset` in a query's progress: ``latest`` in the form of Spark's
    connector, and ``lag_ms``, if given, under keys that end in `LAG_MS`."""
    result: dict[str, dict[str, int]] = {}
    for partition in sorted(latest):
        result.setdefault(partition.topic, {})[str(partition.partition)] = latest[partition]
    for partition in sorted(lag_ms or ()):
        of_topic = result.setdefault(partition.topic + LAG_MS, {})
        of_topic[str(partition.partition)] = (lag_ms or {})[partition]
    return result


def lag(progress: Any) -> list[SourceLag]:
    """How far each Kafka source (of klog or of Spark) is behind the ends of its topics, in the
    order in which ``progress`` lists the sources.

    ``progress`` is `query.lastProgress` or the progress in a listener's event, as an object, or its
    JSON as text or dict.
    Sources of another kind, and sources that have not read anything yet, are left out.
    """
    found = []
    for source in _sources(progress):
        latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
        times = {
            TopicPartition(p.topic.removesuffix(LAG_MS), p.partition): ms
            for p, ms in latest.items()
            if p.topic.endswith(LAG_MS)
        }
        records = {p: offset - end[p] for p, offset in latest.items() if p in end}
        if records:
            found.append(SourceLag(str(source.get("description", "")), records, times))
    return found


def _sources(progress: Any) -> list[dict[str, Any]]:
    text = getattr(progress, "json", progress)
    given = json.loads(text) if isinstance(text, str) else text
    return list(given.get("sources", ())) if isinstance(given, Mapping) else []


def _offsets(given: Any) -> dict[TopicPartition, int]:
    """Offsets by partition, from JSON or a mapping; empty for any other form."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            return {}
    if not isinstance(given, Mapping):
        return {}
    found: dict[TopicPartition, int] = {}
    for topic, partitions in given.items():
        if not isinstance(partitions, Mapping):
            return {}
        for number, offset in partitions.items():
            if not (str(number).isdigit() and isinstance(offset, int)):
                return {}
            found[TopicPartition(topic, int(number))] = offset
    return found
