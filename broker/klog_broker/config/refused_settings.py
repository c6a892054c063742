"""Kafka's settings that klog does not support and must not ignore: the broker refuses to start.

Users who set one of these settings rely on it: for access control, for a policy, or because the
broker must join a KRaft cluster and not start a cluster of its own. An empty value counts as not
set.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from klog_broker.config.listeners import ALL_INTERFACES, addresses, listener_names
from klog_broker.runtime.system.identity import host_name

_NO_ACCESS_CONTROL = (
    "klog has no access control yet and would let every client do everything; remove the line if"
    " all clients that reach its listeners may do everything"
)
_STANDALONE = "klog joins no KRaft cluster and would start a cluster of its own"
_ZOOKEEPER_OR_KRAFT = (
    "zookeeper.connect makes the broker join a cluster through ZooKeeper, and this line is for"
    " KRaft; remove one of both lines"
)

#: Settings that the broker refuses with any value, each with the reason.
REFUSED = {
    "allow.everyone.if.no.acl.found": _NO_ACCESS_CONTROL,
    "alter.config.policy.class.name": (
        "klog loads no Java classes and would allow every change of settings; remove the line if"
        " every change is allowed"
    ),
    "authorizer.class.name": _NO_ACCESS_CONTROL,
    "create.topic.policy.class.name": (
        "klog loads no Java classes and would let every topic be created; remove the line if every"
        " topic is allowed"
    ),
    "super.users": _NO_ACCESS_CONTROL,
}

#: Settings that a broker in a cluster refuses, each with the only allowed value (None: no value is
#: allowed) and the reason for refusing any other value. klog always behaves as the allowed value
#: says. A standalone broker accepts these settings, because they do not concern it.
REFUSED_IN_CLUSTER: dict[str, tuple[str | None, str]] = {
    "control.plane.listener.name": (
        None,
        "klog receives the controller's requests on the listener for connections between brokers"
        " (inter.broker.listener.name) and on no other; remove the line",
    ),
    "zookeeper.metadata.migration.enable": (
        "false",
        "klog does not move a cluster from ZooKeeper to KRaft; remove the line",
    ),
    "zookeeper.set.acl": (
        "false",
        "klog writes znodes that every client of ZooKeeper may change; remove the line if all"
        " clients that reach ZooKeeper may do so",
    ),
    "zookeeper.ssl.client.enable": (
        "false",
        "klog connects to ZooKeeper without TLS; remove the line if TLS is not needed",
    ),
}

#: Settings of KRaft that a standalone broker refuses unless they describe a cluster that consists
#: of this broker, each with a description of this only allowed value.
REFUSED_UNLESS = {
    "controller.quorum.bootstrap.servers": (
        "one address, that of this broker's own listener out of controller.listener.names"
    ),
    "controller.quorum.voters": "one voter, whose id is this broker's node.id",
    "process.roles": "broker,controller",
}


class RefusedSetting(NamedTuple):
    """The name of a refused setting, and the message with the reason."""

    name: str
    text: str


def refusals(texts: Mapping[str, str]) -> Iterator[RefusedSetting]:
    """Yield the settings with which the broker must not start.

    `texts` maps the name of each configured setting to its text.
    """
    given = {name: text.strip() for name, text in texts.items() if text.strip()}
    for name, reason in REFUSED.items():
        if name in given:
            yield RefusedSetting(name, f"{name}={given[name]} is refused: {reason}")
    if given.get("zookeeper.connect"):
        yield from _refusals_in_cluster(given)
        return
    is_fine = {
        "controller.quorum.bootstrap.servers": _is_own_controller,
        "controller.quorum.voters": _is_own_vote,
        "process.roles": _is_both_roles,
    }
    for name, expected in REFUSED_UNLESS.items():
        if name in given and not is_fine[name](given[name], given):
            yield RefusedSetting(
                name,
                f"{name}={given[name]} is refused: {_STANDALONE}; expected {expected}, or no such"
                " line, for a standalone broker",
            )


def _refusals_in_cluster(given: Mapping[str, str]) -> Iterator[RefusedSetting]:
    for name in REFUSED_UNLESS:
        if name in given:
            yield RefusedSetting(name, f"{name}={given[name]} is refused: {_ZOOKEEPER_OR_KRAFT}")
    for name, (fine, reason) in REFUSED_IN_CLUSTER.items():
        if name in given and given[name].lower() != fine:
            yield RefusedSetting(name, f"{name}={given[name]} is refused: {reason}")


def _is_both_roles(text: str, _given: Mapping[str, str]) -> bool:
    return sorted(part.strip() for part in text.split(",")) == ["broker", "controller"]


def _is_own_vote(text: str, given: Mapping[str, str]) -> bool:
    own_id = given.get("node.id", given.get("broker.id", "0"))
    voter, at, _address = text.partition("@")
    return bool(at) and "," not in text and voter.strip() == own_id


def _is_own_controller(text: str, given: Mapping[str, str]) -> bool:
    host, colon, port = text.rpartition(":")
    if not colon or "," in text:
        return False
    names = listener_names(given.get("controller.listener.names", ""))
    own = [
        listener
        for setting in ("listeners", "advertised.listeners")
        for listener in addresses(given.get(setting, ""))
        if listener.name in names and str(listener.port) == port.strip()
    ]
    return any(_is_same_host(host.strip().strip("[]").lower(), each.host.lower()) for each in own)


def _is_same_host(host: str, listener_host: str) -> bool:
    """Return whether `host` and `listener_host` mean the same host. No name is looked up, so only
    the broker's own host name and the loopback names and addresses are recognized."""
    loopback = {"localhost", "127.0.0.1", "::1"}
    if listener_host in ALL_INTERFACES:
        return host in loopback or host == host_name().lower()
    return host == listener_host or {host, listener_host} <= loopback
