"""Valid requests of each API, with the requests that set up their state, and probes afterwards.

`oracle/cases.py` then changes one or more fields of the request.
"""

from collections.abc import Callable
from typing import Any

from pyspark_klog.protocol.apis import add_partitions_to_txn as adding
from pyspark_klog.protocol.apis import create_partitions as growing
from pyspark_klog.protocol.apis import create_topics as creating
from pyspark_klog.protocol.apis import (
    delete_groups,
    delete_topics,
    describe_groups,
    end_txn,
    find_coordinator,
    init_producer_id,
    list_groups,
)
from pyspark_klog.protocol.apis import delete_records as deleting
from pyspark_klog.protocol.apis import describe_configs as configs
from pyspark_klog.protocol.apis import fetch as fetching
from pyspark_klog.protocol.apis import list_offsets as listing
from pyspark_klog.protocol.apis import metadata as naming
from pyspark_klog.protocol.apis import offset_commit as committing
from pyspark_klog.protocol.apis import offset_delete as forgetting
from pyspark_klog.protocol.apis import offset_fetch as offsets
from pyspark_klog.protocol.apis import offset_for_leader_epoch as epochs
from pyspark_klog.protocol.apis import produce as producing
from pyspark_klog.protocol.apis import txn_offset_commit as in_transaction
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request
from tests.support.oracle import state
from tests.support.oracle.maker import Maker
from tests.support.oracle.names import MEMBER, topic_uuid
from tests.support.oracle.records import KINDS, NO_PRODUCER, NOW_MS, MadeRecords
from tests.support.oracle.steps import Step

WAIT_MS = 10_000
_SETTINGS = (
    ("retention.ms", "86400000"),
    ("cleanup.policy", "compact"),
    ("cleanup.policy", "compact,delete"),
    ("max.message.bytes", "200"),
    ("compression.type", "gzip"),
    ("message.timestamp.type", "LogAppendTime"),
)


def _produce(m: Maker) -> Request:
    settings = m.random.choice(
        (
            {},
            {},
            {"cleanup_policy": "compact"},
            {"max_message_bytes": "200"},
            {"compression_type": m.random.choice(("gzip", "lz4", "zstd", "uncompressed"))},
            {"message_timestamp_type": "LogAppendTime"},
        )
    )
    name = m.own_topic(**settings)
    kinds = list(KINDS) if m.version > 2 else [*KINDS, *["of an old format"] * len(KINDS)]
    records = MadeRecords(m.random.choice(kinds), m.random.getrandbits(32))
    tid = None
    if m.version > 2 and m.random.random() < 0.4:
        is_transactional = m.random.random() < 0.5
        records = MadeRecords(
            records.kind,
            records.seed,
            m.producer,
            epoch=m.random.choice((0, 0, 0, 0, 1, -1)),
            sequence=m.random.choice((0, 0, 0, 1, 2**31 - 1, -1)),
            is_transactional=is_transactional,
        )
        if is_transactional:
            m.own_transaction(name)
            tid = m.transactional_id
        else:
            m.setup.append(state.init_producer(None, m.producer))
    data = producing.PartitionProduceData(index=0, records=records)  # type: ignore[arg-type]
    row = producing.TopicProduceData(name=name, topic_id=topic_uuid(name), partition_data=[data])
    m.probe(_fetch_of(name), 12)
    m.probe(_list_of(name), 7)
    return producing.ProduceRequest(
        transactional_id=tid,
        acks=m.random.choice((-1, -1, 1)),
        timeout_ms=WAIT_MS,
        topic_data=[row],
    )


def _fetch_of(name: str, partitions: tuple[int, ...] = (0,), **fields: Any) -> Request:
    rows = [
        fetching.FetchPartition(partition=each, fetch_offset=0, partition_max_bytes=1 << 20)
        for each in partitions
    ]
    topic = fetching.FetchTopic(topic=name, topic_id=topic_uuid(name), partitions=rows)
    return fetching.FetchRequest(topics=[topic], **fields)


def _list_of(name: str, *timestamps: int) -> Request:
    rows = [
        listing.ListOffsetsPartition(partition_index=0, timestamp=each)
        for each in timestamps or (-1,)
    ]
    topic = listing.ListOffsetsTopic(name=name, partitions=rows)
    return listing.ListOffsetsRequest(replica_id=-1, topics=[topic], timeout_ms=WAIT_MS)


def _fetch(m: Maker) -> Request:
    request: Any = _fetch_of(
        m.read_topic(),
        tuple(m.partitions()),
        max_wait_ms=m.random.choice((0, 1)),
        min_bytes=m.random.choice((0, 1)),
        max_bytes=1 << 20,
        isolation_level=m.random.choice((0, 1)),
        session_epoch=m.random.choice((-1, -1, 0)),
    )
    for each in request.topics[0].partitions:
        each.fetch_offset = m.random.choice((0, 0, 3, 4, 7, 9, 10, 12, 13))
    return request


def _list_offsets(m: Maker) -> Request:
    request: Any = _list_of(m.read_topic(), m.random.choice((-1, -2, -3, NOW_MS, NOW_MS + 2)))
    request.isolation_level = m.random.choice((0, 1))
    return request


def _metadata(m: Maker) -> Request:
    name = m.read_topic()
    chance = m.random.random()
    if chance < 0.3:
        name = m.own("-new")
    elif chance < 0.45:
        name = m.own_topic()
        request = delete_topics.DeleteTopicsRequest(topic_names=[name], timeout_ms=WAIT_MS)
        m.setup.append(Step(request, 3))
        gone = naming.MetadataRequest(
            topics=[naming.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
        )
        m.setup.append(Step(gone, 8, awaits=lambda plain: plain["topics"][0]["error_code"] == 3))
    if chance < 0.45:
        made = naming.MetadataRequest(
            topics=[naming.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
        )
        m.probe(made, 8, lambda plain: plain["topics"][0]["error_code"] == 0)
    # Versions that name topics by their ids refuse a name beside an id.
    row = naming.MetadataRequestTopic(name=name)
    return naming.MetadataRequest(topics=[row])


def _find_coordinator(m: Maker) -> Request:
    key = m.random.choice((m.own(), state.COMMITTED, state.LIVE))
    return find_coordinator.FindCoordinatorRequest(
        key=key, key_type=m.random.choice((0, 1)), coordinator_keys=[key]
    )


def _offset_commit(m: Maker) -> Request:
    group = m.own_group()
    has_member = m.random.random() < 0.5
    rows = [
        committing.OffsetCommitRequestPartition(
            partition_index=each, committed_offset=7, committed_metadata="x"
        )
        for each in m.partitions()
    ]
    name = m.read_topic()
    topic = committing.OffsetCommitRequestTopic(
        name=name, topic_id=topic_uuid(name), partitions=rows
    )
    m.probe_offsets(group)
    return committing.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=1 if has_member else -1,
        member_id=MEMBER if has_member else "",
        topics=[topic],
    )


def _offset_fetch(m: Maker) -> Request:
    group = m.random.choice((state.COMMITTED, state.COMMITTED, state.LIVE, m.own()))
    old = offsets.OffsetFetchRequestTopic(name="plain", partition_indexes=m.partitions())
    name = m.random.choice(("plain", "cut"))
    new = offsets.OffsetFetchRequestTopics(
        name=name, topic_id=topic_uuid(name), partition_indexes=m.partitions()
    )
    row = offsets.OffsetFetchRequestGroup(group_id=group, topics=[new])
    return offsets.OffsetFetchRequest(
        group_id=group,
        topics=[old],
        groups=[row],
        require_stable=m.version >= 7 and m.random.random() < 0.5,
    )


def _offset_delete(m: Maker) -> Request:
    group = m.own_group()
    rows = [
        forgetting.OffsetDeleteRequestPartition(partition_index=each) for each in m.partitions()
    ]
    topic = forgetting.OffsetDeleteRequestTopic(name="plain", partitions=rows)
    m.probe_offsets(group)
    return forgetting.OffsetDeleteRequest(group_id=group, topics=[topic])


def _init_producer_id(m: Maker) -> Request:
    request = init_producer_id.InitProducerIdRequest(
        transactional_id=m.random.choice((None, m.transactional_id, m.transactional_id)),
        transaction_timeout_ms=60_000,
    )
    if request.transactional_id is not None and m.random.random() < 0.5:
        m.own_transaction()
        if m.version >= 3 and m.random.random() < 0.7:
            request.producer_id, request.producer_epoch = m.producer, 0
    return request


def _add_partitions(m: Maker) -> Request:
    m.own_transaction(None)
    topic = adding.AddPartitionsToTxnTopic(name=state.SINK, partitions=m.partitions())
    row = adding.AddPartitionsToTxnTransaction(
        transactional_id=m.transactional_id,
        producer_id=m.producer,
        producer_epoch=0,
        verify_only=m.random.random() < 0.3,
        topics=[topic],
    )
    m.probes.append(state.until_complete(m.transactional_id))
    return adding.AddPartitionsToTxnRequest(
        transactions=[row],
        v3_and_below_transactional_id=m.transactional_id,
        v3_and_below_producer_id=m.producer,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[topic],
    )


def _txn_offset_commit(m: Maker) -> Request:
    group = m.own_group()
    m.own_transaction(None, group)
    rows = [
        in_transaction.TxnOffsetCommitRequestPartition(
            partition_index=each, committed_offset=7, committed_metadata="x"
        )
        for each in m.partitions()
    ]
    topic = in_transaction.TxnOffsetCommitRequestTopic(name=m.read_topic(), partitions=rows)
    has_member = m.version >= 3 and m.random.random() < 0.3
    m.probe_offsets(group)
    m.probes.append(state.end_transaction(m.transactional_id, m.producer, commit=True))
    m.probes.append(state.until_complete(m.transactional_id))
    m.probe_offsets(group, stable=True)
    return in_transaction.TxnOffsetCommitRequest(
        transactional_id=m.transactional_id,
        group_id=group,
        producer_id=m.producer,
        producer_epoch=0,
        generation_id_or_member_epoch=1 if has_member else -1,
        member_id=MEMBER if has_member else "",
        topics=[topic],
    )


def _end_txn(m: Maker) -> Request:
    m.own_transaction(group=m.random.choice((None, m.own())))
    m.probes.append(state.until_complete(m.transactional_id))
    return end_txn.EndTxnRequest(
        transactional_id=m.transactional_id,
        producer_id=m.producer,
        producer_epoch=0,
        committed=m.random.random() < 0.5,
    )


def _create_topics(m: Maker) -> Request:
    name = m.own("-new")
    topic = creating.CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    if m.random.random() < 0.3:
        topic.num_partitions = topic.replication_factor = -1
        topic.assignments = [
            creating.CreatableReplicaAssignment(partition_index=each, broker_ids=[0])
            for each in range(2)
        ]
    if m.random.random() < 0.6:
        key, value = m.random.choice(_SETTINGS)
        topic.configs = [creating.CreatableTopicConfig(name=key, value=value)]
    return creating.CreateTopicsRequest(
        topics=[topic],
        timeout_ms=WAIT_MS,
        validate_only=m.version >= 1 and m.random.random() < 0.5,
    )


def _create_partitions(m: Maker) -> Request:
    topic = growing.CreatePartitionsTopic(name=m.own_topic(), count=3, assignments=None)
    if m.random.random() < 0.4:
        topic.assignments = [growing.CreatePartitionsAssignment(broker_ids=[0])]
    return growing.CreatePartitionsRequest(
        topics=[topic], timeout_ms=WAIT_MS, validate_only=m.random.random() < 0.5
    )


def _delete_records(m: Maker) -> Request:
    name = m.own_topic()
    m.setup += [state.produce(name, MadeRecords("plain", 0, NO_PRODUCER))] * 2
    rows = [
        deleting.DeleteRecordsPartition(partition_index=each, offset=m.random.choice((0, 3, 6, -1)))
        for each in m.partitions()
    ]
    m.probe(_list_of(name, -2), 7)
    m.probe(_fetch_of(name), 12)
    topic = deleting.DeleteRecordsTopic(name=name, partitions=rows)
    return deleting.DeleteRecordsRequest(topics=[topic], timeout_ms=WAIT_MS)


def _describe_configs(m: Maker) -> Request:
    kind, name = m.random.choice(((2, m.read_topic()), (2, m.read_topic()), (4, "0"), (4, "")))
    keys = m.random.choice((None, ["retention.ms"], ["log.retention.ms", "cleanup.policy"]))
    row = configs.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    return configs.DescribeConfigsRequest(
        resources=[row], include_synonyms=m.version >= 1 and m.random.random() < 0.5
    )


def _describe_groups(m: Maker) -> Request:
    groups = [m.random.choice((state.COMMITTED, state.LIVE, m.own_group()))]
    return describe_groups.DescribeGroupsRequest(
        groups=groups,
        include_authorized_operations=m.version >= 3 and m.random.random() < 0.3,
    )


def _delete_groups(m: Maker) -> Request:
    group = m.own_group()
    m.probe(describe_groups.DescribeGroupsRequest(groups=[group]), 5)
    m.probe_offsets(group)
    return delete_groups.DeleteGroupsRequest(groups_names=[group])


def _list_groups(m: Maker) -> Request:
    m.own_group()
    return list_groups.ListGroupsRequest()


def _offset_for_leader_epoch(m: Maker) -> Request:
    rows = [
        epochs.OffsetForLeaderPartition(partition=each, leader_epoch=0) for each in m.partitions()
    ]
    topic = epochs.OffsetForLeaderTopic(topic=m.read_topic(), partitions=rows)
    return epochs.OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])


BASES: dict[ApiKey, Callable[[Maker], Request]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: _metadata,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.END_TXN: _end_txn,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.LIST_GROUPS: _list_groups,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
}
"""The APIs that are compared."""
