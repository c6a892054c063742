"""How far the loading of the data directories has come: lines of it, and whether it is to go on."""

import logging
from collections.abc import Callable
from pathlib import Path

from klog_broker.log.errors import LoadingGivenUp
from klog_broker.log.validation.kernel_checks import kernel_checks
from klog_broker.log.validation.record_checks import RecordChecks
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.system.rate_limit import RateLimit
from klog_broker.runtime.threads.locks import make_lock

_log = logging.getLogger("klog.log")
_PROGRESS_MS = 5_000
# What plain Python looks through takes up to a hundred times as long as the kernels, which take
# half a second to load.
_MUCH_TO_SCAN_BYTES = 8 << 20


class ScanTotal:
    """How many bytes have to be looked through in all logs together; for any thread."""

    def __init__(self) -> None:
        self._lock = make_lock()
        self._bytes = 0

    def checks_for(self, size_bytes: int) -> RecordChecks | None:
        """So many bytes more: the compiled checks if they are worth their loading by now."""
        with self._lock:
            self._bytes += size_bytes
            return kernel_checks() if self._bytes > _MUCH_TO_SCAN_BYTES else None


class LoadingTally:
    """What the loading of one directory's logs came to; while it goes on a line now and then. Any
    thread of those that load may use it."""

    def __init__(
        self,
        directory: Path,
        logs: int,
        clock: Clock,
        total: ScanTotal,
        is_wanted: Callable[[], bool],
    ) -> None:
        self.total = total
        self._directory = directory
        self._all = logs
        self._clock = clock
        self._is_wanted = is_wanted
        self._lock = make_lock()
        self._began_ms = clock.monotonic_ms()
        self._progress = RateLimit(_PROGRESS_MS)
        self._progress.allows(self._began_ms)
        self._logs = 0
        self._recovered = 0
        self._cut = 0
        self._cut_bytes = 0
        self._bytes = 0

    def looked_through(self, log: Path, size_bytes: int) -> None:
        """So many bytes more of a log. LoadingGivenUp if the broker is to stop."""
        if not self._is_wanted():
            raise LoadingGivenUp("the broker stops")
        with self._lock:
            self._bytes += size_bytes
            self._tell_progress(log)

    def loaded(self, log: Path, *, was_unclean: bool, cut_bytes: int) -> None:
        """One log more."""
        with self._lock:
            self._logs += 1
            self._recovered += was_unclean
            self._cut += cut_bytes > 0
            self._cut_bytes += cut_bytes
            self._tell_progress(log)

    def _tell_progress(self, log: Path) -> None:
        if self._progress.allows(self._clock.monotonic_ms()):
            _log.info(
                "log_dir=%s loading logs=%d of=%d looked_through_bytes=%d now=%s",
                self._directory,
                self._logs,
                self._all,
                self._bytes,
                log.name,
            )

    def tell(self) -> None:
        """That was all."""
        _log.info(
            "log_dir=%s loaded logs=%d recovered=%d cut=%d cut_bytes=%d looked_through_bytes=%d "
            "took_ms=%d",
            self._directory,
            self._logs,
            self._recovered,
            self._cut,
            self._cut_bytes,
            self._bytes,
            self._clock.monotonic_ms() - self._began_ms,
        )
