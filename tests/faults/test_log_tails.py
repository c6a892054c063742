"""Damage that a crash can leave at a log's end: the log is cut at the first invalid batch."""

from dataclasses import replace
from random import Random

import pytest

from pyspark_klog.records.compression import Codec
from pyspark_klog.records.record import Record
from tests.support.log.harness import (
    PARTITION,
    SMALL,
    TOPIC_ID,
    append,
    batch,
    open_log,
    open_manager,
    read_all,
)
from tests.support.runtime.memory_files import MemoryFiles

CONFIG = replace(SMALL, segment_bytes=1_800, index_interval_bytes=300)
BATCHES = 40


def killed_log() -> tuple[MemoryFiles, list[Record], list[tuple[int, int]]]:
    """A disk, the records on it, and the place of each batch of the last segment."""
    files = MemoryFiles()
    log = open_log(files, CONFIG)
    for number in range(BATCHES):
        append(
            log,
            batch(
                1 + number % 4,
                codec=Codec(number % 5),
                timestamp_ms=number * 100,
                producer_id=1 + number % 2,
                base_sequence=sum(1 + n % 4 for n in range(number % 2, number, 2)),
            ),
        )
    last = log.segments[-1]
    places = [(place.position, place.base_offset) for place in last.batch_positions()]
    assert len(log.segments) > 2
    assert len(places) > 3
    return files.killed(), read_all(log), [*places, (last.size_bytes, log.log_end_offset)]


def reopen_and_append(files: MemoryFiles, kept: list[Record]) -> None:
    """Check that the log holds exactly ``kept``, is sound, and takes more appends."""
    manager = open_manager(files, config=CONFIG)
    log = manager.get(PARTITION)
    assert log is not None
    assert read_all(log) == kept
    for segment in log.segments:
        segment.offset_index.view().check(segment.size_bytes)
        segment.time_index.view().check()
        assert segment.log_file.size() == segment.size_bytes
    end_offset = len(kept)
    assert log.log_end_offset == log.high_watermark == end_offset
    for timestamp_ms in range(0, BATCHES * 100, 250):
        expected = next((r.offset for r in kept if r.timestamp_ms >= timestamp_ms), None)
        found = log.offset_for_timestamp(timestamp_ms)
        assert (None if found is None else found.offset) == expected
    assert append(log, batch(2)).first_offset == end_offset
    manager.close()
    log = open_log(files.killed(), CONFIG)
    assert read_all(log)[:end_offset] == kept
    assert log.log_end_offset == end_offset + 2


def last_log_file(files: MemoryFiles) -> str:
    return max(name for name in files.list_dir(PATH) if name.endswith(".log"))


PATH = open_log(MemoryFiles()).path


@pytest.mark.parametrize("seed", range(30))
def test_a_torn_tail(seed: int) -> None:
    random = Random(seed)
    files, records, places = killed_log()
    number = random.randrange(len(places) - 1)
    start, end = places[number][0], places[number + 1][0]
    size = random.choice((start, start + 1, start + 16, start + 60, end - 1))
    files.open(PATH / last_log_file(files)).truncate(size)
    reopen_and_append(files, records[: places[number][1]])


@pytest.mark.parametrize("seed", range(30))
def test_a_zeroed_tail(seed: int) -> None:
    random = Random(seed)
    files, records, places = killed_log()
    file = files.open(PATH / last_log_file(files))
    number = random.randrange(len(places) - 1)
    start, end = places[number][0], places[number + 1][0]
    # Zero more than the batch's last 20 bytes: a batch that ends with zeros would still be whole.
    zero_from = random.randrange(start, end - 20)
    file.pwrite(bytes(file.size() - zero_from + random.choice((0, 5_000))), zero_from)
    reopen_and_append(files, records[: places[number][1]])


@pytest.mark.parametrize("seed", range(30))
def test_a_tail_of_garbage(seed: int) -> None:
    random = Random(seed)
    files, records, places = killed_log()
    file = files.open(PATH / last_log_file(files))
    number = random.randrange(len(places))
    file.truncate(places[number][0])
    kinds = (
        random.randbytes(random.randrange(1, 9_000)),
        # The start of a batch with a very large length.
        (places[number][1]).to_bytes(8, "big") + b"\x7f\xff\xff\xff" + random.randbytes(100),
        # The segment's first batch again: a valid CRC, but an offset that goes back.
        file.pread(places[1][0], 0),
        b"\x00" * 17 + random.randbytes(50),
    )
    file.pwrite(random.choice(kinds), places[number][0])
    reopen_and_append(files, records[: places[number][1]])


@pytest.mark.parametrize("seed", range(30))
def test_a_flipped_byte_cuts_at_its_batch_and_drops_what_follows(seed: int) -> None:
    random = Random(seed)
    files, records, _ = killed_log()
    name = random.choice([n for n in files.list_dir(PATH) if n.endswith(".log")])
    twin, files = files.killed(), files.killed()
    log = open_log(twin, CONFIG)
    segment = next(s for s in log.segments if s.log_file.path.name == name)
    place = random.choice(list(segment.batch_positions()))
    # Hit the bytes that the CRC covers, or the length before it.
    at = place.position + random.choice((*range(8, 12), *range(16, place.size_bytes)))
    file = files.open(PATH / name)
    byte = file.pread(1, at)[0] ^ (1 << random.randrange(8))
    file.pwrite(bytes([byte]), at)
    reopen_and_append(files, records[: place.base_offset])


def test_a_lost_last_segment_file_and_an_empty_one() -> None:
    files, records, places = killed_log()
    files.open(PATH / last_log_file(files)).truncate(0)
    reopen_and_append(files, records[: places[0][1]])
    files, records, places = killed_log()
    files.remove(PATH / last_log_file(files))
    reopen_and_append(files, records[: places[0][1]])


def test_producers_go_on_after_their_tail_was_lost() -> None:
    files = MemoryFiles()
    log = open_log(files, CONFIG)
    for number in range(10):
        append(log, batch(producer_id=1, base_sequence=number))
    files = files.killed()
    file = files.open(PATH / last_log_file(files))
    file.truncate(7 * len(batch()) + 30)
    log = open_log(files, CONFIG)
    assert log.log_end_offset == 7
    # The producer retries in order: present batches are duplicates, lost ones are appended.
    told = [append(log, batch(producer_id=1, base_sequence=n)) for n in range(5, 10)]
    assert [(info.first_offset, info.is_duplicate) for info in told] == [
        (5, True),
        (6, True),
        (7, False),
        (8, False),
        (9, False),
    ]


def test_a_log_directory_without_any_segment_begins_where_it_should() -> None:
    files = MemoryFiles()
    manager = open_manager(files)
    log = manager.create(PARTITION, TOPIC_ID, SMALL)
    files = files.killed()
    for name in files.list_dir(log.path):
        files.remove(log.path / name)
    log = open_log(files)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    assert append(log).first_offset == 0
