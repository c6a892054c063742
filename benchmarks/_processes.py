"""CPU time and resident memory of processes, from /proc."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Places in /proc/<pid>/stat behind the command, which is in parentheses and may hold any text.
_USER_TICKS = 11
_SYSTEM_TICKS = 12
_WITH_ENDED_CHILDREN = (_USER_TICKS, _SYSTEM_TICKS, 13, 14)
_PROC = Path("/proc")


def _cpu_ticks_of(stat: str, columns: Sequence[int] = (_USER_TICKS, _SYSTEM_TICKS)) -> int:
    """User and system time in the text of /proc/<pid>/stat, in clock ticks."""
    fields = stat[stat.rindex(")") + 2 :].split()
    return sum(int(fields[column]) for column in columns)


def cpu_seconds(pid: int, proc: Path = _PROC) -> float:
    """User and system time of a process so far, all threads."""
    return _cpu_ticks_of((proc / str(pid) / "stat").read_text()) / _TICKS_PER_S


def resident_bytes(pid: int, proc: Path = _PROC) -> int:
    """Resident memory of a process in bytes."""
    return int((proc / str(pid) / "statm").read_text().split()[1]) * _PAGE_BYTES


def peak_resident_bytes(pid: int, proc: Path = _PROC) -> int:
    """Peak resident memory of a process in bytes."""
    for line in (proc / str(pid) / "status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def process_tree(pid: int, proc: Path = _PROC) -> list[int]:
    """A process and all its descendants, as they are now."""
    found = [pid]
    with suppress(OSError):  # a process or a thread may end meanwhile
        for task in (proc / str(pid) / "task").iterdir():
            with suppress(OSError):
                for child in (task / "children").read_text().split():
                    found += process_tree(int(child), proc)
    return found


def tree_cpu_seconds(pid: int, proc: Path = _PROC) -> float:
    """User and system time of a process and its descendants so far, ended children included."""
    ticks = 0
    for each in process_tree(pid, proc):
        with suppress(OSError):  # the process may end meanwhile
            ticks += _cpu_ticks_of((proc / str(each) / "stat").read_text(), _WITH_ENDED_CHILDREN)
    return ticks / _TICKS_PER_S
