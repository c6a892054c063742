"""Prints docs/groups.md: the states of a classic group, and what each of them answers.

``python -m klog_broker.group_docs`` writes it, with ``--check`` it is compared.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from klog_broker.config.docs import print_pages
from klog_broker.coordinator.group.classic.states import (
    ANSWERS,
    PARKED,
    TRANSITIONS,
    Asked,
    GroupState,
)
from pyspark_klog.errors import ErrorCode

_HEAD = """\
<!-- Printed by `./dev python -m klog_broker.group_docs`; edit
     broker/klog_broker/coordinator/group/classic/states.py, not this page. -->
# Consumer groups

How the broker keeps a group of the classic protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup).
A group's state is what DescribeGroups and ListGroups show. Every change of it is a row here, and
the coordinator refuses any other. What is durable of a group (the members of a generation and their
assignments) is one record in `__consumer_offsets`, which changes the state the same way when it is
written and when it is replayed.

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

To a member that is known and names the current generation. Others are refused in any state:
UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, or FENCED_INSTANCE_ID for a static member whose place is
taken. An empty group knows no members; what is asked of it is a new member's JoinGroup.

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


PAGES = {Path("docs/groups.md"): group_page}

if __name__ == "__main__":
    sys.exit(print_pages(PAGES, "klog_broker.group_docs", sys.argv[1:]))
