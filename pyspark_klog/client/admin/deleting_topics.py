"""The topics whose deletion is not finished, which klog's controller names."""

from pyspark_klog.client.admin.configs import ResourceType
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.errors import KlogError
from pyspark_klog.protocol.apis.describe_configs import (
    DELETING_TOPICS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)


def deleting_topics(client: BlockingClient) -> list[str]:
    """The topics whose deletion waits for a broker or a disk, sorted.

    Metadata responses do not list these topics, and no API of Kafka does, so the controller is
    asked for a setting that only klog has. Empty if the controller is no klog broker, does not
    answer, or refuses to describe its settings.

    :raises NoBrokerAvailable: if no broker can be reached
    """
    deadline_ms = client.deadline()

    def build(_version: int) -> DescribeConfigsRequest:
        row = DescribeConfigsResource(
            resource_type=ResourceType.BROKER,
            resource_name=str(controller_id),
            configuration_keys=[DELETING_TOPICS],
        )
        return DescribeConfigsRequest(resources=[row])

    controller_id = client.refresh([], deadline_ms).controller_id
    try:
        link = client.link_to_broker(controller_id, deadline_ms)
        response = client.call(link, DescribeConfigsResponse, build)
    except KlogError:
        return []
    values = [
        row.value
        for result in response.results
        for row in result.configs
        if row.name == DELETING_TOPICS
    ]
    return sorted(name for value in values if value for name in value.split(","))
