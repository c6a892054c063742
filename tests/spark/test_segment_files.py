"""Batches that Spark reads from segment files: a live broker's, and logs that were made by hand."""

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chispa.dataframe_comparer import assert_df_equality
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.functions import lit

from pyspark_klog import testing
from pyspark_klog.client.admin.topics import NewTopic
from pyspark_klog.ids import TopicPartition
from pyspark_klog.storage import names
from pyspark_klog.storage.data_directory import read_checkpoint
from tests.support.eventually import eventually
from tests.support.spark.segment_files import LogFiles
from tests.support.spark.session import spark_session
from tests.support.spark.topics import Topics, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.parity("beyond: 11 segment files")

_SEGMENT_BYTES = 20_000


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.Broker]:
    """A broker that writes its checkpoints, looks for old segments and removes them often."""
    with testing.Broker(
        replica_high_watermark_checkpoint_interval_ms=50,
        log_flush_start_offset_checkpoint_interval_ms=50,
        log_retention_check_interval_ms=100,
        log_segment_delete_delay_ms=50,
    ) as made:
        yield made


@pytest.fixture(scope="module")
def local(broker: testing.Broker) -> Iterator[Topics]:
    made = Topics(broker.bootstrap_servers)
    yield made
    made.close()


@pytest.fixture
def log(tmp_path: Path) -> LogFiles:
    return LogFiles(tmp_path / "data")


def _create(local: Topics, name: str, partitions: int = 1, **configs: str) -> str:
    settings = {"segment.bytes": str(_SEGMENT_BYTES), "retention.ms": "-1"}
    settings |= {key.replace("_", "."): value for key, value in configs.items()}
    local.admin.create_topics([NewTopic(name, partitions, 1, settings)])
    return name


def _put(local: Topics, topic: str, numbers: range, partition: int = 0) -> None:
    """Batches of ten records with values of 100 bytes and more."""
    for first in range(numbers.start, numbers.stop, 10):
        rows = [(b"%d" % n, b"%0100d" % n) for n in range(first, min(first + 10, numbers.stop))]
        local.put(topic, rows, partition, at_ms=1_000 + first)


def _files(data: Path | str | list[str], **options: str) -> "DataFrame":
    reader = spark_session().read.format("klog").option("subscribe", "t")
    return reader.options(**options).load(str(data) if isinstance(data, Path) else data)


def _numbers(frame: "DataFrame") -> list[int]:
    found = frame.selectExpr("int(string(value)) AS n").collect()
    return sorted(row.n for row in found)


def _offsets(data: Path, **options: str) -> list[int]:
    rows = _files(data, **options).select("offset").collect()
    return sorted(row.offset for row in rows)


def _until_committed(data: Path, ends: dict[TopicPartition, int]) -> None:
    """Wait for the checkpoint to say that all is."""

    def is_there() -> bool:
        found = read_checkpoint(data, names.HIGH_WATERMARK_CHECKPOINT) or {}
        return all(found.get(p, -1) >= end for p, end in ends.items())

    eventually(is_there, deadline_s=60, what=f"the checkpoint having {ends}")


# --- a live broker's ------------------------------------------------------------------------------
@pytest.mark.parity("own option: path")
def test_files_give_what_the_broker_gives(
    spark: "SparkSession", broker: testing.Broker, local: Topics
) -> None:
    topic = _create(local, "same", 2)
    _put(local, topic, range(600), 0)
    _put(local, topic, range(1_000, 1_050), 1)
    _until_committed(broker.data, {TopicPartition(topic, 0): 600, TopicPartition(topic, 1): 50})
    assert len(list((broker.data / f"{topic}-0").glob("*.log"))) > 3
    ends = {"startingOffsets": json.dumps({topic: {"0": 105, "1": 7}})}
    ends["endingOffsets"] = json.dumps({topic: {"0": 431, "1": -1}})
    times = {"startingTimestamp": "1205", "endingTimestamp": "1555"}
    pieces = {"minPartitions": "7", "includeHeaders": "true"}
    in_files, served = [], []
    for case, (by_load, options) in enumerate(
        (
            (True, {}),
            (False, ends),
            (True, times | {"startingOffsetsByTimestampStrategy": "latest"}),
            (False, pieces),
        )
    ):
        reader = spark.read.format("klog").options(subscribe=topic, **options)
        found = (
            reader.load(str(broker.data)) if by_load else reader.option("path", broker.data).load()
        )
        in_files.append(found.withColumn("case", lit(case)))
        served.append(local.batch(subscribe=topic, **options).withColumn("case", lit(case)))
    with_all = partial(DataFrame.unionByName, allowMissingColumns=True)
    assert_df_equality(reduce(with_all, in_files), reduce(with_all, served), ignore_row_order=True)
    assert _numbers(
        spark.read.format("klog")
        .options(assign=json.dumps({topic: [1]}), path=f"file://{broker.data}")
        .load()
    ) == list(range(1_000, 1_050))
    # Rows there were: the view has them all.
    spark.sql(
        f"CREATE TEMPORARY VIEW of_files USING klog OPTIONS (subscribe '{topic}', "
        f"path '{broker.data}')"
    )
    assert spark.sql("SELECT count(DISTINCT value) AS n FROM of_files").first().n == 650


def test_files_are_read_while_their_broker_rolls_them(
    spark: "SparkSession", broker: testing.Broker, local: Topics
) -> None:
    topic = _create(local, "rolling")
    _put(local, topic, range(300))
    _until_committed(broker.data, {TopicPartition(topic, 0): 300})
    with _Meanwhile(
        lambda round_: _put(local, topic, range(300 + round_ * 100, 400 + round_ * 100))
    ):
        found = []
        for _ in range(3):
            reader = spark.read.format("klog").options(subscribe=topic, minPartitions="4")
            found.append(_numbers(reader.load(str(broker.data))))
    for numbers in found:
        assert numbers == list(range(len(numbers)))
    assert len(found[0]) >= 300
    assert [len(numbers) for numbers in found] == sorted(len(numbers) for numbers in found)


def test_files_are_read_while_their_broker_deletes_them(
    spark: "SparkSession", broker: testing.Broker, local: Topics
) -> None:
    topic = _create(local, "shrinking", retention_bytes=str(4 * _SEGMENT_BYTES))
    _put(local, topic, range(1_000))
    directory = broker.data / f"{topic}-0"
    first = directory / names.segment_file_name(0, names.Suffix.LOG)
    eventually(lambda: not first.exists(), deadline_s=60, what="retention at work")
    written = 1_000

    def put(_round: int) -> None:
        nonlocal written
        _put(local, topic, range(written, written + 200))
        written += 200

    reader = spark.read.format("klog").options(subscribe=topic, failOnDataLoss="false")
    with _Meanwhile(put):
        for _ in range(3):
            found = _numbers(reader.load(str(broker.data)))
            # All may go between planning and reading; nothing comes twice.
            assert len(set(found)) == len(found)
            assert not found or found[0] > 0
    _until_committed(broker.data, {TopicPartition(topic, 0): written})

    def is_whole() -> bool:
        found = _numbers(reader.load(str(broker.data)))
        return found == list(range(found[0], written))

    eventually(is_whole, deadline_s=60, what="retention having ended")


def test_a_topic_that_was_deleted_is_not_there(broker: testing.Broker, local: Topics) -> None:
    topic = _create(local, "deleted")
    _put(local, topic, range(20))
    _until_committed(broker.data, {TopicPartition(topic, 0): 20})
    assert len(_offsets(broker.data, subscribe=topic)) == 20
    local.delete(topic)
    with pytest.raises(PySparkException, match=f"topic {topic} has no directory in .*{topic}-0"):
        _offsets(broker.data, subscribe=topic)


@pytest.mark.parity("own option: stopped")
def test_a_broker_that_was_stopped(local: Topics, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with testing.Broker(data=data) as once:
        topics = Topics(once.bootstrap_servers)
        topic = topics.create(1)
        topics.put_numbers(topic, range(30))
        topics.close()
    assert len(_offsets(data, subscribe=topic)) == 30
    (data / names.HIGH_WATERMARK_CHECKPOINT).unlink()
    words = "there is no replication-offset-checkpoint in .* set option stopped=true"
    with pytest.raises(PySparkException, match=words) as caught:
        _offsets(data, subscribe=topic)
    assert "Traceback" not in str(caught.value)
    assert len(_offsets(data, subscribe=topic, stopped="true")) == 30


class _Meanwhile:
    """Does something round by round in a thread of its own, while the block runs; once at least."""

    def __init__(self, step: Callable[[int], None]) -> None:
        self._step = step
        self._is_over = threading.Event()
        self._failure: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        round_ = 0
        try:
            while not round_ or not self._is_over.is_set():
                self._step(round_)
                round_ += 1
        except BaseException as error:
            self._failure.append(error)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
        assert not self._failure, self._failure


# --- logs that were made by hand ------------------------------------------------------------------
def test_segments_that_vanish_go_by_fail_on_data_loss(log: LogFiles) -> None:
    for _ in range(3):
        log.append(5)
        log.roll()
    log.commit()
    # Spark plans once for each load(): the second action has the offsets of the first.
    bounds = {"startingOffsets": '{"t":{"0":0}}', "endingOffsets": '{"t":{"0":15}}'}
    strict = _files(log.data, **bounds)
    lenient = _files(log.data, **bounds, failOnDataLoss="false")
    assert [strict.count(), lenient.count()] == [15, 15]
    log.delete(0)
    with pytest.raises(PySparkException, match="t-0 begins at offset 5 now: offsets 0 to 15"):
        strict.count()
    assert lenient.count() == 10


# --- refusals -------------------------------------------------------------------------------------
@pytest.mark.parity("own option: path")
def test_urls_are_refused_at_load() -> None:
    with pytest.raises(AnalysisException, match=r"path is 's3://b/kafka'; .*s3://b cannot be read"):
        _files("s3://b/kafka")


def test_several_paths_are_refused_at_load(tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="several paths are given"):
        _files([str(tmp_path), str(tmp_path)])


@pytest.mark.parity("own option: path", differs="paths")
def test_streams_and_sinks_have_no_path(
    spark: "SparkSession", local: Topics, tmp_path: Path
) -> None:
    def drain(frame: "DataFrame") -> None:
        stream = frame.writeStream.format("noop").trigger(availableNow=True)
        run(stream.option("checkpointLocation", str(tmp_path / "c")).start())

    topic = local.create(1)
    reader = spark.readStream.format("klog").options(**local.options(subscribe=topic))
    with pytest.raises(
        StreamingQueryException, match="a path is given, '/x'; a stream reads topics from brokers"
    ):
        drain(reader.load("/x"))
    writer = spark.sql("SELECT 'v' AS value").write.format("klog").mode("append")
    options: dict[str, Any] = local.options(topic=topic)
    with pytest.raises(AnalysisException, match=r"a path is given, '/x', as by save.*option topic"):
        writer.options(**options).save("/x")
