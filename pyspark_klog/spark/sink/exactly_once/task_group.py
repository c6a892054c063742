"""Decides whether a task of the sink writes its rows, from offsets that consumer groups have
committed: the task's progress row names the batch that the task wrote last, and the sink's
`RunMark` names the last run (start) of the query that began to commit a batch."""

from collections.abc import Callable

from pyspark_klog.client.admin.groups import committed_offsets
from pyspark_klog.client.admin.sink_progress import ForeignProgress, ProgressRow, RunMark
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.sink.exactly_once.attempt import Task
from pyspark_klog.spark.sink.exactly_once.decisions import (
    Fail,
    Verify,
    Write,
    decide_task,
    needs_mark,
    refuse_row_elsewhere,
)
from pyspark_klog.spark.sink.exactly_once.errors import ExactlyOnceRefused


class TaskGroup:
    """Reads the offsets that the consumer group of a task has committed: its progress rows."""

    def __init__(self, client: BlockingClient, task: Task) -> None:
        self._client = client
        self._task = task
        self.partition = TopicPartition(task.topic, 0)

    def row(
        self, *, stable: bool, while_unstable: Callable[[], None] | None = None
    ) -> ProgressRow | None:
        """The task's progress row: the offset that its consumer group has committed for the sink's
        topic. With ``stable`` the call waits until a transaction with a newer progress row, if any,
        has ended.

        Only an attempt that has the transactional id may wait. Another attempt could wait too long:
        until a dead attempt's transaction times out, or until the driver commits a transaction that
        was left to it.
        ``while_unstable`` is called before each wait, and may raise.

        :raises ExactlyOnceRefused: if the group has committed an offset of this batch or a later
            one for another topic, or an offset that this release cannot read as a progress row
        """
        client, group = self._client, self._task.transactional_id
        positions = committed_offsets(
            client, group, require_stable=stable, while_unstable=while_unstable
        )
        if stable and self.partition not in positions:
            # OffsetFetch for all partitions leaves out partitions without a committed offset, and
            # does not wait for a transaction that commits their first one: name the partition.
            positions |= committed_offsets(
                client,
                group,
                [self.partition],
                require_stable=True,
                while_unstable=while_unstable,
            )
        try:
            rows = {at.topic: ProgressRow.from_offset(each) for at, each in positions.items()}
        except ForeignProgress as error:
            raise ExactlyOnceRefused(f"group {group}: {error}") from None
        refusal = refuse_row_elsewhere(rows, self._task.topic, self._task.now)
        if refusal is not None:
            raise ExactlyOnceRefused(refusal.error)
        return rows.get(self._task.topic)

    def mark(self) -> RunMark | None:
        """The sink's `RunMark`, which names the last run (start) of the query that began to commit;
        None if none is stored for the task's topic."""
        group = self._task.sink.mark
        position = committed_offsets(self._client, group, [self.partition]).get(self.partition)
        try:
            return None if position is None else RunMark.from_offset(position)
        except ForeignProgress as error:
            raise ExactlyOnceRefused(f"group {group}: {error}") from None

    def decide(self, row: ProgressRow | None) -> Verify | Write:
        """Decide what a task does if ``row`` is its progress row, the committed offset that says
        what the task wrote last (None: there is none).

        :raises ExactlyOnceRefused: if the task has to fail
        """
        now = self._task.now
        decision = decide_task(row, now, self.mark() if needs_mark(row, now) else None)
        if isinstance(decision, Fail):
            raise ExactlyOnceRefused(decision.error)
        return decision
