"""The declarations (rows) of settings for followers, which fetch from leaders; setting_rows.py
includes them."""

from klog_broker.config.types import AtLeast, Setting, SettingType

_INT = SettingType.INT

FETCHERS = (
    Setting(
        "replica.fetch.max.bytes",
        _INT,
        1024 * 1024,
        "The most bytes of each partition that a follower requests in one Fetch. The first batch is"
        " sent even if it is larger.",
        AtLeast(0),
    ),
    Setting(
        "replica.fetch.response.max.bytes",
        _INT,
        10 * 1024 * 1024,
        "The most bytes of all partitions together that a follower requests in one Fetch.",
        AtLeast(0),
    ),
    Setting(
        "replica.fetch.min.bytes",
        _INT,
        1,
        "A leader responds to a follower once it has this many bytes, or after"
        " replica.fetch.wait.max.ms.",
    ),
    Setting(
        "replica.fetch.wait.max.ms",
        _INT,
        500,
        "The longest time that a leader delays its response while it has too few records. Must not"
        " be above replica.socket.timeout.ms.",
    ),
    Setting(
        "replica.fetch.backoff.ms",
        _INT,
        1000,
        "How long a follower waits after an error before it fetches the partition again (all"
        " partitions of the leader, if the leader could not be reached).",
        AtLeast(0),
    ),
    Setting(
        "replica.socket.timeout.ms",
        _INT,
        30 * 1000,
        "A follower that has no response from its leader after this time connects again.",
    ),
)
