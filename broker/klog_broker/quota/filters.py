"""Filters of DescribeClientQuotas requests, which select entities (users, client ids, IP addresses)
that have quotas (KIP-546), as in Kafka 4.3.1."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from klog_broker.metadata.image import QuotaEntity
from klog_broker.quota.entities import ENTITY_TYPES, IP
from pyspark_klog.errors import BrokerError, ErrorCode


class MatchType(IntEnum):
    """How a filter compares the name of one entity type; the numbers are those of Kafka's
    protocol."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """A filter on the names of an entity: `names` has the match type and the name for each entity
    type (user, client-id, ip) that the entity must have. A strict filter selects only entities that
    have no other types."""

    names: Mapping[str, tuple[MatchType, str | None]]
    strict: bool

    def matches(self, entity: QuotaEntity) -> bool:
        """Return whether the filter selects the quota entity."""
        if self.strict and len(entity) != len(self.names):
            return False
        own = dict(entity)
        for kind, (match_type, name) in self.names.items():
            if kind not in own:
                return False
            # With match type DEFAULT, `name` is None, which is also the default entity's name.
            if match_type is not MatchType.ANY and own[kind] != name:
                return False
        return True


def checked_filter(
    components: Iterable[tuple[str, int, str | None]], *, strict: bool
) -> QuotaFilter:
    """Return the filter with these (type, match type, name) components.

    An invalid component raises BrokerError with the error code that Kafka uses.
    """
    names: dict[str, tuple[MatchType, str | None]] = {}
    for kind, match_type, name in components:
        if not kind:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "the type of an entity is empty")
        if kind in names:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"the filter has {kind!r} twice")
        if match_type not in tuple(MatchType):
            text = f"match type {match_type} is none of 0 (exact), 1 (default), 2 (any)"
            raise BrokerError(ErrorCode.INVALID_REQUEST, text)
        if (match_type == MatchType.EXACT) == (name is None):
            text = (
                f"the filter of {kind!r} must have a name with match type 0 (exact), and only then"
            )
            raise BrokerError(ErrorCode.INVALID_REQUEST, text)
        if kind not in ENTITY_TYPES:
            text = f"{kind!r} is not a type of entity; expected user, client-id or ip"
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, text)
        names[kind] = MatchType(match_type), name
    if IP in names and len(names) > 1:
        text = "an ip has quotas by itself, not together with a user or client-id"
        raise BrokerError(ErrorCode.INVALID_REQUEST, text)
    return QuotaFilter(names, strict)
