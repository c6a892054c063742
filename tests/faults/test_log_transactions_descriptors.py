"""The process is out of descriptors at each open in turn, in a log with transactions.

No row of a transaction index is lost, and none remains that calls a committed transaction aborted.
"""

import errno

import pytest

from klog_broker.log.errors import LogStorageError
from klog_broker.log.log_config import LogConfig
from klog_broker.log.partition_log import PartitionLog
from tests.support.log.harness import DATA, append, open_log, open_manager
from tests.support.log.transactional_log import append_end_marker, said_by_batches, write
from tests.support.runtime.memory_files import MemoryFiles

CONFIG = LogConfig(segment_bytes=700, segment_index_bytes=64, index_interval_bytes=100)


def check(log: PartitionLog) -> None:
    begun, rows = said_by_batches(log)
    assert log.aborted_transactions(0, log.log_end_offset + 1) == rows
    assert log.last_stable_offset == min([log.log_end_offset, *begun.values()])


@pytest.mark.parametrize("then", ["commits", "aborts", "dies"])
@pytest.mark.parametrize("earlier", range(6))
def test_a_marker_that_is_refused_leaves_nothing(earlier: int, then: str) -> None:
    number = refused = 0
    while True:
        number += 1
        files = MemoryFiles()
        log = open_log(files, CONFIG)
        # Earlier markers fill the segment: for some counts the next marker needs a new segment.
        for sequence in range(earlier):
            write(log, 1, sequence)
            append_end_marker(log, 1, commit=sequence % 2 == 0)
        write(log, 1, earlier)
        last = files.fail_open_at = files.opens + number
        is_refused = False
        try:
            append_end_marker(log, 1, commit=False)
        except LogStorageError:
            is_refused = True
        over = files.opens < last
        files.fail_open_at = None
        refused += is_refused
        if then != "dies":
            if is_refused:
                append_end_marker(log, 1, commit=then == "commits")
            append(log)
            check(log)
        log.flush()
        check(open_log(files.killed(), CONFIG))
        if over:
            break
    assert refused


def test_a_start_that_runs_out_leaves_the_indexes_to_the_next_one() -> None:
    number = 0
    while True:
        number += 1
        files = MemoryFiles()
        log = open_log(files, CONFIG)
        for sequence in range(12):
            write(log, 1, sequence)
            append_end_marker(log, 1, commit=sequence % 3 == 0)
            if sequence == 7:
                log.flush()
        files = files.killed()
        path = DATA / "topic-0" / f"{log.segments[1].base_offset:020d}.txnindex"
        # A damaged index is replaced as a whole.
        files.open(path).pwrite(b"\x7f", 0)
        last = files.fail_open_at = files.opens + number
        try:
            open_manager(files, config=CONFIG)
        except OSError as error:
            assert error.errno == errno.EMFILE
        else:
            assert files.opens < last
            break
        files.fail_open_at = None
        check(open_log(files, CONFIG))
    assert number > 20
