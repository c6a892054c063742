"""The declarations (rows) of the log cleaner's settings; rows.py includes them."""

import sys

from klog_broker.config.types import LONG_MAX, AtLeast, Between, Setting, SettingType

_BOOLEAN = SettingType.BOOLEAN
_INT = SettingType.INT
_LONG = SettingType.LONG
_DOUBLE = SettingType.DOUBLE

COMPACTION = (
    Setting(
        "log.cleaner.enable",
        _BOOLEAN,
        True,
        "Whether logs with the policy `compact` are compacted, those of the broker's own topics"
        " among them; if not, they only grow. Kafka 4 deprecates it.",
    ),
    Setting(
        "log.cleaner.threads",
        _INT,
        1,
        "How many logs are compacted at the same time. 0 is refused, since Kafka does not start"
        " with it.",
        AtLeast(0),
        dynamic=True,
    ),
    Setting(
        "log.cleaner.dedupe.buffer.size",
        _LONG,
        134217728,
        "Bytes of memory for the keys that compaction tells apart, shared out evenly among the"
        " threads: more than 1048576 for each.",
        dynamic=True,
    ),
    Setting(
        "log.cleaner.io.buffer.load.factor",
        _DOUBLE,
        0.9,
        "The part of the dedupe buffer that keys may fill before a round takes in no more of them:"
        " above 0, at most 1.",
        dynamic=True,
    ),
    Setting(
        "log.cleaner.io.max.bytes.per.second",
        _DOUBLE,
        sys.float_info.max,
        "The most bytes that the cleaner reads and writes in a second, together and on average."
        " Below 0: no limit; 0 is refused.",
        dynamic=True,
    ),
    Setting(
        "log.cleaner.backoff.ms",
        _LONG,
        15000,
        "How long the cleaner waits after it found no log that is to be compacted.",
        AtLeast(0),
        dynamic=True,
    ),
    Setting(
        "log.cleaner.min.cleanable.ratio",
        _DOUBLE,
        0.5,
        "A log is compacted when a larger part of its bytes than this is not compacted yet.",
        Between(0, 1),
        dynamic=True,
    ),
    Setting(
        "log.cleaner.min.compaction.lag.ms",
        _LONG,
        0,
        "How long a record stays uncompacted at least, by the timestamps of its segment.",
        AtLeast(0),
        dynamic=True,
    ),
    Setting(
        "log.cleaner.max.compaction.lag.ms",
        _LONG,
        LONG_MAX,
        "How long a record stays out of compaction at most: then its log is compacted whatever the"
        " ratio.",
        AtLeast(1),
        dynamic=True,
    ),
    Setting(
        "log.cleaner.delete.retention.ms",
        _LONG,
        86400000,
        "How long compaction keeps the mark of a deleted key (a record without a value), and that"
        " of a transaction's end.",
        AtLeast(0),
        dynamic=True,
    ),
)
