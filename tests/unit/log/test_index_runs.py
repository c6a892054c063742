"""Index entries in runs, as recovery makes them: the same as one by one, also where there is no
room."""

from random import Random

import pytest

from klog_broker.log.log_config import LogConfig
from klog_broker.log.segment.segment import Segment
from klog_broker.log.validation.batch_digests import IndexRow
from tests.support.log.harness import DATA
from tests.support.runtime.memory_files import MemoryFiles


@pytest.mark.parametrize("index_bytes", [0, 8, 48, 4096])
@pytest.mark.parametrize("seed", range(6))
def test_in_runs_as_one_by_one(index_bytes: int, seed: int) -> None:
    random = Random(seed)
    config = LogConfig(segment_index_bytes=index_bytes)
    rows, timestamp_ms = [], -1
    for number in range(1, 40):
        timestamp_ms = max(timestamp_ms, random.randrange(-1, 60))
        rows.append(IndexRow(100 + number, number * 10, timestamp_ms, 100 + number))
    found = []
    for at_once in (1, 7, 40):
        files = MemoryFiles()
        files.make_dirs(DATA)
        segment = Segment.create(files, DATA, 100, config, 0)
        for start in range(0, len(rows), at_once):
            segment.add_index_rows(rows[start : start + at_once])
        offsets, times = list(segment.offset_index.view()), list(segment.time_index.view())
        found.append((offsets, times, segment.max_timestamp, segment.time_index.last))
    assert found[0] == found[1] == found[2]
    assert len(found[0][0]) == min(39, index_bytes // 8)
