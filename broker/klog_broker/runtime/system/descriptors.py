"""File descriptors: how many the process, its log files and its connections may have, and errors
when none is left.

The limit of the process is RLIMIT_NOFILE. The functions that use the limit read its current value.
"""

import errno
import resource

LEAST_DESCRIPTORS = 128
"""The fewest file descriptors with which a broker can start and serve a few connections."""

_EXHAUSTED = (errno.EMFILE, errno.ENFILE)
# How many descriptors log files and connections leave free: for lock files, data directories,
# listeners, the poller, files that helper threads open for a moment, and the child process that
# compiles kernels (numba functions).
_FOR_OTHERS = 64
# macOS may report "unlimited", but refuses a soft limit above this number (OPEN_MAX).
_MOST_WITHOUT_A_LIMIT = 10_240


def limit() -> int:
    """Return how many file descriptors this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_WITHOUT_A_LIMIT if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> int:
    """Raise the soft limit towards the hard limit, as far as the system allows; return the new soft
    limit.

    Call only in a broker's own process: a library must not change the limits of its application.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, _MOST_WITHOUT_A_LIMIT):
        if soft == resource.RLIM_INFINITY or soft == wanted:
            break
        if wanted != resource.RLIM_INFINITY and wanted < soft:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):
            continue
        break
    return limit()


def file_limit() -> int:
    """Return how many log files may be open at a time. Other log files are closed, and opened again
    for their next use."""
    return limit() // 3


def connection_limit() -> int:
    """Return how many connections the broker may have: so many that the descriptors suffice for the
    log files (`file_limit`) and for all other uses (`_FOR_OTHERS`), too."""
    return max(limit() - file_limit() - _FOR_OTHERS, 1)


def is_exhausted(error: BaseException | None) -> bool:
    """Return whether the error is EMFILE or ENFILE: no descriptor was left.

    The failed call had no effect. The error says nothing about the disk, and the call can succeed
    once descriptors are free again.
    """
    return isinstance(error, OSError) and error.errno in _EXHAUSTED


def describe_exhaustion(error: OSError) -> str:
    """Return the message for an `is_exhausted` error: which limit was reached, and what to do."""
    if error.errno == errno.ENFILE:
        return (
            "no file descriptor is left on this machine: raise fs.file-max, or lower `ulimit -n`"
            " for other processes"
        )
    return (
        f"no file descriptor is left, this process may have {limit()}: start the broker with a"
        " higher `ulimit -n` (LimitNOFILE of a systemd unit)"
    )
