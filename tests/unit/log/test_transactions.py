"""Transactions in a log: allowed appends, markers, visible records, the index on the disk."""

import pytest

from klog_broker.log.errors import (
    ColdRead,
    CoordinatorFenced,
    DamagedLog,
    InvalidProducerEpoch,
    InvalidTransactionState,
    LogStorageError,
    OutOfOrderSequence,
    StaleLeaderEpoch,
)
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.validation.append_rules import AppendOrigin
from klog_broker.log.validation.plain_checks import PlainChecks
from pyspark_klog.ids import LeaderEpoch
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.control import ControlType, EndTransactionMarker, end_transaction_batch
from pyspark_klog.records.errors import InvalidRecords
from pyspark_klog.storage.transaction_index import AbortedEntry, decode_transaction_index
from tests.support.log.harness import (
    EPOCH,
    PARTITION,
    SMALL,
    TOPIC_ID,
    append,
    batch,
    open_log,
    open_manager,
    truncate,
)
from tests.support.log.transactional_log import NOW_MS, append_end_marker, verified, write
from tests.support.runtime.memory_files import MemoryFiles

ONE, TWO, THREE = 1, 2, 3


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def log(files: MemoryFiles) -> PartitionLog:
    return open_log(files)


def index_of(log: PartitionLog, number: int = 0) -> list[AbortedEntry]:
    """The rows of a segment's transaction index, from its file."""
    files = log.log_directory.files
    path = log.path / f"{log.segments[number].base_offset:020d}.txnindex"
    return decode_transaction_index(files.read_bytes(path)) if files.exists(path) else []


# --- begins of transactions ----------------------------------------------------------------------
def send_unverified(log: PartitionLog, sequence: int = 0, epoch: int = 0, **more: object) -> None:
    records = batch(
        producer_id=ONE, producer_epoch=epoch, base_sequence=sequence, is_transactional=True
    )
    log.begin_epoch(EPOCH)
    log.append_as_leader(records, leader_epoch=EPOCH, now_ms=1, **more)  # type: ignore[arg-type]


def test_a_transaction_is_begun_with_the_guard_of_its_verification(log: PartitionLog) -> None:
    with pytest.raises(InvalidTransactionState, match="part of an ongoing transaction"):
        send_unverified(log)
    guard = verified(log, ONE)
    send_unverified(log, guard=guard)
    # Within the transaction no further verification is needed.
    assert verified(log, ONE) is None
    send_unverified(log, 1)
    assert log.log_end_offset == 2


def test_a_guard_is_of_one_transaction_and_one_producer(log: PartitionLog) -> None:
    guard = verified(log, ONE)
    assert verified(log, ONE) is guard
    append_end_marker(log, ONE, commit=False)
    with pytest.raises(InvalidTransactionState):
        send_unverified(log, guard=guard)
    with pytest.raises(InvalidTransactionState):
        send_unverified(log, guard=verified(log, TWO))
    send_unverified(log, guard=verified(log, ONE))


def test_a_transaction_of_an_older_epoch_covers_nothing(log: PartitionLog) -> None:
    write(log, ONE, 0)
    with pytest.raises(InvalidTransactionState):
        send_unverified(log, 0, epoch=1)
    assert verified(log, ONE, epoch=1) is not None


def test_a_retry_of_what_is_there_needs_no_guard(log: PartitionLog) -> None:
    first = write(log, ONE, 0)
    append_end_marker(log, ONE, commit=True)
    again = append(log, batch(producer_id=ONE, base_sequence=0, is_transactional=True))
    assert (again.is_duplicate, again.first_offset) == (True, first.first_offset)


def test_the_lowest_sequence_that_was_asked_about_comes_first(log: PartitionLog) -> None:
    """The first batch's verification may fail while the next batch's succeeds (KIP-890)."""
    verified(log, ONE, sequence=5)
    guard = verified(log, ONE, sequence=7)
    with pytest.raises(OutOfOrderSequence, match="before the batch with sequence 5"):
        send_unverified(log, 7, guard=guard)
    send_unverified(log, 5, guard=guard)
    # A newer epoch has a lowest verified sequence of its own.
    verified(log, TWO, epoch=0, sequence=3)
    assert verified(log, TWO, epoch=1, sequence=9) is not None
    with pytest.raises(OutOfOrderSequence, match="sequence 10"):
        write(log, TWO, 10, epoch=1)


def test_with_version_2_the_first_batch_has_sequence_0(log: PartitionLog) -> None:
    with pytest.raises(OutOfOrderSequence, match="first batch has sequence 4, expected 0"):
        write(log, ONE, 4, bumps=True)
    write(log, TWO, 4)


def test_verifications_expire(log: PartitionLog) -> None:
    guard = verified(log, ONE)
    assert log.expire_producers(NOW_MS + 99, 100) == 0
    assert verified(log, ONE) is guard
    log.expire_producers(NOW_MS + 100, 100)
    with pytest.raises(InvalidTransactionState):
        send_unverified(log, guard=guard)


def test_within_a_transaction_all_batches_are_transactional(log: PartitionLog) -> None:
    write(log, ONE, 0)
    with pytest.raises(InvalidTransactionState, match="open since offset 0"):
        write(log, ONE, 1, is_transactional=False)
    append_end_marker(log, ONE, commit=True)
    write(log, ONE, 1, is_transactional=False)


def test_clients_write_no_markers(log: PartitionLog) -> None:
    marker = EndTransactionMarker(ControlType.COMMIT, 0)
    records = end_transaction_batch(marker, producer_id=ONE, producer_epoch=0, timestamp_ms=1)
    with pytest.raises(InvalidRecords, match="not allowed to write control records"):
        append(log, records)


def test_a_coordinators_own_batches_are_not_verified(log: PartitionLog) -> None:
    records = batch(producer_id=ONE, base_sequence=0, is_transactional=True)
    log.begin_epoch(EPOCH)
    for _ in range(2):
        log.append_as_leader(records, leader_epoch=EPOCH, now_ms=1, origin=AppendOrigin.COORDINATOR)
    assert (log.log_end_offset, log.last_stable_offset) == (2, 0)
    plain = batch(producer_id=ONE, base_sequence=0)
    with pytest.raises(InvalidTransactionState):
        log.append_as_leader(plain, leader_epoch=EPOCH, now_ms=1, origin=AppendOrigin.COORDINATOR)


# --- markers -------------------------------------------------------------------------------------
def test_a_marker_is_a_batch_as_kafka_writes_it(log: PartitionLog) -> None:
    write(log, ONE, 0, 3)
    assert append_end_marker(log, ONE, commit=True, coordinator_epoch=7) == 4
    region = log.read(3, 1_000).region
    assert region is not None
    view = BatchView(region.file.pread(region.size, region.position))
    view.check_crc()
    assert (view.is_control, view.is_transactional, view.partition_leader_epoch) == (True, True, 0)
    assert (view.producer_id, view.producer_epoch, view.base_sequence) == (ONE, 0, -1)
    assert [record.timestamp_ms for record in view.records()] == [NOW_MS]
    (entry,) = log.producers
    assert (entry.coordinator_epoch, entry.current_transaction_first_offset) == (7, -1)
    assert entry.last_timestamp_ms == NOW_MS


def test_after_a_marker_of_the_same_epoch_sequences_go_on(log: PartitionLog) -> None:
    """Kafka (ProducerStateEntry.update) does so; clients rely on it with transaction version 1."""
    write(log, ONE, 0, 3)
    append_end_marker(log, ONE, commit=True)
    write(log, ONE, 3)
    append_end_marker(log, ONE, commit=True)
    with pytest.raises(OutOfOrderSequence):
        write(log, ONE, 0, 4)


def test_after_a_marker_of_a_newer_epoch_sequences_begin_at_0(log: PartitionLog) -> None:
    write(log, ONE, 0, 3)
    append_end_marker(log, ONE, commit=False, epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        write(log, ONE, 3)
    with pytest.raises(OutOfOrderSequence, match="first of its epoch, expected 0"):
        write(log, ONE, 3, epoch=1)
    write(log, ONE, 0, epoch=1)


@pytest.mark.parametrize(
    ("version", "epoch", "is_taken"),
    [(0, 4, False), (0, 5, True), (0, 6, True), (2, 4, False), (2, 5, False), (2, 6, True)],
)
def test_the_epoch_of_a_marker(log: PartitionLog, version: int, epoch: int, is_taken: bool) -> None:
    """With transaction.version 2 a marker has a greater epoch than its batches, so that a late
    marker ends no other transaction (KIP-890)."""
    write(log, ONE, 0, epoch=5)
    if is_taken:
        append_end_marker(log, ONE, commit=True, epoch=epoch, transaction_version=version)
        assert log.last_stable_offset == 2
    else:
        with pytest.raises(InvalidProducerEpoch, match=f"has epoch {epoch}, the log has seen"):
            append_end_marker(log, ONE, commit=True, epoch=epoch, transaction_version=version)
        assert (log.log_end_offset, log.last_stable_offset) == (1, 0)


def test_a_marker_of_version_2_may_come_again(log: PartitionLog) -> None:
    write(log, ONE, 0)
    for _ in range(2):
        append_end_marker(log, ONE, commit=True, epoch=1, transaction_version=2)
    write(log, ONE, 0, epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        append_end_marker(log, ONE, commit=True, epoch=1, transaction_version=2)
    # There is no greater one.
    write(log, TWO, 0, epoch=32767)
    append_end_marker(log, TWO, commit=True, epoch=32767, transaction_version=2)


def test_an_older_coordinator_is_fenced(log: PartitionLog) -> None:
    write(log, ONE, 0)
    append_end_marker(log, ONE, commit=True, coordinator_epoch=3)
    write(log, ONE, 1)
    with pytest.raises(CoordinatorFenced, match="coordinator epoch 2, the log has seen 3"):
        append_end_marker(log, ONE, commit=True, coordinator_epoch=2)
    append_end_marker(log, ONE, commit=True, coordinator_epoch=3)


def test_markers_of_a_leadership_that_is_over(log: PartitionLog) -> None:
    log.begin_epoch(LeaderEpoch(4))
    with pytest.raises(StaleLeaderEpoch):
        log.append_marker(
            ONE,
            0,
            EndTransactionMarker(ControlType.COMMIT, 0),
            transaction_version=0,
            leader_epoch=LeaderEpoch(3),
            now_ms=1,
        )


def test_a_marker_without_a_transaction_changes_nothing_for_readers(log: PartitionLog) -> None:
    append_end_marker(log, ONE, commit=False)
    assert (log.log_end_offset, log.last_stable_offset) == (1, 1)
    assert index_of(log) == []
    # The marker made the producer known, whose first batch must have sequence 0 now.
    with pytest.raises(OutOfOrderSequence):
        write(log, ONE, 1)


# --- what readers see ----------------------------------------------------------------------------
def test_the_last_stable_offset_stays_at_the_oldest_open_transaction(log: PartitionLog) -> None:
    append(log)
    write(log, ONE, 0)  # 1
    write(log, TWO, 0)  # 2
    append(log)
    assert (log.last_stable_offset, log.high_watermark) == (1, 4)
    append_end_marker(log, TWO, commit=True)  # 4
    assert log.last_stable_offset == 1
    write(log, TWO, 1)  # 5
    append_end_marker(log, ONE, commit=True)  # 6
    assert log.last_stable_offset == 5
    append_end_marker(log, TWO, commit=True)
    assert log.last_stable_offset == 8


def test_a_transaction_is_decided_once_its_marker_is_replicated(log: PartitionLog) -> None:
    log.listener = None
    write(log, ONE, 0)
    write(log, TWO, 0)
    append_end_marker(log, TWO, commit=True)  # 2
    append_end_marker(log, ONE, commit=True)  # 3
    seen = []
    for offset in range(1, 5):
        log.set_high_watermark(offset)
        seen.append(log.last_stable_offset)
    assert seen == [0, 0, 0, 4]


def test_what_was_deleted_holds_nobody_back(log: PartitionLog) -> None:
    for sequence in range(4):
        write(log, ONE, sequence)
    log.delete_records_before(3)
    assert log.last_stable_offset == 3


def test_rows_of_aborted_transactions(log: PartitionLog) -> None:
    write(log, ONE, 0)  # 0
    write(log, TWO, 0)  # 1
    write(log, THREE, 0)  # 2
    append_end_marker(log, TWO, commit=False)  # 3
    append_end_marker(log, THREE, commit=True)  # 4
    append_end_marker(log, ONE, commit=False)  # 5
    rows = [AbortedEntry(TWO, 1, 3, 0), AbortedEntry(ONE, 0, 5, 6)]
    assert index_of(log) == rows
    assert log.aborted_transactions(0, 6) == rows
    assert log.aborted_transactions(0, 1) == rows[1:]
    assert log.aborted_transactions(4, 6) == rows[1:]
    assert log.aborted_transactions(6, 7) == []


def test_an_aborted_transaction_over_segments_has_its_row_where_it_ends(log: PartitionLog) -> None:
    for sequence in range(3):
        write(log, ONE, sequence, value=b"v" * 7_000)
    append_end_marker(log, ONE, commit=False)
    bases = [segment.base_offset for segment in log.segments]
    assert bases == [0, 2]
    assert (index_of(log, 0), index_of(log, 1)) == ([], [AbortedEntry(ONE, 0, 3, 4)])
    assert log.aborted_transactions(0, 1) == index_of(log, 1)
    log.delete_records_before(2)
    log.apply_retention(0)
    assert log.aborted_transactions(2, 3) == index_of(log, 0)


def test_what_an_index_says_is_read_where_it_is_needed(log: PartitionLog) -> None:
    for number in range(300):
        write(log, ONE, number)
        append_end_marker(log, ONE, commit=False)
    assert [each.first_offset for each in log.aborted_transactions(401, 407)] == [
        400,
        402,
        404,
        406,
    ]
    assert len(log.aborted_transactions(0, 600)) == 300


def test_a_cold_index_is_left_to_a_helper(files: MemoryFiles, log: PartitionLog) -> None:
    write(log, ONE, 0)
    append_end_marker(log, ONE, commit=False)
    files.freeze()
    with pytest.raises(ColdRead) as waits:
        log.aborted_transactions(0, 2, may_block=False)
    files.thaw.set()
    waits.value.warm()
    assert len(log.aborted_transactions(0, 2, may_block=False)) == 1


def test_a_damaged_index_is_said(log: PartitionLog) -> None:
    write(log, ONE, 0)
    append_end_marker(log, ONE, commit=False)
    file = log.segments[0].transaction_index.file
    assert file is not None
    file.pwrite(b"\x7f", 0)
    with pytest.raises(DamagedLog, match="version 32512"):
        log.aborted_transactions(0, 2)


# --- the disk ------------------------------------------------------------------------------------
def aborted_life(files: MemoryFiles) -> PartitionLog:
    """Two aborted transactions, one open, in two segments."""
    manager = open_manager(files)
    log = manager.create(PARTITION, TOPIC_ID, SMALL)
    write(log, ONE, 0)
    append_end_marker(log, ONE, commit=False)  # 1
    write(log, TWO, 0, value=b"v" * 9_000)
    write(log, ONE, 1, value=b"v" * 9_000)
    append_end_marker(log, ONE, commit=False)  # 4
    manager.close()
    return log


@pytest.mark.parametrize("damage", ["gone", "torn", "wild", "behind", "version"])
def test_an_index_that_cannot_be_right_is_rebuilt(damage: str) -> None:
    files = MemoryFiles()
    log = aborted_life(files)
    rows = [index_of(log, number) for number in range(2)]
    files = files.killed()
    path = log.path / f"{log.segments[0].base_offset:020d}.txnindex"
    if damage == "gone":
        # A missing index cannot be noticed, as it need not exist; so this is a start after a kill.
        files.remove(path)
        files.remove(log.path.parent / ".kafka_cleanshutdown")
        files.remove(log.path.parent / "recovery-point-offset-checkpoint")
    else:
        file = files.open(path)
        changes = {"torn": (b"x" * 7, 34), "wild": (b"\0" * 34, 34), "behind": (b"\1" * 34, 34)}
        file.pwrite(*changes.get(damage, (b"\x7f", 0)))
    found = open_log(files)
    assert [index_of(found, number) for number in range(2)] == rows
    assert found.aborted_transactions(0, 2) == rows[0]


@pytest.mark.parametrize("ending", ["closed", "killed"])
def test_an_open_transaction_survives(ending: str) -> None:
    files = MemoryFiles()
    manager = open_manager(files, checks=PlainChecks())
    log = manager.create(PARTITION, TOPIC_ID, SMALL)
    write(log, ONE, 0, 3)
    append(log)
    if ending == "closed":
        manager.close()
    log = open_log(files.killed())
    assert (log.last_stable_offset, log.high_watermark) == (0, 4)
    send_unverified(log, 3)
    with pytest.raises(InvalidTransactionState):
        write(log, ONE, 4, is_transactional=False)
    append_end_marker(log, ONE, commit=False)
    assert log.aborted_transactions(0, 5) == [AbortedEntry(ONE, 0, 5, 6)]


@pytest.mark.parametrize("ending", ["killed", "cut"])
def test_an_open_transaction_survives_a_log_start_inside_its_only_batch(ending: str) -> None:
    files = MemoryFiles()
    manager = open_manager(files)
    log = manager.create(PARTITION, TOPIC_ID, SMALL)
    write(log, ONE, 0, 3)
    append(log)
    log.delete_records_before(1)
    if ending == "killed":
        manager.renew_checkpoints(lambda: None)
        log = open_log(files.killed())
    else:
        append(log)
        truncate(log, 4)
    assert (log.log_start_offset, log.last_stable_offset, log.high_watermark) == (1, 1, 4)
    assert write(log, ONE, 0, 3).is_duplicate
    append_end_marker(log, ONE, commit=False)
    assert log.aborted_transactions(1, 5) == [AbortedEntry(ONE, 0, 4, 5)]


def test_truncation_takes_rows_and_transactions_back(log: PartitionLog) -> None:
    write(log, ONE, 0)
    append_end_marker(log, ONE, commit=False)  # 1
    write(log, ONE, 1)
    append_end_marker(log, ONE, commit=False)  # 3
    truncate(log, 3)
    assert index_of(log) == [AbortedEntry(ONE, 0, 1, 2)]
    assert log.last_stable_offset == 2
    append_end_marker(log, ONE, commit=True)
    assert log.last_stable_offset == 4
    assert len(index_of(log)) == 1


@pytest.mark.parametrize("room", [0, 33, 34, 100])
def test_a_full_disk_leaves_no_row_of_a_marker_that_is_not_there(room: int) -> None:
    files = MemoryFiles()
    log = open_log(files)
    write(log, ONE, 0)
    log.flush()
    files.free_bytes = room
    with pytest.raises(LogStorageError):
        append_end_marker(log, ONE, commit=False)
    files.free_bytes = None
    append_end_marker(log, ONE, commit=True)
    append(log)
    assert log.aborted_transactions(0, 9) == []
    log.flush()
    assert index_of(open_log(files.killed())) == []


def test_silence_in_a_transaction_is_not_the_end_of_a_producer(log: PartitionLog) -> None:
    write(log, ONE, 0)
    write(log, TWO, 0, is_transactional=False)
    assert log.expire_producers(NOW_MS + 10**9, 1) == 1
    append_end_marker(log, ONE, commit=True)
    assert log.expire_producers(NOW_MS + 10**9, 1) == 1


def test_a_failed_directory_lists_no_aborted_transactions(log: PartitionLog) -> None:
    """The log may have lost some, and readers would see their records."""
    write(log, ONE, 0)
    append_end_marker(log, ONE, commit=False)
    assert log.aborted_transactions(0, log.log_end_offset)
    log.read_failed(OSError(5, "the disk is gone"))
    with pytest.raises(LogStorageError, match="offline"):
        log.aborted_transactions(log.log_end_offset, log.log_end_offset)
