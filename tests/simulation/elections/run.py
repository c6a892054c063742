"""Run one seed: three to five brokers, half a minute of faults, then recovery."""

from collections.abc import Callable
from dataclasses import dataclass

from klog_broker.runtime.zookeeper.sessions import Create
from tests.simulation.elections.brokers import SESSION_MS, WORK, BrokerLife
from tests.simulation.elections.checks import Checks
from tests.simulation.elections.healed import unhealed
from tests.simulation.world import START_MS, Violation, World
from tests.simulation.zookeeper import SimulatedZooKeeper
from tests.simulation.zookeeper.faults import ZooKeeperFaults
from tests.simulation.zookeeper.servers import Entry

_FAULTS_MS = 30_000
_HEALING_MS = 60_000
_PAUSES_MS = (1, 2_500)
_DURATIONS_MS = (1, 2 * SESSION_MS)


@dataclass(frozen=True)
class Result:
    """The outcome of a seed. ``check`` and ``failure`` are empty if all promises were kept."""

    seed: int
    trace_hash: str
    check: str
    failure: str
    elections: int
    writes: int
    lines: list[str]


class Elections:
    """The world of one seed."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.zookeeper = SimulatedZooKeeper(self.world)
        self._zookeeper_faults = ZooKeeperFaults(self.zookeeper)
        self.checks = Checks(self.zookeeper)
        self.zookeeper.commit(Entry(0, Create(WORK, b"")))
        self.is_at_peace = False
        self.brokers: list[BrokerLife] = []
        self._lives = [0] * self.world.between(3, 5)
        for number in range(len(self._lives)):
            self._start(number)
        faults: list[Callable[[], None]] = [
            self._reset, self._cut, self._pause, self._kill, self._expire, self._stop_zookeeper,
            self._zookeeper_faults.delete_controller, self._close,
        ]  # fmt: skip
        chosen = self.world.between(1, len(faults))
        self._faults = self.world.random.sample(faults, chosen)
        if self.world.chance(0.5):
            self.checks.on_won = self._lose_the_answer
        if self.world.chance(0.5):
            self.checks.on_vacant = self._sleep_before_standing

    def run(self) -> None:
        """Run all phases; Violation if a promise is broken."""
        self._plan_fault()
        self._run_until(_FAULTS_MS, lambda: False)
        self._make_peace()
        self._run_until(_FAULTS_MS + _HEALING_MS, lambda: not self._unhealed())
        if text := self._unhealed():
            raise Violation("in the end there is one controller", text)
        # Without further events the healed state must last.
        self._run_until(self.world.now_ms + 2 * SESSION_MS, lambda: False)
        if text := self._unhealed():
            raise Violation("peace lasts", text)

    # --- time ------------------------------------------------------------------------------------
    def _run_until(self, until_ms: int, is_over: Callable[[], bool]) -> None:
        while not is_over() and self.world.now_ms < until_ms:
            now_ms = self.world.clock.monotonic_ms()
            due = [each.due_ms for each in self.brokers]
            if any(each is not None and each <= now_ms for each in due):
                for broker, due_ms in zip(list(self.brokers), due, strict=True):
                    if due_ms is not None and due_ms <= now_ms:
                        broker.turn()
                continue
            self.checks.follow()
            next_ms = min((each - START_MS for each in due if each is not None), default=until_ms)
            events = 0

            def one_event() -> bool:
                nonlocal events
                events += 1
                return events > 1

            self.world.run(min(next_ms, until_ms), one_event)

    # --- faults ----------------------------------------------------------------------------------
    def _plan_fault(self) -> None:
        def strike() -> None:
            if self.is_at_peace:
                return
            if not all(each.is_over for each in self.brokers):
                self.world.random.choice(self._faults)()
            self._plan_fault()

        self.world.after(self.world.between(*_PAUSES_MS), strike)

    def _start(self, number: int) -> None:
        self._lives[number] += 1
        life = BrokerLife(self.world, self.zookeeper, self.checks, number, self._lives[number])
        self.brokers.append(life)
        self.world.note(f"{life.name} starts")

    def _some(self) -> BrokerLife:
        """A live broker, more often the controller than another one."""
        alive = [each for each in self.brokers if not each.is_over]
        controllers = [each for each in alive if each.is_controller]
        if controllers and self.world.chance(0.5):
            return self.world.random.choice(controllers)
        return self.world.random.choice(alive)

    def _later(self, action: Callable[[], None]) -> None:
        self.world.after(self.world.between(*_DURATIONS_MS), action)

    def _reset(self) -> None:
        broker = self._some()
        self.world.note(f"{broker.name} is reset")
        broker.client.reset()

    def _lose_the_answer(self, session_id: int) -> None:
        """A broker loses the response that it was elected, even at the end of all faults."""
        if self.world.chance(0.3):
            for broker in self.brokers:
                if broker.session is not None and broker.session.session_id == session_id:
                    self.world.note(f"{broker.name} loses an answer")
                    broker.client.reset()

    def _sleep_before_standing(self) -> None:
        """A broker is suspended between reading that there is no controller and its candidacy."""
        if not self.is_at_peace and self.world.chance(0.5):
            self.world.after(self.world.between(0, 10), self._pause)

    def _cut(self) -> None:
        broker = self._some()
        ways = self.world.random.choice([("to",), ("from",), ("to", "from")])
        self.world.note(f"{broker.name} is cut {ways}")
        broker.client.cut(*ways)
        self._later(broker.client.mend)

    def _pause(self) -> None:
        if all(each.is_over for each in self.brokers):
            return
        broker = self._some()
        if not broker.client.is_paused:
            self.world.note(f"{broker.name} stands still")
            broker.client.pause()
            self._later(broker.client.resume)

    def _kill(self) -> None:
        broker = self._some()
        broker.kill()
        self._later(lambda: self._start(broker.number))

    def _close(self) -> None:
        broker = self._some()
        if broker.client.is_paused:
            return
        broker.close()
        # The loop of the broker runs until ZooKeeper has the end of its session, or the process
        # ends.
        self.world.after(self.world.between(0, 200), lambda: self._ended(broker))

    def _ended(self, broker: BrokerLife) -> None:
        if not broker.is_over:
            broker.kill()
            self._later(lambda: self._start(broker.number))

    def _expire(self) -> None:
        broker = self._some()
        self._zookeeper_faults.expire(broker.name, broker.session)

    def _stop_zookeeper(self) -> None:
        if self._zookeeper_faults.stop():
            self._later(self._zookeeper_faults.start)

    # --- recovery --------------------------------------------------------------------------------
    def _make_peace(self) -> None:
        self.is_at_peace = True
        self.world.note("peace")
        self._zookeeper_faults.start()
        for broker in self.brokers:
            if broker.client.is_paused:
                broker.client.resume()
            broker.client.mend()

    def _unhealed(self) -> str:
        members = [each.member for each in self.brokers if not each.is_over]
        return unhealed(self.checks, members, len(self._lives))


def run_seed(seed: int) -> Result:
    """Run the seed; exceptions from bugs of the simulation itself pass through."""
    elections = Elections(seed)
    check = failure = ""
    try:
        elections.run()
    except Violation as violation:
        check, failure = violation.check, str(violation)
    return Result(
        seed,
        elections.world.trace_hash,
        check,
        failure,
        len(elections.checks.elections),
        elections.checks.writes,
        elections.world.lines,
    )
