"""Prints docs/controller.md: the states of partitions and replicas that a controller keeps."""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import TypeVar

from klog_broker.controller.decisions import partition_states, replica_states

State = TypeVar("State", bound=Enum)

_HEAD = """\
<!-- Printed by `./dev python -m tools.docs`; edit partition_states.py and
     replica_states.py in broker/klog_broker/controller/, not this page. -->
# The controller's states

One broker of a cluster is its controller. For each partition, and for each replica of a partition,
it keeps a state. Every step between the states is a row below, and the controller refuses any
other step. The states are in its memory alone: the next controller finds them again from what
ZooKeeper has.
"""

_ELECTIONS = """
## Elections

The first broker in a partition's assignment is the preferred leader.

| when | who is elected | the in-sync set after it |
|---|---|---|
{rows}

Brokers that shut down count as alive only in the row that names them. A replica that goes offline
leaves the in-sync set, unless it is the last one in it. Each of these changes begins a new leader
epoch.

A replica has *bounced* when its broker registered again after the partition's state was written.
Its log may be shorter now than what made it in sync. So it leaves the in-sync set before anybody
is elected, and a leader that has bounced leads on only if nobody else is in sync, in a new epoch.
If all have bounced, the leader alone stays in sync. Kafka's controller with ZooKeeper takes a
bounce that it sees for a death, which comes to the same; a new controller of Kafka's sees none, and
such a replica may lead though it has lost acknowledged records. Here the partition waits for a
replica that has not bounced, or for an unclean election.
"""

_ELECTED = (
    ("the partition is new", "the first replica that is alive", "all that are alive"),
    (
        "the leader's broker is gone",
        "the first replica that is in sync and alive",
        "those that are in sync and alive",
    ),
    (
        "the same, nobody in sync is alive, and `unclean.leader.election.enable=true`",
        "the first replica that is alive: what it lacks is lost",
        "that one",
    ),
    (
        "the preferred leader is to lead again",
        "the preferred leader, if it is in sync and alive",
        "as it was",
    ),
    (
        "the leader's broker shuts down",
        "the first replica that is in sync, alive and does not shut down",
        "without those that shut down",
    ),
    (
        "replicas have bounced",
        "the leader, if it has not bounced; else as if it were gone",
        "without those that have bounced, but never empty",
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
