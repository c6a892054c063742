"""DescribeUserScramCredentials (key 50): answers that no user has credentials."""

from collections import Counter

from klog_broker.dispatch.access import on_cluster
from klog_broker.dispatch.api_handler import BrokerApi, top_level_error
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.security.acls import AclOperation
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from pyspark_klog.protocol.keys import ApiKey


def handle(
    _services: object, request: DescribeUserScramCredentialsRequest, _: RequestContext
) -> ResponseSteps:
    """Return RESOURCE_NOT_FOUND for each user in the request. A request without users selects all
    users, of which there are none. A user who is named twice gets one result,
    DUPLICATE_RESOURCE."""
    response = DescribeUserScramCredentialsResponse(error_message=None)
    for user, times in Counter(each.name for each in request.users or ()).items():
        yield 1
        code = ErrorCode.RESOURCE_NOT_FOUND if times == 1 else ErrorCode.DUPLICATE_RESOURCE
        response.results.append(
            DescribeUserScramCredentialsResult(
                user=user, error_code=code, error_message=code.message
            )
        )
    return response


API = BrokerApi(
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    handle,
    top_level_error(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS),
    access=(on_cluster(AclOperation.DESCRIBE),),
)
