"""The lines of a transcript that describe a group, its log and its responses."""

import re

from klog_broker.coordinator.group.classic.group import ClassicGroup
from klog_broker.coordinator.group.deletions import OffsetCodes
from klog_broker.coordinator.group.shard_state import GROUP_RECORDS
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.join_group import JoinGroupResponse
from pyspark_klog.protocol.apis.sync_group import SyncGroupResponse
from pyspark_klog.state_records.consumer_offsets import Key, Value
from pyspark_klog.state_records.consumer_protocol import ConsumerProtocolSubscription
from pyspark_klog.state_records.group_metadata import GroupMetadataValue
from pyspark_klog.state_records.offset_commit import OffsetCommitKey, OffsetCommitValue
from pyspark_klog.state_records.versions import encode_versioned
from tests.support.records.record_sets import iterate

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_UUID_TAIL = re.compile(r"(-[0-9a-f]{4})[0-9a-f]{4}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


def in_ms(text: str) -> int:
    """Milliseconds of a duration such as ``500ms``, ``3s``, ``10m`` or ``1h``."""
    number, unit = re.fullmatch(r"(\d+)(ms|s|m|h)", text).groups()  # type: ignore[union-attr]
    return int(number) * _UNITS_MS[unit]


def in_words(time_ms: int) -> str:
    minutes, rest_ms = divmod(time_ms, 60_000)
    seconds = f"{rest_ms / 1_000:g}s"
    if not minutes:
        return seconds
    return f"{minutes}m{seconds}" if rest_ms else f"{minutes}m"


def short(member_id: str | None) -> str:
    """A member id with only the first four digits of its UUID."""
    return _UUID_TAIL.sub(r"\1", member_id or "nobody")


def partition_of(text: str) -> TopicPartition:
    """The partition that is written as ``orders-0``."""
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def subscription(topics: str) -> bytes:
    """A member's metadata, with the topics of ``orders,audit``."""
    if not topics:
        return b""
    message = ConsumerProtocolSubscription(topics=topics.split(","))
    return encode_versioned(message, 0)


def joined_line(reply: JoinGroupResponse) -> str:
    error = ErrorCode(reply.error_code)
    if error is not ErrorCode.NONE:
        return f"{error.name} {short(reply.member_id)}" if reply.member_id else error.name
    line = f"generation {reply.generation_id} {reply.protocol_name}, as {short(reply.member_id)}"
    if reply.leader != reply.member_id:
        return f"{line}, led by {short(reply.leader)}"
    return f"{line}, leads: {', '.join(short(each.member_id) for each in reply.members)}"


def synced_line(reply: SyncGroupResponse) -> str:
    error = ErrorCode(reply.error_code)
    return error.name if error is not ErrorCode.NONE else _assigned(reply.assignment)


def _assigned(assignment: bytes) -> str:
    return bytes(assignment).decode() or "nothing"


def deleted_line(told: tuple[ErrorCode, OffsetCodes]) -> str:
    """The line of an OffsetDelete response: the group's error, or the code of each partition."""
    error, codes = told
    rows = (f"{each.topic}-{each.partition} {code.name}" for each, code in codes.items())
    return ", ".join(rows) if error is ErrorCode.NONE else error.name


def group_line(error: ErrorCode, group: ClassicGroup | None) -> str:
    """The group's state and members, each with the end of its session unless a request waits."""
    if group is None:
        return f"group: {'none' if error is ErrorCode.NONE else error.name}"
    members = []
    for member in group.members.values():
        deadline_ms = member.deadline_ms()
        until = "waits" if deadline_ms is None else f"until {in_words(deadline_ms)}"
        members.append(f"{short(member.member_id)} ({until})")
    members += [f"{short(member_id)} (may join)" for member_id in group.pending]
    told = f"group: {group.state.value} {group.generation_id}"
    return f"{told}, {', '.join(members)}" if members else told


def log_lines(batch: bytes) -> list[str]:
    """One line for each record of the batch."""
    lines = []
    for record in iterate(batch):
        decoded = GROUP_RECORDS.decode(record.key or b"", record.value)
        assert decoded is not None
        lines.append(f"log {record.offset}: {_record_line(*decoded)}")
    return lines


def _record_line(key: Key, value: Value | None) -> str:
    if isinstance(key, OffsetCommitKey):
        where = f"{key.topic}-{key.partition}"
        kept = isinstance(value, OffsetCommitValue)
        return f"{where} = {value.offset}" if kept else f"{where} forgotten"
    if not isinstance(value, GroupMetadataValue):
        return "group forgotten"
    head = f"generation {value.generation} {value.protocol or 'no protocol'}"
    members = ", ".join(f"{short(m.member_id)}: {_assigned(m.assignment)}" for m in value.members)
    return f"{head}, led by {short(value.leader)}, {members or 'no members'}"
