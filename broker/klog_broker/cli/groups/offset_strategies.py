"""The target offsets of a reset: one strategy for each option of kafka-consumer-groups."""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.consumer.offsets import EARLIEST, LATEST, NOT_FOUND, list_offsets
from pyspark_klog.client.errors import SettingError
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Strategy:
    """The offsets to which a group's committed offsets are reset; exactly one field is set."""

    to_earliest: bool = False
    to_latest: bool = False
    to_current: bool = False
    to_offset: int | None = None
    shift_by: int | None = None
    to_time_ms: int | None = None


@dataclass(slots=True)
class OffsetPlan:
    """New offsets, and warnings about new offsets that differ from the requested ones."""

    offsets: dict[TopicPartition, int]
    warnings: list[str]


def plan(
    client: BlockingClient,
    strategy: Strategy,
    partitions: Iterable[TopicPartition],
    committed: Offsets,
) -> OffsetPlan:
    """Return the new offsets of ``partitions``; ``committed`` has the group's present offsets.

    :raises KlogError: if the strategy shifts committed offsets, and a partition has none
    """
    wanted = sorted(partitions)
    if strategy.to_earliest:
        return OffsetPlan(_ends(client, wanted, EARLIEST), [])
    if strategy.to_latest:
        return OffsetPlan(_ends(client, wanted, LATEST), [])
    if strategy.to_time_ms is not None:
        return _to_time(client, wanted, strategy.to_time_ms)
    if strategy.to_offset is not None:
        return within_log(client, dict.fromkeys(wanted, strategy.to_offset))
    if strategy.shift_by is not None:
        missing = [str(each) for each in wanted if each not in committed]
        if missing:
            named = ", ".join(missing)
            raise KlogError(f"--shift-by needs committed offsets, but there are none in {named}")
        shifted = {each: committed[each] + strategy.shift_by for each in wanted}
        return within_log(client, shifted)
    ends = _ends(client, [each for each in wanted if each not in committed], LATEST)
    warnings = [
        f"{each}: there is no offset yet; using the end, {end}" for each, end in ends.items()
    ]
    return OffsetPlan({each: committed.get(each, ends.get(each, 0)) for each in wanted}, warnings)


def within_log(client: BlockingClient, offsets: Offsets) -> OffsetPlan:
    """Return ``offsets`` as the new offsets. An offset outside of its partition's log is moved to
    the nearer end of the log, with a warning."""
    first, end = _ends(client, offsets, EARLIEST), _ends(client, offsets, LATEST)
    made = OffsetPlan({}, [])
    for partition, offset in sorted(offsets.items()):
        low, high = first[partition], end[partition]
        made.offsets[partition] = min(max(offset, low), high)
        if not low <= offset <= high:
            made.warnings.append(
                f"{partition}: offset {offset} is outside of the log, {low} to {high}; using "
                f"{made.offsets[partition]}"
            )
    return made


def _to_time(client: BlockingClient, partitions: list[TopicPartition], time_ms: int) -> OffsetPlan:
    found = list_offsets(client, dict.fromkeys(partitions, max(time_ms, 0)))
    late = [each for each in partitions if found[each].offset == NOT_FOUND]
    ends = _ends(client, late, LATEST)
    return OffsetPlan(
        {each: ends.get(each, found[each].offset) for each in partitions},
        [f"{each}: no record is as new as that time; using the end, {ends[each]}" for each in late],
    )


def _ends(
    client: BlockingClient, partitions: Iterable[TopicPartition], which: int
) -> dict[TopicPartition, int]:
    found = list_offsets(client, dict.fromkeys(partitions, which))
    return {each: at.offset for each, at in sorted(found.items())}


def read_csv(file: Path, group_ids: list[str]) -> dict[str, dict[TopicPartition, int]]:
    """Read a CSV file that `klog groups reset-offsets --export` or kafka-consumer-groups has
    written.

    The columns are topic, partition and offset; if there are several groups, the group comes first.
    :raises SettingError: if the file cannot be read, or a row is invalid; the message names the
    file, and the line of the row
    """
    found: dict[str, dict[TopicPartition, int]] = {group_id: {} for group_id in group_ids}
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            for number, row in enumerate(csv.reader(lines), 1):
                if row:
                    _take(found, row, f"{file}:{number}")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SettingError(f"cannot read {file}: {reason}") from None
    return found


def _take(found: dict[str, dict[TopicPartition, int]], row: list[str], where: str) -> None:
    cells = [cell.strip() for cell in row]
    if len(cells) == 3 and len(found) == 1:
        cells.insert(0, next(iter(found)))
    try:
        group_id, topic, partition, offset = cells
        at = TopicPartition(topic, int(partition)), int(offset)
    except ValueError:
        columns = "topic,partition,offset"
        columns += " with the group first" if len(found) > 1 else ""
        raise SettingError(f"{where}: {','.join(row)}: expected {columns}") from None
    # Skip rows of groups that this call of the command does not reset: the file may be used for
    # several calls, one for each group.
    if group_id in found:
        found[group_id][at[0]] = at[1]
