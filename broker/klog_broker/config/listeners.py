"""Listeners: the addresses that the broker listens on, and the addresses advertised to clients.

The syntax is a comma-separated list of ``NAME://host:port``; an empty host means all interfaces.
The rules are Kafka's: names are distinct, and so are ports (but port 0 may be used again, and an
IPv4 and an IPv6 listener may share a port); each advertised name is the name of a listener, and
0.0.0.0 is never advertised. klog does not open the listeners in controller.listener.names, because
only KRaft controllers use them.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from klog_broker.config.types import ConfigError

_HOST_PORT = r"(?P<host>\[[0-9a-zA-Z:.%]*\]|[0-9a-zA-Z._%-]*):(?P<port>[0-9]+)"
_ADDRESS = re.compile(_HOST_PORT)
_LISTENER = re.compile(rf"(?P<name>[^:/]+)://{_HOST_PORT}")
ALL_INTERFACES = ("", "0.0.0.0", "::")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SERVED_PROTOCOLS = ("PLAINTEXT",)


class Listener(NamedTuple):
    """One listener. An empty `host` means all interfaces; port 0 means any free port."""

    name: str
    protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_protocol_map(text: str) -> dict[str, str]:
    """Parse ``NAME:PROTOCOL,...`` into protocols by listener name, both in upper case."""
    protocols = {}
    for item in (part.strip() for part in text.split(",") if part.strip()):
        name, colon, protocol = item.rpartition(":")
        if not colon or not name.strip() or protocol.strip().upper() not in PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map: {item!r} is not NAME:PROTOCOL"
                f" with a protocol out of {', '.join(PROTOCOLS)}"
            )
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def listener_names(text: str) -> frozenset[str]:
    """Parse ``NAME,...`` into a set of names in upper case."""
    return frozenset(part.strip().upper() for part in text.split(",") if part.strip())


def addresses(text: str) -> Iterator[Listener]:
    """Yield the listeners in `text`, a list of ``NAME://host:port`` that is not checked yet: their
    protocol is empty, and invalid items are skipped."""
    for item in text.split(","):
        match = _LISTENER.fullmatch(item.strip())
        if match is not None and len(match["port"]) <= 5:
            name, host = match["name"].strip().upper(), match["host"].strip("[]")
            yield Listener(name, "", host, int(match["port"]))


def parse_listeners(
    setting: str, text: str, protocols: dict[str, str], controllers: frozenset[str] = frozenset()
) -> tuple[Listener, ...]:
    """Return the listeners in `text`, the value of `setting`, except the listeners for KRaft
    controllers, whose names are in `controllers`.

    Raises ConfigError if an item is invalid or no listener is left.
    """
    listeners = []
    for item in (part.strip() for part in text.split(",") if part.strip()):
        match = _LISTENER.fullmatch(item)
        if match is None:
            raise ConfigError(
                f"{setting}: {item!r} is not NAME://host:port (as PLAINTEXT://127.0.0.1:9092)"
            )
        name = match["name"].strip().upper()
        if name in controllers:
            continue
        port = int(match["port"]) if len(match["port"]) <= 5 else 65536
        if port > 65535:
            raise ConfigError(f"{setting}: the port of {item!r} must be at most 65535")
        if name not in protocols:
            raise ConfigError(
                f"{setting}: no protocol is given for the listener {name}:"
                f" add {name}:PLAINTEXT to listener.security.protocol.map"
            )
        if protocols[name] not in SERVED_PROTOCOLS:
            raise ConfigError(
                f"{setting}: the listener {name} asks for {protocols[name]}, but this release"
                f" serves {', '.join(SERVED_PROTOCOLS)} only"
            )
        listeners.append(Listener(name, protocols[name], match["host"].strip("[]"), port))
    if not listeners and controllers:
        raise ConfigError(
            f"{setting}: all listeners are in controller.listener.names, and klog opens none of"
            " these; name a listener for clients"
        )
    if not listeners:
        raise ConfigError(f"{setting} is empty: name at least one listener")
    return tuple(listeners)


def parse_address(setting: str, text: str) -> tuple[str, int]:
    """Parse ``host:port`` (an IPv6 host in brackets) into host (empty: all interfaces) and port."""
    match = _ADDRESS.fullmatch(text.strip())
    port = 65536 if match is None or len(match["port"]) > 5 else int(match["port"])
    if match is None or port > 65535:
        raise ConfigError(
            f"{setting}: {text.strip()!r} is not host:port with a port up to 65535 (as"
            " 127.0.0.1:9404)"
        )
    host = match["host"].strip("[]")
    return "" if host in ALL_INTERFACES else host, port


def with_port(text: str, port: int, controllers: frozenset[str]) -> str:
    """Return `text`, a list of listeners, with `port` as the port of the first one that klog opens.

    klog does not open the listeners for KRaft controllers, whose names are in `controllers`.
    """
    items = text.split(",")
    opened = (
        number
        for number, item in enumerate(items)
        if item.partition(":")[0].strip().upper() not in controllers
    )
    first = next(opened, 0)
    items[first] = f"{items[first].rpartition(':')[0]}:{port}"
    return ",".join(items)


def check_listeners(listeners: tuple[Listener, ...]) -> None:
    """Raise ConfigError if two listeners have the same name, or the same port other than 0. An IPv4
    and an IPv6 listener may share a port."""
    names: set[str] = set()
    by_port: dict[int, list[Listener]] = {}
    for listener in listeners:
        if listener.name in names:
            raise ConfigError(f"listeners: the name {listener.name} is used twice")
        names.add(listener.name)
        if listener.port != 0:
            by_port.setdefault(listener.port, []).append(listener)
    for port, sharing in by_port.items():
        families = {":" in listener.host for listener in sharing}
        if len(sharing) > len(families):
            raise ConfigError(f"listeners: the port {port} is used twice")


def check_advertised(advertised: tuple[Listener, ...], listeners: tuple[Listener, ...]) -> None:
    """Raise ConfigError for an invalid advertised listener.

    Each advertised listener must have the name of one of `listeners`. No name may occur twice, and
    no host may stand for all interfaces.
    """
    names = [listener.name for listener in listeners]
    seen: set[str] = set()
    for listener in advertised:
        if listener.name not in names:
            raise ConfigError(
                f"advertised.listeners: {listener.name} is not among the listeners"
                f" ({', '.join(names)})"
            )
        if listener.name in seen:
            raise ConfigError(f"advertised.listeners: the name {listener.name} is used twice")
        seen.add(listener.name)
        if listener.host in ALL_INTERFACES:
            raise ConfigError(
                f"advertised.listeners: {listener} is no address that a client can connect to;"
                " name a host"
            )
