"""Records of __transaction_state, and the consumer protocol, against bytes of Kafka's classes."""

import json
from pathlib import Path

import pytest

from pyspark_klog.errors import KlogError
from pyspark_klog.protocol.errors import UnsupportedVersion
from pyspark_klog.state_records import consumer_protocol
from pyspark_klog.state_records.transaction_log import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    TransactionState,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from pyspark_klog.state_records.versions import UnknownStateRecord


def golden(name: str) -> dict[str, bytes]:
    text = (Path(__file__).parent / f"state_records/{name}.json").read_text()
    return {name: bytes.fromhex(data) for name, data in json.loads(text)["records"].items()}


LOG = golden("transaction_log")
PROTOCOL = golden("consumer_protocol")
ONGOING = TransactionLogValue(
    producer_id=4711,
    producer_epoch=12,
    transaction_timeout_ms=60_000,
    transaction_status=TransactionState.ONGOING,
    transaction_partitions=[
        PartitionsSchema(topic="orders", partition_ids=[3, 0]),
        PartitionsSchema(topic="__consumer_offsets", partition_ids=[17]),
    ],
    transaction_last_update_timestamp_ms=1_700_000_000_456,
    transaction_start_timestamp_ms=1_700_000_000_123,
)
EMPTY = TransactionLogValue(
    producer_id=4711,
    producer_epoch=12,
    transaction_timeout_ms=60_000,
    transaction_partitions=None,
    transaction_last_update_timestamp_ms=1_700_000_000_456,
    transaction_start_timestamp_ms=-1,
)
TAGGED = TransactionLogValue(
    producer_id=4711,
    previous_producer_id=4710,
    next_producer_id=4712,
    producer_epoch=12,
    next_producer_epoch=1,
    transaction_timeout_ms=60_000,
    transaction_status=TransactionState.COMPLETE_COMMIT,
    transaction_last_update_timestamp_ms=1_700_000_000_456,
    transaction_start_timestamp_ms=1_700_000_000_123,
    client_transaction_version=2,
)


def test_the_key_is_kafkas_bytes_both_ways() -> None:
    assert encode_key("kärnten-1") == LOG["key"]
    assert decode_key(LOG["key"]) == TransactionLogKey(transactional_id="kärnten-1")


@pytest.mark.parametrize(
    "name, version, value",
    [
        ("ongoing_0", 0, ONGOING),
        ("empty_0", 0, EMPTY),
        ("ongoing_1", 1, ONGOING),
        ("empty_1", 1, EMPTY),
        ("tagged_1", 1, TAGGED),
    ],
)
def test_values_are_kafkas_bytes_both_ways(
    name: str, version: int, value: TransactionLogValue
) -> None:
    assert encode_value(value, version) == LOG[name]
    assert decode_value(LOG[name]) == value


def test_tagged_fields_do_not_fit_version_0() -> None:
    with pytest.raises(UnsupportedVersion, match="previous_producer_id"):
        encode_value(TAGGED, 0)


def test_states_have_kafkas_names() -> None:
    assert TransactionState.PREPARE_EPOCH_FENCE.kafkas_name == "PrepareEpochFence"
    assert TransactionState(4).kafkas_name == "CompleteCommit"


def test_kinds_and_versions_from_the_future_are_distinguished_from_damage() -> None:
    with pytest.raises(UnknownStateRecord, match="has version 1"):
        decode_key(b"\0\1\0\1g")
    with pytest.raises(UnknownStateRecord, match="version 2"):
        decode_value(b"\0\2")
    with pytest.raises(UnknownStateRecord, match="0 bytes"):
        decode_value(b"")


@pytest.mark.parametrize("name", sorted(LOG))
def test_a_record_that_is_cut_short_is_refused(name: str) -> None:
    data = LOG[name]
    for end in range(len(data)):
        with pytest.raises(KlogError):
            (decode_key if name == "key" else decode_value)(data[:end])


@pytest.mark.parametrize("version", range(4))
def test_subscriptions_of_every_version_are_read(version: int) -> None:
    owned = [consumer_protocol.TopicPartitions(topic="orders", partitions=[2, 5])]
    found = consumer_protocol.decode_subscription(PROTOCOL[f"subscription_{version}"])
    assert found == consumer_protocol.ConsumerProtocolSubscription(
        topics=["orders", "flights"],
        user_data=b"\0\1\2",
        owned_partitions=owned if version >= 1 else [],
        generation_id=7 if version >= 2 else -1,
        rack_id="rack-a" if version >= 3 else None,
    )


def test_a_newer_version_is_read_like_the_newest_known() -> None:
    data = b"\0\x09" + PROTOCOL["assignment_3"][2:] + b"more"
    (found,) = consumer_protocol.decode_assignment(data).assigned_partitions
    assert (found.topic, found.partitions) == ("orders", [2, 5])
    with pytest.raises(KlogError):
        consumer_protocol.decode_assignment(data[:9])
