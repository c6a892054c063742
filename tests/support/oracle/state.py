"""The state in which every broker is before the first generated request.

Generated requests only read it: what a request changes has a name of its own (`Maker.own`).
"""

from collections.abc import Iterator

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from pyspark_klog.protocol.apis.create_topics import CreatableTopic, CreatableTopicConfig
from pyspark_klog.protocol.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pyspark_klog.protocol.apis.describe_transactions import DescribeTransactionsRequest
from pyspark_klog.protocol.apis.end_txn import EndTxnRequest
from pyspark_klog.protocol.apis.init_producer_id import InitProducerIdRequest
from pyspark_klog.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyspark_klog.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from pyspark_klog.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from pyspark_klog.state_records.consumer_protocol import ConsumerProtocolSubscription
from pyspark_klog.state_records.versions import encode_versioned
from tests.support.oracle.names import LIVE_MEMBER, MEMBER, producer_id
from tests.support.oracle.records import MadeRecords
from tests.support.oracle.steps import Step

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "log.retention.ms": "-1",
    # The defaults of the releases differ.
    "log.message.timestamp.after.max.ms": str(2**63 - 1),
    "log.index.size.max.bytes": "65536",
}
LONG_MS = 900_000
"""The time-out of transactions: none of them is aborted while the oracle runs."""
UNKNOWN_ID = UUID(int=77)

COMMITTED, LIVE = "with-offsets", "live"
"""A group without members and a stable group of one member."""
SINK = "sink"
"""A topic that transactions write to and that nobody reads."""
READ = ("plain", "cut", "empty", "compacted", "txn", "zstd")
_TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "cut": {},
    "empty": {},
    "compacted": {"cleanup.policy": "compact"},
    "txn": {},
    "zstd": {},
    SINK: {},
    "dotted.name": {},
}
_PRODUCER = producer_id(1 << 30)


def topic(name: str, configs: dict[str, str] | None = None, partitions: int = 2) -> CreatableTopic:
    """A topic to create, on the only broker."""
    rows = [CreatableTopicConfig(name=key, value=text) for key, text in (configs or {}).items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=rows)


def shared_topics() -> list[CreatableTopic]:
    """The topics of the prepared state."""
    return [topic(name, configs) for name, configs in _TOPICS.items()]


def produce(name: str, records: MadeRecords, partition: int = 0, tid: str | None = None) -> Step:
    """A request that appends."""
    data = PartitionProduceData(index=partition, records=records)  # type: ignore[arg-type]
    rows = [TopicProduceData(name=name, partition_data=[data])]
    return Step(
        ProduceRequest(transactional_id=tid, acks=-1, timeout_ms=10_000, topic_data=rows), 9
    )


def init_producer(transactional_id: str | None, placeholder: int) -> Step:
    """A request for a producer id, which is then known by ``placeholder``."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=LONG_MS
    )
    return Step(request, 4, lambda answer: {placeholder: answer.producer_id})


def add_partition(transactional_id: str, producer: int, name: str) -> Step:
    """Partition 0 joins the transaction."""
    return Step(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[0])],
        ),
        3,
    )


def end_transaction(transactional_id: str, producer: int, *, commit: bool) -> Step:
    """The transaction ends."""
    return Step(
        EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer,
            producer_epoch=0,
            committed=commit,
        ),
        3,
    )


def until_complete(transactional_id: str) -> Step:
    """Shows the transaction, once its markers are written."""
    return Step(
        DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        0,
        awaits=lambda plain: (
            not plain["transaction_states"][0]["transaction_state"].startswith("Prepare")
        ),
    )


def commit_offsets(group: str) -> Step:
    """A tool's commits for three partitions."""
    rows = {"plain": (0, 1), "cut": (0,)}
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=each, committed_offset=3 + each, committed_metadata="m"
                )
                for each in partitions
            ],
        )
        for name, partitions in rows.items()
    ]
    return Step(OffsetCommitRequest(group_id=group, topics=topics), 7)


def join_group(group: str, member: str = MEMBER) -> Iterator[Step]:
    """Make a stable group of one member, whose id is known by ``member``."""
    metadata = encode_versioned(ConsumerProtocolSubscription(topics=["plain"]), 0)

    def join(member_id: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=group,
            session_timeout_ms=1_800_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )

    # The first request is answered MEMBER_ID_REQUIRED, with the id.
    yield Step(join(""), 9, lambda answer: {member: answer.member_id})
    yield Step(join(member), 9)
    given = [SyncGroupRequestAssignment(member_id=member, assignment=b"all")]
    yield Step(
        SyncGroupRequest(
            group_id=group,
            generation_id=1,
            member_id=member,
            protocol_type="consumer",
            protocol_name="range",
            assignments=given,
        ),
        5,
    )


def _transaction(number: int, *, commit: bool | None, partition: int = 0) -> Iterator[Step]:
    tid, producer = f"prepared-{number}", _PRODUCER + number
    yield init_producer(tid, producer)
    added = add_partition(tid, producer, "txn")
    added.request.v3_and_below_topics[0].partitions = [partition]  # type: ignore[attr-defined]
    yield added
    records = MadeRecords("plain", 0, producer, is_transactional=True)
    yield produce("txn", records, partition, tid)
    if commit is not None:
        yield end_transaction(tid, producer, commit=commit)
        yield until_complete(tid)


def prepare() -> Iterator[Step]:
    """The requests that make the state, once the topics are there."""
    for kind in ("plain", "gzip", "lz4"):
        for name in ("plain", "cut", "compacted"):
            yield produce(name, MadeRecords(kind, 0))
    yield produce("plain", MadeRecords("one record", 0), 1)
    yield produce("zstd", MadeRecords("zstd", 0))
    row = DeleteRecordsPartition(partition_index=0, offset=4)
    topics = [DeleteRecordsTopic(name="cut", partitions=[row])]
    yield Step(DeleteRecordsRequest(topics=topics, timeout_ms=10_000), 1)
    yield from _transaction(0, commit=True)
    yield from _transaction(1, commit=False)
    yield produce("txn", MadeRecords("plain", 0))
    yield from _transaction(2, commit=None, partition=1)
    yield commit_offsets(COMMITTED)
    yield from join_group(LIVE, LIVE_MEMBER)
