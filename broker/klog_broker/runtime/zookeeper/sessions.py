"""A session with ZooKeeper, as the broker sees it: the seam that a simulation replaces.

One object is one session and dies with it; a new session is a new object. All calls are for the
loop's thread, and none blocks. What is called back (an answer, a watch, an event) is called later,
in the loop's thread, never out of a call itself.

- Requests are done, and answered, in their order. (A `create` that `makes_parents` is several.)
- A session sees its own writes, and all that was done before it was CONNECTED. Later writes of
  others it may see late, but in their order.
- A watch is called at most once, before any answer that was made after the change; it says "read
  again" and nothing else. DISCONNECTED drops all watches: read and watch anew at CONNECTED.
- At most `REQUESTS_IN_FLIGHT` requests are at the server; others wait in the session, in order.
- At DISCONNECTED everything that was asked before it has been answered, what had no answer with
  `ConnectionLost`. Each of these was done, will be done before anything that is asked after
  DISCONNECTED, or never: so reading back at CONNECTED tells. One may be done though one before it
  never is.
- What is asked while DISCONNECTED waits for CONNECTED, or for EXPIRED. Only a server says that a
  session is over: while none can be reached nothing comes.
- EXPIRED is the last event: watches are dropped, the ephemeral nodes are gone or will be, requests
  that waited were answered (`SessionExpired`), and so is each that is still made.

A path is absolute and below the chroot of the connect string, which nobody sees. The chroot's own
node is made, with its parents, where it is missing.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar

from pyspark_klog.errors import KlogError

REQUESTS_IN_FLIGHT = 64
MAX_REQUEST_BYTES = 1_000_000
"""Data and paths of one request. A server drops the connection above jute.maxbuffer, 1 MiB there
and hardly ever set: a request that cannot pass is refused here, and the connection stays."""
ANY_VERSION = -1


class SessionEvent(Enum):
    """What happens to a session. CONNECTED and DISCONNECTED take turns, EXPIRED ends it."""

    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    EXPIRED = "expired"


class Stat(NamedTuple):
    """What ZooKeeper knows of a node besides its data."""

    czxid: int
    """The transaction that made the node. A broker's epoch is that of its own node."""
    mzxid: int
    """The transaction that last changed its data."""
    version: int
    """How often its data were changed."""
    ephemeral_owner: int
    """The session it goes with; 0 for a node that stays."""
    children: int
    """How many children it has."""


class Node(NamedTuple):
    """The answer to `get`."""

    data: bytes
    stat: Stat


class Children(NamedTuple):
    """The answer to `children`: last parts of paths, sorted."""

    names: tuple[str, ...]
    stat: Stat


class Created(NamedTuple):
    """The answer to `create`: the path, with its number if it is sequential."""

    path: str
    stat: Stat | None
    """None in the answer to a `multi`, where the client library reads paths only."""


# --- the parts of a multi -----------------------------------------------------------------------


class Create(NamedTuple):
    """Answered by a `Created`. Its parent must be there, if only by an earlier part."""

    path: str
    data: bytes
    ephemeral: bool = False
    sequential: bool = False


class Set(NamedTuple):
    """Answered by the node's `Stat`."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Answered by None."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """The node is there and has this version. Answered by None."""

    path: str
    version: int


Operation = Create | Set | Delete | Check
Result = Created | Stat | None


# --- errors: an answer is a value or one of these -----------------------------------------------


class ZooKeeperError(KlogError):
    """A request was not done, or nobody knows; the text names the request and its path.

    The class itself is for what no broker expects, such as a quota on nodes.
    """


class NoNode(ZooKeeperError):
    """The node, or the parent of a node to be made, is not there."""


class NodeExists(ZooKeeperError):
    """A node to be made is there."""


class BadVersion(ZooKeeperError):
    """The node's data were changed since the version that the request names."""


class NotEmpty(ZooKeeperError):
    """A node to be deleted has children."""


class NoAuth(ZooKeeperError):
    """The node's access list does not let this session do it."""


class RequestRefused(ZooKeeperError):
    """No server would do it: too large (`MAX_REQUEST_BYTES`), a child of an ephemeral node, a
    malformed path. Nothing was done."""


class SessionExpired(ZooKeeperError):
    """The session is over. A write that was on its way may have been done."""


class ConnectionLost(ZooKeeperError):
    """The connection broke while the request was on its way, or before its turn came. The outcome
    is unknown: the caller reads back."""


class MultiFailed(ZooKeeperError):
    """Nothing of a multi was done. `error` is what was wrong with the part at `index`, the first
    that could not be done."""

    def __init__(self, index: int, error: ZooKeeperError) -> None:
        super().__init__(f"part {index} of a multi, so nothing of it was done: {error}")
        self.index = index
        self.error = error


# --- the session --------------------------------------------------------------------------------

T = TypeVar("T")
Done = Callable[[T | ZooKeeperError], None]
Watch = Callable[[], None]


class Session(Protocol):
    """One session. See the module for what holds for all of its calls."""

    @property
    def session_id(self) -> int:
        """As `Stat.ephemeral_owner` has it; 0 before the first CONNECTED."""

    def get(self, path: str, done: Done[Node], *, watch: Watch | None = None) -> None:
        """Data of a node. The watch waits for its next change or its end; with an error there is
        no watch."""

    def exists(self, path: str, done: Done[Stat | None], *, watch: Watch | None = None) -> None:
        """The node's stat, or None. The watch waits for its next change, its end, or, where it is
        missing, its creation."""

    def children(self, path: str, done: Done[Children], *, watch: Watch | None = None) -> None:
        """Names of a node's children. The watch waits for a child made or deleted, and for the end
        of the node itself; not for changes of a child. With an error there is no watch."""

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
        """Makes a node, open to all. A sequential one gets ten digits behind its path, more than
        any of its siblings had. With `makes_parents` missing parents are made first, empty ones
        that stay, by requests of their own: others may see them before the node, and requests made
        after this one may be done before it."""

    def set(self, path: str, data: bytes, version: int, done: Done[Stat]) -> None:
        """Replaces a node's data, if it has `version` (or that is `ANY_VERSION`)."""

    def delete(self, path: str, version: int, done: Done[None]) -> None:
        """Deletes a node without children, if it has `version` (or that is `ANY_VERSION`)."""

    def multi(self, operations: Sequence[Operation], done: Done[tuple[Result, ...]]) -> None:
        """All of these, each seeing what those before it did, or none. Answered by their results in
        their order, or by `MultiFailed`."""

    def sync(self, done: Done[None]) -> None:
        """The server catches up with all that was done so far, by whoever: a server may lag behind
        what another broker has written and told of."""

    def close(self, done: Callable[[], None] | None = None) -> None:
        """Ends the session; its ephemeral nodes go as soon as a server hears of it.

        Nothing else of the session is called any more, not even for requests without an answer.
        `done` is called when a server has taken the end, or could not be told: then its nodes go
        when the session's time is over. That may take as long as a connection attempt does.
        """


class SessionLoop(Protocol):
    """What a session needs of the loop (`runtime/event_loop/loop.py`)."""

    def call_soon(self, action: Callable[[], None]) -> None:
        """From the loop's thread: at the beginning of the next turn."""

    def post(self, action: Callable[[], None]) -> None:
        """From any thread: in the loop's, in order of posting."""


class OpenSession(Protocol):
    """The broker's parameter: kazoo for real, simulated in tests."""

    def __call__(self, loop: SessionLoop, on_event: Callable[[SessionEvent], None]) -> Session:
        """Begins a session: `on_event` is called with CONNECTED once there is one.

        Requests may be made at once; they wait.
        """
