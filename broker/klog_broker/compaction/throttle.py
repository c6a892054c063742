"""Keeps the cleaner's reading and writing below log.cleaner.io.max.bytes.per.second."""

import math


class Throttle:
    """Work is done first and waited for afterwards, so that the average holds."""

    def __init__(self, max_bytes_per_second: float) -> None:
        self._rate = max_bytes_per_second
        self._paid_until_ms = -math.inf

    def pause_ms(self, work_bytes: int, now_ms: int) -> int:
        """How long to wait after this work, which all rounds together have to pay for."""
        if math.isinf(self._rate):
            return 0
        self._paid_until_ms = max(self._paid_until_ms, now_ms) + work_bytes * 1000 / self._rate
        return math.ceil(self._paid_until_ms - now_ms)
