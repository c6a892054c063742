"""Which producer ids an adopted directory has handed out, as far as its logs remember."""

from collections.abc import Iterable, Iterator

from klog_broker.log.partition_log import PartitionLog
from klog_broker.metadata.image import TRANSACTION_STATE
from pyspark_klog.errors import KlogError
from pyspark_klog.records.batch import split_batches
from pyspark_klog.state_records.transaction_log import decode_value

# Clients may write any producer id. One above this is ignored: the next ids would be used up soon.
_HIGHEST_PRODUCER_ID = 1 << 62
_READ_BYTES = 1 << 20


def highest_producer_id(logs: Iterable[PartitionLog]) -> int:
    """The highest producer id in use. Handed out again, two producers would have the same one.

    Ids of transactions that have written nothing stand only in ``__transaction_state``. Blocks.
    """
    ids = (each for log in logs for each in _ids(log))
    return max((each for each in ids if each < _HIGHEST_PRODUCER_ID), default=-1)


def _ids(log: PartitionLog) -> Iterator[int]:
    for producer in log.producers:
        yield producer.producer_id
    if log.topic_partition.topic == TRANSACTION_STATE:
        yield from _ids_of_transactions(log)


def _ids_of_transactions(log: PartitionLog) -> Iterator[int]:
    """Damaged and unknown records are left to the coordinator, which says so when it loads them."""
    offset: int = log.log_start_offset
    end_offset = log.log_end_offset
    while offset < end_offset:
        region = log.read(offset, _READ_BYTES, end_offset=end_offset, min_one_batch=True).region
        data = b"" if region is None else region.file.pread(region.size, region.position)
        batches = list(split_batches(data, allow_partial=True))
        if not batches:
            return
        for batch in batches:
            for record in batch.records():
                if record.value is not None and not batch.is_control:
                    try:
                        value = decode_value(record.value)
                    except KlogError:
                        continue
                    yield max(value.producer_id, value.next_producer_id)
        offset = batches[-1].next_offset
