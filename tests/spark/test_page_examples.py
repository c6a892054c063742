"""The first example of each page on klog in Spark, run as its readers run it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import DataFrame

from pyspark_klog import testing
from tests.support.spark.topics import Topics, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    "docs/backfills.md",
    "docs/exactly-once.md",
    "docs/frames.md",
    "docs/options.md",
    "docs/progress-and-lag.md",
    "docs/sink.md",
    "docs/taking-over-a-checkpoint.md",
)
TOPICS = ("events", "flights", "loud", "names", "orders", "orders-copy")
AT_MS = 1_700_000_000_000
"""A time in the hour that the page on backfills reads."""


def fill(broker: testing.Broker) -> None:
    """Create the topics of the examples, each with one record."""
    topics = Topics(broker.bootstrap_servers)
    for name in TOPICS:
        topics.put(topics.create(name=name), [(b"key", b"value")], at_ms=AT_MS)
    topics.close()


@pytest.fixture(scope="module")
def example_broker() -> Iterator[testing.Broker]:
    with testing.Broker() as broker:
        fill(broker)
        yield broker


def first_example(page: str, language: str = "python") -> str:
    """The first block of code of a page in a language."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return text.split(f"```{language}\n")[1].split("```")[0]


@pytest.mark.parametrize("page", PAGES)
def test_the_first_example_of_a_page_runs(
    page: str, spark: "SparkSession", example_broker: testing.Broker, tmp_path: Path
) -> None:
    code = first_example(page).replace(".awaitTermination()", "")
    code = re.sub(r"\b(localhost|127\.0\.0\.1):9092\b", example_broker.bootstrap_servers, code)
    code = re.sub(r'"(checkpointLocation|path)", "', rf'"\1", "{tmp_path}/', code)
    names: dict[str, object] = {"spark": spark}
    exec(code, names)
    for frame in [value for value in names.values() if isinstance(value, DataFrame)]:
        if frame.isStreaming:
            run(frame.writeStream.format("noop").trigger(availableNow=True).start())
        else:
            assert frame.count() == 1
    for query in spark.streams.active:
        query.processAllAvailable()
        query.stop()


def test_the_example_of_the_page_on_segment_files_runs(
    spark: "SparkSession", tmp_path: Path
) -> None:
    with testing.Broker(data=tmp_path) as broker:
        fill(broker)
    names: dict[str, object] = {"spark": spark}
    exec(
        first_example("docs/segment-files.md").replace("/var/lib/kafka/data", str(tmp_path)), names
    )
    frame = names["flights"]
    assert isinstance(frame, DataFrame)
    assert frame.count() == 1


def test_the_example_of_the_page_on_sql_runs(
    spark: "SparkSession", example_broker: testing.Broker
) -> None:
    text = first_example("docs/sql.md", "sql")
    text = text.replace("broker:9092", example_broker.bootstrap_servers)
    create, select = text.strip().strip(";").split(";\n")
    spark.sql(create)
    assert spark.sql(select).count() == 1
