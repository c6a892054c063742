"""What the handlers of transactions share: who asks, and errors by the version of the API."""

from collections.abc import Iterable

from klog_broker.coordinator.transaction.metadata import VERSION_PLAIN, VERSION_RAISING
from klog_broker.resources.led_partitions import PartitionServices
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition

FENCED_SINCE = 2
"""AddPartitionsToTxn, AddOffsetsToTxn and EndTxn answer PRODUCER_FENCED from this version on
(KIP-588); clients of the ones before know INVALID_PRODUCER_EPOCH for it."""


def as_known_by(error: ErrorCode, version: int, fenced_since: int = FENCED_SINCE) -> ErrorCode:
    """The error as clients of this version of the API know it."""
    if error is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def client_version(api_version: int, raising_since: int) -> int:
    """The client's transaction.version, which it tells by the version of its request (KIP-890)."""
    return VERSION_RAISING if api_version >= raising_since else VERSION_PLAIN


def absent_partitions(
    services: PartitionServices, partitions: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """Those that do not exist."""
    image = services.metadata.image
    return [each for each in partitions if image.partition(*each) is None]
