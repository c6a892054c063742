"""Prints docs/groups.md: the states of a classic group, and what requests are answered in each."""

from collections.abc import Iterator

from klog_broker.coordinator.group.classic.states import (
    ANSWERS,
    PARKED,
    TRANSITIONS,
    Asked,
    GroupState,
)
from pyspark_klog.errors import ErrorCode

_HEAD = """\
<!-- Printed by `./dev python -m tools.docs`; edit
     broker/klog_broker/coordinator/group/classic/states.py, not this page. -->
# Consumer groups

How the broker keeps a group of the classic protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup).
DescribeGroups and ListGroups show a group's state. Every change of the state is a row below, and
the coordinator refuses any other change. The durable part of a group (the members of a generation
and their assignments) is one record in `__consumer_offsets`. Applying the record changes the state
in the same way when it was just written and when the log is replayed.

The broker that leads a group's partition coordinates it. In a cluster the group moves with the
partition: the next leader replays the log, and gives all members one session to show themselves.
The one before drops what it knew. Whoever waits there is told NOT_COORDINATOR, for commits that
were not replicated yet, too. Time-outs and offsets that expire are the leader's to act on. A leader
that leads on in a newer epoch, since a follower was lost, goes on with what it knows.

```mermaid
stateDiagram-v2
    [*] --> Empty
"""

_STEPS = """\
```

## Steps

| from | to | when |
|---|---|---|
"""

_ANSWERS = """
## What each state answers

The table is for a member that the group knows and that names the current generation. Other members
are refused in any state: with UNKNOWN_MEMBER_ID, with ILLEGAL_GENERATION, or with
FENCED_INSTANCE_ID if another process has taken a static member's place. An empty group knows no
members; the JoinGroup in its column is a new member's. DeleteGroups is a tool's; so is
OffsetDelete, which an empty group always serves. In a group of consumers it also serves topics that
no member is subscribed to (others: GROUP_SUBSCRIBED_TO_TOPIC); any other group with members answers
NON_EMPTY_GROUP.

"""


def group_page() -> str:
    """docs/groups.md."""
    lines = [_HEAD + "\n".join(_arrows())]
    lines.append(_STEPS + "\n".join(_steps()))
    lines.append(_ANSWERS + "\n".join(_answers()))
    return "\n".join(lines) + "\n"


def _arrows() -> Iterator[str]:
    for before, steps in TRANSITIONS.items():
        for after in steps:
            yield f"    {before.value} --> {after.value}"
    yield f"    {GroupState.DEAD.value} --> [*]"


def _steps() -> Iterator[str]:
    for before, steps in TRANSITIONS.items():
        for after, why in steps.items():
            yield f"| {before.value} | {after.value} | {why} |"


def _answers() -> Iterator[str]:
    yield f"| asked | {' | '.join(state.value for state in GroupState)} |"
    yield "|---" * (1 + len(GroupState)) + "|"
    for asked in Asked:
        cells = (_answer(asked, state) for state in GroupState)
        yield f"| {asked.value} | {' | '.join(cells)} |"


def _answer(asked: Asked, state: GroupState) -> str:
    error = ANSWERS[asked][state]
    if error is not ErrorCode.NONE:
        return error.name
    return PARKED.get((asked, state), "done")
