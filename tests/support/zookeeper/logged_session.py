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
        """Open sessions at this chroot. Each call stands for another process."""

    def until(self, is_so: Callable[[], Any], what: str) -> Any:
        """Run the loop until the condition is true, and return the condition's value."""

    def expire(self, session_id: int) -> None:
        """End a session from outside."""

    def stop(self) -> None:
        """Stop the servers."""

    def start(self) -> None:
        """Start the servers again, with their data."""

    def pause(self) -> None:
        """Pause the servers: they stop responding."""

    def resume(self) -> None:
        """Resume the paused servers."""


class Opened:
    """A session, and all that it has called back, in order."""

    def __init__(self, world: ContractWorld, chroot: str, *, is_awaited: bool = True) -> None:
        self.world = world
        self.log: list[Any] = []
        self.session: Any = world.opener(chroot)(world.loop, self.log.append)
        if is_awaited:
            self.until(CONNECTED)

    def until(self, entry: Any, times: int = 1) -> None:
        """Wait until the log contains the entry (``times`` times)."""
        self.world.until(lambda: self.log.count(entry) >= times, str(entry))

    def send_request(self, name: str, *args: Any, **options: Any) -> list[Any]:
        """Send a request; the returned list gets the response."""
        answers: list[Any] = []

        def on_response(answer: Any) -> None:
            answers.append(answer)
            self.log.append(answer)

        if name == "create" and len(args) == 1:
            args = (*args, b"")
        getattr(self.session, name)(*args, on_response, **options)
        assert answers == []  # later, never out of the call
        return answers

    def call_zookeeper(self, name: str, *args: Any, **options: Any) -> Any:
        """Send a request and wait for the response."""
        answers = self.send_request(name, *args, **options)
        self.world.until(lambda: answers, f"an answer to {name} {args[:1]}")
        assert len(answers) == 1
        return answers[0]

    def watch(self, name: str) -> Callable[[], None]:
        """A watch that logs its name."""
        return lambda: self.log.append(name)

    def close_session(self) -> None:
        """Close the session, and wait until a server has ended it."""
        ended: list[bool] = []
        self.session.close(lambda: ended.append(True))
        self.world.until(lambda: ended, "the end of the session")


class Counting:
    """A carrier that notes how many requests are under way."""

    def __init__(self, carrier: Any) -> None:
        self._carrier = carrier
        self.now = 0
        self.most = 0

    def send(self, request: Any, on_response: Callable[[Any], None], watch: Any = None) -> None:
        def count_response(answer: Any) -> None:
            self.now -= 1
            on_response(answer)

        self.now += 1
        self.most = max(self.most, self.now)
        self._carrier.send(request, count_response, watch)

    def close(self, done: Callable[[], None]) -> None:
        self._carrier.close(done)
