"""Whom the commands ask: the options, and the file of --command-config."""

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from klog_broker.cli import commands
from klog_broker.cli.common.client_options import ClientOptions, with_client_options
from klog_broker.cli.topics import topics
from pyspark_klog.client.settings.client_settings import ClientSettings


def asked(*arguments: str) -> dict[str, Any]:
    """The settings with which a command would ask."""
    found: list[ClientOptions] = []

    @click.command()
    @with_client_options
    def command(asking: ClientOptions) -> None:
        found.append(asking)

    result = CliRunner().invoke(command, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return dict(found[0].settings)


def refused(*arguments: str) -> Result:
    result = CliRunner().invoke(commands.command, ["topics", "list", *arguments], prog_name="klog")
    assert result.stdout == ""
    return result


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "client.properties"


def test_what_holds_by_itself() -> None:
    assert asked() == {
        "bootstrap.servers": "127.0.0.1:9092",
        "default.api.timeout.ms": 10_000,
        "request.timeout.ms": 5_000,  # so that a second broker can be asked after a silent one
    }


def test_a_file_gives_settings_and_options_win(file: Path) -> None:
    file.write_text("bootstrap.servers=a:1\nrequest.timeout.ms = 7\nclient.id: \\u0061dmin\n")
    given = asked("--command-config", str(file))
    assert given["bootstrap.servers"] == "a:1"
    assert (given["request.timeout.ms"], given["default.api.timeout.ms"]) == ("7", 10_000)
    assert given["client.id"] == "admin"
    given = asked(*("--command-config", str(file), "--bootstrap-server", "b:2", "--timeout", "9"))
    assert given["bootstrap.servers"] == "b:2"
    assert (given["request.timeout.ms"], given["default.api.timeout.ms"]) == (4, 9)


def test_a_password_is_not_shown(file: Path) -> None:
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' username="u" password="hush";\n'
    )
    settings = ClientSettings(asked("--command-config", str(file)))
    assert settings.security is not None
    assert "hush" not in repr(settings)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    result = refused("--command-config", str(tmp_path / "none"))
    assert (result.exit_code, result.stderr) == (
        2,
        f"klog: cannot read the configuration file {tmp_path}/none: No such file or directory\n",
    )


def test_names_that_kafkas_clients_do_not_have(file: Path) -> None:
    file.write_text("# comment\nsecurty.protocol=SSL\n\nx=1\n")
    result = refused("--command-config", str(file))
    assert (result.exit_code, result.stderr) == (
        2,
        f"klog: {file}:2: securty.protocol is no setting of Kafka's clients;"
        " did you mean security.protocol?\n"
        f"klog: {file}:4: x is no setting of Kafka's clients\n",
    )


def test_a_value_that_is_wrong(file: Path) -> None:
    file.write_text("request.timeout.ms=soon\n")
    result = refused("--command-config", str(file))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"klog: {file}: request.timeout.ms is 'soon'; expected a whole")


def test_an_address_that_is_none() -> None:
    result = refused("--bootstrap-server", "nowhere")
    assert result.exit_code == 2
    assert "nowhere" in result.stderr


WITHOUT_BROKERS = {("lake", "sweep")}


def test_every_command_that_asks_brokers_has_the_options() -> None:
    for name in commands.COMMANDS:
        found = commands.command.get_command(click.Context(commands.command), name)
        if not isinstance(found, click.Group):
            continue
        for command in found.commands.values():
            if (name, command.name) in WITHOUT_BROKERS:
                continue
            names = {option for each in command.params for option in each.opts}
            assert names >= {"--bootstrap-server", "--command-config", "--timeout", "--json"}
    assert set(topics.command.commands) >= {"list", "create", "describe", "delete"}
