"""A message encoded in parts, as a response with record sets is."""

from pyspark_klog.protocol.codec import encode_into
from pyspark_klog.protocol.fields import FileRegion
from pyspark_klog.protocol.message import Message
from pyspark_klog.protocol.wire import Buffer, SegmentedBuffer


def encode_segments(message: Message, version: int) -> list[Buffer | FileRegion]:
    """Encodes a message into parts to be sent one after the other; record sets are not copied."""
    out = SegmentedBuffer()
    encode_into(message, version, out)
    return out.segments()
