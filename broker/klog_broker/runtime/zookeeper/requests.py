"""The classes of requests to ZooKeeper, their descriptions for error messages, and the checks that
a request must pass before it is sent."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from klog_broker.runtime.zookeeper.sessions import (
    MAX_REQUEST_BYTES,
    Create,
    NodeExists,
    NoNode,
    Operation,
    RequestRefused,
    Set,
    ZooKeeperError,
)

_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
_BYTES_BESIDE_DATA = 64
"""Upper bound of an operation's bytes on the wire, without path and data: lengths, version, ACL."""


class Get(NamedTuple):
    """Reads a znode. The response is a `Node`."""

    path: str


class Exists(NamedTuple):
    """Looks up a znode. The response is its `Stat`, or None if the znode does not exist."""

    path: str


class ListChildren(NamedTuple):
    """Lists the children of a znode. The response is a `Children`."""

    path: str


class Multi(NamedTuple):
    """Does all operations or none. The response is a tuple with the result of each operation."""

    operations: tuple[Operation, ...]


class Sync(NamedTuple):
    """Makes the session's ZooKeeper server catch up with all changes committed so far. The response
    is None."""

    path: str


Request = Get | Exists | ListChildren | Operation | Multi | Sync


def describe(request: Request) -> str:
    """Return the request in words for an error message, such as ``create /brokers/ids/1``."""
    if isinstance(request, Multi):
        parts = [describe(each) for each in request.operations[:3]]
        more = len(request.operations) - len(parts)
        return f"multi of {', '.join(parts)}" + (f" and {more} more" if more else "")
    return f"{type(request).__name__.lower()} {request.path}"


def split_connect(connect: str) -> tuple[str, str]:
    """Split ``host:port,host:port/chroot`` into the hosts and the chroot ("" if there is none).

    :raises ValueError: if the chroot is not a valid path of a znode
    """
    hosts, slash, rest = connect.strip().partition("/")
    chroot = "" if not rest else slash + rest
    fault = _path_fault(chroot) if chroot else None
    if fault is not None:
        raise ValueError(
            f"the chroot {chroot!r} is not a valid path of a znode in ZooKeeper: {fault}"
        )
    return hosts, chroot


def create_with_parents(
    ask: Callable[[Request, Callable[[Any], None]], None],
    request: Create,
    done: Callable[[Any], None],
) -> None:
    """Create a znode. If its parent is missing, create the parent first (and so on), then retry.

    ``ask`` sends a request and calls back with its response or error. ``done`` receives the
    response or error of the last request.
    """
    parent = request.path.rpartition("/")[0]

    def on_created(answer: Any) -> None:
        if isinstance(answer, NoNode) and parent:
            create_with_parents(ask, Create(parent, b""), has_parent)
        else:
            done(answer)

    def has_parent(answer: Any) -> None:
        if isinstance(answer, ZooKeeperError) and not isinstance(answer, NodeExists):
            done(answer)
        else:
            ask(request, done)

    ask(request, on_created)


def refusal(request: Request) -> RequestRefused | None:
    """Return an error if the request is too large or has an invalid path; None if it can be sent.

    A ZooKeeper server would close the connection for a request that is too large, and kazoo would
    change an invalid path.
    """
    operations = request.operations if isinstance(request, Multi) else (request,)
    size_bytes = 0
    for each in operations:
        fault = _path_fault(each.path)
        if fault is not None:
            return RequestRefused(
                f"{describe(request)}: {each.path!r} is not a valid path of a znode: {fault}"
            )
        size_bytes += _BYTES_BESIDE_DATA + len(each.path.encode())
        if isinstance(each, Create | Set):
            size_bytes += len(each.data)
    if size_bytes > MAX_REQUEST_BYTES:
        return RequestRefused(
            f"{describe(request)}: not sent, because the request has {size_bytes} bytes and "
            f"ZooKeeper accepts at most {MAX_REQUEST_BYTES}"
        )
    return None


def _path_fault(path: str) -> str | None:
    if not path.startswith("/"):
        return "the path does not begin with /"
    if path == "/":
        return None
    for part in path[1:].split("/"):
        if part in ("", ".", ".."):
            return f"{part!r} is not a valid name of a znode"
    if _FORBIDDEN.search(path) is not None:
        return "the path has a character that ZooKeeper does not allow"
    return None
