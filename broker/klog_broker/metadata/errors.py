"""The errors of metadata. Only the handlers know Kafka's numbers for them."""

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
    """The name breaks Kafka's rules, or differs from another topic's only in ``.`` and ``_``."""


class TooManyQuotas(MetadataError):
    """There would be quotas of more entities than the store keeps."""


class NotInClusters(MetadataError):
    """A change that a broker which runs alone makes, and one in a cluster does not make yet."""


class UnreadableConfig(MetadataError):
    """The stored settings cannot be read, so they cannot be changed either."""


class NoAnswer(MetadataError):
    """Nobody knows in time what became of a change."""


class StoreRefused(MetadataError):
    """The store's file is damaged, or belongs to another version or broker."""


class StoreFailed(MetadataError):
    """The store's file could not be written; nothing was changed. The store takes no more changes,
    unless only disk space or a file descriptor was missing."""
