"""The base of the stream source's two classes: the query's start, the partitions' ends, the ranges
of a micro-batch, and reports of lost data.

Readers are made in several processes and pickled, so they connect only when they are first used.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_klog.client.errors import TopicMissing
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import UUID, TopicPartition
from pyspark_klog.spark.errors import NEW_CHECKPOINT, DataLost
from pyspark_klog.spark.offsets import Offsets, as_json, from_json_dict, to_json_dict
from pyspark_klog.spark.options.bounds import numbers_of
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.planning.losses import Loss, start_beyond_end
from pyspark_klog.spark.planning.open_transactions import HOW_TO_WAIT
from pyspark_klog.spark.planning.ranges import OffsetRange, plan
from pyspark_klog.spark.source.reader import RangePartition, tasks
from pyspark_klog.spark.source.rows import RangeReader
from pyspark_klog.spark.workers.clients import exit_on_sigterm
from pyspark_klog.spark.workers.error_display import one_line, one_line_in_rows
from pyspark_klog.spark.workers.tcp_acknowledgement import Prompt

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from pyspark_klog.client.cluster.blocking_client import BlockingClient
    from pyspark_klog.spark.planning.discovery import Discovery
    from pyspark_klog.spark.progress.group_commit import GroupCommitter

_log = logging.getLogger(__name__)

JsonOffsets = dict[str, dict[str, int]]

_DISCOVERY_AGE_MS = 500
"""How long the reader usually uses its list of partitions before it asks brokers for new ones.
Until then it needs only the end offsets of the listed partitions, unless a topic is missing."""


class StreamReaderBase(Prompt, DataSourceStreamReader):
    """All methods of a stream reader except latestOffset.

    `{}` as a start has two meanings. From `initialOffset` it means that the start has no offsets
    yet, because they could change, as with "latest". Then the first latestOffset resolves the start
    and returns it as the end of an empty batch, so that the start is in the checkpoint before
    anything is read. But if `{}` is the end of a batch in the checkpoint, because no topic matched
    option subscribePattern, it means that every partition is new.

    The reader remembers the ids of topics as long as the query runs, since the checkpoint has only
    names (docs/decisions/0020): ids distinguish a topic from a later one of the same name.
    """

    def __init__(self, options: Options, refusal: KlogError | None) -> None:
        """``refusal``, an error about the options or the schema, is raised when the reader is first
        used: Spark would hide an error that a constructor raises."""
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
        """The ids of the topics to which the query's offsets belong."""
        self._recreated_starts: Offsets = {}
        """The first offsets of the topics that `_after_deletions` last found created again."""
        self._warned: set[str] = set()
        self._group: GroupCommitter | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._options, self._refusal), {}

    # --- methods that Spark calls ----------------------------------------------------------------
    @one_line
    def initialOffset(self) -> JsonOffsets:  # noqa: N802
        """The start of a new query; `{}` if the start could change, as "latest" does, before the
        checkpoint has it."""
        self._begin()
        if self._initial is None:
            movable = self._options.start_can_move
            self._initial = {} if movable else to_json_dict(self._resolve_start())
        return self._initial

    @one_line
    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
        """The ranges of one micro-batch, which may have been planned before a restart."""
        discovery = self._begin()
        begin = from_json_dict(start, "the start of the batch in the checkpoint")
        until = from_json_dict(end, "the end of the batch in the checkpoint")
        # If a query has the same relation twice (a self-union), Spark calls this method twice for
        # each batch. The second call for the first batch has the same end as the first call.
        is_first = not begin and (not self._has_durable_start() or until == self._first_until)
        if is_first:
            self._first_until = until.copy()
        self._is_durable = True
        if is_first and self._options.start_can_move:
            # The first batch is empty: it only brings the start into the checkpoint.
            return []
        self._existing(until.keys())
        self._leave_out_new_topics(begin, until)
        for partition in (begin.keys() - until.keys()) & self._existing():
            # If the query's first batch is planned again after a restart, its start is resolved
            # again, and may have partitions that were added since the batch's end was written to
            # the checkpoint. These partitions belong to the next batch.
            del begin[partition]
        absent = sorted(until.keys() - self._existing())
        texts = {p: f"it was to be read up to offset {until[p]}" for p in absent}
        self._report_absent(texts, until.keys())
        for partition in absent:
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
        """Does nothing: Spark's checkpoint has the progress."""

    def stop(self) -> None:
        """Try to commit the last reported position to the group of option commitGroupId, if the
        option is given, then close the connections."""
        if self._group is not None:
            self._group.close()
            self._group = None
        if self._client is not None:
            self._client.close()
            self._client = self._discovery = None

    # --- the query's start, the partitions' ends, and reports of lost data ------------------------
    def _begin(self) -> "Discovery":
        if self._refusal is not None:
            raise self._refusal
        if self._discovery is None:
            from pyspark_klog.client.cluster.blocking_client import BlockingClient
            from pyspark_klog.spark.planning.discovery import Discovery

            exit_on_sigterm()
            self._client = BlockingClient(self._options.client)
            self._discovery = Discovery(self._client, self._options)
        return self._discovery

    def _report_position(self, position: Offsets) -> None:
        """If option commitGroupId is given, pass ``position``, which Spark has committed in its
        checkpoint, to the thread that commits to the consumer group. Never fails."""
        group_id = self._options.commit_group_id
        if group_id is None:
            return
        if self._group is None:
            from pyspark_klog.spark.progress.group_commit import GroupCommitter

            self._group = GroupCommitter(self._options.client, group_id)
        # Leave out deleted partitions: a group's coordinator refuses offsets for them.
        self._group.report({p: o for p, o in position.items() if p in self._partitions})

    def _report(self, loss: Loss) -> None:
        """Report lost data. With failOnDataLoss raise DataLost with text and advice; without it log
        the text as a warning, once."""
        if self._options.fail_on_data_loss:
            raise DataLost(str(loss))
        if loss.text not in self._warned:
            self._warned.add(loss.text)
            _log.warning("some data may have been lost: %s", loss.text)

    def _report_absent(
        self, texts: Mapping[TopicPartition, str], position: Collection[TopicPartition]
    ) -> None:
        """Report the partitions of ``texts``, each with how far it was read, as lost.

        ``position`` has all partitions of the checkpoint, ``texts`` those that do not exist or are
        not read.
        """
        discovery = self._begin()
        other = discovery.other_checkpoint(position) if texts else None
        if other is not None:
            self._report(other)
            return
        for partition, until in texts.items():
            self._report(discovery.absence(partition, until))

    def _has_durable_start(self) -> bool:
        """Whether the checkpoint has the query's start. If it has none, Spark calls initialOffset,
        which sets ``_initial``."""
        return self._is_durable or self._initial is None

    def _resolve_start(self) -> Offsets:
        """Resolve the starting options of a new query to the offsets that they mean now."""
        from pyspark_klog.spark.planning.bound_resolution import resolve_start

        discovery = self._begin()
        partitions = discovery.partitions()
        self._topic_ids |= discovery.topic_ids({p.topic for p in partitions})
        start = resolve_start(discovery, self._options, partitions)
        given = numbers_of(self._options.starting)
        if given:
            # Check before Spark writes the start to the checkpoint: once it is there, a corrected
            # option has no effect.
            ends = self._not_before_open_transactions(start, discovery.latest(given, start))
            beyond = {p: (start[p], end) for p, end in ends.items() if end < start[p]}
            if beyond:
                self._report(start_beyond_end(beyond))
            start |= {p: end for p, (_, end) in beyond.items()}
        return start

    def _existing(
        self, known: Collection[TopicPartition] | None = None, *, refresh: bool = False
    ) -> frozenset[TopicPartition]:
        """The partitions to read that exist, as of a look-up that is at most `_DISCOVERY_AGE_MS`
        old; with ``refresh`` there is a new look-up.

        If a partition of the last look-up (in the first look-up: of ``known``) is missing, brokers
        are asked up to fetchOffset.numRetries times before it counts as deleted."""
        discovery = self._begin()
        assert self._client is not None
        now_ms = self._client.now_ms()
        age_ms = None if self._discovered_ms is None else now_ms - self._discovered_ms
        if refresh or age_ms is None or age_ms >= _DISCOVERY_AGE_MS:
            last = known if self._discovered_ms is None else self._partitions
            self._partitions = discovery.existing_partitions(last)
            self._discovered_ms = now_ms
            found = discovery.topic_ids({p.topic for p in self._partitions})
            self._topic_ids = found | self._topic_ids
        return self._partitions

    def _ends(self, start: Offsets) -> Offsets:
        """The end offset of each partition that the last look-up (`_existing`) has found; the
        partition's offset in ``start`` if only an open transaction keeps the end before that."""
        discovery = self._begin()
        try:
            self._latest = discovery.latest(self._partitions, start)
        except TopicMissing:
            self._latest = discovery.latest(self._existing(refresh=True), start)
        return self._not_before_open_transactions(start, self._latest)

    def _not_before_open_transactions(self, start: Offsets, ends: Offsets) -> Offsets:
        """Return ``ends``, but the start for each partition whose last stable offset is before its
        start only because a transaction is open there. With failOnDataLoss raise DataLost if there
        are such partitions; without it log a warning."""
        held_back = self._begin().open_transactions(start, ends)
        for partition, text in sorted(held_back.items()):
            where = f"before offset {start[partition]}, where reading was to begin"
            self._report(Loss(f"{text}, {where}", HOW_TO_WAIT))
        return ends | {p: start[p] for p in held_back}

    def _checked(self, start: Offsets, ends: Offsets) -> Offsets:
        """Return ``start``, with the first offset of each new partition, which only ``ends`` has.

        Reports lost data before Spark writes the offsets to the checkpoint.
        """
        first_of_new = self._begin().earliest(ends.keys() - start.keys())
        self._planned(start, ends, first_of_new)
        return start | first_of_new

    def _planned(self, start: Offsets, end: Offsets, first_of_new: Offsets) -> list[OffsetRange]:
        """The ranges of offsets from ``start`` to ``end``; first reports lost data."""
        found = plan(start, end, first_of_new)
        texts = {p: f"it was read up to offset {start[p]}" for p in found.absent}
        self._report_absent(texts, start.keys())
        for loss in found.lost:
            self._report(loss)
        return found.ranges

    # --- topics that were deleted and created again ----------------------------------------------
    def _recreated_topics(self, partitions: Iterable[TopicPartition]) -> Mapping[str, UUID]:
        """The topics of these partitions that were created again, with their new ids."""
        topics = {p.topic for p in partitions} & self._topic_ids.keys()
        return self._begin().recreated_topics({t: self._topic_ids[t] for t in topics})

    def _after_deletions(self, position: Offsets) -> Offsets:
        """Return ``position``, but with the first offsets of topics that were deleted and created
        again; report such topics as lost data.

        Spark writes the result to the checkpoint as the end of a batch that has no records of these
        topics.
        """
        discovery = self._begin()
        there = self._existing(position.keys() or None)
        again = self._recreated_topics(position)
        others = {p.topic for p in there} - {p.topic for p in position}
        self._topic_ids |= discovery.topic_ids(others)
        if again:
            self._report_recreated(position, again, "; the new one is read from its beginning")
            of_new = [p for p in self._existing(refresh=True) & position.keys() if p.topic in again]
            self._recreated_starts = {}
            with suppress(TopicMissing):
                self._recreated_starts = discovery.earliest(of_new)
            position = {p: o for p, o in position.items() if p.topic not in again}
            position |= self._recreated_starts
            self._topic_ids |= again
        return position

    def _leave_out_new_topics(self, begin: Offsets, until: Offsets) -> None:
        """Remove from a planned batch the partitions of topics that were deleted and created again.

        The batch has no records of such a topic to read: either latestOffset found the new topic
        and returned its first offset as the end of the batch (`_after_deletions`), or the topic was
        created again after latestOffset found the end.
        """
        again = self._recreated_topics(until)
        if again:
            self._report_recreated(until, again)
        for partition, offset in list(until.items()):
            if partition.topic in again or self._recreated_starts.get(partition) == offset:
                del until[partition]
                begin.pop(partition, None)

    def _report_recreated(
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
            self._report(Loss(text, NEW_CHECKPOINT))
