"""One log in a series of processes, on a disk that crashes at any step: for power-cut tests."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from klog_broker.log.log_config import LogConfig
from klog_broker.log.manager.log_manager import LogManagerSettings
from tests.support.cluster.logs import HostedLog
from tests.support.runtime.manual_clock import ManualClock
from tests.support.runtime.memory_files import Crashed, MemoryFiles


@dataclass
class LogRestarts:
    """The disk and the clock that all processes of the log share."""

    random: Random
    config: LogConfig
    settings: LogManagerSettings
    files: MemoryFiles = field(default_factory=MemoryFiles)
    clock: ManualClock = field(default_factory=ManualClock)
    keeps_order: bool = True
    """Whether a crash keeps the order of name changes (see MemoryFiles.crash)."""

    def run(self, steps: int | None, act: Callable[[HostedLog], None]) -> bool:
        """Load the log and ``act``; False if the disk crashed meanwhile, after so many steps."""
        files = self.files
        files.crash_at_step = None if steps is None else files.steps + steps
        try:
            act(HostedLog(self.config, files=files, clock=self.clock, settings=self.settings))
        except Crashed:
            return False
        return True

    def end_process(self, killed: float) -> None:
        """End the process: with the probability ``killed`` only the process dies, and unsynced data
        may still be lost later; otherwise the power is cut."""
        is_killed = self.random.random() < killed
        if is_killed:
            self.files = self.files.killed()
        else:
            self.files = self.files.crash(self.random, keeps_order=self.keeps_order)
