"""The stream source. Spark counts the parameters of latestOffset, so there are two classes.

`LimitedStreamReader` serves Spark 4.2 and later: limits, AvailableNow, the position of the query.
`PlainStreamReader` serves 4.0 and 4.1, where Spark asks for latestOffset() alone.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_klog.client.errors import TopicMissing
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.clients import exit_on_sigterm
from pyspark_klog.spark.errors import DataLost, OptionError
from pyspark_klog.spark.failures import one_line
from pyspark_klog.spark.offsets import LATEST, Offsets, from_json_dict, to_json_dict
from pyspark_klog.spark.options import SourceOptions
from pyspark_klog.spark.ranges import plan, prorate
from pyspark_klog.spark.reader import RangePartition
from pyspark_klog.spark.rows import HOW_TO_GO_ON, RangeReader

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from pyspark_klog.client.blocking import BlockingClient
    from pyspark_klog.spark.discovery import Discovery

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:
    HAS_LIMITS = False
else:
    HAS_LIMITS = True

_log = logging.getLogger(__name__)

JsonOffsets = dict[str, dict[str, int]]

_DISCOVERY_AGE_MS = 500
"""New partitions are looked for this often; between that, only ends are asked for."""


class _StreamReader(DataSourceStreamReader):
    """What both classes share. Made in several processes and pickled: it connects when used."""

    def __init__(self, options: SourceOptions, refusal: KlogError | None) -> None:
        """``refusal`` is raised at the first use: raised here, Spark would hide it."""
        self._options = options
        self._refusal = refusal
        self._client: BlockingClient | None = None
        self._discovery: Discovery | None = None
        self._initial: JsonOffsets | None = None
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._discovered_ms: int | None = None
        self._latest: Offsets = {}
        self._warned: set[str] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._options, self._refusal)

    # --- what Spark calls ------------------------------------------------------------------------
    @one_line
    def initialOffset(self) -> JsonOffsets:  # noqa: N802
        """Where a new query begins; `{}` if that could move until the first batch is durable.

        Then the first latestOffset resolves it and gives it as the end of an empty batch.
        """
        discovery = self._begin()
        if self._initial is None:
            starting = self._options.starting
            assert starting is not None
            if _can_move(self._options):
                self._initial = {}
            else:
                partitions = discovery.partitions()
                start = discovery.resolve(starting, partitions, "startingOffsets")
                self._initial = to_json_dict(start)
        return self._initial

    @one_line
    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
        """The ranges of one micro-batch, which may be one that was planned before a restart."""
        discovery = self._begin()
        begin = from_json_dict(start, "the start of the batch in the checkpoint")
        until = from_json_dict(end, "the end of the batch in the checkpoint")
        if not begin:
            # The batch that only made the start durable.
            return []
        for partition in sorted(until.keys() - self._existing()):
            self._report(f"{partition} is gone: it, or its topic, does not exist any more")
            del until[partition]
            begin.pop(partition, None)
        found = plan(begin, until, discovery.earliest(until.keys() - begin.keys()))
        for text in found.lost:
            self._report(text)
        return [RangePartition(offsets) for offsets in found.ranges]

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        """The records of one range, in a task."""
        assert isinstance(partition, RangePartition)
        return RangeReader(self._options).read(partition.offsets)

    def commit(self, end: JsonOffsets) -> None:
        """Spark's checkpoint has the progress; there is nothing more to do."""

    def stop(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = self._discovery = None

    # --- inside ----------------------------------------------------------------------------------
    def _begin(self) -> "Discovery":
        if self._refusal is not None:
            raise self._refusal
        if self._discovery is None:
            from pyspark_klog.client.blocking import BlockingClient
            from pyspark_klog.spark.discovery import Discovery

            exit_on_sigterm()
            self._client = BlockingClient(self._options.client)
            self._discovery = Discovery(self._client, self._options)
        return self._discovery

    def _report(self, text: str) -> None:
        """Some data are lost: fail, or warn once of the same thing."""
        if self._options.fail_on_data_loss:
            raise DataLost(f"{text}; {HOW_TO_GO_ON}")
        if text not in self._warned:
            self._warned.add(text)
            _log.warning("some data may have been lost: %s", text)

    def _resolve_start(self) -> Offsets:
        """The start of a new query whose start could move: `latest`, or offsets with -1."""
        discovery = self._begin()
        starting = self._options.starting
        assert starting is not None
        partitions = discovery.partitions()
        return discovery.resolve(starting, partitions, "startingOffsets")

    def _existing(self, *, anew: bool = False) -> frozenset[TopicPartition]:
        """The partitions that exist, as of a moment ago."""
        discovery = self._begin()
        assert self._client is not None
        now_ms = self._client.now_ms()
        age_ms = None if self._discovered_ms is None else now_ms - self._discovered_ms
        if anew or age_ms is None or age_ms >= _DISCOVERY_AGE_MS:
            self._partitions = discovery.existing_partitions()
            self._discovered_ms = now_ms
        return self._partitions

    def _ends(self, start: Offsets) -> Offsets:
        """The end of every partition that there is now."""
        discovery = self._begin()
        try:
            self._latest = discovery.latest(self._existing(), start)
        except TopicMissing:
            self._latest = discovery.latest(self._existing(anew=True), start)
        return self._latest

    def _advance(self, start: Offsets, ends: Offsets, limit: int | None) -> Offsets:
        """The end of the next micro-batch; reports what is lost before it becomes durable."""
        discovery = self._begin()
        first_of_new = discovery.earliest(ends.keys() - start.keys())
        for text in plan(start, ends, first_of_new).lost:
            self._report(text)
        if not ends:
            # Everything is gone: the position is kept for the day on which it comes back.
            return start
        return prorate(limit, start | first_of_new, ends)


class PlainStreamReader(_StreamReader):
    """For Spark 4.0 and 4.1: every micro-batch takes all that there is."""

    def __init__(self, options: SourceOptions, refusal: KlogError | None) -> None:
        super().__init__(options, refusal or _refuse_limits(options))
        self._position: Offsets | None = None

    @one_line
    def latestOffset(self) -> JsonOffsets:  # type: ignore[override]  # noqa: N802
        """The ends now. On a new query Spark calls this before initialOffset."""
        self._begin()
        if self._position is None:
            if self._initial is None and _can_move(self._options):
                self._position = self._resolve_start()
                self._initial = {}
                return to_json_dict(self._position)
            self._position = from_json_dict(self.initialOffset(), "the start")
        self._position = self._advance(self._position, self._ends(self._position), None)
        return to_json_dict(self._position)

    @one_line
    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
        """As everywhere; after a restart Spark calls partitions(x, x) first, which is the start."""
        if start == end and start:
            self._begin()
            self._position = from_json_dict(end, "the end of the batch in the checkpoint")
            self._initial = start
            return []
        ranges = super().partitions(start, end)
        self._position = from_json_dict(end, "the end of the batch in the checkpoint")
        return ranges


def _can_move(options: SourceOptions) -> bool:
    """Whether the start would be another one if it were resolved again later."""
    starting = options.starting
    return starting == LATEST or (isinstance(starting, dict) and LATEST in starting.values())


def _refuse_limits(options: SourceOptions) -> KlogError | None:
    if options.max_offsets_per_trigger is None:
        return None
    return OptionError("option maxOffsetsPerTrigger needs Spark 4.2 or later: leave it out")


if HAS_LIMITS:

    class LimitedStreamReader(_StreamReader, SupportsTriggerAvailableNow):
        """For Spark 4.2 and later."""

        def __init__(self, options: SourceOptions, refusal: KlogError | None) -> None:
            super().__init__(options, refusal)
            self._target: Offsets | None = None

        @one_line
        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            """maxOffsetsPerTrigger, as Spark's limits say it."""
            self._begin()
            limit = self._options.max_offsets_per_trigger
            return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

        @one_line
        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            """Fix the end of this run."""
            discovery = self._begin()
            self._target = discovery.latest(discovery.existing_partitions(), {})
            self._latest = self._target

        @one_line
        def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:  # noqa: N802
            """The end of the next micro-batch; ``start`` itself if there is nothing to read."""
            self._begin()
            begin = from_json_dict(start, "the offset in the checkpoint")
            if not begin:
                return self._first_end()
            rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            if self._target is not None:
                return to_json_dict(self._advance(begin, self._target, rows))
            end = self._advance(begin, self._ends(begin), rows)
            if end == begin and self._options.idle_wait_ms:
                assert self._client is not None
                self._client.pause(self._options.idle_wait_ms)
                end = self._advance(begin, self._ends(begin), rows)
            return to_json_dict(end)

        @one_line
        def reportLatestOffset(self) -> JsonOffsets | None:  # noqa: N802
            """The ends as they were last seen, for the query's progress."""
            return to_json_dict(self._latest) or None

        @one_line
        def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
            """As everywhere; under AvailableNow the end must still be there."""
            ranges = super().partitions(start, end)
            if self._target is not None and start:
                self._check_still_there(from_json_dict(end, "the end of the batch"))
            return ranges

        def _first_end(self) -> JsonOffsets:
            """The resolved start of a new query, as the end of its first, empty batch."""
            start = self._resolve_start()
            if self._target is not None:
                start = {p: min(o, self._target.get(p, o)) for p, o in start.items()}
            self._latest = start
            return to_json_dict(start)

        def _check_still_there(self, end: Mapping[TopicPartition, int]) -> None:
            discovery = self._begin()
            gone = sorted(end.keys() - self._existing(anew=True))
            if gone:
                raise DataLost(
                    f"{', '.join(map(str, gone))} vanished while a query with the trigger "
                    "AvailableNow was running: start it again"
                )
            latest = discovery.latest(end, end)
            for partition in sorted(end):
                if latest[partition] < end[partition]:
                    raise DataLost(
                        f"{partition} ends at offset {latest[partition]} now, before offset "
                        f"{end[partition]} up to which a query with the trigger AvailableNow was "
                        "to read: its topic may have been created anew; start the query again"
                    )


def stream_reader(options: SourceOptions, refusal: KlogError | None) -> DataSourceStreamReader:
    """The class that this Spark can use."""
    if HAS_LIMITS:
        return LimitedStreamReader(options, refusal)
    return PlainStreamReader(options, refusal)
