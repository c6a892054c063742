"""DescribeClientQuotas (key 48): returns the quotas of users, clients and addresses."""

from klog_broker.api.services import SettingsServices
from klog_broker.dispatch.access import on_cluster
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.error_messages import client_text
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.quota.filters import checked_filter
from klog_broker.security.acls import AclOperation
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from pyspark_klog.protocol.keys import ApiKey

# How many entities can be compared with the filter in about 5 us of the event loop's time, the unit
# of cost that the handler yields (runtime/event_loop/slices.py).
_LOOKED_AT = 5


def handle(
    services: SettingsServices, request: DescribeClientQuotasRequest, _: RequestContext
) -> ResponseSteps:
    """Return the quotas of the entities that match the request's filter. A filter without
    components matches all entities, or no entity if the filter is strict."""
    try:
        wanted = checked_filter(
            ((each.entity_type, each.match_type, each.match) for each in request.components),
            strict=request.strict,
        )
    except BrokerError as error:
        return _failed(error.code, client_text(error))
    entries = []
    quotas_of = services.metadata.image.client_quotas
    for number, (entity, quotas) in enumerate(quotas_of.items()):
        if number % _LOOKED_AT == 0:
            yield 1
        if wanted.matches(entity):
            yield 1
            names = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
            values = [ValueData(key=key, value=value) for key, value in quotas.items()]
            entries.append(EntryData(entity=names, values=values))
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


def _failed(code: ErrorCode, text: str) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=text, entries=None)


def error_response(_: DescribeClientQuotasRequest, code: ErrorCode) -> DescribeClientQuotasResponse:
    """Return a response with ``code`` and without quotas."""
    return _failed(code, code.message)


API = BrokerApi(
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    handle,
    error_response,
    access=(on_cluster(AclOperation.DESCRIBE_CONFIGS),),
)
