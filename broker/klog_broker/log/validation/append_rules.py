"""The rules that validate a batch, and the errors that name the faulty records of a batch."""

from enum import Enum
from typing import NamedTuple

from klog_broker.log.errors import InvalidTimestamp, RecordError, RecordsRefused
from klog_broker.log.log_config import INT64_MAX, INT64_MIN, LogConfig
from klog_broker.log.validation.loop_share import LoopShare, LoopShareExceeded
from klog_broker.log.validation.record_checks import Allowed, Fault, RecordChecks, RecordSummary
from pyspark_klog.records.compression import Codec, Inflated, inflate_produced
from pyspark_klog.records.errors import DecompressedTooLarge
from pyspark_klog.records.kernels.status import CLAIMS_APPEND_TIME, MISSES_KEY
from pyspark_klog.records.record import TimestampType

# The most faulty records that the text of RecordsRefused names, as in Kafka.
_NAMED_IN_TEXT = 3
# Compressing a byte takes about this many times as long as decompressing a byte.
COMPRESSING = 8
# The most parts of one compressed batch (gzip members, or frames and blocks of another codec) that
# the event loop itself decompresses: each part costs time, however small it is.
_PARTS_IN_LOOP = 64


class AppendOrigin(Enum):
    """The source of an append, which determines the checks (Kafka's AppendOrigin)."""

    CLIENT = "client"  # all checks
    COORDINATOR = "coordinator"  # control batches are allowed; sequences are not checked


class Rules(NamedTuple):
    """The rules of one append: the time, the log's current settings, and the share of the
    validation work that the event loop may do (None: no limit, for example in a helper thread)."""

    now_ms: int
    config: LogConfig
    checks: RecordChecks
    origin: AppendOrigin
    share: LoopShare | None

    @property
    def is_log_append_time(self) -> bool:
        return self.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME

    def allowed(self, *, is_control: bool = False) -> Allowed:
        """Return the limits of timestamp, key and size that each record of the batch must keep."""
        config = self.config
        earliest_ms, latest_ms = INT64_MIN, INT64_MAX
        if not self.is_log_append_time:
            earliest_ms = max(self.now_ms - config.message_timestamp_before_max_ms, INT64_MIN)
            latest_ms = min(self.now_ms + config.message_timestamp_after_max_ms, INT64_MAX)
        return Allowed(
            earliest_ms,
            latest_ms,
            self.is_log_append_time,
            config.compact and not is_control,
            config.max_message_bytes,
        )

    def target_codec(self, source: Codec, *, is_control: bool) -> Codec:
        """Return the codec in which a batch that arrived in ``source`` is stored."""
        # Control records stay uncompressed, because some clients cannot decompress them.
        if self.config.compression is None or (is_control and source is Codec.NONE):
            return source
        return self.config.compression

    def count_work(self, work_bytes: int) -> None:
        """Count validation work before the work is done, in bytes that could be decompressed in the
        same time. Raises LoopShareExceeded if the event loop may not do so much work, so that a
        helper thread must validate the batch."""
        if self.share is not None:
            self.share.count_work(work_bytes)

    def inflate(self, codec: Codec, data: memoryview, magic: int) -> Inflated:
        """Decompress all of ``data``. Raises LoopShareExceeded if that takes more validation work
        than the event loop may do (``share``)."""
        max_bytes = self.config.max_decompressed_bytes
        if self.share is None:
            return inflate_produced(codec, data, magic=magic, max_bytes=max_bytes)
        # The decompressed size is unknown beforehand. Decompress until the validation work that
        # the event loop may do is used up.
        left_bytes = min(self.share.left_bytes, max_bytes)
        if len(data) > left_bytes:
            raise LoopShareExceeded
        try:
            found = inflate_produced(
                codec, data, magic=magic, max_bytes=left_bytes, max_parts=_PARTS_IN_LOOP
            )
        except DecompressedTooLarge:
            raise LoopShareExceeded from None
        self.share.count_work(len(found.data))
        return found


def raise_for_faults(found: RecordSummary, allowed: Allowed) -> None:
    """Raise an error that names the first faulty records (KIP-467); do nothing if no record is
    faulty.

    Raises InvalidTimestamp if all faults are timestamps, else RecordsRefused.
    """
    count = found.key_faults + found.timestamp_faults
    if not count:
        return
    faults = tuple(RecordError(fault.record, _text_of(fault, allowed)) for fault in found.faults)
    if not found.key_faults:
        raise InvalidTimestamp(
            f"{count} records have timestamps that are not accepted: {faults[0].message}", faults
        )
    named = "; ".join(f"record {f.batch_index}: {f.message}" for f in faults[:_NAMED_IN_TEXT])
    raise RecordsRefused(f"{count} records are not accepted: {named}", faults)


def _text_of(fault: Fault, allowed: Allowed) -> str:
    if fault.kind == MISSES_KEY:
        return "a compacted topic takes no record without a key"
    if fault.kind == CLAIMS_APPEND_TIME:
        return "a producer must not set the timestamp type to LogAppendTime"
    return (
        f"timestamp {fault.timestamp_ms} of record {fault.record} is out of range, expected "
        f"{allowed.earliest_ms} to {allowed.latest_ms}"
    )
