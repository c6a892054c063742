"""What a transaction-aware reader of a partition sees, worked out of all its batches."""

from pyspark_klog.records.batch import split_batches
from pyspark_klog.records.control import ControlType, control_type_of
from tests.support.raw_client import RawClient
from tests.support.raw_requests import fetch, first_partition


def committed_values(client: RawClient, topic: str, partition: int = 0) -> list[bytes]:
    """Values of committed transactions, in the order of the log.

    Raises AssertionError if a transaction is open.
    """
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
                kind = control_type_of(next(iter(batch.records())).key)
                ended = open_records.pop(batch.producer_id, [])
                if kind is ControlType.ABORT:
                    for each in ended:
                        del values[each]
            else:
                for record in batch.records():
                    values[record.offset] = record.value or b""
                    if batch.is_transactional:
                        open_records.setdefault(batch.producer_id, []).append(record.offset)
            offset = batch.next_offset
    assert not open_records, f"open transactions of {list(open_records)}"
    return [values[each] for each in sorted(values)]
