"""One seed of a cluster from begin to end: brokers start, chaos, healing, and the peace after."""

from __future__ import annotations

from tests.simulation.checks.marks import Marks
from tests.simulation.checks.rest import Rest
from tests.simulation.clusters.checks import Elections, is_controller, member_of
from tests.simulation.clusters.faults import ClusterFaults
from tests.simulation.clusters.machines import ClusterMachine
from tests.simulation.clusters.plan import make_cluster_plan
from tests.simulation.clusters.router import Router
from tests.simulation.elections.checks import Checks as ElectionChecks
from tests.simulation.elections.healed import unhealed
from tests.simulation.run import Result, killed_in_peace
from tests.simulation.world import Violation, World
from tests.simulation.zookeeper import SimulatedZooKeeper
from tests.simulation.zookeeper.faults import ZooKeeperFaults

HEALED = "in the end the cluster is whole"
HEALED_WITHIN_MS = 60_000
"""Of virtual time, after the last fault."""


def run_seed(seed: int) -> Result:
    """Runs it. Bugs of the simulation itself come out as they are."""
    cluster = Cluster(seed)
    world = cluster.world
    check = failure = ""
    try:
        with killed_in_peace():
            cluster.run()
    except Violation as violation:
        check, failure = violation.check, str(violation)
        world.note(f"VIOLATION {violation}")
    finally:
        cluster.vanish()
    return Result(seed, world.trace_hash, check, failure, cluster.summary(), world.lines)


class Cluster:
    """The parts of one run."""

    def __init__(self, seed: int) -> None:
        world = self.world = World(seed)
        plan = self.plan = make_cluster_plan(world)
        world.note(f"seed {seed}: {plan.brokers} brokers, {plan.line()}")
        self.zookeeper = SimulatedZooKeeper(world)
        self.router = Router()
        self.elections = ElectionChecks(self.zookeeper)
        self.machines = [self._machine(number) for number in range(plan.brokers)]
        self.faults = ClusterFaults(
            world, self.machines, self.router, ZooKeeperFaults(self.zookeeper), plan
        )
        self.faults.is_controller = is_controller

    def _machine(self, number: int) -> ClusterMachine:
        plan, world = self.plan, self.world
        machine = ClusterMachine(
            world,
            self.zookeeper,
            self.router,
            number,
            plan.settings,
            [Marks(), Rest(), Elections(self.elections)],
            with_kernel=plan.with_kernel,
            has_socket_calls=plan.has_socket_calls,
            has_cold_pages=plan.has_cold_pages,
            has_small_windows=True,
            disk_slowness=plan.disk_slowness,
        )
        machine.restart_after_ms = lambda: world.between(20, world.random.choice((500, 8_000)))
        return machine

    def run(self) -> None:
        """Violation if a promise is broken."""
        world = self.world
        for machine in self.machines:
            world.after(world.between(0, 1_000), machine.start)
        self.faults.begin()
        world.run(world.now_ms + self.plan.chaos_ms)
        world.note("no more faults")
        self.faults.stop()
        world.run(world.now_ms + HEALED_WITHIN_MS, lambda: not self.unhealed())
        self._must_be_healed()
        # Nothing more happens: what was reached stays.
        world.run(world.now_ms + 2 * int(self.plan.settings["zookeeper.session.timeout.ms"]))
        self._must_be_healed()

    def unhealed(self) -> str:
        """What is not as it must be in the end; empty if all is."""
        members = [member for machine in self.machines if (member := member_of(machine))]
        return unhealed(self.elections, members, len(self.machines))

    def _must_be_healed(self) -> None:
        text = self.unhealed()
        if text:
            raise Violation(HEALED, text)

    def vanish(self) -> None:
        """What still waits somewhere ends."""
        for machine in self.machines:
            machine.vanish()

    def summary(self) -> str:
        """One line."""
        lives = sum(machine.lives for machine in self.machines)
        return (
            f"{self.world.now_ms / 1000:.0f} s, {lives} lives,"
            f" {len(self.elections.elections)} elections, {len(self.world.lines)} lines"
        )
