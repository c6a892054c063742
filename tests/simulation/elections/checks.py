"""The promises of an election: ZooKeeper's commits and the brokers' claims must fit them."""

from collections.abc import Callable
from typing import Any

from klog_broker.controller.zookeeper.errors import ControllerMoved
from klog_broker.controller.zookeeper.fenced_writes import ControllerEpoch
from klog_broker.runtime.zookeeper.requests import Get, Multi
from klog_broker.runtime.zookeeper.sessions import Create, MultiFailed, Set, ZooKeeperError
from pyspark_klog.znodes.paths import CONTROLLER, CONTROLLER_EPOCH
from tests.simulation.world import Violation
from tests.simulation.zookeeper import SimulatedZooKeeper
from tests.simulation.zookeeper.tree import Change, Tree


class Checks:
    """Follows the commits with a tree of its own."""

    def __init__(self, zookeeper: SimulatedZooKeeper) -> None:
        self.tree = Tree()
        self.elections: dict[int, int] = {}
        """The session that won each controller epoch."""
        self.on_won: Callable[[int], None] = lambda _: None
        """Called with the session of each election, before its client can have the response."""
        self.on_vacant: Callable[[], None] = lambda: None
        """Called when the controller's node has gone."""
        self.writes = 0
        self._zookeeper = zookeeper
        self._applied = 0
        self._claimed: dict[int, str] = {}
        self._landed: set[str] = set()

    def follow(self) -> None:
        """Check all commits since the last call."""
        entries = self._zookeeper.entries
        while self._applied < len(entries):
            entry = entries[self._applied]
            self._applied += 1
            if entry.request is None:
                self._changed(self.tree.end_session(entry.session_id, self._applied))
                continue
            before = self.epoch()
            answer, changes = self.tree.write(entry.request, self._applied, entry.session_id)
            if not isinstance(answer, ZooKeeperError):
                self._committed(entry.request, entry.session_id, before)
                self._changed(changes)

    def epoch(self) -> int:
        """The epoch in /controller_epoch now."""
        node = self.tree.read(Get(CONTROLLER_EPOCH))
        return 0 if isinstance(node, ZooKeeperError) else int(node.data)

    def elected(self, name: str, session_id: int, epoch: ControllerEpoch) -> None:
        """A broker claims to be the controller of the epoch."""
        self.follow()
        other = self._claimed.setdefault(epoch.number, name)
        if other != name or self.elections.get(epoch.number) != session_id:
            text = f"{name} is the controller of epoch {epoch.number}, won by {other}"
            raise Violation("one controller an epoch", text)

    def check_response(self, text: str, answer: Any) -> None:
        """A controller's write was answered."""
        self.follow()
        if isinstance(answer, ControllerMoved | MultiFailed) and text in self._landed:
            raise Violation("what is refused is not done", text)
        if not isinstance(answer, Exception) and text not in self._landed:
            raise Violation("what is acknowledged is done", text)

    def _committed(self, request: Any, session_id: int, before: int) -> None:
        for part in request.operations if isinstance(request, Multi) else (request,):
            if isinstance(part, Create) and part.path == CONTROLLER:
                epoch = self.epoch()
                if epoch != before + 1 or epoch in self.elections:
                    text = f"an election raised the epoch from {before} to {epoch}"
                    raise Violation("epochs rise by one", text)
                self.elections[epoch] = session_id
                self.on_won(session_id)
            elif isinstance(part, Create | Set) and part.path.startswith("/work"):
                self._worked(part.data.decode())

    def _changed(self, changes: list[Change]) -> None:
        is_there = not isinstance(self.tree.read(Get(CONTROLLER)), ZooKeeperError)
        if Change(CONTROLLER, False) in changes and not is_there:
            self.on_vacant()

    def _worked(self, text: str) -> None:
        if not text:
            return
        self.writes += 1
        self._landed.add(text)
        epoch = int(text.split()[2])
        if epoch != self.epoch():
            text = f"{text!r} was written in epoch {self.epoch()}"
            raise Violation("a deposed controller writes nothing", text)
