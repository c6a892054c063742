"""The registry against Kafka's definitions: no difference, or a reason that is listed here."""

from random import Random

import pytest

from pyspark_klog.protocol.codec import encode_message
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Message
from pyspark_klog.protocol.registry import API_KEYS, find_api
from tests.support.peers import KAFKA_4_4, NEWEST_KAFKA, OLDEST_KAFKA
from tests.support.protocol.kafka_definitions import (
    definition_of,
    definitions,
    differences,
    flexible_from,
    kafkas_shape,
    newest_released,
    our_shape,
    run_java,
    struct_classes,
    version_range,
)
from tests.support.protocol.samples import sample_message

pytestmark = pytest.mark.peers

# Where a topic has an id instead of a name from some version on, a later release made the name
# ignorable; the releases before do not have those versions yet. Ours is the newer rule, which the
# newer jar is compared with too.
_NEWER_RULE = "4.x made it ignorable"
_RENAMED = "4.x gave version 0 the names of version 1, with the same bytes"
_RENAMED_IN_4_4 = "4.4 calls the generation by what else it may be; the bytes are the same"
_SHARED_NAME = "request and response share a struct's name: the response's has a name of its own"

RELEASES = [OLDEST_KAFKA, NEWEST_KAFKA, KAFKA_4_4]

REASONS = {
    (OLDEST_KAFKA, "ProduceRequest.topic_data.name:ignorable"): _NEWER_RULE,
    (OLDEST_KAFKA, "ProduceResponse.responses.name:ignorable"): _NEWER_RULE,
    (OLDEST_KAFKA, "OffsetCommitRequest.topics.name:ignorable"): _NEWER_RULE,
    (OLDEST_KAFKA, "OffsetCommitResponse.topics.name:ignorable"): _NEWER_RULE,
    (OLDEST_KAFKA, "OffsetFetchRequest.groups.topics.name:ignorable"): _NEWER_RULE,
    (OLDEST_KAFKA, "OffsetFetchResponse.groups.topics.name:ignorable"): _NEWER_RULE,
    (OLDEST_KAFKA, "UpdateFeaturesResponse.results:ignorable"): _NEWER_RULE,
    (OLDEST_KAFKA, "ListConfigResourcesResponse"): _RENAMED,
    (OLDEST_KAFKA, "AlterClientQuotasResponse.entries:kind"): _SHARED_NAME,
    (NEWEST_KAFKA, "AlterClientQuotasResponse.entries:kind"): _SHARED_NAME,
    (OLDEST_KAFKA, "AlterPartitionResponse.topics:kind"): _SHARED_NAME,
    (NEWEST_KAFKA, "AlterPartitionResponse.topics:kind"): _SHARED_NAME,
    (OLDEST_KAFKA, "AlterPartitionResponse.topics.partitions:kind"): _SHARED_NAME,
    (NEWEST_KAFKA, "AlterPartitionResponse.topics.partitions:kind"): _SHARED_NAME,
    (KAFKA_4_4, "AlterClientQuotasResponse.entries:kind"): _SHARED_NAME,
    (KAFKA_4_4, "AlterPartitionResponse.topics:kind"): _SHARED_NAME,
    (KAFKA_4_4, "AlterPartitionResponse.topics.partitions:kind"): _SHARED_NAME,
    (OLDEST_KAFKA, "TxnOffsetCommitRequest"): _RENAMED_IN_4_4,
    (NEWEST_KAFKA, "TxnOffsetCommitRequest"): _RENAMED_IN_4_4,
    (OLDEST_KAFKA, "TxnOffsetCommitRequest.topics.name:ignorable"): _NEWER_RULE,
    (NEWEST_KAFKA, "TxnOffsetCommitRequest.topics.name:ignorable"): _NEWER_RULE,
    (OLDEST_KAFKA, "TxnOffsetCommitResponse.topics.name:ignorable"): _NEWER_RULE,
    (NEWEST_KAFKA, "TxnOffsetCommitResponse.topics.name:ignorable"): _NEWER_RULE,
}

# Kafka's APIs that klog leaves out (see `ApiKey`).
LEFT_OUT = (
    {52, 53, 54, 55, 58, 59, 62, 63, 70, 73, 80, 81, 82, 94}  # KRaft and broker registration
    | {76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92}  # share groups
    | {88, 89, 93}  # streams groups
)

# APIs between brokers and controller: one version each, Kafka 3.9's. Kafka 4 has none of the first
# four.
BETWEEN_BROKERS = {
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
    ApiKey.ALLOCATE_PRODUCER_IDS,
}

MESSAGES = [
    (key, kind, cls)
    for key in API_KEYS
    for kind, cls in (("request", find_api(key).request), ("response", find_api(key).response))
]


def common_versions(release: str, key: ApiKey, kind: str, cls: type[Message]) -> range:
    """The versions of a message that both Kafka's release and klog have."""
    limits = version_range(definition_of(release, key, kind)["validVersions"])
    if limits is None:
        return range(0)
    return range(max(limits[0], cls.min_version), min(limits[1], cls.max_version) + 1)


@pytest.fixture(params=MESSAGES, ids=lambda message: message[2].__name__)
def message(request: pytest.FixtureRequest) -> tuple[ApiKey, str, type[Message]]:
    found: tuple[ApiKey, str, type[Message]] = request.param
    return found


def test_no_api_was_forgotten() -> None:
    theirs = {
        definition["apiKey"]
        for release in RELEASES
        for definition in definitions(release).values()
        if "apiKey" in definition
    }
    assert theirs - LEFT_OUT == set(API_KEYS)
    assert theirs - set(API_KEYS) == LEFT_OUT


def test_versions_and_flexibility(message: tuple[ApiKey, str, type[Message]]) -> None:
    key, kind, cls = message
    old = definition_of(OLDEST_KAFKA, key, kind)
    if key in BETWEEN_BROKERS:
        assert cls.__name__ == old["name"]
        assert cls.min_version == cls.max_version == newest_released(old)
        assert cls.first_flexible_version == flexible_from(old)
        return
    new = definition_of(KAFKA_4_4, key, kind)
    request = definition_of(KAFKA_4_4, key, "request")
    oldest, newest = version_range(old["validVersions"]), version_range(new["validVersions"])
    assert oldest is not None and newest is not None
    assert cls.__name__ == new["name"]
    assert cls.min_version == min(oldest[0], newest[0])
    # Only requests carry the mark of an unstable version; it holds for the response too.
    assert cls.max_version == newest_released(request)
    assert cls.first_flexible_version == flexible_from(old) == flexible_from(new)


@pytest.mark.parametrize("release", RELEASES)
def test_every_field_of_every_version(
    message: tuple[ApiKey, str, type[Message]], release: str
) -> None:
    key, kind, cls = message
    definition = definition_of(release, key, kind)
    unexplained = []
    for version in common_versions(release, key, kind, cls):
        theirs, ours = kafkas_shape(definition, version), our_shape(cls, version)
        for place, text in differences(theirs, ours, cls.__name__):
            if (release, place) not in REASONS:
                unexplained.append(f"v{version} {place}: {text}")
    assert not unexplained


def test_every_reason_is_needed() -> None:
    found = set()
    for release in RELEASES:
        for key, kind, cls in MESSAGES:
            definition = definition_of(release, key, kind)
            for version in common_versions(release, key, kind, cls):
                theirs, ours = kafkas_shape(definition, version), our_shape(cls, version)
                found |= {(release, place) for place, _ in differences(theirs, ours, cls.__name__)}
    assert found == set(REASONS)


def test_no_row_is_dead() -> None:
    """A row that no version of its message has would be compared with nothing."""
    for key, _, cls in MESSAGES:
        alive = {
            (struct, name)
            for version in range(cls.min_version, cls.max_version + 1)
            for struct in struct_classes(cls)
            for name, row in struct.__fields__.items()
            if row.in_version(version)
        }
        declared = {(struct, name) for struct in struct_classes(cls) for name in struct.__fields__}
        assert declared == alive, key


def test_headers_are_as_headers_py_has_them() -> None:
    for release in RELEASES:
        request, response = (
            definitions(release)["RequestHeader"],
            definitions(release)["ResponseHeader"],
        )
        assert [
            (field["name"], field["type"], field["versions"]) for field in request["fields"]
        ] == [
            ("RequestApiKey", "int16", "0+"),
            ("RequestApiVersion", "int16", "0+"),
            ("CorrelationId", "int32", "0+"),
            ("ClientId", "string", "1+"),
        ]
        assert request["flexibleVersions"] == "2+"
        assert request["fields"][3]["nullableVersions"] == "1+"
        assert request["fields"][3]["flexibleVersions"] == "none"
        assert [(field["name"], field["type"]) for field in response["fields"]] == [
            ("CorrelationId", "int32")
        ]
        assert response["flexibleVersions"] == "1+"


@pytest.mark.parametrize("release", RELEASES)
def test_kafka_reads_our_bytes_and_writes_them_again(release: str) -> None:
    random = Random(11)
    lines, expected = [], []
    for key, kind, cls in MESSAGES:
        for version in common_versions(release, key, kind, cls):
            for _ in range(4):
                encoded = encode_message(sample_message(cls, version, random), version)
                lines.append(f"{kind} {int(key)} {version} {encoded.hex()}")
                expected.append(encoded.hex())
    echoed = run_java(release, "ProtocolEcho.java", "\n".join(lines))
    wrong = [
        (line, answer)
        for line, answer, ours in zip(lines, echoed, expected, strict=True)
        if answer != ours
    ]
    assert not wrong, wrong[:3]
