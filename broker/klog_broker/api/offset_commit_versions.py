"""The differences between versions of OffsetCommit: the frame's layout, and the error for a group
that does not exist."""

import struct

from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.offset_commit import OffsetCommitRequest
from pyspark_klog.protocol.headers import RequestHeader

RETENTION_VERSIONS = range(2, 5)
LEADER_EPOCH_SINCE = 6
INSTANCE_ID_SINCE = 7
FLEXIBLE_SINCE = 8
MISSING_GROUP_SINCE = 9
TOPIC_IDS_SINCE = 10

_UUID_BYTES = 16
_NO_TAGS_BYTES = 1


def missing_group_error(api_version: int) -> ErrorCode:
    """Return the error for a member of a group that does not exist."""
    if api_version < MISSING_GROUP_SINCE:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.GROUP_ID_NOT_FOUND


def frame_layout(
    frame_bytes: int, request: OffsetCommitRequest, header: RequestHeader
) -> struct.Struct | None:
    """Return the layout of the frame of an OffsetCommit of version 2 or later, to read the later
    frames of the connection that differ in few fields.

    The fields of the layout are: API key and version; the correlation id; then alternately bytes
    that must be the same in the later frames, and a partition's offset and leader epoch (from
    version 6 on). Return None if the frame's length does not fit because the request has tagged
    fields.
    """
    version = header.api_version
    sizes = _Flexible if version >= FLEXIBLE_SINCE else _Fixed
    # The bytes after the correlation id: client id, group, generation, member, ..., number of
    # topics.
    same = _Fixed.text(header.client_id) + sizes.tags
    same += sizes.text(request.group_id) + 4 + sizes.text(request.member_id)
    if version >= INSTANCE_ID_SINCE:
        same += sizes.text(request.group_instance_id)
    if version in RETENTION_VERSIONS:
        same += 8
    same += sizes.count(len(request.topics))
    changes = "qi" if version >= LEADER_EPOCH_SINCE else "q"
    form = ">4s4s"
    for topic in request.topics:
        same += _UUID_BYTES if version >= TOPIC_IDS_SINCE else sizes.text(topic.name)
        same += sizes.count(len(topic.partitions))
        for each in topic.partitions:
            form += f"{same + 4}s{changes}"
            same = sizes.text(each.committed_metadata) + sizes.tags
        same += sizes.tags
    layout = struct.Struct(f"{form}{same + sizes.tags}s")
    return layout if layout.size == frame_bytes else None


class _Fixed:
    """Field sizes in versions with fixed-size lengths."""

    tags = 0

    @staticmethod
    def count(_: int) -> int:
        """Return how many bytes an array's length takes."""
        return 4

    @staticmethod
    def text(text: str | None) -> int:
        """Return how many bytes a string and its length take."""
        return 2 if text is None else 2 + len(text.encode())


class _Flexible:
    """Field sizes in versions with varint lengths, where each struct ends with tagged fields."""

    tags = _NO_TAGS_BYTES

    @staticmethod
    def count(number: int) -> int:
        """Return how many bytes an array's length takes: the length plus one as a varint, 7 bits a
        byte."""
        return max(1, -(-(number + 1).bit_length() // 7))

    @classmethod
    def text(cls, text: str | None) -> int:
        size = 0 if text is None else len(text.encode())
        return size + (1 if text is None else cls.count(size))
