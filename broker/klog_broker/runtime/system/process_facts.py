"""CPU time, memory and file descriptors of this process, as the operating system reports them.

The functions are cheap enough for the loop: they list no directory and never block.
"""

import os
import resource
import time
from pathlib import Path
from typing import NamedTuple

_STATM = "/proc/self/statm"
_DESCRIPTORS = "/proc/self/fd"


class ProcessFacts(NamedTuple):
    """Resource usage and limits of this process. A fact that the system does not report is None,
    and so is `max_descriptors` without a limit."""

    cpu_seconds: float
    resident_bytes: int | None
    virtual_bytes: int | None
    open_descriptors: int | None
    max_descriptors: int | None


def process_facts() -> ProcessFacts:
    """Return the current resource usage and limits of this process."""
    virtual, resident = _memory()
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ProcessFacts(
        time.process_time(),
        resident,
        virtual,
        _descriptors(),
        None if limit == resource.RLIM_INFINITY else limit,
    )


def _memory() -> tuple[int | None, int | None]:
    try:
        with open(_STATM, "rb") as file:
            virtual, resident, *_ = file.read().split()
    except OSError:
        return None, None
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    return int(virtual) * page_bytes, int(resident) * page_bytes


def _descriptors() -> int | None:
    """Return the number of open descriptors, or None.

    Since Linux 6.2 the size of /proc/self/fd is the number of its entries. Older versions report a
    size of 0, and listing thousands of entries would block the loop for milliseconds.
    """
    try:
        return Path(_DESCRIPTORS).stat().st_size or None
    except OSError:
        return None
