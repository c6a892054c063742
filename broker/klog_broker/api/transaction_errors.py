"""Shared parts of the transaction APIs: the errors that each API version knows, and the search for
partitions that the metadata image does not have."""

from collections.abc import Iterable

from klog_broker.coordinator.transaction.transaction_metadata import VERSION_PLAIN, VERSION_RAISING
from klog_broker.resources.led_partitions import PartitionServices
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition

FENCED_SINCE = 2
"""The first version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn that answers PRODUCER_FENCED
(KIP-588). Earlier versions answer INVALID_PRODUCER_EPOCH instead."""


def as_known_by(error: ErrorCode, version: int, fenced_since: int = FENCED_SINCE) -> ErrorCode:
    """Return ``error``, or an older error for clients of a version that does not know
    PRODUCER_FENCED."""
    if error is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def client_version(api_version: int, raising_since: int) -> int:
    """Return the client's transaction.version, which follows from its request's version
    (KIP-890)."""
    return VERSION_RAISING if api_version >= raising_since else VERSION_PLAIN


def absent_partitions(
    services: PartitionServices, partitions: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """Return the partitions that are not in the metadata image."""
    image = services.metadata.image
    return [each for each in partitions if image.partition(*each) is None]
