"""The view of a transaction-aware reader of a partition, computed from all of its batches."""

from dataclasses import dataclass, field

from pyspark_klog.records.batch import BatchView, split_batches
from pyspark_klog.records.control import ControlType, control_type_of
from tests.support.raw_client import RawClient
from tests.support.raw_requests import fetch, first_partition


@dataclass
class Reading:
    """The whole of a partition."""

    values: list[bytes] = field(default_factory=list)
    """Values of committed and non-transactional records, in the order of the log."""
    commits: int = 0
    aborts: int = 0
    """Numbers of markers."""
    aborted_records: int = 0
    open_producers: list[int] = field(default_factory=list)
    """Producer ids whose transaction has not ended."""


def committed_values(client: RawClient, topic: str, partition: int = 0) -> list[bytes]:
    """Values of committed transactions, in the order of the log.

    Raises AssertionError if a transaction is open.
    """
    reading = read_partition(client, topic, partition)
    assert not reading.open_producers, f"open transactions of {reading.open_producers}"
    return reading.values


def read_partition(client: RawClient, topic: str, partition: int = 0) -> Reading:
    """Read all batches up to the high watermark, and apply their markers."""
    reading = Reading()
    open_records: dict[int, list[int]] = {}
    values: dict[int, bytes] = {}
    offset = 0
    while True:
        answer = fetch(client, topic, offset=offset, partitions=(partition,))
        data = bytes(first_partition(answer).records or b"")
        if not data:
            break
        for batch in split_batches(data, allow_partial=True):
            if batch.is_control:
                _end(batch, open_records, values, reading)
            else:
                for record in batch.records():
                    values[record.offset] = record.value or b""
                    if batch.is_transactional:
                        open_records.setdefault(batch.producer_id, []).append(record.offset)
            offset = batch.next_offset
    reading.values = [values[each] for each in sorted(values)]
    reading.open_producers = list(open_records)
    return reading


def _end(
    batch: BatchView,
    open_records: dict[int, list[int]],
    values: dict[int, bytes],
    reading: Reading,
) -> None:
    kind = control_type_of(next(iter(batch.records())).key)
    ended = open_records.pop(batch.producer_id, [])
    if kind is ControlType.ABORT:
        reading.aborts += 1
        reading.aborted_records += len(ended)
        for each in ended:
            del values[each]
    else:
        reading.commits += 1
