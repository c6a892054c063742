"""Keeps the cleaner's reading and writing below log.cleaner.io.max.bytes.per.second."""

import math


class Throttle:
    """Computes how long a cleaning round pauses after each step, so that all rounds together read
    and write, on average, no more bytes per second than the limit."""

    def __init__(self, max_bytes_per_second: float) -> None:
        self._rate = max_bytes_per_second
        self._paid_until_ms = -math.inf

    def pause_ms(self, work_bytes: int, now_ms: int) -> int:
        """Return how many ms a cleaning round (of one log) must wait after it has read and
        written ``work_bytes``. All running rounds share one rate."""
        if math.isinf(self._rate):
            return 0
        self._paid_until_ms = max(self._paid_until_ms, now_ms) + work_bytes * 1000 / self._rate
        return math.ceil(self._paid_until_ms - now_ms)
