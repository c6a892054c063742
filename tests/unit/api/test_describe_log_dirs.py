"""DescribeLogDirs: sizes by directory and topic, offline directories, and the volume's bytes."""

import errno
from pathlib import Path
from typing import Any

import pytest

from klog_broker.log.directory.data_directory import LogDirectory
from klog_broker.runtime.disk.files import DiskUsage, RealFiles
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from tests.support.cluster.broker import TOPICS, MemoryBroker, new_broker
from tests.support.raw_requests import batch, produce_request
from tests.support.runtime.memory_files import DISK_BYTES, MemoryFiles

NEWEST = 5


@pytest.fixture
def broker() -> MemoryBroker:
    return new_broker(with_kernel=False)


def describe_log_dirs(
    broker: MemoryBroker, *topics: tuple[str, list[int]], version: int = NEWEST, everything: Any = 0
) -> Any:
    rows = [DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in topics]
    request = DescribeLogDirsRequest(topics=None if everything is None else rows)
    return broker.call(request, version)


def sizes(result: Any) -> dict[tuple[str, int], int]:
    rows = [
        (topic.name, each.partition_index, each.partition_size)
        for topic in result.topics
        for each in topic.partitions
    ]
    assert len({row[:2] for row in rows}) == len(rows)
    assert len({topic.name for topic in result.topics}) == len(result.topics)
    return {(name, index): size for name, index, size in rows}


@pytest.mark.parametrize("version", range(NEWEST + 1))
def test_all_partitions(broker: MemoryBroker, version: int) -> None:
    records = batch(b"value")
    broker.call(produce_request("plain", records, 1), 9)
    (result,) = describe_log_dirs(broker, everything=None, version=version).results
    found = sizes(result)
    assert (result.error_code, result.log_dir) == (0, "/data")
    assert set(found) == {(name, n) for name, (count, _) in TOPICS.items() for n in range(count)}
    assert {where: size for where, size in found.items() if size} == {("plain", 1): len(records)}
    volume = (DISK_BYTES, DISK_BYTES) if version >= 4 else (-1, -1)
    assert (result.total_bytes, result.usable_bytes) == volume
    assert not result.is_cordoned


def test_named_partitions_that_are_here(broker: MemoryBroker) -> None:
    asked = [
        ("plain", [0, 7, 0, -1]),
        ("none", [0]),
        ("a b", [0]),
        ("plain", [2, 0]),
        ("flushed", []),
    ]
    (result,) = describe_log_dirs(broker, *asked).results
    assert sizes(result) == {("plain", 0): 0, ("plain", 2): 0}
    (result,) = describe_log_dirs(broker).results
    assert (sizes(result), result.total_bytes) == ({}, DISK_BYTES)


def test_several_segments_count_together(broker: MemoryBroker) -> None:
    records = batch(b"x" * 400)
    for _ in range(12):
        broker.call(produce_request("small-segments", records), 9)
    assert len(broker.log("small-segments").segments) > 2
    (result,) = describe_log_dirs(broker, ("small-segments", [0])).results
    assert sizes(result) == {("small-segments", 0): 12 * len(records)}


def test_what_is_left_on_the_volume(broker: MemoryBroker) -> None:
    broker.files.free_bytes = 12_345
    (result,) = describe_log_dirs(broker).results
    assert (result.total_bytes, result.usable_bytes) == (DISK_BYTES, 12_345)


class MuteVolume(MemoryFiles):
    """A disk that cannot report its free space."""

    is_mute = False

    def disk_usage(self, path: Path) -> DiskUsage:
        if self.is_mute:
            raise OSError(errno.EIO, "the volume does not answer", str(path))
        return super().disk_usage(path)


def test_a_volume_that_does_not_answer() -> None:
    files = MuteVolume()
    broker = MemoryBroker(files, with_kernel=False)
    files.is_mute = True
    (result,) = describe_log_dirs(broker).results
    assert (result.error_code, result.log_dir) == (ErrorCode.KAFKA_STORAGE_ERROR, "/data")
    (result,) = describe_log_dirs(broker, version=3).results
    assert result.error_code == 0


def test_two_directories_and_one_that_goes_offline(broker: MemoryBroker) -> None:
    directories = broker.broker.services.logs._directories
    broker.files.make_dirs(Path("/two"))
    directories.append(LogDirectory(broker.files, Path("/two"), broker.clock))
    results = describe_log_dirs(broker, everything=None).results
    assert [(each.error_code, each.log_dir) for each in results] == [(0, "/data"), (0, "/two")]
    assert [bool(each.topics) for each in results] == [True, False]
    # The broker knows of one only, and would end with it.
    broker.broker.services.logs.on_directory_offline = None
    directories[0].go_offline(OSError("the disk is gone"))
    for version in (1, NEWEST):
        one, two = describe_log_dirs(broker, everything=None, version=version).results
        assert (one.error_code, one.log_dir) == (ErrorCode.KAFKA_STORAGE_ERROR, "/data")
        assert (one.topics, one.total_bytes, one.usable_bytes) == ([], -1, -1)
        assert (two.error_code, two.log_dir) == (0, "/two")


def test_a_directory_that_goes_offline_while_its_volume_is_asked(broker: MemoryBroker) -> None:
    broker.helpers.is_held = True
    request = DescribeLogDirsRequest(topics=None)
    stream = broker.send(request, NEWEST)
    broker.log("plain").log_directory.error = OSError("the disk is gone")
    assert not stream.sent
    broker.helpers.release()
    broker.turns()
    assert stream.sent[4:].find(ErrorCode.KAFKA_STORAGE_ERROR.to_bytes(2, "big")) > 0


def test_the_real_volume(tmp_path: Path) -> None:
    found = RealFiles().disk_usage(tmp_path)
    assert 0 < found.usable_bytes < found.total_bytes
    with pytest.raises(FileNotFoundError):
        RealFiles().disk_usage(tmp_path / "none")


def test_a_bug_while_the_volume_is_asked(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> DiskUsage:
        raise ValueError("a bug")

    monkeypatch.setattr(broker.files, "disk_usage", fail)
    answer = describe_log_dirs(broker)
    assert (answer.error_code, answer.results) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])
    assert broker.broker.services.requests.bugs.total == 1
