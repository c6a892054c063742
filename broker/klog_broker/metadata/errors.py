"""The errors of the metadata package. Only the request handlers map them to Kafka's error codes."""

from pyspark_klog.errors import KlogError


class MetadataError(KlogError):
    """Base class of the metadata package's errors."""


class TopicExists(MetadataError):
    """The name is taken, or a topic of that name is still being deleted."""


class UnknownTopic(MetadataError):
    """There is no topic of that name or id."""


class PartitionsChanged(MetadataError):
    """The topic's partition count changed after the request's partitions were planned."""


class InvalidTopicName(MetadataError):
    """The name breaks Kafka's rules, or differs from another topic's only in ``.`` and ``_``."""


class TooManyQuotas(MetadataError):
    """The change would leave more entities with quotas than the store allows."""


class NotInClusters(MetadataError):
    """A standalone broker supports the change; a broker in a cluster does not support it yet."""


class UnreadableConfig(MetadataError):
    """The stored settings cannot be read, so they cannot be changed."""


class NoResponse(MetadataError):
    """The change's outcome was not known within its timeout; the change may still be made."""


class StoreRefused(MetadataError):
    """The store's file is damaged, or belongs to another version or broker."""


class StoreFailed(MetadataError):
    """The store's file could not be written, and nothing was changed. The store refuses all later
    changes, unless the write failed for lack of disk space or of a file descriptor."""
