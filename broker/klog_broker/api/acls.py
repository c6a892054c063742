"""DescribeAcls, CreateAcls and DeleteAcls (keys 29 to 31): answer SECURITY_DISABLED.

klog stores no ACLs. Kafka's brokers without an authorizer answer with the same error.
"""

from klog_broker.dispatch.access import on_cluster
from klog_broker.dispatch.api_handler import BrokerApi
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.security.acls import AclOperation
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from pyspark_klog.protocol.apis.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from pyspark_klog.protocol.apis.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from pyspark_klog.protocol.keys import ApiKey


def handle_describe(
    _services: object, request: DescribeAclsRequest, _: RequestContext
) -> DescribeAclsResponse:
    return _described(request, ErrorCode.SECURITY_DISABLED)


def handle_create(
    _services: object, request: CreateAclsRequest, _: RequestContext
) -> CreateAclsResponse:
    return _created(request, ErrorCode.SECURITY_DISABLED)


def handle_delete(
    _services: object, request: DeleteAclsRequest, _: RequestContext
) -> DeleteAclsResponse:
    return _deleted(request, ErrorCode.SECURITY_DISABLED)


def _described(_: DescribeAclsRequest, code: ErrorCode) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=code, error_message=code.message)


def _created(request: CreateAclsRequest, code: ErrorCode) -> CreateAclsResponse:
    """Return a response with ``code`` for every ACL in the request."""
    result = AclCreationResult(error_code=code, error_message=code.message)
    return CreateAclsResponse(results=[result] * len(request.creations))


def _deleted(request: DeleteAclsRequest, code: ErrorCode) -> DeleteAclsResponse:
    """Return a response with ``code`` for every filter in the request."""
    result = DeleteAclsFilterResult(error_code=code, error_message=code.message)
    return DeleteAclsResponse(filter_results=[result] * len(request.filters))


DESCRIBE = BrokerApi(
    ApiKey.DESCRIBE_ACLS, handle_describe, _described, access=(on_cluster(AclOperation.DESCRIBE),)
)
CREATE = BrokerApi(
    ApiKey.CREATE_ACLS, handle_create, _created, access=(on_cluster(AclOperation.ALTER),)
)
DELETE = BrokerApi(
    ApiKey.DELETE_ACLS, handle_delete, _deleted, access=(on_cluster(AclOperation.ALTER),)
)
