"""What can go wrong between a message and its bytes."""

from pyspark_klog.errors import KlogError


class ProtocolError(KlogError):
    """Root of the errors of reading and writing Kafka's protocol."""


class MalformedRequest(ProtocolError):
    """Bytes that are no message of the kind and version they claim to be; framing may be lost.

    It is raised for responses too: a client that reads one has met a broken or foreign peer.
    """


class UnsupportedVersion(ProtocolError):
    """A version that klog does not know, or a value that the chosen version has no field for."""


class UnencodableMessage(ProtocolError):
    """A message holds a value that its field cannot carry: wrong type, out of range, null."""
