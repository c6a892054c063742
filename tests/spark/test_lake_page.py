"""The code of docs/lake-readers.md, run as its readers run it."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame

from tests.support.lake import Lake
from tests.support.repo.documents import ROOT
from tests.support.spark.topics import Topics, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (ROOT / "docs" / "lake-readers.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
AT_MS = 1_700_000_000_000


def test_the_examples_of_the_page_run(
    topics: Topics, spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Lake(tmp_path)
    topics.create(1, "orders")
    old, new = [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")], [(b"a", b"4"), (b"c", None)]
    topics.put("orders", old, at_ms=AT_MS - 2)
    lake.copy(topics.servers, "orders")
    topics.put("orders", new, at_ms=AT_MS + 2)
    lake.copy(topics.servers, "orders")
    topics.put("orders", [(b"d", b"5")], at_ms=AT_MS + 4)
    names: dict[str, Any] = {"spark": spark}
    for block in BLOCKS:
        code = block.replace("/lake/", f"{tmp_path}/").replace("broker:9092", topics.servers)
        exec(compile(code, "docs/lake-readers.md", "exec"), names)
    frames = {name: value for name, value in names.items() if isinstance(value, DataFrame)}
    newer = frames.pop("newer")
    counts = {name: frame.count() for name, frame in frames.items()}
    assert counts == {"orders": 6, "since": 4, "history": 5}
    writer = newer.writeStream.format("parquet").option("checkpointLocation", tmp_path / "c")
    run(writer.trigger(availableNow=True).start(str(tmp_path / "rows")))
    assert spark.read.parquet(str(tmp_path / "rows")).count() == 1
    topics.delete("orders")
    assert sorted(row[1] for row in names["newest"].select("key, value").fetchall()) == [b"2", b"4"]
    assert names["late"].num_rows == 4
    output = capsys.readouterr().out
    assert "count_star()" in output and "shape: (1, 2)" in output


def test_the_page_is_short() -> None:
    assert len(PAGE.split()) <= 700
