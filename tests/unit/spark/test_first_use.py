"""The driver's log line before kernels are compiled."""

import logging
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, StructType

from pyspark_klog import DefaultSource
from pyspark_klog.records import kernels
from pyspark_klog.spark.workers import plan_memory


@pytest.fixture(autouse=True)
def _new_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(plan_memory, "_logged", set())
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))


@pytest.mark.parametrize("side", ["read", "batch write", "streaming write"])
def test_the_first_use_of_kernels_is_logged_once_with_its_duration(
    side: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    claims = iter([True])
    monkeypatch.setattr(kernels, "claim_first_use", lambda: next(claims))
    caplog.set_level(logging.INFO, "pyspark_klog.spark.workers")
    rows = StructType().add("value", BinaryType())
    source = DefaultSource({"kafka.bootstrap.servers": "h:1", "subscribe": "t", "topic": "t"})
    for _ in range(3):
        if side == "read":
            source.schema()
        elif side == "batch write":
            source.writer(rows, overwrite=False)
        else:
            source.streamWriter(rows, overwrite=False)
    assert caplog.messages == [
        "klog's kernels are being compiled: the first read and the first write on each host take 5 "
        "to 20 s longer, once; python -m pyspark_klog.warm compiles them ahead"
    ]


def test_nothing_is_logged_where_kernels_are_compiled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kernels, "claim_first_use", lambda: False)
    caplog.set_level(logging.INFO)
    DefaultSource({"kafka.bootstrap.servers": "h:1", "subscribe": "t"}).schema()
    assert caplog.messages == []
