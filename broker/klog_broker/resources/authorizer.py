"""The authorizer that allows everything, and access checks that skip the call of this authorizer,
to save time."""

from typing import Protocol

from klog_broker.dispatch.authorizer import Authorizer
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.security.acls import CLUSTER_NAME, AclOperation, AclResourceType
from klog_broker.security.principal import KafkaPrincipal


class _AllowsAll:
    """Allows every principal every operation. `version` is constant, because the rules never
    change."""

    version = 0

    def is_allowed(
        self,
        _principal: KafkaPrincipal,
        _host: str | None,
        _operation: AclOperation,
        _resource_type: AclResourceType,
        _name: str,
    ) -> bool:
        return True


ALLOWS_ALL: Authorizer = _AllowsAll()
"""The authorizer of a broker without access control. Frequent checks compare a broker's authorizer
with this object first, and skip the call of ``is_allowed``."""


class AuthorizerServices(Protocol):
    """The part of the broker's services that handlers use to check what a client may do."""

    @property
    def authorizer(self) -> Authorizer: ...


def is_allowed(
    services: AuthorizerServices,
    context: RequestContext,
    operation: AclOperation,
    resource_type: AclResourceType,
    name: str,
) -> bool:
    """Whether the client that sent the request may do the operation on the resource."""
    authorizer = services.authorizer
    return authorizer is ALLOWS_ALL or authorizer.is_allowed(
        context.principal, context.client_address, operation, resource_type, name
    )


def is_broker(services: AuthorizerServices, context: RequestContext) -> bool:
    """Whether the client may send the requests that are for brokers (CLUSTER_ACTION)."""
    return is_allowed(
        services, context, AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME
    )
