"""Finds the partitions that can have records with the keys of the source's option ``keys``.

The module is pure.
"""

from collections.abc import Collection, Mapping

from pyspark_klog.ids import TopicPartition
from pyspark_klog.records.partitioner import partition_for_key


def partitions_of_keys(
    partitions: frozenset[TopicPartition],
    keys: Collection[bytes] | None,
    partition_counts: Mapping[str, int],
) -> frozenset[TopicPartition]:
    """The partitions in which Kafka's default partitioner puts records with these keys.

    With ``keys`` None (any key) the result has all of ``partitions``. ``partition_counts`` has the
    number of partitions of each topic where it is known; all partitions of other topics are kept.
    """
    if keys is None:
        return partitions
    kept = {
        TopicPartition(topic, partition_for_key(key, count))
        for topic, count in partition_counts.items()
        if count
        for key in keys
    }
    return frozenset(p for p in partitions if p in kept or not partition_counts.get(p.topic))
