"""Which quotas there are, and who can have them: Kafka 4.3.1's rules.

What breaks a rule raises BrokerError INVALID_REQUEST with a sentence.
"""

import ipaddress
import math
from collections.abc import Mapping

from klog_broker.config.types import INT_MAX, LONG_MAX
from klog_broker.metadata.image import QuotaEntity
from pyspark_klog.errors import BrokerError, ErrorCode

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)

# A whole number that may at most be this; None: any number. Whole is what is at most so far above.
_OF_CLIENTS = {
    "producer_byte_rate": LONG_MAX,
    "consumer_byte_rate": LONG_MAX,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
_OF_ADDRESSES = {"connection_creation_rate": INT_MAX}
_WHOLE = 1e-6


def checked_entity(names: Mapping[str, str | None]) -> QuotaEntity:
    """The entity with these names, by type; None stands for the default of its type."""
    if not names:
        raise _refused("an entity has no type: user, client-id or ip is expected")
    for kind, name in names.items():
        if kind not in ENTITY_TYPES:
            raise _refused(f"{kind!r} is no type of an entity: user, client-id and ip are")
        if name == "":
            raise _refused(f"the {kind} is empty; null stands for the default")
    if IP in names:
        if len(names) > 1:
            raise _refused("an ip has quotas by itself, not together with a user or client-id")
        _check_address(names[IP])
    return tuple(sorted(names.items()))


def check_quota(entity: QuotaEntity, key: str, value: float) -> None:
    """Refuse a quota that the entity cannot have."""
    limits = _OF_ADDRESSES if entity[0][0] == IP else _OF_CLIENTS
    if key not in limits:
        raise _refused(
            f"{key!r} is no quota of a {' and '.join(kind for kind, _ in entity)}:"
            f" {', '.join(limits)} can be set"
        )
    # Kafka takes what is no number, and nobody knows what that limits.
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
    """As Kafka, but that no name is looked up: that can take seconds, and change."""
    if name is None:
        return
    try:
        ipaddress.ip_address(name)
    except ValueError:
        text = f"{name!r} is no IP address; klog looks no name of a host up"
        raise _refused(text) from None


def _refused(text: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, text)
