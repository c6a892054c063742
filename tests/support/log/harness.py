"""Helpers of the log's tests: batches, helper threads run by hand, a log manager on any disk."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from klog_broker.log.log_config import LogConfig
from klog_broker.log.manager.log_manager import LogManager, LogManagerSettings
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.validation.record_checks import RecordChecks
from klog_broker.runtime.disk.files import Files
from klog_broker.runtime.system.chance import Chance
from pyspark_klog.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition
from pyspark_klog.records.batch import BatchView, split_batches
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.record import Record
from tests.support.cluster.helpers import Helpers
from tests.support.runtime.manual_clock import ManualClock

PARTITION = TopicPartition("topic", 0)
TOPIC_ID = TopicId(UUID(int=0x1234567890ABCDEF1234567890ABCDEF))
DATA = Path("/data")
CLUSTER = "klog-test-cluster-id-0"
# Small, so that rolls and index entries come soon.
SMALL = LogConfig(segment_bytes=16_384, segment_index_bytes=4_096, index_interval_bytes=512)
EPOCH = LeaderEpoch(0)


class StandaloneListener:
    """Hosts logs as a standalone broker does: acknowledged records are visible. ``on_change`` is
    called with a log for which a fetch may be waiting."""

    def __init__(self) -> None:
        self.on_change: Callable[[PartitionLog], object] = lambda _: None

    def log_end_grew(self, log: PartitionLog) -> None:
        if not log.config.responses_wait_for_flush:
            log.set_high_watermark(log.log_end_offset)

    def log_flushed(self, log: PartitionLog) -> None:
        if log.config.responses_wait_for_flush:
            log.set_high_watermark(log.flushed_offset)

    def high_watermark_grew(self, log: PartitionLog) -> None:
        self.on_change(log)

    def log_start_grew(self, log: PartitionLog) -> None:
        self.on_change(log)

    def log_went_offline(self, log: PartitionLog) -> None:
        self.on_change(log)


def batch(
    count: int = 1,
    *,
    value: bytes = b"v" * 100,
    key: bytes | None = b"k",
    timestamp_ms: int = 1_000,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int | None = None,
    base_sequence: int = -1,
    **fields: Any,
) -> bytes:
    """Return a producer's v2 batch of ``count`` records, with timestamps rising by 1 ms."""
    epoch = producer_epoch if producer_epoch is not None else (0 if producer_id >= 0 else -1)
    builder = BatchBuilder(
        0,
        codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=base_sequence,
        **fields,
    )
    for number in range(count):
        builder.append(key, value, timestamp_ms + number)
    return builder.build()


def open_manager(
    files: Files,
    *,
    config: LogConfig = SMALL,
    helpers: Helpers | None = None,
    clock: ManualClock | None = None,
    directory: Path = DATA,
    settings: LogManagerSettings | None = None,
    checks: RecordChecks | None = None,
    chance: Chance | None = None,
) -> LogManager:
    """A loaded manager over one data directory; of what it has loaded all may be seen."""
    manager = LogManager(
        [directory],
        files=files,
        clock=clock or ManualClock(),
        helpers=helpers or Helpers(),
        broker_id=BrokerId(0),
        cluster_id=CLUSTER,
        settings=settings,
        default_config=config,
        chance=chance or Chance(0),
    )
    if checks is not None:
        manager.checks = checks
    manager.listener = StandaloneListener()
    manager.load()
    for log in manager.logs():
        log.set_high_watermark(log.log_end_offset)
    return manager


def open_log(files: Files, config: LogConfig = SMALL, **options: Any) -> PartitionLog:
    """The log of PARTITION, made if there is none."""
    manager = open_manager(files, config=config, **options)
    return manager.create(PARTITION, TOPIC_ID, config)


def append(log: PartitionLog, records: bytes | None = None, now_ms: int = 5_000) -> Any:
    """Append as a client does, in the log's newest epoch; returns the AppendInfo."""
    return append_in(log, max(EPOCH, log.leader_epoch), records, now_ms)


def append_in(
    log: PartitionLog, epoch: int, records: bytes | None = None, now_ms: int = 5_000
) -> Any:
    """The same in an epoch which begins now, if it has not."""
    leader_epoch = LeaderEpoch(epoch)
    log.begin_epoch(leader_epoch)
    return log.append_as_leader(
        batch() if records is None else records, leader_epoch=leader_epoch, now_ms=now_ms
    )


def truncate(log: PartitionLog, offset: int) -> None:
    """Cut the log; its helpers work at once."""
    outcomes: list[BaseException | None] = []
    log.truncate_async(offset, outcomes.append)
    (error,) = outcomes
    if error is not None:
        raise error


def start_over(log: PartitionLog, offset: int) -> None:
    """Drop all that is in the log; its helpers work at once."""
    outcomes: list[BaseException | None] = []
    log.start_over_async(offset, 5_000, outcomes.append)
    (error,) = outcomes
    if error is not None:
        raise error


def read_all(log: PartitionLog, end_offset: int | None = None) -> list[Record]:
    """Every record that a consumer sees (or up to ``end_offset``), CRCs checked."""
    records: list[Record] = []
    for view in read_batches(log, end_offset):
        records += (record for record in view.records() if record.offset >= log.log_start_offset)
    return records


def read_batches(log: PartitionLog, end_offset: int | None = None) -> Iterator[BatchView]:
    """The batches of :func:`read_all`'s records, of which the first may begin before the log."""
    offset: int = log.log_start_offset
    end = log.high_watermark if end_offset is None else end_offset
    while offset < end:
        region = log.read(offset, 1 << 20, end_offset=end, min_one_batch=True).region
        if region is None:
            break
        data = region.file.pread(region.size, region.position)
        for view in split_batches(data, allow_partial=True):
            view.check_crc()
            yield view
            offset = view.next_offset
