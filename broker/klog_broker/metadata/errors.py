"""The errors of the metadata package. Other packages map them to Kafka's error codes."""

from pyspark_klog.errors import KlogError


class MetadataError(KlogError):
    """Base class of the metadata package's errors."""


class TopicExists(MetadataError):
    """A topic with the requested name exists, or is still being deleted."""


class UnknownTopic(MetadataError):
    """There is no topic with the requested name or id."""


class PartitionsChanged(MetadataError):
    """Another request changed the topic's partition count after this request to add partitions was
    checked against the count."""


class InvalidTopicName(MetadataError):
    """A topic's name breaks Kafka's rules, or differs from another topic's name only in ``.`` and
    ``_``."""


class TooManyQuotas(MetadataError):
    """After the requested change, more users, clients and addresses than allowed would have
    quotas."""


class NotInClusters(MetadataError):
    """The change of the metadata is possible in a standalone broker, but not in a cluster."""


class UnreadableConfig(MetadataError):
    """The settings of an entity (such as a topic) in ZooKeeper cannot be decoded, so they cannot be
    changed."""


class NoResponse(MetadataError):
    """The outcome of a request to ZooKeeper or to the controller was not known in time, so that a
    requested change may still be made. Or other requests changed the same settings during each
    attempt to change them."""


class StoreRefused(MetadataError):
    """The metadata store's file is unreadable or damaged, has a version that this release of klog
    cannot read, or belongs to another broker or cluster; or the store of a standalone broker is
    in a data directory of a broker in a cluster."""


class StoreFailed(MetadataError):
    """The store's file could not be written, and the change has no effect. Unless the write failed
    for lack of disk space or of a file descriptor, the store refuses all later changes, and the
    next start may find the change in the file."""
