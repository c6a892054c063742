"""The declarations (rows) of the settings for transactions; setting_rows.py includes them."""

from klog_broker.config.types import AtLeast, Setting, SettingType

_INT = SettingType.INT
_SHORT = SettingType.SHORT

TRANSACTIONS = (
    Setting(
        "transaction.max.timeout.ms",
        _INT,
        900_000,
        "The longest transaction timeout that a producer may request. The broker aborts a"
        " transaction that exceeds its timeout.",
        AtLeast(1),
    ),
    Setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        _INT,
        10_000,
        "How often the broker looks for transactions that have exceeded their timeout.",
        AtLeast(1),
    ),
    Setting(
        "transactional.id.expiration.ms",
        _INT,
        604_800_000,
        "How long the state of an unused transactional id is kept.",
        AtLeast(1),
    ),
    Setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _INT,
        3_600_000,
        "How often the broker looks for expired transactional ids.",
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
        "Replicas of __transaction_state. A cluster creates the topic once it has this many"
        " brokers; a standalone broker creates one replica.",
        AtLeast(1),
    ),
    Setting(
        "transaction.state.log.min.isr",
        _INT,
        2,
        "min.insync.replicas of __transaction_state; at most the number of replicas counts.",
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
