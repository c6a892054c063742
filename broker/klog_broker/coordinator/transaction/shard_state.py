"""The state of one shard of the transaction coordinator: its transactional ids."""

import logging
from collections.abc import Iterable

from klog_broker.coordinator.runtime import CoordinatorRuntime
from klog_broker.coordinator.shard import RecordProducer, Shard, StateRecordFormat
from klog_broker.coordinator.transaction.packing import pack_key, pack_value
from klog_broker.coordinator.transaction.transaction_machine import TransactionMachine
from klog_broker.coordinator.transaction.transaction_metadata import (
    TransactionMetadata,
    from_record,
)
from pyspark_klog.ids import Offset
from pyspark_klog.state_records.transaction_log import (
    TransactionState,
    decode_key,
    decode_value,
)
from pyspark_klog.state_records.versions import UnknownStateRecord

_log = logging.getLogger("klog.transaction")

# The members of the set states.ENDING, for comparisons with ``is``, which are faster than a look-up
# in the set.
_PREPARE_COMMIT, _PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT


class TransactionShardState:
    """The transactional ids of a shard (a CoordinatorState).

    ``ongoing`` has the ids with an open transaction, ``ending`` those whose transaction is being
    ended.
    """

    def __init__(self) -> None:
        self.machines: dict[str, TransactionMachine] = {}
        self.ongoing: dict[str, None] = {}
        self.ending: dict[str, None] = {}

    def get_or_create(self, transactional_id: str) -> TransactionMachine:
        machine = self.machines.get(transactional_id)
        if machine is None:
            machine = self.machines[transactional_id] = TransactionMachine(transactional_id)
        return machine

    def machine(self, key: str) -> TransactionMachine | None:
        return self.machines.get(key)

    def keys(self) -> Iterable[str]:
        return self.machines

    def drop_if_unused(self, key: str) -> None:
        """Drop the state machine of a transactional id that has no record."""
        machine = self.machines.get(key)
        if machine is not None and machine.metadata is None:
            del self.machines[key]

    def apply(
        self,
        _offset: Offset,
        transactional_id: str,
        value: TransactionMetadata | None,
        producer: RecordProducer | None,
        /,
    ) -> None:
        """Apply a record of __transaction_state. Records of a producer's transaction are ignored,
        because no coordinator writes any to this topic."""
        if producer is not None:
            return
        self.ongoing.pop(transactional_id, None)
        self.ending.pop(transactional_id, None)
        if value is None:
            self.machines.pop(transactional_id, None)
            return
        self.get_or_create(transactional_id).apply(value)
        if value.state is TransactionState.ONGOING:
            self.ongoing[transactional_id] = None
        elif value.state is _PREPARE_COMMIT or value.state is _PREPARE_ABORT:
            self.ending[transactional_id] = None

    def apply_marker(self, producer: RecordProducer, *, is_commit: bool) -> None:
        """Ignore the marker: __transaction_state has no transactional records."""


class UntrackedChanges:
    """Does not store the values that changes above the high watermark replace. (Timeline stores
    such values for the group coordinator, which shows them to readers.)

    The coordinator answers a producer only when the high watermark has passed all records.
    DescribeTransactions and ListTransactions read the newest state at once.
    """

    def begin_batch(self, end_offset: Offset, high_watermark: Offset) -> None: ...


TransactionShard = Shard[str, TransactionMetadata, TransactionShardState]
TransactionRuntime = CoordinatorRuntime[str, TransactionMetadata, TransactionShardState]


def _encode(transactional_id: str, value: TransactionMetadata | None) -> tuple[bytes, bytes | None]:
    return pack_key(transactional_id), None if value is None else pack_value(value)


def _decode(key: bytes, value: bytes | None) -> tuple[str, TransactionMetadata | None] | None:
    """Decode a record; None for a record of an unknown version, which is skipped as in Kafka.

    Any other unreadable record fails the load, because a transaction could end wrongly if a part
    of its history were missing.
    """
    try:
        transactional_id = decode_key(key).transactional_id
        return transactional_id, None if value is None else from_record(decode_value(value))
    except UnknownStateRecord as error:
        _log.warning("record-skipped topic=__transaction_state reason=%r", str(error))
        return None


TRANSACTION_RECORDS: StateRecordFormat[str, TransactionMetadata] = StateRecordFormat(
    _encode, _decode
)
