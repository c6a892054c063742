"""The commands of klog lake, as processes, and the commands of docs/lake.md."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from klog_broker.cli.commands import command
from pyspark_klog import testing
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.lake_tables.data_files import new_file_name
from tests.integration.lake.conftest import TOPIC
from tests.support.eventually import eventually
from tests.support.lake import DELTA, ICEBERG, Lake, produce, table_rows, topic_rows
from tests.support.repo.documents import ROOT

KLOG = str(Path(sys.executable).with_name("klog"))
_DEADLINE_S = 60
_OLD_S = 1_000_000_000


def options(lake: Lake, kind: str, servers: str | None = None) -> list[str]:
    config = lake.folder / "catalog.properties"
    values = lake.catalog(kind)
    config.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    found = ["--topic", TOPIC, "--to", lake.place(kind), "--catalog-config", str(config)]
    return found if servers is None else [*found, "--bootstrap-server", servers]


def lake_command(name: str, *arguments: str) -> Result:
    """Run a command of `klog lake` in this process."""
    return CliRunner().invoke(command, ["lake", name, *arguments])


def test_once_copies_what_is_committed(lake: Lake, kind: str, servers: str) -> None:
    produce(servers, TOPIC, ["a", "b", "c"])
    arguments = [KLOG, "lake", "run", "--once", *options(lake, kind, servers)]
    ended = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert f"{lake.address(kind, TOPIC)}: 3 records in 2 files, " in ended.stdout
    assert table_rows(lake.table(kind, TOPIC)) == topic_rows(servers, TOPIC)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_copy_and_metrics_show_it(
    lake: Lake, servers: str, number: signal.Signals
) -> None:
    produce(servers, TOPIC, ["a", "b", "c"])
    arguments = [KLOG, "lake", "run", "--metrics-port", "0", "--roll-ms", "100"]
    with subprocess.Popen(
        [*arguments, *options(lake, DELTA, servers)], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/metrics", line)
        assert address is not None, line

        def has_copied() -> bool:
            with urllib.request.urlopen(address[0]) as response:
                text = response.read().decode()
            return (
                f'klog_lake_records_total{{topic="{TOPIC}"}} 3\n' in text
                and f'klog_lake_border_offset{{topic="{TOPIC}",partition="0"}} 2\n' in text
                and f'klog_lake_lag_offsets{{topic="{TOPIC}",partition="1"}} 0\n' in text
            )

        eventually(has_copied, _DEADLINE_S, "the records are copied")
        process.send_signal(number)
        assert process.wait(_DEADLINE_S) == 0
    assert table_rows(lake.table(DELTA, TOPIC)) == topic_rows(servers, TOPIC)


def test_the_copy_goes_on_after_a_time_without_brokers(
    lake: Lake, broker: testing.Broker, servers: str
) -> None:
    log = lake.folder / "log"
    arguments = [KLOG, "lake", "run", "--roll-ms", "100", "--timeout", "1000"]
    with (
        log.open("wb") as output,
        subprocess.Popen([*arguments, *options(lake, DELTA, servers)], stderr=output) as process,
    ):
        produce(servers, TOPIC, ["a"])
        eventually(lambda: b"committed 1 records" in log.read_bytes(), _DEADLINE_S, "a is copied")
        broker.pause()
        eventually(lambda: b"trying again in" in log.read_bytes(), _DEADLINE_S, "it has failed")
        broker.resume()
        produce(servers, TOPIC, ["b"])
        eventually(lambda: log.read_bytes().count(b"committed 1 records") == 2, 60, "b is copied")
        process.terminate()
        assert process.wait(_DEADLINE_S) == 0
    assert table_rows(lake.table(DELTA, TOPIC)) == topic_rows(servers, TOPIC)


def test_status_shows_how_far_the_table_is_behind(lake: Lake, kind: str, servers: str) -> None:
    missing = lake_command("status", *options(lake, kind, servers))
    assert missing.exit_code == 1
    assert "does not exist: klog lake run makes it" in missing.output
    assert lake.table(kind, TOPIC).load() is None
    produce(servers, TOPIC, ["a", "b", "c"])
    assert lake_command("run", "--once", *options(lake, kind, servers)).exit_code == 0
    produce(servers, TOPIC, ["d", "e", "f"])
    [found] = json.loads(lake_command("status", "--json", *options(lake, kind, servers)).output)
    assert found["records"] == 3
    assert (found["files"], found["orphans"]) == (2, 0)
    assert found["bytes"] > 0 and found["age_in_seconds"] >= 0
    behind = [(row["border"], row["end"], row["records_behind"]) for row in found["partitions"]]
    assert behind == [(2, 4, 2), (1, 2, 1)]
    assert all(row["bytes_behind"] > 0 for row in found["partitions"])
    assert "RECORDS BEHIND" in lake_command("status", *options(lake, kind, servers)).output


def test_sweep_deletes_old_files_without_a_version(lake: Lake, kind: str, servers: str) -> None:
    produce(servers, TOPIC, ["a", "b"])
    assert lake_command("run", "--once", *options(lake, kind, servers)).exit_code == 0
    table = lake.table(kind, TOPIC)
    table.load()
    paths = []
    for first in (7, 8):
        name = new_file_name(0, first)
        table.new_file(name)[1].close()
        paths += lake.folder.rglob(name)
    old, young = paths
    os.utime(old, (_OLD_S, _OLD_S))
    dry = lake_command("sweep", "--dry-run", *options(lake, kind))
    assert dry.output.startswith("would delete ") and old.name in dry.output
    assert old.exists()
    assert lake_command("sweep", *options(lake, kind)).output.count("deleted") == 1
    assert (old.exists(), young.exists()) == (False, True)
    assert table_rows(lake.table(kind, TOPIC)) == topic_rows(servers, TOPIC)


def test_restart_takes_a_table_on_with_the_new_topic(lake: Lake, kind: str, servers: str) -> None:
    produce(servers, TOPIC, ["a", "b"])
    arguments = options(lake, kind, servers)
    assert lake_command("run", "--once", *arguments).exit_code == 0
    refused = lake_command("restart", *arguments)
    assert refused.exit_code == 1
    assert "klog lake run goes on with it" in refused.output
    with Admin(servers) as admin:
        admin.delete_topics([TOPIC])
        admin.create_topics([NewTopic(TOPIC, num_partitions=2)])
    produce(servers, TOPIC, ["c"])
    assert "run klog lake restart once" in lake_command("run", "--once", *arguments).output
    restarted = lake_command("restart", *arguments)
    assert restarted.exit_code == 0, restarted.output
    assert 'from {"0": 0, "1": 0} on' in restarted.output
    assert lake_command("run", "--once", *arguments).exit_code == 0
    assert sorted(value or b"" for _, _, value in table_rows(lake.table(kind, TOPIC))) == [
        b"a",
        b"b",
        b"c",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "lake:x"], "expected iceberg:CATALOG.NAMESPACE or delta:PATH"),
        (["--to", "iceberg:unknown.klog"], "Name its type, uri and warehouse"),
        (["--to", "delta:/proc/lake"], "could not be created"),
        (["--topic", "a.b,a-b"], "would both have the table a_b"),
        (["--topic", "missing"], "topic missing does not exist"),
        (["--from", "yesterday"], "--from yesterday: expected earliest, latest"),
        (["--from", '{"Orders.eu-1": {"0": 1}}'], "--from has no offset for Orders.eu-1-1"),
        (["--from", '{"Orders.eu-1": 1}'], "expected offsets from 0 on by topic and partition"),
        (["--compression", "zip"], "expected one of zstd, snappy"),
        (["--compression", "zstd:99"], "expected a level from"),
        (["--roll-bytes", "12X"], "12X is no size"),
    ],
)
def test_each_mistake_has_its_sentence(
    lake: Lake, servers: str, arguments: list[str], message: str
) -> None:
    given = ["--once", "--bootstrap-server", servers, "--topic", TOPIC, "--to", lake.place(DELTA)]
    ended = lake_command("run", *given, *arguments)
    assert ended.exit_code in (1, 2)
    assert message in " ".join(ended.output.split())


def test_a_client_that_reads_uncommitted_records_is_refused(lake: Lake, servers: str) -> None:
    config = lake.folder / "client.properties"
    config.write_text("isolation.level=read_uncommitted\n")
    given = ["--command-config", str(config), *options(lake, DELTA, servers)]
    ended = lake_command("run", "--once", *given)
    assert ended.exit_code == 2
    assert "klog lake copies committed records only" in ended.output


def test_given_offsets_and_compression_are_used(lake: Lake, servers: str) -> None:
    produce(servers, TOPIC, [str(number) for number in range(10)])
    start = json.dumps({TOPIC: {"0": 3, "1": 5}})
    given = ["--once", "--from", start, "--compression", "snappy", "--roll-bytes", "1kB"]
    assert lake_command("run", *given, *options(lake, ICEBERG, servers)).exit_code == 0
    found = {(number, at) for number, at, _ in table_rows(lake.table(ICEBERG, TOPIC))}
    assert found == {(0, 3), (0, 4)}


def test_the_commands_of_the_page(
    lake: Lake, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lake.folder)
    page = (ROOT / "docs" / "lake.md").read_text(encoding="utf-8")
    page = page.replace("broker:9092", servers).replace("/lake", f"{lake.folder}/lake")
    [config] = re.findall(r"^# catalog\.properties\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    Path("catalog.properties").write_text(config)
    Path("lake").mkdir()
    lines = re.findall(r"^klog (.*)$", page, re.MULTILINE)
    assert len(lines) == 2
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("orders", num_partitions=2)])
        produce(servers, "orders", ["a", "b"])
        for line in lines:
            ended = CliRunner().invoke(command, shlex.split(line))
            assert ended.exit_code == 0, ended.output
            assert "2 records in 2 files" in ended.output
        admin.delete_topics(["orders"])
