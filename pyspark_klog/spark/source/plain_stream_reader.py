"""The stream source for Spark 4.0 and 4.1, where Spark calls latestOffset() without arguments."""

import logging
from collections.abc import Sequence

from pyspark.sql.datasource import InputPartition

from pyspark_klog.errors import KlogError
from pyspark_klog.spark.errors import OptionError
from pyspark_klog.spark.offsets import Offsets, from_json_dict, to_json_dict
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.source.stream_base import JsonOffsets, StreamReaderBase
from pyspark_klog.spark.workers.error_display import one_line

_log = logging.getLogger(__name__)


class PlainStreamReader(StreamReaderBase):
    """The stream reader for Spark 4.0 and 4.1: every micro-batch reads up to the present ends of
    the partitions, and options that limit micro-batches, as maxOffsetsPerTrigger does, are refused.
    """

    def __init__(self, options: Options, refusal: KlogError | None) -> None:
        super().__init__(options, refusal or _refuse_limits(options))
        self._position: Offsets | None = None
        self._warned_of_group = False

    @one_line
    def latestOffset(self) -> JsonOffsets:  # type: ignore[override]  # noqa: N802
        """The end of the next micro-batch: the present ends of all partitions, with exceptions. The
        first end of a new query is its start if the start option can mean other offsets later
        (``latest``). After topics were created again, the end is the last position with the first
        offsets of the new topics. If no partition exists, the last position stays the end, and a
        partition with its last stable offset before the last position keeps that position.

        For a new query Spark calls this method before initialOffset."""
        self._begin()
        if self._position is None:
            if self._initial is None and self._options.start_can_move:
                self._position = self._resolve_start()
                self._initial = {}
                return to_json_dict(self._position)
            self._position = from_json_dict(self.initialOffset(), "the start")
        position = self._after_deletions(self._position)
        if position != self._position:
            self._position = position
            return to_json_dict(position)
        ends = self._ends(self._position)
        self._checked(self._position, ends)
        # If all partitions are gone, keep the position in case they come back.
        self._position = dict(ends) or self._position
        return to_json_dict(self._position)

    def commit(self, end: JsonOffsets) -> None:
        """Report the end of a batch to the consumer group of commitGroupId. Spark calls this method
        once the next batch is planned, so never for the last batch of a run.

        Spark before 4.2 reports its position nowhere else, so the group follows one batch late.
        """
        if self._options.commit_group_id is None:
            return
        if not self._warned_of_group:
            self._warned_of_group = True
            _log.warning(
                "before Spark 4.2 group %s (commitGroupId) follows the query one batch late, and "
                "misses the last batch of a run",
                self._options.commit_group_id,
            )
        self._report_position(from_json_dict(end, "the end of the batch in the checkpoint"))

    @one_line
    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
        """Plan a micro-batch. After a restart Spark first calls partitions(x, x), where x is the
        last end in the checkpoint; the reader goes on at x. If the checkpoint has no commit of the
        query's first batch, Spark then calls initialOffset() and plans this batch again: so
        initialOffset() returns the query's start, not x.
        """
        self._begin()
        position = from_json_dict(end, "the end of the batch in the checkpoint")
        if start == end:
            self._is_durable = self._initial is not None
            self._position = position
            return []
        ranges = super().partitions(start, end)
        self._position = position
        return ranges


def _refuse_limits(options: Options) -> KlogError | None:
    if not options.limits:
        return None
    names = " and ".join(options.limits)
    return OptionError(f"{names} needs Spark 4.2 or later: leave it out")
