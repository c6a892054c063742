"""The machine that the broker runs on: it starts, is killed, loses its power, or stops cleanly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from klog_broker.app import BrokerServer
from klog_broker.config import BrokerConfig
from klog_broker.lifecycle.exit_codes import CannotStart, ExitCode
from klog_broker.produce import kernel as produce_kernel
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.system.chance import Chance
from klog_broker.runtime.zookeeper.sessions import OpenSession
from pyspark_klog.errors import KlogError
from tests.simulation.helpers import SeededHelpers, SeededParallelWork
from tests.simulation.network import LONGEST_DELAY_MS, SimNetwork
from tests.simulation.world import Event, Violation, WallClock, World
from tests.support.runtime.memory_files import Crashed, MemoryFiles

STARTS = "a broker starts"
_IDLE_TURNS = 200
"""Turns in a row in which a connection was ready and no data moved."""
_STEPS_OF_A_SWAP = 20


class Death(Enum):
    """How one run of the broker ends."""

    KILL = "kill -9"
    POWER = "power cut"
    CLEAN = "clean stop"
    DISK = "disk lost"


class SimBroker(BrokerServer):
    """The real broker; the machine sees in ``wants_to_stop`` that its loop was asked to end."""

    wants_to_stop = False

    def _end_loop(self) -> None:
        self.wants_to_stop = True
        super()._end_loop()


class Watcher:
    """Hears of the machine's events. The methods of this base class do nothing."""

    def on_start(self, machine: Machine) -> None:
        """The broker serves; no client has sent a request yet."""

    def on_step(self, machine: Machine, broker: SimBroker) -> None:
        """A broker has done one part of its start.

        The broker serves no clients yet; the other brokers of its cluster may send it requests
        already.
        """

    def on_turn(self, machine: Machine) -> None:
        """A turn of the loop is over."""

    def on_death(self, machine: Machine, death: Death) -> None:
        """The broker is about to end; its objects can still be inspected."""

    def on_clean_end(self, machine: Machine) -> None:
        """The broker has closed everything; its objects can still be inspected."""


class Machine:
    """Runs one broker after another on one disk.

    ``broker`` is None while no broker serves.
    """

    host = "127.0.0.1"

    def __init__(
        self,
        world: World,
        settings: Mapping[str, str],
        watchers: list[Watcher],
        *,
        with_kernel: bool,
        has_socket_calls: bool,
        has_cold_pages: bool,
        has_small_windows: bool,
        disk_slowness: int,
        keeps_names_in_order: bool = True,
        name: str = "machine",
        clock: WallClock | None = None,
    ) -> None:
        self.world = world
        self.name = name
        self.clock = clock or world.clock
        self.files = MemoryFiles()
        self.watchers = watchers
        self.broker: SimBroker | None = None
        self.starting: SimBroker | None = None
        self._has_socket_calls = has_socket_calls
        self._has_small_windows = has_small_windows
        self.network = self.make_network()
        self.helpers: SeededHelpers | None = None
        self.lives = 0
        self.deaths_before_start: list[Death] = []
        """How the broker's processes have died since a start last succeeded, in order."""
        self.restart_after_ms: Callable[[], int] = lambda: world.between(2 * LONGEST_DELAY_MS, 1500)
        self.on_crash_mode = Death.KILL
        """The kind of death when the disk reaches its ``crash_at_step``."""
        self.dies_after: tuple[str, Death] | None = None
        """A promise, such as "assigned", and how the broker dies once a client has received it."""
        self.dies_in_swap: Death | None = None
        """How the broker dies at one step of the next swap of cleaned segments."""
        self.last_trouble_ms = -1
        """When the disk was last full, slow or without descriptors; requests may wait that long."""
        self._settings = settings
        self._with_kernel = with_kernel
        self._has_cold_pages = has_cold_pages
        self.disk_slowness = disk_slowness
        """A factor on how long the helpers' work takes while the disk has no trouble."""
        self._keeps_names_in_order = keeps_names_in_order
        self._chance = Chance(world.random.getrandbits(64))
        self._turn_event: Event | None = None
        self._idle_turns = 0
        self._turns_of_ms = (0, 0)

    # --- starting ---------------------------------------------------------------------------------
    def start(self) -> None:
        """Start a broker; if the disk crashes during the start, another one starts soon."""
        self.lives += 1
        self.note(f"starts life={self.lives}")
        if self._has_cold_pages:
            self.files.freeze()
            self.files.thaw.set()
        self.files.now_ms = self.clock.now_ms()
        self.network = self.make_network()
        broker = self.starting = self._make_broker()

        def is_over(error: BaseException | None) -> None:
            if self.starting is broker:
                self.starting = None
                self._started(broker, error)

        self.run_blocking(broker.start, is_over)

    def make_network(self) -> SimNetwork:
        """Make the network of one run of the broker."""
        return SimNetwork(
            self.world,
            has_socket_calls=self._has_socket_calls,
            has_small_windows=self._has_small_windows,
        )

    def open_session(self) -> OpenSession | None:
        """How the next broker opens its ZooKeeper session; None: it uses no ZooKeeper."""
        return None

    def may_refuse(self, _refusal: CannotStart) -> bool:
        """Whether a broker may refuse to start, because of an earlier fault."""
        return self.has_disk_trouble

    def run_blocking(
        self, work: Callable[[], object], then: Callable[[BaseException | None], None]
    ) -> None:
        """Run ``work``, which may block; no other event happens until it returns."""
        try:
            work()
        except (Crashed, Exception) as error:
            then(error)
        else:
            then(None)

    def note(self, text: str) -> None:
        self.world.note(f"{self.name} {text}")

    def _make_broker(self) -> SimBroker:
        network = self.network

        def make_helpers(loop: Loop) -> SeededHelpers:
            self.helpers = SeededHelpers(self.world, loop, self._crashed, self.disk_slowness)
            return self.helpers

        return SimBroker(
            BrokerConfig.load(None, self._settings),
            clock=self.clock,
            files=self.files,
            network=network,
            poller=network.poller,
            make_helpers=make_helpers,
            # A seed for this purpose only: the number of logs does not change other events.
            parallel_work=SeededParallelWork(self.lives),
            chance=self._chance,
            load_kernel=(lambda _: produce_kernel) if self._with_kernel else None,
            open_session=self.open_session(),
        )

    def _started(self, broker: SimBroker, error: BaseException | None) -> None:
        assert self.helpers is not None
        if isinstance(error, Crashed):
            self.helpers.vanish()
            self._after_crash(self.on_crash_mode)
            return
        if isinstance(error, CannotStart):
            self.note(f"cannot start: {error}")
            if not self.may_refuse(error):
                raise Violation(STARTS, str(error)) from error
            self._after_crash(Death.KILL)
            return
        if isinstance(error, KlogError):
            raise Violation(STARTS, repr(error)) from error
        if error is not None:
            raise error
        self.broker = broker
        if broker.plans is not None and self.world.chance(0.8):
            broker.plans.load()
        self.network.on_wake = self._want_turn
        self._idle_turns = 0
        for watcher in self.watchers:
            watcher.on_start(self)
        self.deaths_before_start.clear()
        self.note(f"serves life={self.lives}")
        self._want_turn()

    def kill(self) -> None:
        """SIGKILL: written data stays, synced or not."""
        self._die(Death.KILL)

    def cut_power(self) -> None:
        """Cut the power: data that was not synced may be lost or torn."""
        self._die(Death.POWER)

    def crash_in(self, steps: int, death: Death) -> None:
        """Die after so many changes of the disk, in the middle of the broker's work."""
        self.on_crash_mode = death
        self.files.crash_at_step = self.files.steps + steps

    def has_told(self, what: str) -> None:
        """A client has received a promise that must last."""
        if self.dies_after is not None and self.dies_after[0] == what:
            death = self.dies_after[1]
            self.dies_after = None
            self.note(f"had told that {what}")
            self.world.after(0, lambda: self._die(death))

    def is_swapping(self) -> None:
        """The files of cleaned segments are being renamed into place."""
        if self.dies_in_swap is not None:
            self.crash_in(self.world.between(1, _STEPS_OF_A_SWAP), self.dies_in_swap)
            self.dies_in_swap = None

    def stop(self) -> None:
        """Send the broker SIGTERM."""
        if self.broker is not None:
            self.note("stops")
            self.broker.stop("the simulation")
            self._want_turn()

    @property
    def is_stopping(self) -> bool:
        """Whether the broker is about to end of its own accord."""
        return self.broker is not None and bool(self.broker.wants_to_stop)

    @property
    def has_disk_trouble(self) -> bool:
        """Whether the disk is full, has failed to sync, or no descriptor is left."""
        files = self.files
        return files.free_bytes is not None or not files.has_descriptors or files.has_failed_sync

    @property
    def may_lose_disk(self) -> bool:
        """Whether the loss of a disk may end the broker although no sync has failed."""
        return False

    # --- turns -----------------------------------------------------------------------------------
    def _want_turn(self, delay_ms: int = 0) -> None:
        due_ms = self.world.now_ms + delay_ms
        event = self._turn_event
        if event is not None and event.due_ms <= due_ms:
            return
        if event is not None:
            event.cancel()
        self._turn_event = self.world.after(delay_ms, self._turn)

    def _turn(self) -> None:
        self._turn_event = None
        broker, network, world = self.broker, self.network, self.world
        if broker is None:
            return
        self.files.now_ms = self.clock.now_ms()
        moves = network.moves
        had_ready = bool(network.poller.ready())
        self._note_progress(had_ready, moves)
        try:
            broker.loop.run_turn(0)
        except Crashed as crash:
            self._crashed(crash)
            return
        except Exception as error:
            raise Violation("no bug ends the loop", repr(error)) from error
        is_idle = had_ready and network.moves == moves
        self._idle_turns = self._idle_turns + 1 if is_idle else 0
        for watcher in self.watchers:
            watcher.on_turn(self)
        if broker.wants_to_stop:
            self._end()
            return
        wake_ms = broker.loop.next_wake_ms()
        if wake_ms is not None:
            self._want_turn(max(wake_ms - world.clock.monotonic_ms(), 0))
        if network.poller.ready():
            self._want_turn(world.between(0, 1))

    def _note_progress(self, had_ready: bool, moves: int) -> None:
        now_ms = self.world.now_ms
        at_ms, count = self._turns_of_ms
        self._turns_of_ms = (now_ms, count + 1 if at_ms == now_ms else 1)
        if self._idle_turns > _IDLE_TURNS or self._turns_of_ms[1] > 5_000:
            raise Violation("the loop sleeps", "turn follows turn, and nothing comes of them")

    # --- ends ------------------------------------------------------------------------------------
    def _crashed(self, crash: BaseException) -> None:
        if not isinstance(crash, Crashed):
            raise crash
        if self.broker is not None:
            self._die(self.on_crash_mode)

    def _die(self, death: Death) -> None:
        if self.broker is None and self.starting is None:
            return
        if self.broker is not None:
            for watcher in self.watchers:
                watcher.on_death(self, death)
        self.broker = self.starting = None
        assert self.helpers is not None
        self.helpers.vanish()
        self._after_crash(death)

    def _after_crash(self, death: Death) -> None:
        world = self.world
        self._gone(death)
        old = self.files
        if death is Death.POWER:
            self.files = old.crash(world.random, keeps_order=self._keeps_names_in_order)
        else:
            self.files = old.killed()
        world.after(self.restart_after_ms(), self.start)

    def _end(self) -> None:
        """Run ``serve_forever``, as the process does after the loop was asked to stop."""
        broker = self.broker
        assert broker is not None
        exit_codes: list[ExitCode] = []

        def is_over(error: BaseException | None) -> None:
            # A sync that fails in a helper while the broker closes may kill the process.
            if self.broker is not broker:
                return
            if error is not None:
                self._crashed(error)
            else:
                self._ended(exit_codes[0])

        self.run_blocking(lambda: exit_codes.append(broker.serve_forever()), is_over)

    def _ended(self, exit_code: ExitCode) -> None:
        self.note(f"ends exit_code={exit_code.name}")
        has_failed = self.files.has_failed_sync
        if exit_code is ExitCode.DISKS_LOST and (has_failed or self.may_lose_disk):
            has_failed = True
        elif exit_code is not ExitCode.OK:
            raise Violation("no bug ends the loop", f"the broker ended with {exit_code!r}")
        death = Death.DISK if has_failed else Death.CLEAN
        for watcher in self.watchers:
            watcher.on_death(self, death)
            if death is Death.CLEAN:
                watcher.on_clean_end(self)
        self.broker = None
        self._gone(death)
        self.files = self.files.killed()
        self.world.after(self.restart_after_ms(), self.start)

    def _gone(self, death: Death) -> None:
        self.note(f"is gone: {death.value}")
        self.deaths_before_start.append(death)
        self._lose_network(death)
        self.network.on_wake = lambda: None
        if self._turn_event is not None:
            self._turn_event.cancel()
            self._turn_event = None

    def _lose_network(self, _death: Death) -> None:
        self.network.die()

    # --- inspection -------------------------------------------------------------------------------
    def logs(self) -> list[Any]:
        """The logs of the running broker, ordered by topic and partition."""
        assert self.broker is not None
        logs = self.broker.services.logs.logs()
        return sorted(logs, key=lambda log: log.topic_partition)
