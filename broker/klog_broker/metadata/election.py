"""Partitions that begin a new leader epoch when a standalone broker starts."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from klog_broker.metadata.directory_assignments import DirectoryAssignments
from klog_broker.metadata.image import MetadataImage, PartitionRegistration, Topic
from pyspark_klog.ids import NO_TOPIC_ID, DirectoryId, LeaderEpoch, TopicId, TopicPartition


class FoundLog(NamedTuple):
    """The facts about a partition's log that are known once the log is loaded."""

    topic_id: TopicId
    """The topic id that the log was created with; NO_TOPIC_ID if a release of Kafka without topic
    ids created the log."""
    leader_epoch: LeaderEpoch
    """The newest leader epoch that the log ever had, even if none of its records is left; -1 if the
    log never had one."""
    was_unclean: bool
    """Whether the log had to be recovered when it was loaded, for example after an unclean stop.
    Then records that clients have read may be lost."""
    directory_id: DirectoryId | None = None
    """The data directory that the log is in."""


def elected(
    image: MetadataImage, found: Mapping[TopicPartition, FoundLog]
) -> dict[TopicPartition, PartitionRegistration]:
    """Return the partitions that must begin a new leader epoch, with their new states.

    A leader epoch stands for one history of a log's records. After an unclean stop records may be
    lost, so a new epoch begins. A log may have a newer epoch than the image, for example because
    Kafka or an older klog served the data directory. Then another leader has used the log's epoch,
    so the new epoch is above it.
    """
    states: dict[TopicPartition, PartitionRegistration] = {}
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


def with_next_epochs(
    image: MetadataImage, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, PartitionRegistration]:
    """Return new states for `partitions`, each with its leader epoch raised by one: their logs
    are missing, and the operator has accepted the loss."""
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
    """Return the data directories of those logs for which `assignments`, read from klog-metadata,
    has no directory or another one than the directory in which the log was found. The operator may
    have moved the logs' folders between data directories."""
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
    """Return the topic that a log found in a data directory belongs to; None if the metadata image
    does not have the log's partition, or if the log has another topic id than the image's topic of
    the same name."""
    topic = image.topic(topic_partition.topic)
    if topic is None or image.partition(*topic_partition) is None:
        return None
    return topic if log.topic_id in (topic.topic_id, NO_TOPIC_ID) else None
