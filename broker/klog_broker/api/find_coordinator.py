"""FindCoordinator: returns the broker that coordinates a group or a transactional id."""

from typing import Any

from klog_broker.api.services import FindCoordinatorServices
from klog_broker.coordinator_hosting.state_topics import CoordinatorResult
from klog_broker.dispatch.access import on_groups, on_transactional_ids
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.metadata.image import NO_BROKER
from klog_broker.resources.authorizer import is_allowed
from klog_broker.security.acls import AclOperation, AclResourceType
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis import find_coordinator as api
from pyspark_klog.protocol.keys import ApiKey

GROUP = 0
TRANSACTION = 1
SHARE = 2

# Cost of finding the coordinator of one key, in units of about 5 us of the event loop's time
# (runtime/event_loop/slices.py).
_KEY = 5


_RESOURCES = {
    GROUP: (AclResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    TRANSACTION: (
        AclResourceType.TRANSACTIONAL_ID,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
}
"""By coordinator type: the resource type of a key, and the error for a client that may not describe
this resource."""


def _refused(code: ErrorCode, text: str | None = None) -> CoordinatorResult:
    return CoordinatorResult(code, NO_BROKER, "", -1, text or code.message)


def _find(
    services: FindCoordinatorServices, key_type: int, key: str, context: RequestContext
) -> CoordinatorResult:
    if key_type == SHARE:
        return _refused(ErrorCode.INVALID_REQUEST, "this broker has no share groups (KIP-932)")
    if key_type not in (GROUP, TRANSACTION):
        return _refused(ErrorCode.INVALID_REQUEST, f"{key_type} is not a type of coordinator")
    resource_type, code = _RESOURCES[key_type]
    if not is_allowed(services, context, AclOperation.DESCRIBE, resource_type, key):
        return _refused(code)
    finder = services.group_finder if key_type == GROUP else services.transaction_finder
    return finder.find(key, context)


def handle(
    services: FindCoordinatorServices, request: api.FindCoordinatorRequest, context: RequestContext
) -> ResponseSteps:
    if context.api_version >= 4:
        answers = []
        for key in request.coordinator_keys:
            yield _KEY
            answers.append(_entry(key, _find(services, request.key_type, key, context)))
        return api.FindCoordinatorResponse(coordinators=answers)
    found = _find(services, request.key_type, request.key, context)
    return api.FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.message,
        node_id=found.broker_id,
        host=found.host,
        port=found.port,
    )


def _entry(key: str, found: CoordinatorResult) -> api.Coordinator:
    return api.Coordinator(
        key=key,
        node_id=found.broker_id,
        host=found.host,
        port=found.port,
        error_code=found.error_code,
        error_message=found.message,
    )


def error_response(request: Any, code: ErrorCode) -> api.FindCoordinatorResponse:
    # Only requests of version 4 and later have their keys in a list, and get a list in response.
    if request.coordinator_keys:
        refused = _refused(code)
        entries = [_entry(key, refused) for key in request.coordinator_keys]
        return api.FindCoordinatorResponse(coordinators=entries)
    return api.FindCoordinatorResponse(error_code=code)


API = BrokerApi(
    ApiKey.FIND_COORDINATOR,
    handle,
    error_response,
    access=(
        on_groups(AclOperation.DESCRIBE),
        on_transactional_ids(AclOperation.DESCRIBE),
    ),
)
