"""An exactly-once sink's data on brokers: transactional ids, and offsets that consumer groups have
committed. The offsets are a progress row for each task, which says what the task wrote last, and a
`RunMark`, which names the last run (start) of the query that began to commit."""

from collections.abc import Iterable
from typing import NamedTuple

from pyspark_klog.client.admin.groups import (
    CommittedOffset,
    commit_offsets,
    committed_offsets,
    delete_group,
    list_group_ids,
)
from pyspark_klog.client.admin.sink_progress import ForeignProgress, ProgressRow, RunMark
from pyspark_klog.client.admin.topics import Admin
from pyspark_klog.client.admin.transaction_descriptions import describe_transaction
from pyspark_klog.client.admin.transaction_listing import ONGOING, list_transactions
from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import UnsupportedByBroker
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.spark.sink.exactly_once.errors import ExactlyOnceRefused
from pyspark_klog.spark.sink.exactly_once.names import SinkId, parse_sink_id

_YEAR_MS = 365 * 86_400_000
MARK_KEPT_MS = 10 * _YEAR_MS
"""How long brokers keep a `RunMark`, the committed offset that names a query's last run, in ms:
longer than any checkpoint is used."""
DEFAULT_RETENTION_MS = 7 * 86_400_000
"""The default of Kafka's offsets.retention.minutes, in ms."""
_RETENTION = "offsets.retention.minutes"


class Listed(NamedTuple):
    """The indices of those of the sink's tasks whose transactional id or consumer group brokers
    list."""

    ids: frozenset[int]
    """The tasks of which brokers list a transactional id."""
    groups: frozenset[int]
    """The tasks of which brokers list a consumer group; a task that has never stored a progress row
    may have none."""
    open_ids: frozenset[int]
    """The tasks with an open transaction."""


class SinkGroups:
    """The consumer groups of one sink: one for each task, and one for the `RunMark`. A task's
    progress row is the offset that its group has committed for partition 0 of ``topic``."""

    def __init__(self, client: BlockingClient, sink: SinkId, topic: str) -> None:
        self.topic = topic
        self._client = client
        self._sink = sink
        self._partition = TopicPartition(topic, 0)

    def listed(self) -> Listed:
        """Ask every broker for the sink's transactional ids and consumer groups.

        :raises ExactlyOnceRefused: if brokers are older than Kafka 3.0
        """
        try:
            transactions = list_transactions(self._client)
        except UnsupportedByBroker as error:
            raise ExactlyOnceRefused(
                f"option exactlyOnce needs brokers of Kafka 3.0 or newer, which can list "
                f"transactions: {error}"
            ) from None
        ids = {self._index(each.transactional_id): each.state for each in transactions}
        groups = {self._index(group) for group in list_group_ids(self._client)}
        return Listed(
            frozenset(index for index in ids if index is not None),
            frozenset(index for index in groups if index is not None),
            frozenset(i for i, state in ids.items() if i is not None and state == ONGOING),
        )

    def is_open(self, index: int) -> bool:
        """Whether a task's transaction is open, according to its coordinator. While the transaction
        moves to another coordinator, it is possible that no broker lists it; this call waits for
        the new coordinator instead."""
        try:
            return describe_transaction(self._client, self._sink.task(index)).state == ONGOING
        except BrokerError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            return False

    def rows(self, index: int, *, stable: bool) -> dict[str, ProgressRow]:
        """The progress rows of a task: the offsets that its consumer group has committed, by topic.
        With ``stable`` the call waits while a transaction with a newer progress row is not ended.

        :raises ExactlyOnceRefused: for an offset whose metadata this release cannot read as a
            progress row
        """
        group = self._sink.task(index)
        found = committed_offsets(self._client, group)
        if stable:
            # OffsetFetch for all partitions leaves out partitions without a committed offset, and
            # does not wait for a transaction that commits their first one: name the partition.
            own = [self._partition]
            found |= committed_offsets(self._client, group, own, require_stable=True)
        try:
            return {at.topic: ProgressRow.from_offset(each) for at, each in found.items()}
        except ForeignProgress as error:
            raise ExactlyOnceRefused(f"group {group}: {error}") from None

    def mark(self) -> RunMark | None:
        """The sink's `RunMark`, which names the last run (start) of the query that began to commit;
        None if none is stored for ``topic``."""
        found = committed_offsets(self._client, self._sink.mark, [self._partition])
        position = found.get(self._partition)
        try:
            return None if position is None else RunMark.from_offset(position)
        except ForeignProgress as error:
            raise ExactlyOnceRefused(f"group {self._sink.mark}: {error}") from None

    def store(self, mark: RunMark, kept_ms: int = MARK_KEPT_MS) -> None:
        """Commit a `RunMark`, an offset that names the query's last run (start); brokers keep it
        for ``kept_ms``."""
        position: dict[TopicPartition, CommittedOffset] = {self._partition: mark.to_offset()}
        commit_offsets(self._client, self._sink.mark, position, retention_ms=kept_ms)

    def retention_ms(self) -> int:
        """How long brokers keep progress rows, which are committed offsets, in ms; Kafka's default
        if this user may not read the brokers' settings, or they lack the setting."""
        brokers = self._client.refresh([]).brokers
        try:
            with Admin(client=self._client) as admin:
                entries = admin.describe_configs(broker_id=min(brokers))
        except BrokerError as error:
            if error.code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                raise
            return DEFAULT_RETENTION_MS
        entry = entries.get(_RETENTION)
        if entry is None or entry.value is None:
            return DEFAULT_RETENTION_MS
        return int(entry.value) * 60_000

    def delete(self, indices: Iterable[int]) -> None:
        """Delete the consumer groups of the tasks with these indices; ignore missing groups."""
        for index in indices:
            try:
                delete_group(self._client, self._sink.task(index))
            except BrokerError as error:
                if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                    raise

    def _index(self, group_id: str) -> int | None:
        found = parse_sink_id(group_id)
        return found[1] if found is not None and found[0] == self._sink else None
