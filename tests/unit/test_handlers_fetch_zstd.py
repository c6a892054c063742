"""Fetch 4 to 9: who cannot read zstd gets none, and nothing is read to see that there is none."""

from collections.abc import Callable
from typing import Any

import pytest

from klog_broker.handlers import fetch_read
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.sets import entries
from tests.support.fake_network import FakeStream
from tests.support.memory_files import MemoryFile
from tests.support.produce_frames import frame
from tests.support.produce_paths import NOW_MS, MemoryBroker, new_broker

VERSION, KNOWS_ZSTD = 9, 12
VALUE = bytes(20_000)
HEAD = 23  # bytes of a batch up to its attributes
LookedAt = Callable[..., int]


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> LookedAt:
    """How many more bytes of files a fetch reads than that of a client which knows zstd."""
    count = 0
    read, read_now, send_file = MemoryFile.pread, MemoryFile.pread_now, FakeStream.send_file

    def counted(file: MemoryFile, size: int, position: int) -> bytes:
        nonlocal count
        count += size
        return read(file, size, position)

    def counted_now(file: MemoryFile, size: int, position: int) -> bytes | None:
        nonlocal count
        count += size
        return read_now(file, size, position)

    def sent(stream: FakeStream, file: Any, position: int, size_bytes: int) -> int:
        nonlocal count
        count -= size_bytes
        return send_file(stream, file, position, size_bytes)

    monkeypatch.setattr(MemoryFile, "pread", counted)
    monkeypatch.setattr(MemoryFile, "pread_now", counted_now)
    monkeypatch.setattr(FakeStream, "send_file", sent)

    def more(broker: MemoryBroker, offset: int = 0) -> int:
        nonlocal count
        counts = []
        for version in (VERSION, KNOWS_ZSTD):
            count = 0
            fetch(broker, offset, version)
            counts.append(count)
        return counts[0] - counts[1]

    return more


def batch(codec: Codec, value: bytes = VALUE) -> bytes:
    builder = BatchBuilder(codec=codec)
    builder.append(None, value, NOW_MS)
    return builder.build()


def append(broker: MemoryBroker, *codecs: Codec) -> None:
    for codec in codecs:
        log = broker.log("plain")
        log.append_as_leader(batch(codec), leader_epoch=log.leader_epoch, now_ms=NOW_MS)


def fetch(broker: MemoryBroker, offset: int = 0, version: int = VERSION) -> PartitionData:
    row = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic="plain", partitions=[row])]
    request = FetchRequest(replica_id=-1, max_bytes=1 << 20, topics=topics)
    found: PartitionData = broker.call(request, version).responses[0].partitions[0]
    return found


def offsets(answer: PartitionData) -> list[int]:
    assert answer.error_code == 0
    assert isinstance(answer.records, bytes | memoryview)
    return [entry.last_offset for entry in entries(answer.records)]


def test_nothing_is_read_where_no_zstd_was_appended(looked_at: LookedAt) -> None:
    broker = new_broker(with_kernel=False)
    append(broker, Codec.NONE, Codec.LZ4, Codec.GZIP)
    assert looked_at(broker) == 0
    assert offsets(fetch(broker)) == [0, 1, 2]


def test_nor_where_batches_were_planned(looked_at: LookedAt) -> None:
    broker = new_broker(with_kernel=True)
    stream = broker.connect()
    for _ in range(3):
        stream.inbox += frame(batch(Codec.NONE))
        broker.turns()
    assert broker.planned == 3
    assert looked_at(broker) == 0
    append(broker, Codec.ZSTD)
    stream.inbox += frame(batch(Codec.NONE))
    broker.turns()
    assert offsets(fetch(broker)) == [0, 1, 2]
    assert fetch(broker, 3).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert offsets(fetch(broker, 4)) == [4]


def test_what_lies_before_zstd_is_sent_and_headers_alone_are_read(looked_at: LookedAt) -> None:
    broker = new_broker(with_kernel=False)
    append(broker, Codec.NONE, Codec.NONE, Codec.ZSTD, Codec.NONE, Codec.NONE, Codec.ZSTD)
    assert [looked_at(broker, offset) for offset in (0, 2, 3)] == [HEAD, HEAD, 3 * HEAD]
    assert offsets(fetch(broker)) == [0, 1]
    assert fetch(broker, 2).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert offsets(fetch(broker, 3)) == [3, 4]


def test_a_new_segment_is_looked_at_by_itself(looked_at: LookedAt) -> None:
    broker = new_broker(with_kernel=False)
    append(broker, Codec.ZSTD)
    broker.log("plain").roll(NOW_MS)
    append(broker, Codec.NONE)
    assert looked_at(broker, 1) == 0
    assert offsets(fetch(broker, 1)) == [1]
    assert fetch(broker).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("is_clean", [True, False])
def test_after_a_start_headers_are_read_once(looked_at: LookedAt, is_clean: bool) -> None:
    before = new_broker(with_kernel=False)
    append(before, *[Codec.NONE] * 10)
    if is_clean:
        before.close()
    broker = MemoryBroker(before.files.killed(), with_kernel=False)
    assert [looked_at(broker) for _ in range(2)] == [10 * HEAD, 0]
    append(broker, Codec.NONE, Codec.ZSTD)
    assert looked_at(broker) == HEAD
    assert offsets(fetch(broker)) == list(range(11))
    assert fetch(broker, 11).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_zstd_that_was_there_before_the_start_is_found() -> None:
    before = new_broker(with_kernel=False)
    append(before, Codec.NONE, Codec.ZSTD, Codec.NONE)
    before.close()
    broker = MemoryBroker(before.files.killed(), with_kernel=False)
    assert offsets(fetch(broker, 2)) == [2]
    assert offsets(fetch(broker)) == [0]
    assert fetch(broker, 1).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_after_a_truncation_what_was_cut_off_does_not_count(
    codec: Codec, looked_at: LookedAt
) -> None:
    broker = new_broker(with_kernel=False)
    other = Codec.ZSTD if codec is Codec.NONE else Codec.NONE
    append(broker, Codec.NONE, other, Codec.NONE, Codec.NONE)
    broker.log("plain").truncate_beside(1, lambda _: None)
    broker.turns()
    append(broker, codec)
    if codec is Codec.NONE:
        assert looked_at(broker) == 0
        assert offsets(fetch(broker)) == [0, 1]
    else:
        assert offsets(fetch(broker)) == [0]
        assert fetch(broker, 1).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_no_more_than_so_many_headers_are_read_for_one_response(
    looked_at: LookedAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_read, "MAX_HEADERS", 3)
    broker = new_broker(with_kernel=False)
    append(broker, Codec.ZSTD, *[Codec.NONE] * 5)
    assert looked_at(broker, 1) == 3 * HEAD
    assert offsets(fetch(broker, 1)) == [1, 2, 3]
    assert offsets(fetch(broker, 4)) == [4, 5]
