"""The configuration files in the pages for operators can be used as they stand."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from klog_broker.cli.commands import command
from klog_broker.config import BrokerConfig
from klog_broker.lifecycle.exit_codes import ExitCode
from tests.support.repo.documents import ROOT, code_block

DEPLOYMENT = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
CLUSTERS = (ROOT / "docs" / "clusters-of-brokers.md").read_text(encoding="utf-8")
SERVER_PROPERTIES = code_block(DEPLOYMENT, "properties", "broker.id=1")
UNIT = code_block(DEPLOYMENT, "ini", "[Unit]")


def unit_values(name: str) -> list[str]:
    """Return the values of a name in the systemd unit."""
    return re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)


@pytest.mark.parametrize(
    "text",
    [SERVER_PROPERTIES, code_block(CLUSTERS, "properties", "# cluster.properties")],
    ids=["server.properties", "cluster.properties"],
)
def test_the_broker_accepts_the_files_of_the_pages(text: str, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(text)
    result = CliRunner().invoke(command, ["broker", "--config", str(file), "--print-config"])
    assert result.exit_code == 0, result.output
    printed = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines() if line}
    for number, line in enumerate(text.splitlines(), 1):
        name, _, value = line.partition("=")
        if not line.startswith("#"):
            assert printed[name] == [value, f"{file}:{number}"]


def test_the_unit_starts_the_broker_with_the_file_of_the_page() -> None:
    program, *arguments = shlex.split(unit_values("ExecStart")[0])
    assert program == "/opt/klog/bin/klog"
    assert arguments == ["broker", "--config", "/etc/klog/server.properties"]
    assert f"`{arguments[2]}`" in DEPLOYMENT


def test_the_unit_makes_the_data_directory_of_the_file() -> None:
    config = BrokerConfig.load(text=SERVER_PROPERTIES)
    assert config["log.dirs"] == f"/var/lib/{unit_values('StateDirectory')[0]}"


def test_the_unit_does_not_restart_after_exit_codes_of_the_broker() -> None:
    codes = {int(code) for code in unit_values("RestartPreventExitStatus")[0].split()}
    assert codes < {2, *map(int, ExitCode)}
