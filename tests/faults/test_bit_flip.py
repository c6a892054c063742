"""One bit of a stored batch flips: each reader names the batch, and its neighbours are readable."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition
from kafka.errors import CorruptRecordError

from klog_broker.cli.commands import command
from klog_broker.log.log_config import LogConfig
from klog_broker.log.partition_log import PartitionLog
from klog_broker.runtime.disk.files import RealFiles
from pyspark_klog.client.consumer.fetcher import RangeFetcher
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.arrow import ArrowDecoder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.errors import CorruptRecords
from pyspark_klog.records.layout import BATCH_HEADER_BYTES
from pyspark_klog.spark.files.segment_range import SegmentRange
from pyspark_klog.spark.planning.ranges import OffsetRange
from tests.support.broker_thread import BrokerThread
from tests.support.client.cases import client_of
from tests.support.cluster.helpers import Helpers
from tests.support.compaction.cleaner_harness import CleanerBench
from tests.support.log.harness import TOPIC_ID, append, batch, open_manager
from tests.support.raw_requests import batch as values
from tests.support.raw_requests import create_topic, fetch, first_partition, produced
from tests.support.records.decoding import decode_to_arrow
from tests.support.runtime.manual_clock import ManualClock

PARTITION = TopicPartition("t", 0)
COUNT = 9
HIT = 4


def value(number: int) -> bytes:
    return b"value %d" % number * 9


def flip(path: Path, hit: int, sizes: list[int]) -> None:
    """Flip a bit in a record of batch number ``hit``."""
    data = bytearray(path.read_bytes())
    data[sum(sizes[:hit]) + BATCH_HEADER_BYTES + 20] ^= 0x10
    path.write_bytes(data)


@pytest.fixture(params=[Codec.NONE, Codec.LZ4], ids=["plain", "lz4"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A data directory with nine batches of a record each, the fifth with a flipped bit."""
    sets = [values(value(number), codec=request.param) for number in range(COUNT)]
    with BrokerThread(tmp_path) as broker, broker.client() as client:
        create_topic(client, "t")
        for each in sets:
            produced(client, "t", each)
    flip(next((tmp_path / "t-0").glob("*.log")), HIT, [len(each) for each in sets])
    return tmp_path


def test_fetch_gives_all_of_it_as_kafka_does(data: Path) -> None:
    """A broker does not check the batches that it sends; `klog verify` does."""
    with BrokerThread(data) as broker, broker.client() as client:
        stored = first_partition(fetch(client, "t"))
        assert stored.error_code == 0
        for number in (HIT - 1, HIT, HIT + 1):
            found = first_partition(fetch(client, "t", offset=number))
            assert found.error_code == 0
            assert bytes(stored.records).endswith(found.records)


def test_kafkas_consumer_with_check_crcs(data: Path) -> None:
    with BrokerThread(data) as broker:
        consumer = KafkaConsumer(
            bootstrap_servers=broker.bootstrap_servers, check_crcs=True, enable_auto_commit=False
        )
        place = KafkaPartition("t", 0)
        consumer.assign([place])

        def read(offset: int) -> list[bytes]:
            consumer.seek(place, offset)
            found = consumer.poll(10_000, max_records=HIT if not offset else COUNT)
            return [record.value for record in found.get(place, ())]

        assert read(0) == [value(number) for number in range(HIT)]
        with pytest.raises(CorruptRecordError):
            read(HIT)
        assert read(HIT + 1) == [value(number) for number in range(HIT + 1, COUNT)]
        consumer.close()


def test_the_connectors_reader_names_the_offset(data: Path) -> None:
    def rows(start: int, end: int) -> list[bytes]:
        def fail(lost: Exception) -> None:
            raise lost

        chunks = RangeFetcher(
            client, PARTITION, start, end, progress_timeout_ms=9_000, on_lost=fail
        )
        found: list[bytes] = []
        for chunk in chunks:
            decoded = decode_to_arrow(
                chunk.data, topic="t", partition=0, start_offset=start, end_offset=end
            )
            found += [row for each in decoded.batches for row in each["value"].to_pylist()]
        return found

    with BrokerThread(data) as broker, client_of(broker.bootstrap_servers) as client:
        with pytest.raises(CorruptRecords, match=rf"t-0, batch at byte \d+, offset {HIT}: .* CRC"):
            rows(0, COUNT)
        assert rows(HIT + 1, COUNT) == [value(number) for number in range(HIT + 1, COUNT)]


def test_segment_files_name_the_offset(data: Path) -> None:
    def fail(lost: str) -> None:
        raise AssertionError(lost)

    def rows(start: int, end: int) -> list[bytes]:
        decoder = ArrowDecoder(topic="t", partition=0, start_offset=start, end_offset=end)
        offsets = OffsetRange("t", 0, start, end)
        part = SegmentRange(data, offsets, read_committed=False, on_lost=fail)
        found = [*part.batches(decoder), decoder.flush()]
        return [row for each in found if each for row in each["value"].to_pylist()]

    with pytest.raises(CorruptRecords, match=rf"offset {HIT}: .* CRC"):
        rows(0, COUNT)
    assert rows(0, HIT) == [value(number) for number in range(HIT)]
    assert rows(HIT + 1, COUNT) == [value(number) for number in range(HIT + 1, COUNT)]


def test_verify_names_the_batch_and_none_else(data: Path) -> None:
    found = CliRunner().invoke(command, ["verify", str(data)])
    assert found.exit_code == 1
    errors = [line for line in found.output.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert "the CRC does not fit the bytes" in errors[0]


def test_the_cleaner_leaves_the_log_as_it_is_and_cleans_others(tmp_path: Path) -> None:
    config = LogConfig(
        segment_bytes=2_000,
        segment_index_bytes=1_024,
        compact=True,
        delete=False,
        min_cleanable_dirty_ratio=0.0,
    )
    helpers, clock = Helpers.held(), ManualClock()
    manager = open_manager(
        RealFiles(), config=config, directory=tmp_path, helpers=helpers, clock=clock
    )
    logs: list[PartitionLog] = []
    for number in range(2):
        log = manager.create(PARTITION._replace(partition=number), TOPIC_ID, config)
        for _ in range(40):
            append(log, batch(key=b"key"))
        logs.append(log)
    helpers.run_all()  # only flushed segments are cleaned
    path = sorted((tmp_path / "t-0").glob("*.log"))[1]
    flip(path, 3, [len(batch(key=b"key"))] * 40)
    before = {each.name: each.read_bytes() for each in (tmp_path / "t-0").glob("*.log")}
    bench = CleanerBench(manager, helpers, clock)
    bench.start_checks()
    bench.run()
    bench.look_again()
    assert [each.topic_partition for each in bench.cleaner.set_aside] == [PARTITION]
    assert {each.name: each.read_bytes() for each in (tmp_path / "t-0").glob("*.log")} == before
    assert sum(each.size_bytes for each in logs[1].segments) < sum(map(len, before.values())) / 4
    manager.close()
