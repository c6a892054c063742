"""The data directories of brokers, and how large the replicas in them are (DescribeLogDirs)."""

from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark_klog.client.admin.brokers import call_broker
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import broker_error, error_code
from pyspark_klog.client.transport.socket_link import Link
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)


class ReplicaSize(NamedTuple):
    """A replica in a data directory. ``offset_lag`` is the number of offsets by which its log ends
    before the high watermark. With ``is_future`` the replica is a copy that is being moved to this
    directory, and is compared with the log end offset of the replica that serves requests."""

    size_bytes: int
    offset_lag: int
    is_future: bool = False


@dataclass(frozen=True, slots=True)
class LogDir:
    """A data directory of a broker. ``total_bytes`` and ``usable_bytes`` are -1 for brokers before
    Kafka 3.3; ``error`` is KAFKA_STORAGE_ERROR if the directory is offline."""

    broker_id: int
    path: str
    error: ErrorCode = ErrorCode.NONE
    total_bytes: int = -1
    usable_bytes: int = -1
    replicas: dict[TopicPartition, ReplicaSize] = field(default_factory=dict)


def describe_log_dirs(
    client: BlockingClient, broker_id: int, deadline_ms: int | None = None
) -> list[LogDir]:
    """The data directories of a broker, sorted by path.

    :raises BrokerError: if the broker refuses the request, or no live broker has the id
    """

    def ask(link: Link) -> list[LogDir]:
        request = DescribeLogDirsRequest(topics=None)
        response = client.call(link, DescribeLogDirsResponse, lambda _: request)
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            raise broker_error(code, f"describe log directories of broker {broker_id}")
        return [_log_dir(broker_id, row) for row in response.results]

    what = "asking for the log directories"
    found = call_broker(client, broker_id, ask, what, deadline_ms)
    return sorted(found, key=lambda each: each.path)


def _log_dir(broker_id: int, row: DescribeLogDirsResult) -> LogDir:
    return LogDir(
        broker_id,
        row.log_dir,
        error_code(row.error_code),
        row.total_bytes,
        row.usable_bytes,
        {
            TopicPartition(topic.name, each.partition_index): ReplicaSize(
                each.partition_size, each.offset_lag, each.is_future_key
            )
            for topic in row.topics
            for each in topic.partitions
        },
    )
