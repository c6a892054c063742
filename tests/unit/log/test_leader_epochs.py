"""Leader epochs: when they begin, where each one ended, what a crash leaves of them."""

from random import Random

import pytest

from klog_broker.log.errors import LogStorageError, StaleLeaderEpoch
from klog_broker.log.manager.log_manager import LogManager
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.segment.batch_search import find_batch
from klog_broker.log.segment.leader_epochs import LeaderEpochs
from pyspark_klog.errors import InvariantViolation
from pyspark_klog.ids import LeaderEpoch
from tests.support.cluster.helpers import Helpers
from tests.support.log.harness import (
    DATA,
    PARTITION,
    SMALL,
    TOPIC_ID,
    append,
    append_in,
    batch,
    open_log,
    open_manager,
    read_all,
    truncate,
)
from tests.support.runtime.memory_files import MemoryFiles


def epochs_file(files: MemoryFiles, log: PartitionLog) -> bytes | None:
    path = log.path / "leader-epoch-checkpoint"
    return files.read_bytes(path) if files.exists(path) else None


def loaded_log(manager: LogManager) -> PartitionLog:
    log = manager.get(PARTITION)
    assert log is not None
    return log


def test_an_epoch_begins_in_memory_and_is_written_when_the_recovery_point_passes_it() -> None:
    files = MemoryFiles()
    log = open_log(files)
    syncs = files.syncs
    append_in(log, 4)
    assert files.syncs == syncs
    assert epochs_file(files, log) is None
    log.start_flush()
    # The records are synced. The recovery point stays, so that the batch is looked at again.
    assert (log.flushed_offset, log.recovery_point, epochs_file(files, log)) == (1, 0, None)
    log.start_flush(with_indexes=True)
    assert (log.recovery_point, epochs_file(files, log)) == (1, b"0\n1\n4 0\n")
    append_in(log, 4, batch(2))
    log.begin_epoch(LeaderEpoch(6))
    assert (log.leader_epoch, log.latest_epoch) == (6, 6)
    log.flush()
    assert epochs_file(files, log) == b"0\n2\n4 0\n6 3\n"
    writes = files.directory_syncs
    append_in(log, 6)
    log.flush()
    assert files.directory_syncs == writes, "the file is written only for what is new"


def test_a_roll_writes_the_epochs_that_the_recovery_point_passes() -> None:
    files = MemoryFiles()
    log = open_log(files)
    append_in(log, 4)
    log.roll(1)
    assert (log.recovery_point, epochs_file(files, log)) == (1, b"0\n1\n4 0\n")


def test_a_close_writes_an_epoch_without_records() -> None:
    files = MemoryFiles()
    manager = open_manager(files)
    log = manager.create(PARTITION, TOPIC_ID, SMALL)
    append_in(log, 4)
    log.flush()
    log.begin_epoch(LeaderEpoch(5))
    manager.close()
    again = open_manager(files.killed())
    assert (again.is_clean_start, loaded_log(again).leader_epoch) == (True, 5)


def test_an_older_epoch_is_refused_and_one_that_has_not_begun_is_a_bug() -> None:
    log = open_log(MemoryFiles())
    append_in(log, 4)
    log.begin_epoch(LeaderEpoch(4))
    for refused in (
        lambda: log.begin_epoch(LeaderEpoch(3)),
        lambda: log.append_as_leader(batch(), leader_epoch=LeaderEpoch(3), now_ms=1),
    ):
        with pytest.raises(StaleLeaderEpoch, match="leader epoch 4, leader epoch 3 is over"):
            refused()
    with pytest.raises(InvariantViolation, match="5 has not begun"):
        log.append_as_leader(batch(), leader_epoch=LeaderEpoch(5), now_ms=1)
    assert (log.log_end_offset, log.is_offline) == (1, False)


def test_where_an_epoch_ended() -> None:
    log = open_log(MemoryFiles())
    assert log.end_offset_for_epoch(0) == (-1, -1)
    for epoch, count in ((2, 3), (5, 4), (9, 1)):
        append_in(log, epoch, batch(count))
    assert log.end_offset_for_epoch(2) == (2, 3)
    assert log.end_offset_for_epoch(4) == (2, 3)
    assert log.end_offset_for_epoch(5) == (5, 7)
    assert log.end_offset_for_epoch(9) == (9, 8)
    assert log.end_offset_for_epoch(10) == (-1, -1)
    assert log.end_offset_for_epoch(1) == (1, 0)
    assert log.end_offset_for_epoch(-1) == (-1, -1)


def test_deleted_records_take_their_epochs_along() -> None:
    log = open_log(MemoryFiles())
    for epoch in (0, 1, 2):
        append_in(log, epoch, batch(10))
    log.delete_records_before(15)
    assert log.end_offset_for_epoch(1) == (1, 20)
    assert log.end_offset_for_epoch(0) == (0, 15)
    earliest = log.offset_for_timestamp(-2)
    assert earliest == (-1, 15, 1)


def test_loading_says_whether_the_stop_was_unclean_and_raises_no_epoch() -> None:
    files = MemoryFiles()
    manager = open_manager(files)
    append(manager.create(PARTITION, TOPIC_ID, SMALL))
    manager.close()
    files = files.killed()
    manager = open_manager(files)
    log = loaded_log(manager)
    assert (log.leader_epoch, log.was_unclean, manager.is_clean_start) == (0, False, True)
    files = files.killed()
    syncs = files.directory_syncs
    manager = open_manager(files)
    log = loaded_log(manager)
    assert (log.leader_epoch, log.was_unclean, manager.is_clean_start) == (0, True, False)
    # The marker's and the log's names, and its own parent's: no file is written for the epoch.
    assert files.directory_syncs - syncs == 3


def test_a_log_that_never_had_an_epoch_has_none() -> None:
    files = MemoryFiles()
    open_log(files)
    assert open_log(files.killed()).leader_epoch == -1


def test_epochs_behind_the_recovery_point_are_found_in_the_batches() -> None:
    files = MemoryFiles()
    log = open_log(files)
    append_in(log, 2, batch(3))
    append_in(log, 5, batch(3))
    assert epochs_file(files, log) is None
    log = open_log(files.killed())
    assert (log.leader_epoch, log.latest_epoch) == (5, 5)
    assert log.end_offset_for_epoch(2) == (2, 3)
    # The file still lacks them, so the next start must look at them, too.
    assert (log.log_end_offset, log.flushed_offset, log.recovery_point) == (6, 6, 0)
    log.flush()
    assert (log.recovery_point, log.end_offset_for_epoch(2)) == (6, (2, 3))


def test_the_batches_count_where_the_file_says_otherwise_of_what_is_recovered() -> None:
    """A file from before the log was cut and went on in an older epoch than it names."""
    files = MemoryFiles()
    log = open_log(files)
    append_in(log, 2, batch(3))
    log.flush()
    log.log_directory.write_checkpoint("recovery-point-offset-checkpoint", {PARTITION: 3})
    append_in(log, 4, batch(3))
    files.write_atomically(log.path / "leader-epoch-checkpoint", b"0\n2\n2 0\n9 5\n")
    log = open_log(files.killed())
    assert (log.latest_epoch, log.leader_epoch) == (4, 9)
    assert log.end_offset_for_epoch(2) == (2, 3)
    assert log.end_offset_for_epoch(9) == (-1, -1)


@pytest.mark.parametrize("damage", [b"", b"0\n9\n", b"0\n2\n0 10\n1 5\n"])
def test_a_damaged_file_is_rebuilt_from_the_log(damage: bytes) -> None:
    files = MemoryFiles()
    manager = open_manager(files)
    log = manager.create(PARTITION, TOPIC_ID, SMALL)
    for epoch in (3, 3, 8):
        append_in(log, epoch, batch(2))
    manager.close()
    files = files.killed()
    files.write_atomically(log.path / "leader-epoch-checkpoint", damage)
    log = open_log(files)
    assert log.end_offset_for_epoch(3) == (3, 4)
    assert epochs_file(files, log) == b"0\n2\n3 0\n8 4\n"


def test_a_damaged_file_is_rebuilt_from_all_of_the_log_after_a_crash() -> None:
    files = MemoryFiles()
    log = open_log(files)
    for epoch in (0, 3):
        for _ in range(8):
            append_in(log, epoch)
    log.flush()
    log.log_directory.write_checkpoint("recovery-point-offset-checkpoint", {PARTITION: 12})
    files.write_atomically(log.path / "leader-epoch-checkpoint", b"")
    files = files.killed()
    log = open_log(files)
    assert epochs_file(files, log) == b"0\n2\n0 0\n3 8\n"
    assert log.leader_epoch == 3


def test_an_epoch_without_records_left_is_reported_until_a_newer_one_is_written() -> None:
    files = MemoryFiles()
    log = open_log(files)
    for _ in range(10):
        append(log)
    log.begin_epoch(LeaderEpoch(7))
    log.flush()
    # A reader has seen a record of epoch 7 at offset 10; now the log is cut before it.
    segment = log.segments[-1]
    place = find_batch(segment, 5)
    assert place is not None
    segment.log_file.pwrite(b"\xff" * 20, place.position)
    for seed in range(3):
        # However often it dies before somebody leads it.
        files = files.crash(Random(seed))
        log = open_log(files)
        assert (log.log_end_offset, log.latest_epoch, log.leader_epoch) == (5, 0, 7)
        with pytest.raises(StaleLeaderEpoch):
            log.begin_epoch(LeaderEpoch(6))
    append_in(log, 8)
    log.flush()
    assert epochs_file(files, log) == b"0\n2\n0 0\n8 5\n"
    assert log.end_offset_for_epoch(7) == (0, 5)


def test_entries_that_contradict_a_new_one_go() -> None:
    files = MemoryFiles()
    files.make_dirs(DATA)
    epochs = LeaderEpochs(files, DATA)
    assert epochs.load()
    assert epochs.add_epoch(1, 0)
    assert epochs.add_epoch(4, 10)
    assert not epochs.add_epoch(4, 12)
    assert epochs.add_epoch(6, 10)
    assert epochs.entries == ((1, 0), (6, 10))
    assert epochs.add_epoch(3, 20)
    assert epochs.entries == ((1, 0), (3, 20))
    epochs.write()
    other = LeaderEpochs(files, DATA)
    assert other.load()
    assert other.entries == epochs.entries
    assert other.truncate_from_end(20)
    assert not other.truncate_from_end(20)
    assert other.entries == ((1, 0),)
    assert other.epoch_of(100) == 1


@pytest.mark.parametrize("offset", [3, 4, 1000])
def test_a_truncation_cuts_the_epochs_behind_the_end_too(offset: int) -> None:
    """KAFKA-10706: a follower that noted an epoch without a record would go on naming it."""
    log = open_log(MemoryFiles())
    append_in(log, 2, batch(3))
    log.begin_epoch(LeaderEpoch(5))
    truncate(log, offset)
    assert (log.latest_epoch, log.leader_epoch) == (2, 5)
    assert log.end_offset_for_epoch(2) == (2, 3)
    append_in(log, 6, batch(2))
    truncate(log, 4)
    assert (log.latest_epoch, log.log_end_offset, log.high_watermark) == (6, 4, 4)
    truncate(log, 2)
    assert (log.latest_epoch, log.log_end_offset) == (2, 2)


def test_a_log_that_is_being_cut_refuses_to_be_used_and_syncs_nothing_in_the_loop() -> None:
    files, helpers = MemoryFiles(), Helpers.held()
    log = open_log(files, helpers=helpers)
    for _ in range(10):
        append_in(log, 2)
    log.start_flush()  # which says that ten are synced once they are cut
    outcomes: list[BaseException | None] = []
    syncs = files.syncs
    log.truncate_async(4, outcomes.append)
    assert (log.log_end_offset, log.high_watermark, files.syncs) == (4, 4, syncs)
    for use in (
        lambda: append_in(log, 2),
        lambda: log.read(0, 100),
        lambda: log.begin_epoch(LeaderEpoch(9)),
        lambda: log.apply_retention(0),
    ):
        with pytest.raises(LogStorageError, match="is being cut"):
            use()
    assert not log.is_offline
    helpers.run_all()
    assert outcomes == [None]
    assert (log.flushed_offset, log.log_end_offset) == (0, 4)
    assert files.read_bytes(DATA / "recovery-point-offset-checkpoint") == b"0\n1\ntopic 0 0\n"
    append_in(log, 3)
    assert log.end_offset_for_epoch(2) == (2, 4)
    assert [record.offset for record in read_all(log)] == list(range(5))


def test_what_follows_a_cut_is_looked_at_after_a_crash() -> None:
    """The recovery point lay behind the cut, and a crash must not trust the data there now."""
    files = MemoryFiles()
    manager = open_manager(files)
    log = manager.create(PARTITION, TOPIC_ID, SMALL)
    for _ in range(10):
        append_in(log, 2)
    log.flush()
    manager.sync_recovery_points()
    truncate(log, 4)
    for _ in range(6):
        append_in(log, 3)
    place = find_batch(log.segments[-1], 7)
    assert place is not None
    log.segments[-1].log_file.pwrite(b"\xff" * 20, place.position)
    log = open_log(files.killed())
    assert (log.log_end_offset, log.end_offset_for_epoch(2)) == (7, (2, 4))


def test_epochs_are_known_of_deleted_records_that_a_kill_brings_back() -> None:
    files = MemoryFiles()
    manager = open_manager(files)
    log = manager.create(PARTITION, TOPIC_ID, SMALL)
    for epoch in range(4):
        append_in(log, epoch, batch(5))
        log.roll(1)
    log.delete_records_before(12)
    # The file has the epochs from the new start on; the start itself is in no checkpoint yet.
    log.flush()
    manager.sync_recovery_points()
    again = open_log(files.killed())
    assert again.log_start_offset == 0
    assert [again.end_offset_for_epoch(epoch) for epoch in range(4)] == [
        (epoch, 5 * epoch + 5) for epoch in range(4)
    ]
    again.flush()
    assert again.end_offset_for_epoch(1) == open_log(files.killed()).end_offset_for_epoch(1)


def test_two_epochs_of_the_file_may_begin_at_one_offset() -> None:
    files = MemoryFiles()
    files.make_dirs(DATA)
    path = DATA / "leader-epoch-checkpoint"
    files.open(path, create=True).pwrite(b"0\n3\n1 0\n4 7\n5 7\n", 0)
    epochs = LeaderEpochs(files, DATA)
    assert epochs.load()
    assert epochs.entries == ((1, 0), (4, 7), (5, 7))


@pytest.mark.parametrize(("start", "epoch"), [(4, 1), (5, 2), (6, 2)])
def test_a_log_that_starts_where_an_epoch_begins_keeps_that_epoch(start: int, epoch: int) -> None:
    files = MemoryFiles()
    files.make_dirs(DATA)
    epochs = LeaderEpochs(files, DATA)
    epochs.add_epoch(1, 0)
    epochs.add_epoch(2, 5)
    assert epochs.truncate_from_start(start)
    assert epochs.entries[0] == (epoch, start)
    assert epochs.epoch_of(5) == (2 if start <= 5 else -1)
