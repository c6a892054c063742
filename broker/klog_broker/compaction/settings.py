"""How the log cleaner works, for all logs; what differs by topic is in LogConfig."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class CleanerSettings:
    """See Kafka's settings log.cleaner.*."""

    enabled: bool = True
    # How many logs may be compacted at the same time; at least 1.
    threads: int = 1
    # The memory of all threads together for the map of keys; more than 1 MiB for each.
    dedupe_buffer_bytes: int = 128 << 20
    # The part of a map that may be filled: above 0, at most 1.
    load_factor: float = 0.9
    # Reading and writing of all threads together, on average; above 0, math.inf without limit.
    max_bytes_per_second: float = math.inf
    # How long to wait after no log was found that is to be compacted.
    backoff_ms: int = 15_000
