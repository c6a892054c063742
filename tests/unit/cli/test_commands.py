"""The `klog` command, its network and its broker replaced by stand-ins."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner, Result

from klog_broker.cli import commands
from klog_broker.cli.broker import command as broker_command
from klog_broker.cli.common import client_options
from klog_broker.cli.groups import groups
from klog_broker.cli.topics import configs
from klog_broker.config import BrokerConfig
from pyspark_klog._version import __version__
from pyspark_klog.client.admin.topics import ConfigEntry, NewTopic
from pyspark_klog.client.cluster.metadata import PartitionInfo, TopicInfo
from pyspark_klog.client.errors import NoBrokerAvailable, TimedOut, TopicMissing
from pyspark_klog.ids import TopicId


def klog(*arguments: str) -> Result:
    return CliRunner().invoke(commands.command, list(arguments), prog_name="klog")


class TestKlog:
    def test_version(self) -> None:
        assert klog("--version").output == f"klog {__version__}\n"

    def test_help_lists_the_commands_without_importing_them(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(name: str) -> ModuleType:
            raise AssertionError(name)

        monkeypatch.setattr(importlib, "import_module", refuse)
        result = klog("--help")
        assert result.exit_code == 0
        for name, entry in commands.COMMANDS.items():
            assert name in result.output
            assert entry.help in result.output

    def test_every_listed_command_exists(self) -> None:
        for name in commands.COMMANDS:
            assert klog(name, "--help").exit_code == 0

    def test_an_unknown_command_is_a_usage_error(self) -> None:
        result = klog("brocker")
        assert result.exit_code == 2
        assert "No such command 'brocker'" in result.stderr


class TestBroker:
    @pytest.fixture
    def started(self, monkeypatch: pytest.MonkeyPatch) -> list[BrokerConfig]:
        """The configurations that the application was run with."""
        configs: list[BrokerConfig] = []

        def run(config: BrokerConfig, **options: bool) -> int:
            assert options == {
                "until_stdin_ends": False,
                "adopt": False,
                "accept_missing": False,
                "faults_descriptor": None,
            }
            configs.append(config)
            return 5

        monkeypatch.setitem(sys.modules, "klog_broker.process", SimpleNamespace(run=run))
        return configs

    def test_the_options_reach_the_broker_and_its_exit_code_the_caller(
        self, started: list[BrokerConfig], tmp_path: Path
    ) -> None:
        file = tmp_path / "b.properties"
        file.write_text("num.partitions=3\n")
        result = klog(
            "broker", "--port", "0", "--data", "d", "--config", str(file), "--set", "broker.id=4"
        )
        assert result.exit_code == 5
        (config,) = started
        assert config.listeners[0].port == 0
        assert config.log_dirs == (Path("d"),)
        assert (config["num.partitions"], config["broker.id"]) == (3, 4)

    def test_the_data_directory_is_klog_data_by_default(self, started: list[BrokerConfig]) -> None:
        klog("broker")
        klog("broker", "--set", "log.dirs=x")
        assert [config.log_dirs for config in started] == [(Path("klog-data"),), (Path("x"),)]

    @pytest.mark.parametrize("name", ["log.dirs", "log.dir"])
    def test_a_data_option_that_overrides_the_file_is_logged(
        self,
        started: list[BrokerConfig],
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
        name: str,
    ) -> None:
        file = tmp_path / "b.properties"
        file.write_text(f"{name}=/disk1\n")
        klog("broker", "--config", str(file), "--data", "/disk1")
        assert caplog.messages == []
        klog("broker", "--config", str(file), "--data", "d")
        assert [config.log_dirs for config in started] == [(Path("/disk1"),), (Path("d"),)]
        assert caplog.messages == [f"--data d overrides {name}=/disk1 ({file}:1)"]

    def test_a_setting_without_effect_is_one_warning_in_the_log(
        self, started: list[BrokerConfig], caplog: pytest.LogCaptureFixture
    ) -> None:
        klog("broker", "--set", "num.io.threads=4")
        assert len(started) == 1
        assert [record.message for record in caplog.records] == [
            "--set: num.io.threads has no effect here. One event loop serves all connections;"
            " queued.max.request.bytes limits the memory of large requests."
        ]

    @pytest.mark.parametrize(
        "arguments, expected",
        [
            (
                ["--set", "nun.partitions=1"],
                "klog: --set: nun.partitions is not a setting that klog"
                " or Kafka knows; did you mean num.partitions?\n",
            ),
            (
                ["--set", "super.users=User:a", "--set", "process.roles=broker"],
                "klog: --set: super.users=User:a is refused: klog has no access control yet and"
                " would let every client do everything; remove the line if all clients that reach"
                " its listeners may do everything\n"
                "klog: --set: process.roles=broker is refused: klog joins no KRaft cluster and"
                " would start a cluster of its own; expected broker,controller, or no such line,"
                " for a standalone broker\n",
            ),
            (
                ["--config", "no-such-file"],
                "klog: cannot read the configuration file no-such-file:"
                " No such file or directory\n",
            ),
        ],
    )
    def test_a_wrong_configuration_is_a_sentence_each_and_exit_code_2(
        self, started: list[BrokerConfig], arguments: list[str], expected: str
    ) -> None:
        for command, first in ((commands.command, ["broker"]), (broker_command, [])):
            result = CliRunner().invoke(command, [*first, *arguments])
            assert (result.exit_code, result.stderr) == (2, expected)
        assert not started

    def test_a_log_level_that_is_none(self, started: list[BrokerConfig]) -> None:
        result = klog("broker", "--log-level", "loud")
        assert (result.exit_code, started) == (2, [])
        assert "'loud' is not one of 'debug', 'info', 'warning', 'error'" in result.stderr

    def test_a_port_that_is_none(self) -> None:
        assert klog("broker", "--port", "65536").exit_code == 2

    def test_print_config_shows_values_and_sources(self, tmp_path: Path) -> None:
        file = tmp_path / "b.properties"
        file.write_text("\nlog.retention.hours=2\nssl.key.password=hush\n")
        result = klog("broker", "--config", str(file), "--print-config", "--port", "7")
        lines = {line.split()[0]: line.split(maxsplit=2)[1:] for line in result.output.splitlines()}
        assert result.exit_code == 0
        assert lines["log.retention.hours"] == ["2", f"{file}:2"]
        assert lines["log.retention.ms"] == ["7200000", f"log.retention.hours, {file}:2"]
        assert lines["listeners"] == ["PLAINTEXT://127.0.0.1:7", "--port"]
        assert lines["num.partitions"] == ["1", "default"]
        assert lines["ssl.key.password"] == ["***", f"{file}:3 (no effect)"]
        assert "hush" not in result.output


ID = TopicId(UUID("00112233-4455-6677-8899-aabbccddeeff"))
PARTITION = PartitionInfo(leader=1, leader_epoch=3, replicas=(1, 2), in_sync=(1,))
FLIGHTS = TopicInfo("flights", ID, partitions={1: PartitionInfo(leader=-1), 0: PARTITION})
OFFSETS = TopicInfo("__consumer_offsets", is_internal=True, partitions={0: PARTITION})


class FakeAdmin:
    """The admin client, with two topics."""

    calls: list[tuple[Any, ...]]

    def __init__(self, *, settings: dict[str, Any]) -> None:
        servers = settings["bootstrap.servers"]
        waits = settings["default.api.timeout.ms"], settings["request.timeout.ms"]
        self.calls.append(("connect", servers, *waits))

    def __enter__(self) -> "FakeAdmin":
        return self

    def __exit__(self, *_: object) -> None:
        self.calls.append(("close",))

    def describe_topics(self, names: list[str] | None = None) -> dict[str, TopicInfo]:
        known = {each.name: each for each in (OFFSETS, FLIGHTS)}
        if names is not None and not set(names) <= set(known):
            raise TopicMissing(f"topic {names[0]} does not exist")
        return known if names is None else {name: known[name] for name in names}

    def deleting_topics(self) -> list[str]:
        return []

    def describe_configs(self, topic: str) -> dict[str, ConfigEntry]:
        mine = ConfigEntry("retention.ms", "5", 1, False, False)
        default = ConfigEntry("flush.ms", "9", 5, False, False)
        return {"retention.ms": mine, "flush.ms": default}

    def create_topics(self, wanted: list[NewTopic], *, validate_only: bool) -> None:
        self.calls.append(("create", wanted, validate_only))

    def create_partitions(self, name: str, total: int) -> None:
        self.calls.append(("grow", name, total))

    def delete_topics(self, names: list[str]) -> None:
        self.calls.append(("delete", *names))


def test_a_command_that_changes_quotas_shows_the_remark_of_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remark = "the broker stores quotas, but does not enforce them yet"
    monkeypatch.setattr(configs, "alter_quotas", lambda *_, **__: (remark,))
    result = klog("configs", "alter", "--user", "ann", "--set", "producer_byte_rate=1")
    assert (result.exit_code, result.stdout) == (0, "altered user ann\n")
    assert result.stderr == f"klog: {remark}\n"


class TestTopics:
    @pytest.fixture(autouse=True)
    def calls(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
        monkeypatch.setattr(FakeAdmin, "calls", [], raising=False)
        monkeypatch.setattr(client_options, "Admin", FakeAdmin)
        return FakeAdmin.calls

    def test_list(self, calls: list[tuple[Any, ...]]) -> None:
        result = klog("topics", "list", "--bootstrap-server", "h:1")
        assert result.output == "TOPIC    PARTITIONS  REPLICAS\nflights           2         2\n"
        assert calls == [("connect", "h:1", 10_000, 5_000), ("close",)]

    @pytest.mark.parametrize(
        "command", [["list"], ["describe"], ["delete", "t"], ["create", "flights"]]
    )
    def test_how_long_brokers_are_waited_for(
        self, command: list[str], calls: list[tuple[Any, ...]]
    ) -> None:
        assert klog("topics", *command, "--timeout", "700").exit_code == 0
        assert calls[0][2] == 700

    def test_list_in_json_with_internal_ones(self) -> None:
        result = klog("topics", "list", "--json", "--internal")
        assert json.loads(result.output) == [
            {
                "name": "__consumer_offsets",
                "topic_id": "A" * 22,
                "partitions": 1,
                "replication_factor": 2,
                "internal": True,
                "deleting": False,
            },
            {
                "name": "flights",
                "topic_id": "ABEiM0RVZneImaq7zN3u_w",
                "partitions": 2,
                "replication_factor": 2,
                "internal": False,
                "deleting": False,
            },
        ]

    def test_describe(self) -> None:
        result = klog("topics", "describe", "flights")
        assert result.output.splitlines() == [
            "topic flights  id ABEiM0RVZneImaq7zN3u_w",
            "  retention.ms=5",
            "PARTITION  LEADER  EPOCH  REPLICAS  IN SYNC",
            "        0       1      3  1,2       1",
            "        1    none     -1",
        ]

    def test_describe_in_json(self) -> None:
        (found,) = json.loads(klog("topics", "describe", "flights", "--json").output)
        assert found["configs"] == {"retention.ms": "5"}
        assert found["partitions"][0] == {
            "partition": 0,
            "leader": 1,
            "leader_epoch": 3,
            "replicas": [1, 2],
            "in_sync": [1],
        }

    def test_describe_all(self) -> None:
        assert klog("topics", "describe").output.count("topic ") == 2

    def test_create(self, calls: list[tuple[Any, ...]]) -> None:
        result = klog(
            "topics", "create", "flights", "--partitions", "2", "--config", "retention.ms=5"
        )
        assert result.output == "created flights: 2 partitions\n"
        assert calls[1] == ("create", [NewTopic("flights", 2, -1, {"retention.ms": "5"})], False)

    def test_create_only_validated(self, calls: list[tuple[Any, ...]]) -> None:
        result = klog("topics", "create", "a", "b", "--validate-only")
        assert result.output == "can be created a\ncan be created b\n"
        assert calls[1:3] == [("create", [NewTopic(name)], True) for name in ("a", "b")]
        in_json = klog("topics", "create", "a", "--validate-only", "--json")
        assert json.loads(in_json.output) == {"can_be_created": ["a"]}

    def test_create_in_json(self) -> None:
        (made,) = json.loads(klog("topics", "create", "flights", "--json").output)
        assert (made["name"], made["partitions"]) == ("flights", 2)

    def test_describe_only_what_is_in_trouble(self) -> None:
        def partitions(*options: str) -> dict[str, list[int]]:
            told = json.loads(klog("topics", "describe", "--json", *options).output)
            return {each["name"]: [p["partition"] for p in each["partitions"]] for each in told}

        assert partitions("--unavailable-partitions") == {"flights": [1]}
        under = {"__consumer_offsets": [0], "flights": [0]}
        assert partitions("--under-replicated-partitions") == under
        both = partitions("--under-replicated-partitions", "--unavailable-partitions")
        assert both == {"__consumer_offsets": [0], "flights": [0, 1]}

    def test_alter(self, calls: list[tuple[Any, ...]]) -> None:
        result = klog("topics", "alter", "flights", "--partitions", "2")
        assert result.output == "altered flights: 2 partitions\n"
        assert calls[1] == ("grow", "flights", 2)
        assert klog("topics", "alter", "flights").exit_code == 2

    def test_what_is_there_or_gone_already(self, calls: list[tuple[Any, ...]]) -> None:
        assert klog("topics", "create", "flights", "--if-not-exists").output == ""
        assert klog("topics", "delete", "nope", "flights", "--if-exists").output == (
            "deleted flights\n"
        )
        assert [call for call in calls if call[0] in ("create", "delete")] == [
            ("delete", "flights")
        ]

    def test_delete(self, calls: list[tuple[Any, ...]]) -> None:
        assert klog("topics", "delete", "a", "b").output == "deleted a\ndeleted b\n"
        assert calls[1:3] == [("delete", "a"), ("delete", "b")]
        assert json.loads(klog("topics", "delete", "a", "--json").output) == {"deleted": ["a"]}

    @pytest.mark.parametrize(
        "arguments",
        [
            ["topics", "create"],
            ["topics", "delete"],
            ["topics", "create", "a", "--config", "x"],
            ["topics", "create", "a", "--partitions", "0"],
        ],
    )
    def test_usage_errors(self, arguments: list[str], calls: list[tuple[Any, ...]]) -> None:
        assert klog(*arguments).exit_code == 2
        assert not calls

    def test_what_the_broker_refuses_is_one_sentence_and_exit_code_1(self) -> None:
        result = klog("topics", "describe", "nope")
        assert (result.exit_code, result.stderr) == (1, "klog: topic nope does not exist\n")
        assert result.stdout == ""

    def test_no_broker(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(settings: dict[str, Any]) -> FakeAdmin:
            servers = settings["bootstrap.servers"]
            raise NoBrokerAvailable(f"no broker could be reached: {servers}")

        monkeypatch.setattr(client_options, "Admin", refuse)
        result = klog("topics", "list", "--bootstrap-server", "h:1")
        assert (result.exit_code, result.stderr) == (1, "klog: no broker could be reached: h:1\n")


def test_groups_that_were_deleted_are_named_although_another_one_timed_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def delete_group(_: object, group_id: str) -> None:
        if group_id == "slow":
            raise TimedOut("delete group slow did not succeed in time")

    monkeypatch.setattr(groups, "delete_group", delete_group)
    result = klog("groups", "delete", "a", "slow", "b")
    assert (result.exit_code, result.stdout) == (1, "deleted a\ndeleted b\n")
    assert result.stderr == "klog: delete group slow did not succeed in time\n"
