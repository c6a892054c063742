"""Prints docs/bounds.md: the fixed limits of the broker and of the client, from their constants."""

import importlib
from collections.abc import Iterator, Sequence

from tools.docs.bound_rows import SECTIONS, Bound
from tools.docs.pages import table

_HEAD = """\
<!-- Printed by `./dev python -m tools.docs`; edit tools/docs/bound_rows.py, not this page. -->
# Fixed limits

Look up a limit here when a request is refused or a connection is closed and no setting says why.
These limits bound the use of memory and time, and no setting changes them. The limits that can be
set, such as `socket.request.max.bytes`, `max.connections` and `message.max.bytes`, are in
[configuration.md](configuration.md).

The broker serves all connections in one event loop. A *turn* is one pass of this loop: it receives,
appends and sends. Limits per turn keep one client from delaying the others: the broker continues
with the remaining work in the next turn.
"""


def bounds_page() -> str:
    """docs/bounds.md."""
    parts = [_HEAD]
    for title, bounds in SECTIONS.items():
        parts.append(f"## {title}\n")
        parts.append(table(("limit", "value", "beyond it", "constant"), _cells(bounds)))
    return "\n".join(parts)


def _cells(bounds: Sequence[Bound]) -> Iterator[Sequence[str]]:
    for bound in bounds:
        module, _, name = bound.constant.rpartition(".")
        value = getattr(importlib.import_module(module), name)
        yield bound.subject, with_unit(name, value), bound.effect, f"`{bound.constant}`"


def with_unit(name: str, value: int) -> str:
    """A constant's value with the unit in which its name ends: bytes or milliseconds."""
    if name.endswith("_BYTES"):
        for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
            if value % size == 0:
                return f"{value // size} {unit}"
        return f"{value:,} bytes"
    if name.endswith("_MS"):
        return f"{value // 1000} s" if value % 1000 == 0 else f"{value} ms"
    return f"{value:,}"
