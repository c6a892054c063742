"""Run one seed of a cluster: brokers start, faults come, the cluster heals, checks compare."""

from __future__ import annotations

from typing import Any, TypeVar

from klog_broker.metadata.image import CONSUMER_OFFSETS
from pyspark_klog.ids import BrokerId, TopicPartition
from pyspark_klog.znodes.topics import PartitionState
from tests.simulation.checks.leftovers import Rest
from tests.simulation.checks.records import content
from tests.simulation.checks.transactions import HANGS, is_stable
from tests.simulation.clients.base import WAITS, Client
from tests.simulation.clients.coordinated import (
    LONGEST_TIMEOUT_MS,
    OffsetsReader,
    RoamingMember,
    RoamingTransactional,
)
from tests.simulation.clients.multi_broker import (
    Roaming,
    RoamingAdmin,
    RoamingConsumer,
    RoamingProducer,
)
from tests.simulation.clients.topic_keeper import TopicKeeper, check_kept
from tests.simulation.clusters.checks import (
    Elections,
    Leaders,
    ReplicaMarks,
    Told,
    WholeTopics,
    is_controller,
    member_of,
)
from tests.simulation.clusters.coordination import Coordinators, with_coordination
from tests.simulation.clusters.faults import ClusterFaults
from tests.simulation.clusters.healed import check_alike, check_matching, strays, unled
from tests.simulation.clusters.in_sync import InSync, InSyncReplicas
from tests.simulation.clusters.losses import Losses
from tests.simulation.clusters.machines import ClusterMachine
from tests.simulation.clusters.plan import ReplicatedTopic, make_cluster_plan, with_power_cuts
from tests.simulation.clusters.router import Router
from tests.simulation.clusters.states import States
from tests.simulation.controllers.checks import Key
from tests.simulation.elections.checks import Checks as ElectionChecks
from tests.simulation.elections.healed import unhealed
from tests.simulation.history import History
from tests.simulation.machine import Watcher
from tests.simulation.plan import LONGEST_SWEEP_MS
from tests.simulation.run import END_WITHIN_MS, REST_MS, Result, killed_in_peace
from tests.simulation.world import Violation, World
from tests.simulation.zookeeper import SimulatedZooKeeper
from tests.simulation.zookeeper.faults import ZooKeeperFaults

C = TypeVar("C", bound=Roaming)

HEALED = "in the end the cluster is whole"
HEALED_WITHIN_MS = 60_000
"""The time to heal after the last fault, in virtual time."""
_LOOK_MS = 200
_COMPARED_EACH_MS = 1_500


def run_seed(seed: int) -> Result:
    """Run the seed; exceptions from bugs of the simulation itself pass through."""
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
    """The parts of one run: world, ZooKeeper, router, machines and checks."""

    def __init__(self, seed: int) -> None:
        world = self.world = World(seed)
        plan = self.plan = with_power_cuts(with_coordination(make_cluster_plan(world), seed), seed)
        world.note(f"seed {seed}: {plan.brokers} brokers, {plan.line()}")
        self.zookeeper = SimulatedZooKeeper(world)
        self.router = Router()
        self.elections = ElectionChecks(self.zookeeper)
        self.states = States(self.zookeeper)
        self.losses = Losses(self.states)
        self.in_sync = InSync(self.states, self.losses, plan.min_in_sync)
        self.history = History(world, plan)
        self.history.transactions.may_hang = True
        self.history.groups.is_replicated = True
        self.history.records.on_acknowledged = self.in_sync.acknowledged
        self.machines = [self._machine(number) for number in range(plan.brokers)]
        self.coordinators = Coordinators(self.states, self.machines)
        self.history.transactions.clocks = [each.clock for each in self.machines]
        self.faults = ClusterFaults(
            world, self.machines, self.router, ZooKeeperFaults(self.zookeeper), plan
        )
        self.faults.is_controller = is_controller
        self.states.on_made = self._is_made
        self.states.on_joined = self._has_joined
        self.losses.on_loss = self._is_lost
        self.clients: list[Client] = []
        self._is_over = False

    def _machine(self, number: int) -> ClusterMachine:
        plan, world = self.plan, self.world
        watchers: list[Watcher] = [ReplicaMarks(self.losses), Rest()]
        watchers += [Elections(self.elections), Leaders(self.states, self.in_sync.leads)]
        watchers += [Told(), WholeTopics(self.states)]
        watchers.append(InSyncReplicas(number, self.in_sync, self.states))
        if plan.members:
            watchers.append(self.history.groups)
        if plan.transactional:
            watchers.append(self.history.transactions)
        machine = ClusterMachine(
            world,
            self.zookeeper,
            self.router,
            number,
            plan.settings,
            watchers,
            with_kernel=plan.with_kernel,
            has_socket_calls=plan.has_socket_calls,
            has_cold_pages=plan.has_cold_pages,
            has_small_windows=True,
            disk_slowness=plan.disk_slowness,
        )
        machine.on_power_cut = lambda: self.losses.lost_power(number)
        machine.restart_after_ms = lambda: world.between(20, world.random.choice((500, 8_000)))
        return machine

    def _is_made(self, key: Key, state: PartitionState) -> None:
        for each in state.isr:
            self.losses.joined(key, each)

    def _has_joined(self, key: Key, state: PartitionState, joiner: BrokerId) -> None:
        self.losses.joined(key, joiner)
        self.faults.joined(state, joiner)

    def _is_lost(self, partition: TopicPartition, end: int) -> None:
        """Power cuts have taken the partition's records from ``end`` on."""
        self.world.note(f"lost {partition} from {end} on")
        self.history.records.may_be_lost(partition, end)
        if partition.topic == CONSUMER_OFFSETS:
            self.history.groups.may_be_lost()

    def run(self) -> None:
        """Run all phases; Violation if a promise is broken."""
        world = self.world
        for machine in self.machines:
            world.after(world.between(0, 1_000), machine.start)
        self._run_until_healed()
        self._set_up()
        for client in self._make_clients():
            world.after(world.between(0, 500), client.start_script)
        self._compare()
        self.faults.start_injection()
        world.run(world.now_ms + self.plan.chaos_ms)
        world.note("no more faults")
        self.faults.stop()
        for client in self.clients:
            client.must_end = True
        self._run_until_over(self.clients)
        self._run_until_stable()
        self._run_until_healed()
        # Without further events the healed state must last.
        world.run(world.now_ms + 2 * int(self.plan.settings["zookeeper.session.timeout.ms"]))
        text = self.unhealed()
        if text:
            raise Violation(HEALED, f"no more, for {text}")
        self._audit()

    # --- clients ---------------------------------------------------------------------------------
    def _set_up(self) -> None:
        for topic in self.plan.topics:
            assert isinstance(topic, ReplicatedTopic)
            admin = self._new(RoamingAdmin, topics=(topic,), goes_on=False, replicas=topic.replicas)
            self.world.after(0, admin.start_script)
            self._run_until_over([admin])
        self._run_until_healed()

    def _new(self, kind: type[C], **named: Any) -> C:
        number = len(self.clients) + 1
        client = kind(
            self.world,
            self.machines[0],
            self.history,
            number,
            kind.__name__.lower(),
            machines=self.machines,
            **named,
        )
        self.clients.append(client)
        return client

    def _make_clients(self) -> list[Client]:
        plan, before = self.plan, len(self.clients)
        partitions = self._partitions()
        for number in range(plan.idempotent_producers + plan.plain_producers):
            is_idempotent = number < plan.idempotent_producers
            self._new(
                RoamingProducer,
                partitions=partitions,
                idempotent=is_idempotent,
                large=[],
                leader_of=self._leader_of,
            )
        for _ in range(plan.consumers):
            reads_committed = bool(plan.transactional) and self.world.chance(0.8)
            self._new(RoamingConsumer, partitions=partitions, reads_committed=reads_committed)
        for number, processes in enumerate(plan.transactional):
            for _ in range(processes):
                self._new(
                    RoamingTransactional,
                    partitions=partitions,
                    transactional_id=f"transactions-{number}",
                    leader_of=self._leader_of,
                    elected=self.coordinators.of_group,
                    are_doubtful=self.coordinators.are_doubtful,
                )
        for _ in range(plan.members):
            self._new_member(RoamingMember)
        if plan.has_admin:
            self._new(TopicKeeper)
        return self.clients[before:]

    def _new_member(self, kind: type[RoamingMember]) -> RoamingMember:
        return self._new(kind, partitions=self._partitions(), elected=self.coordinators.of_group)

    def _leader_of(self, partition: TopicPartition) -> int:
        self.states.follow()
        state = self.states.state(partition)
        assert state is not None
        return state[0].leader

    def _partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(topic.name, number)
            for topic in self.plan.topics
            for number in range(topic.partitions)
        ]

    def _run_until_over(self, clients: list[Client]) -> None:
        def is_over() -> bool:
            return all(client.is_over for client in clients)

        self.world.run(self.world.now_ms + END_WITHIN_MS, is_over)
        if not is_over():
            left = ", ".join(client.name for client in clients if not client.is_over)
            raise Violation(WAITS, f"{left} cannot come to an end")

    # --- checks ----------------------------------------------------------------------------------
    def _compare(self) -> None:
        """Compare the replicas now and then, until the end."""
        if not self._is_over:
            check_matching(self.states, self.losses, self.machines)
            self.world.after(_COMPARED_EACH_MS, self._compare)

    def _run_until_healed(self) -> None:
        until_ms = self.world.now_ms + HEALED_WITHIN_MS
        while (text := self.unhealed()) and self.world.now_ms < until_ms:
            self.world.run(self.world.now_ms + _LOOK_MS)
        if text:
            raise Violation(HEALED, text)

    def _run_until_stable(self) -> None:
        """Let the coordinators abort the transactions whose producers have gone."""
        if not self.plan.transactional:
            return
        self._set_clocks_right()

        def are_stable() -> bool:
            return all(each.broker is not None and is_stable(each) for each in self.machines)

        within_ms = LONGEST_TIMEOUT_MS + LONGEST_SWEEP_MS + REST_MS
        self.world.run(self.world.now_ms + within_ms, are_stable)
        if not are_stable():
            raise Violation(HANGS, "long after the last client has gone")

    def _set_clocks_right(self) -> None:
        """Set all clocks to the latest of them.

        A transaction may have begun by a clock that was ahead, and another broker ends it by its
        own clock.
        """
        clocks = [each.clock for each in self.machines]
        for clock in clocks:
            clock.set_right()
        latest_ms = max(clock.wall_is_ahead_ms for clock in clocks)
        for clock in clocks:
            if clock.wall_is_ahead_ms < latest_ms:
                clock.set_wall(latest_ms)

    def unhealed(self) -> str:
        """A difference from the required final state; empty if there is none."""
        if any(each.broker is None or each.broker._is_stopping for each in self.machines):
            return "a broker is not up"
        links = [each for machine in self.machines for each in machine.network.open_links()]
        if any(each.stalled_until_ms > self.world.now_ms for each in links):
            # The connection may hold a request with a new role, and its replica stays in the ISR
            # meanwhile.
            return "a connection stands still"
        members = [member for machine in self.machines if (member := member_of(machine))]
        text = unhealed(self.elections, members, len(self.machines))
        text = text or unled(self.states, self.machines)
        return text or strays(self.states, self.machines)

    def _audit(self) -> None:
        """Compare the logs, read directly and through Fetch, with the promises."""
        self._is_over = True
        check_alike(self.states, self.machines)
        check_kept(self.machines)
        records, ends = self.history.records, {}
        for partition in self._partitions():
            state = self.states.state(partition)
            assert state is not None
            logs = self.machines[state[0].leader].logs()
            (log,) = [each for each in logs if each.topic_partition == partition]
            records.lies_in_the_end(partition, content(log))
            ends[partition] = int(log.high_watermark)
        records.count()
        auditors: list[Client] = [self._new(RoamingConsumer, partitions=list(ends), reads_to=ends)]
        if self.plan.members:
            auditors.append(self._new_member(OffsetsReader))
        if self.plan.transactional:
            for machine in self.machines:
                self.history.transactions.look(machine)
            auditors.append(
                self._new(
                    RoamingConsumer, partitions=list(ends), reads_to=ends, reads_committed=True
                )
            )
        for auditor in auditors:
            self.world.after(0, auditor.start_script)
        self._run_until_over(auditors)

    def vanish(self) -> None:
        """End the threads that still wait."""
        for machine in self.machines:
            machine.vanish()

    def summary(self) -> str:
        """One line of figures for a person."""
        lives = sum(machine.lives for machine in self.machines)
        records, groups = self.history.records, self.history.groups
        transactions = self.history.transactions
        return (
            f"{self.world.now_ms / 1000:.0f} s, {lives} lives,"
            f" {len(self.elections.elections)} controllers, {self.states.elections} elections,"
            f" {records.acknowledged} acknowledged, {records.delivered} delivered,"
            f" {records.lost_as_allowed} lost as allowed,"
            f" {groups.generations} generations, {groups.commits} commits,"
            f" {transactions.committed} transactions committed, {transactions.aborted} aborted,"
            f" {len(self.world.lines)} lines"
        )
