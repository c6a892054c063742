"""What can go wrong with metadata; the handlers know the numbers on the wire."""

from pyspark_klog.errors import KlogError


class MetadataError(KlogError):
    """Root of this room's errors."""


class TopicExists(MetadataError):
    """The name is taken, or a topic of that name is still being deleted."""


class UnknownTopic(MetadataError):
    """There is no topic of that name or id."""


class PartitionsChanged(MetadataError):
    """Somebody else added partitions to the topic meanwhile."""


class InvalidTopicName(MetadataError):
    """The name breaks Kafka's rules, or differs from another one only in ``.`` and ``_``."""


class StoreRefused(MetadataError):
    """The store's file is damaged, or belongs to another version or broker."""


class StoreFailed(MetadataError):
    """A write did not reach the disk, and nothing was changed. Unless the disk was full, the store
    takes no more changes."""
