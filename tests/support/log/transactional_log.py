"""Transactional appends to a log, for tests: verified batches, and markers."""

from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.producers.verification import VerificationGuard
from klog_broker.log.read.read_results import AppendInfo
from pyspark_klog.ids import LeaderEpoch, Offset
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.control import ControlType, EndTransactionMarker, end_transaction_at
from pyspark_klog.storage.transaction_index import AbortedEntry
from tests.support.log.harness import EPOCH, batch

NOW_MS = 5_000


def verified(
    log: PartitionLog, producer_id: int, epoch: int = 0, sequence: int = 0, *, bumps: bool = False
) -> VerificationGuard | None:
    """The guard for a batch, as if the coordinator had said yes."""
    return log.begin_verification(
        producer_id, epoch, sequence, supports_epoch_bump=bumps, now_ms=NOW_MS
    )


def write(
    log: PartitionLog,
    producer_id: int,
    sequence: int,
    count: int = 1,
    *,
    epoch: int = 0,
    is_transactional: bool = True,
    bumps: bool = False,
    value: bytes = b"v" * 20,
) -> AppendInfo:
    """Append a producer's batch as a client's, verified if it is transactional."""
    leader_epoch = LeaderEpoch(max(EPOCH, log.leader_epoch))
    log.begin_epoch(leader_epoch)
    guard = verified(log, producer_id, epoch, sequence, bumps=bumps) if is_transactional else None
    return log.append_as_leader(
        batch(
            count,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
            value=value,
        ),
        leader_epoch=leader_epoch,
        now_ms=NOW_MS,
        guard=guard,
    )


def append_end_marker(
    log: PartitionLog,
    producer_id: int,
    *,
    commit: bool,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> Offset:
    """Append the marker of a producer's transaction; the log's end behind it."""
    leader_epoch = LeaderEpoch(max(EPOCH, log.leader_epoch))
    log.begin_epoch(leader_epoch)
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    return log.append_marker(
        producer_id,
        epoch,
        EndTransactionMarker(kind, coordinator_epoch),
        transaction_version=transaction_version,
        leader_epoch=leader_epoch,
        now_ms=NOW_MS,
    )


def said_by_batches(log: PartitionLog) -> tuple[dict[int, int], list[AbortedEntry]]:
    """Return open transactions and rows of the transaction indexes, computed from the files."""
    begun: dict[int, int] = {}
    rows = []
    for segment in log.segments:
        data = segment.log_file.pread(segment.size_bytes, 0)
        for place in segment.batch_positions():
            batch = BatchView(data, place.position)
            marker = None
            if batch.is_control:
                marker = end_transaction_at(data, place.position, place.size_bytes)
            if batch.is_transactional and marker is None:
                begun.setdefault(batch.producer_id, batch.base_offset)
            elif marker is not None and batch.producer_id in begun:
                first = begun.pop(batch.producer_id)
                if marker.control_type == 0:
                    stable = min(begun.values(), default=batch.last_offset + 1)
                    rows.append(AbortedEntry(batch.producer_id, first, batch.last_offset, stable))
    return begun, rows
