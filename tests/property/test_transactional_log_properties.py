"""Transactions of a log against a list of its batches: stable offsets, aborted transactions."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from klog_broker.log.log_config import LogConfig
from klog_broker.log.manager.log_manager import LogManager
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.validation.kernel_checks import kernel_checks
from klog_broker.log.validation.plain_checks import PlainChecks
from klog_broker.log.validation.record_checks import RecordChecks
from pyspark_klog.ids import LeaderEpoch
from tests.support.log.harness import PARTITION, TOPIC_ID, open_log, open_manager, truncate
from tests.support.log.transactional_log import NOW_MS, append_end_marker, write
from tests.support.runtime.memory_files import MemoryFiles


class Written(NamedTuple):
    """A batch of the log."""

    first: int
    last: int
    producer_id: int
    kind: str  # plain, data, commit, abort


class Ended(NamedTuple):
    """A transaction, with its marker's offset; -1 while it is open."""

    producer_id: int
    first: int
    marker: int
    is_abort: bool


def producers(log: PartitionLog, wanted: Collection[int] = range(9)) -> dict[int, tuple[int, ...]]:
    """Return the wanted producers' states, except their windows of batches."""
    return {
        each.producer_id: (
            each.producer_epoch,
            each.last_sequence,
            each.coordinator_epoch,
            each.current_transaction_first_offset,
            each.last_timestamp_ms,
        )
        for each in log.producers
        if each.producer_id in wanted
    }


@dataclass
class Model:
    """A log, and the batches that it should hold."""

    config: LogConfig
    checks: RecordChecks
    files: MemoryFiles = field(default_factory=MemoryFiles)
    batches: list[Written] = field(default_factory=list)
    start: int = 0
    high_watermark: int = 0
    epochs: dict[int, int] = field(default_factory=dict)

    def open(self) -> None:
        self.manager: LogManager = open_manager(self.files, config=self.config, checks=self.checks)
        self.log: PartitionLog = self.manager.create(PARTITION, TOPIC_ID, self.config)
        self.log.listener = None

    # --- steps -----------------------------------------------------------------------------------
    def send(self, producer_id: int, count: int, is_transactional: bool) -> None:
        if producer_id in self.open_since():
            is_transactional = True
        known = self.log.producer(producer_id)
        epoch = self.epochs.get(producer_id, 0) if known is None else known.producer_epoch
        sequence = 0 if known is None else known.last_sequence + 1
        info = write(
            self.log,
            producer_id,
            sequence,
            count,
            epoch=epoch,
            is_transactional=is_transactional,
        )
        kind = "data" if is_transactional else "plain"
        self.batches.append(Written(info.first_offset, info.last_offset, producer_id, kind))

    def end_transaction(self, producer_id: int, commit: bool, version: int) -> None:
        known = self.log.producer(producer_id)
        epoch = self.epochs.get(producer_id, 0) if known is None else known.producer_epoch
        if version == 2:
            epoch += 1
        self.epochs[producer_id] = epoch
        offset = self.log.log_end_offset
        append_end_marker(
            self.log, producer_id, commit=commit, epoch=epoch, transaction_version=version
        )
        assert self.log.log_end_offset == offset + 1
        kind = "commit" if commit else "abort"
        self.batches.append(Written(offset, offset, producer_id, kind))

    def see(self, percent: int) -> None:
        """The watermark moves on."""
        end_offset = self.log.log_end_offset
        offset = self.high_watermark + (end_offset - self.high_watermark) * percent // 100
        self.high_watermark = offset
        self.log.set_high_watermark(offset)

    def truncate(self, percent: int) -> None:
        # Below the watermark only as long as no record before it was deleted: see `delete`.
        least = self.high_watermark if self.start else 0
        bounds = [each.first for each in self.batches if each.first >= least]
        if not bounds:
            return
        target = bounds[len(bounds) * percent // 101]
        truncate(self.log, target)
        self.batches = [each for each in self.batches if each.first < target]
        self.high_watermark = min(self.high_watermark, target)

    def delete(self, percent: int) -> None:
        target = self.start + (self.high_watermark - self.start) * percent // 100
        # Transactions that begin before the log start are known only while a snapshot has them.
        target = min(target, self.stable())
        self.start = self.log.delete_records_before(target)
        self.log.apply_retention(0)

    def flush(self, checkpoint: bool) -> None:
        self.log.flush()
        if checkpoint:
            self.manager.sync_recovery_points()

    def restart(self, is_clean: bool) -> None:
        there = {each.producer_id for each in self.batches if each.first >= self.start}
        before = producers(self.log, there)
        if is_clean:
            self.manager.close()
        self.files = self.files.killed()
        self.open()
        assert producers(self.log, there) == before
        self.start = self.log.log_start_offset
        # The harness shows all loaded records, as a standalone leader does.
        self.high_watermark = self.log.log_end_offset

    # --- what should be so -----------------------------------------------------------------------
    def transactions(self) -> list[Ended]:
        begun: dict[int, int] = {}
        found = []
        for first, _, producer_id, kind in self.batches:
            if kind == "data":
                begun.setdefault(producer_id, first)
            elif kind != "plain" and producer_id in begun:
                found.append(Ended(producer_id, begun.pop(producer_id), first, kind == "abort"))
        return found + [Ended(each, first, -1, False) for each, first in begun.items()]

    def open_since(self) -> dict[int, int]:
        return {each.producer_id: each.first for each in self.transactions() if each.marker < 0}

    def stable_after(self, ended: Ended) -> int:
        """Return the last stable offset for an index row: the first transaction still open then."""
        others = [
            each.first
            for each in self.transactions()
            if each.first < ended.marker and not -1 < each.marker <= ended.marker
        ]
        return min(others, default=ended.marker + 1)

    def stable(self) -> int:
        undecided = [
            each.first
            for each in self.transactions()
            if each.marker < 0 or each.marker >= self.high_watermark
        ]
        return max(min([*undecided, self.high_watermark]), self.start)

    def check(self) -> None:
        log = self.log
        assert log.log_end_offset == (self.batches[-1].last + 1 if self.batches else 0)
        transactions = self.transactions()
        assert {
            each.producer_id: each.current_transaction_first_offset
            for each in log.producers
            if each.current_transaction_first_offset >= 0
        } == self.open_since()
        assert log.last_stable_offset == self.stable()
        aborted = sorted(
            (each for each in transactions if each.is_abort), key=lambda each: each.marker
        )
        for first in {self.start, (self.start + self.high_watermark) // 2}:
            for upper in {self.stable(), (first + self.stable()) // 2}:
                expected = [
                    (each.producer_id, each.first, each.marker, self.stable_after(each))
                    for each in aborted
                    if each.marker >= first and each.first < upper
                ]
                assert log.aborted_transactions(first, upper) == expected


STEPS = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 3), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("send"), st.integers(0, 3), st.just(1), st.just(True)),
    st.tuples(
        st.just("end_transaction"),
        st.integers(0, 3),
        st.sampled_from([False, False, True]),
        st.sampled_from([0, 2]),
    ),
    st.tuples(st.just("see"), st.sampled_from([30, 60, 100])),
    st.tuples(st.just("truncate"), st.integers(0, 100)),
    st.tuples(st.just("delete"), st.integers(0, 100)),
    st.tuples(st.just("flush"), st.booleans()),
    st.tuples(st.just("restart"), st.booleans()),
)
CONFIGS = st.builds(
    LogConfig,
    segment_bytes=st.integers(300, 2_000),
    segment_index_bytes=st.sampled_from([24, 400]),
    index_interval_bytes=st.sampled_from([0, 100, 500]),
    retention_ms=st.just(-1),
)


def fetch(log: PartitionLog, leader: PartitionLog, piece: int) -> None:
    """Take over what a leader holds, in pieces."""
    files = (segment.log_file for segment in leader.segments)
    data = b"".join(file.pread(file.size(), 0) for file in files)
    position, size = 0, piece
    while position < len(data):
        before = log.size_bytes
        part = memoryview(data)[position : position + size]
        log.append_as_follower(part, leader_epoch=LeaderEpoch(99), now_ms=NOW_MS)
        position += log.size_bytes - before
        size = piece if log.size_bytes > before else 2 * size


@given(
    config=CONFIGS,
    steps=st.lists(STEPS.filter(lambda step: step[0] in ("send", "end_transaction")), max_size=40),
    kernels=st.booleans(),
    piece=st.integers(60, 2_000),
)
def test_a_follower_knows_what_its_leader_knows(
    config: LogConfig, steps: list[tuple[object, ...]], kernels: bool, piece: int
) -> None:
    checks = kernel_checks() if kernels else PlainChecks()
    model = Model(config, checks)
    model.open()
    for name, *arguments in steps:
        getattr(model, str(name))(*arguments)
    leader = model.log
    model.files = MemoryFiles()
    model.log = follower = open_log(model.files, config, checks=checks)
    follower.listener = None
    fetch(follower, leader, piece)
    model.check()
    assert producers(follower) == producers(leader)
    model.see(60)
    model.check()
    model.manager = follower_manager = open_manager(model.files.killed(), config=config)
    found = follower_manager.get(PARTITION)
    assert found is not None
    assert producers(found) == producers(leader)


@given(config=CONFIGS, steps=st.lists(STEPS, max_size=40), kernels=st.booleans())
def test_a_log_knows_what_its_batches_say(
    config: LogConfig, steps: list[tuple[object, ...]], kernels: bool
) -> None:
    model = Model(config, kernel_checks() if kernels else PlainChecks())
    model.open()
    for name, *arguments in steps:
        getattr(model, str(name))(*arguments)
        model.check()
    model.restart(is_clean=False)
    model.check()
    model.restart(is_clean=True)
    model.check()
