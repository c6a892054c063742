"""Files that an interrupted cleaning, klog's or Kafka's, has left, and the next start."""

from collections.abc import Mapping
from contextlib import suppress
from random import Random

import pytest

from klog_broker.log.log_config import LogConfig
from klog_broker.log.recovery.leftovers import clear_leftovers
from pyspark_klog.storage.names import Suffix, segment_file_name
from tests.support.log.harness import DATA, append, batch, open_log, open_manager, read_all
from tests.support.runtime.memory_files import Crashed, MemoryFiles

FOLDER = DATA / "topic-0"
CONFIG = LogConfig(segment_bytes=1_000, segment_index_bytes=4_096, compact=True)


def _name(base_offset: int, suffix: str = "") -> str:
    return segment_file_name(base_offset, Suffix.LOG) + suffix


def _disk(names: Mapping[str, bytes]) -> MemoryFiles:
    files = MemoryFiles()
    files.make_dirs(FOLDER)
    for name, data in names.items():
        files.open(FOLDER / name, create=True).pwrite(data, 0)
    return files


def _batches(*offsets: int) -> bytes:
    return b"".join(batch(1)[8:].join([offset.to_bytes(8, "big"), b""]) for offset in offsets)


def test_a_swap_takes_the_place_of_all_that_begin_within_it() -> None:
    old = {_name(base): b"old" for base in (0, 10, 20, 30)}
    new = _batches(3, 29)
    files = _disk(old | {_name(10, ".swap"): new, "00000000000000000010.index.swap": b"i"})
    clear_leftovers(files, FOLDER)
    assert files.list_dir(FOLDER) == [
        _name(0),
        "00000000000000000010.index",
        _name(10),
        _name(30),
    ]
    assert files.read_bytes(FOLDER / _name(10)) == new
    assert files.read_bytes(FOLDER / _name(0)) == b"old"


def test_an_index_of_the_old_segment_does_not_stay() -> None:
    stale = "00000000000000000000.txnindex"
    files = _disk({_name(0): b"old", stale: b"row", _name(0, ".swap"): _batches(5)})
    clear_leftovers(files, FOLDER)
    assert files.list_dir(FOLDER) == [_name(0)]


def test_what_is_unfinished_goes() -> None:
    names = [_name(0, ".cleaned"), _name(7, ".deleted"), "00000000000000000000.index.swap"]
    files = _disk(dict.fromkeys(names, b"") | {_name(0): b"old"})
    clear_leftovers(files, FOLDER)
    assert files.list_dir(FOLDER) == [_name(0)]


def test_a_segment_that_became_several_is_replaced_by_all_of_them() -> None:
    """Kafka renames the last of them first."""
    files = _disk(
        {_name(0): b"old", _name(0, ".cleaned"): b"", _name(50, ".swap"): _batches(50, 60)}
    )
    clear_leftovers(files, FOLDER)
    assert files.list_dir(FOLDER) == [_name(0)]


def test_a_damaged_or_empty_swap_takes_the_place_of_nothing() -> None:
    for data in (b"", b"garbage that is no batch", _batches(3)[:-1]):
        files = _disk({_name(0): b"old", _name(5): b"old", _name(0, ".swap"): data})
        clear_leftovers(files, FOLDER)
        assert files.list_dir(FOLDER) == [_name(0), _name(5)]
        assert files.read_bytes(FOLDER / _name(0)) == b"old"


def test_a_swap_without_its_old_segment_is_put_in_place_unchanged() -> None:
    files = _disk({_name(0, ".swap"): b""})
    clear_leftovers(files, FOLDER)
    assert files.list_dir(FOLDER) == [_name(0)]


def test_a_log_is_loaded_with_what_was_put_in_place() -> None:
    files = MemoryFiles()
    log = open_log(files, CONFIG)
    for number in range(30):
        append(log, batch(key=b"%d" % number))
    records = read_all(log)
    first, second = log.segments[:2]
    merged = b"".join(each.log_file.pread(each.size_bytes, 0) for each in (first, second))
    log.flush()
    files.open(FOLDER / _name(0, ".swap"), create=True).pwrite(merged, 0)
    again = open_manager(files.killed(), config=CONFIG).logs()
    (found,) = again
    assert read_all(found) == records
    assert [each.base_offset for each in found.segments] == [
        0,
        *[each.base_offset for each in log.segments[2:]],
    ]


def test_a_segment_that_is_renamed_in_part_does_not_count() -> None:
    """Kafka renames the log first, and is killed before it renames the indexes."""
    index = "00000000000000000000.index.cleaned"
    files = _disk({_name(0): b"old", _name(0, ".swap"): _batches(5), index: b""})
    clear_leftovers(files, FOLDER)
    assert files.list_dir(FOLDER) == [_name(0)]
    assert files.read_bytes(FOLDER / _name(0)) == b"old"


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_leaves_no_old_segment_next_to_its_replacement(seed: int) -> None:
    """The disk may make the names durable in any order."""
    for step in range(1, 12):
        files = _disk({_name(0): b"old", _name(10): b"old", _name(0, ".swap"): _batches(0, 29)})
        for name in files.list_dir(FOLDER):
            files.open(FOLDER / name).sync()
        for path in (FOLDER, DATA, DATA.parent):
            files.sync_dir(path)
        files.crash_at_step = files.steps + step
        with suppress(Crashed):
            clear_leftovers(files, FOLDER)
        files = files.crash(Random(seed), keeps_order=False)
        is_new = (
            len(files.read_bytes(FOLDER / _name(0))) > len(b"old")
            if files.exists(FOLDER / _name(0))
            else False
        )
        assert not (is_new and files.exists(FOLDER / _name(10)))
