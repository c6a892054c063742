"""ListConfigResources (key 74): returns the resources that have settings, by type.

Version 0 is Kafka 3.9's ListClientMetricsResources, which asks for client metrics alone. klog
stores no settings of client metrics, groups or loggers, so it lists no resources of these types.
"""

from klog_broker.api.resources_without_settings import BROKER_LOGGER, CLIENT_METRICS, GROUP
from klog_broker.api.services import SettingsServices
from klog_broker.dispatch.access import on_cluster
from klog_broker.dispatch.api_handler import BrokerApi, top_level_error
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.security.acls import AclOperation
from klog_broker.topics.entries import ResourceType
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from pyspark_klog.protocol.keys import ApiKey

_KNOWN = frozenset((ResourceType.TOPIC, ResourceType.BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP))


def handle(
    services: SettingsServices, request: ListConfigResourcesRequest, context: RequestContext
) -> ResponseSteps:
    """Return the resources of the requested types; an empty list of types selects all types.
    BrokerError UNSUPPORTED_VERSION, as in Kafka, for an unknown type."""
    response = ListConfigResourcesResponse()
    if context.api_version == 0:
        return response
    types = frozenset(request.resource_types) or _KNOWN
    if not types <= _KNOWN:
        raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)
    image = services.metadata.image
    if ResourceType.BROKER in types:
        response.config_resources += [
            ConfigResource(resource_name=str(broker_id), resource_type=ResourceType.BROKER)
            for broker_id in image.brokers
        ]
    if ResourceType.TOPIC in types:
        for name in image.topics:
            yield 1
            found = ConfigResource(resource_name=name, resource_type=ResourceType.TOPIC)
            response.config_resources.append(found)
    return response


API = BrokerApi(
    ApiKey.LIST_CONFIG_RESOURCES,
    handle,
    top_level_error(ApiKey.LIST_CONFIG_RESOURCES),
    access=(on_cluster(AclOperation.DESCRIBE_CONFIGS),),
)
