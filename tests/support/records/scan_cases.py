"""The rows of a scan, and batches and messages with good and wrong CRCs for it.

The module imports no kernel but the scan's: a process that has to compile its kernels compiles one.
"""

import hashlib
import random
from collections.abc import Iterable

import numpy as np

from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.kernels import scan
from pyspark_klog.records.kernels.status import BAD_CRC, OK
from pyspark_klog.records.layout import BATCH_HEADER_BYTES, INT64_MAX
from pyspark_klog.records.legacy import encode_message


def scan_rows(data: bytes, *, check_crc: bool = True) -> tuple[int, int, list[list[int]]]:
    """Status, end of the last good entry and one row of numbers for each."""
    table = np.zeros(scan.TABLE_COLUMNS * (len(data) // 26 + 1), np.int64)
    state = np.zeros(scan.STATE_FIELDS, np.int64)
    buf = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    status = scan.scan_batches(buf, 0, len(data), int(check_crc), INT64_MAX, table, state)
    found = int(state[scan.STATE_BATCHES])
    rows = table[: found * scan.TABLE_COLUMNS].reshape(found, scan.TABLE_COLUMNS)
    return status, int(state[scan.STATE_POSITION]), rows.tolist()


def run_seeds(seeds: Iterable[int]) -> str:
    """Scan CRCs that the C libraries computed, and entries with a bit changed, for each seed;
    return a digest of all rows."""
    digest = hashlib.sha256()
    for seed in seeds:
        rng = random.Random(seed)
        builder = BatchBuilder()
        # Up to three times the blocks whose CRCs are computed at the same time, and a rest.
        builder.append(None, rng.randbytes(rng.randrange(10_000)), 0)
        batch = builder.build()
        message = encode_message(1, 1, 5, None, rng.randbytes(rng.randrange(100)))
        status, end, rows = scan_rows(batch + message)
        assert (status, end, len(rows)) == (OK, len(batch) + len(message), 2), f"seed {seed}"
        digest.update(repr(rows).encode())
        for entry in (batch, message):
            damaged = bytearray(entry)
            place = rng.randrange(BATCH_HEADER_BYTES if entry is batch else 30, len(entry))
            damaged[place] ^= 1 << rng.randrange(8)
            assert scan_rows(bytes(damaged))[:2] == (BAD_CRC, 0), f"seed {seed}"
    return digest.hexdigest()
