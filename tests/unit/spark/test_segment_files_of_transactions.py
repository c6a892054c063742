"""Segment files that klog's log writes in the middle of transactions, read as Spark's tasks do."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from klog_broker.log.log_config import LogConfig
from klog_broker.runtime.disk.files import RealFiles
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.options.reader import read_options
from pyspark_klog.spark.source.segment_reader import SegmentReader
from tests.support.log.harness import TOPIC_ID, open_manager
from tests.support.log.transactional_log import append_end_marker, write
from tests.support.runtime.manual_clock import ManualClock

CONFIG = LogConfig(segment_bytes=4_000, segment_index_bytes=400, index_interval_bytes=200)


def offsets(data: Path, **more: str) -> list[int]:
    """Return the offsets that a batch reads from the directory."""
    given: dict[str, Any] = {"path": str(data), "subscribe": "t", **more}
    reader = SegmentReader(read_options(given).for_batch())
    parts = reader.partitions()
    return [o for part in parts for rows in reader.read(part) for o in rows["offset"].to_pylist()]


@pytest.mark.parametrize("is_running", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_committed_records_up_to_the_first_open_transaction(
    tmp_path: Path, seed: int, is_running: bool
) -> None:
    random, clock = Random(seed), ManualClock()
    manager = open_manager(RealFiles(), config=CONFIG, directory=tmp_path, clock=clock)
    log = manager.create(TopicPartition("t", 0), TOPIC_ID, CONFIG)
    sequences = [0] * 4
    mine: dict[int, list[int]] = {}
    committed: list[int] = []
    everything: list[int] = []
    for _ in range(150):
        producer_id = random.randrange(4)
        if producer_id in mine and random.random() < 0.4:
            is_commit = random.random() < 0.5
            append_end_marker(log, producer_id, commit=is_commit)
            committed += mine.pop(producer_id) if is_commit else []
            mine.pop(producer_id, None)
            continue
        info = write(log, producer_id, sequences[producer_id], 2, is_transactional=producer_id > 0)
        sequences[producer_id] += 2
        found = [info.first_offset, info.last_offset]
        everything += found
        if producer_id:
            mine.setdefault(producer_id, []).extend(found)
        else:
            committed += found
    assert mine
    assert len(log.segments) > 3
    stable = log.last_stable_offset
    if is_running:
        clock.advance(10_000)
        manager.run_due()
    else:
        manager.close()
    level = {"kafka.isolation.level": "read_committed"}
    assert offsets(tmp_path, **level) == sorted(o for o in committed if o < stable)
    assert offsets(tmp_path) == everything
