"""Clients of a cluster that ask coordinators: they find these, and follow them to other brokers.

A broker that does not know yet that others coordinate tells what it remembers, as Kafka's does.
What it acknowledges has to stay, for it cannot acknowledge anything; what else it says is not held
against the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from pyspark_klog.client.producer.batches import Batch
from pyspark_klog.client.transactions.steps import PendingStep
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.fetch import FetchResponse
from tests.simulation.clients.asking import Asking
from tests.simulation.clients.base import Lost, Script, check_code
from tests.simulation.clients.member import GROUP, Member
from tests.simulation.clients.reader import Reader
from tests.simulation.clients.roaming import MOVED, FollowingProducer, Roaming
from tests.simulation.clients.transactional import TransactionalProducer

LONGEST_TIMEOUT_MS = 8_000
"""Of transactions: a coordinator may be away for as long as a session lasts."""
_MOST_BYTES = 2_000
_NAMED = 12  # from version 13 on topics go by id

Elected = tuple[int, int] | None
"""A broker and the epoch that it leads in."""


class Coordinated(Roaming):
    """``elected`` tells of a group who coordinates it, by what ZooKeeper has."""

    def __init__(self, *given: Any, elected: Callable[[str], Elected], **named: Any) -> None:
        super().__init__(*given, **named)
        self._elected = elected
        self._elected_then: Elected = None
        """When the last request was sent."""

    def ask(self, request: Any, reply_class: Any, **options: Any) -> Generator[Any, Any, Any]:
        self._elected_then = self._elected(self.group)
        return (yield from super().ask(request, reply_class, **options))

    @property
    def group(self) -> str:
        """Whose coordinator counts."""
        return GROUP

    def is_current(self) -> bool:
        elected = self._elected(self.group)
        return elected is not None and elected == self._elected_then and elected[0] == self.here


class RoamingMember(Coordinated, Member, Reader):
    """Its work is to read its partitions from their leaders; then it goes back, and commits.

    Since it goes on where the group has committed, and misses nothing on its way, a group passes
    over no record, nor does it go back behind what it was told is committed.
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
        reply = yield from self.ask(request, FetchResponse, low=4, high=_NAMED)
        check_code(self, reply.error_code)
        for topic in reply.responses:
            for row in topic.partitions:
                partition = asking.partition(topic.topic, topic.topic_id, row.partition_index)
                self._take(partition, row, self.world.now_ms)

    def _position_is_gone(self, partition: TopicPartition) -> None:
        """A leader that does not know yet that it is none may not have as much."""
        records = self.history.records
        if self._positions[partition] > records.lost_from(partition):
            self._positions[partition] = records.start_of(partition)


class OffsetsReader(RoamingMember):
    """Looks at what the group has committed of all partitions, once."""

    def script(self) -> Script:
        yield from self.connect()
        yield from self._find_coordinator()
        if self._instance_id is not None:
            yield from self._find_ids()
        self._owned = self._all
        while not (yield from self._fetch_offsets()):
            pass


class RoamingTransactional(Coordinated, FollowingProducer, TransactionalProducer):
    """Each request of a transaction goes to its coordinator, each batch to its leader."""

    timeouts_ms = (2_000, LONGEST_TIMEOUT_MS)
    transaction_versions = (0,)
    """/feature finalizes nothing in a cluster."""
    _expected = (
        *TransactionalProducer._expected,
        *MOVED,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    )

    def __init__(self, *given: Any, are_doubtful: Callable[[str, str], bool], **named: Any) -> None:
        """`are_doubtful` tells whether a broker says it coordinates that transactional id, or that
        group, and does not know yet that another one does."""
        super().__init__(*given, **named)
        self._writing: list[TopicPartition] = []
        self._are_doubtful = are_doubtful
        self._were_doubtful = False

    def ask(self, request: Any, reply_class: Any, **options: Any) -> Generator[Any, Any, Any]:
        self._were_doubtful = self._are_doubtful(self._id, self._group)
        return (yield from super().ask(request, reply_class, **options))

    def _check_manager(self) -> None:
        """It may be told what was so before. Brokers that it has not asked may be, too: leaders
        ask the transaction's coordinator."""
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
