"""Restores the producer states of a log from the batches in its segments."""

import logging
from collections.abc import Iterator, Mapping

from klog_broker.log.batch_rows import BatchRow, header_row
from klog_broker.log.errors import DamagedLog
from klog_broker.log.producers.producer_state import ProducerMarker, ProducerStates
from klog_broker.log.producers.producer_steps import apply_step, data_step
from klog_broker.log.producers.producer_windows import WindowRefill
from klog_broker.log.recovery.segment_recovery import OnChunk, ignore_chunk, scan_segment
from klog_broker.log.segment.batch_search import find_batch
from klog_broker.log.segment.segment import Segment
from klog_broker.log.validation.batch_digests import Digest
from klog_broker.log.validation.record_checks import RecordChecks
from pyspark_klog.errors import InvariantViolation
from pyspark_klog.ids import Offset
from pyspark_klog.records.layout import BATCH_HEADER_BYTES, INT64_MAX, MAGIC_V2, UP_TO_MAGIC_BYTES
from pyspark_klog.storage.names import Suffix
from pyspark_klog.storage.transaction_index import AbortedEntry

_log = logging.getLogger("klog.log")
_REFILL_BLOCK_BYTES = 1 << 20
NOTHING_UNINDEXED: Mapping[int, int] = {}


def header_rows(segment: Segment, position: int, end: int) -> Iterator[BatchRow]:
    """Yield the header fields of each v2 batch that starts in ``[position, end)``, as a BatchRow.
    Reads only the headers.

    ``position`` must be the start of a batch. Raises InvariantViolation at bytes that are no batch.
    """
    for place in segment.batch_positions(position, end):
        header = segment.log_file.pread(BATCH_HEADER_BYTES, place.position)
        if len(header) > UP_TO_MAGIC_BYTES and header[16] == MAGIC_V2:
            yield header_row(header, 0)._replace(position=place.position)


def refill_windows(
    states: ProducerStates, segments: tuple[Segment, ...], log_start_offset: int
) -> None:
    """Find the batches before the snapshot's offset that producers may still send again, newest
    first.

    A snapshot holds only the last batch of each producer, and a producer may have five batches in
    flight. Without the older batches, a retry of such a batch would look like a gap in the sequence
    numbers.
    """
    refill = WindowRefill(states, log_start_offset)
    for segment in reversed(segments):
        if refill.is_complete:
            return
        if segment.base_offset >= states.end_offset:
            continue
        for start, end in _blocks_from_end(segment):
            rows = header_rows(segment, start, end)
            try:
                steps = (step for row in rows if (step := data_step(row)) is not None)
                refill.add_block((step.head, step.batch) for step in steps)
            except InvariantViolation as error:
                # A batch is damaged. Go on without the producers' batches in this block (byte range
                # of the segment) and the blocks before it: fetches of the damaged batch get an
                # error, but all other records and logs can be served.
                _log.warning(
                    "log=%s producer state lacks older batches, retries of them can fail: %s",
                    segment.directory,
                    error,
                )
                return
            if refill.is_complete:
                return


def _blocks_from_end(segment: Segment) -> Iterator[tuple[int, int]]:
    """Yield byte ranges (start, end) that cover the segment, from the last to the first. Each range
    begins where a batch begins."""
    end = segment.size_bytes
    view = segment.offset_index.view()
    for row in range(len(view) - 1, -1, -1):
        if end - view[row].position >= _REFILL_BLOCK_BYTES:
            yield view[row].position, end
            end = view[row].position
    yield 0, end


def _replays_from(segment: Segment, offset: int) -> int | None:
    """Return the position of the first batch that ends at or after ``offset``; None if all batches
    end before it.

    Returns 0 for a damaged segment, so that it is read from its start: one damaged file must not
    stop the broker.
    """
    if offset <= segment.base_offset:
        return 0
    try:
        place = find_batch(segment, offset)
    except DamagedLog as error:
        _log.warning(
            "log=%s replaying the whole segment for the producer state: %s",
            segment.path(Suffix.LOG),
            error,
        )
        return 0
    return None if place is None else place.position


def replay_producers(
    states: ProducerStates,
    segments: tuple[Segment, ...],
    end_offset: int,
    checks: RecordChecks,
    *,
    high_watermark: int,
    unindexed: Mapping[int, int],
    on_chunk: OnChunk = ignore_chunk,
) -> None:
    """Bring the producer states from ``states.end_offset``, the offset of their snapshot, to
    ``end_offset``, by reading the log.

    Transactions that end at or after the high watermark stay undecided for readers. ``unindexed``
    maps the base offset of a segment to the offset from which on its transaction index lacks rows.
    This function writes the missing rows.
    """
    start = states.end_offset
    for index, segment in enumerate(segments):
        if index + 1 < len(segments) and segments[index + 1].base_offset <= start:
            continue
        position = _replays_from(segment, start)
        if position is None:
            continue
        seen_ms = segment.log_file.modified_ms()
        unindexed_from = unindexed.get(segment.base_offset, INT64_MAX)
        aborted: list[AbortedEntry] = []
        digest = Digest(
            position=position,
            end_offset=0,
            end_limit=end_offset,
            follows_producers=True,
            commits_done_before=high_watermark,
        )
        for _ in scan_segment(segment, digest, checks, check_crc=False, on_chunk=on_chunk):
            for step in digest.drain_producer_steps():
                if step.last_offset < start:
                    continue
                if isinstance(step, ProducerMarker) and step.offset >= unindexed_from:
                    entry = states.aborted_entry_of(step)
                    if entry is not None:
                        aborted.append(entry)
                apply_step(states, step, seen_ms)
        if unindexed_from == segment.base_offset:
            segment.transaction_index.replace(aborted)
        elif aborted:
            segment.transaction_index.write(aborted)
            segment.transaction_index.commit()
    states.end_offset = Offset(end_offset)
