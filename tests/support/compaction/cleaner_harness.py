"""A log cleaner that runs step by step, and checks of the logs that it has cleaned."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from klog_broker.compaction.cleaner import Cleaner
from klog_broker.compaction.settings import CleanerSettings
from klog_broker.log.manager.log_manager import LogManager
from klog_broker.log.partition_log import PartitionLog
from klog_broker.runtime.system.chance import Chance
from klog_broker.runtime.system.clock import Clock
from pyspark_klog.records.record import Record
from tests.support.cluster.helpers import Helpers
from tests.support.log.harness import read_all
from tests.support.runtime.manual_clock import ManualClock


class ManualTimers:
    """The event loop's timers; the test runs delayed callbacks."""

    def __init__(self) -> None:
        self.soon: deque[Callable[[], None]] = deque()
        self.later: deque[tuple[int, Callable[[], None]]] = deque()

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self.later.append((delay_ms, callback))


class CleanerBench:
    """A cleaner over the logs of a manager, with its helpers."""

    def __init__(
        self,
        manager: LogManager,
        helpers: Helpers,
        clock: Clock | None = None,
        settings: CleanerSettings | None = None,
        prepare: Callable[[], bool] = lambda: True,
    ) -> None:
        self.helpers = helpers
        self.timers = ManualTimers()
        self.cleaner = Cleaner(
            manager,
            helpers=helpers,
            timers=self.timers,
            clock=clock or ManualClock(),
            chance=Chance(0),
            settings=settings or CleanerSettings(),
            prepare=prepare,
        )

    def start_checks(self) -> None:
        self.cleaner.start_checks()

    def step(self) -> bool:
        """One work of a helper or one call of the loop; False if there is none to do now."""
        if self.timers.soon:
            self.timers.soon.popleft()()
        elif self.helpers.waiting:
            self.helpers.run_one()
        else:
            return False
        return True

    def run(self) -> None:
        """All that is to be done now: rounds, until no log is due."""
        while self.step():
            pass

    def look_again(self) -> None:
        """Run the delayed callbacks, and everything that follows from them."""
        waiting = [callback for _, callback in self.timers.later]
        self.timers.later.clear()
        for callback in waiting:
            callback()
        self.run()


def clean(manager: LogManager, helpers: Helpers, clock: Clock | None = None) -> Cleaner:
    """Clean all logs that are due."""
    bench = CleanerBench(manager, helpers, clock)
    bench.start_checks()
    bench.run()
    return bench.cleaner


def last_records(records: Iterable[Record]) -> dict[bytes | None, Record]:
    """Return the last record of each key."""
    return {record.key: record for record in records}


def problems_of_cleaned(log: PartitionLog, written: Sequence[Record]) -> list[str]:
    """Return the faults of a compacted log. A log must hold no record that was not written, the
    last value of each key, and all records of the active segment."""
    found = read_all(log)
    by_offset = {record.offset: record for record in written}
    problems = [
        f"{record} was not written so" for record in found if by_offset.get(record.offset) != record
    ]
    offsets = [record.offset for record in found]
    if offsets != sorted(set(offsets)):
        problems.append("offsets do not rise")
    there = set(offsets)
    problems += [
        f"{record} is the last of its key, and lost"
        for record in last_records(written).values()
        if record.value is not None and record.offset not in there
    ]
    active = log.segments[-1].base_offset
    problems += [
        f"{record} is lost from the active segment"
        for record in written
        if record.offset >= active and record.offset not in there
    ]
    for key, record in last_records(found).items():
        if record.value is not None and last_records(written)[key] != record:
            problems.append(f"{record} is an old value that is there again")
    return problems
