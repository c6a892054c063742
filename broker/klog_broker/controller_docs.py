"""Prints docs/controller.md: the states of partitions and replicas that a controller keeps.

``python -m klog_broker.controller_docs`` writes the page; with ``--check`` it only compares.
"""

import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import TypeVar

from klog_broker.config.docs import print_pages
from klog_broker.controller import partition_states, replica_states

State = TypeVar("State", bound=Enum)

_HEAD = """\
<!-- Printed by `./dev python -m klog_broker.controller_docs`; edit partition_states.py and
     replica_states.py in broker/klog_broker/controller/, not this page. -->
# The controller's states

One broker of a cluster is its controller. For each partition, and for each replica of a partition,
it keeps a state. Every step between the states is a row below, and the controller refuses any
other step. The states are in its memory alone: the next controller finds them again from what
ZooKeeper has.
"""

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


PAGES = {Path("docs/controller.md"): controller_page}

if __name__ == "__main__":
    sys.exit(print_pages(PAGES, "klog_broker.controller_docs", sys.argv[1:]))
