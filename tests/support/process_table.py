"""The machine's processes: from /proc, since a bare Debian has no `ps`; elsewhere from `ps`."""

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")


class Process(NamedTuple):
    """A process that runs; one that has ended and only waits to be asked for its code does not."""

    pid: int
    parent: int
    rss_bytes: int
    command: str


def processes() -> list[Process]:
    """All processes of the machine that have a command line."""
    if (_PROC / "self" / "stat").exists():
        found = [_read(int(path.name)) for path in _PROC.iterdir() if path.name.isdigit()]
        return [process for process in found if process is not None]
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,rss=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 3) for line in listed.stdout.splitlines()]
    return [
        Process(int(row[0]), int(row[1]), int(row[2]) * 1024, row[3])
        for row in rows
        if len(row) == 4 and not row[3].endswith("<defunct>")
    ]


def is_running(pid: int) -> bool:
    """Whether the process has not ended."""
    return any(process.pid == pid for process in processes())


def _read(pid: int) -> Process | None:
    """Read a process from /proc; None if it has ended or is a kernel thread."""
    folder = _PROC / str(pid)
    try:
        command = (folder / "cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ")
        # The name before these fields is in parentheses, and may hold anything.
        fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if not command:
        return None
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    return Process(pid, int(fields[1]), int(fields[21]) * page_bytes, os.fsdecode(command))
