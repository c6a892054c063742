"""Damaged files of a data directory: a start opens the log, and loses only damaged records.

The first byte of an input chooses the directory, and whether `klog verify` and `klog dump-log` run,
too. The changes follow, each with a file's number, a place in it and an operation.
"""

from __future__ import annotations

import struct
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from klog_broker.inspection.directory_checks import NothingToVerify, verify
from klog_broker.inspection.dump import DumpOptions, dump, files_to_dump
from klog_broker.inspection.report import Report
from klog_broker.log.errors import DamagedLog
from klog_broker.log.log_config import LogConfig
from klog_broker.log.partition_log import PartitionLog
from pyspark_klog.errors import KlogError
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.record import Record
from tests.fuzz.target import BrokenPromise, Target
from tests.support.log.harness import (
    DATA,
    PARTITION,
    TOPIC_ID,
    append,
    append_in,
    batch,
    open_manager,
    read_all,
)
from tests.support.log.transactional_log import append_end_marker, write
from tests.support.runtime.memory_files import MemoryFiles

CONFIG = LogConfig(segment_bytes=1_500, segment_index_bytes=1_024, index_interval_bytes=200)
_FOLDER = DATA / f"{PARTITION.topic}-{PARTITION.partition}"
_CHANGE = struct.Struct(">BHBB")
_NUMBERS = (b"\0" * 8, b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7), b"9" * 8, b"-1\n\n")
_REFUSE = ("partition.metadata", "meta.properties")
"""Files whose damage makes the start refuse with a message for the operator."""
_NO_END = 1 << 62
_FIXED_BYTES = 24 << 20


@dataclass(frozen=True)
class Directory:
    """The files that a broker has left, and the records of its log."""

    files: MemoryFiles
    paths: list[Path]
    records: list[Record]


@cache
def directories() -> list[Directory]:
    """Directories of brokers that stopped cleanly, or were killed with all or nothing flushed."""
    return [_written(how) for how in range(3)]


def _written(how: int) -> Directory:
    files = MemoryFiles()
    manager = open_manager(files, config=CONFIG)
    log = manager.create(PARTITION, TOPIC_ID, CONFIG)
    for number in range(24):
        made = batch(
            1 + number % 3,
            value=b"v" * 90,
            codec=Codec(number % 5),
            timestamp_ms=1_000 + number,
            producer_id=number % 2,
            base_sequence=sum(1 + n % 3 for n in range(number % 2, number, 2)),
        )
        append_in(log, number // 9, made)
        if number in (5, 11, 17):
            write(log, 7, 0, epoch=number)
            append_end_marker(log, 7, epoch=number, commit=number == 11)
    write(log, 8, 0)
    if how == 1:
        manager.sync_recovery_points()
        log.flush()
    records = read_all(log, log.log_end_offset)
    if how == 0:
        manager.close()
    disk = files.killed()
    paths = [DATA / name for name in disk.list_dir(DATA) if not disk.is_dir(DATA / name)]
    paths += [_FOLDER / name for name in disk.list_dir(_FOLDER)]
    return Directory(disk, [path for path in paths if path.name != ".lock"], records)


class Recovery(Target):
    """Damages the files of a data directory, and starts a broker on them."""

    name = "recovery"
    block = 1_000
    memory_sample = 16

    def make(self, random: Random) -> bytes:
        data = bytes([random.randrange(256)])
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            data += _CHANGE.pack(
                random.randrange(256),
                random.randrange(2_000),
                random.randrange(6),
                random.randrange(256),
            )
        return data

    def check(self, data: bytes) -> None:
        head = data[0] if data else 0
        directory = directories()[head % 3]
        disk = directory.files.killed()
        disk.is_crashed = directory.files.is_crashed = False
        changed: set[Path] = set()
        for at in range(1, len(data) - _CHANGE.size + 1, _CHANGE.size):
            number, place, operation, value = _CHANGE.unpack_from(data, at)
            path = directory.paths[number % len(directory.paths)]
            _change(disk, path, place, operation, value)
            changed.add(path)
        if head % 8 == 3:
            _inspect(disk)
        self._start(directory, disk, changed)

    def _start(self, directory: Directory, disk: MemoryFiles, changed: set[Path]) -> None:
        names = {path.name for path in changed}
        try:
            manager = open_manager(disk, config=CONFIG)
        except KlogError:
            if names.isdisjoint(_REFUSE):
                raise
            return
        log = manager.get(PARTITION)
        if log is None:
            if names.isdisjoint(_REFUSE):
                raise BrokenPromise(f"there is no log after changes of {_names(changed)}")
            return
        try:
            self._compare(directory, changed, log)
            append(log)
        except DamagedLog:
            # A start does not scan synced segments, so the damage is found when they are read. An
            # index is built again when its file is missing.
            if any(path.suffix == ".log" for path in changed):
                return
            manager.close()
            indexes = [path for path in changed if path.suffix == ".index" and disk.exists(path)]
            if not indexes:
                raise
            disk = disk.killed()
            for path in indexes:
                disk.remove(path)
            self._start(directory, disk, changed)
            return
        manager.close()
        again = open_manager(disk.killed(), config=CONFIG).get(PARTITION)
        if again is None or again.log_end_offset != log.log_end_offset:
            raise BrokenPromise(f"the next start gives another log after {_names(changed)}")

    def _compare(self, directory: Directory, changed: set[Path], log: PartitionLog) -> None:
        if any(path.name == "log-start-offset-checkpoint" for path in changed):
            return
        damaged = [int(path.stem) for path in changed if path.suffix == ".log"]
        good_until = min(damaged, default=_NO_END)
        expected = [each for each in directory.records if each.offset < good_until]
        found = read_all(log, min(log.log_end_offset, good_until))
        if found[: len(expected)] != expected:
            raise BrokenPromise(
                f"{len(found)} records are there, {len(expected)} were in segments that are whole: "
                f"{_names(changed)}"
            )

    def most_bytes(self, data: bytes) -> int:
        return _FIXED_BYTES


def _names(paths: set[Path]) -> str:
    return ", ".join(sorted(path.name for path in paths))


def _change(disk: MemoryFiles, path: Path, place: int, operation: int, value: int) -> None:
    content = bytearray(disk.read_bytes(path))
    at = place % (len(content) + 1)
    if operation == 0 and at < len(content):
        content[at] = value
    elif operation == 1 and at < len(content):
        content[at] ^= 1 << value % 8
    elif operation == 2:
        number = _NUMBERS[value % len(_NUMBERS)]
        content[at : at + len(number)] = number
    elif operation == 3:
        del content[at:]
    elif operation == 4:
        content += bytes(value) if value % 2 else content[:value]
    elif operation == 5:
        del content[at : at + value % 32 + 1]
    disk.remove(path)
    file = disk.open(path, create=True)
    file.pwrite(bytes(content), 0)


def _inspect(disk: MemoryFiles) -> None:
    with tempfile.TemporaryDirectory(prefix="klog-fuzz-") as name:
        root = Path(name)
        (root / _FOLDER.name).mkdir()
        for folder in (DATA, _FOLDER):
            for entry in disk.list_dir(folder):
                if not disk.is_dir(folder / entry):
                    path = root / (folder / entry).relative_to(DATA)
                    path.write_bytes(disk.read_bytes(folder / entry))
        with suppress(NothingToVerify):
            verify(root, Report(lambda _: None))
        for _ in dump(files_to_dump([root / _FOLDER.name]), DumpOptions(print_data_log=True)):
            pass


TARGET = Recovery
