"""Access to groups and transactional ids: an API needs exactly the operations it declares."""

from collections.abc import Iterator
from typing import Any

import pytest

from klog_broker.security.acls import CLUSTER_NAME, AclOperation, AclResourceType
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from pyspark_klog.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from pyspark_klog.protocol.apis.delete_groups import DeleteGroupsRequest
from pyspark_klog.protocol.apis.describe_groups import DescribeGroupsRequest
from pyspark_klog.protocol.apis.describe_transactions import DescribeTransactionsRequest
from pyspark_klog.protocol.apis.end_txn import EndTxnRequest
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.heartbeat import HeartbeatRequest
from pyspark_klog.protocol.apis.init_producer_id import InitProducerIdRequest
from pyspark_klog.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pyspark_klog.protocol.apis.leave_group import LeaveGroupRequest
from pyspark_klog.protocol.apis.list_groups import ListGroupsRequest
from pyspark_klog.protocol.apis.list_transactions import ListTransactionsRequest
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyspark_klog.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from pyspark_klog.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from pyspark_klog.protocol.apis.sync_group import SyncGroupRequest
from pyspark_klog.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from pyspark_klog.protocol.message import Request
from tests.support.cluster.broker import MemoryBroker, new_broker
from tests.support.security.rules import Rules

GROUP, TRANSACTION = AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID
CLUSTER, TOPIC = AclResourceType.CLUSTER, AclResourceType.TOPIC
READ, WRITE = AclOperation.READ, AclOperation.WRITE
DESCRIBE, DELETE = AclOperation.DESCRIBE, AclOperation.DELETE
NAMES = {GROUP: "g", TRANSACTION: "t"}
DENIED = {
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    TRANSACTION: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}

JOIN = JoinGroupRequest(
    group_id="g",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=10_000,
    protocol_type="consumer",
    protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
)
COMMIT = OffsetCommitRequest(
    group_id="g",
    topics=[
        OffsetCommitRequestTopic(
            name="plain",
            partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=0)],
        )
    ],
)
FORGET = OffsetDeleteRequest(
    group_id="g",
    topics=[
        OffsetDeleteRequestTopic(
            name="plain", partitions=[OffsetDeleteRequestPartition(partition_index=0)]
        )
    ],
)
TRANSACTIONAL: dict[str, Any] = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0}
INIT = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000)
ADD_PARTITIONS = AddPartitionsToTxnRequest(
    v3_and_below_transactional_id="t",
    v3_and_below_producer_id=1,
    v3_and_below_producer_epoch=0,
    v3_and_below_topics=[AddPartitionsToTxnTopic(name="plain", partitions=[0])],
)
COMMIT_IN_TRANSACTION = TxnOffsetCommitRequest(
    **TRANSACTIONAL,
    group_id="g",
    topics=[
        TxnOffsetCommitRequestTopic(
            name="plain",
            partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=0)],
        )
    ],
)

Case = tuple[Request, int, AclOperation, AclResourceType]
CASES: dict[str, Case] = {
    "FindCoordinator of a group": (FindCoordinatorRequest(key="g"), 3, DESCRIBE, GROUP),
    "FindCoordinator of groups": (
        FindCoordinatorRequest(coordinator_keys=["g"]),
        4,
        DESCRIBE,
        GROUP,
    ),
    "JoinGroup": (JOIN, 5, READ, GROUP),
    "SyncGroup": (SyncGroupRequest(group_id="g", generation_id=1, member_id="m"), 3, READ, GROUP),
    "Heartbeat": (HeartbeatRequest(group_id="g", member_id="m"), 3, READ, GROUP),
    "LeaveGroup": (LeaveGroupRequest(group_id="g", member_id="m"), 2, READ, GROUP),
    "OffsetCommit": (COMMIT, 8, READ, GROUP),
    "OffsetFetch": (OffsetFetchRequest(group_id="g", topics=None), 7, DESCRIBE, GROUP),
    "OffsetFetch of groups": (
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]),
        8,
        DESCRIBE,
        GROUP,
    ),
    "OffsetDelete": (FORGET, 0, DELETE, GROUP),
    "DescribeGroups": (DescribeGroupsRequest(groups=["g"]), 5, DESCRIBE, GROUP),
    "DeleteGroups": (DeleteGroupsRequest(groups_names=["g"]), 2, DELETE, GROUP),
    "AddOffsetsToTxn to a group": (
        AddOffsetsToTxnRequest(**TRANSACTIONAL, group_id="g"),
        3,
        READ,
        GROUP,
    ),
    "TxnOffsetCommit to a group": (COMMIT_IN_TRANSACTION, 3, READ, GROUP),
    "FindCoordinator of a transactional id": (
        FindCoordinatorRequest(key="t", key_type=1),
        3,
        DESCRIBE,
        TRANSACTION,
    ),
    "InitProducerId": (INIT, 4, WRITE, TRANSACTION),
    "AddPartitionsToTxn": (ADD_PARTITIONS, 3, WRITE, TRANSACTION),
    "AddOffsetsToTxn": (
        AddOffsetsToTxnRequest(**TRANSACTIONAL, group_id="g"),
        3,
        WRITE,
        TRANSACTION,
    ),
    "TxnOffsetCommit": (COMMIT_IN_TRANSACTION, 3, WRITE, TRANSACTION),
    "EndTxn": (EndTxnRequest(**TRANSACTIONAL, committed=True), 3, WRITE, TRANSACTION),
    "DescribeTransactions": (
        DescribeTransactionsRequest(transactional_ids=["t"]),
        0,
        DESCRIBE,
        TRANSACTION,
    ),
}


@pytest.fixture
def rules() -> Rules:
    return Rules()


@pytest.fixture
def broker(rules: Rules) -> Iterator[MemoryBroker]:
    found = new_broker(with_kernel=False, authorizer=rules)
    for key, kind in (("g", 0), ("t", 1)):
        found.call(FindCoordinatorRequest(key=key, key_type=kind), 3)
        found.turns()
    yield found
    found.close()


def errors(message: Any) -> set[int]:
    """All error codes in a response, without NONE."""
    found: set[int] = set()
    for field in message.__fields__:
        value = getattr(message, field)
        if field.endswith("error_code"):
            found.add(value)
        elif isinstance(value, list):
            found.update(*(errors(each) for each in value if hasattr(each, "__fields__")))
    return found - {ErrorCode.NONE}


@pytest.mark.parametrize("case", CASES)
def test_a_request_is_refused_only_without_the_operation_that_its_api_declares(
    case: str, broker: MemoryBroker, rules: Rules
) -> None:
    request, version, needed, resource_type = CASES[case]
    name = NAMES[resource_type]

    def find_errors() -> set[int]:
        # Give the group an offset, because some of the requests delete it.
        broker.call(COMMIT, 8)
        return errors(broker.call(request, version))

    allowed = find_errors()
    assert DENIED[resource_type] not in allowed
    rules.deny(needed, resource_type, name)
    assert errors(broker.call(request, version)) == {DENIED[resource_type]}
    rules.allow_everything()
    # OffsetCommit needs READ, so the group gets its offset before the rules.
    broker.call(COMMIT, 8)
    for operation in AclOperation:
        if operation is not needed:
            rules.deny(operation, resource_type, name)
    assert errors(broker.call(request, version)) == allowed


def test_lists_leave_out_groups_and_transactions_that_the_client_may_not_describe(
    broker: MemoryBroker, rules: Rules
) -> None:
    broker.call(COMMIT, 8)
    broker.call(INIT, 4)

    def listed() -> tuple[list[str], list[str]]:
        groups = broker.call(ListGroupsRequest(), 4).groups
        transactions = broker.call(ListTransactionsRequest(), 0).transaction_states
        return (
            [each.group_id for each in groups],
            [each.transactional_id for each in transactions],
        )

    assert listed() == (["g"], ["t"])
    for resource_type, name in NAMES.items():
        rules.deny(DESCRIBE, resource_type, name)
    # The right to describe the cluster shows all groups, and no transactions.
    assert listed() == (["g"], [])
    rules.deny(DESCRIBE, CLUSTER, CLUSTER_NAME)
    assert listed() == ([], [])


def test_an_idempotent_producer_needs_idempotent_write_or_write_on_one_topic(
    broker: MemoryBroker, rules: Rules
) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    rules.deny(AclOperation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME)
    assert errors(broker.call(request, 4)) == set()
    for topic in broker.broker.services.metadata.image.topics:
        rules.deny(WRITE, TOPIC, topic)
    assert errors(broker.call(request, 4)) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
