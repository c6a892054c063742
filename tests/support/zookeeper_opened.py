"""A session that logs all it calls back, and the worlds in which the contract's tests run."""

from collections.abc import Callable
from typing import Any, Protocol

from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.zookeeper.sessions import (
    OpenSession,
    SessionEvent,
)

CONNECTED, DISCONNECTED, EXPIRED = SessionEvent


class ContractWorld(Protocol):
    """A ZooKeeper, the way to it, and a loop."""

    loop: Loop

    def opener(self, chroot: str) -> OpenSession:
        """Opens sessions at this chroot. Each call is another process."""

    def until(self, is_so: Callable[[], Any], what: str) -> Any:
        """Lets the loop turn until it is so, and returns what that was."""

    def expire(self, session_id: int) -> None:
        """Ends a session from outside."""

    def stop(self) -> None:
        """The servers are down."""

    def start(self) -> None:
        """They are back, with their data."""

    def pause(self) -> None:
        """The servers stand still."""

    def resume(self) -> None:
        """They go on."""


class Opened:
    """A session, and all that it has called back, in order."""

    def __init__(self, world: ContractWorld, chroot: str, *, is_awaited: bool = True) -> None:
        self.world = world
        self.log: list[Any] = []
        self.session: Any = world.opener(chroot)(world.loop, self.log.append)
        if is_awaited:
            self.until(CONNECTED)

    def until(self, entry: Any, times: int = 1) -> None:
        """Waits until the log has it (so often)."""
        self.world.until(lambda: self.log.count(entry) >= times, str(entry))

    def begin(self, name: str, *args: Any, **options: Any) -> list[Any]:
        """Asks; the list gets the answer."""
        answers: list[Any] = []

        def done(answer: Any) -> None:
            answers.append(answer)
            self.log.append(answer)

        if name == "create" and len(args) == 1:
            args = (*args, b"")
        getattr(self.session, name)(*args, done, **options)
        assert answers == []  # later, never out of the call
        return answers

    def ask(self, name: str, *args: Any, **options: Any) -> Any:
        """Asks, and waits for the answer."""
        answers = self.begin(name, *args, **options)
        self.world.until(lambda: answers, f"an answer to {name} {args[:1]}")
        assert len(answers) == 1
        return answers[0]

    def watch(self, name: str) -> Callable[[], None]:
        """A watch that logs its name."""
        return lambda: self.log.append(name)

    def end(self) -> None:
        """Closes, and waits until a server knows."""
        ended: list[bool] = []
        self.session.close(lambda: ended.append(True))
        self.world.until(lambda: ended, "the end of the session")


class Counting:
    """A carrier that notes how many requests are under way."""

    def __init__(self, carrier: Any) -> None:
        self._carrier = carrier
        self.now = 0
        self.most = 0

    def send(self, request: Any, reply: Callable[[Any], None], watch: Any = None) -> None:
        def answered(answer: Any) -> None:
            self.now -= 1
            reply(answer)

        self.now += 1
        self.most = max(self.most, self.now)
        self._carrier.send(request, answered, watch)

    def close(self, done: Callable[[], None]) -> None:
        self._carrier.close(done)
