"""`klog dump-log` against the output of Kafka's own tool for the same files."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from klog_broker.cli.commands import command

FOLDER = Path(__file__).parent / "dump_log"
NAMES = sorted(path.name for path in FOLDER.iterdir())
# Files that Kafka's tool does not know.
OTHERS = ("leader-epoch-checkpoint", "partition.metadata")


@pytest.mark.parametrize("name", NAMES)
def test_every_line_is_that_of_kafkas_tool(name: str) -> None:
    files = [
        str(path)
        for path in sorted((FOLDER / name).iterdir())
        if path.suffix not in (".txt", ".metadata") and path.name not in OTHERS
    ]
    arguments = ["dump-log", "--print-data-log", "--files", ",".join(files)]
    result = CliRunner().invoke(command, arguments)
    expected = (FOLDER / name / "kafka-dump-log.txt").read_text()
    assert result.output.replace(str(FOLDER / name), "FOLDER") == expected
    assert result.exit_code == 0


@pytest.mark.parametrize("name", ["plain-0", "tx-0", "__consumer_offsets-0"])
def test_a_folder_is_all_of_its_files(name: str) -> None:
    result = CliRunner().invoke(command, ["dump-log", str(FOLDER / name)])
    dumped = [
        Path(line.removeprefix("Dumping ")).name
        for line in result.output.splitlines()
        if line.startswith("Dumping")
    ]
    there = {path.name for path in (FOLDER / name).iterdir()} - {"kafka-dump-log.txt"}
    assert (dumped, result.exit_code) == (sorted(there), 0)
    assert "leaderEpoch: 0 startOffset: 0\n" in result.output
    assert "version: 0 topicId: " in result.output


def test_machines_get_an_object_a_line() -> None:
    result = CliRunner().invoke(
        command, ["dump-log", "--json", str(FOLDER / "__transaction_state-0")]
    )
    rows = [json.loads(line) for line in result.output.splitlines()]
    assert {row["kind"] for row in rows} >= {"file", "start", "batch", "record", "timeindex"}
    last = [row for row in rows if row["kind"] == "record"][-1]
    assert last["key"] == {"type": "0", "data": {"transactionalId": "tid-2"}}
    assert last["value"]["data"]["transactionStatus"] == 1
    (batch,) = (
        row for row in rows if row["kind"] == "batch" and row["baseOffset"] == last["offset"]
    )
    assert batch["isvalid"] is True
    assert batch["deleteHorizonMs"] is None


def test_machines_get_headers_and_bytes() -> None:
    arguments = ["dump-log", "--json", "--print-data-log", str(FOLDER / "plain-0")]
    rows = [json.loads(line) for line in CliRunner().invoke(command, arguments).output.splitlines()]
    first = next(row for row in rows if row["kind"] == "record")
    assert first["headers"] == [{"key": "trace", "value": "0"}, {"key": "empty", "value": None}]
    assert (first["key"], first["value"], first["valueSize"]) == ("schlüssel-0", None, -1)
