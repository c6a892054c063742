"""Kafka's Java clients at work in the soak: a VerifiableProducer, and a VerifiableConsumer in a
group, on a topic of their own. They are neither killed nor started again."""

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
    # A broker may stand still, and others lead what it led.
    "request.timeout.ms": 4_000,
    "metadata.max.age.ms": 1_000,
    "reconnect.backoff.max.ms": 500,
}
# The tool would give up whatever fails once.
_PRODUCER = _CLIENT | {"retries": 2**31 - 1, "enable.idempotence": True}


class Run(NamedTuple):
    """Records of a partition that were read at once, as the consumer says it."""

    first: int
    last: int
    count: int


class Tool(ABC):
    """A process that says events in JSON, a line each. It ends with `end`."""

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
        # Java does not notice the end of its parent; a shell does, by the end of this pipe.
        self._watcher = subprocess.Popen(
            ["sh", "-c", 'read -r _; kill -KILL "$1"', "sh", str(self._process.pid)],
            stdin=subprocess.PIPE,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def end(self) -> None:
        """By SIGTERM: what is not sent yet is sent. Everything it said has been taken then."""
        # First of all: it must not outlive the process whose id it has.
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
    def take(self, event: Mapping[str, Any]) -> None:
        """One that it said."""

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.take(json.loads(line))


class JavaWriter(Tool):
    """Writes numbers; knows which were acknowledged."""

    def __init__(self, servers: str, work: Path) -> None:
        self.acknowledged: list[Record] = []
        self.given_up: dict[int, str] = {}
        """By number what was said of a record that is given up."""
        words = ["--bootstrap-server", servers, "--topic", TOPIC, "--throughput", str(_RATE_A_S)]
        super().__init__("VerifiableProducer", _PRODUCER, words, work)

    def take(self, event: Mapping[str, Any]) -> None:
        """See `Tool.take`."""
        match event["name"]:
            case "producer_send_success":
                where = event["partition"], event["offset"]
                self.acknowledged.append(Record(*where, int(event["value"])))
            case "producer_send_error":
                self.given_up[int(event["value"])] = event["message"]


class JavaReader(Tool):
    """Reads what is written; knows what it has read, and from which assignment on."""

    def __init__(self, servers: str, work: Path) -> None:
        self.count = 0
        self.assignments: list[dict[int, list[Run]]] = []
        words = ["--bootstrap-server", servers, "--topic", TOPIC, "--group-id", _GROUP]
        session = ["--session-timeout", "6000"]
        super().__init__("VerifiableConsumer", _CLIENT, [*words, *session], work)

    def take(self, event: Mapping[str, Any]) -> None:
        """See `Tool.take`."""
        match event["name"]:
            case "partitions_assigned":
                self.assignments.append({})
            case "records_consumed":
                self.count += event["count"]
                for each in event["partitions"]:
                    run = Run(each["minOffset"], each["maxOffset"], each["count"])
                    self.assignments[-1].setdefault(each["partition"], []).append(run)


class JavaClients:
    """Both of them."""

    def __init__(self, servers: str, work: Path) -> None:
        self._writer = JavaWriter(servers, work)
        self._reader = JavaReader(servers, work)

    @property
    def counts(self) -> tuple[int, int]:
        """How many records were acknowledged, and how many were read."""
        return len(self._writer.acknowledged), self._reader.count

    def end_writing(self) -> None:
        """All that is written is acknowledged, or has failed."""
        self._writer.end()

    def have_read(self, there: Mapping[int, Sequence[int]]) -> bool:
        """Has the reader come to the end of all partitions?"""
        read = ends_of(self._reader.assignments)
        return all(read[partition] >= len(numbers) for partition, numbers in there.items())

    def end(self) -> None:
        """End both, however far they are."""
        self._writer.end()
        self._reader.end()

    def problems(self, there: Mapping[int, Sequence[int]]) -> list[str]:
        """What is wrong once they have ended; ``there`` has the topic's numbers by partition, in
        the log's order."""
        ends = {partition: len(numbers) for partition, numbers in there.items()}
        return [
            *problems_of_writing(self._writer.acknowledged, self._writer.given_up, there),
            *problems_of_reading(self._reader.assignments, ends),
        ]


Assignments = Sequence[Mapping[int, Sequence[Run]]]


def ends_of(assignments: Assignments) -> Counter[int]:
    """By partition the offset up to which it was read."""
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
    """What is wrong with the topic, of which ``there`` has the numbers by partition, in order.

    A record that was given up may be there. While a leader stands still Java's producer has five
    batches under way to it, and sends others to the next leader, which has the five: so many that
    the five are no longer among the last that are known, when they come again. They are refused as
    out of order then until their time is up, as by Kafka.
    """
    written = set(itertools.chain.from_iterable(there.values()))
    failed = Counter(why for number, why in given_up.items() if number not in written)
    problems = [f"{TOPIC}: {count} failed: {why}" for why, count in failed.items()]
    problems += [f"{TOPIC}: {each}" for each in lost_of(acknowledged, there)]
    for partition, numbers in there.items():
        # One producer, whose numbers rise.
        if any(one >= other for one, other in itertools.pairwise(numbers)):
            problems.append(f"{TOPIC}-{partition}: records are there twice, or not in order")
    return problems


def problems_of_reading(assignments: Assignments, ends: Mapping[int, int]) -> list[str]:
    """What a reader skipped, or read again in one assignment. An assignment begins somewhere in
    what was read before, or right behind it, and all that there is was read."""
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
