"""Things that Spark does not let a Python source do: klog's error, or its replacement."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import CaseInsensitiveDict

import pyspark_klog
from pyspark_klog.spark.data_source import DefaultSource
from tests.support.parity.scenarios import Engine, Parity
from tests.support.spark.any_sink import AnySink
from tests.support.spark.topics import run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@pytest.fixture
def topic(parity: Parity) -> str:
    made = parity.topics.create(2)
    parity.topics.put_numbers(made, range(10))
    parity.topics.put_numbers(made, range(100, 105), 1)
    return made


def _stream(engine: Engine, topic: str, **options: Any) -> "DataFrame":
    return engine.stream(subscribe=topic, startingOffsets="earliest", **options)


def _refused(parity: Parity, topic: str, folder: Path, **trigger: Any) -> str:
    """Return Spark's error for a trigger, raised at once or as the query's failure."""
    engine = parity.engine("klog")
    with pytest.raises(PySparkException) as caught:
        writer = _stream(engine, topic).writeStream.format("noop").trigger(**trigger)
        query = writer.option("checkpointLocation", str(folder)).start()
        try:
            query.awaitTermination(60)
        finally:
            query.stop()
    return str(caught.value)


@pytest.mark.parity("python source: continuous trigger", differs="continuous-trigger")
def test_the_continuous_trigger(parity: Parity, topic: str, tmp_path: Path) -> None:
    text = _refused(parity, topic, tmp_path, continuous="1 second")
    assert "continuous" in text.lower()


@pytest.mark.parity("python source: real-time trigger", differs="real-time-trigger")
def test_the_real_time_trigger(parity: Parity, topic: str, tmp_path: Path) -> None:
    text = _refused(parity, topic, tmp_path, realTime="5 minutes")
    assert "STREAMING_REAL_TIME_MODE" in text, text


@pytest.mark.parity("python source: async progress tracking", differs="async-progress")
def test_asynchronous_progress_tracking(parity: Parity, topic: str, tmp_path: Path) -> None:
    engine = parity.engine("klog")
    frame = _stream(engine, topic).select("value")
    with pytest.raises(PySparkException) as caught:
        query = engine.append_stream(
            frame,
            tmp_path,
            topic=topic,
            trigger={"processingTime": "0 seconds"},
            asyncProgressTrackingEnabled="true",
        )
        try:
            query.awaitTermination(60)
        finally:
            query.stop()
    assert "async" in str(caught.value).lower()


@pytest.mark.parity("python source: custom metrics", differs="custom-metrics")
def test_progress_has_the_latest_offsets_in_place_of_metrics(
    parity: Parity, topic: str, tmp_path: Path
) -> None:
    engine = parity.engine("klog")
    query = engine.collected(_stream(engine, topic, maxOffsetsPerTrigger=6), tmp_path).query
    with_rows = [progress for progress in query.recentProgress if progress.numInputRows]
    for progress in with_rows:
        assert not progress.sources[0].metrics
        assert json.loads(progress.sources[0].latestOffset) == {topic: {"0": 10, "1": 5}}


@pytest.mark.parity("python source: column pruning", differs="column-pruning")
def test_every_column_is_made(parity: Parity, topic: str) -> None:
    def scenario(engine: Engine) -> "DataFrame":
        return engine.batch(subscribe=topic).selectExpr("string(value) AS value")

    assert parity.same(scenario).count() == 15
    plan = scenario(parity.engine("klog"))._jdf.queryExecution().executedPlan().toString()
    [scan] = [line for line in plan.splitlines() if "BatchScan" in line]
    assert all(f"{name}#" in scan for name in ("key", "value", "topic", "offset"))


@pytest.mark.parity("beyond: 5 Arrow")
def test_a_task_gives_arrow_batches_of_many_records(parity: Parity, topic: str) -> None:
    options = parity.engine("klog").options(subscribe=topic, includeHeaders=True)
    source = DefaultSource(CaseInsensitiveDict(options))
    reader = source.reader(source.schema())
    found = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert all(isinstance(batch, pa.RecordBatch) for batch in found)
    assert [batch.num_rows for batch in found] == [10, 5]
    assert [batch.column("value").to_pylist()[0] for batch in found] == [b"0", b"100"]


@pytest.mark.parity("python source: preferred locations", differs="preferred-locations")
def test_tasks_may_run_anywhere(parity: Parity, topic: str) -> None:
    frame = parity.engine("klog").batch(subscribe=topic)
    rows = frame._jdf.queryExecution().toRdd()
    places = [rows.preferredLocations(partition) for partition in rows.partitions()]
    assert len(places) == 2
    assert all(place.isEmpty() for place in places)


@pytest.mark.parity("python source: composite read limits", differs="read-limits")
def test_a_least_and_a_largest_batch_at_once(parity: Parity, topic: str, tmp_path: Path) -> None:
    """Spark's Python sources know one limit; klog's reader keeps the other itself."""

    def scenario(engine: Engine) -> "DataFrame":
        frame = _stream(
            engine, topic, minOffsetsPerTrigger=2, maxOffsetsPerTrigger=6, maxTriggerDelay="30m"
        )
        running = engine.start(frame, tmp_path)
        try:
            running.wait_for(15)
        finally:
            running.stop()
        sizes = list(enumerate(running.sizes(), 1))
        return engine.spark.createDataFrame(sizes, "batch int, rows int")

    found = parity.same(scenario).sort("batch").collect()
    assert [row.rows for row in found] == [6, 6, 3]


_TWICE = "Duplicated field names in Arrow Struct are not allowed, got [value, x, x]"


@pytest.mark.oldest
@pytest.mark.parity("python source: two columns of one name", differs="two-columns")
def test_of_two_columns_the_first_is_written_where_spark_gives_both(
    parity: Parity, topic: str, tmp_path: Path
) -> None:
    """Spark 4.3 gives no Python sink such rows, whatever the sink does with the columns; 4.0 does.
    Spark's own connector and `batch_writer` take the first column with each release."""

    def written(engine: Engine) -> "DataFrame":
        target = engine.topics.create(1)
        engine.append(engine.spark.sql(_TWICE), topic=target)
        return engine.batch(subscribe=target).selectExpr("string(value) AS value")

    def written_each(engine: Engine) -> "DataFrame":
        target = engine.topics.create(1)
        writer = pyspark_klog.batch_writer(**engine.options(topic=target))
        writer(engine.spark.sql(_TWICE), 0)
        return engine.batch(subscribe=target).selectExpr("string(value) AS value")

    parity.spark.dataSource.register(AnySink)
    if _refuses(lambda: _twice_as_batch(parity)):
        assert _REFUSED in parity.failure("klog", written)
        assert _refuses(lambda: _twice_as_stream(parity, topic, tmp_path))
    else:
        assert [row.value for row in parity.klog_only(written).collect()] == ["v"]
    assert [row.value for row in parity.klog_only(written_each).collect()] == ["v"]
    peers = parity.peer_only(written)
    assert peers is None or [row.value for row in peers.collect()] == ["v"]


_TWICE = "SELECT 'v' AS value, 'w' AS value, 1 AS x, 2 AS x"
_REFUSED = "[DUPLICATED_FIELD_NAME_IN_ARROW_STRUCT]"


def _refuses(action: Callable[[], object]) -> bool:
    try:
        action()
    except PySparkException as error:
        assert _REFUSED in str(error), error
        return True
    return False


def _twice_as_batch(parity: Parity) -> None:
    parity.spark.sql(_TWICE).write.format("any_sink").mode("append").save()


def _twice_as_stream(parity: Parity, topic: str, folder: Path) -> None:
    stream = _stream(parity.engine("klog"), topic).selectExpr("value", "1 AS x", "2 AS x")
    writer = stream.writeStream.format("any_sink").option("checkpointLocation", str(folder))
    run(writer.trigger(availableNow=True).start())
