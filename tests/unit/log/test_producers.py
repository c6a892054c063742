"""Idempotence: the window of five batches, epochs, gaps, wrap, restarts, expiry."""

from dataclasses import replace
from pathlib import Path

import pytest

from klog_broker.log.errors import InvalidProducerEpoch, OutOfOrderSequence
from klog_broker.log.log_config import LogConfig
from klog_broker.log.manager.housekeeping import LogManagerSettings
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.producers.producer_state import MAX_SEQUENCE, WINDOW_BATCHES
from klog_broker.log.read.read_results import AppendInfo
from klog_broker.log.segment.batch_search import find_batch
from klog_broker.log.validation.append_rules import AppendOrigin
from pyspark_klog.records.record import TimestampType
from pyspark_klog.storage.names import Suffix
from pyspark_klog.storage.producer_snapshot import decode_producer_snapshot
from tests.support.log.harness import (
    EPOCH,
    PARTITION,
    SMALL,
    TOPIC_ID,
    append,
    batch,
    open_log,
    open_manager,
    read_all,
)
from tests.support.runtime.manual_clock import ManualClock
from tests.support.runtime.memory_files import MemoryFiles

PRODUCER = 7


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def log(files: MemoryFiles) -> PartitionLog:
    return open_log(files)


def send(log: PartitionLog, sequence: int, count: int = 1, epoch: int = 0) -> AppendInfo:
    info: AppendInfo = append(
        log,
        batch(count, producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence),
    )
    return info


# --- the window ----------------------------------------------------------------------------------
def test_a_producer_without_state_may_begin_anywhere(log: PartitionLog) -> None:
    assert send(log, 42).first_offset == 0
    assert send(log, 43).first_offset == 1


def test_each_of_the_last_five_batches_is_answered_again(log: PartitionLog) -> None:
    first = [send(log, 10 * number, 10) for number in range(7)]
    for number in range(7 - WINDOW_BATCHES, 7):
        again = send(log, 10 * number, 10)
        assert again.is_duplicate
        assert again.size_bytes == 0
        assert again[:3] == first[number][:3]
    assert log.log_end_offset == 70
    # Older ones are not known any more; nor are batches that begin or end elsewhere.
    for sequence, count in ((0, 10), (10, 10), (60, 9), (61, 9)):
        with pytest.raises(OutOfOrderSequence):
            send(log, sequence, count)
    assert send(log, 70).first_offset == 70


def test_a_gap_is_refused_and_changes_nothing(log: PartitionLog) -> None:
    send(log, 0, 5)
    with pytest.raises(OutOfOrderSequence, match="sequences 6 to 6 after 4, expected 5"):
        send(log, 6)
    assert send(log, 5).first_offset == 5
    assert len(read_all(log)) == 6


def test_a_new_epoch_begins_at_zero_and_forgets_the_old_window(log: PartitionLog) -> None:
    send(log, 0, 5)
    with pytest.raises(OutOfOrderSequence, match="first batch of epoch 1 has sequence 5"):
        send(log, 5, epoch=1)
    assert send(log, 0, epoch=1).first_offset == 5
    with pytest.raises(InvalidProducerEpoch, match="has epoch 0, the log has seen epoch 1"):
        send(log, 0, 5, epoch=0)
    with pytest.raises(InvalidProducerEpoch):
        send(log, 5, epoch=0)
    assert send(log, 0, epoch=1).is_duplicate


def test_sequences_wrap(log: PartitionLog) -> None:
    send(log, MAX_SEQUENCE - 2, 2)
    across = send(log, MAX_SEQUENCE, 3)  # 2^31 - 1, 0, 1
    assert send(log, 2).first_offset == 5
    assert send(log, MAX_SEQUENCE, 3)[:3] == across[:3]
    with pytest.raises(OutOfOrderSequence):
        send(log, 0, 1)
    whole = send(log, 3, 1)
    assert whole.first_offset == 6


def test_a_batch_that_ends_at_the_last_sequence_is_followed_by_zero(log: PartitionLog) -> None:
    send(log, MAX_SEQUENCE - 1, 2)
    with pytest.raises(OutOfOrderSequence, match="expected 0"):
        send(log, 1)
    assert send(log, 0).first_offset == 2


def test_producers_do_not_know_each_other(log: PartitionLog) -> None:
    for producer in (1, 2, 3):
        append(log, batch(2, producer_id=producer, base_sequence=0))
    assert append(log, batch(2, producer_id=2, base_sequence=0)).is_duplicate
    append(log, batch())
    assert log.log_end_offset == 7


def test_a_coordinators_records_are_not_held_to_sequences(log: PartitionLog) -> None:
    send(log, 0)
    records = batch(producer_id=PRODUCER, base_sequence=9)
    info = log.append_as_leader(
        records, leader_epoch=EPOCH, now_ms=1, origin=AppendOrigin.COORDINATOR
    )
    assert info.first_offset == 1


def test_the_duplicate_of_an_append_with_log_append_time_has_the_first_time(
    log: PartitionLog,
) -> None:
    log.update_config(
        LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME, segment_bytes=1 << 20)
    )
    records = batch(producer_id=PRODUCER, base_sequence=0)
    first = append(log, records, now_ms=111)
    again = append(log, records, now_ms=222)
    assert first.log_append_time_ms == again.log_append_time_ms == 111
    assert again.is_duplicate


# --- restarts ------------------------------------------------------------------------------------
@pytest.mark.parametrize("ending", ["closed", "killed"])
def test_the_trap_five_in_flight_over_small_segments_and_a_restart(ending: str) -> None:
    """A snapshot holds one batch of each producer; the retries are of all five."""
    files = MemoryFiles()
    manager = open_manager(files)
    log = manager.create(PARTITION, TOPIC_ID, SMALL)
    sent: list[AppendInfo] = []
    # 6 KB batches in segments of 16 KB: the five lie in three segments, with others' in between.
    for number in range(12):
        records = batch(
            60,
            producer_id=PRODUCER,
            base_sequence=60 * number,
            timestamp_ms=60 * number,
        )
        sent.append(append(log, records))
        append(log, batch(3, producer_id=100 + number, base_sequence=0))
    assert len(log.segments) > 5
    if ending == "closed":
        manager.close()
    log = open_log(files.killed())
    for number in range(12 - WINDOW_BATCHES, 12):
        again = append(
            log,
            batch(60, producer_id=PRODUCER, base_sequence=60 * number, timestamp_ms=60 * number),
        )
        assert again.is_duplicate, f"batch {number} was appended twice"
        assert again[:3] == sent[number][:3]
    with pytest.raises(OutOfOrderSequence):
        append(log, batch(60, producer_id=PRODUCER, base_sequence=60 * (11 - WINDOW_BATCHES)))


def test_the_window_is_found_again_across_the_wrap() -> None:
    files = MemoryFiles()
    manager = open_manager(files)
    log = manager.create(PARTITION, TOPIC_ID, SMALL)
    sent = [send(log, MAX_SEQUENCE - 1, 2), send(log, 0, 2), send(log, 2, 2)]
    manager.close()
    log = open_log(files.killed())
    assert [send(log, s, 2)[:2] for s in (MAX_SEQUENCE - 1, 0, 2)] == [info[:2] for info in sent]


def test_a_log_append_time_survives_a_restart() -> None:
    files = MemoryFiles()
    config = LogConfig(
        message_timestamp_type=TimestampType.LOG_APPEND_TIME, segment_index_bytes=4096
    )
    manager = open_manager(files, config=config)
    log = manager.create(PARTITION, TOPIC_ID, config)
    records = batch(producer_id=PRODUCER, base_sequence=0)
    append(log, records, now_ms=111)
    manager.close()
    log = open_log(files.killed(), config)
    assert append(log, records, now_ms=222).log_append_time_ms == 111


def test_a_damaged_snapshot_is_replaced_by_reading_the_log() -> None:
    files = MemoryFiles()
    manager = open_manager(files)
    log = manager.create(PARTITION, TOPIC_ID, SMALL)
    for number in range(5):
        send(log, number)
    manager.close()
    files = files.killed()
    path = log.path / "00000000000000000005.snapshot"
    files.open(path).pwrite(b"\xff\xff", 20)
    log = open_log(files)
    assert all(send(log, number).is_duplicate for number in range(5))
    assert send(log, 5).first_offset == 5


# --- snapshots -----------------------------------------------------------------------------------
def snapshots(files: MemoryFiles, path: Path) -> list[int]:
    return [int(name[:20]) for name in files.list_dir(path) if name.endswith(".snapshot")]


def test_damage_in_an_old_segment_keeps_no_log_from_being_loaded() -> None:
    """The windows are filled from headers that nothing else looks at during a start."""
    config = replace(SMALL, segment_bytes=3_000)
    files = MemoryFiles()
    manager = open_manager(files, config=config)
    log = manager.create(PARTITION, TOPIC_ID, config)
    for _ in range(60):
        append(log)
    # The window would go on before these three.
    for number in range(3):
        send(log, 1_000 + number)
    segment = log.segments[1]
    place = find_batch(segment, segment.base_offset + 2)
    assert place is not None
    manager.close()
    files.open(segment.path(Suffix.LOG)).pwrite(b"\xff" * 60, place.position)
    loaded = open_log(files.killed(), config)
    assert loaded.log_end_offset == 63
    assert send(loaded, 1_001).is_duplicate
    assert send(loaded, 1_003).first_offset == 63


def test_snapshots_are_taken_on_roll_and_close_and_go_with_their_segments() -> None:
    files = MemoryFiles()
    clock = ManualClock()
    manager = open_manager(files, clock=clock)
    config = LogConfig(
        segment_bytes=1_000,
        segment_index_bytes=400,
        retention_ms=-1,
        retention_bytes=2_500,
        file_delete_delay_ms=0,
    )
    log = manager.create(PARTITION, TOPIC_ID, config)
    for number in range(20):
        send(log, number)
    bases = [segment.base_offset for segment in log.segments]
    assert snapshots(files, log.path) == bases[1:]
    log.apply_retention(clock.now_ms())
    bases = [segment.base_offset for segment in log.segments]
    assert snapshots(files, log.path) == bases
    manager.close()
    assert snapshots(files, log.path) == [*bases, 20]
    last = files.read_bytes(log.path / f"{20:020d}.snapshot")
    (entry,) = decode_producer_snapshot(last)
    assert (entry.producer_id, entry.last_sequence, entry.last_offset) == (PRODUCER, 19, 19)
    # Another close makes a newer one at the end; the one before is of no more use.
    files = files.killed()
    manager = open_manager(files, config=config)
    reopened = manager.get(PARTITION)
    assert reopened is not None
    send(reopened, 20)
    manager.close()
    manager = open_manager(files.killed(), config=config)
    assert snapshots(files, log.path)[-1] == 21


# --- expiry --------------------------------------------------------------------------------------
def test_silent_producers_are_forgotten_by_the_wall_clock_not_by_their_timestamps() -> None:
    clock = ManualClock()
    settings = LogManagerSettings(
        producer_id_expiration_ms=1_000, producer_id_expiration_check_interval_ms=100
    )
    manager = open_manager(MemoryFiles(), clock=clock, settings=settings)
    log = manager.create(PARTITION, TOPIC_ID, SMALL)
    append(log, batch(producer_id=1, base_sequence=0, timestamp_ms=1), clock.now_ms())
    clock.advance(600)
    append(log, batch(producer_id=2, base_sequence=0, timestamp_ms=1), clock.now_ms())
    manager.run_due()
    assert {producer.producer_id for producer in log.producers} == {1, 2}
    clock.advance(500)
    manager.run_due()
    assert {producer.producer_id for producer in log.producers} == {2}
    # For a producer without state any sequence is accepted.
    assert append(log, batch(producer_id=1, base_sequence=55), clock.now_ms()).first_offset == 2
