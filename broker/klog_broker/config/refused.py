"""Kafka's settings that klog cannot honour yet and must not neglect: they refuse the start.

Whoever sets one relies on it: that not everybody may do everything, that a policy holds, that the
broker joins a cluster of KRaft's and does not begin one of its own. An empty value sets nothing.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from klog_broker.config.listeners import ALL_INTERFACES, addresses, listener_names
from klog_broker.runtime.system.identity import host_name

_NO_ACCESS_CONTROL = (
    "klog has no access control yet and would let everybody do everything; take the line out if"
    " whoever reaches its listeners may do so"
)
_ALONE = "klog joins no cluster of KRaft's and would begin one of its own"
_EITHER = (
    "zookeeper.connect says that the broker joins a cluster over ZooKeeper, and this line is for"
    " KRaft's; take one of them out"
)

#: By name: why any value is refused.
REFUSED = {
    "allow.everyone.if.no.acl.found": _NO_ACCESS_CONTROL,
    "alter.config.policy.class.name": (
        "klog loads no Java classes and would allow every change of settings; take the line out if"
        " that is meant"
    ),
    "authorizer.class.name": _NO_ACCESS_CONTROL,
    "create.topic.policy.class.name": (
        "klog loads no Java classes and would let every topic be created; take the line out if that"
        " is meant"
    ),
    "super.users": _NO_ACCESS_CONTROL,
}

#: By name, for a broker in a cluster: the value that is no more than klog does, or None, and why
#: any other value is refused. A broker that runs alone takes them: they are nothing to it.
REFUSED_IN_CLUSTER: dict[str, tuple[str | None, str]] = {
    "control.plane.listener.name": (
        None,
        "klog takes the controller's requests on the listener of the brokers"
        " (inter.broker.listener.name) and on no other; take the line out",
    ),
    "zookeeper.metadata.migration.enable": (
        "false",
        "klog does not move a cluster from ZooKeeper to KRaft; take the line out",
    ),
    "zookeeper.set.acl": (
        "false",
        "klog writes znodes that everybody may change; take the line out if whoever reaches"
        " ZooKeeper may do so",
    ),
    "zookeeper.ssl.client.enable": (
        "false",
        "klog speaks to ZooKeeper without TLS; take the line out if that is meant",
    ),
}

#: By name: the value that says that the broker runs alone; any other value is refused.
REFUSED_UNLESS = {
    "controller.quorum.bootstrap.servers": (
        "one address, that of this broker's own listener out of controller.listener.names"
    ),
    "controller.quorum.voters": "one voter, whose id is this broker's node.id",
    "process.roles": "broker,controller",
}


class RefusedSetting(NamedTuple):
    """A setting, and why it is refused."""

    name: str
    text: str


def refusals(texts: Mapping[str, str]) -> Iterator[RefusedSetting]:
    """The given settings that refuse the start; `texts` are their texts by name."""
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
                f"{name}={given[name]} is refused: {_ALONE}; expected {expected}, or no such line,"
                " for a broker that runs alone",
            )


def _refusals_in_cluster(given: Mapping[str, str]) -> Iterator[RefusedSetting]:
    for name in REFUSED_UNLESS:
        if name in given:
            yield RefusedSetting(name, f"{name}={given[name]} is refused: {_EITHER}")
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
    """Whether both hosts are this machine; no name service is asked, since the network may fail."""
    loopback = {"localhost", "127.0.0.1", "::1"}
    if listener_host in ALL_INTERFACES:
        return host in loopback or host == host_name().lower()
    return host == listener_host or {host, listener_host} <= loopback
