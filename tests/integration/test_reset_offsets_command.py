"""`klog groups reset-offsets` on a running broker: every strategy, its edges and its refusals."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from klog_broker.cli.commands import command
from pyspark_klog.client.admin.groups import CommittedOffset, commit_offsets, committed_offsets
from pyspark_klog.client.admin.records_deletion import delete_records
from pyspark_klog.client.admin.reset_times import time_of_datetime, time_of_duration
from pyspark_klog.client.admin.sink_progress import SinkId
from pyspark_klog.client.clock import epoch_ms
from pyspark_klog.client.errors import SettingError
from pyspark_klog.client.producer.producer import Producer
from pyspark_klog.ids import TopicPartition
from tests.support.broker_thread import BrokerThread
from tests.support.client.cases import batch, client_of, new_topic

FIRST, END = 2, 10


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    settings = {"offsets.topic.num.partitions": 2}
    with BrokerThread(tmp_path_factory.mktemp("reset") / "data", settings) as running:
        yield running


@pytest.fixture(scope="module")
def topic(broker: BrokerThread) -> str:
    """Offsets 2 to 10 are there in partition 0; partitions 1 and 2 are empty."""
    name = new_topic(broker.bootstrap_servers, 3)
    with client_of(broker.bootstrap_servers) as client:
        producer = Producer(client)
        producer.add(TopicPartition(name, 0), *batch([b"k"] * END))
        producer.flush()
        delete_records(client, {TopicPartition(name, 0): FIRST})
    return name


@pytest.fixture
def group(broker: BrokerThread, topic: str, request: pytest.FixtureRequest) -> str:
    """A group that has committed 5 in partition 0, and 0 in partition 1."""
    name = str(request.node.name).replace(" ", "")
    commit(broker, name, {TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 0})
    return name


def commit(broker: BrokerThread, group: str, offsets: dict[TopicPartition, int]) -> None:
    with client_of(broker.bootstrap_servers) as client:
        commit_offsets(client, group, {each: CommittedOffset(at) for each, at in offsets.items()})


def committed(broker: BrokerThread, group: str) -> dict[int, int]:
    """Return the group's committed offsets in the one topic, by partition."""
    with client_of(broker.bootstrap_servers) as client:
        found = committed_offsets(client, group)
    return {partition.partition: at.offset for partition, at in found.items()}


def reset(broker: BrokerThread, *arguments: str) -> Result:
    words = ["groups", "reset-offsets", *arguments]
    servers = ["--bootstrap-server", broker.bootstrap_servers]
    return CliRunner().invoke(command, [*words, *servers], prog_name="klog")


@pytest.mark.parametrize(
    "way, expected, warned",
    [
        (["--to-earliest"], FIRST, None),
        (["--to-latest"], END, None),
        (["--to-current"], 5, None),
        (["--to-offset", "7"], 7, None),
        (["--to-offset", "99"], END, "offset 99 is outside of the log, 2 to 10; using 10"),
        (["--to-offset", "0"], FIRST, "offset 0 is outside of the log, 2 to 10; using 2"),
        (["--shift-by", "2"], 7, None),
        (["--shift-by", "-1"], 4, None),
        (["--shift-by", "-9"], FIRST, "offset -4 is outside of the log, 2 to 10; using 2"),
        (["--to-datetime", "1970-01-01T00:00:00.000"], FIRST, None),
        (["--to-datetime", "2999-01-01T00:00:00.000"], END, "no record is as new as that"),
        (["--by-duration", "PT0S"], END, "no record is as new as that"),
        (["--by-duration", "P40000D"], FIRST, None),
    ],
    ids=str,
)
def test_every_strategy(
    broker: BrokerThread,
    group: str,
    topic: str,
    way: list[str],
    expected: int,
    warned: str | None,
) -> None:
    planned = reset(broker, group, "--topic", f"{topic}:0", *way)
    assert planned.exit_code == 0
    assert [line.split() for line in planned.stdout.splitlines()] == [
        ["GROUP", "TOPIC", "PARTITION", "OFFSET", "NEW", "OFFSET"],
        [group, topic, "0", "5", str(expected)],
    ]
    assert (warned or "") in planned.stderr
    assert ("outside" in planned.stderr or "as new as" in planned.stderr) == bool(warned)
    assert planned.stderr.endswith(
        "klog: nothing was changed; add --execute to change the offsets\n"
    )
    assert committed(broker, group)[0] == 5
    done = reset(broker, group, "--topic", f"{topic}:0", *way, "--execute", "--json")
    assert json.loads(done.stdout) == {
        "executed": True,
        "offsets": [
            {
                "group": group,
                "topic": topic,
                "partition": 0,
                "offset": 5,
                "new_offset": expected,
            }
        ],
    }
    assert committed(broker, group) == {0: expected, 1: 0}


def test_where_there_is_no_offset_yet(broker: BrokerThread, group: str, topic: str) -> None:
    result = reset(broker, group, "--topic", topic, "--shift-by", "1", "--execute")
    expected = f"klog: --shift-by needs committed offsets, but there are none in {topic}-2\n"
    assert (result.exit_code, result.stderr) == (1, expected)
    result = reset(broker, group, "--topic", topic, "--to-current", "--execute")
    assert f"klog: {topic}-2: there is no offset yet; using the end, 0\n" in result.stderr
    assert committed(broker, group) == {0: 5, 1: 0, 2: 0}


def test_all_topics_are_those_with_offsets(broker: BrokerThread, group: str) -> None:
    assert reset(broker, group, "--all-topics", "--to-latest", "--execute").exit_code == 0
    assert committed(broker, group) == {0: END, 1: 0}


def test_a_group_begins_with_its_offsets(broker: BrokerThread, topic: str) -> None:
    result = reset(broker, "quite-new", "--topic", f"{topic}:0,1", "--to-earliest", "--execute")
    assert result.exit_code == 0
    assert committed(broker, "quite-new") == {0: FIRST, 1: 0}
    result = reset(broker, "nowhere", "--all-topics", "--to-earliest")
    assert result.exit_code == 1
    assert result.stderr == "klog: group nowhere has no offsets: name topics with --topic\n"


def test_what_was_exported_is_read_again(
    broker: BrokerThread, group: str, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "offsets.csv"
    exported = reset(broker, group, "--all-topics", "--to-current", "--export")
    assert exported.stdout == f"{topic},0,5\n{topic},1,0\n"
    file.write_text(exported.stdout.replace(",5", ",6"))
    assert reset(broker, group, "--from-file", str(file), "--execute").exit_code == 0
    assert committed(broker, group) == {0: 6, 1: 0}
    other = f"{group}-2"
    commit(broker, other, {TopicPartition(topic, 0): 3})
    both = reset(broker, group, other, "--all-topics", "--to-latest", "--export")
    assert both.stdout == f"{group},{topic},0,10\n{group},{topic},1,0\n{other},{topic},0,10\n"
    file.write_text(both.stdout)
    assert reset(broker, other, "--from-file", str(file), "--execute").exit_code == 0
    assert (committed(broker, other), committed(broker, group)) == ({0: END}, {0: 6, 1: 0})


@pytest.mark.parametrize(
    "text, expected",
    [
        ("T,0", "{file}:1: T,0: expected topic,partition,offset"),
        ("T,0,1\nT,x,1", "{file}:2: T,x,1: expected topic,partition,offset"),
        (None, "cannot read {file}: No such file or directory"),
    ],
)
def test_a_file_that_is_wrong(
    broker: BrokerThread, tmp_path: Path, text: str | None, expected: str
) -> None:
    file = tmp_path / "offsets.csv"
    if text is not None:
        file.write_text(text)
    result = reset(broker, "g", "--from-file", str(file))
    assert (result.exit_code, result.stderr) == (2, f"klog: {expected.format(file=file)}\n")


def test_a_partition_of_a_file_that_does_not_exist(
    broker: BrokerThread, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(f"{topic},9,1\n")
    result = reset(broker, "g", "--from-file", str(file))
    assert (result.exit_code, result.stderr) == (1, f"klog: {topic}-9 does not exist\n")
    file.write_text("no-such-topic,0,1\n")
    result = reset(broker, "g", "--from-file", str(file))
    assert (result.exit_code, result.stderr) == (1, "klog: topic no-such-topic does not exist\n")


def test_progress_of_a_sink_is_no_position(broker: BrokerThread, topic: str) -> None:
    sink = SinkId("klog-sink", "0b7e42f4-0000-4000-8000-000000000001", "sink")
    result = reset(broker, sink.task(0), "--topic", topic, "--to-earliest", "--execute")
    assert (result.exit_code, committed(broker, sink.task(0))) == (1, {})
    assert "its offsets are not positions" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--to-earliest"],
        ["--topic", "t"],
        ["--topic", "t", "--all-topics", "--to-earliest"],
        ["--topic", "t", "--to-earliest", "--to-latest"],
        ["--topic", "t", "--from-file", "f"],
        ["--all-topics", "--from-file", "f"],
        ["--topic", "t", "--to-offset", "0", "--to-current"],
        ["--topic", "t", "--to-earliest", "--execute", "--dry-run"],
        ["--topic", "t", "--to-datetime", "yesterday"],
        ["--topic", "t", "--by-duration", "1h"],
        ["--topic", "t", "--shift-by", "much"],
    ],
    ids=" ".join,
)
def test_wrong_usage(broker: BrokerThread, arguments: list[str]) -> None:
    result = reset(broker, "g", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")


def test_times() -> None:
    assert time_of_datetime("1970-01-01T00:00:01.500") == 1500
    assert time_of_datetime("1970-01-01T02:00:00.000+02:00") == 0
    assert time_of_datetime("1970-01-01T00:00:00Z") == 0
    for text, back_ms in (("P1DT1H1M1.5S", 90_061_500), ("-PT1S", -1000)):
        before = epoch_ms()
        assert before <= time_of_duration(text) + back_ms <= epoch_ms()
    for text in ("P", "PT", "", "P1H", "P" + "9" * 20 + "D"):
        with pytest.raises(SettingError, match="--by-duration"):
            time_of_duration(text)
