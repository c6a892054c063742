"""A read that ends by time says so where timestamps decrease within its range."""

from pathlib import Path
from typing import Any

import pytest

from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.source.segment_reader import SegmentReader
from tests.support.spark.segment_files import LogFiles


@pytest.fixture
def log(tmp_path: Path) -> LogFiles:
    return LogFiles(tmp_path / "data")


def _rows(data: Path, **options: str) -> list[dict[str, Any]]:
    given = {"path": str(data), "subscribe": "t", **options}
    reader = SegmentReader(read_options(given).for_batch())
    parts = reader.partitions()
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("times", "options", "decrease_ms"),
    [
        ([1_000, 4_000, 2_000, 9_000], {"endingTimestamp": "8000"}, 2_004),
        ([1_000, 4_000, 2_000, 9_000], {"endingOffsetsByTimestamp": '{"t":{"0":8000}}'}, 2_004),
        ([1_000, 2_000, 4_000, 9_000], {"endingTimestamp": "8000"}, None),
        ([1_000, 4_000, 2_000, 9_000], {"endingTimestamp": "3000"}, None),
        ([1_000, 4_000, 2_000, 9_000], {"endingTimestamp": "8000", "columns": "value"}, None),
        ([1_000, 4_000, 2_000, 9_000], {}, None),
    ],
)
def test_a_read_that_ends_by_time_warns_where_timestamps_decrease(
    log: LogFiles,
    caplog: pytest.LogCaptureFixture,
    times: list[int],
    options: dict[str, str],
    decrease_ms: int | None,
) -> None:
    for at_ms in times:
        log.append(5, at_ms=at_ms)
    log.commit()
    rows = _rows(log.data, **options)
    texts = [text for text in caplog.messages if "timestamps decrease" in text]
    if decrease_ms is None:
        assert texts == []
    else:
        (text,) = texts
        assert (
            f"partition=t-0 timestamps decrease between offsets 0 and 15, by up to {decrease_ms}"
            in text
        )
        assert len(rows) == 15


def test_records_without_a_timestamp_are_no_decrease(
    log: LogFiles, caplog: pytest.LogCaptureFixture
) -> None:
    log.append(5)
    log.append(5, magic=0)
    log.append(5, at_ms=2_000)
    log.commit()
    assert len(_rows(log.data, endingTimestamp="9000")) == 15
    assert not any("timestamps decrease" in text for text in caplog.messages)
