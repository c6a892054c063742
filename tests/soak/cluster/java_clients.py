"""Kafka's Java clients in the soak: a VerifiableProducer, and a VerifiableConsumer in a group.

Both use a topic of their own, and are neither killed nor restarted.
"""

import itertools
import json
import signal
import subprocess
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.soak.records import Record, lost_of
from tests.support.peers import NEWEST_KAFKA, java, kafka_jars

TOPIC, PARTITIONS = "java", 3
_GROUP = "java-reads"
_RATE_A_S = 100
_END_S = 60.0
_CLIENT = {
    # A broker may be suspended while others take over its partitions.
    "request.timeout.ms": 4_000,
    "metadata.max.age.ms": 1_000,
    "reconnect.backoff.max.ms": 500,
}
# VerifiableProducer would otherwise give up a record after one failure.
_PRODUCER = _CLIENT | {"retries": 2**31 - 1, "enable.idempotence": True}


class Run(NamedTuple):
    """Consecutive records of a partition that one poll returned, as the consumer reports them."""

    first: int
    last: int
    count: int


class Tool(ABC):
    """A process that reports events as lines of JSON, and ends at a call of `stop_process`."""

    def __init__(
        self, name: str, settings: Mapping[str, object], words: Sequence[str], work: Path
    ) -> None:
        file = work / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        with (work / f"{name}.stderr").open("wb") as errors:
            self._process = subprocess.Popen(
                [
                    java(),
                    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m"),
                    *("-cp", f"{kafka_jars(NEWEST_KAFKA)}/*", f"org.apache.kafka.tools.{name}"),
                    *("--command-config", str(file), *words),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        # Java does not notice the end of its parent; this shell does, because its pipe ends, and
        # kills Java.
        self._watcher = subprocess.Popen(
            ["sh", "-c", 'read -r _; kill -KILL "$1"', "sh", str(self._process.pid)],
            stdin=subprocess.PIPE,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def stop_process(self) -> None:
        """Send SIGTERM, let the process send its last records, and take all its events."""
        # The watcher must end before the process whose id it knows.
        self._watcher.kill()
        self._watcher.communicate()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join(_END_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    @abstractmethod
    def handle_event(self, event: Mapping[str, Any]) -> None:
        """Handle an event of the process."""

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.handle_event(json.loads(line))


class JavaWriter(Tool):
    """Writes numbers, and notes which were acknowledged."""

    def __init__(self, servers: str, work: Path) -> None:
        self.acknowledged: list[Record] = []
        self.given_up: dict[int, str] = {}
        """The error message of each record that was given up, by number."""
        words = ["--bootstrap-server", servers, "--topic", TOPIC, "--throughput", str(_RATE_A_S)]
        super().__init__("VerifiableProducer", _PRODUCER, words, work)

    def handle_event(self, event: Mapping[str, Any]) -> None:
        """Note an acknowledgement or a failure."""
        match event["name"]:
            case "producer_send_success":
                where = event["partition"], event["offset"]
                self.acknowledged.append(Record(*where, int(event["value"])))
            case "producer_send_error":
                self.given_up[int(event["value"])] = event["message"]


class JavaReader(Tool):
    """Reads the topic, and notes the records of each assignment."""

    def __init__(self, servers: str, work: Path) -> None:
        self.count = 0
        self.assignments: list[dict[int, list[Run]]] = []
        words = ["--bootstrap-server", servers, "--topic", TOPIC, "--group-id", _GROUP]
        session = ["--session-timeout", "6000"]
        super().__init__("VerifiableConsumer", _CLIENT, [*words, *session], work)

    def handle_event(self, event: Mapping[str, Any]) -> None:
        """Note a new assignment, or records that were read."""
        match event["name"]:
            case "partitions_assigned":
                self.assignments.append({})
            case "records_consumed":
                self.count += event["count"]
                for each in event["partitions"]:
                    run = Run(each["minOffset"], each["maxOffset"], each["count"])
                    self.assignments[-1].setdefault(each["partition"], []).append(run)


class JavaClients:
    """The writer and the reader."""

    def __init__(self, servers: str, work: Path) -> None:
        self._writer = JavaWriter(servers, work)
        self._reader = JavaReader(servers, work)

    @property
    def counts(self) -> tuple[int, int]:
        """How many records were acknowledged, and how many were read."""
        return len(self._writer.acknowledged), self._reader.count

    def end_writing(self) -> None:
        """End the writer: all its records are acknowledged, or have failed."""
        self._writer.stop_process()

    def have_read(self, there: Mapping[int, Sequence[int]]) -> bool:
        """Whether the reader has reached the end of all partitions."""
        read = ends_of(self._reader.assignments)
        return all(read[partition] >= len(numbers) for partition, numbers in there.items())

    def stop_clients(self) -> None:
        """End both clients, even if the reader has not caught up."""
        self._writer.stop_process()
        self._reader.stop_process()

    def problems(self, there: Mapping[int, Sequence[int]]) -> list[str]:
        """The problems found after both have ended.

        ``there`` has the topic's numbers by partition, in the log's order.
        """
        ends = {partition: len(numbers) for partition, numbers in there.items()}
        return [
            *problems_of_writing(self._writer.acknowledged, self._writer.given_up, there),
            *problems_of_reading(self._reader.assignments, ends),
        ]


Assignments = Sequence[Mapping[int, Sequence[Run]]]


def ends_of(assignments: Assignments) -> Counter[int]:
    """The offset up to which each partition was read."""
    ends: Counter[int] = Counter()
    for assignment in list(assignments):
        for partition, runs in list(assignment.items()):
            ends[partition] = max(ends[partition], *(run.last + 1 for run in runs))
    return ends


def problems_of_writing(
    acknowledged: Sequence[Record],
    given_up: Mapping[int, str],
    there: Mapping[int, Sequence[int]],
) -> list[str]:
    """Problems of the topic, whose numbers ``there`` has by partition, in order.

    A record that was given up may be in the topic. While a leader is suspended, Java's producer has
    five batches in flight to it, and sends later batches to the next leader, which has the five
    already. Then more batches follow than a broker remembers, and the five are refused as out of
    order when they are repeated, until they time out; Kafka refuses them, too.
    """
    written = set(itertools.chain.from_iterable(there.values()))
    failed = Counter(why for number, why in given_up.items() if number not in written)
    problems = [f"{TOPIC}: {count} failed: {why}" for why, count in failed.items()]
    problems += [f"{TOPIC}: {each}" for each in lost_of(acknowledged, there)]
    for partition, numbers in there.items():
        # The topic has one producer, whose numbers rise.
        if any(one >= other for one, other in itertools.pairwise(numbers)):
            problems.append(f"{TOPIC}-{partition}: records are there twice, or not in order")
    return problems


def problems_of_reading(assignments: Assignments, ends: Mapping[int, int]) -> list[str]:
    """Records that a reader skipped, or read twice in one assignment.

    An assignment must begin at or before the end of the earlier records,
    and all records must be read in the end.
    """
    problems = []
    read = dict.fromkeys(ends, 0)
    for assignment in assignments:
        for partition, runs in assignment.items():
            at: int | None = None
            for run in runs:
                is_next = run.first == at if at is not None else run.first <= read[partition]
                if not is_next or run.last - run.first + 1 != run.count:
                    where = f"{TOPIC}-{partition}"
                    problems.append(f"{where}: {run} was read behind {at or read[partition]}")
                at = run.last + 1
                read[partition] = max(read[partition], at)
    for partition, end in ends.items():
        if read[partition] != end:
            problems.append(f"{TOPIC}-{partition}: read up to {read[partition]} of {end}")
    return problems
