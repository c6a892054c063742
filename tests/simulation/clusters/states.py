"""The cluster's partitions and broker registrations, as ZooKeeper has them."""

from __future__ import annotations

from collections.abc import Callable

from klog_broker.runtime.zookeeper.sessions import Create, Set
from pyspark_klog.ids import BrokerId, TopicPartition
from pyspark_klog.znodes.topics import PartitionState
from tests.simulation.controllers.checks import Checks as ControllerChecks
from tests.simulation.controllers.checks import Key, Known

OnJoined = Callable[[Key, PartitionState, BrokerId], None]
OnMade = Callable[[Key, PartitionState], None]


class States(ControllerChecks):
    """Partition states by ZooKeeper's commits.

    Whether a joining follower has caught up is not checked here: InSync checks it.
    """

    on_joined: OnJoined = staticmethod(lambda _key, _after, _who: None)
    """Called with a committed state that adds a broker to the ISR, before the leader knows it."""

    on_made: OnMade = staticmethod(lambda _key, _state: None)
    """Called with the first state of a partition."""

    def _written(self, part: Create | Set) -> None:
        count = len(self._known)
        super()._written(part)
        if len(self._known) > count:
            key = next(reversed(self._known))
            self.on_made(key, self._known[key].state)

    def known(self, key: Key) -> PartitionState | None:
        """The partition's last state, even if its topic is deleted."""
        known = self._known.get(key)
        return None if known is None else known.state

    def life(self, broker_id: int) -> int | None:
        """The czxid of the broker's registration; None: it is not registered."""
        return self._life(BrokerId(broker_id))

    def _next(
        self, key: Key, partition: TopicPartition, before: Known, after: PartitionState
    ) -> Known:
        known = super()._next(key, partition, before, after)
        for each in after.isr:
            if each not in before.state.isr:
                self.on_joined(key, after, each)
        return known

    def _life_met(self, _key: Key, _leader_epoch: int, follower: BrokerId) -> int | None:
        # The session may end while the controller adds the follower to the ISR: it had caught up,
        # and its next registration has another czxid.
        return self._life(follower) or 0
