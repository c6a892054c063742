"""The stream source, in two classes, because Spark 4.2 added two parameters to latestOffset.

`LimitedStreamReader` serves Spark 4.2 and later, which gives the query's position and a read limit
and has the trigger AvailableNow for Python sources. `PlainStreamReader` serves 4.0 and 4.1. Their
common base is in `stream_base.py`.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_klog.client.errors import TopicMissing
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.errors import NEW_CHECKPOINT, DataLost
from pyspark_klog.spark.offsets import Offsets, from_json_dict, to_json_dict
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.options.values import LONG_MAX
from pyspark_klog.spark.planning.byte_limits import ByteRates
from pyspark_klog.spark.planning.limits import MinimumWait, prorate, prorate_by_topic
from pyspark_klog.spark.progress.lag import progress_offsets
from pyspark_klog.spark.source.plain_stream_reader import PlainStreamReader as PlainStreamReader
from pyspark_klog.spark.source.stream_base import JsonOffsets, StreamReaderBase
from pyspark_klog.spark.workers.error_display import one_line

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

if HAS_LIMITS:

    class LimitedStreamReader(StreamReaderBase, SupportsTriggerAvailableNow):
        """The stream reader for Spark 4.2 and later.

        No read limit of Spark is both a minimum and a maximum. So Spark gets maxOffsetsPerTrigger
        as the limit, and this class applies minOffsetsPerTrigger itself.
        """

        def __init__(self, options: Options, refusal: KlogError | None) -> None:
            super().__init__(options, refusal)
            self._target: Offsets | None = None
            self._patience: MinimumWait | None = None
            self._idle_since_ms: int | None = None
            self._rates = ByteRates()
            self._lag_ms: Offsets = {}
            least = options.min_offsets_per_trigger
            if least is not None:
                self._patience = MinimumWait(least, options.max_trigger_delay_ms)

        @one_line
        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            """maxOffsetsPerTrigger as one of Spark's read limits. `latestOffset` applies the limits
            that Spark does not know."""
            self._begin()
            options = self._options
            limit = options.max_offsets_per_trigger
            if limit is not None:
                return ReadMaxRows(limit)
            # Spark has no limit by topic or by bytes: if Spark passes any limit by rows to
            # `latestOffset`, this method applies the limits by topic and bytes itself. If Spark
            # passes ReadAllAvailable, as it does under the trigger Once, `latestOffset` applies no
            # maximum.
            if options.max_offsets_by_topic or options.max_bytes_per_trigger is not None:
                return ReadMaxRows(LONG_MAX)
            return ReadAllAvailable()

        @one_line
        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            """Look up the end offsets at which this run with the trigger AvailableNow stops."""
            discovery = self._begin()
            self._target = discovery.latest(self._existing(refresh=True), {})
            self._latest = self._target
            self._patience = None

        @one_line
        def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:  # noqa: N802
            """The end of the next micro-batch; ``start`` itself if there is nothing to read, or too
            little for minOffsetsPerTrigger.

            ``start`` is the end of the last micro-batch that Spark has committed; in a new query,
            the result of `initialOffset`.
            """
            self._begin()
            begin = from_json_dict(start, "the offset in the checkpoint")
            if not begin and not self._has_durable_start() and self._options.start_can_move:
                return self._first_end()
            self._wait_if_idle()
            rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            end = self._next_end(begin, rows)
            self._note_if_idle(begin == end)
            self._report_position(begin)
            if self._options.lag_details:
                self._lag_ms = self._time_lag(end)
            if begin == end and self._target is not None and self._group is not None:
                self._group.settle()
            return to_json_dict(end)

        @one_line
        def reportLatestOffset(self) -> JsonOffsets | None:  # noqa: N802
            """The partitions' end offsets, as the last `latestOffset` call found them, for Spark to
            show in the query's progress. Under AvailableNow these are the ends of the run; after
            the call that resolved a new query's start they are that start."""
            if not self._latest:
                return None
            lag_ms = self._lag_ms if self._options.lag_details else None
            return progress_offsets(self._latest, lag_ms)

        @one_line
        def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
            """Plan a micro-batch. Under AvailableNow this fails with DataLost if the topics do not
            reach the batch's end offsets any more."""
            ranges = super().partitions(start, end)
            if self._target is not None and start:
                self._check_still_there(from_json_dict(end, "the end of the batch"))
            return ranges

        def _next_end(self, begin: Offsets, rows: int | None) -> Offsets:
            if self._target is None and (moved := self._after_deletions(begin)) != begin:
                self._ends(moved)
                return moved
            ends = self._ends(begin) if self._target is None else self._target_from(begin)
            position = self._checked(begin, ends)
            if not ends:
                # If every partition is gone, keep the position, in case the partitions come back.
                return begin
            if self._patience is not None:
                assert self._client is not None
                waiting = sum(max(end - position[p], 0) for p, end in ends.items())
                if not self._patience.fires(waiting, self._client.now_ms()):
                    return begin
            return ends if rows is None else self._limited(rows, position, ends)

        def _limited(self, rows: int, position: Offsets, ends: Offsets) -> Offsets:
            """Reduce the end offsets of a micro-batch to the limits by topic, offsets and bytes."""
            options = self._options
            ends = prorate_by_topic(options.max_offsets_by_topic, position, ends)
            ends = prorate(rows, position, ends)
            limit_bytes = options.max_bytes_per_trigger
            if limit_bytes is None:
                return ends
            wanted = self._rates.to_sample(limit_bytes, position, ends)
            if wanted:
                position = position | self._learn_rates({p: position[p] for p in wanted}, ends)
            self._rates.keep(ends)
            return self._rates.cut(limit_bytes, position, ends)

        def _learn_rates(self, places: Offsets, ends: Offsets) -> Offsets:
            """Fetch a few batches at each offset of ``places``, to learn the bytes per offset.
            Returns the log's first offset, at most the one in ``ends``, for each partition whose
            records there are deleted.

            Deleted offsets must not count as bytes: otherwise a query that fell behind retention
            would need many micro-batches to pass offsets that have no records.
            """
            from pyspark_klog.spark.planning.samples import SAMPLE_BYTES, fetch_samples

            assert self._client is not None
            found = fetch_samples(self._client, places, SAMPLE_BYTES)
            first: Offsets = {}
            with suppress(TopicMissing):
                first = self._begin().earliest(places.keys() - found.keys())
            moved = {p: min(o, ends[p]) for p, o in first.items() if o > places[p]}
            there = {p: offset for p, offset in moved.items() if offset < ends[p]}
            found |= fetch_samples(self._client, there, SAMPLE_BYTES)
            for partition, sample in found.items():
                self._rates.learn(partition, sample.size_bytes, sample.offsets)
            return moved

        def _time_lag(self, position: Offsets) -> Offsets:
            """The age in ms of each partition's first record at or after its offset in
            ``position``, or of an earlier record in the same batch of the log; 0 if no end after
            that offset is known.

            A partition whose first record cannot be fetched now, or has no time, is left out.
            """
            lag_ms = {p: 0 for p, offset in position.items() if offset >= self._latest.get(p, 0)}
            behind = {p: offset for p, offset in position.items() if p not in lag_ms}
            if not behind:
                return lag_ms
            from pyspark_klog.client.clock import epoch_ms
            from pyspark_klog.spark.planning.samples import ONE_BATCH, fetch_samples

            assert self._client is not None
            now_ms = epoch_ms()
            for partition, sample in fetch_samples(self._client, behind, ONE_BATCH).items():
                if sample.timestamp_ms is not None and sample.timestamp_ms >= 0:
                    lag_ms[partition] = max(now_ms - sample.timestamp_ms, 0)
            return lag_ms

        def _wait_if_idle(self) -> None:
            """Wait if the last `latestOffset` call found no new records, so that an idle query
            costs little.

            Spark would ask again at once; with a long trigger interval there is no need to wait.
            """
            if self._idle_since_ms is not None and self._target is None:
                assert self._client is not None
                idle_ms = self._client.now_ms() - self._idle_since_ms
                if idle_ms < self._options.idle_wait_ms:
                    self._client.sleep_ms(self._options.idle_wait_ms - idle_ms)

        def _note_if_idle(self, idle: bool) -> None:
            assert self._client is not None
            self._idle_since_ms = self._client.now_ms() if idle else None

        def _target_from(self, begin: Offsets) -> Offsets:
            """The end of an AvailableNow run by partition. If the run's end is before the start in
            ``begin``, brokers are asked again for the end of that partition, except right after a
            call of `latestOffset` that found nothing to read."""
            assert self._target is not None
            behind = [p for p, end in self._target.items() if end < begin.get(p, 0)]
            if behind and self._idle_since_ms is None:
                self._target = self._target | self._begin().latest(behind, begin)
                self._latest = self._target
            return self._not_before_open_transactions(begin, self._target)

        def _resolve_start(self) -> Offsets:
            """The start of a new query. If partitions were added after the end of this AvailableNow
            run was fixed, the end is fixed for these partitions, too."""
            start = super()._resolve_start()
            if self._target is not None and start.keys() - self._target.keys():
                new = start.keys() - self._target.keys()
                self._existing(refresh=True)
                self._target = self._target | self._begin().latest(new, {})
                self._latest = self._target
            return start

        def _first_end(self) -> JsonOffsets:
            """Resolve the start of a new query, and return it as the end of an empty first batch.
            So Spark writes the start to the checkpoint before it reads records."""
            start = self._resolve_start()
            if self._target is not None:
                start = {p: min(o, self._target.get(p, o)) for p, o in start.items()}
            self._latest = start
            if self._patience is not None:
                assert self._client is not None
                self._patience.fires(0, self._client.now_ms())
            return to_json_dict(start)

        def _check_still_there(self, end: Mapping[TopicPartition, int]) -> None:
            discovery = self._begin()
            assert self._target is not None
            # A batch that was planned before a restart, with other options, may have partitions
            # that this query does not read: do not check those.
            end = {p: offset for p, offset in end.items() if p in self._target}
            there = self._existing(refresh=True)
            again = self._recreated_topics(end)
            if again:
                raise DataLost(
                    f"topic {', '.join(sorted(again))} was deleted and made again while a query "
                    f"with the trigger AvailableNow was running; {NEW_CHECKPOINT}"
                )
            gone = sorted(end.keys() - there)
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
                        "to read: its topic may have been created again; start the query again"
                    )


def stream_reader(options: Options, refusal: KlogError | None) -> DataSourceStreamReader:
    """The stream reader for the installed version of Spark."""
    if HAS_LIMITS:
        return LimitedStreamReader(options, refusal)
    return PlainStreamReader(options, refusal)
