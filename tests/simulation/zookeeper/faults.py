"""Faults of the servers, and of sessions."""

from klog_broker.runtime.zookeeper.sessions import ANY_VERSION, Delete, Session
from pyspark_klog.znodes.paths import CONTROLLER
from tests.simulation.zookeeper.servers import Entry, SimulatedZooKeeper


class ZooKeeperFaults:
    """Injects faults, and notes each in the trace."""

    def __init__(self, zookeeper: SimulatedZooKeeper) -> None:
        self._zookeeper = zookeeper

    def expire(self, name: str, session: Session | None) -> None:
        """End the present session of the named process at once."""
        if session is not None and session.session_id:
            self._note(f"{name}'s session is over")
            self._zookeeper.expire(session.session_id)

    def stop(self) -> bool:
        """Stop all servers; return whether they were up."""
        if self._zookeeper.is_down:
            return False
        self._note("ZooKeeper is down")
        self._zookeeper.stop()
        return True

    def start(self) -> None:
        if self._zookeeper.is_down:
            self._note("ZooKeeper is back")
            self._zookeeper.start()

    def delete_controller(self) -> None:
        """Delete the controller's node, as administrators do to have another controller elected."""
        if not self._zookeeper.is_down:
            self._note("the controller's node is deleted")
            self._zookeeper.commit(Entry(0, Delete(CONTROLLER, ANY_VERSION)))

    def _note(self, text: str) -> None:
        self._zookeeper.world.note(text)
