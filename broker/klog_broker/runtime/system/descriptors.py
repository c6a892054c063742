"""File descriptors: how many this process may have, who gets them, and what is said without one.

The limit is a fact of the process, RLIMIT_NOFILE, and asked for whenever it counts.
"""

import errno
import resource

LEAST_DESCRIPTORS = 128
"""What a broker needs to start and to serve a few connections."""

_EXHAUSTED = (errno.EMFILE, errno.ENFILE)
# Locks, data directories, listeners, the poller, what helper threads open for a moment, the child
# process that compiles kernels.
_FOR_OTHERS = 64
# macOS says "unlimited", and takes no more than this (OPEN_MAX).
_MOST_WITHOUT_A_LIMIT = 10_240


def limit() -> int:
    """How many descriptors this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_WITHOUT_A_LIMIT if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> int:
    """Raise the soft limit to the hard one, as far as the system lets; returns what holds now.

    For a process that is a broker; another's limits are not a library's business.
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


def for_files() -> int:
    """How many files of logs may be open at a time; others are opened again when they are used."""
    return limit() // 3


def for_connections() -> int:
    """How many connections there may be, so that files can still be opened."""
    return max(limit() - for_files() - _FOR_OTHERS, 1)


def is_exhausted(error: BaseException | None) -> bool:
    """Whether something failed only because no descriptor was left: it has had no effect, says
    nothing about the disk, and works again when there are some."""
    return isinstance(error, OSError) and error.errno in _EXHAUSTED


def why(error: OSError) -> str:
    """The sentence for such an error: what is short, and what to do."""
    if error.errno == errno.ENFILE:
        return (
            "no file descriptor is left on this machine: raise fs.file-max, or lower `ulimit -n`"
            " for other processes"
        )
    return (
        f"no file descriptor is left, this process may have {limit()}: start the broker with a"
        " higher `ulimit -n` (LimitNOFILE of a systemd unit)"
    )
