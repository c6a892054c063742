"""`klog dump-log` and `klog verify` on directories of Apache Kafka, compared with Kafka's tool."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from klog_broker.cli.commands import command
from tests.support.kafka.directories import (
    SMALL_SEGMENTS,
    decoder_option,
    kafkas_dump,
    log_files,
    stopped_directory,
    write_everything,
)
from tests.support.peers import NEWEST_KAFKA, OLDEST_KAFKA, KafkaServer

_BEGINNINGS = ("Dumping ", "Log starting ", "baseOffset: ", "| offset: ", "offset: ", "timestamp: ")
PARTITIONS = ("plain-0", "tx-0", "__consumer_offsets-0", "__transaction_state-0")


def klog(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(command, [str(each) for each in arguments])
    return result.exit_code, result.output


@pytest.fixture(scope="module", params=[OLDEST_KAFKA, NEWEST_KAFKA])
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaServer]:
    """A node that has written one of everything, and runs."""
    with KafkaServer(request.param, properties=SMALL_SEGMENTS) as server:
        write_everything(server.bootstrap_servers)
        yield server


def test_its_directory_is_sound_while_it_runs_and_after_each_end(kafka: KafkaServer) -> None:
    code, output = klog("verify", kafka.log_dir)
    assert code == 0, output
    assert f"a broker runs on the directory (process {kafka.pid})" in output
    ended_by_force: list[tuple[int, str]] = []
    kafka.restart(meanwhile=lambda: ended_by_force.append(klog("verify", kafka.log_dir)))
    ((code, output),) = ended_by_force
    assert code == 0, output
    directory = stopped_directory(kafka)
    code, output = klog("verify", directory)
    assert code == 0, output
    assert "; 0 recoverable, 0 notes" in output
    assert output.startswith("sound: ")
    for name in PARTITIONS:
        _dump_is_equal(kafka.version, directory / name)


def _dump_is_equal(version: str, folder: Path) -> None:
    files = log_files(folder)
    option = decoder_option(folder)
    names = ",".join(map(str, files))
    if version == OLDEST_KAFKA and folder.name.startswith("__transaction_state-"):
        # 3.9.1's tool words these records differently; all lines but the records' are equal.
        expected = kafkas_dump(version, files, "--print-data-log")
        _, output = klog("dump-log", "--files", names)
        assert _without_records(output) == _without_records(expected)
        return
    expected = kafkas_dump(version, files, *option)
    code, output = klog("dump-log", "--print-data-log", "--files", names)
    assert (output, code) == (expected, 0)


def _without_records(output: str) -> list[str]:
    """The lines up to what is in the records, whose bytes Kafka's tool prints as they are, so that
    they may break a line."""
    lines = (line.partition(" key: ")[0] for line in output.split("\n"))
    return [line for line in lines if line.startswith(_BEGINNINGS)]
