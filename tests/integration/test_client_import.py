"""Spark imports pyspark_klog in every session: it must be light, and never fail."""

import subprocess
import sys


def _run(code: str) -> str:
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_importing_the_package_brings_in_nothing_but_the_standard_library() -> None:
    code = (
        "import sys, typing; before = set(sys.modules); import pyspark_klog; "
        "print(sorted(set(sys.modules) - before))"
    )
    assert _run(code) == "['pyspark_klog', 'pyspark_klog._version']"


def test_without_a_spark_that_has_data_sources_there_is_none() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None; import pyspark_klog; "
        "print(hasattr(pyspark_klog, 'DefaultSource'), hasattr(pyspark_klog, 'nonsense'))"
    )
    assert _run(code) == "False False"


def test_the_data_source_is_planned_without_client_codecs_or_numba() -> None:
    # Spark imports it twice for each micro-batch of a sink, in processes that never connect.
    code = (
        "import sys, pyspark_klog; pyspark_klog.DefaultSource; "
        "print(sorted({'numba', 'lz4', 'zstandard', 'cramjam', 'crc32c', "
        "'pyspark_klog.client.cluster.blocking_client', "
        "'pyspark_klog.protocol.registry'} & set(sys.modules)))"
    )
    assert _run(code) == "[]"


def test_only_the_conversion_to_and_from_arrow_needs_pyarrow() -> None:
    """A broker, the command and a client are installed without it: pyarrow is an extra."""
    code = """
import importlib, pkgutil, sys
sys.modules["pyarrow"] = None
import klog_broker, pyspark_klog
for package in (pyspark_klog, klog_broker):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ImportError:
                print(module.name)
"""
    ends = ("", "_columns", "_decode", "_encode", "_inputs", "_legacy")
    lake = ("copier", "data_files", "delta", "iceberg", "iceberg_files", "parquet_file")
    needing = [f"pyspark_klog.lake_tables.{each}" for each in (*lake, "pruning", "reading")]
    needing += [f"pyspark_klog.lake_tables.{each}" for each in ("table", "writer")]
    needing += [f"pyspark_klog.records.arrow{end}" for end in ends]
    needing += ["pyspark_klog.spark.lake", "pyspark_klog.spark.planning.lake_bounds"]
    needing.append("pyspark_klog.spark.sink.exactly_once.row_hash")
    commands = ("care", "lake", "metrics", "options", "run")
    needing += [f"klog_broker.cli.lake.{each}" for each in commands]
    assert _run(code).splitlines() == needing


def test_records_are_decoded_to_arrow_and_encoded_without_pandas() -> None:
    # Each new Python worker of Spark does this; pandas would take it 0.3 s.
    code = """
import sys
from pyspark_klog.records.arrow import ArrowDecoder, encode_from_arrow
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.record import Header
builder = BatchBuilder()
builder.append(b"k", b"v", 1, [Header("h", b"1")])
columns = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
decoder = ArrowDecoder(topic="t", partition=3, columns=columns)
rows = [*decoder.decode(builder.build()), decoder.flush()][-1]
names = ("key", "headers", "timestamp", "partition")
encoded = encode_from_arrow(
    rows["value"],
    **{name: rows[name] for name in names},
    partition_count=8,
    now_ms=1,
    max_batch_bytes=1_000,
)
print(rows.num_rows, len(encoded.batches), "pandas" in sys.modules)
"""
    assert _run(code) == "1 1 False"


def test_klog_lake_names_the_extra_that_it_needs() -> None:
    code = """
import sys
sys.modules["pyarrow"] = None
from click.testing import CliRunner
from klog_broker.cli.commands import command
print(CliRunner().invoke(command, ["lake", "run"]).output)
"""
    assert "pip install 'pyspark-klog[lake]'" in _run(code)
