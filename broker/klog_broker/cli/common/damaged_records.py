"""Errors about damaged records, as commands show them."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark_klog.client.consumer.continuous_reader import Fetched
from pyspark_klog.records.errors import RecordsError


@contextmanager
def damage_named(fetched: Fetched) -> Iterator[None]:
    """Name the topic, the partition and the fetch offset in a RecordsError of these records."""
    try:
        yield
    except RecordsError as error:
        raise type(error)(
            f"{fetched.partition}, in the records fetched from offset {fetched.start}: {error}"
        ) from error
