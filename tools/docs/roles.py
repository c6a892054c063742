"""Prints docs/roles.md: the roles of a hosted partition, and the steps between them."""

from collections.abc import Iterator

from pyspark_klog.errors import ErrorCode
from tools.docs.role_steps import STEPS, TOLD, Event, Kind

_HEAD = """\
<!-- Printed by `./dev python -m tools.docs`; edit
     tools/docs/role_steps.py, not this page. -->
# Roles of a partition

Look up what a broker does with a replica of a partition, and how it answers clients. Each replica
on a broker has a role. Role changes (LeaderAndIsr and StopReplica requests in a cluster) and the
failure of its log change a replica's role; UpdateMetadata requests, which carry the metadata for
clients, do not. When a leadership ends, the broker answers every request that waits at the old
leader: with KAFKA_STORAGE_ERROR if the log went offline, with UNKNOWN_TOPIC_OR_PARTITION if the
partition was deleted, otherwise with NOT_LEADER_OR_FOLLOWER. A Produce request keeps waiting if the
same broker stays the leader in a newer epoch, for example because another broker of the ISR has
died. A replica is Unassigned from the loading of its log to its first role change.

```mermaid
stateDiagram-v2
    [*] --> Unassigned
"""

_STEPS = """\
```

## Steps

| role | {events} |
|---|{rules}
"""

_TOLD = """
A role change of a replica whose log is offline fails with an error, unless the role change only
stops the replica. A replica whose log could not be created because of an I/O error is Offline, too.
On a full disk the replica stays not hosted, and the controller (of a standalone broker: the broker
itself) repeats the role change every 10 seconds until the log is created. A broker without a free
file descriptor closes the controller's connection, and the controller sends the request again.

## How requests to a leader are answered

| role | |
|---|---|
"""


def role_page() -> str:
    """docs/roles.md."""
    lines = [_HEAD + "\n".join(_arrows())]
    events = " | ".join(event.value for event in Event)
    lines.append(_STEPS.format(events=events, rules="---|" * len(Event)) + "\n".join(_steps()))
    lines.append(_TOLD + "\n".join(_told()))
    return "\n".join(lines) + "\n"


def _arrows() -> Iterator[str]:
    for before, steps in STEPS.items():
        for after in dict.fromkeys(steps.values()):
            if after is not before:
                yield f"    {_node(before)} --> {_node(after)}"
    yield "    Leader --> Leader"


def _steps() -> Iterator[str]:
    for before, steps in STEPS.items():
        cells = (_name(steps[event]) if event in steps else "" for event in Event)
        yield f"| {_name(before)} | {' | '.join(cells)} |"


def _told() -> Iterator[str]:
    for kind, code in TOLD.items():
        yield f"| {_name(kind)} | {'served' if code is ErrorCode.NONE else code.name} |"


def _name(kind: Kind) -> str:
    return "not hosted" if kind is None else kind.__name__


def _node(kind: Kind) -> str:
    return "[*]" if kind is None else kind.__name__
