"""Kafka Streams on klog: a word count with `exactly_once_v2`, whose processes are killed.

Every change of a count is a record of the topic "counts": of each word they have to be 1, 2, 3 and
so on to the number that Python counts, each once, whatever was killed meanwhile.
"""

import random
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from pyspark_klog.client.admin import Admin, NewTopic
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.java_program import JavaProgram
from tests.support.peers import NEWEST_KAFKA, run_tool

pytestmark = [pytest.mark.peers, pytest.mark.timeout(170)]

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
REPARTITION, CHANGELOG = "application-words-repartition", "application-words-changelog"
RESETTER = "org.apache.kafka.tools.StreamsResetter"
DEADLINE_S = 60.0


class World:
    """A broker and the application, and what has been written for it."""

    def __init__(self, folder: Path) -> None:
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

    def start(self) -> JavaProgram:
        arguments = (self.servers, "application", str(self.state))
        self.application = JavaProgram("WordCount.java", arguments, self._output)
        return self.application

    def restart_broker(self) -> None:
        port = self.broker.address[1]
        self.broker.kill()
        self.broker = BrokerProcess(self.data, SETTINGS, port)

    def write(self, lines: int) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.servers, "linger.ms": 20})
        for number in range(lines):
            words = self._chance.choices(WORDS, k=WORDS_A_LINE)
            self.written.update(words)
            producer.produce("lines", " ".join(words), partition=number % PARTITIONS)
        assert producer.flush(30) == 0

    def counts(self) -> dict[str, list[int]]:
        """What was committed to "counts", by word, in the order of the topic."""
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
        assert self.counts() == {
            word: list(range(1, count + 1)) for word, count in self.written.items()
        }
        assert [line for line in self.application.lines() if line.startswith("failed")] == []

    def restored(self) -> list[int]:
        """How many records were read from changelogs, each time that one was read."""
        lines = self.application.lines()
        found = [re.fullmatch(rf"restored (\d+) of {CHANGELOG}-\d", line) for line in lines]
        return [int(each[1]) for each in found if each]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(tmp_path)
    try:
        yield found
    finally:
        found.application.kill()
        found.broker.kill()


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


def marks(servers: str, topic: str) -> list[tuple[int, int]]:
    """Log start and end of each partition."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "unused"})
    try:
        return [
            consumer.get_watermark_offsets(TopicPartition(topic, number), 20, cached=False)
            for number in range(PARTITIONS)
        ]
    finally:
        consumer.close()


def has_counted_some_of(world: World, before: int) -> bool:
    """Is it in the middle of what was written behind the first ``before`` words?"""
    return sum(map(len, world.counts().values())) > before


def test_words_are_counted_once_whatever_is_killed(world: World) -> None:
    world.write(500)
    world.expect_counts()
    for kill in ("application", "broker", "both"):
        before = world.written.total()
        world.write(4_000)
        eventually(lambda b=before: has_counted_some_of(world, b), DEADLINE_S)
        if kill != "broker":
            world.application.kill()
        if kill != "application":
            world.restart_broker()
        if kill != "broker":
            world.start()
        world.write(500)
        world.expect_counts()


def test_what_was_read_of_the_repartition_topic_is_deleted(world: World) -> None:
    """By DeleteRecords, `repartition.purge.interval.ms` after it was committed."""
    world.write(2_000)
    world.expect_counts()
    world.write(2_000)
    world.expect_counts()

    def is_trimmed() -> bool:
        world.write(10)  # a commit looks whether it is time
        return all(start > end // 2 > 0 for start, end in marks(world.servers, REPARTITION))

    eventually(is_trimmed, DEADLINE_S, "the repartition topic's start moving")
    world.expect_counts()


def test_a_store_is_restored_from_a_cleaned_changelog(world: World) -> None:
    for _ in range(4):
        world.write(2_000)
        world.expect_counts()
    changes = world.written.total()

    def is_cleaned() -> bool:
        return all(f"/{CHANGELOG}-{number} cleaned_to=" in world.broker.log() for number in (0, 1))

    eventually(is_cleaned, DEADLINE_S, "the changelogs being cleaned")
    world.application.kill()
    world.restart_broker()
    shutil.rmtree(world.state)
    read_before = len(world.restored())
    world.start()
    world.write(500)
    world.expect_counts()
    read = world.restored()[read_before:]
    assert len(read) == PARTITIONS
    # All words, and by far not all of their counts.
    assert len(WORDS) <= sum(read) < changes // 2


def test_an_application_is_reset_and_counts_again(world: World) -> None:
    """Kafka's tool deletes the topics of the application and sets its positions back."""
    world.write(500)
    world.expect_counts()
    world.application.kill()
    arguments = ["--bootstrap-server", world.servers, "--application-id", "application"]
    # Without --force the tool refuses until the session of the process that was killed is over.
    result = run_tool(NEWEST_KAFKA, RESETTER, [*arguments, "--input-topics", "lines", "--force"])
    assert result.returncode == 0, result.stdout + result.stderr
    with Admin(world.servers) as admin:
        assert sorted(admin.list_topics()) == ["counts", "lines"]
    shutil.rmtree(world.state)
    world.start()

    def is_counted_twice() -> bool:
        return sum(map(len, world.counts().values())) >= 2 * world.written.total()

    eventually(is_counted_twice, DEADLINE_S, "all that was written being counted again")
    assert world.counts() == {
        word: 2 * list(range(1, count + 1)) for word, count in world.written.items()
    }
