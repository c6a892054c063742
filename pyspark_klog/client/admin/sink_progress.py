"""The progress that an exactly-once sink of Spark stores on brokers: ids and positions. Pure.

A task's transactional id is also the id of its group: ``<prefix>.<query id>.<name>.<index>``. The
id has the task's index and not the worker's name, because a repeated attempt of a task, which may
run in another worker, must fence the earlier attempt. Each task has its own group, because a group
has only one position in a partition: tasks that shared a group would overwrite each other's
positions.

A position is an offset that such a group, or the sink's group for run marks, has committed for
partition 0 of a topic (option exactlyOnceTopic, or the sink's topic): the offset is the number of a
micro-batch, the metadata is text. `pyspark_klog/spark/sink/exactly_once` writes these positions.
Tools use this module to tell them from the positions of consumers.
"""

from collections.abc import Mapping
from typing import NamedTuple

from pyspark_klog.client.group_offsets import CommittedOffset
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition

_RUN = "run"
_ROW = "klog-sink 1 "
_MARK = "klog-sink-run 1 "
_HASH_DIGITS = 32
_LONG_MAX = 2**63 - 1
_PAST_RUNS = 20


class SinkId(NamedTuple):
    """Identifies an exactly-once sink of a streaming query, or of a batch write."""

    prefix: str
    """The user's prefix for transactional ids; may contain dots."""
    query_id: str
    """The id of the streaming query (from its checkpoint, or option exactlyOnceQuery), or a random
    id of a batch write; must not contain dots."""
    name: str
    """Distinguishes the sinks of one query; must not contain dots."""

    def task(self, index: int) -> str:
        """The transactional id of the task with this index (the id of Spark's partition), which is
        also the id of the consumer group in which the task stores its progress."""
        return f"{self.stem}.{index}"

    @property
    def mark(self) -> str:
        """The id of the consumer group in which the sink stores run marks. A run mark says which
        run of the query (one start of it) was the last one to begin committing."""
        return f"{self.stem}.{_RUN}"

    @property
    def stem(self) -> str:
        """The common beginning of the sink's transactional ids and group ids, without the dot."""
        for what, part in (("query id", self.query_id), ("name", self.name)):
            if not part or "." in part:
                raise ValueError(f"the {what} of a sink is {part!r}; expected text without dots")
        if not self.prefix:
            raise ValueError("the prefix of a sink's ids is empty")
        return f"{self.prefix}.{self.query_id}.{self.name}"


def parse_sink_id(group_id: str) -> tuple[SinkId, int | None] | None:
    """The sink and the task of a transactional id or group id. The task is None for the group in
    which the sink stores its `RunMark`; the result is None for an id that no sink can have.

    Another program's id that also ends in ``.<text>.<text>.<number>``, or with ``run`` as its last
    part, is parsed as a sink's id; only the metadata of the group's committed offset shows that the
    group is not a sink's.
    """
    parts = group_id.rsplit(".", 3)
    if len(parts) != 4 or not all(parts):
        return None
    *stem, last = parts
    sink = SinkId(*stem)
    if last == _RUN:
        return sink, None
    if not (last.isascii() and last.isdigit()) or str(int(last)) != last:
        return None
    return sink, int(last)


class ForeignProgress(KlogError):
    """An offset that was committed in an exactly-once sink's group has metadata that klog's sink
    did not write, or that a newer version of klog wrote."""


class ProgressRow(NamedTuple):
    """A sink task's progress in a micro-batch: an offset with metadata. The transaction that
    has the task's records also commits this offset."""

    batch_id: int
    run_id: str
    """Identifies the run of the query (one start of it) in which the task wrote its rows: Spark's
    runId, unless Spark does not show it or a batch is written again; without spaces."""
    row_count: int
    """The number of rows that the task received, including those that it wrote to the dead-letter
    topic."""
    byte_count: int
    row_hash: int
    """The 128-bit hash of the rows that the task received (`RowHash.value`)."""
    time_ms: int
    """When the task made this record of its progress, by the clock of the task's host."""
    producer_id: int = -1
    next_epoch: int = -1
    """``producer_id`` and ``next_epoch``: the identity that the next producer with the
    transactional id gets, unless yet another producer takes the id in between."""

    def to_offset(self) -> CommittedOffset:
        """The task's progress as an offset to commit in the task's consumer group: the batch's
        number is the offset, the other fields are the metadata."""
        _check_run(self.run_id)
        digits = f"{self.row_hash:0{_HASH_DIGITS}x}"
        text = f"{self.run_id} {self.row_count} {self.byte_count} {digits} {self.time_ms}"
        text += f" {self.producer_id} {self.next_epoch}"
        return CommittedOffset(self.batch_id, metadata=_ROW + text)

    @classmethod
    def from_offset(cls, position: CommittedOffset) -> "ProgressRow":
        """Parse the metadata of a committed offset as a progress row (a sink task's progress).

        :raises ForeignProgress: if the metadata is not a progress row in the format of `to_offset`
        """
        text = position.metadata
        words = text.removeprefix(_ROW).split(" ")
        try:
            if not text.startswith(_ROW):
                raise ValueError(text)
            run_id, row_count, byte_count, digits, time_ms, producer_id, next_epoch = words
            row = cls(
                position.offset,
                run_id,
                _number(row_count),
                _number(byte_count),
                int(digits, 16),
                _number(time_ms),
                int(producer_id),
                int(next_epoch),
            )
            if row.to_offset() != position._replace(leader_epoch=-1):
                raise ValueError(text)
        except ValueError:
            raise ForeignProgress(_foreign(position, _ROW)) from None
        return row


class RunMark(NamedTuple):
    """Records that a run of the query (one start of it) commits its first micro-batch, or that a
    batch write has ended.

    The driver stores a run's mark before it commits that batch's transactions. An earlier run that
    was stopped may have committed tasks of the same batch, but none of a later batch. So if a task
    of a later batch was committed by another run, a copy of the query runs at the same time.
    """

    batch_id: int
    """The number of the first micro-batch that this run of the query commits."""
    run_id: str
    time_ms: int
    """When the driver made this run mark, by the clock of the driver's host. The mark of a run that
    repeats the previous mark's micro-batch keeps the previous mark's time."""
    earlier_run_ids: tuple[str, ...] = ()
    """The ids of earlier runs, at most 20, newest first. A run that finds its own id here must not
    write any more: a newer run, or a copy of the query, has begun."""

    def to_offset(self) -> CommittedOffset:
        """The run mark as an offset to commit in the consumer group `SinkId.mark`: the batch's
        number is the offset, the other fields are the metadata."""
        runs = (self.run_id, *self.earlier_run_ids)
        for run_id in runs:
            _check_run(run_id)
        return CommittedOffset(self.batch_id, metadata=f"{_MARK}{self.time_ms} {' '.join(runs)}")

    @classmethod
    def from_offset(cls, position: CommittedOffset) -> "RunMark":
        """Parse the metadata of a committed offset as a run mark.

        :raises ForeignProgress: if the metadata is not a run mark in the format of `to_offset`
        """
        time_ms, *runs = position.metadata.removeprefix(_MARK).split(" ")
        try:
            if not position.metadata.startswith(_MARK) or not runs or not all(runs):
                raise ValueError(runs)
            return cls(position.offset, runs[0], _number(time_ms), tuple(runs[1:]))
        except ValueError:
            raise ForeignProgress(_foreign(position, _MARK)) from None

    @classmethod
    def next_mark(
        cls, last: "RunMark | None", batch_id: int, run_id: str, time_ms: int
    ) -> "RunMark":
        """The mark of run ``run_id`` of a query. ``last`` is the mark of the run before it, or None
        for the first run. The new mark has the ids of the newest 20 earlier runs."""
        past = () if last is None else (last.run_id, *last.earlier_run_ids)
        return cls(batch_id, run_id, time_ms, tuple(r for r in past if r != run_id)[:_PAST_RUNS])


class SinkGroup(NamedTuple):
    """A consumer group of an exactly-once sink, with its committed offsets by partition: either
    the progress of one task (``rows``), or marks of the query's runs (``marks``)."""

    group_id: str
    sink: SinkId
    task: int | None
    """The index of the task whose progress the group has; None for the group with run marks."""
    rows: Mapping[TopicPartition, ProgressRow]
    """The task's progress. Empty for the group with run marks, and until the task's first
    transaction is committed."""
    marks: Mapping[TopicPartition, RunMark]


def parse_sink_group(
    group_id: str, positions: Mapping[TopicPartition, CommittedOffset]
) -> SinkGroup | None:
    """Recognize an exactly-once sink's group by its id and its committed offsets (``positions``).
    Returns None if the group is another program's, or a newer klog has written its offsets.

    The id alone is not enough: the metadata of every committed offset must be a sink's as well (a
    task's progress, or the mark of a run).
    """
    known = parse_sink_id(group_id)
    if known is None:
        return None
    rows, marks = {}, {}
    try:
        for partition, position in sorted(positions.items()):
            if known[1] is None:
                marks[partition] = RunMark.from_offset(position)
            else:
                rows[partition] = ProgressRow.from_offset(position)
    except ForeignProgress:
        return None
    return SinkGroup(group_id, *known, rows, marks)


def _number(text: str) -> int:
    number = int(text)
    if not 0 <= number <= _LONG_MAX:
        raise ValueError(text)
    return number


def _check_run(run_id: str) -> None:
    if not run_id or " " in run_id:
        raise ValueError(f"the id of a query's run is {run_id!r}; expected text without spaces")


def _foreign(position: CommittedOffset, begin: str) -> str:
    return (
        f"a position of the sink is {position.offset} with metadata {position.metadata[:200]!r}; "
        f"expected metadata that begins {begin!r}: another program commits to this group, or a "
        "newer klog did"
    )
