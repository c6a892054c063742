"""The brokers of an election. Each is a process with an event loop, which may restart."""

from collections.abc import Callable
from typing import Any

from klog_broker.config import Listener
from klog_broker.controller.zookeeper.controller_election import ElectionState
from klog_broker.controller.zookeeper.errors import ControllerMoved
from klog_broker.controller.zookeeper.fenced_writes import FencedWrites
from klog_broker.membership.member import ZooKeeperMember
from klog_broker.metadata.image import BrokerRegistration
from klog_broker.metadata.zookeeper.join_conversation import JoinResult
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.system.chance import Chance
from klog_broker.runtime.zookeeper.sessions import ANY_VERSION, Create, Session, SessionEvent, Set
from pyspark_klog.ids import BrokerId
from tests.simulation.elections.checks import Checks
from tests.simulation.world import Violation, World
from tests.simulation.zookeeper import Client, SimulatedZooKeeper
from tests.support.runtime.fake_network import ScriptedPoller

SESSION_MS = 6_000
WORK = "/work"
"""The node where controllers write which of them was at work."""

_WORK_PAUSE_MS = (20, 2_000)


class _NoConnection:
    """A connection to another broker that answers nothing, as there are no topics."""

    def send(self, *_: Any) -> None: ...

    def close(self, _reason: str) -> None: ...


class BrokerLife:
    """One run of a broker, from its start to its end or a kill."""

    def __init__(
        self, world: World, zookeeper: SimulatedZooKeeper, checks: Checks, number: int, life: int
    ) -> None:
        self.name = f"broker {number}.{life}"
        self.number = BrokerId(number)
        self.refusal = ""
        self.is_over = False
        self.session: Session | None = None
        self.client: Client = zookeeper.client(self.name)
        self.loop = Loop(world.clock, ScriptedPoller())
        self._world = world
        self._checks = checks
        self._written = 0
        self._followed = False
        self.member = ZooKeeperMember(
            self.loop, world.clock, self._open_session, on_in_use=self._in_use
        )
        self.member.begin_joining(Chance(world.random.getrandbits(32)), self.number, 1_000)

    # --- turns -----------------------------------------------------------------------------------
    @property
    def due_ms(self) -> int | None:
        """When the broker's loop has work to do, by the world's clock."""
        if self.is_over or self.client.is_paused:
            return None
        return self.loop.next_wake_ms()

    def turn(self) -> None:
        """Run one turn of the loop."""
        self.loop.run_turn(0)
        if self.member.outcome is not None and not self._followed:
            self._followed = True
            if not isinstance(self.member.outcome, JoinResult):
                raise Violation("a broker joins", f"{self.name}: {self.member.outcome.text}")
            store = self.member.follow_cluster(
                "PLAINTEXT",
                lambda *_, **__: _NoConnection(),  # type: ignore[arg-type,return-value]
                Chance(self.number),
                30_000,
                is_unclean=lambda _: False,
                deletes_topics=True,
            )
            election = self.member.election
            election.on_elected.append(self._elected)
            election.on_resigned.append(lambda: self._note("resigned"))
            store.start(self.loop, None, on_image=lambda *_: None, apply=None)
            endpoint = Listener("PLAINTEXT", "PLAINTEXT", f"host{self.number}", 9092)
            store.register_broker(BrokerRegistration(self.number, (endpoint,)))

    # --- faults -----------------------------------------------------------------------------------
    def kill(self) -> None:
        """End without closing the session, which expires later."""
        self._note("killed")
        self.is_over = True
        self.client.die()

    def close(self) -> None:
        """Stop cleanly."""
        self._note("closes")
        self.member.close(lambda: self._note("closed"))

    # --- state ------------------------------------------------------------------------------------
    @property
    def is_controller(self) -> bool:
        """Whether the broker believes that it is the controller."""
        return self._followed and self.member.election.state is ElectionState.CONTROLLER

    def _open_session(self, loop: Any, on_event: Callable[[SessionEvent], None]) -> Session:
        if self._followed and self.member.election.writes is not None:
            text = f"{self.name} opens a session and is still the controller of its last one"
            raise Violation("the controller resigns first", text)
        opened = self.client.opener(SESSION_MS)(loop, on_event)
        self.session = opened
        return opened

    def _in_use(self, text: str) -> None:
        self.refusal = text
        self._note(f"refused: {text}")

    def _elected(self, writes: FencedWrites) -> None:
        assert self.session is not None
        self._note(f"elected {writes.epoch.number}")
        self._checks.elected(self.name, self.session.session_id, writes.epoch)
        self._work(writes)

    def _work(self, writes: FencedWrites) -> None:
        """Write now and then as the controller, until a response says that it has moved."""
        self._written += 1
        text = f"{self.name} {writes.epoch.number} {self._written}"
        data = text.encode()

        def on_written(answer: Any) -> None:
            self._checks.check_response(text, answer)
            if not isinstance(answer, ControllerMoved):
                pause_ms = self._world.between(*_WORK_PAUSE_MS)
                self.loop.call_later(pause_ms, lambda: self._work(writes))

        operation = Create(f"{WORK}-", data, sequential=True)
        if self._world.chance(0.5):
            operation = Set(WORK, data, ANY_VERSION)
        writes.write([operation], on_written)

    def _note(self, text: str) -> None:
        self._world.note(f"{self.name} {text}")
