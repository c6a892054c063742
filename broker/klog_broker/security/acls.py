"""Kafka's operations and types of resources, as access control lists name them."""

from enum import IntEnum

CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


class AclOperation(IntEnum):
    """An operation on a resource. The numbers are those of Kafka's protocol."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class AclResourceType(IntEnum):
    """A type of resources. The numbers are those of Kafka's protocol."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
