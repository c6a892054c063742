"""Fills the batch windows of producers that were restored from a snapshot, by reading the log. A
producer's window is its last five batches, among which the broker looks for retried batches."""

from collections.abc import Iterable

from klog_broker.log.producers.producer_state import (
    MAX_SEQUENCE,
    WINDOW_BATCHES,
    ProducerBatch,
    ProducerEntry,
    ProducerHead,
    ProducerStates,
)
from pyspark_klog.ids import ProducerId


class WindowRefill:
    """Fills the window (the last five batches) of each producer that was restored from a snapshot.

    A snapshot holds only the last batch of each producer; the batches before it are read from the
    log. Call :meth:`add_block` with blocks (byte ranges) of the log from the newest to the oldest,
    until :attr:`is_complete` is true. Within a block the batches are in the order of the log.
    """

    def __init__(self, states: ProducerStates, log_start_offset: int) -> None:
        self._end_offset = states.end_offset
        self._wanted = {
            entry.producer_id: entry
            for entry in states
            if entry.batches and entry.batches[-1].last_offset >= log_start_offset
        }

    @property
    def is_complete(self) -> bool:
        """Whether the window (the last batches) of each producer has five batches, or begins with a
        batch that is certainly the first of the producer's epoch. Producers without a batch, and
        those whose last batch is below the log start offset, are not considered."""
        return not self._wanted

    def add_block(self, batches: Iterable[tuple[ProducerHead, ProducerBatch]]) -> None:
        """Add the batches of one block (a byte range of the log), in order. Batches at or after the
        snapshot's offset are ignored, because the snapshot does not describe them."""
        found: dict[int, list[ProducerBatch]] = {}
        for head, batch in batches:
            entry = self._wanted.get(ProducerId(head.producer_id))
            if (
                entry is not None
                and head.producer_epoch == entry.producer_epoch
                and batch.last_offset < self._end_offset
            ):
                window = found.setdefault(head.producer_id, [])
                window.append(batch)
                del window[:-WINDOW_BATCHES]
        for producer_id, older in found.items():
            entry = self._wanted[ProducerId(producer_id)]
            known = entry.batches
            if older[-1].last_offset == known[0].last_offset:
                # The producer's batch in the snapshot was found in the log, too. Keep only the
                # batch that was read from the log, because the snapshot's copy lacks the log append
                # time.
                known = known[1:]
            entry.batches = (older + known)[-WINDOW_BATCHES:]
        for entry in list(self._wanted.values()):
            if self._is_complete(entry):
                del self._wanted[entry.producer_id]

    @staticmethod
    def _is_complete(entry: ProducerEntry) -> bool:
        if len(entry.batches) >= WINDOW_BATCHES:
            return True
        # Sequences wrap at 2^31. Sequence 0 is certain to begin the epoch only if fewer than 2^31
        # records can be before the batch.
        first = entry.batches[0]
        return first.first_sequence == 0 and first.first_offset <= MAX_SEQUENCE
