"""Typed settings of one partition's log, with the names and meanings of Kafka's topic settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark_klog.records.compression import LEVELS, Codec
from pyspark_klog.records.record import TimestampType

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
_DAY_MS = 86_400_000
_ACTIVE_SEGMENT_BYTES_OF_STATE = 4 << 20


@dataclass(frozen=True)
class LogConfig:
    """Settings of one log. A field means what Kafka's topic setting of the same name means, unless
    its comment says that it is klog's own.

    -1 in ``retention_ms`` or ``retention_bytes`` means no limit.
    """

    segment_bytes: int = 1 << 30
    # klog's own setting: the active segment is rolled at this size even if segment_bytes is
    # larger. Compaction skips the active segment and merges small segments. So a coordinator that
    # loads a state topic reads few records besides the newest one of each key.
    active_segment_bytes: int = INT64_MAX
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    preallocate: bool = False
    max_message_bytes: int = 1_048_588
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = INT64_MAX
    # The codec of stored records; None (`producer`) keeps the codec of the producer.
    compression: Codec | None = None
    compression_level: int | None = None
    delete: bool = True
    compact: bool = False
    # klog's own setting, true while start-up with --adopt loads the log of a topic with partition
    # folders that were not in the metadata: compaction may have left gaps between the offsets of
    # the log's segments.
    may_have_gaps: bool = False
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = -1
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    delete_retention_ms: int = _DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    # klog's own setting: the largest decompressed size of one batch during validation.
    max_decompressed_bytes: int = 128 << 20

    @classmethod
    def from_topic_config(cls, tc: Mapping[str, Any], *, holds_state: bool = False) -> "LogConfig":
        """Convert the values of ``config.topic_config``, whose keys are Kafka's setting names.

        ``holds_state`` is true for the internal topics (such as __consumer_offsets), from which
        coordinators load their state.
        """
        policy = {item.strip() for item in _items(tc["cleanup.policy"])}
        codec = None
        if tc["compression.type"] not in ("producer", None):
            name = str(tc["compression.type"]).upper()
            codec = Codec.NONE if name == "UNCOMPRESSED" else Codec[name]
        level = None
        if codec in LEVELS:
            level = int(tc[f"compression.{codec.name.lower()}.level"])
        type_name = str(tc["message.timestamp.type"])
        before_ms = int(tc["message.timestamp.before.max.ms"])
        after_ms = int(tc["message.timestamp.after.max.ms"])
        difference_ms = tc.get("message.timestamp.difference.max.ms")
        if difference_ms is not None:
            # message.timestamp.difference.max.ms is deprecated. Its value replaces before.max.ms or
            # after.max.ms where these have their default value (KIP-937).
            before_ms = before_ms if before_ms != INT64_MAX else int(difference_ms)
            after_ms = after_ms if after_ms != INT64_MAX else int(difference_ms)
        return cls(
            segment_bytes=int(tc["segment.bytes"]),
            active_segment_bytes=_ACTIVE_SEGMENT_BYTES_OF_STATE if holds_state else INT64_MAX,
            segment_ms=int(tc["segment.ms"]),
            segment_jitter_ms=int(tc["segment.jitter.ms"]),
            segment_index_bytes=int(tc["segment.index.bytes"]),
            index_interval_bytes=int(tc["index.interval.bytes"]),
            preallocate=bool(tc["preallocate"]),
            max_message_bytes=int(tc["max.message.bytes"]),
            message_timestamp_type=(
                TimestampType.LOG_APPEND_TIME
                if type_name == "LogAppendTime"
                else TimestampType.CREATE_TIME
            ),
            message_timestamp_before_max_ms=before_ms,
            message_timestamp_after_max_ms=after_ms,
            compression=codec,
            compression_level=level,
            delete="delete" in policy,
            compact="compact" in policy,
            retention_ms=int(tc["retention.ms"]),
            retention_bytes=int(tc["retention.bytes"]),
            min_cleanable_dirty_ratio=float(tc["min.cleanable.dirty.ratio"]),
            min_compaction_lag_ms=int(tc["min.compaction.lag.ms"]),
            max_compaction_lag_ms=int(tc["max.compaction.lag.ms"]),
            delete_retention_ms=int(tc["delete.retention.ms"]),
            file_delete_delay_ms=int(tc["file.delete.delay.ms"]),
            flush_messages=int(tc["flush.messages"]),
            flush_ms=int(tc["flush.ms"]),
        )

    @property
    def roll_bytes(self) -> int:
        """The size in bytes that the active segment may reach before it is rolled."""
        return min(self.segment_bytes, self.active_segment_bytes)

    @property
    def max_segment_ms(self) -> int:
        """The age in ms, before a random part of segment.jitter.ms is subtracted, from which on an
        append rolls the active segment. In a compacted log it is at most max.compaction.lag.ms,
        because the active segment is never compacted."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms

    @property
    def responses_wait_for_flush(self) -> bool:
        """Whether an append is acknowledged and visible to readers only after it is synced to disk
        (flush.messages=1)."""
        return self.flush_messages == 1


def _items(value: Any) -> list[str]:
    return value.split(",") if isinstance(value, str) else list(value)
