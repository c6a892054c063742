"""The same batches make the same files in Apache Kafka and in klog, byte for byte.

Kafka's broker writes them first; its own log, batch by batch as the producer sent it, then goes
into klog's. Compared are the segments that both have rolled: .log, .index, .timeindex, .snapshot.
"""

from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer

from klog_broker.log.log_config import LogConfig
from klog_broker.runtime.disk.files import RealFiles
from pyspark_klog.ids import Offset
from pyspark_klog.records.batch import BatchView, split_batches
from pyspark_klog.storage.names import Suffix, parse_segment_file_name
from tests.support.log.harness import append, open_log
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, KafkaServer
from tests.support.records.record_sets import set_leader_epoch

# The least that Kafka 4 takes.
SEGMENT_BYTES = 1 << 20
RECORDS = 12_000


@pytest.mark.parametrize("version", [OLDEST_KAFKA, NEWEST_KAFKA])
def test_files_are_those_that_kafka_writes(tmp_path: Path, version: str) -> None:
    properties = {"log.segment.bytes": str(SEGMENT_BYTES), "log.index.interval.bytes": "4096"}
    with KafkaServer(version, properties=properties) as server:
        _produce(server.bootstrap_servers)
        theirs = server.log_dir / "flights-0"
        log = open_log(
            RealFiles(),
            LogConfig(segment_bytes=SEGMENT_BYTES, index_interval_bytes=4096),
            directory=tmp_path,
        )
        rolled = sorted(theirs.glob("*.log"))[:-1]
        assert len(rolled) >= 3
        for path in sorted(theirs.glob("*.log")):
            for view in split_batches(path.read_bytes()):
                append(log, _as_sent(view))
        for path in rolled:
            for suffix in (".log", ".index", ".timeindex"):
                name = path.with_suffix(suffix).name
                assert (log.path / name).read_bytes() == (theirs / name).read_bytes(), name
        compared = 0
        for path in theirs.glob("*.snapshot"):
            if (log.path / path.name).exists():
                assert (log.path / path.name).read_bytes() == path.read_bytes(), path.name
                compared += 1
        assert compared == len(rolled)
        bases = {_base(path) for path in theirs.glob("*.log")}
        assert bases == {segment.base_offset for segment in log.segments}


def _produce(bootstrap_servers: str) -> None:
    random = Random(1)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "batch.num.messages": 40,
            "linger.ms": 5,
        }
    )
    for number in range(RECORDS):
        # Timestamps that go back and forth: the time index follows the largest.
        timestamp_ms = 1_700_000_000_000 + number * 7 - random.randint(0, 60_000)
        value = random.randbytes(random.randint(0, 600))
        producer.produce("flights", value, str(number), partition=0, timestamp=timestamp_ms)
        producer.poll(0)
    assert producer.flush(60) == 0


def _as_sent(stored: BatchView) -> bytes:
    sent = bytearray(stored.to_bytes())
    view = BatchView(sent)
    view.set_base_offset(0)
    set_leader_epoch(view, -1)
    return bytes(sent)


def _base(path: Path) -> Offset:
    parsed = parse_segment_file_name(path.name)
    assert parsed is not None and parsed[1] is Suffix.LOG
    return parsed[0]
