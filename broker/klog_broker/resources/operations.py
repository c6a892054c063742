"""The operations that a client is allowed, as a bit set of Kafka's ACL operations (KIP-430)."""

from klog_broker.dispatch.request_context import RequestContext
from klog_broker.resources.authorizer import ALLOWS_ALL, AuthorizerServices, is_allowed
from klog_broker.security.acls import CLUSTER_NAME, AclOperation, AclResourceType

_READ = 1 << AclOperation.READ
_WRITE = 1 << AclOperation.WRITE
_CREATE = 1 << AclOperation.CREATE
_DELETE = 1 << AclOperation.DELETE
_ALTER = 1 << AclOperation.ALTER
_DESCRIBE = 1 << AclOperation.DESCRIBE
_CLUSTER_ACTION = 1 << AclOperation.CLUSTER_ACTION
_DESCRIBE_CONFIGS = 1 << AclOperation.DESCRIBE_CONFIGS
_ALTER_CONFIGS = 1 << AclOperation.ALTER_CONFIGS
_IDEMPOTENT_WRITE = 1 << AclOperation.IDEMPOTENT_WRITE

TOPIC_OPERATIONS = (
    _READ | _WRITE | _CREATE | _DELETE | _ALTER | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS
)
CLUSTER_OPERATIONS = (
    _CREATE
    | _ALTER
    | _DESCRIBE
    | _CLUSTER_ACTION
    | _DESCRIBE_CONFIGS
    | _ALTER_CONFIGS
    | _IDEMPOTENT_WRITE
)
GROUP_OPERATIONS = _READ | _DELETE | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS


def topic_operations(services: AuthorizerServices, context: RequestContext, name: str) -> int:
    """Return the operations that the client may do on the topic, as a bit set."""
    return _allowed(services, context, TOPIC_OPERATIONS, AclResourceType.TOPIC, name)


def cluster_operations(services: AuthorizerServices, context: RequestContext) -> int:
    """Return the operations that the client may do on the cluster, as a bit set."""
    return _allowed(services, context, CLUSTER_OPERATIONS, AclResourceType.CLUSTER, CLUSTER_NAME)


def group_operations(services: AuthorizerServices, context: RequestContext, group_id: str) -> int:
    """Return the operations that the client may do on the group, as a bit set."""
    return _allowed(services, context, GROUP_OPERATIONS, AclResourceType.GROUP, group_id)


def _allowed(
    services: AuthorizerServices,
    context: RequestContext,
    operations: int,
    resource_type: AclResourceType,
    name: str,
) -> int:
    if services.authorizer is ALLOWS_ALL:
        return operations
    return sum(
        1 << each
        for each in AclOperation
        if operations >> each & 1 and is_allowed(services, context, each, resource_type, name)
    )
