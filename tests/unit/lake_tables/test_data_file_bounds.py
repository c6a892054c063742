"""The bounds of a data file's columns, as engines compare them to skip files."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_klog.lake_tables.data_files import column_bounds

_LAST_OF_9999_US = 253_402_300_799_999_000


def _metadata(times_us: list[int], group_rows: int) -> pq.FileMetaData:
    times = pa.array(times_us, pa.timestamp("us", "UTC"))
    offsets = pa.array(range(len(times_us)), pa.int64())
    stream = io.BytesIO()
    table = pa.table({"offset": offsets, "timestamp": times})
    pq.write_table(table, stream, row_group_size=group_rows)
    return pq.read_metadata(io.BytesIO(stream.getvalue()))


@pytest.mark.parametrize("group_rows", [1, 3])
@pytest.mark.parametrize(
    "times", [[5_000, -1_000, 0], [_LAST_OF_9999_US + 1_000, -(1 << 60), 0], [1 << 62, 1, 2]]
)
def test_the_bounds_of_all_row_groups_are_joined(times: list[int], group_rows: int) -> None:
    bounds = column_bounds(_metadata(times, group_rows), ("offset", "timestamp", "missing"))
    assert bounds == {"offset": (0, 2), "timestamp": (min(times), max(times))}
