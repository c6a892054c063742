"""/brokers/ids/N, an ephemeral znode: the registration of a broker.

The czxid of the znode is the broker epoch.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark_klog.ids import BrokerId
from pyspark_klog.znodes.data import JsonObject, ZnodeError, read_object, shorten_repr, write_json
from pyspark_klog.znodes.paths import broker_path

VERSION = 5
PLAINTEXT = "PLAINTEXT"
SECURITY_PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_ENDPOINT = re.compile(
    r"(?P<listener>[^/,\s]+)://"
    r"(\[(?P<address>[0-9a-zA-Z%._:-]+)\]|(?P<host>[0-9a-zA-Z%._-]*)):(?P<port>[0-9]{1,5})",
    re.ASCII,
)
_MAX_PORT = (1 << 16) - 1
# Limits on the texts and endpoints of a registration. UpdateMetadata and Metadata send them in
# strings of at most 32,767 bytes, to all brokers and clients, whenever the list of brokers changes.
_MOST_CHARACTERS = 1_000
_MOST_ENDPOINTS = 100


class Endpoint(NamedTuple):
    """The address of a listener. ``host`` is None if the registration has no host."""

    listener: str
    host: str | None
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = self.host or ""
        return f"{self.listener}://{f'[{host}]' if ':' in host else host}:{self.port}"


class VersionRange(NamedTuple):
    """The versions of a feature that a broker supports, both bounds inclusive."""

    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A broker's registration; ``timestamp_ms`` is the time of registration, -1 if unknown."""

    endpoints: tuple[Endpoint, ...]
    timestamp_ms: int
    rack: str | None = None
    jmx_port: int = -1
    features: Mapping[str, VersionRange] = field(default_factory=dict)


def encode_broker(registration: BrokerRegistration) -> bytes:
    """Encode a broker's registration in version 5.

    The fields ``host`` and ``port``, for very old clients, belong to the first plaintext listener.
    """
    endpoints = registration.endpoints
    plain = next((each for each in endpoints if each.security_protocol == PLAINTEXT), None)
    value: dict[str, object] = {
        "features": {name: each._asdict() for name, each in registration.features.items()},
        "listener_security_protocol_map": {
            each.listener: each.security_protocol for each in endpoints
        },
        "endpoints": [str(each) for each in endpoints],
    }
    if registration.rack is not None:
        value["rack"] = registration.rack
    value |= {
        "jmx_port": registration.jmx_port,
        "port": plain.port if plain else -1,
        "host": plain.host if plain else None,
        "version": VERSION,
        "timestamp": str(registration.timestamp_ms),
    }
    return write_json(value)


def decode_broker(broker_id: BrokerId, data: bytes | None) -> BrokerRegistration:
    """Decode a broker's registration of any version.

    Version 1 has one plaintext listener, 2 adds several listeners by security protocol, 3 a rack, 4
    named listeners, and 5 features. Like Kafka, the function reads a later version as version 5.

    :raises ZnodeError: if ``data`` is no registration
    """
    fields = read_object(broker_path(broker_id), data)
    if fields.version() == 1:
        endpoints = [_only_endpoint(fields)]
    else:
        endpoints = _endpoints(fields)
    return BrokerRegistration(
        endpoints=tuple(endpoints),
        timestamp_ms=fields.int64_text("timestamp") if "timestamp" in fields else -1,
        rack=fields.text("rack", _MOST_CHARACTERS) if "rack" in fields else None,
        jmx_port=fields.int32("jmx_port"),
        features=_features(fields.inner("features")) if "features" in fields else {},
    )


def _only_endpoint(fields: JsonObject) -> Endpoint:
    port = fields.int32("port", minimum=0)
    if port > _MAX_PORT:
        fields.raise_error("port", f"to be at most {_MAX_PORT}")
    return Endpoint(PLAINTEXT, fields.text("host", _MOST_CHARACTERS), port, PLAINTEXT)


def _endpoints(fields: JsonObject) -> list[Endpoint]:
    protocols = {each: each for each in SECURITY_PROTOCOLS}
    if "listener_security_protocol_map" in fields:
        protocols = fields.text_map("listener_security_protocol_map")
    endpoints: dict[str, Endpoint] = {}
    texts = fields.texts("endpoints")
    if len(texts) > _MOST_ENDPOINTS:
        fields.raise_error("endpoints", f"to be at most {_MOST_ENDPOINTS}")
    for text in texts:
        found = _ENDPOINT.fullmatch(text) if len(text) <= _MOST_CHARACTERS else None
        if found is None or int(found["port"]) > _MAX_PORT:
            raise ZnodeError(
                fields.path, "`endpoints` like PLAINTEXT://host:9092", shorten_repr(text)
            )
        listener = found["listener"].upper()
        if listener in endpoints:
            fields.raise_error("endpoints", "to have no listener twice")
        protocol = protocols.get(listener, "").upper()
        if protocol not in SECURITY_PROTOCOLS:
            expected = f"a security protocol ({', '.join(SECURITY_PROTOCOLS)}) of each listener"
            raise ZnodeError(
                fields.path, expected, shorten_repr(f"{protocol or 'none'} of {listener}")
            )
        host = found["address"] or found["host"] or None
        endpoints[listener] = Endpoint(listener, host, int(found["port"]), protocol)
    return list(endpoints.values())


def _features(features: JsonObject) -> dict[str, VersionRange]:
    ranges = {}
    for name in features.values:
        inner = features.inner(name)
        minimum = inner.int16("min_version", minimum=0)
        ranges[name] = VersionRange(minimum, inner.int16("max_version", minimum=minimum))
    return ranges
