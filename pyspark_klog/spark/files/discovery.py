"""Planning from files: finds the partitions of a data directory, and where they begin and end.

`planning/discovery.py` asks brokers; this module reads directories, checkpoints and indexes. A
broker may be changing these files: if one disappears between the listing of a directory and the
read of the file, the directory is listed again and the look-up is repeated.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from pyspark_klog.client import clock
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.errors import OffsetError, OptionError
from pyspark_klog.spark.offsets import Offsets
from pyspark_klog.spark.options.options import Options
from pyspark_klog.spark.planning.open_transactions import open_transaction
from pyspark_klog.storage import names
from pyspark_klog.storage.data_directory import (
    first_epoch_start,
    partitions_in,
    read_checkpoint,
)
from pyspark_klog.storage.partition_files import Listing, PartitionFiles, ReadCounter

_log = logging.getLogger(__name__)

# How often with_stable_listing looks up a partition's segments if files are missing, and the pause
# between two look-ups. While a broker replaces or deletes a segment, some of the segment's files
# are missing: for a moment, or until the broker restarts if it is killed in that moment.
ATTEMPTS = 40
PAUSE_S = 0.05

_INTERNAL = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)
"""Internal topics, which the option subscribePattern never matches."""

T = TypeVar("T")


class SegmentDiscovery:
    """Looks up partitions and offsets in a data directory for the planning of one batch query.

    The constructor lists the partitions and reads the broker's checkpoint files.

    :raises OptionError: if ``options.path`` is no data directory, or lacks the checkpoint of high
        watermarks and a broker may be running
    :raises StorageFormatError: if a checkpoint file is damaged
    """

    def __init__(self, options: Options, counter: ReadCounter | None = None) -> None:
        assert options.path is not None
        self._options = options
        self._path = Path(options.path)
        self._counter = counter or ReadCounter()
        check_directory(self._path)
        self._there = partitions_in(self._path)
        self._high_watermarks = self._read_high_watermarks()
        self._starts = read_checkpoint(self._path, names.LOG_START_OFFSET_CHECKPOINT) or {}
        self._recovery_points = read_checkpoint(self._path, names.RECOVERY_POINT_CHECKPOINT) or {}
        self._committed: dict[TopicPartition, int] = {}
        self._stable: dict[TopicPartition, int] = {}

    def _read_high_watermarks(self) -> Mapping[TopicPartition, int]:
        name = names.HIGH_WATERMARK_CHECKPOINT
        found = read_checkpoint(self._path, name)
        if found is None and not self._options.stopped:
            raise OptionError(
                f"there is no {name} in {self._path}, so nothing says which records are committed; "
                "if no broker runs on these files, set option stopped=true"
            )
        return found or {}

    @property
    def read_bytes(self) -> int:
        """The number of bytes read from segments and indexes for planning; the bytes of checkpoint
        files are not counted."""
        return self._counter.total_bytes

    # --- finding partitions ----------------------------------------------------------------------
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions to read; none if the option subscribePattern matches no topic.

        :raises OffsetError: if the data directory lacks one of the partitions
        """
        options = self._options
        if options.assigned is not None:
            missing = sorted(options.assigned - self._there)
            if missing:
                raise OffsetError(
                    f"assign names {', '.join(map(str, missing))}: there is no such directory in "
                    f"{self._path}"
                )
            return options.assigned
        topics = self._topics()
        found = frozenset(p for p in self._there if p.topic in topics)
        for topic in sorted({p.topic for p in found}):
            numbers = {p.partition for p in found if p.topic == topic}
            gaps = sorted(set(range(max(numbers))) - numbers)
            if gaps:
                raise OffsetError(
                    f"{self._path} lacks partitions {', '.join(map(str, gaps))} of topic {topic}: "
                    "other data directories may have them; use option assign to read just those "
                    f"that this one has, {', '.join(map(str, sorted(numbers)))}"
                )
        return found

    def _topics(self) -> frozenset[str]:
        there = frozenset(p.topic for p in self._there)
        if self._options.topic_pattern is not None:
            from pyspark_klog.spark.options.java_regex import compile_java

            pattern = compile_java(self._options.topic_pattern)
            return frozenset(t for t in there - _INTERNAL if pattern.search(t))
        missing = sorted(set(self._options.topics) - there)
        if missing:
            raise OffsetError(
                f"topic {', '.join(missing)} has no directory in {self._path}; a partition's is "
                f"called {missing[0]}-0"
            )
        return frozenset(self._options.topics)

    # --- looking up offsets ----------------------------------------------------------------------
    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The first offset of each partition."""
        return {p: self._settled(p, partial(self._start_of, p)) for p in partitions}

    def latest(
        self, partitions: Iterable[TopicPartition], _known: Mapping[TopicPartition, int]
    ) -> Offsets:
        """The end of each partition's readable records: the high watermark, or under read_committed
        the first offset of the oldest open transaction (`end_of`)."""
        return {p: self.end_of(p) for p in partitions}

    def at_times(self, timestamps_ms: Mapping[TopicPartition, int]) -> Offsets:
        """The first offset in each partition whose record is not older than the timestamp that
        ``timestamps_ms`` has for the partition; partitions without such a record are left out."""
        found = {}
        for p, timestamp_ms in timestamps_ms.items():
            offset = self._settled(p, partial(self._offset_at, p, timestamp_ms))
            if offset is not None and self.end_of(p, enough=offset + 1) > offset:
                found[p] = offset
        return found

    def _offset_at(
        self, p: TopicPartition, timestamp_ms: int, files: PartitionFiles, listing: Listing
    ) -> int | None:
        from pyspark_klog.storage.segment_walk import offset_at_time

        start, end = self._start(p, listing), self._committed_end(p, listing)
        return offset_at_time(files, listing, timestamp_ms, start, end)

    def end_of(self, partition: TopicPartition, *, enough: int | None = None) -> int:
        """The offset after the last readable record: the high watermark in the checkpoint, or under
        read_committed the first offset of the oldest transaction that is open below it.

        With option stopped, by which the user says that no broker runs on the data directory, a
        partition that the checkpoint lacks is readable to its log end offset. If the end is
        ``enough`` or more, the result may be ``enough`` instead of the end: the search for open
        transactions stops at that offset."""
        if not self._options.read_committed:
            return self._settled(partition, lambda _, found: self._committed_end(partition, found))
        known = self._stable.get(partition)
        if known is not None:
            return known
        from pyspark_klog.storage.segment_walk import last_stable_offset

        def search(files: PartitionFiles, listing: Listing) -> int:
            start = self._start(partition, listing)
            committed = self._committed_end(partition, listing)
            return last_stable_offset(files, listing, start, committed, enough=enough)

        end = self._settled(partition, search)
        if end != enough:
            self._stable[partition] = end
        return end

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The high watermark of each partition, whether or not transactions are open below it."""
        return {p: self._settled(p, partial(self._high_watermark_of, p)) for p in partitions}

    def open_transactions(
        self, start: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, str]:
        """A sentence about the open transaction in each partition whose end (in ``ends``) is before
        its ``start``, at which the read begins, only because of that transaction: the high
        watermark is at ``start`` or after it."""
        behind = [p for p, end in ends.items() if end < start.get(p, 0)]
        highs = self.high_watermarks(behind)
        texts = {p: self.open_transaction_at(p, ends[p]) for p in behind if highs[p] >= start[p]}
        return {p: text for p, text in texts.items() if text is not None}

    def open_transaction_at(self, partition: TopicPartition, end: int) -> str | None:
        """A sentence about the open transaction at which the committed records of a partition end
        (offset ``end``); None if they end at the high watermark."""
        if not self._options.read_committed or end >= self.high_watermarks([partition])[partition]:
            return None
        since_ms = self._settled(partition, partial(self._time_at, partition, end))
        return open_transaction(partition, end, since_ms)

    def _high_watermark_of(self, p: TopicPartition, _: PartitionFiles, listing: Listing) -> int:
        return self._committed_end(p, listing)

    def _time_at(
        self, p: TopicPartition, offset: int, files: PartitionFiles, listing: Listing
    ) -> int | None:
        from pyspark_klog.storage.segment_walk import first_time_from

        return first_time_from(files, listing, offset, self._committed_end(p, listing))

    def check_local(self, start: Offsets) -> None:
        """Refuse start offsets whose records are only in a remote tier (KIP-405), not on disk.

        :raises OffsetError: for the first partition with such a start
        """
        for p, offset in sorted(start.items()):
            begin = self._starts.get(p)
            first = self._settled(p, lambda _, listing: listing.bases[0])
            if begin is not None and offset < first and self._is_tiered(p, begin, first):
                raise OffsetError(
                    f"{p} has its offsets {begin} to {first} (exclusive) in a remote tier, which "
                    f"cannot be read as files: begin at offset {first} or later, or leave out "
                    "option path to read through the brokers"
                )

    def committed(self, group_id: str, _partitions: Iterable[TopicPartition]) -> Offsets:
        """Refuse startingOffsets=committed, because only brokers know the offsets of groups.

        :raises OptionError: always
        """
        raise OptionError(
            f"startingOffsets is committed, of group {group_id}, and path is given; brokers know a "
            "group's offsets, files do not: give offsets or a timestamp"
        )

    def _start_of(self, partition: TopicPartition, _: PartitionFiles, listing: Listing) -> int:
        return self._start(partition, listing)

    def _start(self, partition: TopicPartition, listing: Listing) -> int:
        begin = self._starts.get(partition)
        first = listing.bases[0]
        if begin is None or self._is_tiered(partition, begin, first):
            return first if begin is None else begin
        return max(begin, first)

    def _is_tiered(self, partition: TopicPartition, begin: int, first: int) -> bool:
        """Whether the log begins in a remote tier: at offset ``begin``, before ``first``, the base
        offset of the first segment on disk.

        ``begin`` comes from the checkpoint of log start offsets, which may be older than the last
        deletion of segments. So the first leader epoch must begin before ``first``, too: brokers
        move the start of that epoch when they delete segments.
        """
        if begin >= first:
            return False
        epoch_start = first_epoch_start(self._directory(partition))
        return epoch_start is not None and epoch_start < first

    def _committed_end(self, partition: TopicPartition, listing: Listing) -> int:
        known = self._committed.get(partition)
        if known is None:
            known = self._committed[partition] = self._find_committed_end(partition, listing)
        return max(known, listing.bases[0])

    def _find_committed_end(self, partition: TopicPartition, listing: Listing) -> int:
        end = self._high_watermarks.get(partition)
        if end is not None:
            return end
        if not self._options.stopped:
            _log.warning(
                "partition=%s is not in %s yet: none of its records are read",
                partition,
                names.HIGH_WATERMARK_CHECKPOINT,
            )
            return 0
        from pyspark_klog.storage.segment_walk import whole_end

        files = PartitionFiles(self._directory(partition), self._counter)
        return whole_end(files, listing, self._recovery_points.get(partition))

    def _directory(self, partition: TopicPartition) -> Path:
        return self._path / names.partition_directory_name(partition)

    def _settled(
        self, partition: TopicPartition, search: Callable[[PartitionFiles, Listing], T]
    ) -> T:
        """Run ``search``, a look-up of an offset or a time, on a listing of the partition's files;
        list the files again and repeat the search while a broker deletes or replaces files."""
        files = PartitionFiles(self._directory(partition), self._counter)
        return with_stable_listing(files, lambda listing: search(files, listing))


def check_directory(path: Path) -> None:
    """Check that ``path`` can be a data directory.

    :raises OptionError: if it is no directory on this machine, or is the directory of one partition
    """
    if not path.is_dir():
        import platform

        raise OptionError(
            f"path {path} is no directory on {platform.node()}; expected a broker's data "
            "directory (log.dirs) that the driver and every executor see under that path"
        )
    if (path / names.PARTITION_METADATA).exists() or any(
        names.parse_segment_file_name(entry.name) for entry in path.iterdir()
    ):
        raise OptionError(
            f"path {path} is the directory of one partition; expected the data directory above it, "
            "and option assign to name the partition"
        )


class PartitionGone(OffsetError):
    """The partition's directory is missing or has no segment, even in the last of ATTEMPTS
    listings of the directory."""


def with_stable_listing(files: PartitionFiles, search: Callable[[Listing], T]) -> T:
    """Run ``search`` on a listing of the partition's files. If a broker deletes or replaces files
    meanwhile, list the files again and repeat the search.

    :raises PartitionGone: if the directory is missing or has no segment
    :raises OffsetError: if files still disappear after ATTEMPTS tries, or the log cleaner was
        stopped while it replaced segments (``*.swap`` files)
    """
    reason = ""
    is_gone = False
    for number in range(ATTEMPTS):
        if number:
            clock.sleep(PAUSE_S)
        try:
            is_gone = True
            listing = files.listing()
            is_gone = not listing.bases
            if listing.is_being_swapped:
                reason = (
                    "the log cleaner is replacing files (*.swap), or was stopped while it did: "
                )
                reason += "read again later, or, if no broker runs, start the broker once, which "
                reason += "completes the replacement"
            elif not listing.bases:
                reason = "there is no segment in it"
            else:
                return search(listing)
        except FileNotFoundError as error:
            reason = f"{error.filename} has gone"
    failure = PartitionGone if is_gone else OffsetError
    raise failure(f"{files.path} cannot be read: {reason}")
