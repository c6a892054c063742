"""A machine of a cluster, which waits for ZooKeeper at start and stop, and can be suspended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from klog_broker.lifecycle.exit_codes import CannotStart, ExitCode
from klog_broker.runtime.zookeeper.sessions import OpenSession, Session, SessionEvent
from pyspark_klog.ids import BrokerId
from tests.simulation.clusters.router import Router
from tests.simulation.fibers import Fiber
from tests.simulation.machine import Death, Machine, Watcher
from tests.simulation.network import SimNetwork
from tests.simulation.world import Event, MachineClock, World
from tests.simulation.zookeeper import Client, SimulatedZooKeeper
from tests.support.runtime.memory_files import Crashed

PORT = 9092
_STEPS_OF_A_CUT = 20
_FOR_EVER_MS = 1 << 40


class ClusterMachine(Machine):
    """The machine of broker ``number``, through all its runs."""

    def __init__(
        self,
        world: World,
        zookeeper: SimulatedZooKeeper,
        router: Router,
        number: int,
        settings: Mapping[str, str],
        watchers: list[Watcher],
        **named: Any,
    ) -> None:
        self.number = BrokerId(number)
        self.host = f"10.1.0.{number + 1}"
        self.client: Client | None = None
        """The ZooKeeper client of the present run of the broker."""
        self.session: Session | None = None
        self.is_paused = False
        self.is_at_peace = False
        self.free_bytes: int | None = None
        """The free bytes of its disk, kept over restarts; None: unlimited."""
        self.dies_in_cut: Death | None = None
        """How the broker dies in the next truncation of a follower's log."""
        self.on_power_cut: Callable[[], None] = lambda: None
        """Called when unflushed data may be lost."""
        self._begins_in_peace = False
        self._was_full = False
        """Whether the disk was full in this run of the broker."""
        self._zookeeper_was_away = False
        """Whether ZooKeeper was unreachable since the start of this run."""
        self._zookeeper = zookeeper
        self._router = router
        self._session_ms = int(settings["zookeeper.session.timeout.ms"])
        self._fiber: Fiber | None = None
        self._step: Callable[[], None] = lambda: None
        self._step_event: Event | None = None
        self._switch_on: Callable[[], None] = lambda: None
        own = {
            "broker.id": str(number),
            "listeners": f"PLAINTEXT://{self.host}:{PORT}",
            "zookeeper.connect": "zookeeper:2181",
        }
        super().__init__(
            world,
            {**settings, **own},
            watchers,
            name=f"broker{number}",
            clock=MachineClock(world),
            **named,
        )
        router.machines[self.host] = self

    # --- the broker's environment -----------------------------------------------------------------
    def start(self) -> None:
        self._switch_on()
        self._begins_in_peace = self.is_at_peace
        self._was_full = self.free_bytes is not None
        self._zookeeper_was_away = False
        self.files.free_bytes = self.free_bytes
        super().start()

    def make_network(self) -> SimNetwork:
        return SimNetwork(
            self.world,
            has_socket_calls=self._has_socket_calls,
            has_small_windows=self._has_small_windows,
            place=self.name,
            roads=self._router,
        )

    def open_session(self) -> OpenSession | None:
        client = self.client = self._zookeeper.client(f"{self.name}.{self.lives}")
        self.session = None
        opener = client.opener(self._session_ms)

        def open_session(loop: Any, on_event: Callable[[SessionEvent], None]) -> Session:
            self.session = opener(loop, on_event)
            return self.session

        self._router.look_at_zookeeper(self)
        return open_session

    def may_refuse(self, refusal: CannotStart) -> bool:
        """ZooKeeper may be out of reach.

        When it is back, its sessions last their full timeout again, among them the last one of this
        broker.
        """
        if self._was_full and refusal.exit_code is ExitCode.DISKS_LOST:
            return True
        if self._begins_in_peace:
            return False
        if refusal.exit_code is ExitCode.REFUSED_BY_CLUSTER:
            return self._zookeeper_was_away
        return refusal.exit_code is ExitCode.NO_ZOOKEEPER or super().may_refuse(refusal)

    @property
    def may_lose_disk(self) -> bool:
        """Whether the disk was full: a truncation that fails then takes its directory offline."""
        return self._was_full

    def fill_disk(self, free_bytes: int | None) -> None:
        """Leave ``free_bytes`` on the disk; None: enough."""
        self.free_bytes = self.files.free_bytes = free_bytes
        self._was_full |= free_bytes is not None

    def is_cutting(self) -> None:
        """A log is being truncated, file by file."""
        if self.dies_in_cut is not None:
            self.crash_in(self.world.between(1, _STEPS_OF_A_CUT), self.dies_in_cut)
            self.dies_in_cut = None

    def zookeeper_went(self) -> None:
        """ZooKeeper, or the connection to it, has failed."""
        self._zookeeper_was_away = True

    # --- waiting ----------------------------------------------------------------------------------
    def run_blocking(
        self, work: Callable[[], object], then: Callable[[BaseException | None], None]
    ) -> None:
        fiber = self._fiber = Fiber(lambda: (work(), None)[1])
        self._step = partial(self._resume_fiber, fiber, then)
        self.network.poller.sleep = partial(self._sleep, fiber)
        self.network.on_wake = self._want_step
        self._step()

    def _resume_fiber(self, fiber: Fiber, then: Callable[[BaseException | None], None]) -> None:
        self._step_event = None
        if self._fiber is not fiber or self.is_paused:
            return
        self.files.now_ms = self.clock.now_ms()
        error: BaseException | None = None
        try:
            fiber.go_on()
        except (Crashed, Exception) as raised:
            error = raised
        if fiber.is_over and self._fiber is fiber:
            self._fiber = None
            then(error)
        broker = self.starting
        if broker is not None and broker.has_parts:
            for watcher in self.watchers:
                watcher.on_step(self, broker)

    def _sleep(self, fiber: Fiber, timeout_ms: int | None) -> None:
        self._want_step(_FOR_EVER_MS if timeout_ms is None else timeout_ms)
        fiber.wait()

    def _want_step(self, delay_ms: int = 0) -> None:
        due_ms = self.world.now_ms + delay_ms
        if self._step_event is not None:
            if self._step_event.due_ms <= due_ms:
                return
            self._step_event.cancel()
        self._step_event = self.world.after(delay_ms, self._step)

    def _turn(self) -> None:
        if self.is_paused:
            self._turn_event = None
        elif self._fiber is None:
            super()._turn()

    # --- faults -----------------------------------------------------------------------------------
    @property
    def is_alive(self) -> bool:
        """Whether the broker has a process."""
        return self.broker is not None or self.starting is not None

    def pause(self) -> None:
        """Suspend the process, as SIGSTOP does."""
        if self.is_alive and not self.is_paused and self.client is not None:
            self.note("stands still")
            self.is_paused = True
            self.client.pause()
            assert self.helpers is not None
            self.helpers.hold()

    def resume(self) -> None:
        """Resume the process, as SIGCONT does."""
        if not self.is_paused:
            return
        self.note("goes on")
        self._stand_up()
        if self._fiber is not None:
            self._want_step()
        elif self.broker is not None:
            self._want_turn()

    def reach_zookeeper(self, *, to_is_cut: bool, from_is_cut: bool) -> None:
        """Cut or restore the connection to the ZooKeeper servers, in each direction."""
        if to_is_cut or from_is_cut:
            self.zookeeper_went()
        client = self.client
        if client is None or client.is_gone:
            return
        ways = [way for way, is_cut in (("to", to_is_cut), ("from", from_is_cut)) if is_cut]
        if ways == [way for way in ("to", "from") if client.is_cut(way)]:
            return
        client.mend()
        if ways:
            client.cut(*ways)

    def _stand_up(self) -> None:
        self.is_paused = False
        if self.client is not None:
            self.client.resume()
        if self.helpers is not None:
            self.helpers.release()

    def _after_crash(self, death: Death) -> None:
        super()._after_crash(death)
        if death is Death.POWER:
            self.on_power_cut()
        # The disk is detached first, so that the ending thread cannot change it.
        fiber, self._fiber = self._fiber, None
        if fiber is not None:
            fiber.vanish()

    def _gone(self, death: Death) -> None:
        self.is_paused = False
        if self.client is not None:
            self.client.die()
        if self._step_event is not None:
            self._step_event.cancel()
            self._step_event = None
        super()._gone(death)

    def _lose_network(self, death: Death) -> None:
        self.network.die(silently=death is Death.POWER)
        if death is Death.POWER:
            self._switch_on = self._router.cut_off(self.name)

    def vanish(self) -> None:
        """End the machine's thread after the simulation."""
        fiber, self._fiber = self._fiber, None
        if fiber is not None:
            fiber.vanish()
