"""The interface of a session with ZooKeeper. Simulations replace the implementation.

Each session object is one ZooKeeper session: after the session has expired, open a new object. Only
the loop's thread calls methods, and no method blocks. The loop's thread also runs all callbacks
(responses, watches, events), after the method that caused them has returned.

- Requests are processed, and their responses arrive, in the order of the calls. (A `create` with
  `makes_parents` is several requests.)
- A session sees its own writes, and all writes that were committed before the session was
  CONNECTED. Later writes of other sessions may become visible late, but in their order.
- A watch is called at most once, before any response that was made after the change. A watch only
  says that the data must be read again. DISCONNECTED drops all watches: read and watch again at
  CONNECTED.
- At most `REQUESTS_IN_FLIGHT` requests are at the server. Further requests wait in the session, in
  order.
- Before the event DISCONNECTED, every request made so far gets its response or `ConnectionLost`.
  A lost request was processed, will be processed before any request made after DISCONNECTED, or
  never will be: so a read at CONNECTED shows the outcome. A lost request may be processed although
  an earlier one never is.
- Requests made while DISCONNECTED wait for CONNECTED or EXPIRED. Only a server can expire a
  session: there is no event while no server can be reached.
- EXPIRED is the last event. All watches are dropped, and the server deletes the ephemeral znodes.
  All waiting requests have failed with `SessionExpired`, and so does every later request.

Paths are absolute and lie below the chroot of the connect string; callers never see the chroot. The
session creates the znode of the chroot, with its parents, if it is missing.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar

from pyspark_klog.errors import KlogError

REQUESTS_IN_FLIGHT = 64
MAX_REQUEST_BYTES = 1_000_000
"""The limit for the estimated size of one request. A larger request fails before it is sent,
because a ZooKeeper server closes the connection for a request above jute.maxbuffer (default: 1
MiB)."""
ANY_VERSION = -1
"""The version to name in a request that any version of the znode satisfies."""


class SessionEvent(Enum):
    """A state change of a session. CONNECTED and DISCONNECTED alternate; EXPIRED is the last."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    EXPIRED = "expired"


class Stat(NamedTuple):
    """The metadata of a znode."""

    czxid: int
    """Id of the transaction that created the znode. For a broker's registration, this id is the
    broker epoch."""
    mzxid: int
    """Id of the transaction that last changed the znode's data."""
    version: int
    """The number of changes of the znode's data."""
    ephemeral_owner: int
    """Id of the session that an ephemeral znode belongs to; 0 for a persistent znode."""
    children: int
    """The number of the znode's children."""


class Node(NamedTuple):
    """The response of `get`: data and metadata of a znode."""

    data: bytes
    stat: Stat


class Children(NamedTuple):
    """The response of `children`: the sorted names of the children, and the parent's metadata."""

    names: tuple[str, ...]
    stat: Stat


class Created(NamedTuple):
    """The response of `create`: the path, including the number of a sequential znode."""

    path: str
    stat: Stat | None
    """The metadata of the created znode; None as a result in a `multi`, where kazoo returns only
    the path."""


# --- the operations of a multi, and their results -----------------------------------------------


class Create(NamedTuple):
    """Creates a znode. The result is a `Created`.

    The parent must exist, or an earlier operation of the multi must create it.
    """

    path: str
    data: bytes
    ephemeral: bool = False
    sequential: bool = False


class Set(NamedTuple):
    """Replaces the data of a znode if the znode has `version`, or if `version` is ANY_VERSION. The
    result is the new `Stat`."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Deletes a znode if the znode has `version`, or if `version` is ANY_VERSION. The result is
    None."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Fails unless the znode exists and has `version`. The result is None."""

    path: str
    version: int


Operation = Create | Set | Delete | Check
Result = Created | Stat | None


# --- errors that a request's callback receives instead of a response ------------------------------


class ZooKeeperError(KlogError):
    """A request failed, or its outcome is unknown. The message names the request and its path.

    An error of ZooKeeper for which there is no subclass below is of this class itself, for example
    an exceeded quota of znodes.
    """


class NoNode(ZooKeeperError):
    """The znode does not exist, or the parent of a znode to be created does not."""


class NodeExists(ZooKeeperError):
    """The znode to be created already exists."""


class BadVersion(ZooKeeperError):
    """The znode's data has another version than the request names."""


class NotEmpty(ZooKeeperError):
    """The znode to be deleted has children."""


class NoAuth(ZooKeeperError):
    """The znode's access control list does not allow the request."""


class RequestRefused(ZooKeeperError):
    """The request is invalid, and nothing was changed: too large (`MAX_REQUEST_BYTES`), an invalid
    path, or a child of an ephemeral znode."""


class SessionExpired(ZooKeeperError):
    """The session has expired. A request without a response may have been processed."""


class ConnectionLost(ZooKeeperError):
    """The connection broke before the response, or before the request was sent, or ZooKeeper gave
    the request up. The outcome is unknown, so the caller has to read the znode again."""


class MultiFailed(ZooKeeperError):
    """A multi (several operations, all or none) changed nothing, because the operation at `index`,
    the first to fail, has failed with `error`."""

    def __init__(self, index: int, error: ZooKeeperError) -> None:
        super().__init__(f"a multi changed nothing, because operation {index} failed: {error}")
        self.index = index
        self.error = error


# --- the interfaces of a session and of the function that opens it ------------------------------

T = TypeVar("T")
Done = Callable[[T | ZooKeeperError], None]
Watch = Callable[[], None]


class Session(Protocol):
    """One ZooKeeper session. The module's docstring states what all methods guarantee."""

    @property
    def session_id(self) -> int:
        """The session's id, as in `Stat.ephemeral_owner`; 0 before the first connection."""

    @property
    def timeout_ms(self) -> int:
        """The session's time-out, which the ZooKeeper server has set: at least minSessionTimeout,
        two of its ticks unless configured. 0 before the first connection."""

    def get(self, path: str, done: Done[Node], *, watch: Watch | None = None) -> None:
        """Read a znode. The watch is called when its data changes or the znode is deleted.

        If the request fails, there is no watch.
        """

    def exists(self, path: str, done: Done[Stat | None], *, watch: Watch | None = None) -> None:
        """Read a znode's metadata; None if the znode does not exist.

        The watch is called when the data changes, or the znode is deleted or created.
        """

    def children(self, path: str, done: Done[Children], *, watch: Watch | None = None) -> None:
        """List the names of a znode's children.

        The watch is called when a child is created or deleted, or the znode itself is deleted, but
        not when the data of a child changes. If the request fails, there is no watch.
        """

    def create(
        self,
        path: str,
        data: bytes,
        done: Done[Created],
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        makes_parents: bool = False,
    ) -> None:
        """Create a znode that all clients may access.

        The server appends ten digits to the path of a sequential znode, a higher number than that
        of any earlier sibling. With `makes_parents`, missing parents are created first, empty and
        persistent, by separate requests. Other sessions may then see the parents before the znode,
        and requests made after this one may be processed before it.
        """

    def set(self, path: str, data: bytes, version: int, done: Done[Stat]) -> None:
        """Replace a znode's data, if the znode has `version` or `version` is `ANY_VERSION`."""

    def delete(self, path: str, version: int, done: Done[None]) -> None:
        """Delete a znode without children, if it has `version` or `version` is `ANY_VERSION`."""

    def multi(self, operations: Sequence[Operation], done: Done[tuple[Result, ...]]) -> None:
        """Do all operations in their order, or none.

        Each operation sees the effect of those before it. `done` receives the results in the order
        of the operations, or an error: `MultiFailed` if an operation has failed.
        """

    def sync(self, done: Done[None]) -> None:
        """Make the session's ZooKeeper server catch up with all writes committed so far, by any
        session.

        Without a sync, the server may not have a write yet that another broker has announced.
        """

    def close(self, done: Callable[[], None] | None = None) -> None:
        """End the session; the server then deletes the session's ephemeral znodes at once.

        No other callback of the session is called any more, even for requests without a response.
        `done` is called when a server has ended the session or none could be reached, which may
        take as long as an attempt to connect. If none could be reached, the ephemeral znodes stay
        until the session times out.
        """


class SessionLoop(Protocol):
    """The methods of the broker's event loop (`runtime/event_loop/loop.py`) that a session
    calls."""

    def call_soon(self, action: Callable[[], None]) -> None:
        """Run ``action`` soon in the loop's thread, after the caller has returned to the event
        loop. Call from the loop's thread."""

    def post(self, action: Callable[[], None]) -> None:
        """Run ``action`` in the loop's thread, in order of posting. Call from any thread."""


class OpenSession(Protocol):
    """Opens sessions: on kazoo in a broker, simulated ones in tests."""

    def __call__(self, loop: SessionLoop, on_event: Callable[[SessionEvent], None]) -> Session:
        """Begin a session. `on_event` receives the session's events: CONNECTED comes after a
        ZooKeeper server has accepted the session.

        The caller may make requests at once: they wait for CONNECTED.
        """
