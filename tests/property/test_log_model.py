"""A log against a list: random appends, reads, searches, deletions, truncations and restarts."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from klog_broker.log.log_config import LogConfig
from klog_broker.log.manager.log_manager import LogManager
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.validation.kernel_checks import kernel_checks
from klog_broker.log.validation.plain_checks import PlainChecks
from klog_broker.log.validation.record_checks import RecordChecks
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from tests.support.log.harness import PARTITION, TOPIC_ID, append, open_manager, read_all, truncate
from tests.support.records.record_sets import iterate
from tests.support.runtime.memory_files import MemoryFiles


@dataclass
class Model:
    """The log, and what it should hold: a timestamp for each offset."""

    config: LogConfig
    checks: RecordChecks
    files: MemoryFiles = field(default_factory=MemoryFiles)
    timestamps: list[int] = field(default_factory=list)
    start: int = 0

    def open(self) -> None:
        self.manager: LogManager = open_manager(self.files, config=self.config, checks=self.checks)
        self.log: PartitionLog = self.manager.create(PARTITION, TOPIC_ID, self.config)

    def restart(self, is_clean: bool) -> None:
        if is_clean:
            self.manager.close()
        self.files = self.files.killed()
        self.open()
        if not is_clean:
            # Where DeleteRecords had put the start is durable with the next checkpoint only.
            assert self.log.log_start_offset <= self.start
            self.start = self.log.log_start_offset

    def append(self, timestamps: list[int], codec: Codec, size: int) -> None:
        builder = BatchBuilder(0, codec)
        for timestamp_ms in timestamps:
            builder.append(b"k", bytes(size), timestamp_ms)
        info = append(self.log, builder.build())
        assert info.first_offset == len(self.timestamps)
        self.timestamps += timestamps

    def read(self, offset: int, max_bytes: int) -> None:
        if not self.start <= offset < len(self.timestamps):
            return
        region = self.log.read(offset, max_bytes, min_one_batch=True).region
        assert region is not None
        data = region.file.pread(region.size, region.position)
        found = [r for r in iterate(data, allow_partial=True) if r.offset >= offset]
        assert found[0].offset == offset
        for place, record in enumerate(found, offset):
            assert record.offset == place
            assert record.timestamp_ms == self.timestamps[place]

    def search(self, timestamp_ms: int) -> None:
        expected = None
        if timestamp_ms == -3:
            # The batch with the largest timestamp may have been deleted in part.
            largest = max(self.timestamps[self.start :], default=-1)
            found = self.log.offset_for_timestamp(-3)
            if found is not None:
                assert found.timestamp_ms == self.timestamps[found.offset] >= largest
            return
        for offset in range(self.start, len(self.timestamps)):
            if self.timestamps[offset] >= timestamp_ms:
                expected = (self.timestamps[offset], offset)
                break
        found = self.log.offset_for_timestamp(timestamp_ms)
        assert (None if found is None else found[:2]) == expected

    def delete_before(self, offset: int) -> None:
        target = min(offset, len(self.timestamps))
        self.start = max(self.start, target)
        assert self.log.delete_records_before(target) == self.start
        self.log.apply_retention(0)

    def truncate(self, offset: int) -> None:
        if offset >= self.start:
            before = len(self.timestamps)
            # Whole batches go, and offsets with them: the model follows the log's batches.
            bounds = [
                place.base_offset
                for segment in self.log.segments
                for place in segment.batch_positions()
            ]
            target = max((b for b in bounds if b <= offset), default=0)
            if target < before and target >= self.start:
                truncate(self.log, target)
                del self.timestamps[target:]

    def check(self) -> None:
        assert self.log.log_start_offset == self.start
        assert self.log.log_end_offset == len(self.timestamps)
        records = read_all(self.log)
        assert [record.offset for record in records] == list(
            range(self.start, len(self.timestamps))
        )
        assert [record.timestamp_ms for record in records] == self.timestamps[self.start :]


TIMES = st.integers(-1, 60)
STEPS = st.one_of(
    st.tuples(
        st.just("append"),
        st.lists(TIMES, min_size=1, max_size=5),
        st.sampled_from(list(Codec)),
        st.integers(0, 120),
    ),
    st.tuples(st.just("read"), st.integers(0, 80), st.integers(0, 900)),
    st.tuples(st.just("search"), st.sampled_from([-3, *range(65)])),
    st.tuples(st.just("delete_before"), st.integers(0, 80)),
    st.tuples(st.just("truncate"), st.integers(0, 80)),
    st.tuples(st.just("restart"), st.booleans()),
)
CONFIGS = st.builds(
    LogConfig,
    segment_bytes=st.integers(800, 3_000),
    segment_index_bytes=st.sampled_from([4, 24, 48, 400, 4_000]),
    index_interval_bytes=st.sampled_from([0, 100, 300, 5_000]),
    flush_messages=st.sampled_from([1, 3, 10**9]),
    preallocate=st.booleans(),
    retention_ms=st.just(-1),
)


@given(config=CONFIGS, steps=st.lists(STEPS, max_size=40), kernels=st.booleans())
def test_a_log_does_what_a_list_does(
    config: LogConfig, steps: list[tuple[object, ...]], kernels: bool
) -> None:
    model = Model(config, kernel_checks() if kernels else PlainChecks())
    model.open()
    for name, *arguments in steps:
        getattr(model, str(name))(*arguments)
        model.check()
    model.restart(is_clean=True)
    model.check()
    model.restart(is_clean=False)
    model.check()
