"""Closes the logs of the data directories in parallel.

A disk needs little more time for several syncs at once than for one.
"""

from collections.abc import Callable, Sequence
from functools import partial

from klog_broker.log.directory.data_directory import LogDirectory
from klog_broker.log.errors import LogStorageError
from klog_broker.log.partition_log import PartitionLog
from klog_broker.runtime.threads.parallel_work import ParallelWork

_CLOSED_AT_ONCE = 8

_Outcome = Callable[[], None] | OSError | LogStorageError | None


def close_in_parallel(
    groups: Sequence[Sequence[PartitionLog]], run: ParallelWork
) -> dict[LogDirectory, OSError | LogStorageError]:
    """Close all logs; each group holds the logs of one directory. Blocks.

    Returns the first error of each directory in which a log could not be closed. The logs of such a
    directory that have not been closed by then stay open.
    """
    failed: dict[LogDirectory, OSError | LogStorageError] = {}

    def begin_close(log: PartitionLog) -> _Outcome:
        if log.log_directory in failed:
            return None
        try:
            return log.begin_close()
        except (OSError, LogStorageError) as error:
            return error

    def finish_close(group: int, number: int, outcome: _Outcome) -> None:
        log = groups[group][number]
        try:
            if isinstance(outcome, Exception):
                raise outcome
            if outcome is not None:
                outcome()
        except (OSError, LogStorageError) as error:
            failed.setdefault(log.log_directory, error)

    run(
        [[partial(begin_close, log) for log in logs] for logs in groups],
        _CLOSED_AT_ONCE,
        finish_close,
    )
    return failed
