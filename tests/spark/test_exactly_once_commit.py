"""The exactly-once sink of a stream, in Spark: its driver's comparisons, ends and refusals."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from pyspark_klog.client.admin.transaction_listing import ONGOING, list_transactions
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from tests.support.spark.topics import Topics, run

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery


@pytest.fixture
def client(topics: Topics) -> Iterator[BlockingClient]:
    with BlockingClient({"bootstrap.servers": topics.servers}) as client:
        yield client


class Copy:
    """A query that copies one topic to another exactly once."""

    def __init__(self, topics: Topics, checkpoint: Path, partitions: int = 2) -> None:
        self.topics = topics
        self.source, self.target = topics.create(partitions), topics.create(2)
        self.checkpoint = checkpoint
        self._next = 0

    def put(self, count: int = 20) -> None:
        """Records in both partitions."""
        for partition in range(2):
            numbers = range(self._next, self._next + count // 2)
            self.topics.put_numbers(self.source, numbers, partition)
            self._next += count // 2

    def start(self, source: dict[str, Any] | None = None, **options: Any) -> "StreamingQuery":
        frame = self.topics.stream(
            subscribe=self.source, startingOffsets="earliest", **(source or {})
        )
        frame = frame.select("key", "value")
        writer = frame.writeStream.format("klog").option("checkpointLocation", str(self.checkpoint))
        given = self.topics.options(**{"topic": self.target, "exactlyOnce": "true", **options})
        return writer.options(**given).trigger(availableNow=True).start()

    def run(self, source: dict[str, Any] | None = None, **options: Any) -> "StreamingQuery":
        return run(self.start(source, **options))

    @property
    def expected(self) -> list[int]:
        return list(range(self._next))

    @property
    def committed(self) -> list[int]:
        frame = self.topics.batch(subscribe=self.target, kafka__isolation__level="read_committed")
        rows = frame.selectExpr("int(string(value)) AS n").collect()
        return sorted(row.n for row in rows)

    def forget_last_commit(self) -> int:
        """Forget the last commit, as if the driver had died before Spark noted the micro-batch."""
        commits = self.checkpoint / "commits"
        last = max(int(each.name) for each in commits.iterdir() if each.name.isdigit())
        (commits / str(last)).unlink()
        with contextlib.suppress(FileNotFoundError):
            (commits / f".{last}.crc").unlink()
        return last


def test_a_micro_batch_that_is_split_otherwise_is_refused(topics: Topics, tmp_path: Path) -> None:
    """Fewer tasks than before, which find what they write now: the driver sees that there were
    more. As many as before: it goes on."""
    copy = Copy(topics, tmp_path)
    copy.put()
    copy.run({"minPartitions": 4})
    assert copy.committed == copy.expected
    copy.forget_last_commit()
    with pytest.raises(StreamingQueryException, match=r"cut into other tasks|and is repeated with"):
        copy.run()
    assert copy.committed == copy.expected
    copy.run({"minPartitions": 4})
    copy.put()
    copy.run()
    assert copy.committed == copy.expected


def test_exactly_once_on_an_older_checkpoint(
    topics: Topics, client: BlockingClient, tmp_path: Path
) -> None:
    """The batch may be written or not: it is refused, or an option lets the query go on. A refused
    batch leaves no open transaction: readers of committed records go on at once."""
    copy = Copy(topics, tmp_path)
    copy.put()
    copy.run(exactlyOnce="false")
    before = copy.committed
    copy.put()
    query = copy.start()
    with pytest.raises(StreamingQueryException) as refused:
        run(query)
    text = str(refused.value)
    assert "rows of 2 of 2 tasks are absent (task 0 has none either)" in text
    assert "set option exactlyOnceMissing=continue for one start" in text
    assert "Traceback" not in text
    ids = [each for each in list_transactions(client) if str(query.id) in each.transactional_id]
    assert len(ids) == 2
    assert not [each for each in ids if each.state == ONGOING]
    assert copy.committed == before
    copy.run(exactlyOnceMissing="continue")
    copy.put()
    copy.run()
    assert copy.committed == copy.expected


def test_copies_of_a_checkpoint_are_refused(topics: Topics, tmp_path: Path) -> None:
    """One has other rows in a micro-batch of the same number, or is at an older one."""
    copy = Copy(topics, tmp_path / "one")
    copy.put()
    copy.run()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    copy.put()
    copy.run()
    copy.put()
    copy.checkpoint = tmp_path / "two"
    with pytest.raises(StreamingQueryException, match="does not give the same rows again"):
        copy.run()
    copy.checkpoint = tmp_path / "one"
    copy.run()
    assert copy.committed == copy.expected
    copy.checkpoint = tmp_path / "two"
    with pytest.raises(StreamingQueryException, match="checkpoint was reset, or a copy"):
        copy.run()
    assert copy.committed == copy.expected
