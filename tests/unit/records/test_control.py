"""Control records: the ends of transactions and types that are not known."""

import pytest

from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.control import (
    ControlType,
    EndTransactionMarker,
    control_type_of,
    decode_end_transaction,
    encode_control_key,
    end_transaction_at,
    end_transaction_batch,
)
from pyspark_klog.records.errors import InvalidRecords
from pyspark_klog.records.record import Record, TimestampType
from tests.support.records.record_sets import encode_end_transaction

CREATE = TimestampType.CREATE_TIME


def record(key: bytes | None, value: bytes | None) -> Record:
    return Record(0, 0, CREATE, key, value)


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_a_marker_and_its_batch(kind: ControlType) -> None:
    marker = EndTransactionMarker(kind, 2**31 - 1)
    assert decode_end_transaction(record(*encode_end_transaction(marker))) == marker
    batch = BatchView(
        end_transaction_batch(marker, producer_id=9, producer_epoch=4, timestamp_ms=5)
    )
    batch.check_crc()
    assert batch.is_control
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 4, -1)
    (found,) = batch.records()
    assert decode_end_transaction(found) == marker
    assert found.timestamp_ms == 5


def test_a_compressed_marker_is_read_unless_it_inflates_to_much() -> None:
    marker = EndTransactionMarker(ControlType.COMMIT, 3)
    key, value = encode_end_transaction(marker)

    def read_marker(padding_bytes: int) -> EndTransactionMarker | None:
        builder = BatchBuilder(codec=Codec.ZSTD)
        builder.append(key, value + bytes(padding_bytes), 5)
        batch = builder.build()
        assert len(batch) < 200
        return end_transaction_at(batch, 0, len(batch))

    assert read_marker(0) == read_marker(900) == marker
    assert read_marker(100_000) is None


def test_types() -> None:
    for kind in list(ControlType)[1:]:
        assert control_type_of(encode_control_key(kind)) is kind
    assert control_type_of(b"\0\0\0\x63") is ControlType.UNKNOWN
    assert control_type_of(b"\0\x07\0\x01 and more") is ControlType.COMMIT  # a newer version


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (None, "is null, expected 4 bytes"),
        (b"\0\0\0", "is 3 bytes, expected 4"),
        (b"\xff\xff\0\0", "version -1"),
    ],
)
def test_keys_that_cannot_be_read(key: bytes | None, text: str) -> None:
    with pytest.raises(InvalidRecords, match=text):
        control_type_of(key)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "is null, expected 6"),
        (b"\0" * 5, "is 5 bytes, expected 6"),
        (b"\xff\xff\0\0\0\0", "version -1"),
    ],
)
def test_values_that_cannot_be_read(value: bytes | None, text: str) -> None:
    with pytest.raises(InvalidRecords, match=text):
        decode_end_transaction(record(encode_control_key(ControlType.ABORT), value))


def test_other_types_end_no_transaction() -> None:
    with pytest.raises(InvalidRecords, match="LEADER_CHANGE ends no transaction"):
        decode_end_transaction(record(encode_control_key(ControlType.LEADER_CHANGE), bytes(6)))
