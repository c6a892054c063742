"""Counts and logs how far the loading of the data directories is, and stops it at a shutdown."""

import logging
from collections.abc import Callable
from pathlib import Path

from klog_broker.log.errors import LoadingCancelled
from klog_broker.log.validation.kernel_checks import kernel_checks
from klog_broker.log.validation.record_checks import RecordChecks
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.system.rate_limit import RateLimit
from klog_broker.runtime.threads.locks import make_lock

_log = logging.getLogger("klog.log")
_PROGRESS_MS = 5_000
# Plain Python checks records up to a hundred times slower than the kernels (the checks that numba
# has compiled), but loading the kernels takes half a second. If fewer bytes than this are to be
# checked, plain Python is faster.
_KERNELS_FROM_BYTES = 8 << 20


class ScanTotal:
    """Sums up how many bytes need to be checked in the logs of all directories. Any thread may use
    it."""

    def __init__(self) -> None:
        self._lock = make_lock()
        self._bytes = 0

    def checks_for(self, size_bytes: int) -> RecordChecks | None:
        """Add ``size_bytes`` to the total; return the record checks compiled by numba if they are
        worth loading.

        Returns None as long as the total is so small that record checks in plain Python are faster.
        """
        with self._lock:
            self._bytes += size_bytes
            return kernel_checks() if self._bytes > _KERNELS_FROM_BYTES else None


class LoadingTally:
    """Counts the loaded logs of one data directory, and logs the progress at most every five
    seconds.

    Every thread that loads logs may use it.
    """

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

    def add_checked_bytes(self, log: Path, size_bytes: int) -> None:
        """Count ``size_bytes`` more as checked. Raises LoadingCancelled if the broker shuts
        down."""
        if not self._is_wanted():
            raise LoadingCancelled("loading was given up, because the broker shuts down")
        with self._lock:
            self._bytes += size_bytes
            self._log_progress(log)

    def add_log(self, log: Path, *, was_unclean: bool, cut_bytes: int) -> None:
        """Count one loaded log."""
        with self._lock:
            self._logs += 1
            self._recovered += was_unclean
            self._cut += cut_bytes > 0
            self._cut_bytes += cut_bytes
            self._log_progress(log)

    def _log_progress(self, log: Path) -> None:
        if self._progress.allows(self._clock.monotonic_ms()):
            _log.info(
                "log_dir=%s loading logs=%d of=%d looked_through_bytes=%d now=%s",
                self._directory,
                self._logs,
                self._all,
                self._bytes,
                log.name,
            )

    def log_totals(self) -> None:
        """Log the final counts: all logs of the directory are loaded."""
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
