"""The declarations (rows) of the log cleaner's settings; setting_rows.py includes them."""

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
        "Whether logs with the policy `compact` are compacted, including those of internal topics."
        " If not, these logs only grow. Deprecated in Kafka 4.",
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
        "Bytes of memory for the map of keys, divided evenly among the threads: more than 1048576"
        " for each.",
        dynamic=True,
    ),
    Setting(
        "log.cleaner.io.buffer.load.factor",
        _DOUBLE,
        0.9,
        "The part of the dedupe buffer that the keys of one cleaning round may fill: above 0, at"
        " most 1.",
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
        "How long the cleaner waits after it has found no log to compact.",
        AtLeast(0),
        dynamic=True,
    ),
    Setting(
        "log.cleaner.min.cleanable.ratio",
        _DOUBLE,
        0.5,
        "A log is compacted if more than this part of its bytes was not compacted yet.",
        Between(0, 1),
        dynamic=True,
    ),
    Setting(
        "log.cleaner.min.compaction.lag.ms",
        _LONG,
        0,
        "The shortest time that a record stays uncompacted, by the timestamps of its segment.",
        AtLeast(0),
        dynamic=True,
    ),
    Setting(
        "log.cleaner.max.compaction.lag.ms",
        _LONG,
        LONG_MAX,
        "The longest time that a record stays uncompacted: afterwards its log is compacted,"
        " whatever the ratio is.",
        AtLeast(1),
        dynamic=True,
    ),
    Setting(
        "log.cleaner.delete.retention.ms",
        _LONG,
        86400000,
        "How long compaction keeps tombstones (records without a value, which delete a key) and the"
        " markers of transactions.",
        AtLeast(0),
        dynamic=True,
    ),
)
