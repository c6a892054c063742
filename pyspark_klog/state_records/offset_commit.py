"""The record of a committed offset in __consumer_offsets: OffsetCommit and TxnOffsetCommit write
it."""

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.fields import int32, int64, string, uuid
from pyspark_klog.protocol.message import Message


class OffsetCommitKey(Message, versions=(0, 1)):
    """Key of a committed offset. Versions 0 and 1 have the same layout; Kafka writes version 1."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, versions=(0, 4), flexible_since=4):
    """Value of a committed offset.

    Only version 1 has an expiry time, and only version 4 has a topic id (0 if unknown).
    """

    offset: int = int64()
    leader_epoch: int = int32(since=3, default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(since=1, until=1, default=-1, ignorable=True)
    topic_id: UUID = uuid(since=4, tag=0, ignorable=True)
