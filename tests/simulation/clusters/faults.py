"""The faults of a cluster: those of a single machine, and those of the connections between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark_klog.ids import BrokerId
from pyspark_klog.znodes.topics import NO_LEADER, PartitionState
from tests.simulation.clusters.machines import ClusterMachine
from tests.simulation.clusters.router import ZOOKEEPER, Router, Way
from tests.simulation.faults import OF_TRANSACTIONS, Faults
from tests.simulation.machine import Machine
from tests.simulation.plan import Plan
from tests.simulation.world import World
from tests.simulation.zookeeper.faults import ZooKeeperFaults

_CLIENTS = "clients"
_FULL_MS = 6_000
_OF_GROUPS = ("assigned", "committed", "committed")
_MEAN_MS = (200, 500, 1_500)
"""The mean times between two faults: short, because a fault hits only one of three machines."""


class ClusterFaults(Faults):
    """Faults that each hit one machine, more often the controller's than another."""

    def __init__(
        self,
        world: World,
        machines: Sequence[ClusterMachine],
        router: Router,
        zookeeper: ZooKeeperFaults,
        plan: Plan,
    ) -> None:
        self._all = machines
        self._router = router
        self._zookeeper = zookeeper
        self._mends: list[Callable[[], None]] = []
        self._longest_ms = 2 * int(plan.settings["zookeeper.session.timeout.ms"])
        self.is_controller: Callable[[ClusterMachine], bool] = lambda _: False
        self._parts_from_next = False
        super().__init__(world, machines[0], plan)
        of_transactions = OF_TRANSACTIONS * bool(plan.transactional)
        self._promises = ("acknowledged", *_OF_GROUPS * bool(plan.members), *of_transactions)
        self._mean_ms = world.random.choice(_MEAN_MS)

    def _all_kinds(self, plan: Plan) -> list[tuple[int, Callable[[], None]]]:
        return [
            (3, self._reset),
            (1, self._stall),
            (3, self._kill),
            (2, self._cut_power),
            (2, self._crash_inside),
            (4, self._die_after_promise),
            (1, self._stop),
            (1, self._slow_disk),
            (1, self._jump),
            (3, self._pause),
            (4, self._split),
            (4, self._leave_alone),
            (2, self._lose_zookeeper),
            (1, self._expire),
            (1, self._reset_zookeeper),
            (1, self._stop_zookeeper),
            (1, self._delete_controller),
            (3, self._part_from_joiner),
            (4, self._full_disk),
            (1, self._failed_sync),
            (3, self._die_in_cut),
            (3, self._word_comes_late),
            (2, self._depose_unheard),
            (2, self._lead_on),
        ]

    def stop(self) -> None:
        super().stop()
        self._parts_from_next = False
        self._zookeeper.start()
        for mend in self._mends:
            mend()
        for machine in self._all:
            machine.resume()
            machine.dies_in_cut = None
            machine.is_at_peace = True

    def _machines(self) -> Sequence[Machine]:
        return self._all

    def _next(self) -> None:
        controllers = [each for each in self._all if self.is_controller(each)]
        chosen = controllers if controllers and self._world.chance(0.3) else self._all
        self._machine = self._world.random.choice(chosen)
        super()._next()

    @property
    def _hit(self) -> ClusterMachine:
        assert isinstance(self._machine, ClusterMachine)
        return self._machine

    def _later(self, action: Callable[[], None]) -> None:
        self._world.after(self._world.between(1, self._longest_ms), action)

    def _others(self, *known: ClusterMachine) -> list[ClusterMachine]:
        """The other machines, in any order."""
        others = [each for each in self._all if each not in known]
        self._world.random.shuffle(others)
        return others

    def _controller(self) -> ClusterMachine:
        """The controller's machine; any machine if there is none."""
        controllers = [each for each in self._all if self.is_controller(each)]
        return self._world.random.choice(controllers or self._all)

    def _soon(self, low_ms: int, high_ms: int, action: Callable[[], None]) -> None:
        def act() -> None:
            if not self._is_over:
                action()

        self._world.after(self._world.between(low_ms, high_ms), act)

    # --- disks -----------------------------------------------------------------------------------
    def _full_disk(self) -> None:
        machine, lasts_ms = self._hit, self._world.between(0, _FULL_MS)
        machine.fill_disk(self._world.between(0, self._world.random.choice((0, 300, 3_000))))
        machine.last_trouble_ms = self._world.now_ms + lasts_ms
        self._world.after(lasts_ms, lambda: self._heal(machine))

    def _heal(self, machine: Machine) -> None:
        super()._heal(machine)
        assert isinstance(machine, ClusterMachine)
        machine.fill_disk(None)

    def _die_in_cut(self) -> None:
        """Kill the broker while its log is being truncated, with unsynced steps perhaps undone."""
        self._hit.dies_in_cut = self._world.random.choice(self._ends)

    # --- between machines ------------------------------------------------------------------------
    def _pause(self) -> None:
        machine = self._hit
        machine.pause()
        self._later(machine.resume)

    def _split(self) -> None:
        """Cut some machines off from the others, in one direction or both."""
        random = self._world.random
        places = [each.name for each in self._all]
        alone = random.sample(places, random.randint(1, len(places) - 1))
        others = [each for each in places if each not in alone]
        if self._world.chance(0.5):
            others.append(ZOOKEEPER)
        if self._world.chance(0.3):
            others.append(_CLIENTS)
        out = [(sender, receiver) for sender in alone for receiver in others]
        back = [(receiver, sender) for sender, receiver in out]
        self._cut(random.choice((out, back, out + back)))

    def _leave_alone(self) -> None:
        """Cut a machine off from all others, and perhaps from ZooKeeper, but not from clients.

        The machine leads on in an epoch that may be over, and appends records that no other broker
        will have; or it is the last in-sync replica.
        """
        name = self._hit.name
        others = [each.name for each in self._all if each is not self._hit]
        if self._world.chance(0.5):
            others.append(ZOOKEEPER)
        out = [(name, each) for each in others]
        self._cut([*out, *((receiver, sender) for sender, receiver in out)])

    def _lose_zookeeper(self) -> None:
        name = self._hit.name
        to, back = (name, ZOOKEEPER), (ZOOKEEPER, name)
        self._cut(self._world.random.choice(([to], [back], [to, back])))

    def _part_from_joiner(self) -> None:
        """Cut the leader off before it learns that the next follower has joined the ISR."""
        self._parts_from_next = True

    def joined(self, state: PartitionState, joiner: BrokerId) -> None:
        """``joiner`` has joined the ISR in ZooKeeper, which no broker knows yet."""
        if not self._parts_from_next or state.leader in (joiner, NO_LEADER):
            return
        self._parts_from_next = False
        leader = self._all[state.leader]
        others = [each for each in self._all if each.number == joiner or self.is_controller(each)]
        out = [(leader.name, each.name) for each in others if each is not leader]
        self._cut([*out, *((receiver, sender) for sender, receiver in out)])
        if self._world.chance(0.5):
            self._world.after(self._world.between(100, 1_500), lambda: self._end(leader))

    def _end(self, machine: ClusterMachine) -> None:
        if not self._is_over:
            machine.kill()

    def _lead_on(self) -> None:
        """Expire a leader's session while the controller cannot reach the leader.

        The leader gets a new session at once. Unaware of the new leader, the old one can
        still send requests to the controller.
        """
        controller = self._controller()
        leader = self._others(controller)[0]
        self._cut([(controller.name, leader.name)], self._world.between(2_000, 7_000))
        self._soon(0, 300, lambda: self._zookeeper.expire(leader.name, leader.session))

    def _cut(self, ways: list[Way], for_ms: int | None = None) -> None:
        self._world.note(f"cut {' '.join(f'{sender}>{receiver}' for sender, receiver in ways)}")
        mend = self._router.cut(ways)
        self._mends.append(mend)
        if for_ms is None:
            self._later(mend)
        else:
            self._world.after(for_ms, mend)

    def _word_comes_late(self) -> None:
        """Delay a request until its sender has lost its role.

        The sender is the controller, or a leader that sends to the controller. Its session expires
        meanwhile, and it does not know that.
        """
        controller = self._controller()
        others = self._others(controller)
        speaker, hearer, third = controller, *others
        if self._world.chance(0.4):
            speaker, hearer = hearer, speaker
        session_ms = self._longest_ms // 2
        begin_ms = self._world.between(100, 1_500)
        end_ms = begin_ms + session_ms + self._world.between(500, 2_500)
        self._cut([(speaker.name, hearer.name)], end_ms)
        if self._world.chance(0.7):
            # The controller has requests to send about the third broker, and a leader may, too.
            self._soon(1, begin_ms, self._world.random.choice((third.stop, third.kill)))
        ways = [(speaker.name, ZOOKEEPER), (ZOOKEEPER, speaker.name)]
        after_ms = end_ms - begin_ms + self._world.between(100, 1_000)
        self._soon(begin_ms, begin_ms, lambda: self._cut(ways, after_ms))

    def _depose_unheard(self) -> None:
        """Have another controller elected while the old one has work to do and receives nothing."""
        old = self._controller()
        other = self._others(old)[0]
        self._cut([(ZOOKEEPER, old.name)], self._world.between(200, self._longest_ms // 2))
        self._soon(0, 100, self._zookeeper.delete_controller)
        self._soon(0, 200, other.stop)

    # --- ZooKeeper -------------------------------------------------------------------------------
    def _expire(self) -> None:
        self._zookeeper.expire(self._hit.name, self._hit.session)

    def _reset_zookeeper(self) -> None:
        if self._hit.client is not None:
            self._hit.zookeeper_went()
            self._hit.client.reset()

    def _stop_zookeeper(self) -> None:
        if self._zookeeper.stop():
            for machine in self._all:
                machine.zookeeper_went()
            self._later(self._zookeeper.start)

    def _delete_controller(self) -> None:
        self._zookeeper.delete_controller()
