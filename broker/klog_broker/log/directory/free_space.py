"""The floor of free disk space: what is refused below it, so that the disk never becomes full.

Records of clients are refused first. The logs that coordinators keep their state in go on until a
quarter of the floor is left: groups commit, and transactions end, for as long as they can.
docs/decisions/0038 has the reasons.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from klog_broker.runtime.disk.files import Files
from klog_broker.runtime.threads.helpers import Helpers

_log = logging.getLogger("klog.log")

LOOK_MS = 1_000
"""How often the disks are asked."""
LOOK_CLOSELY_MS = 100
_CLOSE_BYTES = 1 << 30
_PART_OF_STATE = 4
# What was refused is taken again once so much more than the floor is free, that it does not begin
# and end with every segment that retention deletes.
_PART_TO_COME_BACK = 4


class FreeSpace:
    """Of one data directory, as its disk said last. Pure."""

    def __init__(self, path: Path) -> None:
        self.usable_bytes: int | None = None
        """None before the first look."""
        self.floor_bytes = 0
        """log.dir.min.free.bytes; 0 refuses nothing."""
        self.refuses_clients = False
        self.refuses_state = False
        """Whether not even coordinators may write."""
        self._path = path

    def take(self, usable_bytes: int, floor_bytes: int) -> bool:
        """So much is free; returns whether anything is refused now that was not, or the other way
        round."""
        before = self.refuses_clients, self.refuses_state
        self.usable_bytes, self.floor_bytes = usable_bytes, floor_bytes
        state_floor = floor_bytes // _PART_OF_STATE
        self.refuses_clients = _is_below(usable_bytes, floor_bytes, self.refuses_clients)
        self.refuses_state = _is_below(usable_bytes, state_floor, self.refuses_state)
        return before != (self.refuses_clients, self.refuses_state)

    @property
    def is_close(self) -> bool:
        """Whether a second of writing may lead below the floor, or freeing above it."""
        usable = self.usable_bytes
        return usable is not None and usable < self.floor_bytes + _CLOSE_BYTES

    def refusal(self, refused: object) -> str:
        """Why nothing is written to ``refused``, in a sentence for clients."""
        return (
            f"the disk of the data directory {self._path} has {self.usable_bytes} bytes left, fewer"
            f" than log.dir.min.free.bytes={self.floor_bytes} asks for: nothing is written to"
            f" {refused} until there is room; delete records or topics, or make the disk larger"
        )

    def tell(self) -> None:
        """Write a line of how it is now."""
        refused = "state,records" if self.refuses_state else "records"
        level = logging.WARNING if self.refuses_clients else logging.INFO
        _log.log(
            level,
            "log_dir=%s free_bytes=%s log.dir.min.free.bytes=%d refused=%s",
            self._path,
            self.usable_bytes,
            self.floor_bytes,
            refused if self.refuses_clients else "nothing",
        )


def _is_below(usable_bytes: int, floor_bytes: int, was_below: bool) -> bool:
    margin = floor_bytes // _PART_TO_COME_BACK if was_below else 0
    return floor_bytes > 0 and usable_bytes < floor_bytes + margin


class FreeSpaceLooks:
    """Has a helper thread ask the disks: one that does not answer holds nobody else up."""

    def __init__(self, files: Files, helpers: Helpers, spaces: Sequence[tuple[Path, FreeSpace]]):
        self.on_change: Callable[[], None] = lambda: None
        """Called in the loop when a directory refuses something it did not, or no longer does."""
        self._files = files
        self._helpers = helpers
        self._spaces = spaces
        self._is_looking = False

    @property
    def pause_ms(self) -> int:
        """Until the next look is due."""
        return LOOK_CLOSELY_MS if any(each.is_close for _, each in self._spaces) else LOOK_MS

    def look(self, floor_bytes: int) -> None:
        """Ask, and take the answers in the loop. Does nothing while the disks are being asked."""
        if self._is_looking or not (floor_bytes or any(s.refuses_clients for _, s in self._spaces)):
            return
        self._is_looking = True

        def taken(found: list[int | None] | None, error: BaseException | None) -> None:
            self._is_looking = False
            if error is not None:
                raise error
            self._take(found or [], floor_bytes)

        self._helpers.submit(self._ask, taken)

    def _ask(self) -> list[int | None]:
        found: list[int | None] = []
        for path, _ in self._spaces:
            try:
                found.append(self._files.disk_usage(path).usable_bytes)
            except OSError:
                # Whoever writes there is told what is wrong with the disk.
                found.append(None)
        return found

    def _take(self, found: list[int | None], floor_bytes: int) -> None:
        has_changed = False
        for (_, space), usable_bytes in zip(self._spaces, found, strict=False):
            if usable_bytes is not None and space.take(usable_bytes, floor_bytes):
                space.tell()
                has_changed = True
        if has_changed:
            self.on_change()
