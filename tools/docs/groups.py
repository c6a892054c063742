"""Prints docs/groups.md: the states of a classic group, and what requests are answered in each."""

from collections.abc import Iterator

from klog_broker.coordinator.group.classic.states import (
    PARKED,
    REQUEST_ERRORS,
    TRANSITIONS,
    GroupRequest,
    GroupState,
)
from pyspark_klog.errors import ErrorCode

_HEAD = """\
<!-- Printed by `./dev python -m tools.docs`; edit
     broker/klog_broker/coordinator/group/classic/states.py, not this page. -->
# Consumer groups

Find out what a consumer group's state means, and how the coordinator answers clients in it. To show
groups, their lag and their offsets, use [`klog groups`](command-line.md#groups):

```
klog groups list --state stable
```

A group has the states of the classic protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup). A
generation's members and assignments are one record in `__consumer_offsets`; the group becomes
Stable (Empty without members) when the broker applies this record: after it has written the record,
and when it replays the log.

The leader of the group's partition of `__consumer_offsets` is the group's coordinator. When another
broker becomes the leader, it replays the log, and members get one session timeout to send a
heartbeat. The old leader drops its state and answers NOT_COORDINATOR, also for commits that were
not replicated. Only the leader expires sessions and offsets. A leader that gets a newer leader
epoch and stays the leader keeps the group's state.

```mermaid
stateDiagram-v2
    [*] --> Empty
"""

_STEPS = """\
```

## Steps

The group coordinator changes a group's state only as a row of the table below says.

| from | to | when |
|---|---|---|
"""

_ANSWERS = """
## What each state answers

The table below shows how each state answers a known member with the current generation. Unless the
group is Dead, an unknown member id gets UNKNOWN_MEMBER_ID, another generation ILLEGAL_GENERATION,
and a static member that another process has replaced FENCED_INSTANCE_ID. An empty group has no
members: the JoinGroup in the column Empty comes from a new member. DeleteGroups and OffsetDelete
come from tools. OffsetDelete succeeds in an empty group and, in a group of consumers, for topics
that no member subscribes to (else GROUP_SUBSCRIBED_TO_TOPIC); any other group with members answers
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
    for asked in GroupRequest:
        cells = (_answer(asked, state) for state in GroupState)
        yield f"| {asked.value} | {' | '.join(cells)} |"


def _answer(asked: GroupRequest, state: GroupState) -> str:
    error = REQUEST_ERRORS[asked][state]
    if error is not ErrorCode.NONE:
        return error.name
    return PARKED.get((asked, state), "done")
