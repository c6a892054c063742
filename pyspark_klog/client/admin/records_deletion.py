"""Delete the records of partitions before an offset (DeleteRecords)."""

from collections.abc import Mapping

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.cluster.leaders import LeaderResults, call_leaders
from pyspark_klog.client.errors import error_code
from pyspark_klog.client.transport.socket_link import Link
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

HIGH_WATERMARK = -1
"""An offset for `delete_records` that means the partition's high watermark."""


def delete_records(
    client: BlockingClient,
    before: Mapping[TopicPartition, int],
    deadline_ms: int | None = None,
) -> LeaderResults[int]:
    """Delete the records before an offset in each partition, for ever.

    Returns each partition's low watermark: the lowest log start offset of its live replicas.
    Brokers refuse an offset above the high watermark with OFFSET_OUT_OF_RANGE, and a topic that is
    only compacted with POLICY_VIOLATION.
    """
    deadline = client.deadline() if deadline_ms is None else deadline_ms

    def request_deletion(
        link: Link, by_topic: dict[str, list[int]]
    ) -> dict[TopicPartition, int | ErrorCode]:
        timeout_ms = client.settings.number("request.timeout.ms")
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsPartition(
                            partition_index=number, offset=before[TopicPartition(topic, number)]
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic.items()
            ],
            timeout_ms=timeout_ms,
        )
        response = client.call(
            link, DeleteRecordsResponse, lambda _: request, timeout_ms=timeout_ms
        )
        return {
            TopicPartition(topic.name, row.partition_index): row.low_watermark
            if row.error_code == ErrorCode.NONE
            else error_code(row.error_code)
            for topic in response.topics
            for row in topic.partitions
        }

    return call_leaders(client, before, request_deletion, "delete records", deadline)
