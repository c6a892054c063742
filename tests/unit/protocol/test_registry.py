"""The registry, the releases that cannot be asked, and the error codes."""

import pickle

import pytest

from klog_broker.api.families import SERVED
from pyspark_klog.errors import BrokerError, ErrorCode, KlogError
from pyspark_klog.protocol.errors import (
    MalformedRequest,
    ProtocolError,
    UnencodableMessage,
    UnsupportedVersion,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.registry import (
    API_KEYS,
    find_api,
    is_known,
    request_class,
    response_class,
)
from tests.support.protocol.kafka_before_api_versions import MAX_VERSIONS

IN_CLUSTERS = {
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
    ApiKey.ALLOCATE_PRODUCER_IDS,
}


def test_every_api_has_both_classes_with_the_same_versions() -> None:
    for key in API_KEYS:
        one = find_api(key)
        assert one.request is request_class(key)
        assert one.response is response_class(key)
        assert one.request.__name__ == f"{one.name}Request"
        assert one.response.__name__ == f"{one.name}Response"
        assert one.request.api_key is one.response.api_key is key
        assert (one.min_version, one.max_version) == (
            one.response.min_version,
            one.response.max_version,
        )
        assert one.first_flexible_version == one.response.first_flexible_version


def test_the_newest_versions_are_those_of_kafka_4_3() -> None:
    newest = {key: find_api(key).max_version for key in API_KEYS}
    assert newest[ApiKey.PRODUCE] == 13
    assert newest[ApiKey.FETCH] == 18
    assert newest[ApiKey.LIST_OFFSETS] == 11
    assert newest[ApiKey.METADATA] == 13
    assert newest[ApiKey.OFFSET_COMMIT] == newest[ApiKey.OFFSET_FETCH] == 10
    assert newest[ApiKey.INIT_PRODUCER_ID] == 5
    assert {key for key in API_KEYS if find_api(key).min_version > 0} < IN_CLUSTERS


def test_what_goes_between_brokers_has_the_version_of_kafka_3_9() -> None:
    versions = {key: (find_api(key).min_version, find_api(key).max_version) for key in IN_CLUSTERS}
    assert versions == {
        ApiKey.LEADER_AND_ISR: (7, 7),
        ApiKey.STOP_REPLICA: (4, 4),
        ApiKey.UPDATE_METADATA: (8, 8),
        ApiKey.CONTROLLED_SHUTDOWN: (3, 3),
        ApiKey.ALTER_PARTITION: (3, 3),
        ApiKey.ALLOCATE_PRODUCER_IDS: (0, 0),
    }
    assert all(find_api(key).request.is_flexible(find_api(key).max_version) for key in IN_CLUSTERS)


def test_a_standalone_broker_serves_no_api_of_clusters() -> None:
    assert IN_CLUSTERS.isdisjoint(row.api_key for row in SERVED)


def test_the_keys_are_the_ones_that_klog_speaks() -> None:
    expected = [*range(52), 56, 57, 60, 61, 64, *range(65, 70), 71, 72, 74, 75]
    assert list(map(int, API_KEYS)) == expected
    assert not any(is_known(key) for key in (-1, 52, 55, 58, 76, 88, 10_000))
    with pytest.raises(UnsupportedVersion, match="found API key 52, which klog does not know"):
        find_api(52)


def test_old_releases_are_within_what_klog_speaks() -> None:
    for release, versions in MAX_VERSIONS.items():
        for key, newest in versions.items():
            assert newest <= find_api(key).max_version, (release, key)
    assert ApiKey.API_VERSIONS not in MAX_VERSIONS["0.9"]
    assert ApiKey.JOIN_GROUP not in MAX_VERSIONS["0.8.2"]
    assert MAX_VERSIONS["0.10.0"][ApiKey.PRODUCE] == 2


def test_error_codes_have_names_texts_and_flags() -> None:
    assert ErrorCode(-1) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert [int(code) for code in ErrorCode] == list(range(-1, len(ErrorCode) - 1))
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.refresh_metadata
    assert ErrorCode.REQUEST_TIMED_OUT.retriable
    assert not ErrorCode.REQUEST_TIMED_OUT.refresh_metadata
    assert not ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.retriable
    assert all(code.retriable for code in ErrorCode if code.refresh_metadata)
    assert len({code.message for code in ErrorCode}) == len(ErrorCode)
    with pytest.raises(ValueError, match="9999"):
        ErrorCode(9999)


def test_broker_errors_say_what_and_survive_pickling() -> None:
    plain = BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
    assert str(plain) == "UNKNOWN_TOPIC_ID: the broker has no topic with this id"
    told = BrokerError(ErrorCode.INVALID_CONFIG, "segment.bytes is 3; expected at least 14")
    again = pickle.loads(pickle.dumps(told))
    assert (str(again), again.code) == (str(told), ErrorCode.INVALID_CONFIG)


def test_protocol_errors_are_klogs() -> None:
    for error in (MalformedRequest, UnsupportedVersion, UnencodableMessage):
        assert issubclass(error, ProtocolError)
        assert issubclass(error, KlogError)
