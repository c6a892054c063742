"""Keeps the cleaner's reading and writing below log.cleaner.io.max.bytes.per.second."""

import math


class Throttle:
    """Computes pauses that follow work, so that the average rate stays below the limit."""

    def __init__(self, max_bytes_per_second: float) -> None:
        self._rate = max_bytes_per_second
        self._paid_until_ms = -math.inf

    def pause_ms(self, work_bytes: int, now_ms: int) -> int:
        """Return how many ms a round waits after this work. All running rounds share one rate."""
        if math.isinf(self._rate):
            return 0
        self._paid_until_ms = max(self._paid_until_ms, now_ms) + work_bytes * 1000 / self._rate
        return math.ceil(self._paid_until_ms - now_ms)
