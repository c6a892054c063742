"""Conversations with ZooKeeper: sequences of requests, each chosen by the response to the last one.

A conversation is a generator. The generator yields a function that sends a request, and receives
the response, which may be an error. When the connection is lost, the generator is closed, because
the outcome of its last request is unknown. The owner of the conversation starts a new one at the
next connection, which first reads the present state.
"""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeVar

from klog_broker.runtime.zookeeper.sessions import (
    Children,
    ConnectionLost,
    Created,
    Node,
    Operation,
    Result,
    Session,
    SessionExpired,
    Stat,
    Watch,
    ZooKeeperError,
)

T = TypeVar("T")
Ask = Callable[[Callable[[Any], None]], None]
Steps = Generator[Ask, Any, T]


class Conversation:
    """Runs sequences of ZooKeeper requests, each given as a generator (`Steps`); only one sequence
    at a time."""

    def __init__(self) -> None:
        self._steps: Steps[None] | None = None
        self._turn = 0

    @property
    def is_under_way(self) -> bool:
        """Whether a sequence of ZooKeeper requests is running."""
        return self._steps is not None

    def start_steps(self, steps: Steps[None]) -> None:
        """Drop the running sequence of ZooKeeper requests, if any, and send the first request of
        `steps`."""
        self.drop()
        self._steps = steps
        self._next_step(None)

    def drop(self) -> None:
        """End the running sequence of ZooKeeper requests, and ignore the response that it waits
        for."""
        steps, self._steps = self._steps, None
        self._turn += 1
        if steps is not None:
            steps.close()

    def _next_step(self, answer: Any) -> None:
        steps = self._steps
        assert steps is not None
        turn = self._turn
        try:
            ask = steps.send(answer)
        except StopIteration:
            if turn == self._turn:
                self._steps = None
            return
        if turn == self._turn:
            ask(lambda answer: self._on_response(turn, answer))

    def _on_response(self, turn: int, answer: Any) -> None:
        if turn != self._turn:
            return
        self._turn += 1
        if isinstance(answer, ConnectionLost | SessionExpired):
            self.drop()
        else:
            self._next_step(answer)


def get(session: Session, path: str, watch: Watch | None = None) -> Steps[Node | ZooKeeperError]:
    """Return the data and stat of a znode, or an error."""
    answer: Node | ZooKeeperError
    answer = yield lambda done: session.get(path, done, watch=watch)
    return answer


def exists(
    session: Session, path: str, watch: Watch | None = None
) -> Steps[Stat | ZooKeeperError | None]:
    """Return the stat of a znode, None if there is no such znode, or an error."""
    answer: Stat | ZooKeeperError | None
    answer = yield lambda done: session.exists(path, done, watch=watch)
    return answer


def children(
    session: Session, path: str, watch: Watch | None = None
) -> Steps[Children | ZooKeeperError]:
    """Return the names of a znode's children, or an error."""
    answer: Children | ZooKeeperError
    answer = yield lambda done: session.children(path, done, watch=watch)
    return answer


def create(
    session: Session, path: str, data: bytes, *, ephemeral: bool = False
) -> Steps[Created | ZooKeeperError]:
    """Create a znode, and its missing parents."""
    answer: Created | ZooKeeperError
    answer = yield lambda done: session.create(
        path, data, done, ephemeral=ephemeral, makes_parents=True
    )
    return answer


def put(session: Session, path: str, data: bytes, version: int) -> Steps[Stat | ZooKeeperError]:
    """Replace the data of a znode if the znode has `version`."""
    answer: Stat | ZooKeeperError
    answer = yield lambda done: session.set(path, data, version, done)
    return answer


def multi(session: Session, *operations: Operation) -> Steps[tuple[Result, ...] | ZooKeeperError]:
    """Send a ZooKeeper multi: the server carries out all `operations`, or none of them."""
    answer: tuple[Result, ...] | ZooKeeperError
    answer = yield lambda done: session.multi(operations, done)
    return answer


def together(asks: list[Ask]) -> Steps[list[Any]]:
    """Call `asks`, functions that each send a request, at once. Return the responses in the order
    of `asks`."""
    if not asks:
        return []
    answers: list[Any] = [None] * len(asks)
    left = len(asks)

    def ask_all(done: Callable[[Any], None]) -> None:
        def on_response(place: int, answer: Any) -> None:
            nonlocal left
            answers[place] = answer
            left -= 1
            if left == 0:
                lost = (ConnectionLost, SessionExpired)
                # Pass a lost connection or session on as the only response, so that it ends the
                # conversation as it does for a single request.
                done(next((each for each in answers if isinstance(each, lost)), answers))

        for place, ask in enumerate(asks):
            ask(partial(on_response, place))

    answer: list[Any] = yield ask_all
    return answer


def sync(session: Session) -> Steps[ZooKeeperError | None]:
    """Wait until this session's ZooKeeper server has all writes that ZooKeeper's leader has made so
    far, so that the next read sees them."""
    answer: ZooKeeperError | None
    answer = yield lambda done: session.sync(done)
    return answer
