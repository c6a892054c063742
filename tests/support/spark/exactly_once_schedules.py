"""Random schedules for the model of the exactly-once sink, and what must hold in each."""

from collections.abc import Generator
from dataclasses import dataclass, field

from pyspark_klog.spark.sink.exactly_once.decisions_of_commit import DAY_MS
from tests.support.spark.exactly_once_model import AttemptFailed, Plan, Refused, World

_STEPS = 500
_QUIET_STEPS = 1_200
_BATCHES = 4
_MOST_TASKS = 4


class Broken(AssertionError):
    """The scheme did not keep what it promises."""


@dataclass
class Driver:
    """A run of the query that goes on, and may have been replaced."""

    plan: Plan
    steps: Generator[None, None, None]
    is_over: bool = False
    has_succeeded: bool = False
    refusal: str = ""


@dataclass
class Schedule:
    """One random history of a query: runs, deaths, zombies, expiry; then quiet, and the end."""

    seed: int
    version: int
    bugs: frozenset[str] = frozenset()
    drivers: list[Driver] = field(default_factory=list)
    has_expired: bool = False
    refusals: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = World(self.seed, self.version, self.bugs)
        self.random = self.world.random
        self.task_count = self.random.randint(1, _MOST_TASKS)
        self.may_expire = self.random.random() < 0.25
        self.storm = self.random.choice([1, 1, 3])
        """How many times as many faults as in other schedules."""

    # --- a stream --------------------------------------------------------------------------------
    def run_stream(self) -> None:
        """:raises Broken: saying how"""
        self._start()
        for _ in range(_STEPS):
            self._step()
            self._befall()
            self._check()
        self._calm_down()

    # --- a batch write ---------------------------------------------------------------------------
    def run_batch_write(self) -> None:
        """One write, with copies of tasks that begin late, some of them when it is over.

        :raises Broken: saying how
        """
        world = self.world
        plan = Plan("write", 0, 0, self.task_count, is_batch_write=True)
        driver = Driver(plan, world.run(plan))
        self.drivers.append(driver)
        for _ in range(_STEPS):
            if not driver.is_over and self.random.random() < 0.02:
                world.start_late(plan)
            self._step()
            for attempt in world.attempts:
                if not attempt.is_over and self.random.random() < 0.005 * self.storm:
                    world.kill(attempt)
            for index in list(world.broker.ids):
                if self.random.random() < 0.1:
                    world.broker.apply(index)
            self._check()
        if not driver.is_over:
            raise Broken("the write never ended")
        left = [index for index, found in world.broker.ids.items() if found.row is not None]
        if left:
            raise Broken(f"groups are left: {left}")

    # --- steps -----------------------------------------------------------------------------------
    def _start(self, task_count: int = 0, *, continue_on_missing: bool = False) -> Driver:
        first = max(self.world.done_batches, default=-1) + 1
        if first > 0 and self.random.random() < 0.3 and not self.is_quiet:
            first -= 1  # the driver died before Spark's commit log had the batch
        if not task_count and self.random.random() < 0.5:
            self.task_count = self.random.randint(1, _MOST_TASKS)
        counts = tuple(self.random.randint(1, _MOST_TASKS) for _ in range(_BATCHES))
        plan = Plan(
            f"run-{len(self.drivers)}",
            first,
            max(first, _BATCHES - 1),
            task_count or self.task_count,
            counts if not self.is_quiet and self.random.random() < 0.3 else (),
            continue_on_missing=continue_on_missing,
        )
        driver = Driver(plan, self.world.run(plan))
        self.drivers.append(driver)
        return driver

    is_quiet = False

    def _step(self) -> None:
        live = [each for each in self.drivers if not each.is_over]
        attempts = []
        for each in self.world.attempts:
            each.asleep = max(0, each.asleep - 1)
            if not each.is_over and not each.asleep:
                attempts.append(each)
        chosen = self.random.randrange(len(live) + len(attempts)) if live or attempts else None
        self.world.broker.now_ms += self.random.randint(0, 1_000)
        if chosen is None:
            return
        if chosen >= len(live):
            self.world.step_attempt(attempts[chosen - len(live)])
            return
        driver = live[chosen]
        try:
            next(driver.steps)
        except StopIteration:
            driver.is_over = driver.has_succeeded = True
        except AttemptFailed:
            driver.is_over = True
        except Refused as refused:
            driver.is_over = True
            driver.refusal = str(refused)
            self.refusals.append(str(refused))

    def _befall(self) -> None:
        """Let random things happen to the broker, the attempts and the drivers."""
        world, chance = self.world, self.random.random
        newest = self.drivers[-1]
        for index in list(world.broker.ids):
            if chance() < 0.06:
                world.broker.apply(index)
            if chance() < 0.0005 * self.storm:
                world.broker.time_out(index)
        for attempt in world.attempts:
            if not attempt.is_over and chance() < 0.002 * self.storm:
                world.kill(attempt)
        if not newest.is_over and chance() < 0.008 * self.storm:
            # The process dies, or is replaced while it lives on; its tasks may live on, too.
            newest.is_over = chance() < 0.7
            if chance() < 0.5:
                for attempt in world.attempts:
                    if not attempt.is_over:
                        world.forsake(attempt)
            if chance() < 0.5:
                world.start_late(newest.plan)
            if self.may_expire and chance() < 0.4:
                self._weeks_pass()
            self._start()
        elif newest.is_over and chance() < 0.3:
            if self.may_expire and chance() < 0.2:
                self._weeks_pass()
            self._start()
        elif self.may_expire and world.is_idle and chance() < 0.05:
            self._weeks_pass(spare=newest)

    def _weeks_pass(self, spare: Driver | None = None) -> None:
        """Let weeks pass: all processes end, except an idle driver (``spare``)."""
        world = self.world
        for driver in self.drivers:
            driver.is_over = driver.is_over or driver is not spare
        for attempt in world.attempts:
            if not attempt.is_over:
                world.kill(attempt)
        for index in list(world.broker.ids):
            world.broker.time_out(index)
            world.broker.apply(index)
        world.broker.now_ms += self.random.choice([5, 6, 8, 30]) * DAY_MS
        self.has_expired = True

    def _calm_down(self) -> None:
        """Faults end, zombies go on; a user starts the query until it succeeds."""
        self.is_quiet = True
        world = self.world
        world.copies = world.delays = 0
        for start in range(12):
            first = max(world.done_batches, default=-1) + 1
            splits = sorted(world.split_of.get(first, {1}))
            forgets = self.has_expired and start >= 6
            driver = self._start(splits[start % len(splits)], continue_on_missing=forgets)
            for _ in range(_QUIET_STEPS):
                if driver.is_over:
                    break
                self._step()
                for index in list(world.broker.ids):
                    world.broker.apply(index)
                if not forgets:
                    self._check()
            if driver.has_succeeded:
                break
        else:
            raise Broken(f"the query never went on: {self.refusals}")
        for _ in range(_QUIET_STEPS):
            if all(each.is_over for each in world.attempts):
                break
            self._step()
            if not forgets:
                self._check()
        if world.lost():
            raise Broken(f"lost: {world.lost()}")
        if world.done_batches != set(range(max(world.done_batches) + 1)):
            raise Broken(f"batches: {world.done_batches}")

    def _check(self) -> None:
        if self.world.doubled():
            raise Broken(f"doubled: {self.world.doubled()}")
        if self.world.lost():
            raise Broken(f"lost: {self.world.lost()}")
