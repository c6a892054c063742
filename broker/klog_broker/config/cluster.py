"""Checks the settings of a broker in a cluster, and finds its inter-broker listener."""

import re
from collections.abc import Mapping
from ipaddress import IPv6Address
from typing import Any

from klog_broker.config.kafka_releases import release_of
from klog_broker.config.listeners import Listener
from klog_broker.config.types import ConfigError

GENERATED = -1
"""The value of broker.id that makes the broker get its id from ZooKeeper."""

_SERVER = re.compile(r"(?P<host>\[[^\]]+\]|[^\s,/:\[\]@?#\\]+)(?::(?P<port>[0-9]{1,5}))?")
_IN_NO_PATH = re.compile("[\\s\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
_PROTOCOL_RELEASES = ("3.5", "3.6", "3.7", "3.8", "3.9")
"""The releases that klog supports as inter.broker.protocol.version."""


def joins_cluster(values: Mapping[str, Any]) -> bool:
    """Return whether the broker joins a cluster: zookeeper.connect is set."""
    return bool((values["zookeeper.connect"] or "").strip())


def check_cluster(values: Mapping[str, Any], advertised: tuple[Listener, ...]) -> None:
    """Raise ConfigError unless a broker with these settings can join its cluster."""
    _check_connect(values["zookeeper.connect"])
    for name in ("zookeeper.session.timeout.ms", "zookeeper.connection.timeout.ms"):
        if values[name] < 1:
            raise ConfigError(f"{name}={values[name]} is refused: it must be at least 1")
    _check_fetch_times(values)
    _check_id(values)
    _check_protocol_version(values["inter.broker.protocol.version"])
    inter_broker_listener(values, advertised)


def check_standalone(values: Mapping[str, Any]) -> None:
    """Raise ConfigError unless these settings are valid for a standalone broker."""
    if values["broker.id"] < 0:
        raise ConfigError(
            f"broker.id={values['broker.id']} is refused: a broker without zookeeper.connect gets"
            " no number from ZooKeeper, so it must be at least 0"
        )


def inter_broker_listener(values: Mapping[str, Any], advertised: tuple[Listener, ...]) -> Listener:
    """Return the advertised listener for connections between brokers.

    Raises ConfigError if no advertised listener has the configured name.
    """
    named = (values["inter.broker.listener.name"] or "").strip().upper()
    name = named or values["security.inter.broker.protocol"]
    setting = "inter.broker.listener.name" if named else "security.inter.broker.protocol"
    found = next((each for each in advertised if each.name == name), None)
    if found is None:
        names = ", ".join(each.name for each in advertised)
        raise ConfigError(
            f"{setting}={name} names no advertised listener ({names}): the other brokers of the"
            " cluster must know where to reach this one"
        )
    return found


def _check_connect(text: str) -> None:
    servers, slash, path = text.strip().partition("/")
    names = path.split("/") if slash and path else []
    if not {"", ".", ".."}.isdisjoint(names) or _IN_NO_PATH.search(path):
        raise ConfigError(
            f"zookeeper.connect={text.strip()} is refused: /{path} is not a valid znode path"
        )
    for item in servers.split(","):
        match = _SERVER.fullmatch(item.strip())
        port = 0 if match is None else int(match["port"] or 2181)
        if match is None or not 0 < port <= 65535 or not _may_be_host(match["host"]):
            raise ConfigError(
                f"zookeeper.connect={text.strip()} is refused: {item.strip()!r} is not host:port"
                " (as zk1:2181,zk2:2181/kafka)"
            )


def _may_be_host(host: str) -> bool:
    try:
        if host.startswith("["):
            IPv6Address(host[1:-1])
        else:
            host.encode("idna")
    except ValueError:
        return False
    return True


def _check_id(values: Mapping[str, Any]) -> None:
    broker_id, generates = values["broker.id"], values["broker.id.generation.enable"]
    most = values["reserved.broker.max.id"]
    if generates and not GENERATED <= broker_id <= most:
        raise ConfigError(
            f"broker.id={broker_id} is refused: with broker.id.generation.enable=true it must lie"
            f" between -1 and reserved.broker.max.id={most}"
        )
    if not generates and broker_id < 0:
        raise ConfigError(
            f"broker.id={broker_id} is refused: with broker.id.generation.enable=false it must be"
            " at least 0"
        )


def _check_fetch_times(values: Mapping[str, Any]) -> None:
    wait_ms, timeout_ms = values["replica.fetch.wait.max.ms"], values["replica.socket.timeout.ms"]
    if not 0 <= wait_ms <= timeout_ms:
        raise ConfigError(
            f"replica.fetch.wait.max.ms={wait_ms} is refused: it must be from 0 to"
            f" replica.socket.timeout.ms={timeout_ms}, because a leader without new records answers"
            " a fetch only after replica.fetch.wait.max.ms"
        )


def _check_protocol_version(text: str) -> None:
    if release_of(text) not in _PROTOCOL_RELEASES:
        raise ConfigError(
            f"inter.broker.protocol.version={text} is refused: klog speaks to other brokers as"
            f" Kafka {', '.join(_PROTOCOL_RELEASES)} does, so set one of these releases"
        )
