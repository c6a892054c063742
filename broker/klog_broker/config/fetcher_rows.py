"""The declarations (rows) of the settings for fetching from leaders; rows.py includes them."""

from klog_broker.config.types import AtLeast, Setting, SettingType

_INT = SettingType.INT

FETCHERS = (
    Setting(
        "replica.fetch.max.bytes",
        _INT,
        1024 * 1024,
        "A follower asks for this much of each partition at a time. A batch that is larger comes"
        " all the same, whole, if it is the first one.",
        AtLeast(0),
    ),
    Setting(
        "replica.fetch.response.max.bytes",
        _INT,
        10 * 1024 * 1024,
        "A follower asks for this much at a time of all partitions with the same leader together.",
        AtLeast(0),
    ),
    Setting(
        "replica.fetch.min.bytes",
        _INT,
        1,
        "A leader answers a follower when it has this much, or after replica.fetch.wait.max.ms.",
    ),
    Setting(
        "replica.fetch.wait.max.ms",
        _INT,
        500,
        "How long a leader may keep a follower waiting for records. No longer than"
        " replica.socket.timeout.ms.",
    ),
    Setting(
        "replica.fetch.backoff.ms",
        _INT,
        1000,
        "After an error a follower waits this long before it asks for the partition again, or for"
        " all partitions of a leader that could not be reached.",
        AtLeast(0),
    ),
    Setting(
        "replica.socket.timeout.ms",
        _INT,
        30 * 1000,
        "A leader that has not answered a follower after this time is connected to anew.",
    ),
)
