"""A warning for reads that end by time: timestamps that decrease within a range.

endingTimestamp ends a partition at its first record with that time or a later one. If timestamps
decrease in a partition, records with earlier times may follow, and are not read.
"""

import logging
from typing import TYPE_CHECKING

from pyspark_klog.spark.planning.ranges import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow import RecordBatch

_log = logging.getLogger(__name__)


def warn_of_decrease(
    batches: "Iterator[RecordBatch]", offsets: OffsetRange, option: str
) -> "Iterator[RecordBatch]":
    """Return the batches of a range unchanged, and log one warning if timestamps decrease.

    ``option`` is the option by which the read ends.
    """
    import numpy as np
    import pyarrow as pa

    newest_us = largest_us = 0
    for batch in batches:
        if batch.num_rows:
            times_us = batch.column("timestamp").view(pa.int64()).to_numpy(zero_copy_only=False)
            newest_so_far_us = np.maximum(np.maximum.accumulate(times_us), newest_us)
            # Records without a timestamp have a negative one.
            behind_us = np.where(times_us < 0, 0, newest_so_far_us - times_us)
            largest_us = max(largest_us, int(behind_us.max()))
            newest_us = int(newest_so_far_us[-1])
        yield batch
    if largest_us:
        _log.warning(
            "partition=%s timestamps decrease between offsets %d and %d, by up to %d ms: %s ends a "
            "partition at its first record with the given time or a later one, and older records "
            "after it are not read; to read them, leave out %s and filter on the column timestamp "
            "(docs/backfills.md)",
            offsets.topic_partition,
            offsets.start,
            offsets.end,
            largest_us // 1_000,
            option,
            option,
        )
