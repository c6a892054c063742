"""The code of docs/delta-and-iceberg.md has each record in a table once, through failures.

Spark fetches the jars by the options of `spark-submit` that the page shows. Delta's tests run on
this environment's Spark. Iceberg needs an older Spark: one test runs this file again, on that.
"""

import itertools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

from pyspark_klog import testing
from tests.support.package_environment import python_with
from tests.support.repo.documents import ROOT
from tests.support.spark.session import OVERRIDES, spark_session
from tests.support.spark.topics import Topics, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.timeout(900)

ICEBERGS_SPARK = "4.1.4"
IS_ICEBERG = metadata.version("pyspark") == ICEBERGS_SPARK
PAGE = (ROOT / "docs" / "delta-and-iceberg.md").read_text(encoding="utf-8")
TABLE = "lake.shop.orders"
"""The name of the Iceberg table on the page."""
DELTA_TABLE = "delta.`/lake/orders`"
Row = tuple[str, int, int, bytes]
Write = Callable[["DataFrame", int], None]
"""A function for foreachBatch."""
_numbers = itertools.count(1)


def section(heading: str) -> str:
    """The text of the page below a heading; with "" the whole page."""
    return re.split(rf"^## {heading}\n", PAGE, flags=re.MULTILINE)[1] if heading else PAGE


def block(heading: str, number: int = 0) -> str:
    """A block of Python below a heading of the page."""
    blocks = re.findall(r"^```python\n(.*?)^```", section(heading), re.MULTILINE | re.DOTALL)
    return blocks[number]


def submit_settings(heading: str) -> dict[str, str]:
    """The settings of the call of `spark-submit` below a heading."""
    [call, *_] = re.findall(r"^spark-submit (.*?)^```", section(heading), re.MULTILINE | re.DOTALL)
    words = shlex.split(call.replace("\\\n", " "))
    pairs = [words[place + 1] for place, word in enumerate(words) if word == "--conf"]
    settings = dict(pair.split("=", 1) for pair in pairs)
    return settings | {"spark.jars.packages": words[words.index("--packages") + 1]}


def in_new_table(code: str) -> str:
    """The code, after a statement that creates its table; Delta's tables are folders."""
    code = block("Iceberg") + code
    return code if IS_ICEBERG else code.replace("iceberg", "delta").replace(TABLE, DELTA_TABLE)


SINK, BATCHES = (
    (in_new_table(block("Iceberg", 1)), in_new_table(block("Iceberg", 2)))
    if IS_ICEBERG
    else (block("Delta"), block("Delta", 1))
)
MERGE = in_new_table(block("By offset, in either format"))


@pytest.fixture(scope="module", autouse=True)
def _session_with_format(tmp_path_factory: pytest.TempPathFactory) -> None:
    OVERRIDES["spark.databricks.delta.snapshotPartitions"] = "2"  # 50 small tasks otherwise
    OVERRIDES.update(submit_settings("Iceberg" if IS_ICEBERG else "Delta"))
    if IS_ICEBERG:
        assert OVERRIDES["spark.sql.catalog.lake.warehouse"] == "/lake"
        OVERRIDES["spark.sql.catalog.lake.warehouse"] = str(tmp_path_factory.mktemp("lake"))
    spark_session()


@pytest.fixture
def topics(spark_broker: testing.Broker) -> Iterator[Topics]:
    made = Topics(spark_broker.bootstrap_servers)
    yield made
    made.close()


def after_commit(function: Write) -> Write:
    """The function, which once fails after it has written."""
    failures = iter([RuntimeError("the driver dies")])

    def write(frame: "DataFrame", batch_id: int) -> None:
        function(frame, batch_id)
        for failure in failures:
            raise failure

    return write


class Lake:
    """A topic that the page's code writes to a table of this test."""

    def __init__(self, topics: Topics, folder: Path) -> None:
        self.topics = topics
        self.folder = folder
        self.table = f"{TABLE}_{next(_numbers)}" if IS_ICEBERG else f"delta.`{folder}/orders`"
        self.topic = topics.create(2)
        self.checkpoint = folder / "checkpoint"
        self.put(range(5))

    def put(self, numbers: range) -> None:
        """Append records to both partitions."""
        for partition in (0, 1):
            self.topics.put_numbers(self.topic, numbers, partition)

    def start(self, code: str, wrap: Callable[[Write], Write]) -> StreamingQuery:
        """Start the query of a block, up to the topic's end; a function of foreachBatch is
        wrapped."""
        code = block("") + code.replace("writeStream", "writeStream.trigger(availableNow=True)")
        code = code.replace("broker:9092", self.topics.servers)
        code = code.replace('"subscribe", "orders"', f'"subscribe", "{self.topic}"')
        code = code.replace("/lake/checkpoints/orders", str(self.checkpoint))
        code = code.replace("/lake/orders", f"{self.folder}/orders").replace(TABLE, self.table)
        code = re.sub(r"foreachBatch\((\w+)\)", r"foreachBatch(wrap(\1))", code)
        found: dict[str, object] = {"spark": spark_session(), "wrap": wrap}
        exec(code, found)
        query = found["query"]
        assert isinstance(query, StreamingQuery)
        return query

    def run(self, code: str, wrap: Callable[[Write], Write] = lambda write: write) -> None:
        """Run a block to the end of the topic."""
        run(self.start(code, wrap))

    def fail_after_commit(self, code: str) -> None:
        """Run a block of foreachBatch, and fail once the table has the micro-batch."""
        with pytest.raises(StreamingQueryException, match="the driver dies"):
            self.run(code, after_commit)

    def forget_commit(self) -> None:
        """Leave the checkpoint as a driver leaves it that dies before the checkpoint's commit."""
        commits = self.checkpoint / "commits"
        last = max(int(file.name) for file in commits.glob("[0-9]*"))
        for name in (f"{last}", f".{last}.crc"):
            (commits / name).unlink()

    def begin_again(self) -> None:
        """Take another folder as the checkpoint, so that the next query has another id."""
        self.checkpoint = self.checkpoint / "other"

    def written(self) -> list[Row]:
        """The records of the topic, as a table must have them."""
        return _rows(self.topics.batch(subscribe=self.topic))

    def frame(self) -> "DataFrame":
        """The table, with what other sessions have committed: a query has a session of its own."""
        if IS_ICEBERG:
            spark_session().sql(f"REFRESH TABLE {self.table}")
        return spark_session().table(self.table)

    def rows(self) -> list[Row]:
        """The rows of the table."""
        return _rows(self.frame())


def _rows(frame: "DataFrame") -> list[Row]:
    found = frame.select("topic", "partition", "offset", "value").collect()
    return sorted((row.topic, row.partition, row.offset, bytes(row.value)) for row in found)


@pytest.fixture
def lake(topics: Topics, tmp_path: Path) -> Lake:
    return Lake(topics, tmp_path)


def test_the_sink_writes_a_repeated_micro_batch_once(lake: Lake) -> None:
    for _ in range(2):
        lake.run(SINK)
        lake.forget_commit()
        lake.run(SINK)
        assert lake.rows() == lake.written()
        lake.put(range(3))


@pytest.mark.parametrize("code", [BATCHES, MERGE], ids=["by ids", "by offset"])
def test_a_function_writes_a_repeated_micro_batch_once(lake: Lake, code: str) -> None:
    for _ in range(2):
        lake.fail_after_commit(code)
        assert lake.rows() == lake.written()  # The failure came after the table's commit.
        lake.run(code)
        assert lake.rows() == lake.written()
        lake.put(range(3))


def test_without_the_ids_a_repeated_micro_batch_is_in_the_table_twice(lake: Lake) -> None:
    plain = BATCHES.replace("batch_id > last", "True")
    plain = re.sub(r'\.option\("txn\w+", \w+\)', "", plain)
    assert plain != BATCHES
    lake.fail_after_commit(plain)
    lake.run(plain)
    assert lake.rows() == sorted(lake.written() * 2)


@pytest.mark.parametrize(("code", "times"), [(BATCHES, 2), (MERGE, 1)], ids=["by ids", "by offset"])
def test_a_query_without_its_checkpoint_writes_again(lake: Lake, code: str, times: int) -> None:
    lake.run(code)
    lake.begin_again()
    lake.run(code)
    assert lake.rows() == sorted(lake.written() * times)


@pytest.mark.parametrize(
    ("code", "partitions"), [(BATCHES, {0}), (MERGE, {0, 1})], ids=["by ids", "by offset"]
)
def test_a_second_write_in_a_micro_batch(lake: Lake, code: str, partitions: set[int]) -> None:
    def in_two_steps(function: Write) -> Write:
        def write(frame: "DataFrame", batch_id: int) -> None:
            for partition in (0, 1):
                function(frame.where(f"partition = {partition}"), batch_id)

        return write

    lake.run(code, in_two_steps)
    assert lake.rows() == [row for row in lake.written() if row[1] in partitions]


@pytest.mark.parametrize("code", [BATCHES, MERGE], ids=["by ids", "by offset"])
def test_two_queries_write_to_one_table(lake: Lake, topics: Topics, code: str) -> None:
    other = Lake(topics, lake.folder)
    other.table = lake.table
    other.begin_again()
    for each in (lake, other):
        each.fail_after_commit(code)
    for each in (other, lake):
        each.run(code)
    assert lake.rows() == sorted(lake.written() + other.written())


@pytest.mark.parametrize(
    ("code", "is_lost"), [(BATCHES, False), (MERGE, True)], ids=["by ids", "by offset"]
)
def test_a_topic_created_again_has_known_offsets(lake: Lake, code: str, is_lost: bool) -> None:
    lake.run(code)
    before = lake.written()
    lake.topics.delete(lake.topic)
    lake.topics.create(2, lake.topic)
    lake.put(range(10, 13))
    lake.begin_again()
    lake.run(code)
    assert lake.rows() == (before if is_lost else sorted(before + lake.written()))


if IS_ICEBERG:

    def test_an_expired_snapshot_does_not_name_its_micro_batch(lake: Lake) -> None:
        lake.fail_after_commit(BATCHES)
        lake.frame().limit(0).writeTo(lake.table).append()
        name = lake.table.removeprefix("lake.")
        expire = f"lake.system.expire_snapshots(table => '{name}', retain_last => 1"
        spark_session().sql(f"CALL {expire}, older_than => TIMESTAMP '2100-01-01')")
        lake.run(BATCHES)
        assert lake.rows() == sorted(lake.written() * 2)

else:

    def test_a_fixed_txn_app_id_loses_the_records_of_another_query(lake: Lake) -> None:
        code = BATCHES.replace('"txnAppId", query_id', '"txnAppId", "orders"')
        assert code != BATCHES
        lake.run(code)
        before = lake.written()
        lake.put(range(3))
        lake.begin_again()
        lake.run(code)
        assert lake.rows() == before

    def test_iceberg_on_its_spark() -> None:
        python = python_with(f"pyspark=={ICEBERGS_SPARK}", "--no-binary=pyspark")
        [site] = python.parents[1].glob("lib/python3*/site-packages")
        paths = [str(site), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        environment.pop("SPARK_HOME", None)
        # The tests' names are printed, and this test is left out: it would run itself again.
        command = [sys.executable, "-m", "pytest", "-rA", "-k", "not its_spark", __file__]
        ended = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout[-5000:]
        assert "::test_an_expired_snapshot_does_not_name_its_micro_batch" in ended.stdout
