"""The pipeline of docs/pipelines.md: its files in a folder, and the commands that run them."""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.repo.documents import ROOT, code_block

_TEXT = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
RUN, RUN_ON_SERVER = re.findall(r"^spark-pipelines run.*$", _TEXT, re.MULTILINE)
"""The page's commands: with a Spark of their own, and on a Spark Connect server."""
# Compiling Java code for few records takes longer than interpreting the queries.
_SETTINGS = """
configuration:
  spark.sql.codegen.wholeStage: "false"
  spark.sql.codegen.factoryMode: NO_CODEGEN
"""
_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_DEADLINE_S = 280


def write_pipeline(folder: Path, servers: str, source: str, target: str) -> None:
    """Write the page's two files, with other topics than the page's `orders` and `large-orders`."""
    changes = {
        "/data/orders-pipeline": f"{folder}/storage",
        "localhost:9092": servers,
        '"subscribe", "orders"': f'"subscribe", "{source}"',
        '"topic": "large-orders"': f'"topic": "{target}"',
    }
    for language, end in (("yaml", _SETTINGS), ("python", "")):
        [name] = re.findall(rf"^```{language}\n# (\S+)$", _TEXT, re.MULTILINE)
        text = code_block(_TEXT, language, f"# {name}")
        for old, new in changes.items():
            text = text.replace(old, new)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text + end, encoding="utf-8")


def run_pipeline(command: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Run a command of the page in the folder; ``environment`` has SPARK_HOME."""
    programs = os.pathsep.join([f"{environment['SPARK_HOME']}/bin", environment["PATH"]])
    ran = subprocess.run(
        ["/bin/sh", "-ec", command],
        cwd=folder,
        env={"JDK_JAVA_OPTIONS": _JAVA, **environment, "PATH": programs},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_DEADLINE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-6_000:]
