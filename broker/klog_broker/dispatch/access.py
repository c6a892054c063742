"""The access rights that APIs declare (``BrokerApi.access``): operations on types of resources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from klog_broker.security.acls import CLUSTER_NAME, AclOperation, AclResourceType


class Access(NamedTuple):
    """An operation on resources of one type, which a client must be allowed for a request."""

    operation: AclOperation
    resource_type: AclResourceType
    name_in: Callable[[Any], str | None] | None = None
    """Returns the name of the one resource to which the whole request needs access, or None if the
    request needs no such access. The dispatcher checks the access before it calls the handler.
    Without this function, the handler itself checks the access."""


# --- access that the handler checks ---------------------------------------------------------------
def on_topics(operation: AclOperation) -> Access:
    """Access to topics; the handler decides which topics it checks."""
    return Access(operation, AclResourceType.TOPIC)


def on_groups(operation: AclOperation) -> Access:
    """Access to groups; the handler decides which groups it checks."""
    return Access(operation, AclResourceType.GROUP)


def on_transactional_ids(operation: AclOperation) -> Access:
    """Access to transactional ids; the handler decides which ids it checks."""
    return Access(operation, AclResourceType.TRANSACTIONAL_ID)


def sometimes_on_cluster(operation: AclOperation) -> Access:
    """Access to the cluster that only some requests of the API need, or that a client may have
    instead of another access (to each resource in the request, for example)."""
    return Access(operation, AclResourceType.CLUSTER)


# --- access that the dispatcher checks -----------------------------------------------------------
def on_cluster(operation: AclOperation) -> Access:
    """Access to the cluster, without which the whole request is denied."""
    return Access(operation, AclResourceType.CLUSTER, _cluster_name)


def on_group(operation: AclOperation) -> Access:
    """Access to the group in the request's field ``group_id``."""
    return Access(operation, AclResourceType.GROUP, _group_id)


def on_transactional_id(operation: AclOperation) -> Access:
    """Access to the transactional id in the request's field ``transactional_id``, which may be
    null."""
    return Access(operation, AclResourceType.TRANSACTIONAL_ID, _transactional_id)


def _cluster_name(_request: Any) -> str:
    return CLUSTER_NAME


def _group_id(request: Any) -> str:
    name: str = request.group_id
    return name


def _transactional_id(request: Any) -> str | None:
    name: str | None = request.transactional_id
    return name


NO_ACCESS: tuple[Access, ...] = ()
"""The access of an API that every client may use."""

BROKERS_ONLY = (on_cluster(AclOperation.CLUSTER_ACTION),)
"""The access of an API that only brokers may use."""
