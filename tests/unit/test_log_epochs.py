"""Leader epochs: noted before their first record, and where each one ended."""

import pytest

from klog_broker.log.leader_epochs import LeaderEpochs
from pyspark_klog.ids import LeaderEpoch
from tests.support.log_harness import (
    DATA,
    PARTITION,
    SMALL,
    TOPIC_ID,
    append,
    batch,
    open_log,
    open_manager,
)
from tests.support.memory_files import MemoryFiles


def test_an_epoch_is_durable_before_its_first_record() -> None:
    files = MemoryFiles()
    log = open_log(files)
    log.append_as_leader(batch(), leader_epoch=LeaderEpoch(4), now_ms=1)
    path = log.path / "leader-epoch-checkpoint"
    assert files.read_bytes(path) == b"0\n1\n4 0\n"
    log.append_as_leader(batch(2), leader_epoch=LeaderEpoch(4), now_ms=1)
    log.become_leader(LeaderEpoch(6))
    log.become_leader(LeaderEpoch(5))
    assert files.read_bytes(path) == b"0\n2\n4 0\n6 3\n"
    assert log.leader_epoch == 6


def test_where_an_epoch_ended() -> None:
    log = open_log(MemoryFiles())
    assert log.end_offset_for_epoch(0) == (-1, -1)
    for epoch, count in ((2, 3), (5, 4), (9, 1)):
        log.append_as_leader(batch(count), leader_epoch=LeaderEpoch(epoch), now_ms=1)
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
        log.append_as_leader(batch(10), leader_epoch=LeaderEpoch(epoch), now_ms=1)
    log.delete_records_before(15)
    assert log.end_offset_for_epoch(1) == (1, 20)
    assert log.end_offset_for_epoch(0) == (0, 15)
    earliest = log.offset_for_timestamp(-2)
    assert earliest == (-1, 15, 1)


def test_an_unclean_start_raises_the_epoch_durably_and_a_clean_one_does_not() -> None:
    files = MemoryFiles()
    manager = open_manager(files)
    append(manager.create(PARTITION, TOPIC_ID, SMALL))
    manager.close()
    files = files.killed()
    manager = open_manager(files)
    log = manager.get(PARTITION)
    assert log is not None
    assert (log.leader_epoch, manager.is_clean_start) == (0, True)
    files = files.killed()
    manager = open_manager(files)
    log = manager.get(PARTITION)
    assert log is not None
    assert (log.leader_epoch, manager.is_clean_start) == (1, False)
    assert files.read_bytes(log.path / "leader-epoch-checkpoint") == b"0\n2\n0 0\n1 1\n"
    # What the metadata says may be behind the log: the log's own epoch counts.
    info = log.append_as_leader(batch(), leader_epoch=LeaderEpoch(0), now_ms=1)
    region = log.read(info.first_offset, 1_000).region
    assert region is not None
    assert region.file.pread(16, region.position)[12:16] == b"\x00\x00\x00\x01"


def test_a_log_that_never_had_an_epoch_gets_none() -> None:
    files = MemoryFiles()
    open_log(files)
    assert open_log(files.killed()).leader_epoch == -1


@pytest.mark.parametrize("damage", [b"", b"0\n9\n", b"0\n2\n0 10\n1 5\n"])
def test_a_damaged_file_is_made_anew_from_the_log(damage: bytes) -> None:
    files = MemoryFiles()
    manager = open_manager(files)
    log = manager.create(PARTITION, TOPIC_ID, SMALL)
    for epoch in (3, 3, 8):
        log.append_as_leader(batch(2), leader_epoch=LeaderEpoch(epoch), now_ms=1)
    manager.close()
    files = files.killed()
    files.write_atomically(log.path / "leader-epoch-checkpoint", damage)
    log = open_log(files)
    assert log.end_offset_for_epoch(3) == (3, 4)
    assert files.read_bytes(log.path / "leader-epoch-checkpoint") == b"0\n2\n3 0\n8 4\n"


def test_a_damaged_file_is_made_anew_from_all_of_the_log_after_a_crash() -> None:
    files = MemoryFiles()
    log = open_log(files)
    for epoch in (0, 3):
        for _ in range(8):
            log.append_as_leader(batch(), leader_epoch=LeaderEpoch(epoch), now_ms=1)
    log.flush()
    log.log_directory.write_checkpoint("recovery-point-offset-checkpoint", {PARTITION: 12})
    files.write_atomically(log.path / "leader-epoch-checkpoint", b"")
    files = files.killed()
    open_log(files)
    assert files.read_bytes(log.path / "leader-epoch-checkpoint") == b"0\n3\n0 0\n3 8\n4 16\n"


def test_an_epoch_of_which_all_is_lost_is_not_used_again() -> None:
    files = MemoryFiles()
    log = open_log(files)
    for _ in range(10):
        append(log)
    files = files.killed()
    log = open_log(files)
    assert log.leader_epoch == 1
    append(log)
    # A reader has seen the record of epoch 1 at offset 10; now the log is cut before it.
    segment = log.segments[-1]
    place = segment.find(5)
    assert place is not None
    segment.log_file.pwrite(b"\xff" * 20, place.position)
    files = files.killed()
    log = open_log(files)
    assert log.log_end_offset == 5
    assert log.end_offset_for_epoch(1) == (0, 5)
    assert files.read_bytes(log.path / "leader-epoch-checkpoint") == b"0\n2\n0 0\n2 5\n"


def test_entries_that_contradict_a_new_one_go() -> None:
    files = MemoryFiles()
    files.make_dirs(DATA)
    epochs = LeaderEpochs(files, DATA)
    assert epochs.load()
    assert epochs.note(1, 0)
    assert epochs.note(4, 10)
    assert not epochs.note(4, 12)
    assert epochs.note(6, 10)
    assert epochs.entries == ((1, 0), (6, 10))
    assert epochs.note(3, 20)
    assert epochs.entries == ((1, 0), (3, 20))
    epochs.write()
    other = LeaderEpochs(files, DATA)
    assert other.load()
    assert other.entries == epochs.entries
    assert other.truncate_from_end(20)
    assert not other.truncate_from_end(20)
    assert other.entries == ((1, 0),)
    assert other.epoch_of(100) == 1
