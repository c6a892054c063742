"""The declarations (rows) of the settings for transactions; rows.py includes them."""

from klog_broker.config.types import AtLeast, Setting, SettingType

_INT = SettingType.INT
_SHORT = SettingType.SHORT

TRANSACTIONS = (
    Setting(
        "transaction.max.timeout.ms",
        _INT,
        900_000,
        "The longest time-out that a producer may ask for; a transaction that takes longer is"
        " aborted.",
        AtLeast(1),
    ),
    Setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        _INT,
        10_000,
        "How often the broker looks for transactions whose time-out has passed.",
        AtLeast(1),
    ),
    Setting(
        "transactional.id.expiration.ms",
        _INT,
        604_800_000,
        "How long a transactional id that nobody uses is remembered.",
        AtLeast(1),
    ),
    Setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _INT,
        3_600_000,
        "How often the broker looks for transactional ids to forget.",
        AtLeast(1),
    ),
    Setting(
        "transaction.state.log.num.partitions",
        _INT,
        50,
        "Partitions of __transaction_state; they cannot be changed after its creation.",
        AtLeast(1),
    ),
    Setting(
        "transaction.state.log.replication.factor",
        _SHORT,
        3,
        "Replicas of __transaction_state. A cluster makes it once it has so many brokers; a"
        " broker that runs alone makes one.",
        AtLeast(1),
    ),
    Setting(
        "transaction.state.log.min.isr",
        _INT,
        2,
        "min.insync.replicas of __transaction_state; no more count than there are replicas.",
        AtLeast(1),
    ),
    Setting(
        "transaction.state.log.segment.bytes",
        _INT,
        104_857_600,
        "segment.bytes of __transaction_state.",
        AtLeast(1),
    ),
)
