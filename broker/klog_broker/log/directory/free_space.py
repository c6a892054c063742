"""The floor of free disk space (log.dir.min.free.bytes): writes below it are refused, so that the
disk does not become full.

Below the floor, records of clients are refused. Writes of coordinators to their state topics, and
of followers, are refused only below a quarter of the floor: until then, groups can commit offsets
and transactions can end. docs/decisions/0038 has the reasons.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from klog_broker.runtime.disk.files import DiskUsage, Files
from klog_broker.runtime.threads.helpers import Helpers

_log = logging.getLogger("klog.log")

MEASURE_INTERVAL_MS = 1_000
"""Time in ms between two readings of the disks' free space, while no disk is near its floor (at
most 1 GiB above log.dir.min.free.bytes)."""
NEAR_FLOOR_INTERVAL_MS = 100
_CLOSE_BYTES = 1 << 30
_PART_OF_STATE = 4
# Writes that are refused below a floor of free space are accepted again only above this floor plus
# floor / 4. Without this margin, each segment that retention deletes would switch the refusal off,
# and the next writes on again.
_PART_TO_COME_BACK = 4


class FreeSpace:
    """The free space of one data directory's disk at the last measurement, and the kinds of writes
    that are refused (records of clients, or also the writes of coordinators and followers). Does no
    I/O."""

    def __init__(self, path: Path) -> None:
        self.usable_bytes: int | None = None
        """Free bytes of the disk at the last measurement; None until the first one."""
        self.total_bytes: int | None = None
        """Size of the disk at the last measurement; None until the first one."""
        self.floor_bytes = 0
        """The setting log.dir.min.free.bytes; with 0, no write is refused."""
        self.refuses_clients = False
        self.refuses_state = False
        """Whether the writes of coordinators to state topics, and of followers, are refused, too,
        not only the records of clients."""
        self._path = path

    def update(self, usable_bytes: int, floor_bytes: int) -> bool:
        """Record the disk's free bytes and the floor (log.dir.min.free.bytes). Returns whether
        ``refuses_clients`` or ``refuses_state`` has changed."""
        before = self.refuses_clients, self.refuses_state
        self.usable_bytes, self.floor_bytes = usable_bytes, floor_bytes
        state_floor = floor_bytes // _PART_OF_STATE
        self.refuses_clients = _is_below(usable_bytes, floor_bytes, self.refuses_clients)
        self.refuses_state = _is_below(usable_bytes, state_floor, self.refuses_state)
        return before != (self.refuses_clients, self.refuses_state)

    @property
    def is_near_floor(self) -> bool:
        """Whether the disk has less free space than log.dir.min.free.bytes plus 1 GiB, so that
        a second of writing may bring it below log.dir.min.free.bytes. False if that is 0."""
        usable, floor = self.usable_bytes, self.floor_bytes
        return usable is not None and floor > 0 and usable < floor + _CLOSE_BYTES

    def refusal(self, refused: object) -> str:
        """Return the error message of a write that is refused because the disk has too little free
        space. ``refused`` is the partition that the write was for."""
        return (
            f"the disk of the data directory {self._path} has {self.usable_bytes} bytes left, too"
            f" few for log.dir.min.free.bytes={self.floor_bytes}: nothing is written to {refused}"
            f" until more space is free; delete records or topics, or make the disk larger"
        )

    def log_state(self) -> None:
        """Log the disk's free bytes, log.dir.min.free.bytes, and the kinds of writes that are
        refused: none, only records of clients, or also the writes of coordinators and followers."""
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


class FreeSpaceMonitor:
    """Reads the free space of all disks in a helper thread, so that a disk that does not respond
    never blocks the event loop."""

    def __init__(self, files: Files, helpers: Helpers, spaces: Sequence[tuple[Path, FreeSpace]]):
        self.on_change: Callable[[], None] = lambda: None
        """Called in the event loop when a directory begins or stops to refuse records of clients,
        or writes of coordinators and followers, because of too little free space."""
        self._files = files
        self._helpers = helpers
        self._spaces = spaces
        self._is_looking = False
        self._floor_bytes = 0

    @property
    def pause_ms(self) -> int:
        """Time in ms until the free space of the disks is to be read again."""
        return (
            NEAR_FLOOR_INTERVAL_MS
            if any(each.is_near_floor for _, each in self._spaces)
            else MEASURE_INTERVAL_MS
        )

    def start_measurement(self, floor_bytes: int) -> None:
        """Start to read the free space; the event loop records the results later.

        Does nothing while the last measurement is still running, or if the floor
        (log.dir.min.free.bytes) is 0 and no directory refuses writes.
        """
        self._floor_bytes = floor_bytes
        if floor_bytes or any(space.refuses_clients for _, space in self._spaces):
            self._submit_measurement(floor_bytes)

    def measure_without_floor(self) -> None:
        """Start to read the free space for the next scrape of the metrics, if no floor is set, so
        that `start_measurement` does not read it."""
        if not self._floor_bytes:
            self._submit_measurement(0)

    def _submit_measurement(self, floor_bytes: int) -> None:
        if self._is_looking:
            return
        self._is_looking = True

        def taken(found: list[DiskUsage | None] | None, error: BaseException | None) -> None:
            self._is_looking = False
            if error is not None:
                raise error
            self._update_spaces(found or [], floor_bytes)

        self._helpers.submit(self._measure, taken)

    def _measure(self) -> list[DiskUsage | None]:
        found: list[DiskUsage | None] = []
        for path, _ in self._spaces:
            try:
                found.append(self._files.disk_usage(path))
            except OSError:
                # Keep the last known value. The next write to this disk reports its error.
                found.append(None)
        return found

    def _update_spaces(self, found: list[DiskUsage | None], floor_bytes: int) -> None:
        has_changed = False
        for (_, space), usage in zip(self._spaces, found, strict=False):
            if usage is None:
                continue
            space.total_bytes = usage.total_bytes
            if space.update(usage.usable_bytes, floor_bytes):
                space.log_state()
                has_changed = True
        if has_changed:
            self.on_change()
