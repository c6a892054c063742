"""The settings of the log cleaner that hold for all logs; LogConfig has the cleaning settings of a
single topic."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class CleanerSettings:
    """Kafka's settings log.cleaner.*."""

    enabled: bool = True
    # How many logs may be cleaned at the same time; at least 1.
    threads: int = 1
    # The memory for the maps of keys of all threads together; more than 1 MiB for each thread.
    dedupe_buffer_bytes: int = 128 << 20
    # The fraction of the places for keys in a map that may be filled: above 0, at most 1.
    load_factor: float = 0.9
    # The limit for the bytes that all threads read and write in a second, on average; above 0,
    # math.inf for no limit.
    max_bytes_per_second: float = math.inf
    # How long the cleaner waits until it checks all logs again, if the last check found too few
    # logs for all threads, or a round failed.
    backoff_ms: int = 15_000
