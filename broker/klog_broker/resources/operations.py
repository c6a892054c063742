"""What a client may do, as a bit set of Kafka's ACL operations (KIP-430).

Without an authorizer every client may do every operation that a kind of resource has.
"""

from klog_broker.security.acls import AclOperation

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
