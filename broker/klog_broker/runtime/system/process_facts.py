"""What the system knows of this process. Cheap enough for the loop: nothing is listed or waited
for."""

import os
import resource
import time
from pathlib import Path
from typing import NamedTuple

_STATM = "/proc/self/statm"
_DESCRIPTORS = "/proc/self/fd"


class ProcessFacts(NamedTuple):
    """None is what this system does not tell."""

    cpu_seconds: float
    resident_bytes: int | None
    virtual_bytes: int | None
    open_descriptors: int | None
    max_descriptors: int | None


def process_facts() -> ProcessFacts:
    """The facts of now."""
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
    """Since Linux 6.2 the folder's size is their number; before it is 0, and listing thousands of
    them would take the loop milliseconds."""
    try:
        return Path(_DESCRIPTORS).stat().st_size or None
    except OSError:
        return None
