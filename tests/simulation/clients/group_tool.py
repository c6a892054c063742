"""Groups without members: one client commits to them, reads and deletes them.

A group is given up when a response is missing, since its content is unknown then.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from pyspark_klog.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from pyspark_klog.protocol.apis.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pyspark_klog.protocol.apis.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pyspark_klog.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from pyspark_klog.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.simulation.clients.base import Client, Script
from tests.simulation.plan import LONGEST_TIMEOUT_MS
from tests.simulation.world import Violation

DELETED = "a group that was deleted has no offsets, and one that was not keeps them"

_TOPIC = "t0"
_NONE, _NOT_FOUND = ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND
_NOTHING = -1
_Step = Generator[Any, Any, ErrorCode]


class _GiveUp(Exception):
    """The group's content is unknown."""


class GroupTool(Client):
    """Uses one group after the other.

    ``_offset`` is the offset in the group, `_NOTHING` while the group does not exist.
    """

    def __init__(self, *given: Any, has_transactions: bool, **named: Any) -> None:
        super().__init__(*given, **named)
        self._steps: list[Callable[[], _Step]] = [self._commit, self._commit, self._delete]
        if has_transactions:
            self._steps.append(self._delete_while_pending)
        self._count = 0
        self._group = ""
        self._offset = _NOTHING

    def script(self) -> Script:
        while not self.must_end:
            self._count += 1
            self._group, self._offset = f"own-group-{self._count}", _NOTHING
            try:
                yield from self._use()
            except _GiveUp as why:
                self.note(f"gives up {self._group}: {why}")
            yield from self.sleep(self.world.between(10, 200))

    def _use(self) -> Script:
        world, groups = self.world, self.history.groups
        forgotten = groups.forgotten
        for _ in range(world.between(3, 15)):
            yield from self.connect()
            yield from self._find(FindCoordinatorRequest(key=self._group))
            if groups.forgotten != forgotten:
                raise _GiveUp("a power cut may have taken what was not flushed")
            step = world.random.choice(self._steps)
            code = yield from step()
            self.note(f"{self._group} {step.__name__.strip('_')}: {code.name}, {self._offset}")
            yield from self._look()
            self.machine.has_told("committed")
            yield from self.sleep(world.between(0, 800))
            if self.must_end:
                return

    # --- steps -----------------------------------------------------------------------------------
    def _commit(self) -> _Step:
        offset = self.world.between(0, 1_000)
        row = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = OffsetCommitRequestTopic(name=_TOPIC, partitions=[row])
        request = OffsetCommitRequest(group_id=self._group, topics=[topic])
        reply = yield from self.call_broker(
            request, OffsetCommitResponse, low=2, high=9, waits_ms=5_000
        )
        code = self._settled(reply.topics[0].partitions[0].error_code)
        self._offset = offset
        return code

    def _delete(self) -> _Step:
        """Delete the group; without a commit it does not exist."""
        expected = _NOT_FOUND if self._offset == _NOTHING else _NONE
        return (yield from self._ask_delete(expected))

    def _delete_while_pending(self) -> _Step:
        """Delete the group at times while it has pending offsets, which must not count then."""
        found = FindCoordinatorRequest(key=self._group, key_type=1)
        yield from self._find(found)
        init = InitProducerIdRequest(
            transactional_id=self._group, transaction_timeout_ms=LONGEST_TIMEOUT_MS
        )
        given = yield from self.call_broker(init, InitProducerIdResponse, low=4, high=5)
        self._settled(given.error_code)
        producer = {
            "transactional_id": self._group,
            "producer_id": given.producer_id,
            "producer_epoch": given.producer_epoch,
        }
        offset = self.world.between(0, 1_000)
        row = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        topic = TxnOffsetCommitRequestTopic(name=_TOPIC, partitions=[row])
        request = TxnOffsetCommitRequest(group_id=self._group, topics=[topic], **producer)
        reply = yield from self.call_broker(request, TxnOffsetCommitResponse, low=5, waits_ms=5_000)
        self._settled(reply.topics[0].partitions[0].error_code)
        is_deleted = self.world.chance(0.5)
        if is_deleted:
            yield from self._ask_delete(_NONE)
        is_commit = self.world.chance(0.7)
        end = EndTxnRequest(committed=is_commit, **producer)
        answer = yield from self.call_broker(end, EndTxnResponse, low=5)
        code = self._settled(answer.error_code)
        if is_commit and not is_deleted:
            self._offset = offset
        return code

    # --- inside ----------------------------------------------------------------------------------
    def _find(self, request: FindCoordinatorRequest) -> Script:
        while True:
            found = yield from self.call_broker(request, FindCoordinatorResponse, low=1, high=3)
            if found.error_code == _NONE:
                return
            yield from self.sleep(self.world.between(10, 200))

    def _ask_delete(self, expected: ErrorCode) -> _Step:
        request = DeleteGroupsRequest(groups_names=[self._group])
        reply = yield from self.call_broker(request, DeleteGroupsResponse, waits_ms=5_000)
        code = ErrorCode(reply.results[0].error_code)
        if code in (_NONE, _NOT_FOUND) and code is not expected:
            raise Violation(DELETED, f"{self._group} at {self._offset}: {code.name}")
        if code is not expected:
            raise _GiveUp(code.name)
        self._offset = _NOTHING
        return code

    def _look(self) -> Script:
        """Compare the group's offset with the expected one, once no transaction can change it."""
        topic = OffsetFetchRequestTopic(name=_TOPIC, partition_indexes=[0])
        request = OffsetFetchRequest(group_id=self._group, topics=[topic], require_stable=True)
        while True:
            reply = yield from self.call_broker(request, OffsetFetchResponse, low=7, high=7)
            row = reply.topics[0].partitions[0] if reply.topics else None
            if row is None or row.error_code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                break
            yield from self.sleep(self.world.between(10, 100))
        self._settled(reply.error_code)
        assert row is not None
        self._settled(row.error_code)
        if row.committed_offset != self._offset:
            raise Violation(
                DELETED, f"{self._group} is at {row.committed_offset}, not at {self._offset}"
            )

    def _settled(self, number: int) -> ErrorCode:
        code = ErrorCode(number)
        if code is not _NONE:
            raise _GiveUp(code.name)
        return code
