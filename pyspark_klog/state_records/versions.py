"""Encoding of state records: a version of two bytes, then a message in that version.

The version of a key gives the kind of the record. The version of a value decides its fields.
"""

from typing import TypeVar

from pyspark_klog.errors import KlogError
from pyspark_klog.protocol.codec import decode_message, encode_message
from pyspark_klog.protocol.message import Message

M = TypeVar("M", bound=Message)


class UnknownStateRecord(KlogError):
    """A record of __consumer_offsets or __transaction_state, or a member's subscription or
    assignment, has a kind or version that this release of klog does not know, or lacks a version.

    Brokers skip such a record with a warning.
    """


def encode_versioned(message: Message, version: int) -> bytes:
    """Return the version in two bytes and the message encoded in that version.

    :raises UnencodableMessage: with the name of the field that does not fit
    """
    return version.to_bytes(2, "big") + encode_message(message, version)


def version_of(data: bytes) -> int:
    """Return the version in the first two bytes of ``data``.

    :raises UnknownStateRecord: if ``data`` is shorter than two bytes
    """
    if len(data) < 2:
        raise UnknownStateRecord(
            f"a key or value, or a member's subscription or assignment, of {len(data)} bytes: "
            "expected at least the 2 bytes of its version"
        )
    return int.from_bytes(data[:2], "big", signed=True)


def decode_versioned(cls: type[M], data: bytes) -> M:
    """Decode a version and a message of class ``cls`` in that version.

    :raises UnknownStateRecord: for a version that ``cls`` does not have
    :raises MalformedRequest: if the bytes after the version are not a message of ``cls``
    """
    version = version_of(data)
    if not cls.min_version <= version <= cls.max_version:
        raise UnknownStateRecord(
            f"a {cls.__name__} has version {version}, known are versions 0 to {cls.max_version}"
        )
    message, _ = decode_message(cls, version, data, 2)
    return message
