"""Values at which brokers decide differently, by the name of the field that holds them.

`oracle/cases.py` adds what a field's type alone gives: null, empty, smallest, largest, duplicate.
"""

from collections.abc import Callable
from typing import Any

from pyspark_klog.ids import UUID
from tests.support.oracle.maker import Maker
from tests.support.oracle.names import LIVE_MEMBER, MEMBER, topic_uuid
from tests.support.oracle.records import KINDS, NOW_MS, MadeRecords
from tests.support.oracle.state import COMMITTED, LIVE, LONG_MS, READ, UNKNOWN_ID

Values = Callable[[Maker], list[Any]]

_EPOCHS = [-2, 1, 2]
_PARTITIONS = [1, 2, -1]
_OFFSETS = [-2, 1, 3, 4, 6, 7, 9, 10, 100]
_METADATA_LIMIT = 4096


def _changing_topic(m: Maker) -> list[Any]:
    """Names for requests that change a topic: no topic of the prepared state is among them."""
    return ["__consumer_offsets", *_absent_topic(m)]


def _absent_topic(m: Maker) -> list[Any]:
    return [m.own("-none"), "", ".", "a b", "é", "x" * 249, "x" * 250]


def _topic(m: Maker) -> list[Any]:
    """Topics of the prepared state: the contents of internal topics depend on the broker."""
    return [*READ, *_absent_topic(m)]


def _new_topic(m: Maker) -> list[Any]:
    own = m.own("-new")
    return [
        "plain",
        "dotted_name",
        "__cluster_metadata",
        "",
        "..",
        "a b",
        own + "é",
        own.ljust(249, "x"),
        own.ljust(250, "x"),
        m.own_topic("-there"),
    ]


def _topic_id(m: Maker) -> list[Any]:
    return [*(topic_uuid(each) for each in READ), UNKNOWN_ID, UUID(int=0), UUID(int=1)]


def _changing_id(_: Maker) -> list[Any]:
    return [UNKNOWN_ID, UUID(int=0), UUID(int=1)]


def _group(m: Maker) -> list[Any]:
    return ["", m.own("-none"), m.own(), m.own().ljust(249, "é"), m.own(" ")]


def _read_group(m: Maker) -> list[Any]:
    return [*_group(m), COMMITTED, LIVE]


def _transaction(m: Maker) -> list[Any]:
    return ["", m.own("-none"), m.transactional_id, m.own().ljust(249, "é")]


def _metadata(_: Maker) -> list[Any]:
    """Around offset.metadata.max.bytes, in letters of one, two and four bytes."""
    return [
        letter * count
        for letter, limit in (("x", _METADATA_LIMIT), ("é", _METADATA_LIMIT), ("😀", 2048))
        for count in (limit // 2, limit, limit + 1)
    ]


def _records(m: Maker) -> list[Any]:
    return [MadeRecords(kind, m.random.getrandbits(32)) for kind in KINDS]


def _fixed(*values: Any) -> Values:
    return lambda _: list(values)


VALUES: dict[str, Values] = {
    # Topics and partitions.
    "name": _topic,
    "topic": _topic,
    "topic_id": _topic_id,
    "partition": _fixed(*_PARTITIONS),
    "partitions[]": _fixed(*_PARTITIONS),
    "partition_index": _fixed(*_PARTITIONS),
    "partition_indexes[]": _fixed(*_PARTITIONS),
    "index": _fixed(*_PARTITIONS),
    "Produce.name": _changing_topic,
    "Produce.topic_id": _changing_id,
    "DeleteRecords.name": _changing_topic,
    "CreatePartitions.name": _changing_topic,
    "CreateTopics.name": _new_topic,
    "AddPartitionsToTxn.name": _changing_topic,
    "Metadata.name": lambda m: [
        m.own("-new"),
        "__consumer_offsets",
        *(each for each in _topic(m) if len(each) < 249),
    ],
    # Records.
    "records": _records,
    "acks": _fixed(0, 1, 2, -2),
    "fetch_offset": _fixed(*_OFFSETS),
    "DeleteRecords.offset": _fixed(*_OFFSETS),
    "partition_max_bytes": _fixed(1, 60, 100, 200, 300),
    "max_bytes": _fixed(1, 60, 100, 200, 300),
    "min_bytes": _fixed(1, 1_000_000),
    "max_wait_ms": _fixed(0, 20),
    "isolation_level": _fixed(0, 1, 2),
    "session_epoch": _fixed(0, 1, 2),
    "session_id": _fixed(1),
    "replica_id": _fixed(0, 1, -2, -3),
    "Fetch.log_start_offset": _fixed(0, 3, 100),
    "last_fetched_epoch": _fixed(*_EPOCHS, 0),
    "current_leader_epoch": _fixed(*_EPOCHS, 0),
    "leader_epoch": _fixed(*_EPOCHS, 0),
    "committed_leader_epoch": _fixed(*_EPOCHS, 0),
    "timestamp": _fixed(-2, -3, -4, -5, -6, -7, NOW_MS - 1, NOW_MS, NOW_MS + 1, NOW_MS + 1000),
    "max_num_offsets": _fixed(1, 2, 10),
    "allow_auto_topic_creation": _fixed(False, True),
    # Groups and transactions.
    "group_id": _read_group,
    "groups[]": _read_group,
    "OffsetCommit.group_id": _group,
    "OffsetDelete.group_id": _group,
    "TxnOffsetCommit.group_id": _group,
    "groups_names[]": _group,
    "generation_id_or_member_epoch": _fixed(0, 1, 2),
    "generation_id": _fixed(0, 1, 2),
    "member_epoch": _fixed(0, 1, 2),
    "member_id": _fixed(MEMBER, LIVE_MEMBER, "unknown"),
    "group_instance_id": _fixed("", "unknown"),
    "committed_offset": _fixed(0, -1, -2),
    "committed_metadata": _metadata,
    "retention_time_ms": _fixed(0, 1, 10_000_000),
    "transactional_id": _transaction,
    "v3_and_below_transactional_id": _transaction,
    "transaction_timeout_ms": _fixed(1, 60_000, LONG_MS, LONG_MS + 1),
    "producer_id": lambda m: [m.producer, 1 << 40],
    "producer_epoch": _fixed(0, 1),
    "key": lambda m: ["", m.own(), "é" * 249],
    "coordinator_keys[]": lambda m: ["", m.own(), "é" * 249],
    "key_type": _fixed(0, 1, 2, 3, 77),
    "states_filter[]": _fixed("Stable", "Empty", "eMPTY", " empty ", "Dead", "", "x"),
    "types_filter[]": _fixed("classic", "Classic", " classic", "consumer", "share", "", "x"),
    # Topics' and brokers' settings.
    "resource_type": _fixed(0, 1, 3, 4, 8, 16, 32, 64, 77),
    "resource_name": lambda m: ["0", "1", "x", *(each for each in _topic(m))],
    "configuration_keys[]": _fixed("cleanup.policy", "log.retention.ms", "nonsense"),
    "num_partitions": _fixed(0, -2, 1, 3),
    "replication_factor": _fixed(0, -2, 2),
    "count": _fixed(0, 1, 2, 4),
    "broker_ids[]": _fixed(1, -1),
    "CreateTopics.configs.name": _fixed("retention.ms", "cleanup.policy", "nonsense"),
    "value": _fixed("1", "-1", "-2", "compact", "x"),
}

NEVER_LARGE = frozenset(("max_wait_ms", "num_partitions", "count", "transaction_timeout_ms"))
"""A large value here makes the broker wait, or make files for hours."""
UNCHANGED = frozenset(("CreateTopics.timeout_ms", "CreatePartitions.timeout_ms"))
"""Fields that stay unchanged, because the outcome of a short time-out is random."""
