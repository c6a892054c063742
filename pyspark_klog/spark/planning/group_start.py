"""startingOffsets=committed: a new query begins at a consumer group's offsets. Pure."""

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.errors import DataLost, OffsetError
from pyspark_klog.spark.offsets import Offsets
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.planning.losses import group_out_of_range, group_place_lost

_log = logging.getLogger(__name__)


class GroupStart(NamedTuple):
    """The committed offsets of a consumer group, compared with the first and last offsets of the
    partitions."""

    offsets: Offsets
    missing: list[TopicPartition]
    """Partitions in which the group has no offset."""
    lost: list[str]
    """A sentence for each partition that does not have the group's offset and is therefore read
    from its earliest offset."""


def start_of(
    committed: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> GroupStart:
    """Compare a group's offset in each partition of ``earliest`` with the partition's first offset
    and its end. Pure."""
    start = GroupStart({}, [], [])
    for partition in sorted(earliest):
        offset, first, end = committed.get(partition), earliest[partition], latest[partition]
        if offset is None:
            start.missing.append(partition)
        elif first <= offset <= end:
            start.offsets[partition] = offset
        else:
            start.offsets[partition] = first
            start.lost.append(group_place_lost(partition, offset, (first, end)))
    return start


def committed_start(
    options: Options,
    committed: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    high_watermarks: Mapping[TopicPartition, int],
) -> Offsets:
    """The offset at which a query begins in each partition of ``earliest``, from the committed
    offsets of a consumer group.

    ``latest`` are the ends that a reader sees, ``high_watermarks`` the ends of all records.

    :raises OffsetError: if a partition has no group offset and committedOffsetsMissing is error
    :raises DataLost: if a partition lacks the group's offset and failOnDataLoss is true
    """
    group_id = options.commit_group_id
    start = start_of(committed, earliest, high_watermarks)
    if start.missing and options.committed_offsets_missing == "error":
        raise OffsetError(
            f"group {group_id} has no committed offset in {_names(start.missing)}; set "
            "committedOffsetsMissing to earliest or latest to begin there, or check commitGroupId"
        )
    if start.lost:
        loss = group_out_of_range(group_id, start.lost)
        if options.fail_on_data_loss:
            raise DataLost(str(loss))
        _log.warning("some data may have been lost: %s", loss.text)
    others = earliest if options.committed_offsets_missing == "earliest" else latest
    return start.offsets | {partition: others[partition] for partition in start.missing}


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))
