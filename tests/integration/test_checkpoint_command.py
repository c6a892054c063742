"""`python -m pyspark_klog checkpoint` on checkpoints of files, with a running broker."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_klog.__main__ import main
from pyspark_klog.client.admin.records_deletion import delete_records
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.client.producer.producer import Producer
from pyspark_klog.ids import TopicPartition
from tests.support.broker_thread import BrokerThread
from tests.support.client.cases import batch, client_of, new_topic
from tests.support.repo.documents import ROOT
from tests.support.spark.checkpoints import offsets_of, write_peers_checkpoint

FIRST, END = 2, 10

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path_factory.mktemp("checkpoint") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def topic(broker: BrokerThread) -> str:
    """Offsets 2 to 10 are there in partition 0; partition 1 is empty."""
    name = new_topic(broker.bootstrap_servers, 2)
    _fill(broker, name)
    return name


def _fill(broker: BrokerThread, topic: str) -> None:
    with client_of(broker.bootstrap_servers) as client:
        producer = Producer(client)
        producer.add(TopicPartition(topic, 0), *batch([b"k"] * END))
        producer.flush()
        delete_records(client, {TopicPartition(topic, 0): FIRST})


@pytest.fixture
def run(broker: BrokerThread, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command on the checkpoint in ``tmp_path``: the exit code, stdout and stderr."""

    def run_command(name: str, *arguments: str, asks: bool = True) -> tuple[int, str, str]:
        servers = [f"--bootstrap-servers={broker.bootstrap_servers}"] if asks else []
        code = main(["checkpoint", name, str(tmp_path), *servers, *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run_command


def _write(folder: Path, topic: str, offsets: dict[str, int], *more: dict[str, int]) -> None:
    """A checkpoint whose batch 0 is committed; with ``more`` a batch 1 is planned."""
    ends = [{topic: each} for each in (offsets, *more)]
    write_peers_checkpoint(folder, {topic: {"0": 0}}, ends, committed=1)


def test_show_prints_what_was_read_and_what_is_there(
    run: Command, topic: str, tmp_path: Path
) -> None:
    _write(tmp_path, topic, {"0": 5, "1": 0}, {"0": 7, "1": 0})
    code, out, _ = run("show")
    assert code == 0
    lines = out.splitlines()
    assert lines[1].startswith("batch      0, committed; it was planned at 2023-11-14 22:13:20")
    assert lines[2] == "batch      1, not committed: the query runs it again"
    assert lines[3:] == [
        f"source 0   {topic}-0 read up to 5, planned up to 7; in the log, 2 to 10",
        f"source 0   {topic}-1 read up to 0, planned up to 0; in the log, 0 to 0",
    ]


def test_show_prints_json_without_brokers(run: Command, tmp_path: Path) -> None:
    _write(tmp_path, "gone", {"0": 5})
    code, out, _ = run("show", "--json", asks=False)
    shown: dict[str, Any] = json.loads(out)
    assert code == 0
    assert shown["query_id"] == json.loads((tmp_path / "metadata").read_text())["id"]
    assert (shown["committed_batch"], shown["planned_batch"], shown["operators"]) == (0, None, [])
    row = {"source": "0", "topic": "gone", "partition": 0, "offset": 5, "planned_end": None}
    assert shown["sources"] == [{**row, "first": None, "end": None, "place": None}]


@pytest.mark.parametrize(
    ("offset", "place", "remedy"),
    [
        (1, "deleted", "its records were deleted by retention or DeleteRecords"),
        (11, "beyond the end", "the topic was deleted and created again, or has lost records"),
    ],
)
def test_check_fails_for_offsets_that_do_not_exist(
    run: Command, topic: str, tmp_path: Path, offset: int, place: str, remedy: str
) -> None:
    _write(tmp_path, topic, {"0": offset, "1": 0})
    code, out, _ = run("check")
    assert code == 1
    failed = [line for line in out.splitlines() if line.startswith("FAIL ")]
    assert [remedy in line for line in failed] == [True]
    assert "`checkpoint move --to-earliest`" in failed[0]
    assert json.loads(run("show", "--json")[1])["sources"][0]["place"] == place
    verdicts = [each["verdict"] for each in json.loads(run("check", "--json")[1])]
    assert verdicts == ["ok", "FAIL", "ok"]


def test_check_of_a_topic_that_does_not_exist_fails(run: Command, tmp_path: Path) -> None:
    _write(tmp_path, "gone", {"0": 5})
    code, out, _ = run("check")
    assert code == 1
    assert "gone-0 is read up to offset 5; the partition does not exist" in out


def test_check_passes_for_offsets_that_exist(run: Command, topic: str, tmp_path: Path) -> None:
    _write(tmp_path, topic, {"0": 5, "1": 0})
    assert run("check")[0] == 0
    assert run("check", asks=False)[0] == 0


def test_a_move_changes_nothing_without_execute(run: Command, topic: str, tmp_path: Path) -> None:
    _write(tmp_path, topic, {"0": 5, "1": 0})
    code, out, err = run("move", "--to-latest")
    assert (code, out) == (0, f"source 0: {topic}-0: 5 -> 10; its log has 2 to 10\n")
    assert "nothing was changed; stop the query" in err
    assert offsets_of(tmp_path, 0) == {topic: {"0": 5, "1": 0}}
    assert not (tmp_path / "_klog_backups").exists()


def test_a_move_can_be_moved_back_as_it_says(run: Command, topic: str, tmp_path: Path) -> None:
    _write(tmp_path, topic, {"0": 5, "1": 0})
    before = (tmp_path / "offsets" / "0").read_text()
    code, out, err = run("move", "--to-earliest", "--execute", "--json")
    moved = json.loads(out)
    assert code == 0
    row = {"source": "0", "topic": topic, "partition": 0, "offset": 5, "new_offset": FIRST}
    assert (moved["executed"], moved["moves"], moved["refusals"]) == (True, [row], [])
    assert offsets_of(tmp_path, 0) == {topic: {"0": FIRST, "1": 0}}
    assert (Path(moved["backup"]) / "offsets" / "0").read_text() == before
    back = err.split("to move back: --to-offsets '")[1].split("'")[0]
    assert run("move", "--to-offsets", back, "--execute")[0] == 0
    assert (tmp_path / "offsets" / "0").read_text() == before


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        (["--to-datetime=2100-01-01T00:00:00"], END),
        (["--by-duration=P30000D"], FIRST),
        (["--to-offsets", '{"TOPIC":{"0":-1}}'], END),
        (["--to-offsets", '{"TOPIC":"earliest"}'], FIRST),
        (["--to-offsets", '{"TOPIC":{"0":7}}'], 7),
    ],
)
def test_the_targets_of_a_move(
    run: Command, topic: str, tmp_path: Path, target: list[str], offset: int
) -> None:
    _write(tmp_path, topic, {"0": 5, "1": 0})
    words = [word.replace("TOPIC", topic) for word in target]
    moved = json.loads(run("move", *words, "--json")[1])["moves"]
    assert [(move["partition"], move["new_offset"]) for move in moved] == [(0, offset)]


def test_a_move_to_where_the_query_is_changes_nothing(
    run: Command, topic: str, tmp_path: Path
) -> None:
    _write(tmp_path, topic, {"0": END, "1": 0})
    code, out, err = run("move", "--to-latest", "--execute")
    assert (code, out) == (0, "")
    assert "nothing to move" in err
    assert not (tmp_path / "_klog_backups").exists()


def test_a_refused_move_changes_nothing(run: Command, topic: str, tmp_path: Path) -> None:
    _write(tmp_path, topic, {"0": 5, "1": 0}, {"0": 7, "1": 0})
    code, out, err = run("move", "--to-latest", "--execute", "--json")
    assert code == 1
    assert "refused: batch 1 is logged and not committed" in err
    assert json.loads(out)["executed"] is False
    assert offsets_of(tmp_path, 0) == {topic: {"0": 5, "1": 0}}
    code, _, err = run("move", "--to-latest", "--empty-planned-batch")
    assert code == 0
    assert "batch 1, which was not committed, runs again without records" in err


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--to-latest", "--execute", "--dry-run"], 2, "--execute and --dry-run"),
        (["--to-latest", "--topic=a:x"], 2, "--topic a:x: expected TOPIC, or TOPIC:0,1"),
        (["--to-latest", "--topic=a", "--topic=a:1"], 2, "--topic names a twice"),
        (["--to-offsets={}"], 2, "--to-offsets names no partition; expected JSON like"),
        (["--to-offsets", '{"a":{"0":1}}', "--topic=a"], 2, "expected no --topic with it"),
        (["--to-datetime=soon"], 2, "--to-datetime soon: expected a time"),
        (["--to-latest", "--topic=other"], 1, "the checkpoint has no offsets of other"),
        (["--to-offsets", '{"TOPIC":{"0":11}}'], 1, "expected 2 (its first offset) to 10"),
    ],
)
def test_wrong_arguments_are_named(
    run: Command, topic: str, tmp_path: Path, arguments: list[str], code: int, text: str
) -> None:
    _write(tmp_path, topic, {"0": 5, "1": 0})
    words = [word.replace("TOPIC", topic) for word in arguments]
    found, _, err = run("move", *words)
    assert (found, text in err) == (code, True), err


def test_the_example_of_the_page_prints_what_the_page_shows(
    broker: BrokerThread,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (ROOT / "docs" / "taking-over-a-checkpoint.md").read_text(encoding="utf-8")
    example = page.split("## Show and move a query's offsets")[1].split("```")[1]
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("orders", 1, 1, {"retention.ms": "-1"})])
    _fill(broker, "orders")
    _write(tmp_path / "checkpoint", "orders", {"0": 5})
    query_id = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    monkeypatch.chdir(tmp_path)
    for part in example.strip().split("$ python -m pyspark_klog ")[1:]:
        words, *expected = part.replace("localhost:9092", broker.bootstrap_servers).splitlines()
        assert main(words.split()) == 0
        captured = capsys.readouterr()
        printed = (captured.out + captured.err).splitlines()
        shown = [f"query      {query_id}" if "query  " in line else line for line in expected]
        assert printed == shown
