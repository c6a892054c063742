"""Quix Streams, a stream library in Python on librdkafka, on klog: exactly once, through kills."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kafka.killed_programs import Program
from tests.support.kafka.word_count import World
from tests.support.package_environment import python_with

pytestmark = [pytest.mark.peers, pytest.mark.timeout(400)]

PROGRAM = Path(__file__).parents[1] / "support" / "kafka" / "quix_word_count.py"
QUIX = "quixstreams==3.28.1"


def launch(servers: str, state: Path, output: Path) -> Program:
    # klog's own environment must not be visible in the child process.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(python_with(QUIX)), "-W", "ignore", str(PROGRAM), servers, str(state)]
    return Program(command, output, environment)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(tmp_path, launch)
    try:
        yield found
    finally:
        found.kill_processes()


def test_words_are_counted_once_whatever_is_killed_or_lost(world: World) -> None:
    world.write(500)
    world.expect_counts()
    world.expect_counts_after_kills()
    world.application.kill()
    shutil.rmtree(world.state)
    world.start()
    world.write(200)
    world.expect_counts()
