"""Faults: what fails, and when, drawn from the seed while time passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tests.simulation.machine import Death, Machine
from tests.simulation.plan import Plan
from tests.simulation.world import World

_CRASH_STEPS = 40
_TROUBLE_MS = 2_000
_JUMP_MS = 20 * 60_000
_YEAR_MS = 365 * 86_400_000
_PROMISES = ("acknowledged", "assigned", "assigned", "committed")
OF_TRANSACTIONS = ("decided", "shown", "shown", "shown")
"""Promises that a transaction has ended: its producer got the answer, or a reader saw it first."""


def kinds_in(traces: Iterable[Sequence[str]]) -> set[str]:
    """The kinds of faults that were injected, by the lines of these traces."""
    words = (line.split() for lines in traces for line in lines)
    return {each[2] for each in words if each[1] == "fault"}


class Faults:
    """Injects a fault now and then, until ``stop``."""

    def __init__(self, world: World, machine: Machine, plan: Plan) -> None:
        self._world = world
        self._ends = (Death.KILL, Death.POWER if plan.has_power_cuts else Death.KILL)
        self._promises = _PROMISES + OF_TRANSACTIONS * bool(plan.transactional)
        self._machine = machine
        self._is_over = False
        self._mean_ms = world.random.choice((600, 1_500, 4_000))
        kinds = self._all_kinds(plan)
        # Each run chooses a few kinds of faults, so that each kind also occurs alone.
        count = world.between(1, len(kinds))
        chosen = world.random.sample(kinds, count)
        if plan.has_years:
            chosen.append((8, self._year))
        self._kinds = [kind for weight, kind in chosen for _ in range(weight)]

    def _all_kinds(self, plan: Plan) -> list[tuple[int, Callable[[], None]]]:
        """All kinds of faults, each with its weight."""
        kinds: list[tuple[int, Callable[[], None]]] = [
            (4, self._reset),
            (3, self._stall),
            (2, self._kill),
            (2, self._cut_power),
            (2, self._crash_inside),
            (3, self._die_after_promise),
            (1, self._stop),
            (1, self._full_disk),
            (1, self._slow_disk),
            (1, self._short_write),
            (2, self._failed_sync),
            (1, self._jump),
            (1, self._no_descriptors),
        ]
        if plan.cleans:
            kinds.append((4, self._crash_in_swap))
        return kinds

    def start_injection(self) -> None:
        """Inject faults from now on."""
        self._plan_next()

    def stop(self) -> None:
        """Inject no more faults, and heal those that last."""
        self._is_over = True
        for machine in self._machines():
            machine.clock.set_right()
            machine.dies_after = None
            machine.dies_in_swap = None
            self._heal(machine)
            self._look_after(machine)

    def _machines(self) -> Sequence[Machine]:
        return (self._machine,)

    def _plan_next(self) -> None:
        wait_ms = min(int(self._world.random.expovariate(1 / self._mean_ms)), 5 * self._mean_ms)
        self._world.after(wait_ms, self._next)

    def _next(self) -> None:
        if self._is_over:
            return
        if self._machine.broker is not None:
            kind = self._world.random.choice(self._kinds)
            self._world.note(f"fault {kind.__name__.strip('_')}")
            kind()
        self._plan_next()

    def _heal(self, machine: Machine) -> None:
        files, helpers = machine.files, machine.helpers
        files.free_bytes = None
        files.crash_at_step = None
        files.short_write_bytes = None
        files.fail_sync_at = None
        files.failed_sync_kills = False
        files.has_descriptors = True
        if helpers is not None:
            helpers.slowness = machine.disk_slowness
        machine.last_trouble_ms = self._world.now_ms

    def _heal_later(self) -> None:
        machine = self._machine
        machine.last_trouble_ms = self._world.now_ms + _TROUBLE_MS
        self._world.after(self._world.between(0, _TROUBLE_MS), lambda: self._heal(machine))

    # --- the network -----------------------------------------------------------------------------
    def _reset(self) -> None:
        links = self._machine.network.open_links()
        if links:
            self._world.random.choice(links).break_off()

    def _stall(self) -> None:
        for_ms = self._world.random.choice((50, 500, 3_000, 12_000))
        links = self._machine.network.open_links()
        if links and self._world.chance(0.7):
            links = [self._world.random.choice(links)]
        for link in links:
            link.stall(for_ms)

    # --- the machine -----------------------------------------------------------------------------
    def _kill(self) -> None:
        self._machine.kill()

    def _cut_power(self) -> None:
        if Death.POWER in self._ends:
            self._machine.cut_power()

    def _crash_inside(self) -> None:
        death = self._world.random.choice(self._ends)
        self._machine.crash_in(self._world.between(1, _CRASH_STEPS), death)

    def _die_after_promise(self) -> None:
        random = self._world.random
        what = random.choice(self._promises)
        # SIGKILL keeps written data, synced or not, so a power cut is the harder test.
        death = self._ends[1] if self._world.chance(0.7) else Death.KILL
        self._machine.dies_after = (what, death)

    def _crash_in_swap(self) -> None:
        self._machine.dies_in_swap = self._world.random.choice(self._ends)

    def _stop(self) -> None:
        self._machine.stop()

    # --- the disk --------------------------------------------------------------------------------
    def _full_disk(self) -> None:
        self._machine.files.free_bytes = self._world.between(0, 3_000)
        self._heal_later()

    def _slow_disk(self) -> None:
        assert self._machine.helpers is not None
        self._machine.helpers.slowness = self._world.random.choice((10, 60))
        self._heal_later()

    def _short_write(self) -> None:
        self._machine.files.short_write_bytes = self._world.between(0, 200)

    def _failed_sync(self) -> None:
        files = self._machine.files
        files.fail_sync_at = files.syncs + self._world.between(1, 5)
        # In half of the cases the process dies before the error reaches it.
        files.failed_sync_kills = self._world.chance(0.5)
        self._machine.on_crash_mode = Death.KILL
        machine = self._machine
        self._world.after(
            self._world.between(0, 2 * _TROUBLE_MS), lambda: self._look_after(machine)
        )

    def _look_after(self, machine: Machine) -> None:
        """Stop a broker after a failed sync, so that another one starts."""
        if machine.files.has_failed_sync:
            machine.stop()

    def _jump(self) -> None:
        """Set the wall clock to a random time near the right one."""
        self._machine.clock.set_wall(self._world.between(-_JUMP_MS, _JUMP_MS))

    def _year(self) -> None:
        """Set the wall clock a year off, or right again.

        The broker runs on, has just got SIGTERM, or is dead at that moment.
        """
        nothing: Callable[[], None] = lambda: None  # noqa: E731
        end = self._world.random.choice((nothing, nothing, self._kill, self._cut_power, self._stop))
        end()
        years = self._world.random.choice((-1, 0, 1, 1))
        self._machine.clock.set_wall(years * _YEAR_MS + self._world.between(0, _JUMP_MS))

    def _no_descriptors(self) -> None:
        self._machine.files.has_descriptors = False
        self._heal_later()
