"""The versions that Kafka before 0.10.0 speaks: it has no ApiVersions to ask for them.

The newest version of each API by release, from version 0 on; an API that is not named did not
exist. As kafka-python's table of releases has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pyspark_klog.protocol.keys import ApiKey

_KAFKA_0_8_2 = {
    ApiKey.PRODUCE: 0,
    ApiKey.FETCH: 0,
    ApiKey.LIST_OFFSETS: 0,
    ApiKey.METADATA: 0,
    ApiKey.OFFSET_COMMIT: 1,
    ApiKey.OFFSET_FETCH: 1,
    ApiKey.FIND_COORDINATOR: 0,
}
_KAFKA_0_9 = _KAFKA_0_8_2 | {
    ApiKey.PRODUCE: 1,
    ApiKey.FETCH: 1,
    ApiKey.OFFSET_COMMIT: 2,
    ApiKey.JOIN_GROUP: 0,
    ApiKey.HEARTBEAT: 0,
    ApiKey.LEAVE_GROUP: 0,
    ApiKey.SYNC_GROUP: 0,
    ApiKey.DESCRIBE_GROUPS: 0,
    ApiKey.LIST_GROUPS: 0,
}
_KAFKA_0_10_0 = _KAFKA_0_9 | {
    ApiKey.PRODUCE: 2,
    ApiKey.FETCH: 2,
    ApiKey.METADATA: 1,
    ApiKey.SASL_HANDSHAKE: 0,
    ApiKey.API_VERSIONS: 0,
}

MAX_VERSIONS: Mapping[str, Mapping[ApiKey, int]] = MappingProxyType(
    {
        "0.8.2": MappingProxyType(_KAFKA_0_8_2),
        "0.9": MappingProxyType(_KAFKA_0_9),
        "0.10.0": MappingProxyType(_KAFKA_0_10_0),
    }
)
"""The newest version of each API, by release."""
