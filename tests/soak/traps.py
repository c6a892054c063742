"""Traps: a Python process of Spark's dies, or is suspended, at a chosen point of the sink.

The soak arms a trap by a file; the first process that reaches the point takes the file, so that one
process is hit. hooks.py makes the processes reach their points.
"""

import contextlib
import json
import os
import signal
import time
from enum import Enum
from pathlib import Path

from tests.support.eventually import eventually

FOLDER_VARIABLE = "KLOG_SOAK_TRAPS"
"""The environment variable with the folder of the traps; without it there are none."""
NOTES_VARIABLE = "KLOG_SOAK_NOTES"
"""The environment variable that makes all processes note their calls, not only stopped ones."""
_WAKE = "wake."
_NOTES = "notes.jsonl"


class Point(Enum):
    """A point where a process may be hit.

    A run's first micro-batch leaves transactions to the driver; every later one is ended by its
    tasks.
    """

    ID_TAKEN = "a task has initialised its producer"
    ROWS_WRITTEN = "a task has added its rows, not yet its progress row"
    ROW_WRITTEN = "a task has written its progress row, and nobody has ended the transaction"
    TASK_ENDED = "a task has ended its transaction itself"
    HANDED_OVER = "a task leaves its transaction to the driver"
    WRITE_DONE = "a task has returned from write()"
    COMMIT_BEGINS = "all tasks are done, and commit() begins"
    BEFORE_END = "commit() is about to end a transaction"
    AFTER_END = "commit() has ended a transaction"
    COMMIT_DONE = "commit() has returned, and Spark has not recorded it"


IN_TASK = (
    *(Point.ID_TAKEN, Point.ROWS_WRITTEN, Point.ROW_WRITTEN, Point.TASK_ENDED),
    *(Point.HANDED_OVER, Point.WRITE_DONE),
)
IN_COMMIT = (Point.COMMIT_BEGINS, Point.BEFORE_END, Point.AFTER_END, Point.COMMIT_DONE)
FIRST_BATCH = (Point.ID_TAKEN, Point.HANDED_OVER, Point.BEFORE_END, Point.AFTER_END)
"""Points that only a run's first micro-batch is sure to reach."""


class Action(Enum):
    """The signal that a trap sends to the process."""

    KILL = "SIGKILL"
    STOP = "SIGSTOP"


class Traps:
    """The soak's side of the traps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def arm(self, point: Point, action: Action) -> None:
        """Hit the next process that reaches the point, and no other."""
        self.disarm()
        self.arm_once_more(point, action)

    def arm_once_more(self, point: Point, action: Action) -> None:
        """Hit the next process that reaches the point, too; earlier hits stay noted."""
        unarmed = self.folder / "unarmed"
        unarmed.write_text(action.name, encoding="utf-8")
        unarmed.rename(self.folder / point.name)

    def disarm(self) -> None:
        """Hit no process any more, and forget which processes were hit."""
        for point in Point:
            for file in self.folder.glob(f"{point.name}*"):
                file.unlink(missing_ok=True)

    def sprung(self, point: Point) -> int | None:
        """The process id of a process that was hit."""
        return next(iter(self.all_sprung(point)), None)

    def all_sprung(self, point: Point) -> list[int]:
        """The process ids of all processes that were hit since the last `arm` or `disarm`."""
        return [int(file.suffix[1:]) for file in self.folder.glob(f"{point.name}.*")]

    def wake(self, pid: int) -> None:
        """Resume a stopped process, and forget that it was hit."""
        for file in self.folder.glob(f"*.{pid}"):
            file.unlink(missing_ok=True)
        wake = self.folder / f"{_WAKE}{pid}"
        wake.touch()

        def went_on() -> bool:
            # the process went on and ended, or was killed
            with contextlib.suppress(ProcessLookupError):
                if wake.exists():
                    os.kill(pid, signal.SIGCONT)  # the process may have been about to stop
                    return False
            return True

        eventually(went_on, 30, f"process {pid} goes on")

    def calls(self) -> list[tuple[int, str]]:
        """The noted calls in order: process id, and call with its outcome."""
        file = self.folder / _NOTES
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        lines = text.split("\n")[:-1]  # the last line may be half written
        return [(each["pid"], each["did"]) for each in map(json.loads, lines)]

    def story(self) -> str:
        """The notes as they are in the file, with their times."""
        file = self.folder / _NOTES
        return file.read_text(encoding="utf-8") if file.exists() else ""

    def noted(self) -> dict[int, list[str]]:
        """The calls of stopped processes after they went on, by process id."""
        found: dict[int, list[str]] = {}
        for pid, did in self.calls():
            found.setdefault(pid, []).append(did)
        return found


_was_woken = False


def reach(point: Point) -> None:
    """A process has reached the point: carry out the trap if it is armed."""
    global _was_woken
    folder = Path(os.environ[FOLDER_VARIABLE])
    taken = folder / f"{point.name}.{os.getpid()}"
    try:
        # The file may vanish as soon as it is taken: the soak may wake this process at once.
        action = Action[(folder / point.name).read_text(encoding="utf-8")]
        (folder / point.name).rename(taken)
    except FileNotFoundError:
        return  # not armed, or disarmed meanwhile
    if action is Action.KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    # A worker whose executor has died gets SIGHUP when it resumes. The simulated worker has only
    # lost its network to the executor, and would get no signal.
    before = {each: signal.signal(each, signal.SIG_IGN) for each in (signal.SIGHUP, signal.SIGTERM)}
    wake = folder / f"{_WAKE}{os.getpid()}"
    while not wake.exists():
        # The system wakes the process when its executor dies: its process group is an orphan then.
        os.kill(os.getpid(), signal.SIGSTOP)
    wake.unlink()
    for number, handler in before.items():
        signal.signal(number, handler)
    _was_woken = True


def note(did: str) -> None:
    """Note a call of a process that was stopped and resumed."""
    if _was_woken or NOTES_VARIABLE in os.environ:
        line = json.dumps({"at_s": round(time.time(), 3), "pid": os.getpid(), "did": did}) + "\n"
        with (Path(os.environ[FOLDER_VARIABLE]) / _NOTES).open("a", encoding="utf-8") as file:
            file.write(line)
