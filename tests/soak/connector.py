"""The connector's soak: a stream, while driver and broker are killed again and again.

A main query reads numbered records from the beginning, through all steps of a plan (plan.py), with
one checkpoint; other queries begin at `latest` and are killed in their first micro-batches. At the
end the records of each query are compared with the log, and the log with the acknowledged records
(records.py).
"""

import contextlib
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pyspark_klog import testing
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.spark.options.rows import BY_KEY, Status
from pyspark_klog.spark.source.stream_reader import HAS_LIMITS
from tests.soak.checkpoint import Checkpoint, Positions
from tests.soak.plan import FIRST_PARTITIONS, Kind, Step, When
from tests.soak.processes import (
    FLAT,
    DriverFailed,
    DriverProcess,
    Memory,
    growth_bytes,
    in_mib,
)
from tests.soak.records import (
    Log,
    Numbers,
    Seen,
    lost_of,
    problems_of,
    problems_of_start,
)
from tests.support.eventually import eventually

TOPIC = "soak"
GROUP = "soak-group"
RATE_A_S = 200
INTERVAL = "0 seconds"
MOST_GROWTH_BYTES = 12 << 20
_DEADLINE_S = 180.0
_SAMPLE_S = 2.0
_COMPARED_S = 60.0
"""The shortest steady time whose samples can be compared, on a busy machine, too."""
_WARM_BATCHES = 40
"""After this many micro-batches every worker has its kernels."""

# Where Spark passes a source its committed end, the group has no lag when the query is idle.
FOLLOWS_GROUP = BY_KEY["commitgroupid"].status is Status.APPLIED and HAS_LIMITS

Say = Callable[[str], None]


class Soak:
    """One run; `problems` are those found so far."""

    def __init__(self, work: Path, say: Say, *, rate_a_s: int, interval: str) -> None:
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()
        self._say = say
        self._work = work
        self._rate_a_s = rate_a_s
        self._interval = interval
        self._memory = Memory()
        self._broker = testing.Broker(
            data=work / "broker", auto_create_topics_enable=False, num_partitions=FIRST_PARTITIONS
        )
        self._driver: DriverProcess | None = None
        self._running: set[str] = set()
        self._wake = threading.Event()
        self._partitions = FIRST_PARTITIONS

    # --- the whole run ----------------------------------------------------------------------------
    def run(self, steps: Iterable[Step], micro_batches: int = 0) -> list[str]:
        """Run all steps, then check; return the problems.

        ``micro_batches`` is how many a steady step must complete.
        """
        began_s = time.monotonic()
        with self._broker:
            with Admin(self._broker.bootstrap_servers) as admin:
                admin.create_topics([NewTopic(TOPIC, FIRST_PARTITIONS)])
            self._log = Log(self._broker.bootstrap_servers, TOPIC)
            self._numbers = Numbers(self._broker.bootstrap_servers, TOPIC, self._rate_a_s)
            self._numbers.resume()
            reporter = threading.Thread(target=self._report, args=(began_s,), daemon=True)
            reporter.start()
            try:
                for number, step in enumerate(steps, 1):
                    self._say(f"{time.monotonic() - began_s:6.0f} s  [{number}] {step}")
                    self._take(step, micro_batches)
                self._finish()
            finally:
                self._wake.set()
                self._numbers.close()
                if self._driver is not None:
                    self._note_left(self._driver.shut_down())
                reporter.join(60)
        return self.problems

    def _take(self, step: Step, micro_batches: int) -> None:
        does: dict[Kind, Callable[[Step], None]] = {
            Kind.RUN: self._run,
            Kind.KILL_DRIVER: self._kill_driver,
            Kind.KILL_BROKER: self._kill_broker,
            Kind.ADD_PARTITION: self._add_partition,
            Kind.LATEST: self._latest,
            Kind.AVAILABLE_NOW: self._available_now,
            Kind.IDLE: self._idle,
            Kind.STEADY: lambda step: self._steady(step, micro_batches),
        }
        try:
            does[step.kind](step)
        except Exception as error:  # it is reported, and the soak continues
            self._problem(f"{step}: {error}")
            self._note_left(self._end_driver())
        self._numbers.resume()

    def _finish(self) -> None:
        """Wait until all written records are read; then compare."""
        try:
            self._idle(Step(Kind.IDLE))
            self._stop("main")
        except Exception as error:
            self._problem(f"at the end: {error}")
        self._check("main", {})
        self._problems_of_producer()

    # --- steps -----------------------------------------------------------------------------------
    def _run(self, step: Step) -> None:
        """Run for ``step.seconds``, and for at least two micro-batches on a slow machine."""
        self._main()
        done = self._checkpoint("main").last_batch + 1
        self._wait(step.seconds, "main")
        self._until(
            "main", lambda _: self._checkpoint("main").last_batch > done, "two micro-batches"
        )

    def _kill_driver(self, step: Step) -> None:
        """Kill the driver in a micro-batch, which the next driver must repeat."""
        self._main()
        eventually(
            lambda: self._checkpoint("main").is_in_batch, _DEADLINE_S, "a micro-batch to kill in"
        )
        self._count("driver kills")
        self._note_left(self._end_driver())
        self._main()

    def _kill_broker(self, step: Step) -> None:
        self._main()
        self._count("broker kills")
        self._broker.kill()
        self._wake.wait(step.seconds)
        self._broker.start()
        self._wait(1.0, "main")

    def _add_partition(self, step: Step) -> None:
        self._main()
        self._partitions += 1
        self._count("partitions added")
        with Admin(self._broker.bootstrap_servers) as admin:
            admin.create_partitions(TOPIC, self._partitions)

    def _latest(self, step: Step) -> None:
        """Kill a new query at `latest` at a bad moment; no record from its start on may be lost."""
        self._count("starts at latest")
        name = f"latest-{self.counts['starts at latest']}"
        self._stop("main")
        hold = {When.BATCH_0: 0, When.BATCH_1: 1}.get(step.when or When.AT_ONCE)
        before = self._log.ends()
        self._start(name, startingOffsets="latest", hold=hold)
        if hold is not None:
            self._until(name, lambda status: status["held"], "the micro-batch to kill in")
        self._note_left(self._end_driver())
        durable = self._first_offsets(name)
        after = self._log.ends()
        self._wake.wait(min(step.seconds, 1.0))  # records that come while no query reads
        self._start(name, startingOffsets="latest")
        self._wait(step.seconds, name)
        self._catch_up(name)
        self._stop(name)
        start = self._first_offsets(name)
        if durable is None:  # the second run began the query
            after = self._log.ends()
            if hold is not None:
                self._problem(f"{name}: its start was not in the checkpoint when it was killed")
        for problem in problems_of_start(start, durable, before, after):
            self._problem(f"{name}: {problem}")
        self._check(name, start or {})

    def _available_now(self, step: Step) -> None:
        """Run the main query in runs that end by themselves; the last one has no records left."""
        self._stop("main")
        for _ in range(step.rounds):
            self._available()
        self._numbers.pause()
        self._available()
        if not HAS_LIMITS:
            self._available()  # a run that must repeat a micro-batch ends with it
        self._lag_is_0("AvailableNow")
        self._log.read_on()
        seen = {(record.partition, record.offset) for record in self._seen("main").last()}
        unseen = sum(map(len, self._log.numbers.values())) - len(seen)
        if unseen:
            self._problem(f"AvailableNow left {unseen} records")

    def _available(self) -> None:
        self._count("AvailableNow runs")
        self._start("main", trigger={"availableNow": True})
        self._until("main", lambda status: not status["active"], "the end of an AvailableNow run")
        self._stop("main")

    def _idle(self, step: Step) -> None:
        self._main()
        self._numbers.pause()
        self._catch_up("main")
        self._wait(step.seconds, "main")
        self._lag_is_0("idle")

    def _steady(self, step: Step, micro_batches: int) -> None:
        """Run without faults and compare the memory, until enough micro-batches are done."""
        self._main()
        warm = self._checkpoint("main").last_batch + _WARM_BATCHES
        self._until("main", lambda _: self._checkpoint("main").last_batch >= warm, "warmth")
        first = len(self._memory.samples)
        batch = self._checkpoint("main").last_batch
        self._wait(step.seconds, "main")
        while self._checkpoint("main").last_batch - batch < micro_batches:
            self._wait(5.0, "main")
        samples = self._memory.samples[first:]
        for role in FLAT:
            grown = growth_bytes(samples, role)
            if grown is None:
                self._say(f"         memory of {role}: too few samples to compare")
                if step.seconds >= _COMPARED_S:
                    self._problem(f"the memory of {role} was not seen in {step}")
                continue
            self._say(f"         memory of {role}: {grown / 2**20:+.1f} MiB after warming up")
            if grown > MOST_GROWTH_BYTES:
                self._problem(f"{role} has grown by {grown / 2**20:.1f} MiB in {step}")
        self._say(f"         in {self._checkpoint('main').last_batch - batch} micro-batches")

    # --- queries ---------------------------------------------------------------------------------
    def _main(self) -> None:
        if "main" not in self._running:
            self._start("main")

    def _start(
        self,
        name: str,
        *,
        startingOffsets: str = "earliest",  # noqa: N803  (the option's name)
        hold: int | None = None,
        trigger: dict[str, Any] | None = None,
    ) -> None:
        if self._driver is None:
            self._count("driver starts")
            self._driver = DriverProcess(self._work)
        options = {
            "kafka.bootstrap.servers": self._broker.bootstrap_servers,
            "subscribe": TOPIC,
            "startingOffsets": startingOffsets,
        }
        if FOLLOWS_GROUP and name == "main":
            options["commitGroupId"] = GROUP
        self._driver.send_command(
            "start",
            query=name,
            options=options,
            checkpoint=str(self._checkpoint(name).folder),
            sink=str(self._work / f"{name}.jsonl"),
            hold=hold,
            trigger=trigger or {"processingTime": self._interval},
        )
        self._running.add(name)

    def _stop(self, name: str) -> None:
        if name in self._running:
            assert self._driver is not None
            self._running.discard(name)
            self._driver.send_command("stop", query=name)

    def _end_driver(self) -> list[str]:
        driver, self._driver = self._driver, None
        self._running.clear()
        return driver.kill() if driver is not None else []

    def _status(self, name: str) -> dict[str, Any]:
        assert self._driver is not None
        status = self._driver.send_command("status", query=name)
        if status["error"] is not None:
            raise DriverFailed(f"query {name} failed: {status['error']}")
        return status

    def _wait(self, seconds: float, name: str) -> None:
        """Let time pass while a query runs, which must not fail."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            self._wake.wait(min(left_s, 1.0))
            self._status(name)

    def _until(self, name: str, true: Callable[[dict[str, Any]], Any], what: str) -> None:
        eventually(lambda: true(self._status_slowly(name)), _DEADLINE_S, what)

    def _status_slowly(self, name: str) -> dict[str, Any]:
        """The query's status, after a pause: answering costs the driver time that queries need."""
        self._wake.wait(0.2)
        return self._status(name)

    def _catch_up(self, name: str) -> None:
        """Wait until a query has read all records; the producer is paused."""
        self._numbers.pause()
        ends = self._log.ends()

        def all_seen(_: dict[str, Any]) -> bool:
            seen = self._checkpoint(name).committed()
            return all(seen.get(partition, 0) == end for partition, end in ends.items())

        self._until(name, all_seen, f"query {name} to see {ends}")

    # --- checks ----------------------------------------------------------------------------------
    def _check(self, name: str, start: Positions) -> None:
        self._numbers.pause()
        self._log.read_on()
        seen = self._seen(name)
        self.counts["micro-batches"] += len(seen.batches)
        self.counts["micro-batches repeated"] += seen.repeated
        self.counts["records checked"] += len(seen.last())
        for problem in problems_of(seen, start, self._log.numbers):
            self._problem(f"{name}: {problem}")

    def _problems_of_producer(self) -> None:
        for problem in lost_of(self._numbers.acknowledged, self._log.numbers):
            self._problem(f"broker: {problem}")
        if not self._numbers.acknowledged:
            self._problem("broker: no record was acknowledged")
        self.counts["records acknowledged"] = len(self._numbers.acknowledged)
        self.counts["records not acknowledged"] = len(self._numbers.failures)

    def _lag_is_0(self, when: str) -> None:
        if not FOLLOWS_GROUP:
            return
        self._count("lags looked at")

        def no_lag() -> bool:
            self._wake.wait(0.5)
            return self._log.committed(GROUP) == self._log.ends()

        try:
            eventually(no_lag, 60, "a lag of 0")
        except AssertionError:
            committed, ends = self._log.committed(GROUP), self._log.ends()
            self._problem(f"{when}: the group is at {committed}, and the log ends at {ends}")

    def _seen(self, name: str) -> Seen:
        return Seen.read(self._work / f"{name}.jsonl")

    def _first_offsets(self, name: str) -> Positions | None:
        """The end offsets of a query's micro-batch 0, from its checkpoint."""
        return self._checkpoint(name).offsets(0)

    def _checkpoint(self, name: str) -> Checkpoint:
        return Checkpoint(self._work / "checkpoints" / name, TOPIC)

    # --- reports ----------------------------------------------------------------------------------
    def _problem(self, text: str) -> None:
        self.problems.append(text)
        self._say(f"PROBLEM  {text}")

    def _note_left(self, commands: Sequence[str]) -> None:
        for command in commands:
            self._problem(f"a process outlived its driver by a minute: {command}")

    def _count(self, what: str) -> None:
        self.counts[what] += 1

    def _report(self, began_s: float) -> None:
        """Take samples of the memory, and print a line each minute."""
        told = 0
        while not self._wake.wait(_SAMPLE_S):
            driver, broker, pid = self._driver, self._broker, None
            with contextlib.suppress(RuntimeError):  # the broker is down
                pid = broker.pid
            sample = self._memory.add_sample(driver and driver.pid, pid)
            minute = int((sample.at_s - began_s) // 60)
            if minute > told:
                told = minute
                counts = ", ".join(f"{name} {n}" for name, n in sorted(self.counts.items()))
                acknowledged = len(self._numbers.acknowledged)
                self._say(
                    f"minute {minute}: {acknowledged} acknowledged, {counts}; "
                    f"{in_mib(sample.rss_bytes)}; problems {len(self.problems)}"
                )


def soak(
    steps: Iterable[Step],
    say: Say,
    *,
    work: Path | None = None,
    rate_a_s: int = RATE_A_S,
    micro_batches: int = 0,
    interval: str = INTERVAL,
) -> list[str]:
    """Run a plan; return the problems. A temporary folder is removed if there are none.

    ``interval`` is the queries' trigger interval.
    """
    folder = work or Path(tempfile.mkdtemp(prefix="klog-soak-"))
    running = Soak(folder, say, rate_a_s=rate_a_s, interval=interval)
    problems = running.run(steps, micro_batches)
    for name, count in sorted(running.counts.items()):
        say(f"         {name}: {count}")
    if problems:
        say(f"         what it left is in {folder}")
    elif work is None:
        shutil.rmtree(folder, ignore_errors=True)
    return problems
