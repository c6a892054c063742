"""Conversations with ZooKeeper: requests one after the other, each decided on the last answer.

A conversation is a generator: it yields what makes a request, and gets the answer, an error too.
When the connection breaks the generator is closed where it is, since nobody knows what became of
its request: whoever led it begins anew at the next connection, and reads first what is there.
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
    """One conversation at a time."""

    def __init__(self) -> None:
        self._steps: Steps[None] | None = None
        self._turn = 0

    @property
    def is_under_way(self) -> bool:
        """Whether an answer is waited for."""
        return self._steps is not None

    def begin(self, steps: Steps[None]) -> None:
        """Take the first step now, in place of the conversation that was under way."""
        self.drop()
        self._steps = steps
        self._go_on(None)

    def drop(self) -> None:
        """End the conversation where it is. Its answer is not heard any more."""
        steps, self._steps = self._steps, None
        self._turn += 1
        if steps is not None:
            steps.close()

    def _go_on(self, answer: Any) -> None:
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
            ask(lambda answer: self._answered(turn, answer))

    def _answered(self, turn: int, answer: Any) -> None:
        if turn != self._turn:
            return
        self._turn += 1
        if isinstance(answer, ConnectionLost | SessionExpired):
            self.drop()
        else:
            self._go_on(answer)


def get(session: Session, path: str, watch: Watch | None = None) -> Steps[Node | ZooKeeperError]:
    """Data of a node."""
    answer: Node | ZooKeeperError
    answer = yield lambda done: session.get(path, done, watch=watch)
    return answer


def exists(
    session: Session, path: str, watch: Watch | None = None
) -> Steps[Stat | ZooKeeperError | None]:
    """A node's stat, or None."""
    answer: Stat | ZooKeeperError | None
    answer = yield lambda done: session.exists(path, done, watch=watch)
    return answer


def children(
    session: Session, path: str, watch: Watch | None = None
) -> Steps[Children | ZooKeeperError]:
    """Names of a node's children."""
    answer: Children | ZooKeeperError
    answer = yield lambda done: session.children(path, done, watch=watch)
    return answer


def create(
    session: Session, path: str, data: bytes, *, ephemeral: bool = False
) -> Steps[Created | ZooKeeperError]:
    """A new node, with its parents."""
    answer: Created | ZooKeeperError
    answer = yield lambda done: session.create(
        path, data, done, ephemeral=ephemeral, makes_parents=True
    )
    return answer


def put(session: Session, path: str, data: bytes, version: int) -> Steps[Stat | ZooKeeperError]:
    """A node's data replaced, if it has the version."""
    answer: Stat | ZooKeeperError
    answer = yield lambda done: session.set(path, data, version, done)
    return answer


def multi(session: Session, *operations: Operation) -> Steps[tuple[Result, ...] | ZooKeeperError]:
    """All of these or none."""
    answer: tuple[Result, ...] | ZooKeeperError
    answer = yield lambda done: session.multi(operations, done)
    return answer


def together(asks: list[Ask]) -> Steps[list[Any]]:
    """The answers to several requests at once, in their order."""
    if not asks:
        return []
    answers: list[Any] = [None] * len(asks)
    left = len(asks)

    def ask_all(done: Callable[[Any], None]) -> None:
        def answered(place: int, answer: Any) -> None:
            nonlocal left
            answers[place] = answer
            left -= 1
            if left == 0:
                lost = (ConnectionLost, SessionExpired)
                # Alone it ends the conversation, as for a single request.
                done(next((each for each in answers if isinstance(each, lost)), answers))

        for place, ask in enumerate(asks):
            ask(partial(answered, place))

    answer: list[Any] = yield ask_all
    return answer


def sync(session: Session) -> Steps[ZooKeeperError | None]:
    """What is read from now on shows all that was written so far."""
    answer: ZooKeeperError | None
    answer = yield lambda done: session.sync(done)
    return answer
