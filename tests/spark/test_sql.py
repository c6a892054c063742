"""Views and tables of SQL: the places of their options, and the error for other places."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

from tests.support.spark.topics import Topics, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WHERE = (
    "and again in each query, since Spark does not give a Python source the table's options: "
    "SELECT "
)


@pytest.fixture
def topic(topics: Topics) -> str:
    made = topics.create()
    topics.put_numbers(made, range(4))
    return made


@pytest.fixture
def sql(spark: "SparkSession") -> Iterator["SparkSession"]:
    """A session with a database of its own, so that tables of other tests are not in the way."""
    spark.sql("CREATE DATABASE of_sql")
    spark.sql("USE of_sql")
    yield spark
    spark.sql("USE default")
    spark.sql("DROP DATABASE of_sql CASCADE")


def _options(topics: Topics, **options: Any) -> str:
    """Return options in the form for OPTIONS and WITH."""
    given = topics.options(**options)
    return ", ".join(f"`{name}` = '{value}'" for name, value in given.items())


def _numbers(spark: "SparkSession", table: str) -> list[int]:
    rows = spark.sql(f"SELECT int(string(value)) AS n FROM {table}").collect()
    return sorted(row.n for row in rows)


@pytest.mark.parity("python source: tables of SQL", differs="sql-tables")
def test_a_table_is_read_with_the_options_behind_with(
    sql: "SparkSession", topics: Topics, topic: str
) -> None:
    options = _options(topics, subscribe=topic)
    sql.sql(f"CREATE TABLE records USING klog OPTIONS ({options})")
    assert _numbers(sql, f"records WITH ({options})") == [0, 1, 2, 3]
    sql.sql(f"CREATE VIEW kept AS SELECT value FROM records WITH ({options})")
    topics.put_numbers(topic, [4])
    assert _numbers(sql, "kept") == [0, 1, 2, 3, 4], "each query ends where the topic does"
    end = _options(topics, subscribe=topic, endingOffsets=json.dumps({topic: {"0": 2}}))
    assert _numbers(sql, f"records WITH ({end})") == [0, 1]


@pytest.mark.parity("python source: tables of SQL", differs="sql-tables")
def test_a_table_without_options_says_where_they_stand(
    sql: "SparkSession", topics: Topics, topic: str
) -> None:
    sql.sql(f"CREATE TABLE records USING klog OPTIONS ({_options(topics, subscribe=topic)})")
    for query in (
        "SELECT * FROM records",
        "CREATE TABLE without USING klog",
        "CREATE TABLE copied USING klog AS SELECT 'v' AS value",
    ):
        with pytest.raises(AnalysisException) as caught:
            sql.sql(query).collect()
        [line] = [text for text in str(caught.value).splitlines() if "pyspark_klog." in text]
        assert "option kafka.bootstrap.servers is missing" in line and _WHERE in line


@pytest.mark.parity("python source: tables of SQL", differs="sql-tables")
def test_rows_are_inserted_into_a_topic(sql: "SparkSession", topics: Topics, topic: str) -> None:
    sql.sql("CREATE TABLE outbox (key STRING, value STRING) USING klog")
    options = _options(topics, topic=topic)
    sql.sql(f"INSERT INTO outbox WITH ({options}) SELECT 'k', '7'")
    sql.sql(f"INSERT INTO outbox WITH ({options}) (value) VALUES ('8')")
    assert topics.numbers(topic) == [0, 1, 2, 3, 7, 8]


@pytest.mark.parity("python source: tables of SQL", differs="sql-tables")
def test_a_table_is_a_stream(
    sql: "SparkSession", topics: Topics, topic: str, tmp_path: Path
) -> None:
    sql.sql(f"CREATE TABLE records USING klog OPTIONS ({_options(topics, subscribe=topic)})")
    options = _options(topics, subscribe=topic, startingOffsets="earliest")
    frame = sql.sql(f"SELECT * FROM STREAM records WITH ({options})")
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    assert run(writer.trigger(availableNow=True).start()).lastProgress.numInputRows == 4


@pytest.mark.parity("python source: names in plans and progress", differs="plans-and-progress")
def test_what_names_topic_and_broker(
    topics: Topics, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = topics.stream(subscribe=topic, startingOffsets="earliest")
    stream.explain("extended")
    plan = capsys.readouterr().out
    assert f"subscribe={topic}" in plan and topics.servers in plan
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = run(writer.queryName(f"of-{topic}").trigger(availableNow=True).start())
    [source] = query.lastProgress.sources
    assert topic in json.loads(source.endOffset) and topic in json.loads(source.latestOffset)
    assert query.lastProgress.name == f"of-{topic}"
    assert source.description.startswith("org.apache.spark."), "if Spark asks klog, say more here"
    topics.batch(subscribe=topic).explain("extended")
    plan = capsys.readouterr().out
    assert "BatchScan klog" in plan and topic not in plan
