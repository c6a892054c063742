"""The loop of `klog lake run`: decides when each topic is copied."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from pyspark_klog.client.clock import epoch_ms
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import TimedOut, is_retriable
from pyspark_klog.errors import KlogError
from pyspark_klog.lake_tables.copier import Backlog, TopicCopier
from pyspark_klog.lake_tables.errors import CommitFailed, TableUnavailable

_log = logging.getLogger(__name__)

_LOOK_MS = 1_000
"""How long the writer waits between two looks at the offsets of the topics."""
_LONGEST_WAIT_MS = 60_000
"""The longest wait after failures in a row."""
_MOST_FAILURES = 3
_PASSING = (TableUnavailable, CommitFailed, TimedOut)
_GUESSED_BYTES = 100
"""The size of a record in a file, as long as the table has no files."""


@dataclass(frozen=True, slots=True)
class RollTimes:
    """When a topic's new records are copied: as soon as a partition has enough for a file of
    ``roll_bytes``, and at the latest ``roll_ms`` after the last commit."""

    roll_bytes: int
    roll_ms: int

    def is_due(self, backlog: Backlog, bytes_a_record: float, now_ms: int) -> bool:
        """Whether to copy now, when files have ``bytes_a_record`` bytes for each record. A last
        commit in the future is one of a clock that was set back since: copy, too."""
        behind = backlog.behind
        if not behind:
            return False
        if not 0 <= now_ms - backlog.head.committed_ms < self.roll_ms:
            return True
        return max(behind.values()) * bytes_a_record >= self.roll_bytes


class LakeWriter:
    """Copies topics, one after the other, until it is stopped."""

    def __init__(
        self, client: BlockingClient, copiers: Sequence[TopicCopier], times: RollTimes
    ) -> None:
        self._client = client
        self.copiers = copiers
        self._times = times
        self._failures: Counter[str] = Counter()
        self.backlogs: dict[str, Backlog] = {}
        """By topic what the writer has seen last."""

    def copy_all(self) -> None:
        """Copy all records that are committed now.

        :raises KlogError: at the first error
        """
        for copier in self.copiers:
            backlog = self._look(copier)
            while backlog.ahead:
                self._client.sleep_ms(_LOOK_MS)
                backlog = self._look(copier)
            goal = backlog.end
            while any(goal.get(n, 0) > at for n, at in backlog.border.items()):
                backlog = self._copy(copier, backlog)

    def run(self) -> NoReturn:
        """Copy until an error.

        :raises KlogError: for an error that another try cannot cure
        """
        failures: Counter[str] = Counter()
        not_before_ms: dict[str, int] = {}
        while True:
            for copier in self.copiers:
                topic, now_ms = copier.topic, self._client.now_ms()
                if now_ms < not_before_ms.get(topic, now_ms):
                    continue
                try:
                    self._copy_if_due(copier)
                    failures[topic] = 0
                except KlogError as error:
                    if not (is_retriable(error) or isinstance(error, _PASSING)):
                        raise
                    failures[topic] += 1
                    wait_ms = min(_LOOK_MS << min(failures[topic], 10), _LONGEST_WAIT_MS)
                    not_before_ms[topic] = self._client.now_ms() + wait_ms
                    _log.warning("%s; trying again in %d ms", error, wait_ms)
            self._client.sleep_ms(_LOOK_MS)

    def _look(self, copier: TopicCopier) -> Backlog:
        backlog = self.backlogs[copier.topic] = copier.backlog()
        return backlog

    def _copy_if_due(self, copier: TopicCopier) -> None:
        while True:
            backlog = self._look(copier)
            if not self._times.is_due(backlog, _bytes_a_record(copier), epoch_ms()):
                return
            self._copy(copier, backlog)

    def _copy(self, copier: TopicCopier, backlog: Backlog) -> Backlog:
        """Copy once, and return what the table and the topic look like then.

        :raises LakeError: if the copy has failed `_MOST_FAILURES` times in a row, and no other
            writer has copied anything meanwhile
        """
        has_succeeded = copier.copy(backlog)
        found = self._look(copier)
        if has_succeeded or found.head != backlog.head:
            self._failures[copier.topic] = 0
            return found
        self._failures[copier.topic] += 1
        assert copier.failure is not None
        if self._failures[copier.topic] >= _MOST_FAILURES:
            self._failures[copier.topic] = 0
            raise copier.failure
        _log.warning("%s; the table is read again", copier.failure)
        return found


def _bytes_a_record(copier: TopicCopier) -> float:
    counts = copier.counts
    if counts.records:
        return counts.file_bytes / counts.records
    files = copier.table.files()
    records = sum(each.records for each in files)
    return sum(each.size_bytes for each in files) / records if records else _GUESSED_BYTES
