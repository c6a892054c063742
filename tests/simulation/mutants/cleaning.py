"""Bugs of the log cleaner: in filtering records, in swapping segments, in recovery at a start."""

from typing import Any

import numpy as np

from klog_broker.compaction import cleaner, kernel
from klog_broker.compaction.cleaned_transactions import CleanedTransactions
from klog_broker.compaction.cleaning_round import CleaningRound
from klog_broker.compaction.filtering import ChunkFilter
from klog_broker.compaction.key_map import KeyMap
from klog_broker.compaction.verdicts import Verdicts
from klog_broker.log.maintenance.cleaned_segment import CleanedSegment
from klog_broker.log.maintenance.cleaning import LogCleaning
from klog_broker.log.maintenance.segment_swap import Swapper
from klog_broker.log.recovery import leftovers, log_loading
from klog_broker.log.segment.segment_renaming import mark_deleted
from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import BatchView, split_batches
from pyspark_klog.records.kernels import scan
from pyspark_klog.storage.names import SWAP_SUFFIX
from tests.simulation.mutants.mutant import Mutant


# --- which records are removed --------------------------------------------------------------------
def _horizon_ignored(original: Any) -> Any:
    def init(chunk_filter: Any, *arguments: Any, **named: Any) -> None:
        """A tombstone is removed as soon as it has a delete horizon."""
        original(chunk_filter, *arguments, **named)
        chunk_filter._settings[kernel.SETTING_NOW_MS] = at.INT64_MAX

    return init


def _no_delete_retention(original: Any) -> Any:
    def init(chunk_filter: Any, *arguments: Any, **named: Any) -> None:
        """Tombstones and markers are removed without regard to delete.retention.ms."""
        original(chunk_filter, *arguments, **{**named, "delete_retention_ms": 0})

    return init


def _no_horizon(original: Any) -> Any:
    def filter_chunk(chunk_filter: Any, *arguments: Any) -> list[memoryview]:
        """No batch gets a delete horizon."""
        pieces: list[memoryview] = original(chunk_filter, *arguments)
        for piece in pieces:
            for batch in split_batches(piece):
                attributes = batch.attributes & ~at.DELETE_HORIZON_BIT
                at.INT16.pack_into(piece, batch.position + at.ATTRIBUTES_AT, attributes)
                BatchView(piece, batch.position).update_crc()
        return pieces

    return filter_chunk


def _loses_keys(original: Any) -> Any:
    def add_chunk(
        keys: Any, data: Any, table: Any, row_count: int, skip: Any, from_offset: int
    ) -> Any:
        """The keys of the first batch of each chunk are lost."""
        skip = np.array(skip)
        skip[:1] = 1
        return original(keys, data, table, row_count, skip, from_offset)

    return add_chunk


def _counts_too_far(original: Any) -> Any:
    def add_chunk(keys: Any, data: Any, table: Any, row_count: int, *rest: Any) -> Any:
        """The batch whose keys did not fit into the map counts as added."""
        fits = original(keys, data, table, row_count, *rest)
        if not fits:
            lasts = table.reshape(-1, scan.TABLE_COLUMNS)[:row_count, scan.LAST_OFFSET]
            keys.latest_offset = int(lasts[lasts > keys.latest_offset][0])
        return fits

    return add_chunk


def _forgets_producers(_original: Any) -> Any:
    def last_of_producers(_cleaning: Any) -> dict[int, Any]:
        """A producer's last batch is removed like any other when none of its records stays."""
        return {}

    return last_of_producers


def _aborted_keys(original: Any) -> Any:
    def void(verdicts: Any, chunk: Any, table: Any) -> Any:
        """Aborted records supersede committed ones."""
        return np.zeros_like(original(verdicts, chunk, table))

    return void


def _aborted_stay(_original: Any) -> Any:
    def verdict(_verdicts: Any, _chunk: Any, row: list[int]) -> int:
        """Records of aborted transactions are looked up in the map like all others."""
        is_marker = row[scan.ATTRIBUTES] & at.CONTROL_BIT
        return kernel.KEEP_RECORDS if is_marker else 0

    return verdict


def _always_bare(original: Any) -> Any:
    def is_last_trace(transactions: Any, *arguments: Any) -> bool:
        """Markers may go while records of their transactions are still there."""
        original(transactions, *arguments)
        return True

    return is_last_trace


def _ends_anywhere(original: Any) -> Any:
    def filter_(*arguments: Any) -> Any:
        """A new segment ends with its last record, wherever the old ones ended."""
        return original(*arguments[:-1], False)

    return filter_


# --- how far the cleaner goes ---------------------------------------------------------------------
def _past_the_stable(original: Any) -> Any:
    def extent_of(log: Any, *arguments: Any) -> Any:
        """Records of open transactions are cleaned."""
        return original(log._replace(last_stable_offset=log.log_end_offset), *arguments)

    return extent_of


def _active_counts(original: Any) -> Any:
    def end_round(cleaning: Any, cleaned_offset: Any = None) -> None:
        """The active segment counts as cleaned."""
        end_offset = cleaning._state.log_end_offset
        original(cleaning, None if cleaned_offset is None else end_offset)

    return end_round


def _no_lag(original: Any) -> Any:
    def extent_of(log: Any, config: Any, now_ms: int) -> Any:
        """Records younger than min.compaction.lag.ms are cleaned."""
        return original(log, config, now_ms + config.min_compaction_lag_ms)

    return extent_of


# --- how segments are swapped ---------------------------------------------------------------------
def _files_not_synced(original: Any) -> Any:
    def finish(cleaned: Any, *arguments: Any) -> Any:
        """The files of a cleaned segment are taken for synced although they are not."""
        cleaned._segment.sync_files = list
        return original(cleaned, *arguments)

    return finish


class _WithoutWork:
    """Helpers that report all work as done without doing it."""

    def __init__(self, helpers: Any) -> None:
        self._helpers = helpers

    def submit(self, _work: Any, on_done: Any) -> None:
        self._helpers.submit(lambda: None, on_done)


def _names_not_synced(original: Any) -> Any:
    def init(swapper: Any, state: Any, helpers: Any, *arguments: Any) -> None:
        """The directory is not synced between the steps of a swap."""
        original(swapper, state, _WithoutWork(helpers), *arguments)

    return init


def _old_names_stay(_original: Any) -> Any:
    def delete(swapper: Any, segments: Any, base_offset: int) -> None:
        """The old segments behind the first keep their names for a while."""
        renamed = mark_deleted(segments[0], keep_snapshot=True)
        swapper._remove_later(renamed, 0)

    return delete


def _drops_swaps(original: Any) -> Any:
    def clear(files: Any, directory: Any) -> Any:
        """A start removes files with the swap suffix, though the old segments may be gone, too."""
        for name in files.list_dir(directory):
            if name.endswith(SWAP_SUFFIX):
                files.remove(directory / name)
        return original(files, directory)

    return clear


def _replaces_one(_original: Any) -> Any:
    def end_of(_files: Any, _path: Any) -> int:
        """A swap replaces only the segment of its own name."""
        return 0

    return end_of


MUTANTS = (
    Mutant("tombstone dropped early", ChunkFilter, "__init__", _horizon_ignored),
    Mutant("delete retention ignored", ChunkFilter, "__init__", _no_delete_retention),
    Mutant("horizon never set", ChunkFilter, "filter_chunk", _no_horizon),
    Mutant("keys lost from the map", KeyMap, "add_chunk", _loses_keys),
    Mutant("map counts too far", KeyMap, "add_chunk", _counts_too_far),
    Mutant("aborted keys in the map", Verdicts, "keyless_rows", _aborted_keys),
    Mutant("aborted records stay", Verdicts, "_verdict", _aborted_stay),
    Mutant("markers dropped too early", CleanedTransactions, "is_last_trace", _always_bare),
    Mutant(
        "last batch of a producer dropped", LogCleaning, "last_of_producers", _forgets_producers
    ),
    Mutant("cleaned segment ends early", CleaningRound, "_filter", _ends_anywhere),
    Mutant("cleaned past the stable offset", cleaner, "extent_of", _past_the_stable),
    Mutant("active segment taken for clean", LogCleaning, "end_round", _active_counts),
    Mutant("compaction lag ignored", cleaner, "extent_of", _no_lag),
    Mutant("cleaned files not synced", CleanedSegment, "finish", _files_not_synced),
    Mutant("swapped names not synced", Swapper, "__init__", _names_not_synced),
    Mutant("old segments beside the new", Swapper, "_delete", _old_names_stay),
    Mutant("swap left behind dropped", log_loading, "clear_leftovers", _drops_swaps),
    Mutant("swap replaces one segment", leftovers, "_log_file_end_offset", _replaces_one),
)
