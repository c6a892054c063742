"""Prints docs/connections.md: the states of a connection, and what may happen in each."""

from collections.abc import Iterator

from klog_broker.network.connection_states import CLOSED, FIRST, STATES, TRANSITIONS

_HEAD = """\
<!-- Printed by `./dev python -m tools.docs`; edit
     broker/klog_broker/network/connection_states.py, not this page. -->
# Connections

Look up how the broker serves a client's connection. The connection's inbox receives bytes and cuts
them into requests; its outbox sends the responses in the order of the requests. The broker begins
a request after it has answered the connection's previous one; only Produce requests in a row need
not wait for each other. While too many of the connection's responses are outstanding or unsent, the
broker begins none of its requests. A connection is always in one of these states:

```mermaid
stateDiagram-v2
"""

_MAY = """\
```

## What may happen in each state

| state | meaning | bytes are received | requests are begun | a response resumes parsing |
|---|---|---|---|---|
"""

_STEPS = """
## Steps

| from | to | when |
|---|---|---|
"""


def connections_page() -> str:
    """docs/connections.md."""
    lines = [_HEAD + "\n".join(_arrows()), _MAY + "\n".join(_rows())]
    lines.append(_STEPS + "\n".join(_steps()))
    return "\n".join(lines) + "\n"


def _arrows() -> Iterator[str]:
    yield f"    [*] --> {FIRST.name}"
    for before, steps in TRANSITIONS.items():
        for after in steps:
            yield f"    {before.name} --> {after.name}"
    yield f"    {CLOSED.name} --> [*]"


def _rows() -> Iterator[str]:
    for state in STATES:
        receives = "yes, but only stored" if state.sets_aside else _yes(state.receives)
        cells = (receives, _yes(state.parses), _yes(state.resumes))
        yield f"| {state.name} | {state.meaning} | {' | '.join(cells)} |"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _steps() -> Iterator[str]:
    for before, steps in TRANSITIONS.items():
        for after, why in steps.items():
            yield f"| {before.name} | {after.name} | {why} |"
