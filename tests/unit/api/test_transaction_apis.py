"""The APIs of transactions on a broker in memory: answers, by version, and what they do to logs."""

from dataclasses import replace
from typing import Any

import pytest

from klog_broker.metadata.local import LocalStore
from klog_broker.metadata.zookeeper.image_updater import ImageUpdater
from klog_broker.replication.errors import EndReason
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import UUID, TopicPartition
from pyspark_klog.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from pyspark_klog.protocol.apis.api_versions import ApiVersionsRequest
from pyspark_klog.protocol.apis.describe_transactions import DescribeTransactionsRequest
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.list_transactions import ListTransactionsRequest
from pyspark_klog.protocol.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from pyspark_klog.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support.cluster.broker import MemoryBroker, new_broker, topic_ids
from tests.support.coordinator.transaction_client import (
    OTHER,
    PLAIN,
    MemoryClient,
    broker_with_coordinators,
    codes,
)

NONE = ErrorCode.NONE
FENCED, INVALID_EPOCH = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.fixture
def broker() -> MemoryBroker:
    return broker_with_coordinators()


@pytest.fixture(params=[True, False], ids=["version-2", "version-0"])
def client(broker: MemoryBroker, request: pytest.FixtureRequest) -> MemoryClient:
    made = MemoryClient(broker, raises=request.param)
    assert made.init() == 0
    return made


def begin_transaction(client: MemoryClient, *partitions: TopicPartition) -> None:
    """A transaction with a record in each partition."""
    for each in partitions:
        if client.raises:
            assert client.verify(each) is NONE
        else:
            assert client.add(each) == [0]
            assert client.verify(each, adds=False) is NONE
        client.write(each)


# --- a transaction --------------------------------------------------------------------------------
@pytest.mark.parametrize("commit", [True, False])
def test_an_end_writes_markers_and_raises_the_epoch_of_those_that_know_it(
    client: MemoryClient, commit: bool
) -> None:
    begin_transaction(client, PLAIN, OTHER)
    assert client.stable_offset() == 0
    assert client.end_transaction(commit=commit) == 0
    assert client.epoch == (1 if client.raises else 0)
    for each in (PLAIN, OTHER):
        log = client.broker.log(*each)
        assert client.stable_offset(each) == log.high_watermark == log.log_end_offset == 2
    begin_transaction(client, PLAIN)
    assert client.end_transaction(commit=not commit) == 0


def test_a_second_producer_fences_the_first_at_every_api(client: MemoryClient) -> None:
    begin_transaction(client, PLAIN)
    second = MemoryClient(client.broker, raises=client.raises)
    assert second.init() == 0
    assert client.stable_offset() == client.broker.log("plain").log_end_offset
    assert codes(client.add(PLAIN), client.add_offsets(), client.end_transaction()) == [FENCED] * 3
    assert client.verify() is FENCED
    assert client.verify(adds=False) is FENCED
    assert codes(client.commit_offsets(5)) == [INVALID_EPOCH]
    init = client.init(producer_id=client.producer_id, producer_epoch=client.epoch)
    assert ErrorCode(init) is FENCED
    begin_transaction(second, PLAIN)
    assert second.end_transaction() == 0


def test_clients_of_old_versions_know_the_fence_by_another_name(broker: MemoryBroker) -> None:
    client = MemoryClient(broker, raises=False)
    assert client.init() == 0
    assert MemoryClient(broker).init() == 0
    for version, error in ((0, INVALID_EPOCH), (1, INVALID_EPOCH), (2, FENCED), (3, FENCED)):
        assert codes(client.add(PLAIN, version=version)) == [error]
        assert codes(client.add_offsets(version=version)) == [error]
        assert codes(client.end_transaction(version=version)) == [error]
    named = {"producer_id": client.producer_id, "producer_epoch": client.epoch}
    assert codes(client.init(version=3, **named)) == [INVALID_EPOCH]
    assert codes(client.init(version=4, **named)) == [FENCED]


@pytest.mark.parametrize("version", range(6))
def test_an_id_gets_a_producer_and_a_time_out_is_checked(
    broker: MemoryBroker, version: int
) -> None:
    client = MemoryClient(broker, f"tx-{version}")
    assert client.init(version) == 0
    assert client.epoch == 0
    assert client.init(version) == 0
    assert client.epoch == 1
    client.transactional_id = ""
    assert codes(client.init(version)) == [ErrorCode.INVALID_REQUEST]


def test_nothing_is_added_if_one_partition_is_not_there_or_the_brokers_own(
    broker: MemoryBroker,
) -> None:
    client = MemoryClient(broker, raises=False)
    client.init()
    absent, own = TopicPartition("plain", 9), TopicPartition("__consumer_offsets", 0)
    assert codes(client.add(PLAIN, absent, own)) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ]
    assert codes(client.end_transaction()) == [ErrorCode.INVALID_TXN_STATE]


def test_an_unknown_id_has_no_producer(broker: MemoryBroker) -> None:
    client = MemoryClient(broker)
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert codes(client.add(PLAIN), client.add_offsets(), client.end_transaction()) == [unknown] * 3
    assert codes(client.commit_offsets(1)) == [unknown]


def test_a_transaction_that_takes_too_long_is_aborted_by_the_broker(
    client: MemoryClient,
) -> None:
    begin_transaction(client, PLAIN)
    broker = client.broker
    broker.pass_time(60_000)
    assert client.stable_offset() == 0
    broker.pass_time(10_001)
    assert client.stable_offset() == broker.log("plain").log_end_offset
    assert codes(client.add(PLAIN)) == [FENCED]
    assert client.verify() is FENCED


# --- brokers ask each other -----------------------------------------------------------------------
def test_several_transactions_are_added_or_verified_by_one_request(broker: MemoryBroker) -> None:
    first, second = MemoryClient(broker, "first"), MemoryClient(broker, "second")
    first.init()
    second.init()

    def asked(client: MemoryClient, partition: int, *, only: bool) -> Any:
        return AddPartitionsToTxnTransaction(
            transactional_id=client.transactional_id,
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            verify_only=only,
            topics=[AddPartitionsToTxnTopic(name="plain", partitions=[partition])],
        )

    def add_transactions(*transactions: Any) -> dict[str, ErrorCode]:
        answer = broker.call(AddPartitionsToTxnRequest(transactions=list(transactions)), 5)
        assert answer.error_code == 0
        return {
            each.transactional_id: ErrorCode(
                each.topic_results[0].results_by_partition[0].partition_error_code
            )
            for each in answer.results_by_transaction
        }

    assert add_transactions(asked(first, 0, only=False), asked(second, 0, only=True)) == {
        "first": NONE,
        "second": ErrorCode.TRANSACTION_ABORTABLE,
    }
    assert add_transactions(asked(first, 0, only=True), asked(second, 9, only=False)) == {
        "first": NONE,
        "second": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert broker.call(AddPartitionsToTxnRequest(), 5).results_by_transaction == []


@pytest.mark.parametrize("version", [1, 2])
def test_markers_of_another_coordinator_end_transactions(
    broker: MemoryBroker, version: int
) -> None:
    client = MemoryClient(broker)
    client.init()
    begin_transaction(client, PLAIN)
    assert client.verify(TopicPartition("__consumer_offsets", 0)) is NONE
    assert codes(client.commit_offsets(7)) == [NONE]

    def marker(epoch: int, *, coordinator_epoch: int = 3) -> WritableTxnMarker:
        return WritableTxnMarker(
            producer_id=client.producer_id,
            producer_epoch=epoch,
            transaction_result=True,
            coordinator_epoch=coordinator_epoch,
            transaction_version=2 if version == 2 else 0,
            topics=[
                WritableTxnMarkerTopic(name="plain", partition_indexes=[0, 9]),
                WritableTxnMarkerTopic(name="__consumer_offsets", partition_indexes=[0]),
            ],
        )

    def write(*markers: WritableTxnMarker) -> list[list[ErrorCode]]:
        answer = broker.call(WriteTxnMarkersRequest(markers=list(markers)), version)
        return [
            codes([row.error_code for topic in each.topics for row in topic.partitions])
            for each in answer.markers
        ]

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert write(marker(client.epoch + 1)) == [[NONE, unknown, NONE]]
    assert client.stable_offset() == broker.log("plain").log_end_offset
    assert client.committed(stable=True) == 7
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert write(marker(client.epoch + 2, coordinator_epoch=2)) == [[fenced, unknown, fenced]]
    assert write(marker(client.epoch)) == [[INVALID_EPOCH, unknown, INVALID_EPOCH]]
    assert write() == []


# --- offsets --------------------------------------------------------------------------------------
def test_offsets_count_when_the_transaction_is_committed_and_not_before(
    client: MemoryClient,
) -> None:
    for offset, commit, seen in ((5, True, 5), (9, False, 5), (11, True, 11)):
        before = client.committed()
        if not client.raises:
            assert client.add_offsets() == 0
        assert codes(client.commit_offsets(offset)) == [NONE]
        assert client.committed() == before
        assert client.committed(stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert client.end_transaction(commit=commit) == 0
        assert client.committed(stable=True) == client.committed() == seen


def test_offsets_of_a_group_that_was_not_added_are_refused_by_version(
    broker: MemoryBroker,
) -> None:
    client = MemoryClient(broker, raises=False)
    client.init()
    for version in range(4):
        assert codes(client.commit_offsets(1, version=version)) == [ErrorCode.INVALID_TXN_STATE]
    assert codes(client.commit_offsets(1, version=4)) == [ErrorCode.TRANSACTION_ABORTABLE]
    assert client.committed() == -1
    assert codes(client.commit_offsets(1, version=5)) == [NONE]


def test_offsets_of_a_topic_by_its_id_in_version_6(broker: MemoryBroker) -> None:
    """Kafka 4.4 (KIP-1319) behaves in the same way, with its error for an unknown group member."""
    client = MemoryClient(broker, raises=True)
    assert client.init() == 0
    plain = topic_ids()["plain"]
    for topic_id in (UUID(int=77), UUID(int=0)):
        answer = codes(client.commit_offsets(4, version=6, topic_id=topic_id))
        assert answer == [ErrorCode.UNKNOWN_TOPIC_ID]
    member = {"generation_id": 3, "member_id": "m"}
    answer = codes(client.commit_offsets(4, version=6, topic_id=plain, **member))
    assert answer == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert codes(client.commit_offsets(4, version=6, topic_id=plain)) == [NONE]
    answer = codes(client.commit_offsets(4, version=6, topic_id=plain, **member))
    assert answer == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert client.end_transaction() == 0
    assert client.committed() == 4


def test_a_transactional_commit_names_no_member_or_one_of_this_generation(
    client: MemoryClient,
) -> None:
    if not client.raises:
        assert client.add_offsets() == 0
    for member, error in (
        ({"generation_id": 3, "member_id": "m"}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": -1, "member_id": ""}, NONE),
        # The group is there now, and has no members.
        ({"generation_id": 3, "member_id": "m"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": -1, "member_id": "m"}, NONE),
    ):
        assert codes(client.commit_offsets(4, **member)) == [error]
    assert codes(client.commit_offsets(4, group="")) == [ErrorCode.INVALID_GROUP_ID]


def test_the_topic_of_the_groups_is_made_for_the_first_offsets_of_a_transaction() -> None:
    broker = new_broker(with_kernel=False, transaction_state_log_num_partitions=1)
    broker.call(FindCoordinatorRequest(key="x", key_type=1), 3)
    client = MemoryClient(broker, raises=False)
    assert client.init() == 0
    assert codes(client.add_offsets()) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert client.add_offsets() == 0


# --- tools ----------------------------------------------------------------------------------------
def test_tools_see_what_transactions_have_come_to(broker: MemoryBroker) -> None:
    first, second = MemoryClient(broker, "first"), MemoryClient(broker, "second")
    first.init()
    second.init()
    begin_transaction(first, PLAIN, OTHER)
    broker.clock.advance(5_000)
    request = DescribeTransactionsRequest(transactional_ids=["first", "second", "third", ""])
    states = broker.call(request, 0).transaction_states
    assert [each.transaction_state for each in states] == ["Ongoing", "Empty", "", ""]
    assert codes([each.error_code for each in states[2:]]) == [
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,
    ]
    assert states[0].topics[0].partitions == [0, 1]
    assert states[0].transaction_timeout_ms == 60_000
    assert states[0].transaction_start_time_ms == broker.clock.now_ms() - 5_000
    assert (states[0].producer_id, states[0].producer_epoch) == (first.producer_id, 0)

    def listed(version: int = 1, **filters: Any) -> set[str]:
        answer = broker.call(ListTransactionsRequest(**filters), version)
        assert answer.error_code == 0
        return {each.transactional_id for each in answer.transaction_states}

    assert listed(0) == {"first", "second"}
    assert listed(state_filters=["Ongoing"]) == {"first"}
    assert listed(producer_id_filters=[second.producer_id]) == {"second"}
    assert listed(duration_filter=4_999, state_filters=["Ongoing"]) == {"first"}
    assert listed(duration_filter=5_000, state_filters=["Ongoing"]) == set()
    assert listed(state_filters=["Nonsense"]) == set()
    assert listed(2, transactional_id_pattern="f.*t") == {"first"}
    assert listed(2, transactional_id_pattern="firs") == set()
    assert listed(2, transactional_id_pattern="") == {"first", "second"}
    answer = broker.call(ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    answer = broker.call(ListTransactionsRequest(state_filters=["Nonsense", "Empty"]), 1)
    assert answer.unknown_state_filters == ["Nonsense"]


@pytest.mark.parametrize("version", range(6))
def test_the_transactions_version_is_a_feature(broker: MemoryBroker, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    answer = broker.call(request, version)
    assert answer.error_code == 0
    finalized = [
        (each.name, each.min_version_level, each.max_version_level)
        for each in answer.finalized_features
    ]
    assert finalized == ([("transaction.version", 2, 2)] if version >= 3 else [])
    assert answer.finalized_features_epoch == (0 if version >= 3 else -1)
    supported = [
        (each.name, each.min_version, each.max_version) for each in answer.supported_features
    ]
    assert supported == ([("transaction.version", 0, 2)] if version >= 4 else [])


@pytest.mark.parametrize("version", range(3, 6))
def test_a_cluster_has_finalized_no_feature(
    broker: MemoryBroker, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients use the protocol of transaction.version 0, as with Kafka 3.9 on ZooKeeper."""
    image = replace(
        broker.broker.services.metadata.image,
        features=ImageUpdater("c", lambda _: {}).image.features,
    )
    monkeypatch.setattr(LocalStore, "image", property(lambda _: image))
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    answer = broker.call(request, version)
    assert answer.error_code == 0
    assert (answer.finalized_features, answer.supported_features) == ([], [])
    assert answer.finalized_features_epoch == 0
    update = FeatureUpdateKey(feature="transaction.version", max_version_level=2)
    updated = broker.call(UpdateFeaturesRequest(feature_updates=[update]), 1)
    assert updated.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "is not known: a cluster over ZooKeeper has no features" in updated.error_message


# --- restarts -------------------------------------------------------------------------------------
def test_a_killed_broker_goes_on_with_what_it_had_decided(client: MemoryClient) -> None:
    begin_transaction(client, PLAIN)
    writer = client.broker.broker.services.replicas.led[PLAIN]
    writer.ended = EndReason.RESIGNED
    assert client.end_transaction() == 0
    assert client.stable_offset() == 0
    killed = MemoryBroker(client.broker.files.killed(), with_kernel=False)
    killed.pass_time(1_000)
    log = killed.log("plain")
    assert log.last_stable_offset == log.log_end_offset == 2
    client.broker = client.caller = killed
    begin_transaction(client, PLAIN)
    assert client.end_transaction(commit=False) == 0
