"""Transactional appends to a log, for tests: verified batches, and markers."""

from klog_broker.log.answers import AppendInfo
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.verification import VerificationGuard
from pyspark_klog.ids import LeaderEpoch
from pyspark_klog.records.control import ControlType, EndTransactionMarker
from tests.support.log_harness import EPOCH, batch

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


def end(
    log: PartitionLog,
    producer_id: int,
    *,
    commit: bool,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> AppendInfo:
    """Append the marker of a producer's transaction."""
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
