"""Bugs of transactions: of their coordinator, in the logs, and in what readers are shown."""

from typing import Any

from klog_broker.coordinator.group.shard_state import GroupShardState, VisibleOffsets
from klog_broker.coordinator.transaction import coordinator
from klog_broker.coordinator.transaction.coordinator import TransactionCoordinator
from klog_broker.coordinator.transaction.markers import TransactionEnds
from klog_broker.coordinator.transaction.metadata import TransactionMetadata
from klog_broker.coordinator.transaction.sweeps import Sweeps
from klog_broker.log.producer_state import ProducerEntry
from klog_broker.log.transactions import LogTransactions
from klog_broker.log.verification import Verifications
from pyspark_klog.errors import ErrorCode
from pyspark_klog.state_records.transaction_log import TransactionState
from tests.simulation.mutants.mutant import Mutant


def _markers_at_once(_original: Any) -> Any:
    def await_visible(ends: Any, ended: Any) -> None:
        """Before anything would tell a next process how the transaction ends."""
        ends._send(ended)

    return await_visible


def _same_epoch(original: Any) -> Any:
    def initialize(known: Any, *arguments: Any) -> Any:
        """Who takes over an id gets what the last producer has."""
        decision = original(known, *arguments)
        if known is None or decision.error is not ErrorCode.NONE:
            return decision
        epoch = known.producer_epoch
        becomes = decision.becomes._replace(producer_epoch=epoch)
        return decision._replace(becomes=becomes, producer_epoch=epoch)

    return initialize


def _stable_at_the_watermark(_original: Any) -> Any:
    def last_stable_offset(transactions: Any) -> Any:
        """Whatever is open."""
        return transactions._state.high_watermark

    return property(last_stable_offset)


def _anybody_ends(original: Any) -> Any:
    def end(known: Any, producer: Any, *arguments: Any, **named: Any) -> Any:
        """Whatever epoch the producer has."""
        if known is not None and producer.producer_id == known.producer_id:
            producer = producer._replace(producer_epoch=known.producer_epoch)
        return original(known, producer, *arguments, **named)

    return end


def _counts_at_once(original: Any) -> Any:
    def apply(state: Any, offset: Any, key: Any, value: Any, _: Any) -> None:
        """An offset that a transaction commits counts before its end."""
        original(state, offset, key, value, None)

    return apply


def _keeps_sequences(_original: Any) -> Any:
    def begin_epoch(entry: Any, producer_epoch: int) -> None:
        """A new epoch goes on with the sequences of the old one."""
        entry.producer_epoch = producer_epoch

    return begin_epoch


def _never_overdue(_original: Any) -> Any:
    def is_overdue(_known: Any, _now_ms: int) -> bool:
        """Who is gone leaves its transaction open."""
        return False

    return is_overdue


def _forgets_decisions(_original: Any) -> Any:
    def go_on(_coordinator: Any, _shard: Any) -> None:
        """What the last process had decided stays without markers."""

    return go_on


def _lists_none(_original: Any) -> Any:
    def aborted_in(*_: Any, **__: Any) -> list[Any]:
        """Readers get aborted records, and are not told so."""
        return []

    return aborted_in


def _verifies_nothing(_original: Any) -> Any:
    def check(_verifications: Any, _producer_id: int, _guard: Any) -> None:
        """A late batch begins a transaction that nobody ends."""

    return check


def _overdue_is_committed(original: Any) -> Any:
    def decide_overdue(sweeps: Any, known: Any, new_id: int) -> Any:
        """What a producer has left open is committed for it."""
        decision = original(sweeps, known, new_id)
        if decision.becomes is None:
            return decision
        committed = decision.becomes._replace(state=TransactionState.PREPARE_COMMIT)
        return decision._replace(becomes=committed)

    return decide_overdue


def _always_stable(_original: Any) -> Any:
    def is_stable(_offsets: Any, _partition: Any) -> bool:
        """Who asks for stable offsets is not told that one may change."""
        return True

    return is_stable


def _forgets_a_partition(original: Any) -> Any:
    def add_partitions(known: Any, *arguments: Any) -> Any:
        """What is added to an open transaction takes the place of what it had."""
        decision = original(known, *arguments)
        becomes = decision.becomes
        if becomes is None or known.state is not becomes.state:
            return decision
        added = becomes.partitions[len(known.partitions) :]
        return decision._replace(becomes=becomes._replace(partitions=added))

    return add_partitions


MUTANTS = (
    Mutant("marker before the decision", TransactionEnds, "_await_visible", _markers_at_once),
    Mutant("epoch not raised", coordinator, "initialize", _same_epoch),
    Mutant(
        "stable at the watermark", LogTransactions, "last_stable_offset", _stable_at_the_watermark
    ),
    Mutant("zombie's EndTxn taken", coordinator, "end", _anybody_ends),
    Mutant("pending offsets shown", GroupShardState, "apply", _counts_at_once),
    Mutant("pending offsets not told", VisibleOffsets, "is_stable", _always_stable),
    Mutant("sequences kept over epochs", ProducerEntry, "begin_epoch", _keeps_sequences),
    Mutant("overdue for ever", TransactionMetadata, "is_overdue", _never_overdue),
    Mutant("overdue is committed", Sweeps, "_decide_overdue", _overdue_is_committed),
    Mutant("decisions forgotten", TransactionCoordinator, "_go_on", _forgets_decisions),
    Mutant("aborted ones not listed", LogTransactions, "aborted_in", _lists_none),
    Mutant("late batch not verified", Verifications, "check", _verifies_nothing),
    Mutant("partition forgotten", coordinator, "add_partitions", _forgets_a_partition),
)
