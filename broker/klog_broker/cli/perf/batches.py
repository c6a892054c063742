"""The batches that `klog perf produce` writes: made once, and sent many times.

The measurement covers broker, network and client, but not the creation of records in Python.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pyspark_klog.client.errors import SettingError
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import compressed_batch, plain_batch
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.layout import BATCH_HEADER_BYTES

_DIFFERENT = 4
"""How many batches, each with the next of the given values, are made for each number of records in
a batch. After that, these batches are sent again in turn."""
_OVERHEAD_BYTES = 20
"""The most bytes that a record without key and headers takes in addition to its value."""


def random_payloads(size_bytes: int, count: int) -> list[bytes]:
    """Return random values of capital letters, like those of kafka-producer-perf-test; gzip and
    zstd compress them to about 60 % of their size, lz4 and snappy not at all."""
    letters = np.random.default_rng().integers(65, 91, size_bytes * count, dtype=np.uint8).tobytes()
    return [letters[at : at + size_bytes] for at in range(0, size_bytes * count, size_bytes)]


def read_payloads(file: Path, delimiter: str) -> list[bytes]:
    """Split a file into the values of records.

    :raises SettingError: if the file cannot be read or has no values, or the delimiter is empty
    """
    if not delimiter:
        raise SettingError("--payload-delimiter is empty; expected the text between payloads")
    try:
        pieces = file.read_bytes().split(delimiter.encode())
    except OSError as error:
        raise SettingError(f"cannot read {file}: {error.strerror}") from None
    payloads = [piece for piece in pieces if piece]
    if not payloads:
        raise SettingError(
            f"{file} holds no payloads; expected payloads with the --payload-delimiter between them"
        )
    return payloads


def records_a_batch(payload_bytes: int, batch_bytes: int) -> int:
    """Return how many records with values of ``payload_bytes`` fit into a batch, at least one."""
    return max((batch_bytes - BATCH_HEADER_BYTES) // (payload_bytes + _OVERHEAD_BYTES), 1)


class BatchSource:
    """Makes batches of any number of records, using the given values in turn."""

    def __init__(self, payloads: Sequence[bytes], codec: Codec, level: int | None) -> None:
        self._payloads = payloads
        self._codec = codec
        self._level = level
        self._made: dict[int, list[tuple[bytes, int]]] = {}
        """By number of records: the batches made so far, each with the total size of its values in
        bytes."""
        self._next = 0
        self._turn = 0

    def next_batch(self, record_count: int, now_ms: int) -> tuple[bytearray, int]:
        """Return a batch of `record_count` records with the timestamp `now_ms`, and the total size
        of its values in bytes."""
        made = self._made.setdefault(record_count, [])
        if len(made) < _DIFFERENT:
            made.append(self._make(record_count))
        self._turn += 1
        source, payload_bytes = made[self._turn % len(made)]
        batch = bytearray(source)
        BatchView(batch).set_times(now_ms)
        return batch, payload_bytes

    def _make(self, record_count: int) -> tuple[bytes, int]:
        count = len(self._payloads)
        values = [self._payloads[(self._next + each) % count] for each in range(record_count)]
        self._next = (self._next + record_count) % count
        batch = plain_batch([(None, value) for value in values], 0)
        if self._codec is not Codec.NONE:
            batch = compressed_batch(batch, record_count, 0, self._codec, self._level)
        return bytes(batch), sum(map(len, values))
