"""/consumers/G: the groups of Kafka's first consumer, which stored its state in ZooKeeper.

Brokers read and write ``offsets`` for requests OffsetCommit and OffsetFetch of version 0. Consumers
of releases before 2.0 wrote ``ids`` and ``owners``; Kafka 3.9.1 does not use them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_klog.ids import Offset, TopicPartition
from pyspark_klog.znodes.data import ZnodeError, read_number, read_object, shorten_repr, write_json
from pyspark_klog.znodes.paths import CONSUMERS

# The characters that ZooKeeper accepts in a path, except the slash.
_NAME = re.compile("[ -.0-~\xa0-\ud7ff\uf900-\uffef]+")
_MAX_OWNER_BYTES = 1000


@dataclass(frozen=True, slots=True)
class ConsumerRegistration:
    """/consumers/G/ids/C, an ephemeral znode: a consumer's subscription.

    ``subscription`` has the number of streams for each topic, or for a pattern of topics.
    ``pattern`` is "static", "white_list" or "black_list".
    """

    subscription: Mapping[str, int]
    pattern: str
    timestamp_ms: int


def consumer_id_path(group: str, consumer: str) -> str:
    """Return the path of a consumer's registration, an ephemeral znode."""
    return f"{_group_path(group)}/ids/{_name(consumer)}"


def owner_path(group: str, partition: TopicPartition) -> str:
    """Return the path of an ephemeral znode: the consumer thread that owns a partition."""
    return f"{_group_path(group)}/owners/{_name(partition.topic)}/{partition.partition}"


def offset_path(group: str, partition: TopicPartition) -> str:
    """Return the path of a group's committed offset, a persistent znode.

    :raises ZnodeError: if the group id or the topic cannot be a name in a path
    """
    return f"{_group_path(group)}/offsets/{_name(partition.topic)}/{partition.partition}"


def encode_consumer(registration: ConsumerRegistration) -> bytes:
    """Encode a consumer's registration in version 1."""
    return write_json(
        {
            "version": 1,
            "subscription": dict(registration.subscription),
            "pattern": registration.pattern,
            "timestamp": str(registration.timestamp_ms),
        }
    )


def decode_consumer(path: str, data: bytes | None) -> ConsumerRegistration:
    """Decode a consumer's registration; ``path`` is its znode.

    :raises ZnodeError: if ``data`` is no registration
    """
    fields = read_object(path, data)
    subscription = fields.inner("subscription")
    return ConsumerRegistration(
        subscription={name: subscription.int32(name, minimum=0) for name in subscription.values},
        pattern=fields.text("pattern") if "pattern" in fields else "static",
        timestamp_ms=fields.int64_text("timestamp") if "timestamp" in fields else -1,
    )


def encode_owner(consumer_thread: str) -> bytes:
    """Encode a partition's owner: the name of the consumer's thread, as text."""
    return consumer_thread.encode()


def decode_owner(path: str, data: bytes | None) -> str:
    """Decode a partition's owner; ``path`` is its znode.

    :raises ZnodeError: if ``data`` is not 1 to 1000 bytes of UTF-8
    """
    try:
        if not data or len(data) > _MAX_OWNER_BYTES:
            raise ValueError
        return data.decode()
    except ValueError:
        expected = f"the name of a consumer's thread, 1 to {_MAX_OWNER_BYTES} bytes of UTF-8"
        raise ZnodeError(path, expected, shorten_repr((data or b"")[:100])) from None


def encode_offset(offset: Offset) -> bytes:
    """Encode a committed offset as decimal text."""
    return str(offset).encode()


def decode_offset(path: str, data: bytes | None) -> Offset:
    """Decode a committed offset; ``path`` is its znode.

    :raises ZnodeError: if ``data`` is no number of 64 bits
    """
    return Offset(read_number(path, data, minimum=-(1 << 63), bits=64))


def _group_path(group: str) -> str:
    return f"{CONSUMERS}/{_name(group)}"


def _name(text: str) -> str:
    if not _NAME.fullmatch(text) or text in (".", ".."):
        raise ZnodeError(CONSUMERS, "a name that ZooKeeper takes in a path", shorten_repr(text))
    return text
