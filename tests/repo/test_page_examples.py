"""The Python examples of the pages for developers run."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from klog_broker.cli.commands import command
from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.state_records.consumer_offsets import encode_offset_key
from pyspark_klog.storage.text_files import encode_offset_checkpoint
from tests.support.repo.documents import ROOT

PAGES = ("a-records-journey.md", "storage-engine.md", "testing.md")


@pytest.mark.parametrize("name", PAGES)
def test_the_python_examples_of_a_page_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        found: dict[str, object] = {}
        exec(compile(block, name, "exec"), found)
        for key, value in list(found.items()):
            if key.startswith("test_") and callable(value):
                value()


def test_the_commands_of_looking_inside_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    committed = encode_offset_key("g", "flights", 0)
    for partition, key in (("flights-0", b"key"), ("__consumer_offsets-3", committed)):
        folder = Path("data", partition)
        folder.mkdir(parents=True)
        batch = BatchBuilder(base_offset=0)
        batch.append(key, None, 1)
        folder.joinpath(f"{0:020d}.log").write_bytes(batch.build())
    checkpoint = encode_offset_checkpoint({TopicPartition("flights", 0): 0})
    Path("data", "recovery-point-offset-checkpoint").write_bytes(checkpoint)
    page = (ROOT / "docs" / "looking-inside.md").read_text(encoding="utf-8")
    lines = re.findall(r"^klog (.*?)(?: +#.*)?$", page, re.MULTILINE)
    assert len(lines) == 5
    for line in lines:
        result = CliRunner().invoke(command, shlex.split(line))
        assert result.exit_code == 0, (line, result.output)
        assert result.output
