"""A producer that writes in transactions. The methods that begin and end transactions have, except
`hand_over`, the names of those of Kafka's producer, and wait for the brokers' responses."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import (
    ProducerUnusable,
    SettingError,
    TransactionMustAbort,
)
from pyspark_klog.client.group_offsets import CommittedOffset
from pyspark_klog.client.producer.batches import Identity, InTransaction
from pyspark_klog.client.producer.producer import Producer
from pyspark_klog.client.transactions.blocking_driver import carry_out, transaction_version
from pyspark_klog.client.transactions.manager import TransactionManager
from pyspark_klog.client.transactions.states import TransactionalProducerState, TransactionEvent
from pyspark_klog.client.transactions.steps import ConsumerGroupMetadata
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition

DEFAULT_TIMEOUT_MS = 60_000
"""The default of transaction.timeout.ms in Kafka's producer."""
_BOUND = "max.block.ms"


class OpenTransaction(NamedTuple):
    """A transaction whose records are all written, and that any process may commit or abort."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    version: int
    """The transaction.version with which the transaction was begun."""


class TransactionalProducer(Producer):
    """Writes batches through ``client``, in transactions under ``transactional_id``.

    The coordinator aborts a transaction that stays open for longer than ``transaction_timeout_ms``.
    Requests to the coordinator are given up after max.block.ms, or after delivery.timeout.ms while
    batches are written; delivery.timeout.ms also limits the delivery of batches. After TimedOut the
    same call may be made again. After any call has raised `TransactionMustAbort`,
    `abort_transaction` makes the producer usable again; after `ProducerUnusable` nothing does.
    Brokers have to be of Kafka 2.5 or newer.
    """

    is_transactional = True

    def __init__(
        self,
        client: BlockingClient,
        transactional_id: str,
        *,
        transaction_timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        if not client.settings.flag("enable.idempotence"):
            raise SettingError(
                "transactions need enable.idempotence=true, acks=all and at most 5 in "
                "max.in.flight.requests.per.connection"
            )
        super().__init__(client)
        self.transactional_id = transactional_id
        self._manager = TransactionManager(transactional_id, transaction_timeout_ms, client.wait_ms)
        self._features = (-1, 0)

    @property
    def state(self) -> TransactionalProducerState:
        """The state of the producer and of its transaction."""
        return self._manager.state

    @property
    def identity(self) -> Identity:
        """The producer's current id and epoch; NO_IDENTITY before the first response to
        `init_transactions`."""
        return self._manager.identity

    @property
    def version(self) -> int:
        """The transaction.version of the running transaction, or of the last one."""
        return self._manager.version

    # --- the begin and the end of transactions ---------------------------------------------------
    def init_transactions(self) -> None:
        """Take over the transactional id: older producers are fenced. Their open transaction is
        aborted, or committed if its commit was already decided."""
        self._manager.initialize()
        self._carry_out()

    def begin_transaction(self) -> None:
        """Begin a transaction. Brokers learn of it with its first records or offsets."""
        manager = self._manager
        if manager.state is TransactionalProducerState.INITIALIZING:
            self._carry_out()
        manager.check(TransactionEvent.BEGIN)
        self._features = max(self._features, transaction_version(self._client))
        version = self._features[1]
        if manager.needs_new_epoch(version):
            manager.request_new_epoch()
            self._carry_out()
        manager.begin_transaction(version)
        self._transaction = InTransaction(self.transactional_id, version)

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, CommittedOffset], group: ConsumerGroupMetadata | str
    ) -> None:
        """Commit a group's offsets as part of the transaction.

        ``group`` is the id of a group without members, or the member that commits.
        """
        member = ConsumerGroupMetadata(group) if isinstance(group, str) else group
        self._manager.send_offsets(member, offsets)
        self._carry_out()

    def commit_transaction(self) -> None:
        """Wait until all batches are written, and commit the transaction."""
        if self.state is TransactionalProducerState.IN_TRANSACTION:
            self.flush()
        self._manager.commit()
        self._carry_out()

    def abort_transaction(self) -> None:
        """Wait for the responses to the Produce requests under way, drop all other batches, and
        abort the transaction. The producer can then begin its next transaction."""
        if self.state is not TransactionalProducerState.ABORTING:
            self._manager.check(TransactionEvent.ABORT)
            self._give_up_batches()
        self._manager.abort()
        self._carry_out()

    def hand_over(self) -> OpenTransaction:
        """Wait until all batches are written, and leave the transaction open for `end_transaction`,
        in this process or another. This producer needs `init_transactions` before its next use.
        """
        self.flush()
        self._carry_out()
        self._manager.leave_open()
        return OpenTransaction(self.transactional_id, *self.identity, self._manager.version)

    # --- writing in a transaction ----------------------------------------------------------------
    def add_all(
        self, batches: Iterable[tuple[TopicPartition, bytes | bytearray | memoryview, int]]
    ) -> None:
        """Write batches in the running transaction, as `Producer.add_all` does; before
        transaction.version 2 first add their partitions to the transaction."""
        given = list(batches)
        self._manager.write_to(partition for partition, _, _ in given)
        super().add_all(given)

    def _check(self) -> None:
        self._manager.check(TransactionEvent.WRITE)

    def _turn(self, *, wait: bool, until_ms: int | None = None) -> None:
        try:
            if not self._manager.is_settled:
                deadline_ms = self._client.now_ms() + self._delivery_timeout_ms
                carry_out(self._client, self._manager, deadline_ms, "delivery.timeout.ms")
            super()._turn(wait=wait, until_ms=until_ms)
        except (TransactionMustAbort, ProducerUnusable):
            raise
        except KlogError as error:
            self._manager.on_error(error)
            if self._manager.error is None:
                raise
            raise self._manager.error from error

    def _give_up_batches(self) -> None:
        """Wait until no Produce request is under way, since a broker could append its records after
        the abort. Then drop all batches."""
        while any(not call.is_done for call, _ in self._calls):
            self._client.links.poll(self._client.now_ms() + self._request_timeout_ms)
        self._calls.clear()
        self._core.drop_all()
        self._failure = None

    def _carry_out(self) -> None:
        client, manager = self._client, self._manager
        deadline_ms = client.now_ms() + client.settings.number(_BOUND)
        try:
            carry_out(client, manager, deadline_ms, _BOUND)
        finally:
            if manager.identity != self._core.identity:
                self._core.set_identity(manager.identity)


def end_transaction(
    client: BlockingClient,
    transaction: OpenTransaction,
    *,
    commit: bool,
    timeout_ms: int | None = None,
) -> None:
    """Commit or abort a transaction that another producer left open, perhaps in another process.
    The call may be repeated: a transaction that has already ended in the requested way stays as it
    is.

    ``timeout_ms`` is max.block.ms unless given.

    :raises ProducerFenced: if a newer producer has the transactional id, or, before
        transaction.version 2, if the coordinator has aborted the transaction because it took too
        long
    :raises ProducerUnusable: if the transaction ended in the other way, or after another error that
        an abort cannot cure
    :raises TransactionMustAbort: if the transaction can only be aborted
    :raises TimedOut: if the coordinator did not answer in time; the transaction may have ended
    """
    block_ms = client.settings.number(_BOUND) if timeout_ms is None else timeout_ms
    manager = TransactionManager(transaction.transactional_id, DEFAULT_TIMEOUT_MS, client.wait_ms)
    manager.resume_transaction(
        Identity(transaction.producer_id, transaction.producer_epoch), transaction.version
    )
    if commit:
        manager.commit()
    else:
        manager.abort()
    bound = _BOUND if timeout_ms is None else None
    carry_out(client, manager, client.now_ms() + block_ms, bound)
