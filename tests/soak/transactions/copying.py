"""The soak of transactions: ``./dev soak transactions --client librdkafka``.

Four processes consume, transform and produce in transactions, as one consumer group, two of them as
static members. By a plan (plan.py) they are killed and stopped, and the broker is killed. In the
end every input must be there exactly once, in the order of its key (check.py).
"""

import argparse
import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from pathlib import Path

from pyspark_klog.ids import TopicPartition
from tests.soak.records import lost_of
from tests.soak.transactions.check import Input, problems_of
from tests.soak.transactions.feed import (
    SOURCE,
    SOURCE_PARTITIONS,
    TARGET,
    TARGET_PARTITIONS,
    Feed,
    inputs,
    outputs,
)
from tests.soak.transactions.librdkafka_copy import FENCED
from tests.soak.transactions.plan import COPIES, Fault, Hit, faults
from tests.soak.transactions.processes import CLIENTS, Copy, command_of
from tests.support.broker_process import BrokerProcess
from tests.support.coordinator.transaction_client import TransactionClient
from tests.support.coordinator.transaction_reading import Reading, read_partition
from tests.support.eventually import eventually
from tests.support.peers import PeersMissing
from tests.support.raw_client import RawClient
from tests.support.raw_requests import create_topic

GROUP = "copies"
RATE_A_S = 500
GAP_S = 2.5
_STATIC = 2
"""The number of copies that are static members, which take their place again after a restart."""
_TICK_S = 0.05
_TOLD_S = 15.0
_DEADLINE_S = 120.0
_SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 100,
    "group.min.session.timeout.ms": 1_000,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
}

Say = Callable[[str], None]


class Copies:
    """One run; `problems` are those found so far."""

    def __init__(self, work: Path, say: Say, client: str, rate_a_s: int = RATE_A_S) -> None:
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()
        self._say = say
        self._work = work
        self._rate_a_s = rate_a_s
        self._broker = BrokerProcess(work / "broker", _SETTINGS)
        command = command_of(client)
        servers = self._broker.bootstrap_servers
        self._copies = [
            Copy(
                [*command, servers, GROUP, SOURCE, TARGET, f"copy-{number}"]
                + [f"static-{number}"] * (number < _STATIC),
                f"copy-{number}",
                work,
            )
            for number in range(COPIES)
        ]
        self._due_s: dict[Copy, float] = {}
        """When a copy that is dead or suspended starts or goes on."""
        self._tick = threading.Event()
        self._began_s = self._told_s = time.monotonic()

    def run(self, hits: Iterable[Fault], seconds: float) -> list[str]:
        """Copy for ``seconds`` while faults hit, then without faults; return the problems."""
        try:
            with RawClient(self._broker.address) as client:
                create_topic(client, SOURCE, SOURCE_PARTITIONS)
                create_topic(client, TARGET, TARGET_PARTITIONS)
            feed = Feed(self._broker.bootstrap_servers, self._rate_a_s)
            for copy in self._copies:
                copy.start()
            try:
                self._until(self._all_copy, "a transaction of each copy")
                self._hit(hits, seconds)
            finally:
                feed.stop_writing()
            self._finish(feed)
        finally:
            for copy in self._copies:
                copy.kill()
            self._broker.terminate()
        return self.problems

    # --- faults ----------------------------------------------------------------------------------
    def _hit(self, hits: Iterable[Fault], seconds: float) -> None:
        began_s = time.monotonic()
        left_s = lambda: began_s + seconds - time.monotonic()  # noqa: E731
        for fault in takewhile(lambda _: left_s() > 0, hits):
            self._wait(min(fault.after_s, left_s()))
            if left_s() > 0:
                self._take(fault)

    def _take(self, fault: Fault) -> None:
        self.counts[fault.hit.value] += 1
        if fault.hit is Hit.BROKER:
            self._broker.kill()
            self._tick.wait(fault.away_s)
            port = self._broker.address[1]
            self._broker = BrokerProcess(self._work / "broker", _SETTINGS, port)
            return
        copy = self._copies[fault.copy]
        if fault.hit is Hit.PAUSE and copy.is_there and not copy.is_paused:
            copy.pause()
        else:
            copy.kill()
        self._due_s[copy] = time.monotonic() + fault.away_s

    def _wait(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while True:
            self._look_after()
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return
            self._tick.wait(min(left_s, _TICK_S))

    def _look_after(self) -> None:
        """Start or resume the copies that are due, and restart those that ended by themselves.

        Only a copy with a fenced producer may end by itself.
        """
        now_s = time.monotonic()
        for copy in self._copies:
            code = copy.ended()
            if code is not None:
                if code == FENCED:
                    self.counts["ended by themselves, fenced"] += 1
                else:
                    self._problem(f"{copy.name} ended with code {code}: {copy.last_errors()}")
                copy.kill()
                self._due_s[copy] = now_s
            if self._due_s.get(copy, now_s + 1) <= now_s:
                del self._due_s[copy]
                if copy.is_paused:
                    copy.go_on()
                else:
                    copy.start()
                    self.counts["starts again"] += 1
        if now_s - self._told_s >= _TOLD_S:
            self._told_s = now_s
            self._say(f"{now_s - self._began_s:6.0f} s  {self._so_far()}")

    # --- the end ---------------------------------------------------------------------------------
    def _finish(self, feed: Feed) -> None:
        servers = self._broker.bootstrap_servers
        self._due_s = dict.fromkeys(self._due_s, 0.0)
        self._until(lambda: not feed.left(), "the acknowledgement of all inputs")
        source = inputs(servers)
        self._until(lambda: self._positions() == _ends(source), "the copy of all inputs")
        self.problems += [f"feed: {each}" for each in sorted(set(feed.failures))]
        numbers = {p: [each.number for each in source if each.partition == p] for p in _PARTITIONS}
        for problem in lost_of(feed.acknowledged, numbers):
            self._problem(problem)
        found = outputs(servers)
        for problem in problems_of(source, found):
            self._problem(problem)
        self._compare({p: len(records) for p, records in found.items()})
        self._say(f"{time.monotonic() - self._began_s:6.0f} s  {self._so_far()}")
        copied = sum(map(len, found.values()))
        self._say(f"         {len(source)} inputs, {copied} outputs under read_committed")

    def _compare(self, committed: dict[int, int]) -> None:
        """Check with a reader of markers only: as many records, and no open transaction."""
        with RawClient(self._broker.address) as client:
            for partition, count in committed.items():
                reading: Reading = read_partition(client, TARGET, partition)
                self.counts["markers of commits"] += reading.commits
                self.counts["markers of aborts"] += reading.aborts
                self.counts["records aborted"] += reading.aborted_records
                if reading.open_producers:
                    self._problem(f"{TARGET}-{partition}: open: {reading.open_producers}")
                if len(reading.values) != count:
                    self._problem(
                        f"{TARGET}-{partition}: read_committed saw {count} records, and by its "
                        f"markers it has {len(reading.values)}"
                    )

    def _all_copy(self) -> bool:
        return all(copy.counts["committed"] for copy in self._copies)

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        def looked_after() -> bool:
            self._look_after()
            return condition()

        try:
            eventually(looked_after, _DEADLINE_S, what)
        except AssertionError as error:
            self._problem(str(error))

    def _positions(self) -> dict[int, object]:
        """The group's committed offsets; an error's name where a transaction is pending."""
        with RawClient(self._broker.address) as client:
            group = TransactionClient(client, GROUP)
            return {
                p: group.committed(GROUP, TopicPartition(SOURCE, p), stable=True)
                for p in _PARTITIONS
            }

    def _so_far(self) -> str:
        said: Counter[str] = Counter()
        for copy in self._copies:
            said += copy.counts
        told = [f"{said['records']} records copied in {said['committed']} transactions"]
        told.append(f"{said['aborted']} aborted by their process")
        told += [f"{name} {count}" for name, count in sorted(self.counts.items())]
        return f"{', '.join(told)}; problems {len(self.problems)}"

    def _problem(self, text: str) -> None:
        self.problems.append(text)
        self._say(f"PROBLEM  {text}")


_PARTITIONS = range(SOURCE_PARTITIONS)


def _ends(source: Iterable[Input]) -> dict[int, object]:
    counts = Counter(each.partition for each in source)
    return {partition: counts[partition] for partition in _PARTITIONS}


def soak(
    client: str,
    seconds: float,
    seed: int,
    say: Say,
    *,
    work: Path | None = None,
    rate_a_s: int = RATE_A_S,
    gap_s: float = GAP_S,
) -> Copies:
    """Run for ``seconds``. A temporary folder is removed if nothing went wrong."""
    folder = work or Path(tempfile.mkdtemp(prefix="klog-copies-"))
    run = Copies(folder, say, client, rate_a_s)
    if run.run(faults(seed, gap_s), seconds):
        say(f"         what it left is in {folder}")
    elif work is None:
        shutil.rmtree(folder, ignore_errors=True)
    return run


def main(arguments: Sequence[str], say: Say) -> int:
    """``./dev soak transactions``: exit code 0 if nothing went wrong."""
    parser = argparse.ArgumentParser(prog="./dev soak transactions")
    parser.add_argument("--client", choices=CLIENTS, default="librdkafka")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--rate", type=int, default=RATE_A_S, help="records written each second")
    given = parser.parse_args(arguments)
    head = f"client {given.client}, seed {given.seed}"
    say(f"soak transactions: {head}, {given.minutes:g} minutes, {given.rate} records/s")
    try:
        run = soak(given.client, given.minutes * 60, given.seed, say, rate_a_s=given.rate)
    except PeersMissing as error:
        say(f"FAILED   {error}")
        return 1
    if run.problems:
        say(f"FAILED   {head}: {len(run.problems)} problems: {'; '.join(run.problems)}")
        return 1
    say(f"PASSED   {head}: every input exactly once, in the order of its key")
    return 0
