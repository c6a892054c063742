"""One log on a disk in memory, with the log manager, helpers and clock that it runs on."""

from typing import Any

from klog_broker.log.log_config import LogConfig
from klog_broker.log.manager.log_manager import LogManager
from klog_broker.log.partition_log import PartitionLog
from tests.support.cluster.helpers import Helpers
from tests.support.log.harness import PARTITION, SMALL, TOPIC_ID, open_manager
from tests.support.runtime.manual_clock import ManualClock
from tests.support.runtime.memory_files import MemoryFiles


class HostedLog:
    """The log of PARTITION, which is created if the disk does not have it."""

    manager: LogManager
    log: PartitionLog

    def __init__(
        self,
        config: LogConfig = SMALL,
        *,
        files: MemoryFiles | None = None,
        helpers: Helpers | None = None,
        clock: ManualClock | None = None,
        **options: Any,
    ) -> None:
        """Work of the helpers waits for the test by default. ``options`` as for `open_manager`."""
        self.files = files or MemoryFiles()
        self.helpers = helpers or Helpers.held()
        self.clock = clock or ManualClock()
        self.manager = open_manager(
            self.files, config=config, helpers=self.helpers, clock=self.clock, **options
        )
        self.log = self.manager.create(PARTITION, TOPIC_ID, config)
