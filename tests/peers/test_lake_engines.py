"""Spark reads the tables of klog lake through Iceberg's and Delta's own jars."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_klog import testing
from pyspark_klog.client.admin.topics import Admin, NewTopic
from pyspark_klog.records.arrow_columns import COLUMN_TYPES
from tests.peers.test_delta_and_iceberg import ICEBERGS_SPARK, submit_settings
from tests.support.lake import (
    DELTA,
    ICEBERG,
    Lake,
    Transactions,
    committed_client,
    copier,
    copy_all,
    topic_rows,
)
from tests.support.package_environment import python_with

pytestmark = pytest.mark.timeout(900)

TOPIC = "engines"
READ = """
import json, sys
from pyspark.sql import SparkSession
settings, kind, table = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
for name, value in settings.items():
    builder = builder.config(name, value)
frame = builder.getOrCreate().read.format(kind).load(table)
rows = frame.selectExpr("partition", "offset", "string(value)", "size(headers)").collect()
print(json.dumps([frame.columns, [list(row) for row in rows]]))
"""


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with testing.Broker() as broker:
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(TOPIC, num_partitions=2)])
        yield broker.bootstrap_servers


def _filled(lake: Lake, kind: str, servers: str) -> None:
    writing = Transactions(servers, TOPIC)
    with committed_client(servers) as client:
        for _ in range(3):
            writing.run(3)
            copy_all(client, copier(client, TOPIC, lake.table(kind, TOPIC)))


def _read(python: Path, kind: str, table: str) -> tuple[list[str], Counter[tuple[object, ...]]]:
    """The columns and rows of a table, as another Spark reads them."""
    settings = submit_settings(kind.capitalize())
    environment = os.environ | {"PYSPARK_PYTHON": str(python)}
    environment.pop("SPARK_HOME", None)
    command = [str(python), "-c", READ, json.dumps(settings), kind, table]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    columns, rows = json.loads(ended.stdout.splitlines()[-1])
    return columns, Counter((number, at, value.encode()) for number, at, value, _ in rows)


def test_icebergs_jar_reads_the_table(tmp_path: Path, servers: str) -> None:
    lake = Lake(tmp_path)
    _filled(lake, ICEBERG, servers)
    python = python_with(f"pyspark=={ICEBERGS_SPARK}", "--no-binary=pyspark")
    metadata = max((tmp_path / "warehouse").glob("klog/engines/metadata/*.metadata.json"))
    columns, rows = _read(python, ICEBERG, str(metadata))
    assert columns == list(COLUMN_TYPES)
    assert rows == topic_rows(servers, TOPIC)


def test_deltas_jar_reads_the_table(tmp_path: Path, servers: str) -> None:
    lake = Lake(tmp_path)
    _filled(lake, DELTA, servers)
    _, rows = _read(Path(sys.executable), DELTA, str(tmp_path / "delta" / TOPIC))
    assert rows == topic_rows(servers, TOPIC)
