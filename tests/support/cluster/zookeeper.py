"""A simulated ZooKeeper and one loop: for tests of what a broker has in its cluster."""

from collections.abc import Callable
from typing import Any

from klog_broker.config import Listener
from klog_broker.metadata.image import BrokerRegistration
from klog_broker.metadata.zookeeper.sessions import Sessions, SessionUser
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.zookeeper.requests import Exists, Get
from klog_broker.runtime.zookeeper.sessions import Session, ZooKeeperError
from pyspark_klog.ids import BrokerId
from tests.simulation.world import START_MS, World
from tests.simulation.zookeeper import Client, SimulatedZooKeeper
from tests.simulation.zookeeper.tree import Tree
from tests.support.runtime.fake_network import ScriptedPoller

SESSION_MS = 6_000


class ClusterWorld:
    """All processes share the loop. A response takes a few milliseconds of virtual time."""

    def __init__(self, seed: int = 0) -> None:
        self.world = World(seed)
        self.loop = Loop(self.world.clock, ScriptedPoller())
        self.zookeeper = SimulatedZooKeeper(self.world)
        self._admin: Session | None = None

    def sessions(self, *users: SessionUser) -> tuple[Sessions, Client]:
        """Start a process whose sessions the users share."""
        client = self.zookeeper.client("process")
        sessions = Sessions(self.loop, client.opener(SESSION_MS))
        sessions.use(users)
        sessions.open_first_session()
        return sessions, client

    def until(self, is_so: Callable[[], Any], what: str = "it", *, within_ms: int = 60_000) -> Any:
        """Let virtual time pass until the condition is true."""
        end_ms = self.world.now_ms + within_ms
        while True:
            self._turn()
            found = is_so()
            if found:
                return found
            if self.world.now_ms >= end_ms:
                raise AssertionError(f"{what} did not come")
            self._step(end_ms)

    def advance(self, by_ms: int) -> None:
        """Let this many milliseconds of virtual time pass."""
        end_ms = self.world.now_ms + by_ms
        while self.world.now_ms < end_ms:
            self._turn()
            self._step(end_ms)

    def call_zookeeper(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Return the response to another process's request: a method of Session, without `done`."""
        if self._admin is None:
            opener = self.zookeeper.client("admin").opener(SESSION_MS)
            self._admin = opener(self.loop, lambda _: None)
        answers: list[Any] = []
        getattr(self._admin, name)(*arguments, answers.append, **options)
        self.until(lambda: answers)
        return answers[0]

    def data(self, path: str) -> bytes | None:
        """Return the committed data of a znode; None if there is no such znode."""
        node = self.tree().read(Get(path))
        return None if isinstance(node, ZooKeeperError) else node.data

    def stat(self, path: str) -> Any:
        """Return the committed stat of a znode."""
        return self.tree().read(Exists(path))

    def tree(self) -> Tree:
        """Build the tree of all committed requests."""
        tree = Tree()
        for zxid, entry in enumerate(self.zookeeper.entries, 1):
            if entry.request is None:
                tree.end_session(entry.session_id, zxid)
            else:
                tree.write(entry.request, zxid, entry.session_id)
        return tree

    def _step(self, end_ms: int) -> None:
        """Up to the next event, or to when the loop has something to do."""
        due_ms = self.loop.next_wake_ms()
        until_ms = end_ms if due_ms is None else min(end_ms, due_ms - START_MS)
        events = iter((False, True))
        self.world.run(until_ms, lambda: next(events))

    def _turn(self) -> None:
        while True:
            due_ms = self.loop.next_wake_ms()
            if due_ms is None or due_ms > START_MS + self.world.now_ms:
                return
            self.loop.run_turn(0)


class NotedUser:
    """A SessionUser that records the calls it gets."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.told: list[str] = []

    def connected(self, session: Session) -> None:
        self.session = session
        self.told.append("connected")

    def expired(self) -> None:
        self.told.append("expired")


def registration(number: int, host: str = "127.0.0.1", port: int = 9092) -> BrokerRegistration:
    """A broker with one listener."""
    endpoint = Listener("PLAINTEXT", "PLAINTEXT", host, port)
    return BrokerRegistration(BrokerId(number), (endpoint,))
