"""Exceptions of encoding and decoding Kafka's messages."""

from pyspark_klog.errors import KlogError


class ProtocolError(KlogError):
    """Base class of the exceptions of encoding and decoding Kafka's messages."""


class MalformedRequest(ProtocolError):
    """The bytes are no valid message of the expected class and version, request or response.

    The receiver may have lost the boundaries of frames in the connection's bytes. The sender of a
    malformed response is broken, or is no Kafka broker.
    """


class UnsupportedVersion(ProtocolError):
    """klog does not know the message's version, or the version lacks a field whose value would be
    lost in encoding."""


class UnencodableMessage(ProtocolError):
    """A value does not fit its field: it has the wrong type, is out of range, or is null."""
