"""Headers and whole frames, with the irregularities of KIP-511."""

import pytest

from pyspark_klog.protocol.apis.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from pyspark_klog.protocol.apis.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from pyspark_klog.protocol.apis.metadata import MetadataRequest, MetadataResponse
from pyspark_klog.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from pyspark_klog.protocol.errors import MalformedRequest, UnencodableMessage, UnsupportedVersion
from pyspark_klog.protocol.fields import FileRegion
from pyspark_klog.protocol.headers import (
    RequestHeader,
    decode_request,
    decode_request_header,
    decode_response,
    decode_response_header,
    encode_request,
    encode_request_parts,
    encode_response,
    encode_response_parts,
    request_header_version,
    response_header_version,
)
from pyspark_klog.protocol.keys import ApiKey


@pytest.mark.parametrize(
    ("key", "version", "request_header", "response_header"),
    [
        (ApiKey.METADATA, 8, 1, 0),
        (ApiKey.METADATA, 9, 2, 1),
        (ApiKey.API_VERSIONS, 2, 1, 0),
        (ApiKey.API_VERSIONS, 3, 2, 0),
        (ApiKey.API_VERSIONS, 99, 2, 0),
        (ApiKey.SASL_HANDSHAKE, 1, 1, 0),
        (ApiKey.SASL_HANDSHAKE, 99, 1, 0),
        (ApiKey.DESCRIBE_CLUSTER, 0, 2, 1),
        (4321, 3, 1, 0),
    ],
)
def test_header_versions(key: int, version: int, request_header: int, response_header: int) -> None:
    assert request_header_version(key, version) == request_header
    assert response_header_version(key, version) == response_header


def test_a_plain_request_is_laid_out_as_kafka_does() -> None:
    frame = encode_request(RequestHeader(3, 0, 7, "me"), MetadataRequest())
    assert frame == bytes.fromhex("00000010 0003 0000 00000007 0002 6d65 00000000")


def test_the_client_id_is_never_compact() -> None:
    frame = encode_request(RequestHeader(3, 9, 7, "me"), MetadataRequest(topics=None))
    assert frame == bytes.fromhex("00000012 0003 0009 00000007 0002 6d65 00 00 01 00 00 00")


@pytest.mark.parametrize("client_id", [None, "", "klog-ä"])
@pytest.mark.parametrize("version", [1, 12])
def test_requests_come_back(client_id: str | None, version: int) -> None:
    header = RequestHeader(ApiKey.METADATA, version, -5, client_id)
    request = MetadataRequest(topics=None)
    frame = encode_request(header, request)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert decode_request(frame[4:]) == (header, request)
    assert decode_request(memoryview(frame)[4:]) == (header, request)


def test_unknown_tags_of_the_header_are_kept() -> None:
    header = RequestHeader(ApiKey.METADATA, 9, 1, "c", {0: b"new", 300: b""})
    frame = encode_request(header, MetadataRequest())
    assert decode_request(frame[4:])[0] == header


def test_unknown_apis_and_versions_still_have_a_header() -> None:
    header, position = decode_request_header(bytes.fromhex("7fff 0001 0000002a 0001 63 ffff"))
    assert header == RequestHeader(0x7FFF, 1, 42, "c")
    assert position == 11
    header, _ = decode_request_header(bytes.fromhex("0012 0063 0000002a 0001 63 00"))
    assert header == RequestHeader(ApiKey.API_VERSIONS, 99, 42, "c")
    with pytest.raises(UnsupportedVersion, match="API key 32767"):
        decode_request(bytes.fromhex("7fff 0001 0000002a ffff"))


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        ("", "end too early"),
        ("0003 0001 0000", "end too early"),
        ("0003 0001 00000001 0005 6162", "client_id: found a length of 5, with 2 bytes left"),
        ("0003 0001 00000001 0001 ff", "the client id is no UTF-8"),
        ("0003 0009 00000001 0000", "end too early"),
        ("0003 0009 00000001 0000 05 00", "tags: found a count of 5, with 1 bytes left"),
        ("0003 0009 00000001 0000 01 00 05 00", "tag: found a length of 5, with 1 bytes left"),
    ],
)
def test_broken_headers_are_malformed(frame: str, text: str) -> None:
    with pytest.raises(MalformedRequest, match=f"request header: .*{text}"):
        decode_request_header(bytes.fromhex(frame))


def test_responses_come_back() -> None:
    response = MetadataResponse(cluster_id="c", controller_id=3)
    for version, header_bytes in ((8, 4), (9, 5)):
        frame = encode_response(77, response, version)
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        correlation_id, tags, position = decode_response_header(frame[4:], 3, version)
        assert (correlation_id, dict(tags), position) == (77, {}, header_bytes)
        assert decode_response(frame[4:], ApiKey.METADATA, version) == response


def test_tags_in_a_response_header_are_skipped() -> None:
    frame = encode_response(77, MetadataResponse(), 9)[4:]
    tagged = frame[:4] + b"\x01\x03\x02ab" + frame[5:]
    assert decode_response_header(tagged, 3, 9) == (77, {3: b"ab"}, 9)
    assert decode_response(tagged, 3, 9) == MetadataResponse()


def test_broken_response_headers_are_malformed() -> None:
    for frame in (b"", b"\0\0\0", b"\0\0\0\1"):
        with pytest.raises(MalformedRequest, match="response header"):
            decode_response(frame, ApiKey.METADATA, 9)


def test_api_versions_is_answered_with_header_0() -> None:
    frame = encode_response(1, ApiVersionsResponse(), 3)
    assert frame == bytes.fromhex("0000000c 00000001 0000 01 00000000 00")


def test_an_answer_to_an_unknown_version_of_api_versions_is_in_version_0() -> None:
    answer = ApiVersionsResponse(
        error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)]
    )
    frame = encode_response(1, answer, 0)[4:]
    for asked in (0, 3, 4):
        assert decode_response(frame, ApiKey.API_VERSIONS, asked) == answer
    with pytest.raises(MalformedRequest):
        decode_response(frame[:-1], ApiKey.API_VERSIONS, 3)


def test_a_header_must_fit_its_message() -> None:
    with pytest.raises(UnencodableMessage, match="found API key 3, not that of ApiVersionsRequest"):
        encode_request(RequestHeader(3, 0, 1), ApiVersionsRequest())
    with pytest.raises(UnencodableMessage, match="request header"):
        encode_request(RequestHeader(3, 0, 2**40), MetadataRequest())


def test_parts_are_the_frame() -> None:
    records = bytes(range(250)) * 40
    data = PartitionProduceData(records=records)
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[data])])
    header = RequestHeader(ApiKey.PRODUCE, 8, 1, "c")
    parts = encode_request_parts(header, request)
    assert any(part is records for part in parts)
    assert b"".join(parts) == encode_request(header, request)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [4, 12])
def test_the_size_counts_file_regions(version: int) -> None:
    region = FileRegion(5, 100, 1 << 20)
    response = FetchResponse(
        responses=[FetchableTopicResponse(partitions=[PartitionData(records=region)])]
    )
    parts = encode_response_parts(9, response, version)
    assert region in parts
    assert isinstance(parts[0], memoryview)
    assert int.from_bytes(parts[0][:4], "big") == sum(len(part) for part in parts) - 4
    assert len(encode_response_parts(9, MetadataResponse(), 1)) == 1
