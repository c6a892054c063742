"""How a record of a broker's state starts: two bytes of version, then the message.

A key's version is the kind of its record; a value's says which fields there are.
"""

from typing import TypeVar

from pyspark_klog.errors import KlogError
from pyspark_klog.protocol.codec import decode_message, encode_message
from pyspark_klog.protocol.message import Message

M = TypeVar("M", bound=Message)


class UnknownStateRecord(KlogError):
    """A record of a kind or version that this release does not know: skipped with a warning."""


def encode_versioned(message: Message, version: int) -> bytes:
    """The version, then the message in it.

    :raises UnencodableMessage: naming the field that does not fit
    """
    return version.to_bytes(2, "big") + encode_message(message, version)


def version_of(data: bytes) -> int:
    """The number that ``data`` starts with; UnknownStateRecord if there are no two bytes."""
    if len(data) < 2:
        raise UnknownStateRecord(f"{len(data)} bytes, expected a version of 2 bytes at least")
    return int.from_bytes(data[:2], "big", signed=True)


def decode_versioned(cls: type[M], data: bytes) -> M:
    """The message of this class that lies behind its version.

    :raises UnknownStateRecord: for a version that ``cls`` does not have
    :raises MalformedRequest: if the bytes do not fit it
    """
    version = version_of(data)
    if not cls.min_version <= version <= cls.max_version:
        raise UnknownStateRecord(
            f"a {cls.__name__} of version {version}; known are 0 to {cls.max_version}"
        )
    message, _ = decode_message(cls, version, data, 2)
    return message
