"""The Spark session of this process: its queries, and the file systems that it reads."""

import sys
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from pyspark_klog.checkpoint.errors import CheckpointError
from pyspark_klog.checkpoint.files import open_files
from pyspark_klog.checkpoint.sessions import running_query_refusal


@pytest.mark.parametrize(
    ("query_id", "is_refused"), [("one", True), ("two", True), ("three", False), (None, False)]
)
def test_a_query_that_runs_in_the_active_session_is_not_moved(
    monkeypatch: pytest.MonkeyPatch, query_id: str | None, is_refused: bool
) -> None:
    queries = [SimpleNamespace(id="one"), SimpleNamespace(id="two")]
    session = SimpleNamespace(streams=SimpleNamespace(active=queries))
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: session)
    refusal = running_query_refusal(query_id)
    assert (refusal is not None) is is_refused
    assert refusal is None or refusal.startswith(f"query {query_id} is running")


def test_without_a_session_no_query_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    assert running_query_refusal("one") is None


def test_a_uri_needs_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pyspark_klog.checkpoint.hadoop_files", raising=False)
    monkeypatch.setitem(sys.modules, "pyspark.errors", None)
    with pytest.raises(CheckpointError, match=r"hdfs://x/y is read through a Spark session"):
        open_files("hdfs://x/y")


def test_a_session_of_spark_connect_cannot_read_a_uri(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: SimpleNamespace())
    with pytest.raises(CheckpointError, match=r"hdfs://x/y cannot be read through .* Connect"):
        open_files("hdfs://x/y")
