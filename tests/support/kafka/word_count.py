"""Words counted by a stream library on klog, whose processes are killed: in Java and in Python.

Every change of a count is a record of the topic "counts": of each word they have to be 1, 2, 3 and
so on to the number that Python counts, each once, whatever was killed meanwhile.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
from confluent_kafka import TopicPartition

from pyspark_klog.client.admin.topics import Admin, NewTopic
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.kafka.killed_programs import Program

SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1_000,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    # A process that lost its state directory has new transactional ids: what the one before left
    # open ends when its time is over, 10 s with Streams' settings.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "log.cleaner.backoff.ms": 100,
}
PARTITIONS = 2
WORDS = [f"word-{number}" for number in range(200)]
WORDS_A_LINE = 5
DEADLINE_S = 60.0


class World:
    """A broker and the application, and what has been written for it.

    ``launch`` starts the application, with the broker's address, a directory for its state, and a
    file that takes what it prints.
    """

    def __init__(self, folder: Path, launch: Callable[[str, Path, Path], Program]) -> None:
        self._launch = launch
        self.state = folder / "state"
        self.data = folder / "data"
        self.broker = BrokerProcess(self.data, SETTINGS)
        self.written: Counter[str] = Counter()
        self._output = folder / "application.txt"
        self._chance = random.Random(7)
        topics = [NewTopic(name, PARTITIONS, 1, {}) for name in ("lines", "counts")]
        with Admin(self.servers) as admin:
            admin.create_topics(topics)
        self.application = self.start()

    @property
    def servers(self) -> str:
        return self.broker.bootstrap_servers

    def start(self) -> Program:
        self.application = self._launch(self.servers, self.state, self._output)
        return self.application

    def restart_broker(self) -> None:
        port = self.broker.address[1]
        self.broker.kill()
        self.broker = BrokerProcess(self.data, SETTINGS, port)

    def kill_processes(self) -> None:
        self.application.kill()
        self.broker.kill()

    def write(self, lines: int) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.servers, "linger.ms": 20})
        for number in range(lines):
            words = self._chance.choices(WORDS, k=WORDS_A_LINE)
            self.written.update(words)
            producer.produce("lines", " ".join(words), partition=number % PARTITIONS)
        assert producer.flush(30) == 0

    def counts(self) -> dict[str, list[int]]:
        """Return the committed records of "counts", by word, in the order of the topic."""
        found: dict[str, list[int]] = defaultdict(list)
        for key, value in committed(self.servers, "counts"):
            found[key].append(int(value))
        return found

    def expect_counts(self) -> None:
        """Waits until all that was written is counted; each change must be there once."""

        def is_counted() -> bool:
            self.application.expect_running()
            return sum(map(len, self.counts().values())) >= self.written.total()

        eventually(is_counted, DEADLINE_S, "the count of all that was written")
        self.expect_each_once()

    def expect_each_once(self, times: int = 1) -> None:
        """The counts of each word are 1, 2, 3, ..., the whole of it so many times."""
        found = self.counts()
        wrong = {
            word: found.get(word)
            for word, count in self.written.items()
            if found.get(word) != times * list(range(1, count + 1))
        }
        assert not wrong, f"{len(wrong)} words are counted wrong: {str(wrong)[:1_000]}"
        assert found.keys() == self.written.keys()

    def expect_counts_after_kills(self) -> None:
        """Kills the application, the broker, then both, each time in the middle of the work."""
        for kill in ("application", "broker", "both"):
            before = self.written.total()
            self.write(2_000)
            eventually(lambda b=before: self._has_counted(b), DEADLINE_S, "the first new counts")
            if kill != "broker":
                self.application.kill()
            if kill != "application":
                self.restart_broker()
            if kill != "broker":
                self.start()
            self.write(500)
            self.expect_counts()

    def _has_counted(self, before: int) -> bool:
        """More than the first ``before`` words?"""
        return sum(map(len, self.counts().values())) > before


def committed(servers: str, topic: str) -> Iterator[tuple[str, str]]:
    """Keys and values of a topic's committed records, as text."""
    settings = {
        "bootstrap.servers": servers,
        "group.id": "unused",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    left = PARTITIONS
    while left:
        message = consumer.poll(20)
        assert message is not None, f"{topic} cannot be read to its end"
        error = message.error()
        if error is None:
            yield message.key().decode(), message.value().decode()
        else:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
            left -= 1
    consumer.close()
