"""The causes of lost data, each with its message and its advice. Pure: asks no broker.

An advice proposes failOnDataLoss=false last, and only where the option keeps records that the query
would otherwise not read.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.errors import NEW_CHECKPOINT, SKIP

if TYPE_CHECKING:
    from pyspark_klog.client.consumer.lost_offsets import OffsetsLost

KEEP_LONGER = (
    "let the topic keep records for longer (retention.ms, retention.bytes), or run the query more "
    "often"
)
_NAMED = 3
"""A message names at most this many topics of a checkpoint."""


class Loss(NamedTuple):
    """Lost data: ``text`` says which offsets are lost, and why; ``advice`` what to do."""

    text: str
    advice: str

    def __str__(self) -> str:
        return f"{self.text}; {self.advice}"


class GivenOffsets(NamedTuple):
    """The offsets (0 and more) that the options startingOffsets and endingOffsets of a batch name
    for partitions."""

    start: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]


# --- of the checkpoint ---------------------------------------------------------------------------
def other_checkpoint(partitions: Iterable[TopicPartition], option: str, value: str) -> Loss:
    """The option that selects topics (``option``, with its value) selects none of the checkpoint's
    ``partitions``."""
    topics = sorted({p.topic for p in partitions})
    more = f" and {len(topics) - _NAMED} more" if len(topics) > _NAMED else ""
    return Loss(
        f"the checkpoint has offsets of topic {', '.join(topics[:_NAMED])}{more}, and option "
        f"{option} ({value}) selects none of them (is this another query's checkpointLocation?)",
        "give each query a checkpointLocation of its own, and a new one if it is to read other "
        "topics than before",
    )


def not_selected(partition: TopicPartition, until: str, option: str) -> Loss:
    """The options select other topics or partitions of the checkpoint, but not ``partition``."""
    return Loss(
        f"{partition} is not read any more: {until}, and option {option} does not name it",
        f"name it in option {option} again, or, to leave it out from now on, {SKIP} for one run",
    )


# --- of topics -----------------------------------------------------------------------------------
def not_authorized(partition: TopicPartition, until: str) -> Loss:
    """The user may not DESCRIBE the topic of ``partition`` any more."""
    return Loss(
        f"{partition} cannot be read any more: {until}, and this user may not describe topic "
        f"{partition.topic}",
        f"let the user READ and DESCRIBE the topic, or, to read on without the topic, {SKIP}",
    )


def topic_deleted(partition: TopicPartition, until: str) -> Loss:
    """No broker knows the topic of ``partition``."""
    return Loss(
        f"{partition} is gone: {until}, and topic {partition.topic} does not exist any more",
        "check kafka.bootstrap.servers; if the topic was deleted and is to come again, give a "
        f"stream a new checkpointLocation, or, to read on without the topic, {SKIP}",
    )


def fewer_partitions(partition: TopicPartition, until: str) -> Loss:
    """The topic of ``partition`` has fewer partitions than before, so it was created again."""
    return Loss(
        f"{partition} is gone: {until}, and topic {partition.topic} has no such partition any "
        "more, so it was deleted and created again",
        NEW_CHECKPOINT,
    )


def found_too_late(partition: TopicPartition, until: str) -> Loss:
    """Brokers know ``partition`` now, but did not when the query looked for it."""
    return Loss(
        f"{partition} was not there a moment ago: {until}, and topic {partition.topic} may be "
        "another one now",
        "start the query again, which looks for the partition again",
    )


# --- of records ----------------------------------------------------------------------------------
def new_partition_deleted(partition: TopicPartition, first: int) -> Loss:
    """A new partition's records before offset ``first`` were deleted before the query saw it."""
    return Loss(
        f"{partition} is new and begins at offset {first}: retention or DeleteRecords deleted the "
        "records before that",
        f"{KEEP_LONGER}; {SKIP} to read on from offset {first}",
    )


def start_beyond_end(beyond: Mapping[TopicPartition, tuple[int, int]]) -> Loss:
    """``beyond`` has, for each partition, its offset in option startingOffsets and its end."""
    pairs = ", ".join(
        f"offset {start} of {p}, which ends at offset {end}"
        for p, (start, end) in sorted(beyond.items())
    )
    return Loss(
        f"startingOffsets is beyond the end: it names {pairs}",
        "give offsets up to the end, or latest, and check the topic and kafka.bootstrap.servers",
    )


def end_lost(partition: TopicPartition, position: int, end: int) -> Loss:
    """A partition ends before the offset that a stream has reached."""
    return Loss(
        f"{partition} ends at offset {end}, before offset {position}, where reading was to begin: "
        "its topic was deleted and created again, its replicas lost records, or "
        "kafka.bootstrap.servers names another cluster than before",
        f"after a change of topic or cluster {NEW_CHECKPOINT}; if only the last records are lost "
        f"(unclean leader election), {SKIP} to read on at offset {end}",
    )


def loss_in_task(lost: "OffsetsLost", given: "GivenOffsets | None") -> Loss:
    """The loss that a task found while it read, for every cause but an open transaction.

    ``given`` has the offsets that the options of a batch name; None in a stream.
    """
    is_stream = given is None
    text, (first, end) = str(lost), lost.available
    if lost.is_recreated:
        return Loss(text, NEW_CHECKPOINT if is_stream else "run the query again")
    if lost.is_deleted:
        return Loss(
            text,
            "check the topic, and start the query again, which then names the cause; to read on "
            f"without these offsets, {SKIP}",
        )
    if lost.start < first:
        before = f"retention or DeleteRecords deleted the records before offset {first}"
        how = KEEP_LONGER if is_stream else "begin at an offset that exists, or at earliest"
        return Loss(f"{text}: {before}", f"{how}; {SKIP} to read on from offset {first}")
    if given is None:
        return end_lost(lost.partition, lost.start, end)
    if given.start.get(lost.partition, 0) > end:
        return Loss(
            f"{text}: startingOffsets is beyond the end",
            f"begin at offset {end} or before, and check the topic and kafka.bootstrap.servers",
        )
    if given.end.get(lost.partition, 0) > end:
        return Loss(
            f"{text}: endingOffsets is beyond the end",
            f"end at offset {end} or before, or read again when the records are written; {SKIP} to "
            f"read up to offset {end}",
        )
    return Loss(
        f"{text}: replicas lost their last records since the query was planned",
        f"run the query again; {SKIP} to read up to offset {end}",
    )


# --- of a consumer group -------------------------------------------------------------------------
def group_place_lost(partition: TopicPartition, offset: int, available: tuple[int, int]) -> str:
    """Why a partition, which has the offsets ``available`` (end exclusive), lacks the offset that a
    consumer group has committed."""
    first, end = available
    text = f"{partition} at {offset}, but the partition has offsets {first} to {end}: "
    if offset < first:
        return text + "retention or DeleteRecords deleted the records between"
    return text + "the topic was created again, or its last records were lost"


def group_out_of_range(group_id: str | None, texts: Iterable[str]) -> Loss:
    """The committed offsets of a group do not exist; ``texts`` are from `group_place_lost`."""
    return Loss(
        f"group {group_id} is out of range: {'; '.join(texts)}",
        f"set the group's offsets (klog groups reset-offsets), or {SKIP} to begin these partitions "
        "at their first offset",
    )


# --- of segment files ----------------------------------------------------------------------------
def files_deleted(text: str, first: int) -> Loss:
    """The files of a data directory begin at ``first``, behind the offset to read."""
    return Loss(
        f"{text}: retention or DeleteRecords deleted the records before offset {first}",
        f"run the query again with a start that exists; {SKIP} to read on from offset {first}",
    )


def files_gone(text: str) -> Loss:
    """The partition's directory does not exist any more."""
    return Loss(
        text,
        "check whether the topic was deleted or moved to another data directory; to leave out "
        f"these offsets, {SKIP}",
    )


def files_end_early(text: str, end: int) -> Loss:
    """The files of a data directory, or their committed records, end at ``end``."""
    return Loss(
        text,
        "end at that offset or before, or read again later: a broker stores every few seconds "
        f"which records are committed; {SKIP} to read up to offset {end}",
    )
