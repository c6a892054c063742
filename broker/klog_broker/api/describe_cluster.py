"""DescribeCluster: returns the cluster's id, controller and brokers."""

from typing import Any

from klog_broker.api.services import TopicsServices
from klog_broker.dispatch.access import NO_ACCESS
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.resources.operations import cluster_operations
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from pyspark_klog.protocol.keys import ApiKey

_BROKERS = 1
_CONTROLLERS = 2


def handle(
    services: TopicsServices, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    if request.endpoint_type != _BROKERS:
        is_known = request.endpoint_type == _CONTROLLERS
        raise BrokerError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        )
    image = services.metadata.image
    response = DescribeClusterResponse(
        cluster_id=image.cluster_id, controller_id=image.controller_id
    )
    for broker in image.brokers.values():
        address = broker.endpoint(context.listener)
        if address is not None:
            response.brokers.append(
                DescribeClusterBroker(
                    broker_id=broker.broker_id,
                    host=address.host,
                    port=address.port,
                    rack=broker.rack,
                )
            )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(services, context)
    return response


def error_response(request: Any, code: ErrorCode) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        error_code=code, error_message=code.message, endpoint_type=request.endpoint_type
    )


API = BrokerApi(ApiKey.DESCRIBE_CLUSTER, handle, error_response, access=NO_ACCESS)
