"""Splits a batch in two, because the topic accepts only smaller batches or refuses one of the
batch's records. Splitting is slow, because it copies the batch record by record."""

from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder


def split_in_half(data: bytearray | memoryview) -> list[tuple[bytearray, int]]:
    """Two batches, as (bytes, record count), with the first and the second half of the records of
    batch ``data``, and with its codec and timestamps.

    A batch of one record gives one batch.
    """
    whole = BatchView(data)
    records = list(whole.records())
    middle = (len(records) + 1) // 2
    parts: list[tuple[bytearray, int]] = []
    for some in filter(None, (records[:middle], records[middle:])):
        builder = BatchBuilder(codec=whole.codec, timestamp_type=whole.timestamp_type)
        for record in some:
            builder.append(record.key, record.value, record.timestamp_ms, record.headers)
        parts.append((bytearray(builder.build()), len(some)))
    return parts
