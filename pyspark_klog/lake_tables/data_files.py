"""The names and statistics of the Parquet files that `klog lake` writes."""

import re
from collections.abc import Iterable

import pyarrow.parquet as pq

from pyspark_klog.client.chance import unique_text

_NAME = re.compile(r"klog-\d+-\d{20}-[0-9a-f]{32}\.parquet")


def new_file_name(partition: int, first_offset: int) -> str:
    """Return the name of a new file: partition, first offset, and 128 random bits, because two
    writers may begin at the same offset."""
    return f"klog-{partition}-{first_offset:020d}-{unique_text()}.parquet"


def is_own(name: str) -> bool:
    """Return whether a file name has the form of `new_file_name`."""
    return _NAME.fullmatch(name) is not None


def column_bounds(metadata: pq.FileMetaData, columns: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return the least and the greatest value of each of ``columns``, from the statistics of the
    file's row groups; a column without statistics is missing in the result. Timestamps are in
    microseconds since 1970, because Python's type for times ends with the year 9999."""
    wanted = set(columns)
    found: dict[str, tuple[int, int]] = {}
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for index in range(group.num_columns):
            column = group.column(index)
            name, statistics = column.path_in_schema, column.statistics
            if name in wanted and statistics is not None and statistics.has_min_max:
                least, greatest = statistics.min_raw, statistics.max_raw
                low, high = found.get(name, (least, greatest))
                found[name] = min(low, least), max(high, greatest)
    return found
