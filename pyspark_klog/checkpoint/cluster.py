"""Asks brokers where the logs of the checkpoint's topics begin and end, and for new offsets."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from pyspark_klog.checkpoint.moves import LogRange, check_in_log
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.offsets import EARLIEST, LATEST, Offsets
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.planning.discovery import Discovery


@dataclass(frozen=True, slots=True)
class Target:
    """Where the offsets are moved to: a time, or given offsets, of which `EARLIEST` and `LATEST`
    stand for the beginning and the end."""

    time_ms: int | None = None
    everywhere: int | None = None
    """`EARLIEST` or `LATEST`, for all partitions that are moved."""
    offsets: Mapping[TopicPartition, int] | None = None
    """The offset to which each partition is moved, if the user has given offsets."""
    topics: Mapping[str, int] | None = None
    """`EARLIEST` or `LATEST` by topic, together with `offsets`."""


class ClusterOffsets:
    """The brokers' side of a checkpoint's topics. ``settings`` are settings of Kafka's clients."""

    def __init__(self, servers: str, settings: Mapping[str, str], topics: Collection[str]) -> None:
        named = {f"kafka.{name}": text for name, text in settings.items()}
        options = read_options(
            {**named, "kafka.bootstrap.servers": servers, "subscribe": ",".join(sorted(topics))}
        )
        self._client = BlockingClient(options.client)
        self._discovery = Discovery(self._client, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._client.close()

    def logs(self) -> dict[TopicPartition, LogRange]:
        """The log of each partition of the topics that exists."""
        there = self._discovery.existing_partitions()
        first = self._discovery.earliest(there)
        ends = self._discovery.high_watermarks(there)
        return {partition: LogRange(first[partition], ends[partition]) for partition in there}

    def resolve(
        self,
        target: Target,
        moved: Collection[TopicPartition],
        logs: Mapping[TopicPartition, LogRange],
    ) -> Offsets:
        """The new offsets of the partitions in ``moved``; with given offsets only those that the
        user named.

        A partition whose records are all older than the target's time is moved to its end. Under
        isolation.level=read_committed the end is the last stable offset.

        :raises MoveRefused: if a given offset is outside of its partition's log
        """
        wanted = self._wanted(target, moved)
        given = {p: offset for p, offset in wanted.items() if offset >= 0}
        found: Offsets = {}
        if target.time_ms is not None:
            # Negative times have other meanings in Kafka's protocol.
            found = self._discovery.at_times(dict.fromkeys(moved, max(target.time_ms, 0)))
            wanted = {p: LATEST for p in moved if p not in found}
        else:
            check_in_log(given, logs)
            found = given
        ends = self._discovery.latest([p for p, at in wanted.items() if at == LATEST], {})
        first = {p: logs[p].first for p, at in wanted.items() if at == EARLIEST}
        return {**found, **ends, **first}

    def _wanted(self, target: Target, moved: Collection[TopicPartition]) -> Offsets:
        if target.time_ms is not None:
            return {}
        if target.everywhere is not None:
            return dict.fromkeys(moved, target.everywhere)
        by_topic, offsets = target.topics or {}, target.offsets or {}
        wanted = {p: by_topic[p.topic] for p in moved if p.topic in by_topic}
        return {**wanted, **offsets}
