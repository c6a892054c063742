"""DescribeUserScramCredentials (key 50): no user has credentials here."""

from collections import Counter

from klog_broker.dispatch.access import on_cluster
from klog_broker.dispatch.api_handler import BrokerApi, top_level_error
from klog_broker.dispatch.request_context import AnswerSteps, RequestContext
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
) -> AnswerSteps:
    """No users ask for all of them. A user who is named twice is answered once, with an error."""
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
