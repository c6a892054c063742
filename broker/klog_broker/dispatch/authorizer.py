"""The interface of the authorizer, which decides what each principal may do."""

from typing import Protocol

from klog_broker.security.acls import AclOperation, AclResourceType
from klog_broker.security.principal import KafkaPrincipal
from pyspark_klog.errors import ErrorCode

DENIED_CODES = {
    AclResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""The error for a request that is denied, by the type of the resource."""


class Authorizer(Protocol):
    """Decides which principal may do what. A broker has one authorizer.

    resources/authorizer.py has the implementation.
    """

    @property
    def version(self) -> int:
        """The version of the access rules. A decision whether a principal may do an operation is
        valid until the version rises, because a rule has changed."""

    def is_allowed(
        self,
        principal: KafkaPrincipal,
        host: str | None,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
    ) -> bool:
        """Whether a principal may do the operation on the resource with this name. ``host`` is the
        client's IP address; None asks whether the principal may do so from every address."""
