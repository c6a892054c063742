"""Run one seed: set up topics, inject faults, heal, come to rest, and compare the logs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from pyspark_klog.ids import TopicPartition
from tests.simulation.checks.leftovers import check_zero, figures
from tests.simulation.checks.retention import LOOKS_WITHIN_MS, check_all_is_taken
from tests.simulation.checks.transactions import HANGS, is_stable
from tests.simulation.clients.admin import Admin
from tests.simulation.clients.base import WAITS, Client
from tests.simulation.clients.consumer import Consumer
from tests.simulation.clients.group_tool import GroupTool
from tests.simulation.clients.member import Member
from tests.simulation.clients.producer import Producer
from tests.simulation.clients.settings_tool import SettingsTool
from tests.simulation.clients.transactional import TransactionalProducer
from tests.simulation.clients.transactional_member import TransactionalMember
from tests.simulation.compaction_plan import with_compaction
from tests.simulation.faults import Faults
from tests.simulation.history import History
from tests.simulation.machine import Machine
from tests.simulation.plan import LONGEST_SWEEP_MS, LONGEST_TIMEOUT_MS, make_plan
from tests.simulation.world import Violation, World
from tests.simulation.years_plan import with_years
from tests.support.runtime.memory_files import Crashed

C = TypeVar("C", bound=Client)

END_WITHIN_MS = 90_000
"""Virtual time after the last fault: a client that has not finished by then waits for ever."""
REST_MS = 20_000
CLEANED_WITHIN_MS = 10 * 3_600_000
"""Time for the last rounds of the log cleaner, on a slow disk, with a map of a few keys."""


@dataclass(frozen=True)
class Result:
    """The outcome of a seed. ``check`` and ``failure`` are empty if all promises were kept."""

    seed: int
    trace_hash: str
    check: str
    failure: str
    summary: str
    lines: list[str]


def run_seed(seed: int) -> Result:
    """Run the seed; exceptions from bugs of the simulation itself pass through."""
    simulation = Simulation(seed)
    check = failure = ""
    try:
        with killed_in_peace(), plain_log_records():
            simulation.run()
    except Violation as violation:
        check, failure = violation.check, str(violation)
        simulation.world.note(f"VIOLATION {violation}")
    world = simulation.world
    return Result(seed, world.trace_hash, check, failure, simulation.summary(), world.lines)


@contextmanager
def killed_in_peace() -> Iterator[None]:
    """Keep Python silent when objects of a killed broker are collected and find their disk gone."""
    tell = sys.unraisablehook

    def tell_others(told: sys.UnraisableHookArgs) -> None:
        if not isinstance(told.exc_value, Crashed):
            tell(told)

    sys.unraisablehook = tell_others
    try:
        yield
    finally:
        sys.unraisablehook = tell


@contextmanager
def plain_log_records() -> Iterator[None]:
    """Let log records contain only the texts of errors.

    pytest keeps the records of a test, and the tracebacks of errors in them would keep files of the
    broker open.
    """
    make_record = logging.getLogRecordFactory()

    def make_plain_record(*args: Any, **named: Any) -> logging.LogRecord:
        record = make_record(*args, **named)
        record.msg, record.args = record.getMessage(), ()
        if record.exc_info:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
            record.exc_info = None
        return record

    logging.setLogRecordFactory(make_plain_record)
    try:
        yield
    finally:
        logging.setLogRecordFactory(make_record)


class Simulation:
    """The parts of one run: world, machine, history of promises and clients."""

    def __init__(self, seed: int) -> None:
        world = self.world = World(seed)
        plan = self.plan = with_years(with_compaction(make_plan(world), world), world)
        world.note(f"seed {seed}: {plan.line()}")
        self.history = History(world, plan)
        self.machine = Machine(
            world,
            plan.settings,
            self.history.watchers,
            with_kernel=plan.with_kernel,
            has_socket_calls=plan.has_socket_calls,
            has_cold_pages=plan.has_cold_pages,
            has_small_windows=not plan.has_large_records,
            disk_slowness=plan.disk_slowness,
            keeps_names_in_order=plan.keeps_names_in_order,
        )
        self._count = 0
        self.clients: list[Client] = []

    def run(self) -> None:
        """Run all phases; Violation if a promise is broken."""
        world, machine = self.world, self.machine
        machine.start()
        self._set_up()
        for client in self._make_clients():
            world.after(world.between(0, 500), client.start_script)
        faults = Faults(world, machine, self.plan)
        faults.start_injection()
        world.run(world.now_ms + self.plan.chaos_ms)
        world.note("no more faults")
        faults.stop()
        for client in self.clients:
            client.must_end = True
        self._run_until_over(self.clients)
        self._audit()
        self._rest()
        self._end()

    def _set_up(self) -> None:
        admin = self._new(Admin, topics=self.plan.topics, goes_on=False)
        self.world.after(0, admin.start_script)
        self._run_until_over([admin])

    def _new(self, kind: type[C], **named: Any) -> C:
        self._count += 1
        name = kind.__name__.lower()
        client = kind(self.world, self.machine, self.history, self._count, name, **named)
        self.clients.append(client)
        return client

    def _make_clients(self) -> list[Client]:
        plan = self.plan
        partitions = self._partitions()
        before = len(self.clients)
        for number in range(plan.idempotent_producers + plan.plain_producers):
            is_idempotent = number < plan.idempotent_producers
            self._new(
                Producer, partitions=partitions, idempotent=is_idempotent, large=self._large()
            )
        for number, processes in enumerate(plan.transactional):
            for _ in range(processes):
                self._new(
                    TransactionalProducer,
                    partitions=partitions,
                    transactional_id=f"transactions-{number}",
                )
        for _ in range(plan.consumers):
            reads_committed = bool(plan.transactional) and self.world.chance(0.7)
            self._new(Consumer, partitions=partitions, reads_committed=reads_committed)
        for _ in range(plan.members):
            kind = TransactionalMember if plan.members_in_transactions else Member
            self._new(kind, partitions=partitions)
        if plan.has_admin:
            self._new(Admin, topics=(), goes_on=True)
            self._new(GroupTool, has_transactions=bool(plan.transactional))
            self._new(SettingsTool)
        return self.clients[before:]

    def _large(self) -> list[TopicPartition]:
        """The partitions that large records are sent to."""
        takes = {topic.name for topic in self.plan.topics if topic.takes_large}
        wants = self.plan.has_large_records
        return [each for each in self._partitions() if wants and each.topic in takes]

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

    # --- afterwards ------------------------------------------------------------------------------
    def _audit(self) -> None:
        """Compare the logs, read directly and through Fetch, with the promises."""
        world, machine = self.world, self.machine
        world.run(world.now_ms + END_WITHIN_MS, lambda: machine.broker is not None)
        self.history.records.finish(machine)
        ends = {log.topic_partition: int(log.high_watermark) for log in machine.logs()}
        self._read_to(ends)
        if self.plan.transactional:
            # The coordinator aborts transactions whose producers have gone.
            within_ms = LONGEST_TIMEOUT_MS + LONGEST_SWEEP_MS + REST_MS
            world.run(world.now_ms + within_ms, lambda: is_stable(machine))
            if not is_stable(machine):
                raise Violation(HANGS, "long after the last client has gone")
            self.history.transactions.look(machine)
            ends = {log.topic_partition: int(log.high_watermark) for log in machine.logs()}
            self._read_to(ends, reads_committed=True)

    def _read_to(self, ends: dict[TopicPartition, int], *, reads_committed: bool = False) -> None:
        auditor = self._new(
            Consumer,
            partitions=self._partitions(),
            reads_to={each: ends[each] for each in self._partitions()},
            reads_committed=reads_committed,
        )
        self.world.after(0, auditor.start_script)
        self._run_until_over([auditor])

    def _rest(self) -> None:
        """All clients are gone: check that the broker holds nothing for them."""
        world = self.world
        world.run(world.now_ms + REST_MS)
        deadline_ms = world.now_ms + (CLEANED_WITHIN_MS if self.plan.cleans else 2_000)
        world.run(deadline_ms, lambda: not any(figures(self.machine).values()))
        check_zero(figures(self.machine))
        if self.plan.cleans:  # Retention skips logs while they are cleaned.
            world.run(world.now_ms + LOOKS_WITHIN_MS)
        check_all_is_taken(self.machine)

    def _end(self) -> None:
        """Stop cleanly, and start a broker that finds all records."""
        world, machine = self.world, self.machine
        lives = machine.lives
        machine.stop()
        world.run(world.now_ms + END_WITHIN_MS, lambda: machine.lives > lives)
        world.run(world.now_ms + END_WITHIN_MS, lambda: machine.broker is not None)
        self.history.records.finish(machine)
        self.history.compaction.finish(machine)
        machine.stop()
        world.run(world.now_ms + END_WITHIN_MS, lambda: machine.broker is None)

    def summary(self) -> str:
        """One line of figures for a person."""
        records, groups = self.history.records, self.history.groups
        transactions = self.history.transactions
        return (
            f"{self.world.now_ms / 1000:.0f} s, {self.machine.lives} lives, "
            f"{records.acknowledged} acknowledged, {records.delivered} delivered, "
            f"{records.lost_as_allowed} lost as allowed, {groups.generations} generations, "
            f"{groups.commits} commits, {transactions.committed} transactions committed, "
            f"{transactions.aborted} aborted, {self.history.compaction.rounds} logs cleaned, "
            f"{len(self.world.lines)} lines"
        )
