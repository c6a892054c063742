"""Loads a log of committed offsets record by record or in runs, and describes the result."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from klog_broker.coordinator.group import commit_kernel
from klog_broker.coordinator.group.commit_loading import CommitLoading
from klog_broker.coordinator.group.offset_cleanup import GroupShard
from klog_broker.coordinator.group.packed_offsets import StoredOffset, unpacked
from klog_broker.coordinator.group.shard_state import (
    GroupEntry,
    GroupShardState,
)
from klog_broker.coordinator.loading import BatchWalk, BulkLoading, KernelWalk
from pyspark_klog.ids import TopicPartition
from tests.support.cluster.coordinators import HostedGroups
from tests.support.cluster.state_log import MemoryStateLog

BY_RECORD = None
IN_RUNS = partial(CommitLoading, load_kernel=lambda: commit_kernel, least_bytes=0)


@contextmanager
def logged() -> Iterator[list[str]]:
    """Collect the lines that the coordinator's loggers write."""
    lines: list[str] = []

    class _Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    keep = _Keep()
    loggers = [logging.getLogger(name) for name in ("klog.group", "klog.coordinator")]
    for each in loggers:
        each.addHandler(keep)
    try:
        yield lines
    finally:
        for each in loggers:
            each.removeHandler(keep)


def loaded(
    log: MemoryStateLog,
    new_bulk: Callable[[GroupShardState], BulkLoading] | None,
    new_walk: Callable[[], BatchWalk | None] = KernelWalk,
) -> GroupShard:
    return HostedGroups(log, new_bulk=new_bulk, new_walk=new_walk).shard


class Found(NamedTuple):
    """All state that a shard has loaded, in a comparable form."""

    groups: dict[str, Any]
    groups_by_topic: dict[str, set[str]]
    pending: dict[int, Any]
    changes: list[Any]
    before: dict[str, Any]
    is_ahead: bool
    written_offset: int


def found_in(shard: GroupShard) -> Found:
    state, timeline = shard.state, shard.state.timeline
    before = timeline._before  # no public method returns it
    return Found(
        {group_id: _entry(entry) for group_id, entry in state.groups.items()},
        {topic: set(names) for topic, names in state._groups_by_topic.items()},
        state._pending,
        list(timeline._changes),
        {owner: _unpacked(places) for owner, places in before.items()},
        timeline.is_ahead,
        shard._written_offset,
    )


def _unpacked(places: Mapping[TopicPartition, Iterable[StoredOffset | None]]) -> Any:
    return {
        at: [None if each is None else unpacked(each) for each in kept]
        for at, kept in places.items()
    }


def _entry(entry: GroupEntry) -> Any:
    group, book = entry.group, entry.offsets
    places = [where for part in book.in_parts(3) for where in part]
    assert len(places) == len(set(places)) == len(book)
    return (
        group.state,
        group.generation_id,
        group.protocol_name,
        group.leader_id,
        {name: member.assignment for name, member in group.members.items()},
        {where: book.get(where) for where in places},
        entry.pending_offsets,
    )
