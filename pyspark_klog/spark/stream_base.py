"""What the stream source's two classes share: starts, ends, ranges, and what counts as loss.

Made in several processes and pickled: it connects when it is used.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_klog.client.errors import TopicMissing
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import UUID, TopicPartition
from pyspark_klog.spark.clients import exit_on_sigterm
from pyspark_klog.spark.errors import DataLost
from pyspark_klog.spark.failures import one_line, one_line_in_rows
from pyspark_klog.spark.offsets import Offsets, as_json, from_json_dict, to_json_dict
from pyspark_klog.spark.options import Options
from pyspark_klog.spark.prompt import Prompt
from pyspark_klog.spark.ranges import OffsetRange, plan
from pyspark_klog.spark.reader import RangePartition, tasks
from pyspark_klog.spark.rows import HOW_TO_GO_ON, NEW_CHECKPOINT, RangeReader

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from pyspark_klog.client.blocking import BlockingClient
    from pyspark_klog.spark.discovery import Discovery
    from pyspark_klog.spark.group_commit import GroupCommitter

_log = logging.getLogger(__name__)

JsonOffsets = dict[str, dict[str, int]]

_DISCOVERY_AGE_MS = 500
"""New partitions are looked for this often; between that, only ends are asked for."""


class StreamReaderBase(Prompt, DataSourceStreamReader):
    """All but latestOffset.

    `{}` as a start has two meanings. From `initialOffset` it says that the start could still move:
    the first latestOffset resolves it and gives it as the end of an empty batch, so that it is
    durable before anything is read. Once `{}` is itself the durable end of a batch (nothing matched
    the pattern), it says that every partition is new.

    The ids of topics are kept as long as the query runs, since the checkpoint has names alone
    (docs/decisions/0020): they tell a topic from a later one of the same name.
    """

    def __init__(self, options: Options, refusal: KlogError | None) -> None:
        """``refusal`` is raised at the first use: raised here, Spark would hide it."""
        self._options = options
        self._refusal = refusal
        self._client: BlockingClient | None = None
        self._discovery: Discovery | None = None
        self._initial: JsonOffsets | None = None
        self._is_durable = False
        self._first_until: Offsets | None = None
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._discovered_ms: int | None = None
        self._latest: Offsets = {}
        self._topic_ids: dict[str, UUID] = {}
        """Of the topics to which the query's offsets belong."""
        self._begun_anew: Offsets = {}
        """Where reading began in topics that were made again during the query."""
        self._warned: set[str] = set()
        self._group: GroupCommitter | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._options, self._refusal), {}

    # --- what Spark calls ------------------------------------------------------------------------
    @one_line
    def initialOffset(self) -> JsonOffsets:  # noqa: N802
        """Where a new query begins; `{}` if that could move until the first batch is durable."""
        self._begin()
        if self._initial is None:
            movable = self._options.start_can_move
            self._initial = {} if movable else to_json_dict(self._resolve_start())
        return self._initial

    @one_line
    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
        """The ranges of one micro-batch, which may be one that was planned before a restart."""
        discovery = self._begin()
        begin = from_json_dict(start, "the start of the batch in the checkpoint")
        until = from_json_dict(end, "the end of the batch in the checkpoint")
        # A query that has the same relation twice (a self-union) plans each batch twice.
        is_first = not begin and (not self._has_durable_start() or until == self._first_until)
        if is_first:
            self._first_until = until.copy()
        self._is_durable = True
        if is_first and self._options.start_can_move:
            # The batch that only made the start durable.
            return []
        self._existing(until.keys())
        self._leave_out_new_topics(begin, until)
        for partition in (begin.keys() - until.keys()) & self._existing():
            # A first batch that is planned again: its start was resolved again, and what has come
            # since its end was written belongs to the next batch.
            del begin[partition]
        for partition in sorted(until.keys() - self._existing()):
            text = f"it was to be read up to offset {until[partition]}"
            self._report(discovery.absence(partition, text))
            del until[partition]
            begin.pop(partition, None)
        ranges = self._planned(begin, until, discovery.earliest(until.keys() - begin.keys()))
        return tasks(ranges, self._options, self._topic_ids)

    @one_line_in_rows
    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        """The records of one range, in a task."""
        assert isinstance(partition, RangePartition)
        return RangeReader(self._options, partition.topic_id).read(partition.offsets)

    def commit(self, end: JsonOffsets) -> None:
        """Spark's checkpoint has the progress; there is nothing more to do."""

    def stop(self) -> None:
        """Close the connections. The group gets the last position."""
        if self._group is not None:
            self._group.close()
            self._group = None
        if self._client is not None:
            self._client.close()
            self._client = self._discovery = None

    # --- inside ----------------------------------------------------------------------------------
    def _begin(self) -> "Discovery":
        if self._refusal is not None:
            raise self._refusal
        if self._discovery is None:
            from pyspark_klog.client.blocking import BlockingClient
            from pyspark_klog.spark.discovery import Discovery

            exit_on_sigterm()
            self._client = BlockingClient(self._options.client)
            self._discovery = Discovery(self._client, self._options)
        return self._discovery

    def _report_position(self, position: Offsets) -> None:
        """Spark has committed this position: a consumer group may follow. It never fails."""
        group_id = self._options.commit_group_id
        if group_id is None:
            return
        if self._group is None:
            from pyspark_klog.spark.group_commit import GroupCommitter

            self._group = GroupCommitter(self._options.client, group_id)
        # A coordinator refuses partitions that are gone.
        self._group.report({p: o for p, o in position.items() if p in self._partitions})

    def _report(self, text: str, how: str = HOW_TO_GO_ON) -> None:
        """Some data are lost: fail, and say how to go on, or warn once of the same thing."""
        if self._options.fail_on_data_loss:
            raise DataLost(f"{text}; {how}")
        if text not in self._warned:
            self._warned.add(text)
            _log.warning("some data may have been lost: %s", text)

    def _has_durable_start(self) -> bool:
        """Whether a start is in the checkpoint: then Spark does not ask for the initial one."""
        return self._is_durable or self._initial is None

    def _resolve_start(self) -> Offsets:
        """What the starting options of a new query mean now."""
        from pyspark_klog.spark.starting import resolve_start

        discovery = self._begin()
        partitions = discovery.partitions()
        self._topic_ids |= discovery.topic_ids({p.topic for p in partitions})
        return resolve_start(discovery, self._options, partitions)

    def _existing(
        self, known: Collection[TopicPartition] | None = None, *, anew: bool = False
    ) -> frozenset[TopicPartition]:
        """The partitions that exist, as of a moment ago; those that were there the last time (at
        first: ``known`` ones) are not believed to be gone at once."""
        discovery = self._begin()
        assert self._client is not None
        now_ms = self._client.now_ms()
        age_ms = None if self._discovered_ms is None else now_ms - self._discovered_ms
        if anew or age_ms is None or age_ms >= _DISCOVERY_AGE_MS:
            last = known if self._discovered_ms is None else self._partitions
            self._partitions = discovery.existing_partitions(last)
            self._discovered_ms = now_ms
            found = discovery.topic_ids({p.topic for p in self._partitions})
            self._topic_ids = found | self._topic_ids
        return self._partitions

    def _ends(self, start: Offsets) -> Offsets:
        """The end of every partition that `_after_deletions` has found."""
        discovery = self._begin()
        try:
            self._latest = discovery.latest(self._partitions, start)
        except TopicMissing:
            self._latest = discovery.latest(self._existing(anew=True), start)
        return self._latest

    def _checked(self, start: Offsets, ends: Offsets) -> Offsets:
        """``start`` with the partitions that are new, for ``ends`` to be read up to.

        Reports what is lost before it becomes durable.
        """
        first_of_new = self._begin().earliest(ends.keys() - start.keys())
        self._planned(start, ends, first_of_new)
        return start | first_of_new

    def _planned(self, start: Offsets, end: Offsets, first_of_new: Offsets) -> list[OffsetRange]:
        """The ranges between the two, after a report of what is lost."""
        found = plan(start, end, first_of_new)
        for partition in found.absent:
            text = f"it was read up to offset {start[partition]}"
            self._report(self._begin().absence(partition, text))
        for text in found.lost:
            self._report(text)
        return found.ranges

    # --- topics that were deleted and made again -------------------------------------------------
    def _made_again(self, partitions: Iterable[TopicPartition]) -> Mapping[str, UUID]:
        """The topics of these partitions that are others now, with their new ids."""
        topics = {p.topic for p in partitions} & self._topic_ids.keys()
        return self._begin().made_again({t: self._topic_ids[t] for t in topics})

    def _after_deletions(self, position: Offsets) -> Offsets:
        """``position``, with topics that were made again at their first offsets. Reports them.

        As the end of a batch in which nothing of them is read, that is durable.
        """
        discovery = self._begin()
        there = self._existing(position.keys() or None)
        again = self._made_again(position)
        others = {p.topic for p in there} - {p.topic for p in position}
        self._topic_ids |= discovery.topic_ids(others)
        if again:
            self._report_made_again(position, again, "; the new one is read from its beginning")
            of_new = [p for p in self._existing(anew=True) & position.keys() if p.topic in again]
            self._begun_anew = {}
            with suppress(TopicMissing):
                self._begun_anew = discovery.earliest(of_new)
            position = {p: o for p, o in position.items() if p.topic not in again}
            position |= self._begun_anew
            self._topic_ids |= again
        return position

    def _leave_out_new_topics(self, begin: Offsets, until: Offsets) -> None:
        """Take out what a planned batch cannot read of topics that were made again.

        That is a batch of `_after_deletions`, or the topic is a new one since the end was found.
        """
        again = self._made_again(until)
        if again:
            self._report_made_again(until, again)
        for partition, offset in list(until.items()):
            if partition.topic in again or self._begun_anew.get(partition) == offset:
                del until[partition]
                begin.pop(partition, None)

    def _report_made_again(
        self, position: Offsets, again: Mapping[str, UUID], instead: str = ""
    ) -> None:
        for topic, topic_id in sorted(again.items()):
            of_old = {p: offset for p, offset in position.items() if p.topic == topic}
            text = (
                f"topic {topic} was deleted and made again (its id was {self._topic_ids[topic]}, "
                f"and is {topic_id} now), and the query has offsets of the old one: "
                f"{as_json(of_old)}"
            )
            if not self._options.fail_on_data_loss:
                text += instead
            self._report(text, NEW_CHECKPOINT)
