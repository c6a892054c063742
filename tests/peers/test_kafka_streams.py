"""Kafka Streams on klog: a word count with `exactly_once_v2`, whose processes are killed."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from pyspark_klog.client.admin.topics import Admin
from tests.support.eventually import eventually
from tests.support.kafka.killed_programs import JavaProgram
from tests.support.kafka.word_count import DEADLINE_S, PARTITIONS, WORDS, World
from tests.support.peers import NEWEST_KAFKA, run_tool

pytestmark = [pytest.mark.peers, pytest.mark.timeout(170)]

REPARTITION, CHANGELOG = "application-words-repartition", "application-words-changelog"
RESETTER = "org.apache.kafka.tools.StreamsResetter"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(tmp_path, launch)
    try:
        yield found
        assert [line for line in found.application.lines() if line.startswith("failed")] == []
    finally:
        found.kill_processes()


def launch(servers: str, state: Path, output: Path) -> JavaProgram:
    return JavaProgram("WordCount.java", (servers, "application", str(state)), output)


def restored(world: World) -> list[int]:
    """How many records were read from changelogs, each time that one was read."""
    lines = world.application.lines()
    found = [re.fullmatch(rf"restored (\d+) of {CHANGELOG}-\d", line) for line in lines]
    return [int(each[1]) for each in found if each]


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


def test_words_are_counted_once_whatever_is_killed(world: World) -> None:
    world.write(500)
    world.expect_counts()
    world.expect_counts_after_kills()


def test_what_was_read_of_the_repartition_topic_is_deleted(world: World) -> None:
    """By DeleteRecords, `repartition.purge.interval.ms` after the commit of their offsets."""
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
    read_before = len(restored(world))
    world.start()
    world.write(500)
    world.expect_counts()
    read = restored(world)[read_before:]
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
    world.expect_each_once(times=2)
