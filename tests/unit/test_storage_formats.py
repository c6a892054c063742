"""The layouts of all files in a data directory but the records, and errors for damaged ones."""

from uuid import UUID

import pytest

from pyspark_klog.ids import (
    DirectoryId,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from pyspark_klog.records.builder import BatchBuilder
from pyspark_klog.records.errors import CorruptRecords
from pyspark_klog.storage import names
from pyspark_klog.storage.errors import StorageFormatError
from pyspark_klog.storage.indexes import OffsetIndexView, TimeIndexView
from pyspark_klog.storage.names import Suffix
from pyspark_klog.storage.producer_snapshot import (
    ProducerSnapshotEntry,
    decode_producer_snapshot,
    encode_producer_snapshot,
)
from pyspark_klog.storage.text_files import (
    EpochStart,
    MetaProperties,
    decode_leader_epochs,
    decode_meta_properties,
    decode_offset_checkpoint,
    decode_partition_metadata,
    decode_topic_id,
    encode_clean_shutdown_marker,
    encode_leader_epochs,
    encode_meta_properties,
    encode_offset_checkpoint,
    encode_partition_metadata,
    encode_topic_id,
)
from tests.support.log.stored_batches import stored_batches


# --- names ---------------------------------------------------------------------------------------
def test_segment_file_names_have_twenty_digits() -> None:
    assert names.segment_file_name(42, Suffix.LOG) == "00000000000000000042.log"
    for suffix in Suffix:
        name = names.segment_file_name(2**62, suffix)
        assert names.parse_segment_file_name(name) == (2**62, suffix)


@pytest.mark.parametrize(
    "name", ["42.log", "00000000000000000042.log.deleted", "0000000000000000004x.log", "a.index"]
)
def test_other_names_are_no_segment_files(name: str) -> None:
    assert names.parse_segment_file_name(name) is None


@pytest.mark.parametrize("topic", ["t", "a-b-7", "x.y_z", "t" * 249])
def test_partition_directories(topic: str) -> None:
    partition = TopicPartition(topic, 12)
    name = names.partition_directory_name(partition)
    assert name == f"{topic}-12"
    assert names.parse_partition_directory_name(name) == partition


@pytest.mark.parametrize("name", ["lost+found", "topic", "topic-", "-1x", "topic-x"])
def test_other_directories_are_refused_in_a_sentence(name: str) -> None:
    with pytest.raises(StorageFormatError, match="does not belong to a partition: expected"):
        names.parse_partition_directory_name(name)


def test_deleted_directories_fit_a_file_name() -> None:
    unique = UUID(int=5)
    name = names.deleted_directory_name(TopicPartition("t" * 249, 3), unique)
    assert len(name) == 255
    assert name.endswith(f"-3.{unique.hex}-delete")
    assert names.is_deleted_directory(name)
    with pytest.raises(StorageFormatError):
        names.parse_partition_directory_name(name)
    assert not names.is_deleted_directory("topic-0")


# --- indexes -------------------------------------------------------------------------------------
OFFSET_ROWS = bytes.fromhex("0000000a000010000000001400002010")


def test_offset_index_rows() -> None:
    index = OffsetIndexView(OFFSET_ROWS, 1_000)
    assert list(index) == [(1_010, 4_096), (1_020, 8_208)]
    assert index.lookup(999) == (1_000, 0)
    assert index.lookup(1_009) == (1_000, 0)
    assert index.lookup(1_010) == (1_010, 4_096)
    assert index.lookup(1_019) == (1_010, 4_096)
    assert index.lookup(5_000) == (1_020, 8_208)
    index.check(9_000)


def test_offset_index_that_cannot_be() -> None:
    with pytest.raises(StorageFormatError, match="15 bytes: expected a multiple of 8"):
        OffsetIndexView(OFFSET_ROWS[:15], 0)
    with pytest.raises(StorageFormatError, match="row 2 says offset 1000 at byte 0"):
        OffsetIndexView(OFFSET_ROWS + bytes(8), 1_000).check()
    with pytest.raises(StorageFormatError, match="points to byte 8208 of a log file of 8208"):
        OffsetIndexView(OFFSET_ROWS, 1_000).check(8_208)
    with pytest.raises(IndexError):
        OffsetIndexView(OFFSET_ROWS, 0)[2]


def test_time_index_rows() -> None:
    rows = bytes.fromhex("00000000000003e80000000500000000000007d000000005")
    index = TimeIndexView(rows, 100)
    assert list(index) == [(1_000, 105), (2_000, 105)]
    assert index.lookup(999) == (-1, 100)
    assert index.lookup(1_000) == (1_000, 105)
    assert index.lookup(2**62) == (2_000, 105)
    index.check()
    with pytest.raises(StorageFormatError, match="row 2 says timestamp 0"):
        TimeIndexView(rows + bytes(12), 100).check()
    with pytest.raises(StorageFormatError, match="expected a multiple of 12"):
        TimeIndexView(rows[1:], 100)


# --- producer snapshots --------------------------------------------------------------------------
ENTRY = ProducerSnapshotEntry(
    ProducerId(7), ProducerEpoch(2), 99, Offset(1_000), 9, 1_700_000_000_000
)
SNAPSHOT = bytes.fromhex(
    # version, CRC-32C (from crcmod), one entry: id, epoch, last sequence, last offset
    "0001"
    "c2b476bd"
    "00000001"
    "0000000000000007"
    "0002"
    "00000063"
    "00000000000003e8"
    # offset delta, timestamp, coordinator epoch, transaction's first offset
    "00000009"
    "0000018bcfe56800"
    "ffffffff"
    "ffffffffffffffff"
)


def test_producer_snapshot_bytes() -> None:
    assert encode_producer_snapshot([ENTRY]) == SNAPSHOT
    assert decode_producer_snapshot(SNAPSHOT) == [ENTRY]
    assert decode_producer_snapshot(encode_producer_snapshot([])) == []


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x00\x01", "2 bytes: expected at least 10"),
        (b"\x00\x02" + SNAPSHOT[2:], "version 2: expected 1"),
        (SNAPSHOT[:-1], "a count of 1 entries of 46 bytes"),
        (SNAPSHOT[:20] + b"\xff" + SNAPSHOT[21:], "its bytes give"),
        (SNAPSHOT[:6] + b"\xff" * 4 + SNAPSHOT[10:], "a count of -1 entries"),
    ],
)
def test_damaged_producer_snapshots(data: bytes, text: str) -> None:
    with pytest.raises(StorageFormatError, match=text):
        decode_producer_snapshot(data)


# --- text files ----------------------------------------------------------------------------------
def test_offset_checkpoints() -> None:
    offsets = {TopicPartition("b", 0): Offset(5), TopicPartition("a", 10): Offset(7)}
    text = b"0\n2\na 10 7\nb 0 5\n"
    assert encode_offset_checkpoint(offsets) == text
    assert decode_offset_checkpoint(text) == offsets
    assert decode_offset_checkpoint(b"0\n0\n") == {}
    assert decode_offset_checkpoint(b"") == {}  # as Kafka makes the file


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"\n", "expected a version"),
        (b"\xff\xfe", "expected a version"),
        (b"1\n0\n", "version 1, expected 0"),
        (b"0\n2\na 0 1\n", "1 rows, but its second line counts 2"),
        (b"0\n1\na 0\n", "cannot read the row 'a 0'"),
        (b"0\n1\na 0 x\n", "cannot read the row"),
    ],
)
def test_damaged_checkpoints(data: bytes, found: str) -> None:
    with pytest.raises(StorageFormatError, match=found):
        decode_offset_checkpoint(data)


def test_leader_epochs() -> None:
    epochs = [EpochStart(LeaderEpoch(0), Offset(0)), EpochStart(LeaderEpoch(3), Offset(17))]
    assert encode_leader_epochs(epochs) == b"0\n2\n0 0\n3 17\n"
    assert decode_leader_epochs(b"0\n2\n0 0\n3 17\n") == epochs
    with pytest.raises(StorageFormatError, match="leader-epoch-checkpoint: cannot read the row"):
        decode_leader_epochs(b"0\n1\nx\n")


def test_partition_metadata() -> None:
    topic_id = UUID(int=0x0102030405060708090A0B0C0D0E0F10)
    data = encode_partition_metadata(topic_id)
    assert data == b"version: 0\ntopic_id: AQIDBAUGBwgJCgsMDQ4PEA"
    assert decode_partition_metadata(data) == topic_id
    for damaged in (b"version: 1\ntopic_id: x", b"version: 0\n", b"nonsense", b"\xff"):
        with pytest.raises(StorageFormatError):
            decode_partition_metadata(damaged)
    with pytest.raises(
        StorageFormatError, match="is no id: expected 22 characters of URL-safe base64"
    ):
        decode_partition_metadata(b"version: 0\ntopic_id: AAAA")
    with pytest.raises(StorageFormatError, match="is no id"):
        decode_topic_id("B" * 22 + "!!!!")


def test_meta_properties() -> None:
    meta = MetaProperties("cluster", 4)
    data = encode_meta_properties(meta)
    assert data.splitlines()[1:] == [b"cluster.id=cluster", b"version=0", b"broker.id=4"]
    assert decode_meta_properties(data) == meta
    text = "kL8p2T8sQsGUmSWyWPmZyQ"
    kraft = f"#\n#a date\ncluster.id=x\ndirectory.id={text}\nnode.id=1\nversion=1\n".encode()
    meta = MetaProperties("x", 1, DirectoryId(decode_topic_id(text)), 1)
    assert decode_meta_properties(kraft) == meta
    assert set(encode_meta_properties(meta).split()) == set(kraft.split()) - {b"#a", b"date"}
    with pytest.raises(StorageFormatError, match="version 2, expected 0 or 1"):
        decode_meta_properties(b"version=2\ncluster.id=x\nnode.id=1\n")
    with pytest.raises(
        StorageFormatError, match=r"expected cluster\.id, and a whole number as node\.id"
    ):
        decode_meta_properties(b"version=1\ncluster.id=x\nbroker.id=1\n")
    with pytest.raises(
        StorageFormatError, match=r"expected cluster\.id, and a whole number as broker\.id"
    ):
        decode_meta_properties(b"version=0\ncluster.id=x\n")
    with pytest.raises(StorageFormatError, match=r"directory\.id: 'y' is no id"):
        decode_meta_properties(b"version=0\ncluster.id=x\nbroker.id=1\ndirectory.id=y\n")


@pytest.mark.parametrize(
    ("number", "is_reserved"),
    [(0, True), (99, True), (100, False), (1 << 63, True), (1 << 64, False), (1 << 127, False)],
)
def test_the_directory_ids_that_kafka_reserves_are_refused(number: int, is_reserved: bool) -> None:
    """Kafka's DirectoryId.reserved has the same rule, with signed numbers."""
    text = encode_topic_id(UUID(int=number))
    data = f"version=0\ncluster.id=x\nbroker.id=1\ndirectory.id={text}\n".encode()
    if is_reserved:
        with pytest.raises(StorageFormatError, match="is one that Kafka reserves"):
            decode_meta_properties(data)
    else:
        assert decode_meta_properties(data).directory_id == UUID(int=number)


def test_clean_shutdown_marker() -> None:
    assert encode_clean_shutdown_marker() == b'{"version":0,"brokerEpoch":-1}'


# --- segments ------------------------------------------------------------------------------------
def test_stored_batches_end_at_preallocated_zeros() -> None:
    builder = BatchBuilder(5)
    builder.append(b"k", b"v", 1)
    data = builder.build()
    found = list(stored_batches(data + data + bytes(100)))
    assert [batch.position for batch in found] == [0, len(data)]
    with pytest.raises(CorruptRecords):
        list(stored_batches(data + b"nonsense, too short for a batch"))
