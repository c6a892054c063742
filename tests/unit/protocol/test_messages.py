"""Messages as Python objects, and what encoders refuse."""

import copy
import pickle
from uuid import UUID

import pytest

from pyspark_klog.protocol.apis.api_versions import ApiVersionsResponse
from pyspark_klog.protocol.apis.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from pyspark_klog.protocol.apis.find_coordinator import FindCoordinatorRequest
from pyspark_klog.protocol.apis.join_group import JoinGroupRequest
from pyspark_klog.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from pyspark_klog.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from pyspark_klog.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from pyspark_klog.protocol.codec import (
    decode_in_steps,
    decode_message,
    encode_in_steps,
    encode_into,
    encode_message,
)
from pyspark_klog.protocol.errors import MalformedRequest, UnencodableMessage, UnsupportedVersion
from pyspark_klog.protocol.fields import FileRegion, array, int32, string, struct
from pyspark_klog.protocol.message import Message, Struct
from pyspark_klog.protocol.wire import MAX_TAGGED_FIELDS, SegmentedBuffer
from tests.support.protocol.encoded_segments import encode_segments


class TestObjects:
    def test_every_field_has_a_default(self) -> None:
        request = MetadataRequest()
        assert request.topics == []
        assert request.allow_auto_topic_creation is True
        assert FetchRequest().replica_id == -1
        assert FetchRequest().max_bytes == 2**31 - 1
        assert MetadataRequestTopic().topic_id == UUID(int=0)

    def test_defaults_are_not_shared(self) -> None:
        first, second = MetadataRequest(), MetadataRequest()
        assert first.topics is not None
        first.topics.append(MetadataRequestTopic(name="one"))
        assert second.topics == []
        one, other = PartitionData(), PartitionData()
        one.diverging_epoch.epoch = 7
        assert other.diverging_epoch.epoch == -1

    def test_equality_is_by_class_fields_and_unknown_tags(self) -> None:
        topic = MetadataRequestTopic(name="a")
        assert topic == MetadataRequestTopic(name="a")
        assert topic != MetadataRequestTopic(name="b")
        assert topic != MetadataRequestTopic(name="a", unknown_tagged_fields={5: b""})
        assert topic != "a"

    def test_a_looked_at_default_struct_changes_nothing(self) -> None:
        seen, unseen = PartitionData(), PartitionData()
        assert seen.current_leader.leader_id == -1
        assert repr(seen) == repr(unseen) == "PartitionData()"
        for version in (11, 12, 18):
            topics = [FetchableTopicResponse(partitions=[data]) for data in (seen, unseen)]
            first, second = (FetchResponse(responses=[topic]) for topic in topics)
            assert encode_message(first, version) == encode_message(second, version)
        assert seen == unseen

    def test_repr_shows_what_is_not_default(self) -> None:
        request = FetchRequest(max_wait_ms=500, topics=[FetchTopic(topic="t")])
        assert repr(request) == "FetchRequest(max_wait_ms=500, topics=[FetchTopic(topic='t')])"
        assert "unknown_tagged_fields={9: b'x'}" in repr(
            FetchRequest(unknown_tagged_fields={9: b"x"})
        )

    def test_secrets_are_not_shown(self) -> None:
        request = SaslAuthenticateRequest(auth_bytes=b"\0user\0password")
        assert repr(request) == "SaslAuthenticateRequest(auth_bytes=***)"
        request.auth_bytes = "password"  # type: ignore[assignment]
        with pytest.raises(UnencodableMessage, match=r"auth_bytes is \*\*\*; expected bytes"):
            encode_message(request, 1)

    def test_misspelt_attributes_are_errors(self) -> None:
        with pytest.raises(AttributeError):
            FetchRequest().max_wait = 5  # type: ignore[attr-defined]
        with pytest.raises(TypeError):
            FetchRequest(max_wait=5)  # type: ignore[call-arg]

    def test_messages_can_be_copied_and_pickled(self) -> None:
        request = FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition()])])
        request.topics[0].unknown_tagged_fields = {5: b"x"}
        assert copy.deepcopy(request) == request
        assert pickle.loads(pickle.dumps(request)) == request

    def test_a_null_default_needs_a_version_that_allows_null(self) -> None:
        with pytest.raises(TypeError, match="no version allows null"):

            class _Broken(Message, versions=(0, 0)):
                name: str = string(default=None)  # type: ignore[call-overload]

    def test_a_message_adds_no_fields_to_its_base(self) -> None:
        with pytest.raises(TypeError, match="cannot add fields"):

            class _More(MetadataRequestTopic):
                more: int = int32()


class TestVersions:
    def test_a_value_that_the_version_cannot_carry_is_refused(self) -> None:
        request = FindCoordinatorRequest(key="group", key_type=1)
        with pytest.raises(
            UnsupportedVersion, match=r"key_type: version 0 has no such field, and its value 1"
        ):
            encode_message(request, 0)
        assert encode_message(FindCoordinatorRequest(key="group"), 0) == b"\0\5group"

    def test_ignorable_values_are_dropped(self) -> None:
        request = JoinGroupRequest(group_id="g", reason="because")
        encoded = encode_message(request, 7)
        assert decode_message(JoinGroupRequest, 7, encoded)[0].reason is None

    def test_a_list_in_a_version_without_it_is_refused(self) -> None:
        with pytest.raises(UnsupportedVersion, match="coordinator_keys"):
            encode_message(FindCoordinatorRequest(coordinator_keys=["a"]), 3)

    def test_a_tagged_struct_in_a_version_without_it_is_refused(self) -> None:
        data = PartitionData(diverging_epoch=EpochEndOffset(epoch=3))
        response = FetchResponse(responses=[FetchableTopicResponse(partitions=[data])])
        with pytest.raises(UnsupportedVersion, match="diverging_epoch"):
            encode_message(response, 11)
        decoded, _ = decode_message(FetchResponse, 12, encode_message(response, 12))
        assert decoded.responses[0].partitions[0].diverging_epoch.epoch == 3

    def test_versions_outside_the_range_are_refused(self) -> None:
        for version in (-1, 14):
            with pytest.raises(UnsupportedVersion, match=f"found version {version}, expected 0"):
                encode_message(MetadataRequest(), version)
            with pytest.raises(UnsupportedVersion, match="MetadataResponse"):
                decode_message(MetadataResponse, version, b"")


class TestNull:
    def test_null_and_empty_are_distinguished(self) -> None:
        for version in (1, 8, 9, 13):
            choices: tuple[list[MetadataRequestTopic] | None, ...] = (None, [])
            for topics in choices:
                encoded = encode_message(MetadataRequest(topics=topics), version)
                assert decode_message(MetadataRequest, version, encoded)[0].topics == topics

    def test_null_where_a_version_has_none_is_refused(self) -> None:
        with pytest.raises(UnencodableMessage, match=r"v0: topics is None"):
            encode_message(MetadataRequest(topics=None), 0)
        with pytest.raises(MalformedRequest, match=r"v0: .*topics: found null \(count -1\)"):
            decode_message(MetadataRequest, 0, b"\xff\xff\xff\xff")

    def test_null_text_where_there_must_be_some(self) -> None:
        with pytest.raises(MalformedRequest, match=r"group_id: found null \(length -1\)"):
            decode_message(JoinGroupRequest, 0, b"\xff\xff")


class TestValuesThatDoNotFit:
    @pytest.mark.parametrize(
        ("message", "text"),
        [
            (FetchRequest(max_wait_ms=2**31), "max_wait_ms is 2147483648; expected int32"),
            (FetchRequest(isolation_level="one"), "isolation_level is 'one'; expected int8"),  # type: ignore[arg-type]
            (FetchRequest(topics="abc"), "topics is 'abc'; expected a list"),  # type: ignore[arg-type]
            (
                FetchRequest(topics=[FetchTopic(topic=b"t")]),  # type: ignore[arg-type]
                r"topics\[0\]: topic is b't'; expected string",
            ),
            (
                FetchRequest(topics=[FetchTopic(partitions=[3])]),  # type: ignore[list-item]
                r"topics\[0\]: partitions\[0\] is 3; expected FetchPartition",
            ),
            (FetchRequest(rack_id="\ud800"), "surrogates not allowed"),
        ],
    )
    def test_the_error_names_the_value(self, message: FetchRequest, text: str) -> None:
        with pytest.raises(UnencodableMessage, match=text):
            encode_message(message, 11)

    def test_long_text_is_refused_both_ways(self) -> None:
        message = FindCoordinatorRequest(key="x" * 32768)
        for version in (0, 3):
            with pytest.raises(UnencodableMessage, match=r"key: found 32768 bytes of text"):
                encode_message(message, version)
        compact = b"\x81\x80\x02" + b"x" * 32768 + b"\0\0"
        with pytest.raises(MalformedRequest, match=r"key: found a length of 32768"):
            decode_message(FindCoordinatorRequest, 3, compact)

    def test_text_that_is_no_utf8_is_refused(self) -> None:
        with pytest.raises(MalformedRequest, match="is no UTF-8"):
            decode_message(FindCoordinatorRequest, 0, b"\0\2\xff\xfe")


class TestTaggedFields:
    def test_unknown_ones_are_kept_and_written_back_in_order(self) -> None:
        encoded = encode_message(MetadataRequest(topics=None), 9)[:-1] + b"\x02\x05\x01a\x07\x00"
        decoded, end = decode_message(MetadataRequest, 9, encoded)
        assert decoded.unknown_tagged_fields == {5: b"a", 7: b""}
        assert end == len(encoded)
        assert encode_message(decoded, 9) == encoded

    def test_known_and_unknown_are_sorted_together(self) -> None:
        response = ApiVersionsResponse(
            finalized_features_epoch=5, unknown_tagged_fields={0x70: b"z", 9: b"y"}
        )
        encoded = encode_message(response, 3)
        assert encoded.endswith(b"\x03\x01\x08" + bytes(7) + b"\x05\x09\x01y\x70\x01z")

    def test_an_unknown_tag_cannot_stand_for_a_known_one(self) -> None:
        response = ApiVersionsResponse(
            finalized_features_epoch=5, unknown_tagged_fields={1: bytes(8)}
        )
        with pytest.raises(UnencodableMessage, match="tag 1"):
            encode_message(response, 3)

    def test_a_wrong_size_of_a_known_field_is_refused(self) -> None:
        encoded = encode_message(ApiVersionsResponse(), 3)[:-1] + b"\x01\x01\x09" + bytes(9)
        with pytest.raises(MalformedRequest, match=r"finalized_features_epoch: its tagged size"):
            decode_message(ApiVersionsResponse, 3, encoded)

    def test_varints_of_more_than_32_bits_are_refused(self) -> None:
        encoded = encode_message(MetadataRequest(topics=None), 9)[:-1]
        for endless in (b"\x01\xff\xff\xff\xff\xff\x01\x00", b"\x01\xff\xff\xff\xff\x1f\x00"):
            with pytest.raises(MalformedRequest, match="more than 32 bits"):
                decode_message(MetadataRequest, 9, encoded + endless)

    def test_the_constant_for_none_cannot_be_written_to(self) -> None:
        with pytest.raises(TypeError):
            MetadataRequest().unknown_tagged_fields[1] = b""  # type: ignore[index]


class TestRecords:
    def request(self, records: bytes) -> ProduceRequest:
        data = PartitionProduceData(index=3, records=records)
        return ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[data])])

    @pytest.mark.parametrize("version", [0, 2, 3, 8, 9, 12])
    def test_decoded_records_are_views_of_the_frame(self, version: int) -> None:
        frame = bytearray(encode_message(self.request(b"record set"), version))
        decoded, _ = decode_message(ProduceRequest, version, frame)
        records = decoded.topic_data[0].partition_data[0].records
        assert isinstance(records, memoryview)
        assert bytes(records) == b"record set"
        frame[frame.index(b"record set")] = ord("R")
        assert bytes(records) == b"Record set"

    @pytest.mark.parametrize("version", [4, 11, 12, 18])
    def test_file_regions_become_segments(self, version: int) -> None:
        large = memoryview(bytes(range(256)) * 20)
        region, empty = FileRegion(7, 4096, 300), FileRegion(7, 0, 0)
        partitions = [
            PartitionData(partition_index=index, records=records)
            for index, records in enumerate((region, large, b"small", empty, None))
        ]
        response = FetchResponse(responses=[FetchableTopicResponse(partitions=partitions)])
        parts = encode_segments(response, version)
        assert region in parts and large in parts and empty not in parts
        in_memory: list[bytes | memoryview] = [bytes(300), large, b"small", b""]
        for data, stand_in in zip(partitions, in_memory, strict=False):
            data.records = stand_in
        assert b"".join(
            bytes(300) if isinstance(part, FileRegion) else part for part in parts
        ) == encode_message(response, version)

    def test_a_file_region_is_no_bytes(self) -> None:
        data = PartitionData(records=FileRegion(1, 0, 10))
        response = FetchResponse(responses=[FetchableTopicResponse(partitions=[data])])
        with pytest.raises(UnencodableMessage, match="is a file region"):
            encode_message(response, 11)

    def test_records_view(self) -> None:
        assert PartitionData(records=b"abc").records_view().tobytes() == b"abc"
        assert PartitionData().records_view().tobytes() == b""

    def test_total_bytes_counts_the_cuts(self) -> None:
        out = SegmentedBuffer()
        out += b"head"
        region = FileRegion(1, 0, 1000)
        encode_into(
            FetchResponse(
                responses=[FetchableTopicResponse(partitions=[PartitionData(records=region)])]
            ),
            11,
            out,
        )
        assert out.total_bytes() == sum(len(part) for part in out.segments())


class _Leaf(Struct):
    number: int = int32()


class _Own(Message, versions=(0, 1), flexible_since=1):
    leaf: _Leaf = struct(_Leaf)
    maybe: _Leaf | None = struct(_Leaf, since=1, nullable_since=1, default=None)
    words: list[str] | None = array(string, nullable_since=0, default=None)


def test_other_rooms_declare_messages_of_their_own() -> None:
    message = _Own(leaf=_Leaf(number=1), maybe=_Leaf(number=2), words=["a", ""])
    encoded = encode_message(message, 1)
    assert encoded == b"\0\0\0\x01\0" + b"\x01\0\0\0\x02\0" + b"\x03\x02a\x01" + b"\0"
    assert decode_message(_Own, 1, encoded) == (message, len(encoded))
    assert encode_message(_Own(), 0) == bytes(4) + b"\xff\xff\xff\xff"
    assert decode_message(_Own, 1, encode_message(_Own(), 1))[0].maybe is None


def test_arrays_of_elements_without_bytes_are_never_declared() -> None:
    class Nothing(Struct):
        pass

    class Bomb(Message, versions=(0, 0)):
        things: list[Nothing] = array(Nothing)

    with pytest.raises(Exception, match="an array's elements need bytes"):
        decode_message(Bomb, 0, b"\x7f\xff\xff\xff")


class TestManyElements:
    """Decoding with a bound, and decoding and encoding in steps, give what the plain ways give."""

    REQUEST = MetadataRequest(
        topics=[MetadataRequestTopic(name=f"t{number}") for number in range(5)],
        unknown_tagged_fields={7: b"x", 8: b"y"},
    )

    def test_elements_and_tagged_fields_are_counted_together(self) -> None:
        data = encode_message(self.REQUEST, 9)
        assert decode_message(MetadataRequest, 9, data, max_elements=7) == (self.REQUEST, len(data))
        with pytest.raises(
            MalformedRequest, match=r"MetadataRequest v9: .*more than 6 array elements"
        ):
            decode_message(MetadataRequest, 9, data, max_elements=6)

    def test_a_tagged_section_has_a_bound_of_its_own(self) -> None:
        """Kafka 4.4's; its bound for arrays is above that of klog's brokers."""
        for most in (None, 100_000):
            for tags in (MAX_TAGGED_FIELDS, MAX_TAGGED_FIELDS + 1):
                unknown = dict.fromkeys(range(tags), b"")
                request = MetadataRequest(topics=[], unknown_tagged_fields=unknown)
                data = encode_message(request, 12)
                if tags <= MAX_TAGGED_FIELDS:
                    assert decode_message(MetadataRequest, 12, data, 0, most)[0] == request
                    continue
                with pytest.raises(MalformedRequest, match="10001 tagged fields, expected at most"):
                    decode_message(MetadataRequest, 12, data, 0, most)

    def test_elements_within_elements_count_too(self) -> None:
        partitions = [FetchPartition(partition=number) for number in range(3)]
        request = FetchRequest(topics=[FetchTopic(topic=t, partitions=partitions) for t in "ab"])
        data = encode_message(request, 11)
        assert decode_message(FetchRequest, 11, data, max_elements=8)[0] == request
        with pytest.raises(MalformedRequest, match="more than 7 array elements"):
            decode_message(FetchRequest, 11, data, max_elements=7)

    def test_null_counts_as_nothing(self) -> None:
        request = MetadataRequest(topics=None)
        data = encode_message(request, 9)
        assert decode_message(MetadataRequest, 9, data, max_elements=0)[0] == request

    def test_an_array_is_decoded_element_by_element(self) -> None:
        for version in (4, 9):
            request = MetadataRequest(topics=self.REQUEST.topics)
            data = encode_message(request, version)
            steps = decode_in_steps(MetadataRequest, version, data, 0, 5)
            assert [next(steps, "end") for _ in range(5)] == [None] * 5
            with pytest.raises(StopIteration) as end:
                next(steps)
            assert end.value.value == (request, len(data))

    def test_a_message_without_arrays_is_decoded_in_one_step(self) -> None:
        request = FindCoordinatorRequest(key="g")
        steps = decode_in_steps(FindCoordinatorRequest, 3, encode_message(request, 3), 0, 0)
        with pytest.raises(StopIteration) as end:
            next(steps)
        assert end.value.value[0] == request

    @pytest.mark.parametrize("fault", ["too short", "no UTF-8", "too many"])
    def test_bytes_that_do_not_fit_get_the_same_error_in_steps(self, fault: str) -> None:
        data = encode_message(self.REQUEST, 9)
        if fault == "too short":
            data = data[:20]
        elif fault == "no UTF-8":
            data = data.replace(b"t3", b"t\xff")
        most = 4 if fault == "too many" else 100
        with pytest.raises(MalformedRequest) as expected:
            decode_message(MetadataRequest, 9, data, 0, most)
        with pytest.raises(MalformedRequest) as found:
            list(decode_in_steps(MetadataRequest, 9, data, 0, most))
        assert str(found.value) == str(expected.value)

    def test_an_array_is_encoded_element_by_element(self) -> None:
        for version in (4, 9):
            request = MetadataRequest(topics=self.REQUEST.topics)
            out = bytearray()
            sizes = [len(out) for _ in encode_in_steps(request, version, out)]
            assert len(sizes) == 5
            assert sizes == sorted(set(sizes))
            assert out == encode_message(request, version)

    def test_a_message_without_arrays_takes_no_step(self) -> None:
        request, out = FindCoordinatorRequest(key="g"), bytearray()
        assert not list(encode_in_steps(request, 3, out))
        assert out == encode_message(request, 3)

    def test_what_cannot_be_encoded_is_named_in_steps_too(self) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=5)])  # type: ignore[arg-type]
        with pytest.raises(UnencodableMessage, match="name"):
            list(encode_in_steps(request, 9, bytearray()))
