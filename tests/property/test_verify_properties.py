"""`klog verify` on logs that klog wrote: sound logs have no faults; every damaged byte is found."""

import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klog_broker.inspection.directory_checks import verify
from klog_broker.inspection.dump import DumpOptions, dump, files_to_dump
from klog_broker.inspection.lines import Finding, Level
from klog_broker.inspection.report import Report
from klog_broker.log.log_config import LogConfig
from klog_broker.runtime.disk.files import RealFiles
from pyspark_klog.records.compression import Codec
from pyspark_klog.storage.names import Suffix
from pyspark_klog.storage.partition_files import IndexSearch, PartitionFiles
from pyspark_klog.storage.segment_walk import offset_at_time, walk
from tests.support.log.harness import PARTITION, TOPIC_ID, append_in, batch, open_manager

FOLDER = "topic-0"
EVERYTHING = DumpOptions(print_data_log=True)


def written(seed: int, *, is_closed: bool = True) -> Path:
    """The data directory of a log with several segments, producers, codecs and epochs."""
    rng = random.Random(seed)
    directory = Path(tempfile.mkdtemp(prefix="klog-verify-"))
    config = LogConfig(
        segment_bytes=rng.choice([2_000, 6_000]),
        segment_index_bytes=1_024,
        index_interval_bytes=300,
    )
    manager = open_manager(RealFiles(), config=config, directory=directory)
    log = manager.create(PARTITION, TOPIC_ID, config)
    sequences = {1: 0, 2: 0}
    epoch = 0
    for number in range(rng.randrange(5, 60)):
        count = rng.choice([1, 1, 3, 8])
        producer_id = rng.choice([-1, -1, 1, 2])
        data = batch(
            count,
            value=rng.randbytes(rng.randrange(1, 200)),
            codec=rng.choice(list(Codec)),
            timestamp_ms=1_000 + number * 10 + rng.randrange(-300, 300),
            producer_id=producer_id,
            base_sequence=sequences.get(producer_id, -1),
        )
        if producer_id > 0:
            sequences[producer_id] += count
        if rng.randrange(15) == 0:
            epoch += 1
        append_in(log, epoch, data, now_ms=2_000 + number)
    if is_closed:
        manager.close()
    return directory


def findings_of(path: Path) -> tuple[Report, list[Finding]]:
    found: list[Finding] = []
    report = Report(found.append)
    verify(path, report)
    return report, found


@contextmanager
def directory_of(seed: int, *, is_closed: bool = True) -> Iterator[Path]:
    directory = written(seed, is_closed=is_closed)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_what_klog_wrote_is_sound(seed: int) -> None:
    with directory_of(seed) as directory:
        report, found = findings_of(directory)
        assert (report.is_sound, [each for each in found if each.level is not Level.NOTE]) == (
            True,
            [],
        )
        assert report.records > 0
        lines = list(dump(files_to_dump([directory / FOLDER]), EVERYTHING))
        assert not [what for _, what in lines if isinstance(what, Finding)]
        dumped = sum(not isinstance(what, Finding) and what.kind == "record" for _, what in lines)
        assert dumped == report.records


@given(seed=st.integers(0, 2**32))
@settings(max_examples=8, deadline=None)
def test_a_log_that_is_still_open_is_sound(seed: int) -> None:
    with directory_of(seed, is_closed=False) as directory:
        report, _ = findings_of(directory)
        assert report.is_sound


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".snapshot"])
@given(seed=st.integers(0, 2**32), data=st.data())
@settings(max_examples=8, deadline=None)
def test_damage_to_one_byte_is_found_or_harmless(
    suffix: str, seed: int, data: st.DataObject
) -> None:
    with directory_of(seed) as directory:
        files = [
            path
            for path in sorted((directory / FOLDER).iterdir())
            if path.suffix == suffix and path.stat().st_size
        ]
        if not files:
            return
        answers = answers_of(directory / FOLDER)
        for _ in range(25):
            path = data.draw(st.sampled_from(files))
            whole = path.read_bytes()
            place = data.draw(st.integers(0, len(whole) - 1))
            change = data.draw(st.integers(1, 255))
            damaged = bytearray(whole)
            damaged[place] ^= change
            path.write_bytes(damaged)
            _, found = findings_of(directory)
            if not found:
                assert suffix in (".index", ".timeindex"), f"{path.name} byte {place} ^ {change}"
                assert answers_of(directory / FOLDER) == answers
            path.write_bytes(whole)


def answers_of(folder: Path) -> list[object]:
    """Return look-ups' results from the indexes, and whether the positions lead to the offsets."""
    files = PartitionFiles(folder)
    listing = files.listing()
    answers: list[object] = []
    for base in listing.bases:
        index = files.open(base, Suffix.OFFSET_INDEX)
        with files.open(base) as log, index:
            places = {}
            for rows in walk(log, 0):
                for position, _, _, _, first, last, *_ in rows.tolist():
                    places[position] = first
                    row = IndexSearch(index, base).lookup(last)
                    answers.append(row.position in places and places[row.position] <= last)
    end = listing.bases[-1] + 1_000
    times = range(600, 2_000, 20)
    return answers + [offset_at_time(files, listing, each, 0, end) for each in times]


@given(seed=st.integers(0, 2**32), data=st.data())
@settings(max_examples=20, deadline=None)
def test_no_bytes_crash_or_hang_either_command(seed: int, data: st.DataObject) -> None:
    with directory_of(seed) as directory:
        paths = [path for path in sorted(directory.rglob("*")) if path.is_file()]
        for _ in range(data.draw(st.integers(1, 6))):
            path = data.draw(st.sampled_from(paths))
            path.write_bytes(damaged_anyhow(path.read_bytes(), data))
        report, _ = findings_of(directory)
        assert report.segments >= 1
        lines = list(dump(files_to_dump([directory, directory / FOLDER]), EVERYTHING))
        assert lines


def damaged_anyhow(data: bytes, choice: st.DataObject) -> bytes:
    """Bytes changed, cut, doubled, made zeros or nonsense."""
    rng = choice.draw(st.randoms(use_true_random=False))
    changed = bytearray(data)
    kind = rng.randrange(6)
    at = rng.randrange(len(changed) + 1)
    if kind == 0:
        return rng.randbytes(rng.choice([0, 1, 7, 17, 61, 300]))
    if kind == 1:
        return bytes(changed[:at])
    if kind == 2:
        changed[at:at] = changed[at : at + rng.randrange(200)]
    elif kind == 3:
        changed[at : at + 64] = bytes(len(changed[at : at + 64]))
    elif kind == 4:
        changed[at : at + 8] = rng.choice([b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7)])
    else:
        for _ in range(8):
            if changed:
                changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)
