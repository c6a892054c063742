"""The start offsets of `klog consume`: given offsets and times, or a group's committed offsets."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark_klog.client.admin.group_members import describe_group
from pyspark_klog.client.admin.groups import CommittedOffset, commit_offsets, committed_offsets
from pyspark_klog.client.admin.reset_times import read_time
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.consumer.offsets import EARLIEST, LATEST, NOT_FOUND, list_offsets
from pyspark_klog.client.errors import SettingError
from pyspark_klog.errors import BrokerError, ErrorCode, KlogError
from pyspark_klog.ids import TopicPartition

_NUMBER = re.compile(r"\d{1,18}")


@dataclass(frozen=True, slots=True)
class StartPosition:
    """The start of reading: an offset, the partition's beginning or end, or the first record that
    is not older than a time."""

    offset: int | None = None
    timestamp_ms: int = LATEST
    """A timestamp in milliseconds, EARLIEST or LATEST."""

    @classmethod
    def of_text(cls, text: str, option: str = "--offset") -> "StartPosition":
        """Parse ``earliest``, ``latest``, an offset or a time, the value of an option.

        :raises SettingError: if the text is none of them
        """
        named = {"earliest": EARLIEST, "latest": LATEST}.get(text.lower())
        if named is not None:
            return cls(timestamp_ms=named)
        if _NUMBER.fullmatch(text):
            return cls(offset=int(text))
        time_ms = read_time(text)
        if time_ms is None or time_ms < 0:
            raise SettingError(
                f"{option} {text}: expected earliest, latest, an offset from 0 on, or a time since "
                "1970 as 2026-01-31T23:59:59.000 (UTC)"
            )
        return cls(timestamp_ms=time_ms)

    def positions(
        self, client: BlockingClient, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the start offset of each partition. For a time after a partition's last record,
        the start is the offset LATEST: the high watermark, or under read_committed the last stable
        offset."""
        if self.offset is not None:
            return dict.fromkeys(partitions, self.offset)
        found = _list_offsets(client, partitions, self.timestamp_ms)
        behind = [each for each, offset in found.items() if offset == NOT_FOUND]
        return found | _list_offsets(client, behind, LATEST)


def _list_offsets(
    client: BlockingClient, partitions: Sequence[TopicPartition], timestamp_ms: int
) -> dict[TopicPartition, int]:
    if not partitions:
        return {}
    committed = client.settings["isolation.level"] == "read_committed"
    found = list_offsets(client, dict.fromkeys(partitions, timestamp_ms), read_committed=committed)
    return {partition: at.offset for partition, at in found.items()}


class GroupPositions:
    """A group's committed offsets, for a reader that is not a member of the group."""

    def __init__(self, client: BlockingClient, group_id: str) -> None:
        """Read the group's state.

        :raises KlogError: if the group has members
        """
        self._client = client
        self._group_id = group_id
        self._committed: dict[TopicPartition, int] = {}
        try:
            group = describe_group(client, group_id)
        except BrokerError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            return  # the group is created with its first commit
        if not group.is_idle:
            raise self._busy(f"it is {group.state}, with {len(group.members)} members")

    def positions(
        self, partitions: Sequence[TopicPartition], start: StartPosition
    ) -> dict[TopicPartition, int]:
        """Return the group's committed offsets, and ``start`` for partitions without one."""
        committed = self._client.settings["isolation.level"] == "read_committed"
        found = committed_offsets(
            self._client, self._group_id, partitions, require_stable=committed
        )
        self._committed = {each: at.offset for each, at in found.items()}
        missing = [each for each in partitions if each not in found]
        return {**start.positions(self._client, missing), **self._committed}

    def commit(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commit the positions for the group; only positions that differ from the committed offsets
        are sent.

        :raises KlogError: if a member has joined the group, or if the commit fails otherwise
        """
        changed = {
            each: CommittedOffset(offset)
            for each, offset in positions.items()
            if self._committed.get(each) != offset
        }
        if not changed:
            return
        try:
            commit_offsets(self._client, self._group_id, changed)
        except BrokerError as error:
            if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
                raise self._busy("a member has just joined") from error
            raise
        self._committed |= positions

    def _busy(self, why: str) -> KlogError:
        return KlogError(
            f"group {self._group_id} has members: {why}; klog consume commits only for a group "
            "without members: stop its consumers, or use another group"
        )
