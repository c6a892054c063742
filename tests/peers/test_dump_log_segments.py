"""Kafka's own DumpLogSegments reads klog's segments, indexes and snapshots without a complaint."""

import re
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from klog_broker.cli.commands import command
from klog_broker.log.log_config import LogConfig
from klog_broker.log.partition_log import PartitionLog
from klog_broker.runtime.disk.files import RealFiles
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.record import TimestampType
from tests.support.kafka.dump_log_segments import COMPLAINT, MAIN_CLASSES, dump
from tests.support.log.harness import EPOCH, PARTITION, TOPIC_ID, append, batch, open_manager
from tests.support.peers import NEWEST_KAFKA, run_tool

CONFIG = LogConfig(segment_bytes=9_000, segment_index_bytes=2_048, index_interval_bytes=600)
BATCHES = 120


def _write(log: PartitionLog) -> int:
    """All codecs, producers, epochs, headers-only batches and both timestamp types."""
    records = 0
    for number in range(BATCHES):
        if number == BATCHES // 2:
            log.update_config(
                LogConfig(
                    segment_bytes=CONFIG.segment_bytes,
                    segment_index_bytes=CONFIG.segment_index_bytes,
                    index_interval_bytes=CONFIG.index_interval_bytes,
                    message_timestamp_type=TimestampType.LOG_APPEND_TIME,
                )
            )
        count = 1 + number % 7
        has_producer = number % 3 == 0
        append(
            log,
            batch(
                count,
                codec=Codec(number % 5),
                timestamp_ms=1_600_000_000_000 + (number * 37) % 101 * 1_000,
                value=Random(number).randbytes(20 + number * 2),
                producer_id=number % 2 + 1 if has_producer else -1,
                base_sequence=_sequence(number) if has_producer else -1,
            ),
            now_ms=1_700_000_000_000 + number,
        )
        records += count
    return records


def _sequence(number: int) -> int:
    """The next sequence of the producer of batch ``number``."""
    return sum(1 + earlier % 7 for earlier in range(number % 6, number, 6))


@pytest.mark.parametrize("version", MAIN_CLASSES)
@pytest.mark.parametrize("ending", ["closed", "killed and recovered"])
def test_dump_log_segments_has_no_complaint(tmp_path: Path, version: str, ending: str) -> None:
    manager = open_manager(RealFiles(), config=CONFIG, directory=tmp_path)
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    records = _write(log)
    if ending != "closed":
        # As after a kill: nothing is closed. Another manager recovers it, and closes it then.
        twin = tmp_path.with_name(tmp_path.name + "-killed")
        _copy_as_killed(tmp_path, twin)
        manager = open_manager(RealFiles(), config=CONFIG, directory=twin)
        recovered = manager.get(PARTITION)
        assert recovered is not None
        assert not manager.is_clean_start
        assert recovered.log_end_offset == records
        assert (recovered.was_unclean, recovered.leader_epoch) == (True, EPOCH)
        log = recovered
    manager.close()
    files = sorted(log.path.iterdir())
    logs = [file for file in files if file.suffix == ".log"]
    assert len(logs) >= 4
    dumped = dump(version, logs, "--deep-iteration")
    assert dumped.count("isvalid: true") == BATCHES
    assert len(re.findall(r"^\| offset: \d+", dumped, re.M)) == records
    indexes = [file for file in files if file.suffix == ".index"]
    entries = re.findall(r"^offset: \d+ position: \d+", dump(version, indexes), re.M)
    assert len(entries) >= len(logs)
    time_indexes = [file for file in files if file.suffix == ".timeindex"]
    assert re.search(r"^timestamp: 1600\d+ offset: \d+", dump(version, time_indexes), re.M)
    assert re.search(r"^timestamp: 1700\d+ offset: \d+", dump(version, time_indexes), re.M)
    snapshots = [file for file in files if file.suffix == ".snapshot"]
    assert len(snapshots) == len(logs)
    known = [*logs, *indexes, *time_indexes, *snapshots]
    arguments = ["dump-log", "--deep-iteration", *map(str, known)]
    assert CliRunner().invoke(command, arguments).output == dump(version, known, "--deep-iteration")
    last = dump(version, snapshots[-1:])
    assert {int(found) for found in re.findall(r"producerId: (\d+)", last)} == {1, 2}


def _copy_as_killed(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        copy = target / path.relative_to(source)
        if path.is_dir():
            copy.mkdir(parents=True, exist_ok=True)
        else:
            copy.write_bytes(path.read_bytes())


def test_the_tool_does_complain_of_a_wrong_index(tmp_path: Path) -> None:
    manager = open_manager(RealFiles(), config=CONFIG, directory=tmp_path)
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    _write(log)
    manager.close()
    index = log.path / "00000000000000000000.index"
    rows = bytearray(index.read_bytes())
    rows[7] ^= 1
    index.write_bytes(rows)
    result = run_tool(NEWEST_KAFKA, MAIN_CLASSES[NEWEST_KAFKA], ["--files", str(index)])
    assert COMPLAINT.search(result.stdout + result.stderr)
