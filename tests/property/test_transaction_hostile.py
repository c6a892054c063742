"""Any values in requests of transactions: each is answered, none is a bug, others are served."""

from functools import cache
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_klog.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from pyspark_klog.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from pyspark_klog.protocol.apis.describe_transactions import DescribeTransactionsRequest
from pyspark_klog.protocol.apis.end_txn import EndTxnRequest
from pyspark_klog.protocol.apis.init_producer_id import InitProducerIdRequest
from pyspark_klog.protocol.apis.list_transactions import ListTransactionsRequest
from pyspark_klog.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from pyspark_klog.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from pyspark_klog.protocol.message import Request
from tests.support.cluster.broker import MemoryBroker
from tests.support.coordinator.transaction_client import (
    PLAIN,
    MemoryClient,
    broker_with_coordinators,
)

TEXTS = st.sampled_from(["", "tx", "tx", "plain", "__consumer_offsets", "ü" * 40, "x" * 32_767])
PRODUCER_IDS = st.sampled_from([-(2**63), -2, -1, 0, 0, 1, 2**63 - 1])
EPOCHS = st.sampled_from([-32_768, -1, 0, 0, 1, 32_766, 32_767])
NUMBERS = st.sampled_from([-(2**31), -1, 0, 0, 1, 2**31 - 1])
OFFSETS = st.sampled_from([-(2**63), -1, 0, 2**63 - 1])
PARTITIONS = st.lists(NUMBERS, max_size=3)


def some(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(strategy, max_size=3)


def made(kind: type, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(fields).map(lambda values: kind(**values))


ADDED = some(made(AddPartitionsToTxnTopic, name=TEXTS, partitions=PARTITIONS))
REQUESTS: list[tuple[range, st.SearchStrategy[Request]]] = [
    (
        range(3, 6),
        made(
            InitProducerIdRequest,
            transactional_id=TEXTS,
            transaction_timeout_ms=NUMBERS,
            producer_id=PRODUCER_IDS,
            producer_epoch=EPOCHS,
        ),
    ),
    (
        range(4),
        made(
            AddPartitionsToTxnRequest,
            v3_and_below_transactional_id=TEXTS,
            v3_and_below_producer_id=PRODUCER_IDS,
            v3_and_below_producer_epoch=EPOCHS,
            v3_and_below_topics=ADDED,
        ),
    ),
    (
        range(4, 6),
        made(
            AddPartitionsToTxnRequest,
            transactions=some(
                made(
                    AddPartitionsToTxnTransaction,
                    transactional_id=TEXTS,
                    producer_id=PRODUCER_IDS,
                    producer_epoch=EPOCHS,
                    verify_only=st.booleans(),
                    topics=ADDED,
                )
            ),
        ),
    ),
    (
        range(5),
        made(
            AddOffsetsToTxnRequest,
            transactional_id=TEXTS,
            producer_id=PRODUCER_IDS,
            producer_epoch=EPOCHS,
            group_id=TEXTS,
        ),
    ),
    (
        range(6),
        made(
            EndTxnRequest,
            transactional_id=TEXTS,
            producer_id=PRODUCER_IDS,
            producer_epoch=EPOCHS,
            committed=st.booleans(),
        ),
    ),
    (
        range(3, 7),
        made(
            TxnOffsetCommitRequest,
            transactional_id=TEXTS,
            group_id=TEXTS,
            producer_id=PRODUCER_IDS,
            producer_epoch=EPOCHS,
            generation_id_or_member_epoch=NUMBERS,
            member_id=TEXTS,
            topics=some(
                made(
                    TxnOffsetCommitRequestTopic,
                    name=TEXTS,
                    partitions=some(
                        made(
                            TxnOffsetCommitRequestPartition,
                            partition_index=NUMBERS,
                            committed_offset=OFFSETS,
                            committed_leader_epoch=NUMBERS,
                            committed_metadata=TEXTS,
                        )
                    ),
                )
            ),
        ),
    ),
    (
        range(1, 3),
        made(
            WriteTxnMarkersRequest,
            markers=some(
                made(
                    WritableTxnMarker,
                    producer_id=PRODUCER_IDS,
                    producer_epoch=EPOCHS,
                    transaction_result=st.booleans(),
                    coordinator_epoch=NUMBERS,
                    transaction_version=st.sampled_from([-128, -1, 0, 1, 2, 127]),
                    topics=some(
                        made(WritableTxnMarkerTopic, name=TEXTS, partition_indexes=PARTITIONS)
                    ),
                )
            ),
        ),
    ),
    (range(1), made(DescribeTransactionsRequest, transactional_ids=some(TEXTS))),
    (
        range(2, 3),
        made(
            ListTransactionsRequest,
            state_filters=some(TEXTS),
            producer_id_filters=some(PRODUCER_IDS),
            duration_filter=OFFSETS,
            transactional_id_pattern=TEXTS,
        ),
    ),
]
ASKED = st.one_of(
    *(st.tuples(st.sampled_from(list(versions)), requests) for versions, requests in REQUESTS)
)


@cache
def broker() -> MemoryBroker:
    """The producers 0 and 1 can be hit by what is asked: a marker of any epoch, for example. The
    client that has to go on working is another."""
    made = broker_with_coordinators()
    for transactional_id in ("tx", "plain", "of-others"):
        assert MemoryClient(made, transactional_id).init() == 0
    return made


@settings(max_examples=200)
@given(st.lists(ASKED, min_size=1, max_size=8))
def test_each_is_answered_and_a_transaction_still_works(asked: list[tuple[int, Request]]) -> None:
    served = broker()
    for version, request in asked:
        assert served.call(request, version) is not None
    assert served.broker.services.requests.bugs.total == 0
    client = MemoryClient(served, "of-others")
    assert client.init() == 0
    assert client.verify(PLAIN) == 0
    client.write(PLAIN)
    assert client.end_transaction() == 0
    log = served.log("plain")
    assert client.stable_offset() == log.high_watermark == log.log_end_offset
