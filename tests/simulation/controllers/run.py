"""Run one seed: three to five brokers, half a minute of faults and changes, then recovery."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from klog_broker.controller.zookeeper.controller_requests import ValidatedTopic
from klog_broker.controller.zookeeper.request_batch import ControllerRequest
from klog_broker.controller.zookeeper.request_sender import BrokerResponse
from klog_broker.runtime.zookeeper.sessions import Create
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import UUID, BrokerId, TopicId, TopicPartition
from pyspark_klog.protocol.apis.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from pyspark_klog.protocol.apis.controlled_shutdown import ControlledShutdownRequest
from pyspark_klog.znodes.paths import PERSISTENT
from tests.simulation.controllers.brokers import SESSION_MS, BrokerLife, Disk
from tests.simulation.controllers.checks import Checks
from tests.simulation.controllers.healed import unhealed
from tests.simulation.world import START_MS, Violation, World
from tests.simulation.zookeeper import SimulatedZooKeeper
from tests.simulation.zookeeper.faults import ZooKeeperFaults
from tests.simulation.zookeeper.servers import Entry

_FAULTS_MS = 30_000
_HEALING_MS = 120_000
_PAUSES_MS = (1, 2_500)
_DURATIONS_MS = (1, 2 * SESSION_MS)
_NAMES = ("a", "b", "unclean")


@dataclass(frozen=True)
class Result:
    """The outcome of a seed. ``check`` and ``failure`` are empty if all promises were kept."""

    seed: int
    trace_hash: str
    check: str
    failure: str
    writes: int
    elections: int
    deletions: int
    alterations: int
    lines: list[str]


class Controllers:
    """The world of one seed."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.zookeeper = SimulatedZooKeeper(self.world)
        self._zookeeper_faults = ZooKeeperFaults(self.zookeeper)
        self.checks = Checks(self.zookeeper)
        self.deletions = 0
        self.alterations = 0
        self.is_at_peace = False
        self._make_directories()
        numbers = range(self.world.between(3, 5))
        self._disks: list[Disk] = [{} for _ in numbers]
        self._lives = [0 for _ in numbers]
        self.brokers: list[BrokerLife] = []
        for number in numbers:
            self._start(number)
        faults: list[Callable[[], None]] = [
            self._reset, self._cut, self._pause, self._kill, self._expire, self._stop_zookeeper,
            self._zookeeper_faults.delete_controller, self._close, self._bounce,
        ]  # fmt: skip
        self._faults = self.world.random.sample(faults, self.world.between(1, len(faults)))
        self._risk = self.world.random.choice([0.0, 0.02, 0.1])
        self.checks.on_write = self._interrupt
        self.checks.on_registered = self._alter_often

    def run(self) -> None:
        """Run all phases; Violation if a promise is broken."""
        self._every(_PAUSES_MS, self._strike)
        self._every((10, 800), self._administer)
        self._every((5, 300), self._alter)
        self._run_until(_FAULTS_MS, lambda: False)
        self._make_peace()
        self._run_until(_FAULTS_MS + _HEALING_MS, lambda: not self._unhealed())
        if self._unhealed():
            raise Violation("in the end all is led and known", self._unhealed())

    # --- time ------------------------------------------------------------------------------------
    def _run_until(self, until_ms: int, is_over: Callable[[], bool]) -> None:
        while not is_over() and self.world.now_ms < until_ms:
            now_ms = self.world.clock.monotonic_ms()
            due = [each.due_ms for each in self.brokers]
            if any(each is not None and each <= now_ms for each in due):
                for broker, due_ms in zip(list(self.brokers), due, strict=True):
                    if due_ms is not None and due_ms <= now_ms and not broker.is_over:
                        broker.turn()
                continue
            self.checks.follow()
            next_ms = min((each - START_MS for each in due if each is not None), default=until_ms)
            self.world.run(min(next_ms, until_ms), partial(next, iter((False, True))))

    def _every(self, pauses_ms: tuple[int, int], action: Callable[[], None]) -> None:
        def act() -> None:
            if not self.is_at_peace:
                if self._alive():
                    action()
                self._every(pauses_ms, action)

        self.world.after(self.world.between(*pauses_ms), act)

    def _later(self, action: Callable[[], None]) -> None:
        self.world.after(self.world.between(*_DURATIONS_MS), action)

    # --- brokers ---------------------------------------------------------------------------------
    def _make_directories(self) -> None:
        made = set()
        for path in PERSISTENT:
            parts = path.split("/")
            for length in range(2, len(parts) + 1):
                parent = "/".join(parts[:length])
                if parent not in made:
                    made.add(parent)
                    self.zookeeper.commit(Entry(0, Create(parent, b"")))

    def _start(self, number: int) -> None:
        self._lives[number] += 1
        life = BrokerLife(
            self.world, self.zookeeper, self.checks, number, self._lives[number],
            self._disks[number], self._route,
        )  # fmt: skip
        self.brokers.append(life)
        life.note("starts")

    def _alive(self) -> list[BrokerLife]:
        return [each for each in self.brokers if not each.is_over]

    def _at(self, number: int) -> BrokerLife | None:
        return next((each for each in self._alive() if each.number == number), None)

    def _route(
        self,
        sender: BrokerLife,
        to: BrokerId,
        order: ControllerRequest,
        done: Callable[[BrokerResponse | None], None],
    ) -> None:
        """Carry a controller's request to a broker.

        Requests and responses may be lost. A request that waits in a broker that ends is lost, too.
        """

        def answer(reply: BrokerResponse | None) -> None:
            self.world.after(self._delay_ms(), lambda: sender.deliver(lambda: done(reply)))

        def arrive() -> None:
            target = self._at(to)
            if target is None or self._is_lost():
                answer(None)
                return
            state = {"is_answered": False}

            def handle_request() -> None:
                if not state["is_answered"]:
                    state["is_answered"] = True
                    reply = target.handle(order)
                    answer(None if self._is_lost() else reply)

            def look() -> None:
                if target.is_over and not state["is_answered"]:
                    state["is_answered"] = True
                    answer(None)
                elif not state["is_answered"]:
                    self.world.after(500, look)

            target.deliver(handle_request)
            look()

        self.world.after(self._delay_ms(), arrive)

    def _delay_ms(self) -> int:
        return self.world.between(0, 2_000 if self.world.chance(0.02) else 5)

    def _is_lost(self) -> bool:
        return not self.is_at_peace and self.world.chance(0.05)

    # --- requests ---------------------------------------------------------------------------------
    def _controller(self) -> BrokerLife | None:
        """A broker that believes that it is the controller, if only a deposed one; else None."""
        found = [each for each in self._alive() if each.is_controller and not each.client.is_paused]
        return self.world.random.choice(found) if found else None

    def _ask(self, ask: Callable[[BrokerLife], None]) -> None:
        """Call ``ask`` with the present controller, after a delay."""
        controller = self._controller()
        if controller is not None:
            self.world.after(self._delay_ms(), lambda: controller.deliver(lambda: ask(controller)))

    def _alter(self) -> None:
        leader = self.world.random.choice(self._alive())
        if leader.client.is_paused:
            return
        others = {int(each.number): each for each in self._alive() if not each.client.is_paused}
        request = leader.alteration(others)
        if request is None:
            return

        def on_response(answer: Any) -> None:
            if not answer.error_code:
                self.alterations += 1
            leader.deliver(lambda: leader.altered(request, answer))

        self._ask(lambda controller: controller.controller.alter_partition(request, on_response))

    def _alter_often(self) -> None:
        """Send AlterPartition while the controller may know only the broker's last registration."""
        if not self.is_at_peace:
            for _ in range(10):
                self.world.after(self.world.between(0, 50), self._alter_if_any)

    def _alter_if_any(self) -> None:
        if self._alive():
            self._alter()

    def _administer(self) -> None:
        name = self.world.random.choice(_NAMES)
        action = self.world.random.choice(
            [self._create, self._create, self._grow, self._delete, self._elect, self._ids]
        )
        action(name)

    def _create(self, name: str) -> None:
        replicas = tuple(self._replicas() for _ in range(self.world.between(1, 3)))
        topic_id = TopicId(UUID(int=self.world.random.getrandbits(128)))
        topic = ValidatedTopic(name, topic_id, replicas, {})

        def on_created(error: ErrorCode) -> None:
            self.world.note(f"create {name} {error.name}")

        self._ask(lambda controller: controller.controller.create_topic(topic, on_created))

    def _replicas(self) -> tuple[BrokerId, ...]:
        numbers = [BrokerId(each) for each in range(len(self._lives))]
        return tuple(self.world.random.sample(numbers, self.world.between(1, 3)))

    def _grow(self, name: str) -> None:
        self.checks.follow()
        assignment = self.checks.assignment(name)
        if assignment is None or len(assignment.partitions) > 4:
            return
        more = {len(assignment.partitions): self._replicas()}
        self._ask(
            lambda controller: controller.controller.add_partitions(name, more, lambda _: None)
        )

    def _delete(self, name: str) -> None:
        def on_deleted(error: ErrorCode) -> None:
            self.world.note(f"delete {name} {error.name}")
            self.deletions += error is ErrorCode.NONE

        self.checks.follow()
        assignment = self.checks.assignment(name)
        if assignment is None or assignment.topic_id is None:
            return
        topic_id = assignment.topic_id
        self._ask(lambda controller: controller.controller.delete_topic(name, topic_id, on_deleted))

    def _elect(self, _name: str) -> None:
        unclean = self.world.chance(0.2)
        self.checks.follow()
        topics = self.checks.topics()
        partitions = [
            TopicPartition(name, number)
            for name, topic in topics.items()
            if not unclean or name == "unclean"
            for number in topic.partitions
        ]
        self._ask(
            lambda controller: controller.controller.elect_leaders(
                partitions, lambda _: None, unclean=unclean
            )
        )

    def _ids(self, _name: str) -> None:
        broker = self.world.random.choice(self._alive())
        request = AllocateProducerIdsRequest(broker_id=broker.number, broker_epoch=broker.epoch)

        def on_response(answer: AllocateProducerIdsResponse) -> None:
            if not answer.error_code:
                self.checks.allocated(answer.producer_id_start)

        self._ask(
            lambda controller: controller.controller.allocate_producer_ids(request, on_response)
        )

    # --- faults ----------------------------------------------------------------------------------
    def _strike(self) -> None:
        self.world.random.choice(self._faults)()

    def _interrupt(self) -> None:
        """A controller that has just written dies, is suspended, or loses the response."""
        if self.is_at_peace or not self.world.chance(self._risk):
            return
        for broker in self._alive():
            if broker.is_controller and not broker.client.is_paused:
                fault = self.world.random.choice([self._kill, self._pause, self._reset])
                self.world.after(self.world.between(0, 8), partial(fault, broker))

    def _some(self, broker: BrokerLife | None) -> BrokerLife | None:
        alive = self._alive()
        if broker is not None or not alive:
            return broker if broker in alive else None
        controllers = [each for each in alive if each.is_controller]
        return self.world.random.choice(
            controllers if controllers and self.world.chance(0.4) else alive
        )

    def _reset(self, broker: BrokerLife | None = None) -> None:
        broker = self._some(broker)
        if broker is not None:
            broker.note("is reset")
            broker.client.reset()

    def _cut(self) -> None:
        broker = self._some(None)
        if broker is not None:
            ways = self.world.random.choice([("to",), ("from",), ("to", "from")])
            broker.note(f"is cut {ways}")
            broker.client.cut(*ways)
            self._later(broker.client.mend)

    def _pause(self, broker: BrokerLife | None = None) -> None:
        broker = self._some(broker)
        if broker is not None and not broker.client.is_paused:
            broker.note("stands still")
            broker.client.pause()
            self._later(broker.resume)

    def _kill(self, broker: BrokerLife | None = None) -> None:
        broker = self._some(broker)
        if broker is not None:
            broker.kill()
            self._later(lambda: self._start(broker.number))

    def _bounce(self) -> None:
        """Stop a broker cleanly and start it at once."""
        self._end(lambda: self.world.between(0, 5))

    def _close(self) -> None:
        self._end(lambda: self.world.between(*_DURATIONS_MS))

    def _end(self, away_ms: Callable[[], int]) -> None:
        broker = self._some(None)
        if broker is None or broker.client.is_paused or broker.epoch < 0:
            return
        if self.world.chance(0.7):
            request = ControlledShutdownRequest(broker_id=broker.number, broker_epoch=broker.epoch)
            self._ask(lambda controller: controller.controller.shut_down(request, lambda _: None))

        def close() -> None:
            # A broker that has asked for its shutdown ends in any case.
            if broker.is_over:
                return
            if not broker.client.is_paused:
                broker.close()
            self.world.after(self.world.between(0, 50), kill_if_running)

        def kill_if_running() -> None:
            if not broker.is_over:
                broker.kill()
                self.world.after(away_ms(), lambda: self._start(broker.number))

        self.world.after(self.world.between(0, 100), close)

    def _expire(self) -> None:
        broker = self._some(None)
        if broker is not None:
            self._zookeeper_faults.expire(broker.name, broker.session)

    def _stop_zookeeper(self) -> None:
        if self._zookeeper_faults.stop():
            self._later(self._zookeeper_faults.start)

    # --- recovery --------------------------------------------------------------------------------
    def _make_peace(self) -> None:
        self.is_at_peace = True
        self.world.note("peace")
        self._zookeeper_faults.start()
        for broker in self._alive():
            if broker.client.is_paused:
                broker.resume()
            broker.client.mend()

    def _unhealed(self) -> str:
        return unhealed(self.checks, self._alive(), len(self._lives))


def run_seed(seed: int) -> Result:
    """Run the seed; exceptions from bugs of the simulation itself pass through."""
    world = Controllers(seed)
    check = failure = ""
    try:
        world.run()
    except Violation as violation:
        check, failure = violation.check, str(violation)
    return Result(
        seed,
        world.world.trace_hash,
        check,
        failure,
        world.checks.writes,
        world.checks.elections,
        world.deletions,
        world.alterations,
        world.world.lines,
    )
