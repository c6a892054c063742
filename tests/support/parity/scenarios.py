"""One scenario on every engine: klog's source and sink, and Spark's own Kafka connector.

A test of a row of `parity/rows.py` takes the fixture `parity` and writes its scenario once::

    @pytest.mark.parity("source option: assign")
    def test_assign(parity):
        topic = parity.topics.create(2)
        parity.topics.put_numbers(topic, range(3), partition=1)
        found = parity.same(lambda engine: engine.batch(assign=f'{{"{topic}":[1]}}'))
        assert found.count() == 3

In `./dev test` the engines are klog alone, on klog's broker; in `./dev peers parity` klog and the
peer, both on Apache Kafka. Topics made outside of the scenario (`parity.topics`) are shared by the
engines, so a source's rows are equal to the topic's name. Topics made within it
(`engine.topics.create()`) belong to that engine: their names in a column of strings are replaced
by `topic-1`, `topic-2`, ... in the order of their making, before frames are compared and returned.
"""

import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from chispa.dataframe_comparer import assert_df_equality

from tests.support.eventually import eventually
from tests.support.parity.peer_failures import PeerFailures
from tests.support.spark.session import spark_session
from tests.support.spark.topics import Topics, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.types import StructType

Scenario = Callable[["Engine"], "DataFrame"]

_DEADLINE_S = 120.0


class ScenarioTopics(Topics):
    """Topics that remember which of them they made."""

    def __init__(self, servers: str) -> None:
        super().__init__(servers)
        self.made: list[str] = []

    def create(self, partitions: int = 1, name: str | None = None) -> str:
        """A new topic that keeps records of any age."""
        topic = super().create(partitions, name)
        self.made.append(topic)
        return topic


class Collected:
    """A running query whose rows are collected, batch by batch, in order."""

    def __init__(self) -> None:
        self.query: StreamingQuery | None = None
        self._lock = threading.Lock()
        self._batches: dict[int, list[Row]] = {}

    def add(self, frame: "DataFrame", batch_id: int) -> None:
        """Collect a batch for foreachBatch; a batch that runs again replaces its first run."""
        rows = frame.collect()
        with self._lock:
            self._batches[batch_id] = rows

    def rows(self) -> list["Row"]:
        """All rows so far."""
        with self._lock:
            return [row for number in sorted(self._batches) for row in self._batches[number]]

    def sizes(self) -> list[int]:
        """Rows of each batch that had any, in order."""
        with self._lock:
            sizes = [len(self._batches[number]) for number in sorted(self._batches)]
        return [size for size in sizes if size]

    def wait_for(self, count: int, deadline_s: float = _DEADLINE_S) -> list["Row"]:
        """The rows, once there are ``count``; raises what the query failed with."""

        def there() -> bool:
            failed = self.query.exception()
            if failed is not None:
                raise failed
            return len(self.rows()) >= count

        eventually(there, deadline_s=deadline_s, what=f"{count} rows")
        return self.rows()

    def wait_failed(self, deadline_s: float = _DEADLINE_S) -> Exception:
        """Wait until the query has failed and return its error."""
        return eventually(self.query.exception, deadline_s=deadline_s, what="the query failing")

    def stop(self) -> None:
        """Stop the query; a second call is fine."""
        if self.query is not None:
            self.query.stop()


class Engine:
    """A connector on one broker. Option names take `__` for a dot."""

    def __init__(self, name: str, topics: ScenarioTopics) -> None:
        self.format = name
        self.topics = topics

    @property
    def is_peer(self) -> bool:
        """Is it Spark's own connector?"""
        return self.format == "kafka"

    @property
    def spark(self) -> "SparkSession":
        """The session of this process."""
        return spark_session()

    def options(self, **options: Any) -> dict[str, str]:
        """Options as Spark takes them, with the broker's address unless given."""
        return self.topics.options(**options)

    def batch(self, **options: Any) -> "DataFrame":
        """The batch source."""
        return self.spark.read.format(self.format).options(**self.options(**options)).load()

    def stream(self, **options: Any) -> "DataFrame":
        """The stream source."""
        return self.spark.readStream.format(self.format).options(**self.options(**options)).load()

    def append(self, frame: "DataFrame", *, mode: str | None = "append", **options: Any) -> None:
        """The batch sink."""
        writer = frame.write.format(self.format).options(**self.options(**options))
        if mode is not None:
            writer = writer.mode(mode)
        writer.save()

    def append_stream(
        self,
        frame: "DataFrame",
        checkpoint: Any,
        *,
        output_mode: str = "append",
        trigger: dict[str, Any] | None = None,
        **options: Any,
    ) -> "StreamingQuery":
        """The stream sink, started (AvailableNow unless ``trigger`` says otherwise)."""
        return (
            frame.writeStream.format(self.format)
            .outputMode(output_mode)
            .options(**self.options(**options))
            .option("checkpointLocation", self.checkpoint(checkpoint))
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )

    def start(self, frame: "DataFrame", checkpoint: Any, **trigger: Any) -> Collected:
        """A stream that collects its rows (ProcessingTime of 0 unless ``trigger`` says)."""
        collected = Collected()
        collected.query = (
            frame.writeStream.foreachBatch(collected.add)
            .option("checkpointLocation", self.checkpoint(checkpoint))
            .trigger(**(trigger or {"processingTime": "0 seconds"}))
            .start()
        )
        return collected

    def collected(self, frame: "DataFrame", checkpoint: Any, **trigger: Any) -> Collected:
        """A stream run to its end, AvailableNow unless ``trigger`` says otherwise."""
        collected = self.start(frame, checkpoint, **(trigger or {"availableNow": True}))
        try:
            if "processingTime" in trigger:
                collected.query.processAllAvailable()
            else:
                run(collected.query)
        finally:
            collected.stop()
        return collected

    def drain(self, frame: "DataFrame", checkpoint: Any, **trigger: Any) -> "DataFrame":
        """All rows of a stream that is run to its end, AvailableNow unless ``trigger`` says."""
        return self.frame(self.collected(frame, checkpoint, **trigger).rows(), frame.schema)

    def batch_sizes(self, frame: "DataFrame", checkpoint: Any, **trigger: Any) -> "DataFrame":
        """Rows (batch int, rows int) of the batches with records, counted from 1."""
        sizes = self.collected(frame, checkpoint, **trigger).sizes()
        return self.spark.createDataFrame(list(enumerate(sizes, 1)), "batch int, rows int")

    def frame(self, rows: Sequence[Any], schema: "StructType | str") -> "DataFrame":
        """A frame of these rows, which no longer depends on a source.

        Spark reads a frame that was made from Arrow without a job. A frame that was made from
        rows costs a job with two Python workers each time that it is read.
        """
        from pyspark.sql.types import StructType

        try:
            from pyspark.sql.conversion import LocalDataToArrowConversion
        except ImportError:  # Spark 4.0
            return self.spark.createDataFrame(list(rows), schema)
        if not rows:
            return self.spark.createDataFrame([], schema)
        struct = schema if isinstance(schema, StructType) else StructType.fromDDL(schema)
        assert isinstance(struct, StructType)
        table = LocalDataToArrowConversion.convert(list(rows), struct, False)
        return self.spark.createDataFrame(table, struct)

    def checkpoint(self, folder: Any) -> str:
        """The engine's own folder of a checkpoint: two engines never share one."""
        return f"{folder}/{self.format}"


class Parity:
    """Runs scenarios on every engine and holds their results against each other."""

    def __init__(self, servers: str, *, with_peer: bool, test: str = "") -> None:
        self.servers = servers
        self._expected = PeerFailures(test)
        self.topics = Topics(servers)
        self.has_peer = with_peer
        self.peer_results: list[str] = []
        """The peer's outcome of each scenario: `same`, `fails too`, `differs`."""
        self._opened: list[Topics] = [self.topics]

    def close(self) -> None:
        """Close the connections."""
        for topics in self._opened:
            topics.close()

    @property
    def spark(self) -> "SparkSession":
        """The session of this process."""
        return spark_session()

    def same(self, scenario: Scenario) -> "DataFrame":
        """klog's frame, after the peer (where there is one) gave the same schema and rows.

        Neither nullability nor the order of rows counts.
        """
        klog = self._run("klog", scenario)
        if self.has_peer:
            peer = self._run("kafka", scenario)
            assert_df_equality(
                klog, peer, ignore_nullable=True, ignore_row_order=True, ignore_metadata=True
            )
            self.peer_results.append("same")
        return klog

    def same_numbers(self, frames: Callable[[Engine], Sequence["DataFrame"]]) -> list[list[int]]:
        """The column n of each of several frames, sorted: one query reads all of them."""
        counts: list[int] = []

        def scenario(engine: Engine) -> "DataFrame":
            made = [
                frame.selectExpr("*", f"{k} AS frame") for k, frame in enumerate(frames(engine))
            ]
            counts.append(len(made))
            return functools.reduce(lambda whole, frame: whole.unionAll(frame), made)

        rows = self.same(scenario).collect()
        return [sorted(row.n for row in rows if row.frame == k) for k in range(counts[0])]

    def same_failure(self, scenario: Scenario, klog_text: str) -> str:
        """klog's text, after every engine failed: at load, at planning or while it ran.

        Why the peer fails must be what tests/golden/peer_failures.json says of this test.
        """
        text = str(self._error("klog", scenario))
        assert klog_text in text, text
        if self.has_peer:
            self._expected.check(self._error("kafka", scenario))
            self.peer_results.append("fails too")
        return text

    def klog_only(self, scenario: Scenario) -> "DataFrame":
        """klog's frame, where the peer does something else (name it in the marker)."""
        if self.has_peer:
            self.peer_results.append("differs")
        return self._run("klog", scenario)

    def peer_only(self, scenario: Scenario) -> "DataFrame | None":
        """The peer's frame, to assert what it does instead; None where there is no peer."""
        return self._run("kafka", scenario) if self.has_peer else None

    def engine(self, name: str = "klog") -> Engine:
        """Return an engine for code outside of a scenario; its topics are those of the test."""
        made = Engine(name, ScenarioTopics(self.servers))
        self._opened.append(made.topics)
        return made

    def failure(self, engine: str, scenario: Scenario) -> str:
        """The text with which a scenario fails on an engine."""
        return str(self._error(engine, scenario))

    def _error(self, engine: str, scenario: Scenario) -> Exception:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            found = self._run(engine, scenario)
        except (PySparkException, Py4JJavaError) as error:
            return error
        raise AssertionError(f"{engine} did not fail: {found.limit(10).collect()}")

    def _run(self, name: str, scenario: Scenario) -> "DataFrame":
        """Return one engine's frame, read once and cached, with its topics' names replaced."""
        engine = self.engine(name)
        frame = scenario(engine)
        places = {topic: f"topic-{number}" for number, topic in enumerate(engine.topics.made, 1)}
        rows = [
            tuple(places.get(v, v) if isinstance(v, str) else v for v in row)
            for row in frame.collect()
        ]
        return engine.frame(rows, frame.schema)
