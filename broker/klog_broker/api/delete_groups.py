"""DeleteGroups: deletes groups that have no members, with all their offsets."""

from klog_broker.api.services import GroupServices
from klog_broker.coordinator.group.deletions import GroupCodes
from klog_broker.dispatch.access import on_groups
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.resources.authorizer import is_allowed
from klog_broker.security.acls import AclOperation, AclResourceType
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from pyspark_klog.protocol.keys import ApiKey


def handle(services: GroupServices, request: DeleteGroupsRequest, context: RequestContext) -> None:
    """Answer with one result for each group. A group that the request names twice has only one
    result, as in Kafka."""

    denied: GroupCodes = {}
    group_ids: list[str] = []
    for group_id in dict.fromkeys(request.groups_names):
        if is_allowed(services, context, AclOperation.DELETE, AclResourceType.GROUP, group_id):
            group_ids.append(group_id)
        else:
            denied[group_id] = ErrorCode.GROUP_AUTHORIZATION_FAILED

    def answer(codes: GroupCodes) -> None:
        context.response_sink.send_in_slices(_response({**codes, **denied}))

    services.groups.deletions.delete_groups(group_ids, answer)


def _response(codes: GroupCodes) -> ResponseSteps:
    response = DeleteGroupsResponse()
    for group_id, code in codes.items():
        yield 1
        response.results.append(DeletableGroupResult(group_id=group_id, error_code=code))
    return response


def _error(request: DeleteGroupsRequest, code: ErrorCode) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=code)
            for group_id in dict.fromkeys(request.groups_names)
        ]
    )


API = BrokerApi(ApiKey.DELETE_GROUPS, handle, _error, access=(on_groups(AclOperation.DELETE),))
