"""Records of committed offsets that were packed beforehand are those of the codec."""

from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_klog.ids import UUID
from pyspark_klog.records.record_section import append_plain_record
from pyspark_klog.state_records.consumer_offsets import encode_offset_key, encode_value
from pyspark_klog.state_records.offset_commit import OffsetCommitValue
from pyspark_klog.state_records.offset_record import OffsetRecord

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=150)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)
int32s = st.integers(-(1 << 31), (1 << 31) - 1)
deltas = st.integers(0, 10_000)
topic_ids = st.uuids().filter(lambda each: each.int != 0)


@example("g", "t", 0, "", 63, 1, 0, 5, UUID(int=7))
@example("g", "t", 0, "", 64, 1, 0, 5, UUID(int=7))
@example("g", "t", 0, "", 8_192, 1, 0, 5, UUID(int=7))
@given(names, names, int32s, names, deltas, int64s, int32s, int64s, topic_ids)
def test_a_packed_record_is_the_codecs(
    group: str,
    topic: str,
    partition: int,
    metadata: str,
    delta: int,
    offset: int,
    leader_epoch: int,
    commit_ms: int,
    topic_id: UUID,
) -> None:
    value = OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_ms,
        topic_id=topic_id,
    )
    expected = bytearray(b"before")
    append_plain_record(
        expected, delta, encode_offset_key(group, topic, partition), encode_value(value)
    )
    found = bytearray(b"before")
    record = OffsetRecord(group, topic, partition, metadata, topic_id)
    record.append_to(found, delta, offset, leader_epoch, commit_ms)
    assert found == expected
