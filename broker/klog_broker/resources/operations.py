"""What a client may do, as a bit set of Kafka's ACL operations (KIP-430).

Without an authorizer every client may do every operation that a kind of resource has.
"""

_READ = 1 << 3
_WRITE = 1 << 4
_CREATE = 1 << 5
_DELETE = 1 << 6
_ALTER = 1 << 7
_DESCRIBE = 1 << 8
_CLUSTER_ACTION = 1 << 9
_DESCRIBE_CONFIGS = 1 << 10
_ALTER_CONFIGS = 1 << 11
_IDEMPOTENT_WRITE = 1 << 12

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
