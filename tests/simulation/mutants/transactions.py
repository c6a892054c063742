"""Bugs of transactions: in their coordinator, in the logs, and in what readers are shown."""

from typing import Any

from klog_broker.coordinator.group.shard_state import GroupShardState, VisibleOffsets
from klog_broker.coordinator.transaction import coordinator, end_decisions
from klog_broker.coordinator.transaction.coordinator import TransactionCoordinator
from klog_broker.coordinator.transaction.markers import TransactionMarker
from klog_broker.coordinator.transaction.sweeps import Sweeps
from klog_broker.coordinator.transaction.transaction_machine import TransactionMachine
from klog_broker.coordinator.transaction.transaction_metadata import (
    VERSION_RAISING,
    TransactionMetadata,
)
from klog_broker.log.producers.producer_state import ProducerEntry
from klog_broker.log.state.transactions import LogTransactions
from pyspark_klog.errors import ErrorCode
from pyspark_klog.state_records.transaction_log import TransactionState
from tests.simulation.mutants.mutant import Mutant


def _markers_first(original: Any) -> Any:
    def end_transaction(
        transactions: Any, transactional_id: str, *arguments: Any, is_commit: bool
    ) -> None:
        """The decision is written a little after the markers: until then a restart loses it."""
        known = transactions.describe(transactional_id)[1]
        if known is not None and known.state is TransactionState.ONGOING:
            epoch = known.producer_epoch + known.raises_epoch
            _, shard = transactions._find(transactional_id)
            marker = TransactionMarker(
                known.producer_id,
                epoch,
                is_commit,
                shard.log.leader_epoch,
                known.partitions,
                known.client_version,
            )
            transactions._ends._sender.send([marker], lambda _: None)
        loop = transactions._ends._loop
        loop.call_later(
            50, lambda: original(transactions, transactional_id, *arguments, is_commit=is_commit)
        )

    return end_transaction


def _same_epoch(original: Any) -> Any:
    def initialize(known: Any, *arguments: Any) -> Any:
        """A process that takes over an id gets the epoch of the last producer."""
        decision = original(known, *arguments)
        if known is None or decision.error is not ErrorCode.NONE:
            return decision
        epoch = known.producer_epoch
        becomes = decision.becomes._replace(producer_epoch=epoch)
        return decision._replace(becomes=becomes, producer_epoch=epoch)

    return initialize


def _stable_at_the_watermark(_original: Any) -> Any:
    def last_stable_offset(transactions: Any) -> Any:
        """The last stable offset ignores open transactions."""
        return transactions._state.high_watermark

    return property(last_stable_offset)


def _anybody_ends(original: Any) -> Any:
    def decide_end(known: Any, producer: Any, *arguments: Any, **named: Any) -> Any:
        """EndTxn is accepted from a producer of any epoch."""
        if known is not None and producer.producer_id == known.producer_id:
            producer = producer._replace(producer_epoch=known.producer_epoch)
        return original(known, producer, *arguments, **named)

    return decide_end


def _counts_at_once(original: Any) -> Any:
    def apply(state: Any, offset: Any, key: Any, value: Any, _: Any) -> None:
        """An offset that a transaction commits counts before the transaction ends."""
        original(state, offset, key, value, None)

    return apply


def _keeps_sequences(_original: Any) -> Any:
    def begin_epoch(entry: Any, producer_epoch: int) -> None:
        """A new epoch continues the sequences of the old one."""
        entry.producer_epoch = producer_epoch

    return begin_epoch


def _never_overdue(_original: Any) -> Any:
    def is_overdue(_known: Any, _now_ms: int) -> bool:
        """The transaction of a producer that has gone stays open."""
        return False

    return is_overdue


def _reads_otherwise(original: Any) -> Any:
    def apply(machine: Any, value: Any) -> None:
        """A coordinator that loads a committed transaction without its markers aborts it."""
        original(machine, value)
        if machine.metadata.state is TransactionState.PREPARE_COMMIT:
            machine.metadata = machine.metadata._replace(state=TransactionState.PREPARE_ABORT)

    return apply


def _lists_none(_original: Any) -> Any:
    def aborted_in(*_: Any, **__: Any) -> list[Any]:
        """Readers get aborted records without the list that says so."""
        return []

    return aborted_in


def _asks_nobody(_original: Any) -> Any:
    def verify(*arguments: Any, adds: bool, done: Any) -> None:
        """Batches are appended although their coordinator knows no transaction to end."""
        done(dict.fromkeys(arguments[-1], ErrorCode.NONE))

    return verify


def _overdue_is_committed(original: Any) -> Any:
    def decide_overdue(sweeps: Any, known: Any, new_id: int) -> Any:
        """A transaction that a producer has left open is committed."""
        decision = original(sweeps, known, new_id)
        if decision.becomes is None:
            return decision
        committed = decision.becomes._replace(state=TransactionState.PREPARE_COMMIT)
        return decision._replace(becomes=committed)

    return decide_overdue


def _always_stable(_original: Any) -> Any:
    def is_stable(_offsets: Any, _partition: Any) -> bool:
        """A request for stable offsets does not learn that an open transaction may change one."""
        return True

    return is_stable


def _forgets_a_partition(original: Any) -> Any:
    def add_partitions(known: Any, *arguments: Any) -> Any:
        """Partitions that are added to an open transaction replace its earlier ones."""
        decision = original(known, *arguments)
        becomes = decision.becomes
        if becomes is None or known.state is not becomes.state:
            return decision
        added = becomes.partitions[len(known.partitions) :]
        return decision._replace(becomes=becomes._replace(partitions=added))

    return add_partitions


def _never_again(_original: Any) -> Any:
    def is_again(_known: Any, _producer: Any) -> bool:
        """A producer that repeats its EndTxn after a lost response is fenced."""
        return False

    return is_again


def _again_of_any(original: Any) -> Any:
    def is_again(known: Any, producer: Any) -> bool:
        """EndTxn counts as repeated though another producer raised the epoch, not the last end."""
        return bool(original(known._replace(client_version=VERSION_RAISING), producer))

    return is_again


MUTANTS = (
    Mutant("fenced one's end known again", end_decisions, "_is_repeated_end", _again_of_any),
    Mutant("end not known again", end_decisions, "_is_repeated_end", _never_again),
    Mutant("marker before the decision", TransactionCoordinator, "end_transaction", _markers_first),
    Mutant("epoch of an id not raised", coordinator, "initialize", _same_epoch),
    Mutant(
        "stable at the watermark", LogTransactions, "last_stable_offset", _stable_at_the_watermark
    ),
    Mutant("zombie's EndTxn taken", coordinator, "decide_end", _anybody_ends),
    Mutant("pending offsets shown", GroupShardState, "apply", _counts_at_once),
    Mutant("pending offsets not told", VisibleOffsets, "is_stable", _always_stable),
    Mutant("sequences kept over epochs", ProducerEntry, "begin_epoch", _keeps_sequences),
    Mutant("overdue for ever", TransactionMetadata, "is_overdue", _never_overdue),
    Mutant("overdue is committed", Sweeps, "_decide_overdue", _overdue_is_committed),
    Mutant("decision read otherwise", TransactionMachine, "apply", _reads_otherwise),
    Mutant("aborted ones not listed", LogTransactions, "aborted_in", _lists_none),
    Mutant("batches not verified", TransactionCoordinator, "verify", _asks_nobody),
    Mutant("partition forgotten", coordinator, "add_partitions", _forgets_a_partition),
)
