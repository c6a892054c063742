"""Records of __consumer_offsets against bytes that Kafka's own classes wrote."""

import json
from pathlib import Path

import pytest

from pyspark_klog.errors import KlogError
from pyspark_klog.ids import UUID
from pyspark_klog.protocol.errors import UnencodableMessage
from pyspark_klog.state_records.consumer_offsets import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from pyspark_klog.state_records.group_metadata import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from pyspark_klog.state_records.offset_commit import OffsetCommitKey, OffsetCommitValue
from pyspark_klog.state_records.versions import UnknownStateRecord

GOLDEN = json.loads((Path(__file__).parent / "state_records/consumer_offsets.json").read_text())
BYTES = {name: bytes.fromhex(text) for name, text in GOLDEN["records"].items()}

WITH_ID = json.loads((Path(__file__).parent / "state_records/committed_offset.json").read_text())

OFFSET_KEY = OffsetCommitKey(group="my-group", topic="orders", partition=3)
GROUP_KEY = GroupMetadataKey(group="my-group")


def offset_value(version: int) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=123456789012,
        leader_epoch=7 if version >= 3 else -1,
        metadata="née",
        commit_timestamp=1700000000123,
        expire_timestamp=1700000099999 if version == 1 else -1,
    )


def group_value(version: int) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type="consumer",
        generation=5,
        protocol="range",
        leader="m-1",
        current_state_timestamp=1700000000456 if version >= 2 else -1,
        members=[
            MemberMetadata(
                member_id="m-1",
                client_id="c",
                client_host="/127.0.0.1",
                rebalance_timeout=60000 if version >= 1 else -1,
                session_timeout=10000,
                subscription=b"\0\1\2",
                assignment=b"\3\4",
            ),
            MemberMetadata(
                member_id="m-2",
                group_instance_id="static" if version >= 3 else None,
                client_id="c2",
                client_host="/127.0.0.2",
                rebalance_timeout=1 if version >= 1 else -1,
                session_timeout=2,
            ),
        ],
    )


def test_keys_are_kafkas_bytes_both_ways() -> None:
    for key, name in ((OFFSET_KEY, "offset_key_1"), (GROUP_KEY, "group_key_2")):
        assert encode_key(key) == BYTES[name]
        assert decode_key(BYTES[name]) == key


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_values_of_every_version_are_read(version: int) -> None:
    found = decode_value(OFFSET_KEY, BYTES[f"offset_value_{version}"])
    assert found == offset_value(version)
    assert decode_value(GROUP_KEY, BYTES[f"group_value_{version}"]) == group_value(version)


def test_values_are_written_as_version_3_and_1_with_an_expiry() -> None:
    assert encode_value(offset_value(3)) == BYTES["offset_value_3"]
    assert encode_value(offset_value(1)) == BYTES["offset_value_1"]
    assert encode_value(group_value(3)) == BYTES["group_value_3"]
    empty = GroupMetadataValue(protocol_type="consumer", generation=6, current_state_timestamp=1)
    assert encode_value(empty) == BYTES["group_empty_3"]


@pytest.mark.parametrize(("name", "metadata"), [("with_id", "née"), ("long_metadata", "m" * 200)])
def test_a_value_with_a_topics_id_is_kafkas_bytes_both_ways(name: str, metadata: str) -> None:
    value = offset_value(4)
    value.metadata, value.topic_id = metadata, UUID(bytes=bytes(range(16)))
    written = bytes.fromhex(WITH_ID["records"][f"{name}_4"])
    assert encode_value(value) == written
    assert decode_value(OFFSET_KEY, written) == value


def test_what_does_not_fit_a_committed_offset_is_refused_by_name() -> None:
    with pytest.raises(UnencodableMessage, match="group"):
        encode_key(OffsetCommitKey(group="g" * 32_768, topic="t", partition=0))
    with pytest.raises(UnencodableMessage, match="offset"):
        encode_value(OffsetCommitValue(offset=1 << 63, metadata="", commit_timestamp=0))
    with pytest.raises(UnencodableMessage, match="leader_epoch"):
        encode_value(
            OffsetCommitValue(
                offset=1,
                leader_epoch=1 << 31,
                metadata="",
                commit_timestamp=0,
                topic_id=UUID(int=7),
            )
        )


def test_kinds_and_versions_from_the_future_are_distinguished_from_damage() -> None:
    with pytest.raises(UnknownStateRecord, match="has version 3"):
        decode_key(b"\0\3\0\1g")
    with pytest.raises(UnknownStateRecord, match="version 9"):
        decode_value(GROUP_KEY, b"\0\x09")
    with pytest.raises(UnknownStateRecord, match="1 bytes"):
        decode_key(b"\0")


@pytest.mark.parametrize("name", sorted(BYTES))
def test_a_record_that_is_cut_short_is_refused(name: str) -> None:
    data = BYTES[name]
    for end in range(len(data)):
        with pytest.raises(KlogError):
            if "key" in name:
                decode_key(data[:end])
            else:
                decode_value(OFFSET_KEY if "offset" in name else GROUP_KEY, data[:end])
