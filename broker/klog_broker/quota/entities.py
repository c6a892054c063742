"""Check the entities and values of client quotas by the rules of Kafka 4.3.1.

An entity or quota that breaks a rule raises BrokerError INVALID_REQUEST with the reason.
"""

import ipaddress
import math
from collections.abc import Mapping

from klog_broker.config.types import INT_MAX, LONG_MAX
from klog_broker.metadata.image import QuotaEntity
from pyspark_klog.errors import BrokerError, ErrorCode

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)

# The largest value of each quota of users and client ids. A quota with a largest value must be a
# whole number; a quota with None can be any number above 0.
_OF_CLIENTS = {
    "producer_byte_rate": LONG_MAX,
    "consumer_byte_rate": LONG_MAX,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
_OF_ADDRESSES = {"connection_creation_rate": INT_MAX}
_WHOLE = 1e-6  # a value that is at most this much above a whole number counts as whole


def checked_entity(names: Mapping[str, str | None]) -> QuotaEntity:
    """Return the quota entity with these names, which are given by type.

    The name None stands for the default entity of its type. BrokerError if the names are refused.
    """
    if not names:
        raise _refused("a quota entity has no type: user, client-id or ip is required")
    for kind, name in names.items():
        if kind not in ENTITY_TYPES:
            raise _refused(f"{kind!r} is no type of a quota entity: use user, client-id or ip")
        if name == "":
            raise _refused(f"the name of the {kind} is empty: use null for the default entity")
    if IP in names:
        if len(names) > 1:
            raise _refused("an entity with an ip cannot have a user or a client-id, too")
        _check_address(names[IP])
    return tuple(sorted(names.items()))


def check_quota(entity: QuotaEntity, key: str, value: float) -> None:
    """Raise BrokerError unless the quota entity (a user, a client id, both, or an IP address) can
    have the quota ``key`` with this value."""
    limits = _OF_ADDRESSES if entity[0][0] == IP else _OF_CLIENTS
    if key not in limits:
        raise _refused(
            f"{key!r} is no quota of a {' and '.join(kind for kind, _ in entity)}:"
            f" {', '.join(limits)} can be set"
        )
    # This test refuses NaN, too. Kafka accepts NaN, but NaN has no meaning as a limit.
    if not value > 0:
        raise _refused(f"{key}={value} is refused: it must be above 0")
    limit = limits[key]
    if limit is None:
        return
    if value > float(limit):
        raise _refused(f"{key}={value} is refused: it must be at most {limit}")
    if math.fmod(value, 1.0) > _WHOLE:
        raise _refused(f"{key}={value} is refused: it must be a whole number")


def _check_address(name: str | None) -> None:
    """Raise BrokerError unless ``name`` is an IP address, or None.

    Kafka accepts host names, too. klog does not, because a DNS look-up can take seconds, and its
    result can change later.
    """
    if name is None:
        return
    try:
        ipaddress.ip_address(name)
    except ValueError:
        text = f"{name!r} is not an IP address; klog accepts no host names"
        raise _refused(text) from None


def _refused(text: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, text)
