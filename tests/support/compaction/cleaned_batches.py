"""Batches as a log cleaner leaves them, made without one."""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import pack_into

from hypothesis import strategies as st

from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.record import TimestampType
from tests.support.records.record_sets import empty_batch

HORIZON_MS = 1_700_000_000_000
FIRST_MS = 1_000_000
"""Earlier than all delete horizons, so that cleaned records get negative timestamp deltas."""


@dataclass(frozen=True)
class CleanedBatch:
    """A batch that had ``count`` records, and which of them are left, by delta and time in ms."""

    base_offset: int
    count: int
    left: Sequence[tuple[int, int]]
    codec: Codec = Codec.NONE
    base_timestamp_ms: int = FIRST_MS
    """The time of a record that may be gone; or the delete horizon."""
    has_horizon: bool = False
    append_time_ms: int | None = None
    producer_id: int = -1
    is_transactional: bool = False
    leader_epoch: int = 0

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.count

    @property
    def rows(self) -> list[tuple[int, int]]:
        """Offset and timestamp of each record that is left."""
        append_ms = self.append_time_ms
        return [
            (self.base_offset + delta, time_ms if append_ms is None else append_ms)
            for delta, time_ms in self.left
        ]

    def build(self) -> bytes:
        of_append = self.append_time_ms is not None
        builder = BatchBuilder(
            self.base_offset,
            self.codec,
            TimestampType.LOG_APPEND_TIME if of_append else TimestampType.CREATE_TIME,
            producer_id=self.producer_id,
            producer_epoch=0 if self.producer_id >= 0 else -1,
            base_sequence=0 if self.producer_id >= 0 else -1,
            is_transactional=self.is_transactional,
            partition_leader_epoch=self.leader_epoch,
            log_append_time_ms=self.append_time_ms,
            delete_horizon_ms=self.base_timestamp_ms,
        )
        for delta, time_ms in self.left or [(0, FIRST_MS)]:
            offset = self.base_offset + delta
            builder.append(b"k%d" % offset, b"v%d" % offset, time_ms, offset=offset)
        data = bytearray(builder.build())
        view = BatchView(data)
        pack_into(">i", data, at.LAST_OFFSET_DELTA_AT, self.count - 1)
        if not self.has_horizon:
            pack_into(">h", data, at.ATTRIBUTES_AT, view.attributes & ~at.DELETE_HORIZON_BIT)
        view.update_crc()
        return bytes(data) if self.left else empty_batch(view)


@st.composite
def cleaned_logs(draw: st.DrawFn) -> list[CleanedBatch]:
    """Batches in order: gaps between them, batches with gaps, emptied ones, delete horizons."""
    batches = []
    end = draw(st.sampled_from((0, 0, 5, 1_000)))
    for _ in range(draw(st.integers(1, 14))):
        base = end + draw(st.sampled_from((0, 0, 1, 40, 3_000)))
        count = draw(st.integers(1, 9))
        deltas = sorted(draw(st.sets(st.integers(0, count - 1))))
        times = st.integers(FIRST_MS, FIRST_MS + 30)
        has_horizon = draw(st.booleans())
        left = [(delta, draw(times)) for delta in deltas]
        # Without a horizon it is the first record's time, which may be gone.
        first_ms = left[0][1] if deltas[:1] == [0] else FIRST_MS - 7
        batches.append(
            CleanedBatch(
                base,
                count,
                left,
                draw(st.sampled_from((Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD))),
                HORIZON_MS if has_horizon else first_ms,
                has_horizon,
                draw(st.sampled_from((None, None, FIRST_MS + 11))),
            )
        )
        end = base + count
    return batches
