"""Checks leader-epoch-checkpoint against the leader epochs in the batches."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from klog_broker.inspection.lines import Level
from klog_broker.inspection.report import Report
from klog_broker.inspection.segment_scan import ScannedBatches
from pyspark_klog.records import layout as at
from pyspark_klog.records.kernels import scan
from pyspark_klog.storage.text_files import EpochStart


class EpochCheck:
    """Compares the leader epochs in a log's batches with ``epochs``, the rows of
    leader-epoch-checkpoint (None if the file does not exist or is damaged)."""

    def __init__(
        self,
        epochs: list[EpochStart] | None,
        path: Path,
        report: Report,
        level_of: Callable[[int], Level],
    ) -> None:
        self._path = path
        self._report = report
        self._level_of = level_of
        self._epochs = epochs
        self._starts = np.array([each.start_offset for each in epochs or []], np.int64)
        numbers = [each.epoch for each in epochs or []]
        self._numbers = np.array([at.NO_LEADER_EPOCH, *numbers], np.int64)
        self._newest = -1
        for before, after in zip(epochs or [], (epochs or [])[1:], strict=False):
            if after.epoch == before.epoch or after.start_offset < before.start_offset:
                text = f"epoch {after.epoch} from offset {after.start_offset} does not rise above "
                report.error(path, f"{text}epoch {before.epoch} from offset {before.start_offset}")

    def add(self, chunk: ScannedBatches, log: Path) -> None:
        """Check the leader epochs in the next batches of the log."""
        rows = chunk.rows
        of_v2 = rows[:, scan.MAGIC] == at.MAGIC_V2
        odd = of_v2 & (rows[:, scan.LEADER_EPOCH] < at.NO_LEADER_EPOCH)
        for row in np.flatnonzero(odd)[:1].tolist():
            text = f"offset {rows[row, scan.BASE_OFFSET]} has the invalid leader epoch "
            place = int(chunk.positions()[row])
            self._report.error(log, f"{text}{rows[row, scan.LEADER_EPOCH]}", place)
        has_epoch = of_v2 & (rows[:, scan.LEADER_EPOCH] >= 0)
        rows, positions = rows[has_epoch], chunk.positions()[has_epoch]
        if not len(rows):
            return
        epochs, offsets = rows[:, scan.LEADER_EPOCH], rows[:, scan.BASE_OFFSET]
        newest = np.maximum.accumulate(np.concatenate(([self._newest], epochs)))
        for row in np.flatnonzero(epochs < newest[:-1])[:1].tolist():
            text = f"offset {offsets[row]} has leader epoch {epochs[row]}, after a batch of epoch "
            self._report.error(log, f"{text}{newest[row]}", int(positions[row]))
        self._newest = int(newest[-1])
        if self._epochs is None:
            return
        said = self._numbers[np.searchsorted(self._starts, offsets, side="right")]
        # leader-epoch-checkpoint has no epochs below the log start offset, which DeleteRecords may
        # set inside a segment: earlier batches of that segment have an epoch that the file lacks.
        is_cut = (said == at.NO_LEADER_EPOCH) & bool(len(self._starts))
        for row in np.flatnonzero((said != epochs) & ~is_cut)[:1].tolist():
            text = f"the file has epoch {said[row]} for offset {offsets[row]}, the batch has "
            level = self._level_of(int(offsets[row]))
            self._report.add(level, self._path, f"{text}{epochs[row]}")

    def check_newest_epoch(self, end_offset: int, level: Level) -> None:
        """Check that the newest epoch in the file does not begin after the log end offset."""
        if self._epochs and self._epochs[-1].start_offset > end_offset:
            text = f"epoch {self._epochs[-1].epoch} begins at offset "
            text += f"{self._epochs[-1].start_offset}, above the log end offset {end_offset}"
            self._report.add(level, self._path, text)
