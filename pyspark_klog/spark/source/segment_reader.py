"""A batch read directly from a data directory's segment files, without a broker (option path).

The directory's checkpoint of high watermarks says which records are committed, and the segments'
indexes say where offsets are in the files. The bytes go in chunks to the decoder that is used for
fetched records, too.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.offsets import Offsets
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.options.paths import local_directory
from pyspark_klog.spark.planning.losses import Loss, files_end_early
from pyspark_klog.spark.planning.open_transactions import HOW_TO_WAIT, ends_before_start
from pyspark_klog.spark.planning.ranges import OffsetRange
from pyspark_klog.spark.source.reader import BatchReader, RangePartition
from pyspark_klog.spark.source.rows import RangeReader, report_loss
from pyspark_klog.spark.workers.clients import freeze_once

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_log = logging.getLogger(__name__)


class SegmentReader(BatchReader):
    """Reads a batch from segment files, from the starting to the ending offsets."""

    def __init__(self, options: Options) -> None:
        assert options.path is not None
        # Resolve a relative path here, since executors work in folders of their own.
        super().__init__(replace(options, path=local_directory(options.path)))

    def _find_offsets(self) -> tuple[Offsets, Offsets]:
        from pyspark_klog.spark.files.discovery import SegmentDiscovery
        from pyspark_klog.spark.planning.bound_resolution import resolve_end, resolve_start

        options = self._options
        discovery = SegmentDiscovery(options)
        partitions = discovery.partitions()
        start = resolve_start(discovery, options, partitions)
        end = resolve_end(discovery, options, partitions)
        discovery.check_local({p: offset for p, offset in start.items() if offset < end[p]})
        for p in sorted(end):
            bound = discovery.end_of(p, enough=end[p])
            if bound < end[p]:
                text = (
                    f"offsets {max(bound, start[p])} to {end[p]} of {p} were to be read, but "
                    f"the records in {options.path} that are known to be committed end at offset "
                    f"{bound} (ends exclusive)"
                )
                transaction = discovery.open_transaction_at(p, bound)
                loss = files_end_early(text, bound)
                if transaction is not None:
                    loss = Loss(f"{text}: {transaction}", HOW_TO_WAIT)
                report_loss(loss, fails=options.fail_on_data_loss)
                end[p] = max(bound, start[p])
        _log.info("planned a read: path=%s read_bytes=%d", options.path, discovery.read_bytes)
        return start, end

    def _ends_before_start(self, start: Offsets, end: Offsets) -> Mapping[TopicPartition, str]:
        from pyspark_klog.spark.files.discovery import SegmentDiscovery

        return ends_before_start(SegmentDiscovery(self._options), start, end)

    def _read_range(self, partition: RangePartition) -> "Iterator[RecordBatch]":
        return SegmentRangeReader(self._options).read(partition.offsets)


class SegmentRangeReader(RangeReader):
    """Reads ranges of offsets from segment files, in tasks."""

    def _batches(self, offsets: OffsetRange) -> "Iterator[RecordBatch]":
        """The records of one range; after the last one, logs how many bytes were read."""
        from pyspark_klog.spark.files.segment_range import SegmentRange

        options = self.options
        assert options.path is not None
        decoder = self.decoder(offsets)
        reading = SegmentRange(
            Path(options.path),
            offsets,
            read_committed=options.read_committed,
            on_lost=self._on_files_lost,
        )
        yield from reading.batches(decoder)
        rest = decoder.flush()
        if rest is not None:
            yield rest
        freeze_once()
        _log.info("read range=%s read_bytes=%d", offsets, reading.counter.total_bytes)

    def _on_files_lost(self, loss: Loss) -> None:
        report_loss(loss, fails=self.options.fail_on_data_loss)
