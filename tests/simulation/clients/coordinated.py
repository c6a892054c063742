"""Clients of a cluster that use coordinators: they find them, and follow them to other brokers.

A broker that has not learned that it no longer coordinates answers from its memory, as Kafka's
does. Such a broker cannot commit anything, so whatever it acknowledges must last; its other
responses are not counted against the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from pyspark_klog.client.producer.batches import Batch
from pyspark_klog.client.transactions.steps import PendingStep
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.fetch import FetchResponse
from tests.simulation.clients.base import Lost, Script, check_code
from tests.simulation.clients.fetch_session import Asking
from tests.simulation.clients.member import GROUP, Member
from tests.simulation.clients.multi_broker import MOVED, FollowingProducer, Roaming
from tests.simulation.clients.reader import Reader
from tests.simulation.clients.transactional import TransactionalProducer

LONGEST_TIMEOUT_MS = 8_000
"""The longest timeout of a transaction: a coordinator may be unavailable for a whole session."""
_MOST_BYTES = 2_000
_NAMED = 12  # from version 13 on topics go by id

Elected = tuple[int, int] | None
"""A broker and its leader epoch."""


class Coordinated(Roaming):
    """A client that knows from ZooKeeper which broker coordinates a group.

    ``elected`` returns that broker.
    """

    def __init__(self, *given: Any, elected: Callable[[str], Elected], **named: Any) -> None:
        super().__init__(*given, **named)
        self._elected = elected
        self._elected_then: Elected = None
        """The elected coordinator when the last request was sent."""

    def call_broker(
        self, request: Any, response_class: Any, **options: Any
    ) -> Generator[Any, Any, Any]:
        self._elected_then = self._elected(self.group)
        return (yield from super().call_broker(request, response_class, **options))

    @property
    def group(self) -> str:
        """The id of the group whose coordinator counts."""
        return GROUP

    def is_current(self) -> bool:
        elected = self._elected(self.group)
        return elected is not None and elected == self._elected_then and elected[0] == self.here


class RoamingMember(Coordinated, Member, Reader):
    """A member that reads its partitions from their leaders, and commits at the coordinator.

    The member continues where the group has committed and misses no record. So the group skips no
    record, and never goes back behind a committed offset.
    """

    _expected = MOVED
    _unknown = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def is_current(self) -> bool:
        self.history.groups.is_coordinated_by(self._elected(GROUP))
        return super().is_current()

    def _ask_commit(self, request: Any) -> Generator[Any, Any, Any]:
        answer = yield from super()._ask_commit(request)
        self.is_current()
        return answer

    def _move_on(self) -> Script:
        if not self._positions:
            return
        coordinator = self.here
        leaders = yield from self.ask_leaders(list(self._positions))
        for broker_id in sorted(set(leaders.values())):
            yield from self.go_to(broker_id)
            yield from self._poll([each for each, at in leaders.items() if at == broker_id])
        yield from self.go_to(coordinator)

    def _poll(self, wanted: list[TopicPartition]) -> Script:
        self._watermarks.clear()
        asking = Asking(
            with_session=False,
            max_bytes=_MOST_BYTES,
            ids=None,
            reads_committed=self._reads_committed,
        )
        positions = {each: self._positions[each] for each in wanted}
        request = asking.request(positions, max_wait_ms=0, min_bytes=1)
        reply = yield from self.call_broker(request, FetchResponse, low=4, high=_NAMED)
        check_code(self, reply.error_code)
        for topic in reply.responses:
            for row in topic.partitions:
                partition = asking.partition(topic.topic, topic.topic_id, row.partition_index)
                self._take(partition, row, self.world.now_ms)

    def _position_is_gone(self, partition: TopicPartition) -> None:
        """Start again if the offset may be lost; else an old leader may have fewer records."""
        records = self.history.records
        if self._positions[partition] > records.lost_from(partition):
            self._positions[partition] = records.start_of(partition)


class OffsetsReader(RoamingMember):
    """Reads all committed offsets of the group once."""

    def script(self) -> Script:
        yield from self.connect()
        yield from self._find_coordinator()
        if self._instance_id is not None:
            yield from self._find_ids()
        self._owned = self._all
        while not (yield from self._fetch_offsets()):
            pass


class RoamingTransactional(Coordinated, FollowingProducer, TransactionalProducer):
    """Sends each request of a transaction to its coordinator, each batch to its leader."""

    timeouts_ms = (2_000, LONGEST_TIMEOUT_MS)
    transaction_versions = (0,)
    """Clusters on ZooKeeper finalize no features in /feature, so transaction.version is 0."""
    _expected = (
        *TransactionalProducer._expected,
        *MOVED,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    )

    def __init__(self, *given: Any, are_doubtful: Callable[[str, str], bool], **named: Any) -> None:
        """Create the client.

        `are_doubtful` returns whether a broker acts as coordinator of the transactional id or of
        the group without knowing that another one was elected.
        """
        super().__init__(*given, **named)
        self._writing: list[TopicPartition] = []
        self._are_doubtful = are_doubtful
        self._were_doubtful = False

    def call_broker(
        self, request: Any, response_class: Any, **options: Any
    ) -> Generator[Any, Any, Any]:
        self._were_doubtful = self._are_doubtful(self._id, self._group)
        return (yield from super().call_broker(request, response_class, **options))

    def _check_manager(self) -> None:
        """Excuse an error from a broker that did not know of an election.

        The broker may be one that this client has not asked: leaders ask the transaction's
        coordinator.
        """
        is_doubtful = self._were_doubtful or self._are_doubtful(self._id, self._group)
        if self._manager.error is not None and is_doubtful:
            self._late_ms = self.world.now_ms
        super()._check_manager()

    @property
    def group(self) -> str:
        return self._group

    def wants(self) -> list[TopicPartition]:
        return self._writing

    def _reach(self, step: PendingStep) -> Script:
        if step.coordinator is None:
            yield from self.connect()
            return
        host = self._manager.address_of(step.coordinator).host
        hosts = [each.host for each in self.machines]
        yield from self.go_to(hosts.index(host))

    def _deliver(self, partitions: list[TopicPartition]) -> Script:
        self._writing = partitions
        while not self._core.is_idle:
            try:
                yield from self.look()
                while self._calls or self._ready(self.world.now_ms):
                    self._send()
                    yield self.world.between(1, 20)
                    self._take_answers()
                    self._check_manager()
                if self.is_connected and not self._core.is_idle:
                    self.hang_up()
                    yield from self.sleep(self.world.between(1, 50))
            except Lost:
                self._take_back()
            self._check_manager()

    def _fail(self, batch: Batch, code: ErrorCode) -> None:
        if not self._is_elected(batch.partition):
            self._late_ms = self.world.now_ms
        super()._fail(batch, code)
