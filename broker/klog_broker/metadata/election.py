"""Which partitions begin a new leader epoch when the broker that leads them all starts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from klog_broker.metadata.image import MetadataImage, PartitionState
from pyspark_klog.ids import NO_TOPIC_ID, LeaderEpoch, TopicId, TopicPartition


class FoundLog(NamedTuple):
    """A partition's log as it was loaded."""

    topic_id: TopicId
    """NO_TOPIC_ID if the broker that made the log knew no topic ids."""
    leader_epoch: LeaderEpoch
    """The newest epoch that the log ever had, even if no records of it are left; -1: none."""
    was_unclean: bool
    """Whether the log had to be recovered: records that clients have read may be gone."""


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
        topic = image.topic(topic_partition.topic)
        state = image.partition(*topic_partition)
        if topic is None or state is None or log.topic_id not in (topic.topic_id, NO_TOPIC_ID):
            continue
        if log.was_unclean or log.leader_epoch > state.leader_epoch:
            states[topic_partition] = replace(
                state,
                leader_epoch=LeaderEpoch(max(state.leader_epoch, log.leader_epoch) + 1),
                partition_epoch=state.partition_epoch + 1,
            )
    return states
