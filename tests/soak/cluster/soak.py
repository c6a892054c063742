"""The soak of a cluster: three brokers, a ZooKeeper, and clients at work during faults.

A `Feed` writes numbered records (acks=all, idempotent); two processes copy them as a consumer group
in transactions (`tests/soak/transactions`). With ``--java`` one of the two is Java's, and Kafka's
own clients write and read another topic (`java_clients`). After the faults each acknowledged record
must be there, at its acknowledged offset, once and in order. Each record must be in the copy once.
Every replica must be in sync and have the same bytes.
"""

import argparse
import random
import shutil
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from pyspark_klog.testing.broker import BrokerFailed
from pyspark_klog.testing.zookeeper import ZooKeeperFailed
from tests.soak.cluster import plan
from tests.soak.cluster.cluster_view import lacks
from tests.soak.cluster.fault_injection import CLIENT, befallen, whose
from tests.soak.cluster.java_clients import PARTITIONS as JAVA_PARTITIONS
from tests.soak.cluster.java_clients import TOPIC as JAVA_TOPIC
from tests.soak.cluster.java_clients import JavaClients
from tests.soak.cluster.plan import Fault, Kind
from tests.soak.cluster.replicas import partitions_of, problems_of_replicas
from tests.soak.cluster.split_cluster import SplitCluster
from tests.soak.records import lost_of
from tests.soak.report import Report, Say
from tests.soak.transactions.check import Input, problems_of
from tests.soak.transactions.feed import (
    SOURCE,
    SOURCE_PARTITIONS,
    TARGET,
    TARGET_PARTITIONS,
    Feed,
    committed_records,
    inputs,
    outputs,
)
from tests.soak.transactions.librdkafka_copy import FENCED
from tests.soak.transactions.processes import Copy, command_of
from tests.support.eventually import eventually

RATE_A_S = 300
_COPIES = ("librdkafka", "librdkafka")
_COPIES_WITH_JAVA = ("librdkafka", "java")
_GROUP = "copies"
_DEADLINE_S = 240.0
_GAP_S = 1.0
_TOPICS = {SOURCE: SOURCE_PARTITIONS, TARGET: TARGET_PARTITIONS, JAVA_TOPIC: JAVA_PARTITIONS}
_BROKER_SETTINGS: dict[str, str | int | bool] = {
    "zookeeper_session_timeout_ms": int(plan.SESSION_S * 1_000),
    # Test machines are sometimes busy.
    "zookeeper_connection_timeout_ms": 60_000,
    "auto_create_topics_enable": False,
    "default_replication_factor": 3,
    "offsets_topic_replication_factor": 3,
    "offsets_topic_num_partitions": 3,
    "transaction_state_log_replication_factor": 3,
    "transaction_state_log_min_isr": 2,
    "transaction_state_log_num_partitions": 3,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 1_000,
    "group_min_session_timeout_ms": 1_000,
    "replica_lag_time_max_ms": 4_000,
    "replica_socket_timeout_ms": 4_000,
    "controller_socket_timeout_ms": 4_000,
    # The replicas are compared byte by byte.
    "log_cleaner_enable": False,
}
_PRODUCER = CLIENT | {"request.timeout.ms": 4_000}
# Texts in a broker's log that no fault explains.
_BAD_WORDS = ("Traceback", "a bug", "unclean", "is offline")


class ClusterSoak:
    """One run; `report` has the problems."""

    def __init__(
        self, work: Path, say: Say, rate_a_s: int = RATE_A_S, *, with_java: bool = False
    ) -> None:
        """Create the run; ``with_java`` needs the jars of the peers."""
        self.report = Report(say)
        self.acknowledged = 0
        self.longest_gap_s = 0.0
        self._work = work
        self._rate_a_s = rate_a_s
        self._tick = threading.Event()
        self._feed: Feed
        self._clients_of_copies = _COPIES_WITH_JAVA if with_java else _COPIES
        self._copies: list[Copy] = []
        self._with_java = with_java
        self._java: JavaClients | None = None

    def run(self, faults: Iterable[Fault]) -> list[str]:
        """Run all faults; return the problems."""
        with SplitCluster(self._work, **_BROKER_SETTINGS) as cluster:
            self._cluster = cluster
            self._make_topics()
            self._feed = Feed(cluster.bootstrap_servers, self._rate_a_s, _PRODUCER)
            self._copies = [self._copy(number) for number in range(len(self._clients_of_copies))]
            try:
                for copy in self._copies:
                    copy.start()
                if self._with_java:
                    self._java = JavaClients(cluster.bootstrap_servers, self._work)
                self._until(self._all_copy, "a transaction of each copy")
                for number, fault in enumerate(faults, 1):
                    self._take(number, fault)
                self._rest()
                self._until_clients_go_on()
                self._feed.stop_writing()
                self._finish()
            finally:
                self._feed.stop_writing()
                for copy in self._copies:
                    copy.kill()
                if self._java is not None:
                    self._java.stop_clients()
                for number, broker in enumerate(cluster.brokers, 1):
                    self._read_output(number, broker.output())
            self._compare_files()
        return self.report.problems

    # --- the start -------------------------------------------------------------------------------
    def _make_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap_servers})
        settings = {"min.insync.replicas": "2"}
        topics = [NewTopic(name, count, 3, config=settings) for name, count in _TOPICS.items()]
        for made in admin.create_topics(topics).values():
            made.result(_DEADLINE_S)
        self._rest()

    def _copy(self, number: int) -> Copy:
        words = [self._cluster.bootstrap_servers, _GROUP, SOURCE, TARGET, f"copy-{number}"]
        command = command_of(self._clients_of_copies[number])
        return Copy([*command, *words], f"copy-{number}", self._work)

    def _all_copy(self) -> bool:
        return all(copy.counts["committed"] for copy in self._copies)

    # --- faults ----------------------------------------------------------------------------------
    def _take(self, number: int, fault: Fault) -> None:
        self._feed.longest_gap_s = 0.0
        before = len(self._feed.acknowledged)
        who = whose(fault, self._cluster)
        try:
            with befallen(fault, who, self._cluster, self._rest):
                self._wait(fault.seconds)
        except (BrokerFailed, ZooKeeperFailed) as error:
            self.report.problem(f"{fault}: {error}")
        self._start_who_ended()
        self.report.counts[fault.kind.value] += 1
        began_s = time.monotonic()
        whole = "no rest"
        if fault.rests:
            self._rest()
            whole = f"whole after {time.monotonic() - began_s:.1f} s"
            self._until_clients_go_on()
        else:
            self._wait(_GAP_S)
        self.longest_gap_s = max(self.longest_gap_s, self._feed.longest_gap_s)
        acknowledged = len(self._feed.acknowledged) - before
        self.report.say(
            f"#{number} broker {who}: {fault}; {whole}; {acknowledged} acknowledged, "
            f"longest gap {self._feed.longest_gap_s:.1f} s"
        )

    def _start_who_ended(self) -> None:
        for number, broker in enumerate(self._cluster.brokers, 1):
            if not broker.is_running:
                self.report.problem(f"broker {number} had ended: {broker.output()[-500:]}")
                broker.start()

    # --- waiting ---------------------------------------------------------------------------------
    def _wait(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            self._look_after()
            self._tick.wait(min(left_s, 0.2))

    def _rest(self) -> None:
        """Wait until all brokers report that every partition is led and in sync."""
        problem: str | None = None

        def is_whole() -> bool:
            nonlocal problem
            self._look_after()
            problem = lacks(self._cluster, _TOPICS)
            if problem is not None:
                self._tick.wait(0.2)
            return problem is None

        try:
            eventually(is_whole, _DEADLINE_S, "a whole cluster")
        except AssertionError:
            self.report.problem(f"the cluster is not whole after {_DEADLINE_S:g} s: {problem}")

    def _until_clients_go_on(self) -> None:
        """Wait until each client makes progress again; the cluster must be whole."""
        java = self._java
        before = None if java is None else java.counts
        self._until_copies_go_on()
        if java is not None and before is not None:
            self._until(
                lambda: all(now > old for now, old in zip(java.counts, before, strict=True)),
                "Java's producer and consumer to go on though all is well",
            )

    def _until_copies_go_on(self) -> None:
        before = [copy.counts["committed"] for copy in self._copies]
        end_s = time.monotonic() + _DEADLINE_S
        while time.monotonic() < end_s:
            self._look_after()
            now = [copy.counts["committed"] for copy in self._copies]
            if all(count > old for count, old in zip(now, before, strict=True)):
                return
            self._tick.wait(0.1)
        for copy, count in zip(self._copies, before, strict=True):
            if copy.counts["committed"] == count:
                self.report.problem(f"{copy.name} does not commit though all is well")

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        def looked_after() -> bool:
            self._look_after()
            return condition()

        try:
            eventually(looked_after, _DEADLINE_S, what)
        except AssertionError as error:
            self.report.problem(str(error))

    def _look_after(self) -> None:
        """Restart a copy that has ended: only a fenced one may do so."""
        for copy in self._copies:
            code = copy.ended()
            if code is None:
                continue
            if code == FENCED:
                self.report.counts["copies fenced"] += 1
            else:
                self.report.problem(f"{copy.name} ended with code {code}: {copy.last_errors()}")
            copy.kill()
            copy.start()

    # --- the end ---------------------------------------------------------------------------------
    def _finish(self) -> None:
        """Let all clients finish, and compare their reports with the topics."""
        servers = self._cluster.bootstrap_servers
        self._until(lambda: not self._feed.left(), "the acknowledgement of all records")
        self.acknowledged = len(self._feed.acknowledged)
        for failure, count in Counter(self._feed.failures).items():
            self.report.problem(f"{count} records failed: {failure}")
        source = inputs(servers)
        numbers = _by_partition(source)
        ends = {partition: len(each) for partition, each in numbers.items()}
        self._until(lambda: _positions(servers) == ends, "the copy of all records")
        for copy in self._copies:
            copy.kill()
        if self._java is not None:
            self._finish_java(self._java)
        for problem in (
            *lost_of(self._feed.acknowledged, numbers),
            *problems_of_order(source),
            *problems_of(source, outputs(servers)),
        ):
            self.report.problem(problem)
        self._least_ends = {f"{SOURCE}-{partition}": end for partition, end in ends.items()}
        self._rest()

    def _finish_java(self, java: JavaClients) -> None:
        java.end_writing()
        servers = self._cluster.bootstrap_servers
        there = {
            partition: [
                int(each.value()) for each in committed_records(servers, JAVA_TOPIC, partition)
            ]
            for partition in range(JAVA_PARTITIONS)
        }
        self._until(lambda: java.have_read(there), "Java's consumer to read all records")
        java.stop_clients()
        self.report.counts["records of Java's producer"] = java.counts[0]
        for problem in java.problems(there):
            self.report.problem(problem)

    def _read_output(self, number: int, output: str) -> None:
        for line in output.splitlines():
            if any(word in line for word in _BAD_WORDS):
                self.report.problem(f"broker {number} said: {line}")
        (self._work / f"broker-{number}.log").write_text(output, encoding="utf-8")

    def _compare_files(self) -> None:
        """Compare the brokers' files; all brokers must have ended."""
        data = {number: self._cluster.data_of(number) for number in (1, 2, 3)}
        for name, folders in partitions_of(data).items():
            if len(folders) != len(data):
                self.report.problem(f"{name} is on brokers {sorted(folders)} alone")
            least_end = self._least_ends.get(name)
            for problem in problems_of_replicas(name, folders, least_end):
                self.report.problem(problem)


def _positions(servers: str) -> dict[int, int]:
    """The offsets that the copies' group has committed."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": _GROUP, **CLIENT})
    try:
        places = [TopicPartition(SOURCE, partition) for partition in range(SOURCE_PARTITIONS)]
        found = consumer.committed(places, 10)
    except KafkaException:
        return {}
    finally:
        consumer.close()
    return {place.partition: place.offset for place in found}


def _by_partition(source: Iterable[Input]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for each in source:
        found[each.partition].append(each.number)
    return found


def problems_of_order(source: Sequence[Input]) -> list[str]:
    """Problems of a topic whose only producer numbers its records.

    A partition must have each number once, and in order.
    """
    problems = []
    for partition, numbers in _by_partition(source).items():
        doubled = len(numbers) - len(set(numbers))
        if doubled:
            problems.append(f"{SOURCE}-{partition}: {doubled} records are there twice")
        elif numbers != sorted(numbers):
            problems.append(f"{SOURCE}-{partition}: records are not in their order")
    return problems


def soak(
    faults: Iterable[Fault], say: Say, *, work: Path | None = None, with_java: bool = False
) -> ClusterSoak:
    """Run the soak. A temporary folder is removed if nothing went wrong."""
    folder = work or Path(tempfile.mkdtemp(prefix="klog-cluster-"))
    run = ClusterSoak(folder, say, with_java=with_java)
    if run.run(faults):
        say(f"         what it left is in {folder}")
    elif work is None:
        shutil.rmtree(folder, ignore_errors=True)
    return run


def main(arguments: Sequence[str], say: Say) -> int:
    """``./dev soak cluster``: exit code 0 if nothing went wrong."""
    parser = argparse.ArgumentParser(prog="./dev soak cluster")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--work", type=Path, help="an empty folder that keeps data and logs")
    parser.add_argument("--java", action="store_true", help="run Kafka's Java clients, too")
    given = parser.parse_args(arguments)
    say(f"soak cluster: seed {given.seed}, {given.minutes:g} minutes, {RATE_A_S} records/s")
    # `finally` blocks end the processes that the soak has started or stopped.
    faults = plan.long_plan(given.minutes, given.seed, time.monotonic)
    run = soak(faults, say, work=given.work, with_java=given.java)
    count = sum(run.report.counts[kind.value] for kind in Kind)
    for name, times in sorted(run.report.counts.items()):
        say(f"         {times:4} {name}")
    say(
        f"         {count} faults, {run.acknowledged} records acknowledged, "
        f"longest gap between two of a partition {run.longest_gap_s:.1f} s"
    )
    if run.report.problems:
        problems = "; ".join(run.report.problems)
        say(f"FAILED   seed {given.seed}: {len(run.report.problems)} problems: {problems}")
        return 1
    say(f"PASSED   seed {given.seed}: 0 lost, 0 twice, replicas alike")
    return 0
