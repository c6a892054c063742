"""Prints docs/controller.md: a controller's states of partitions and replicas."""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import TypeVar

from klog_broker.controller.decisions import partition_states, replica_states

State = TypeVar("State", bound=Enum)

_HEAD = """\
<!-- Printed by `./dev python -m tools.docs`; edit tools/docs/controller.py, and partition_states.py
     and replica_states.py in broker/klog_broker/controller/decisions/, not this page. -->
# The controller's states

Look up why a partition has no leader, or which replica the controller elects next. One broker of a
[cluster](clusters-of-brokers.md) is its controller. The controller keeps a state for each partition
and each replica, and refuses each change of state that is not a row of this page's tables. The
states are in memory only: a new controller derives them from ZooKeeper.
"""

_ELECTIONS = """
## Elections

The first broker in a partition's assignment is the preferred leader.

| when | who is elected | the ISR afterwards |
|---|---|---|
{rows}

No election moves leadership to a broker that is shutting down; such a broker stays the leader only
where no other in-sync replica can lead. A replica that goes offline leaves the ISR, unless the
replica is the last one in it. Each of these elections and removals begins a new leader epoch; a
leader's own request to change the ISR (AlterPartition) begins none.

A replica has *bounced* when its broker registered again after the partition's state was written to
ZooKeeper. The replica's log may now lack records that made it in-sync, so the replica leaves the
ISR before an election. Only if all replicas of the ISR have bounced, the leader (if there is none,
the first of them in the assignment) alone stays in the ISR and leads in a new epoch. If those that
have not bounced are down, the partition waits for one of them, or for an unclean election. In Kafka
with ZooKeeper a new controller does not notice a bounce, so a bounced replica may lead although it
lost acknowledged records.
"""

_ELECTED = (
    ("the partition is new", "the first live replica", "all live replicas"),
    (
        "the leader's broker has failed",
        "the first live in-sync replica",
        "the live in-sync replicas",
    ),
    (
        "the leader's broker has failed, no in-sync replica is alive, and "
        "`unclean.leader.election.enable=true`, or an unclean election is requested",
        "the first live replica; records that it lacks are lost",
        "the new leader",
    ),
    (
        "the preferred leader is requested",
        "the preferred leader, if alive and in-sync",
        "unchanged",
    ),
    (
        "the leader's broker shuts down",
        "the first live in-sync replica whose broker does not shut down",
        "without replicas on brokers that shut down",
    ),
    (
        "replicas have bounced",
        "the leader, if it has not bounced; else as after a failure",
        "without bounced replicas, but never empty",
    ),
)

_TABLE = """
## {title}

```mermaid
stateDiagram-v2
{arrows}
```

| from | to | when |
|---|---|---|
{rows}
"""


def controller_page() -> str:
    """docs/controller.md."""
    return (
        _HEAD
        + _table("Partitions", partition_states.STEPS, partition_states.FOUND)
        + _table("Replicas", replica_states.STEPS, replica_states.FOUND)
        + _ELECTIONS.format(rows="\n".join(f"| {' | '.join(row)} |" for row in _ELECTED))
    )


def _table(
    title: str, steps: Mapping[State, Mapping[State, str]], found: Mapping[State, str]
) -> str:
    rows = [f"| (a new controller) | {state.value} | {why} |" for state, why in found.items()]
    rows += [
        f"| {before.value} | {after.value} | {why} |"
        for before, afters in steps.items()
        for after, why in afters.items()
    ]
    return _TABLE.format(title=title, arrows="\n".join(_arrows(steps)), rows="\n".join(rows))


def _arrows(steps: Mapping[State, Mapping[State, str]]) -> Iterator[str]:
    for before, afters in steps.items():
        for after in afters:
            yield f"    {_node(before)} --> {_node(after)}"


def _node(state: Enum) -> str:
    return "[*]" if state.name == "NON_EXISTENT" else state.value
