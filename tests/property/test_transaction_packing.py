"""Records of __transaction_state are packed as their messages are encoded."""

from hypothesis import given
from hypothesis import strategies as st

from klog_broker.coordinator.transaction.shard_state import TRANSACTION_RECORDS
from klog_broker.coordinator.transaction.states import LASTING
from klog_broker.coordinator.transaction.transaction_metadata import TransactionMetadata
from pyspark_klog.ids import TopicPartition
from pyspark_klog.state_records.transaction_log import (
    TransactionState,
    encode_key,
    encode_value,
)
from tests.support.coordinator.transaction_records import to_record

INT64 = st.integers(-1, 2**63 - 1)
EPOCHS = st.integers(0, 2**15 - 1)
TOPICS = st.sampled_from(["t", "u", "ü" * 90, "x" * 249])
PARTITIONS = st.lists(
    st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1)), unique=True, max_size=200
).map(tuple)
METADATA = st.builds(
    TransactionMetadata,
    state=st.sampled_from(sorted(LASTING)),
    producer_id=INT64,
    producer_epoch=EPOCHS,
    timeout_ms=st.integers(0, 2**31 - 1),
    previous_producer_id=INT64,
    next_producer_id=INT64,
    last_producer_epoch=st.just(-1),
    partitions=PARTITIONS,
    start_ms=INT64,
    update_ms=INT64,
    client_version=st.sampled_from([0, 1, 2]),
)


@given(st.text(max_size=300), METADATA)
def test_a_packed_record_is_the_encoded_one(
    transactional_id: str, metadata: TransactionMetadata
) -> None:
    key, value = TRANSACTION_RECORDS.encode(transactional_id, metadata)
    assert key == encode_key(transactional_id)
    assert value == encode_value(to_record(metadata))
    decoded = TRANSACTION_RECORDS.decode(key, value)
    assert decoded is not None
    found_id, found = decoded
    assert found is not None
    assert found_id == transactional_id
    if metadata.state is TransactionState.EMPTY:
        metadata = metadata._replace(partitions=())
    assert set(found.partitions) == set(metadata.partitions)
    assert found._replace(partitions=()) == metadata._replace(partitions=())
