"""Deletes groups (DeleteGroups) and single offsets of a group (OffsetDelete).

Both write tombstones to the log of the group's shard. Kafka writes a group's tombstones as one
batch. klog deletes a group with many offsets in parts, and checks before each part whether the
group may still be deleted.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

from klog_broker.coordinator.errors import append_client_error, client_error
from klog_broker.coordinator.group.classic.deletion_checks import (
    group_deletion_error,
    offset_deletion_error,
    topics_in_use,
)
from klog_broker.coordinator.group.offset_cleanup import (
    TOMBSTONES_AT_ONCE,
    GroupRuntime,
    GroupShard,
)
from klog_broker.coordinator.group.offsets import commit_key
from klog_broker.coordinator.group.shard_state import GroupEntry, Records
from klog_broker.log.errors import LogError
from klog_broker.runtime.event_loop.slices import Slices, Steps
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.state_records.group_metadata import GroupMetadataKey

_NONE = ErrorCode.NONE

GroupCodes = dict[str, ErrorCode]
OffsetCodes = dict[TopicPartition, ErrorCode]


class Deletions:
    """Carries out deletions in slices, so that the event loop serves other requests in between.

    A deletion that has started is finished, even if the client has disconnected. The client gets
    the result once the high watermark has passed all tombstones.
    """

    def __init__(self, runtime: GroupRuntime, slices: Slices) -> None:
        self._runtime = runtime
        self._slices = slices

    def delete_groups(self, group_ids: Sequence[str], answer: Callable[[GroupCodes], None]) -> None:
        """Delete groups; no id may occur twice. ``answer`` gets an error code for each group."""
        codes: GroupCodes = {}

        def on_deleted(group_id: str, code: ErrorCode) -> None:
            codes[group_id] = code
            if len(codes) == len(group_ids):
                answer(codes)

        def steps() -> Steps:
            for group_id in group_ids:
                yield 1
                yield from self._delete_group(group_id, partial(on_deleted, group_id))

        if not group_ids:
            answer(codes)
        self._slices.run(steps(), lambda: True)

    def delete_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition],
        answer: Callable[[ErrorCode, OffsetCodes], None],
    ) -> None:
        """Delete a group's offsets of some partitions; missing offsets are no error.

        ``answer`` gets an error for the whole request, or NONE and an error for each partition.
        """
        self._slices.run(self._delete_offsets(group_id, partitions, answer), lambda: True)

    # --- deleting whole groups -------------------------------------------------------------------
    def _delete_group(self, group_id: str, answer: Callable[[ErrorCode], None]) -> Steps:
        error, shard = self._runtime.find(group_id)
        if shard is None:
            answer(error)
            return
        entry = shard.state.groups.get(group_id)
        if entry is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        # While this deletion waited for its next slice, another request may have deleted the group.
        while error is _NONE and shard.state.groups.get(group_id) is entry is not None:
            error = shard.serving_error() or group_deletion_error(entry.group)
            if error is _NONE:
                part, is_last = _next_part(entry)
                records: Records = [(commit_key(group_id, each), None) for each in part]
                if is_last:
                    records.append((GroupMetadataKey(group=group_id), None))
                error = self._append(shard, group_id, records)
                yield len(records)
        shard.when_visible(lambda code: answer(error or client_error(code)))

    # --- deleting single offsets of a group ------------------------------------------------------
    def _delete_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition],
        answer: Callable[[ErrorCode, OffsetCodes], None],
    ) -> Steps:
        codes: OffsetCodes = {}
        error, shard = self._runtime.find(group_id)
        if shard is None:
            answer(error, codes)
            return
        entry = shard.state.groups.get(group_id)
        if entry is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        for first in range(0, len(partitions), TOMBSTONES_AT_ONCE):
            if error is not _NONE or entry is None:
                break
            part = partitions[first : first + TOMBSTONES_AT_ONCE]
            error = self._delete_some(shard, entry, part, codes)
            yield len(part) + len(entry.group.members)
        shard.when_visible(lambda code: answer(error or client_error(code), codes))

    def _delete_some(
        self,
        shard: GroupShard,
        entry: GroupEntry,
        partitions: Sequence[TopicPartition],
        codes: OffsetCodes,
    ) -> ErrorCode:
        """Delete some offsets, if the group's state allows it now.

        Sets ``codes`` for each partition, or returns an error for the whole request.
        """
        group = entry.group
        error = shard.serving_error() or offset_deletion_error(group)
        if error is not _NONE:
            return error
        in_use = topics_in_use(group)
        records: Records = []
        for each in partitions:
            is_used = in_use is None or each.topic in in_use
            codes[each] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_used else _NONE
            if not is_used and (entry.offsets.get(each) or each in entry.pending_offsets):
                records.append((commit_key(group.group_id, each), None))
        return self._append(shard, group.group_id, records)

    def _append(self, shard: GroupShard, group_id: str, records: Records) -> ErrorCode:
        if not records:
            return _NONE
        try:
            shard.append_in_parts(records)
        except (LogError, BrokerError) as failure:
            return append_client_error(failure)
        self._runtime.schedule(shard, group_id)
        return _NONE


def _next_part(entry: GroupEntry) -> tuple[list[TopicPartition], bool]:
    """The partitions whose offsets to delete next, and whether they are the group's last.

    Pending offsets of open transactions are deleted, too, because the group no longer exists when
    the transactions' markers are written.
    """
    offsets = entry.offsets
    part = offsets.first_partitions(TOMBSTONES_AT_ONCE)
    if len(part) < len(offsets):
        return part, False
    pending = (each for each in entry.pending_offsets if offsets.get(each) is None)
    part += islice(pending, TOMBSTONES_AT_ONCE - len(part))
    return part, next(pending, None) is None
