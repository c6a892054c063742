"""Which partitions begin a new leader epoch when the broker that leads them all starts."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from klog_broker.metadata.directory_assignments import DirectoryAssignments
from klog_broker.metadata.image import MetadataImage, PartitionState, Topic
from pyspark_klog.ids import NO_TOPIC_ID, DirectoryId, LeaderEpoch, TopicId, TopicPartition


class FoundLog(NamedTuple):
    """A partition's log as it was loaded."""

    topic_id: TopicId
    """NO_TOPIC_ID if the broker that made the log knew no topic ids."""
    leader_epoch: LeaderEpoch
    """The newest epoch that the log ever had, even if no records of it are left; -1: none."""
    was_unclean: bool
    """Whether the log had to be recovered: records that clients have read may be gone."""
    directory_id: DirectoryId | None = None
    """The data directory that the log is in."""


def elected(
    image: MetadataImage, found: Mapping[TopicPartition, FoundLog]
) -> dict[TopicPartition, PartitionState]:
    """The partitions that must begin a new epoch, with their new states.

    An epoch stands for one history of a log's records. After an unclean stop records may be gone,
    so another history begins. An epoch that only the log knows (an older klog, or Kafka, wrote the
    directory) was another leader's: the new epoch is above that one, too.
    """
    states: dict[TopicPartition, PartitionState] = {}
    for topic_partition, log in found.items():
        state = image.partition(*topic_partition)
        if state is None or _topic_of(image, topic_partition, log) is None:
            continue
        if log.was_unclean or log.leader_epoch > state.leader_epoch:
            states[topic_partition] = replace(
                state,
                leader_epoch=LeaderEpoch(max(state.leader_epoch, log.leader_epoch) + 1),
                partition_epoch=state.partition_epoch + 1,
            )
    return states


def begun_again(
    image: MetadataImage, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, PartitionState]:
    """These partitions' states in a new epoch each: their records are missing, and the missing data
    is accepted."""
    states = {each: image.partition(*each) for each in partitions}
    return {
        each: replace(
            state,
            leader_epoch=LeaderEpoch(state.leader_epoch + 1),
            partition_epoch=state.partition_epoch + 1,
        )
        for each, state in states.items()
        if state is not None
    }


def found_directories(
    image: MetadataImage,
    assignments: DirectoryAssignments,
    found: Mapping[TopicPartition, FoundLog],
) -> dict[TopicId, dict[int, DirectoryId]]:
    """The logs that were found and are not recorded, or recorded in another directory: somebody may
    have moved their folders."""
    logs: dict[TopicId, dict[int, DirectoryId]] = {}
    for topic_partition, log in found.items():
        topic = _topic_of(image, topic_partition, log)
        if topic is None or log.directory_id is None:
            continue
        number = topic_partition.partition
        if assignments.of_topic(topic.topic_id).get(number) != log.directory_id:
            logs.setdefault(topic.topic_id, {})[number] = log.directory_id
    return logs


def _topic_of(image: MetadataImage, topic_partition: TopicPartition, log: FoundLog) -> Topic | None:
    """The topic that a found log belongs to; None if it is no partition of a known topic."""
    topic = image.topic(topic_partition.topic)
    if topic is None or image.partition(*topic_partition) is None:
        return None
    return topic if log.topic_id in (topic.topic_id, NO_TOPIC_ID) else None
