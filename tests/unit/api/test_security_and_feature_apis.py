"""APIs of features that klog lacks: ACLs, credentials, other features, with Kafka's responses."""

from dataclasses import replace
from typing import Any

import pytest

from klog_broker.metadata.features import FinalizedFeatures
from klog_broker.metadata.local import LocalStore
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.api_versions import ApiVersionsRequest
from pyspark_klog.protocol.apis.create_acls import AclCreation, CreateAclsRequest
from pyspark_klog.protocol.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from pyspark_klog.protocol.apis.describe_acls import DescribeAclsRequest
from pyspark_klog.protocol.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from pyspark_klog.protocol.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.cluster.broker import MemoryBroker, new_broker

DISABLED = ErrorCode.SECURITY_DISABLED
TRANSACTIONS = "transaction.version"
LEVEL = 2
UPGRADE, SAFE, UNSAFE = 1, 2, 3


@pytest.fixture
def broker() -> MemoryBroker:
    return new_broker(with_kernel=False)


@pytest.mark.parametrize("version", range(4))
def test_there_is_no_authorizer(broker: MemoryBroker, version: int) -> None:
    found = broker.call(DescribeAclsRequest(resource_name_filter=None), version)
    assert (found.error_code, found.resources) == (DISABLED, [])
    assert found.error_message
    rules = [AclCreation(resource_type=2, resource_name="t", principal="User:a", host="*")] * 2
    made = broker.call(CreateAclsRequest(creations=rules), version)
    assert [each.error_code for each in made.results] == [DISABLED] * 2
    filters = [DeleteAclsFilter(resource_name_filter="t")] * 3
    gone = broker.call(DeleteAclsRequest(filters=filters), version)
    assert [each.error_code for each in gone.filter_results] == [DISABLED] * 3
    assert broker.call(CreateAclsRequest(), version).results == []
    assert broker.call(DeleteAclsRequest(), version).filter_results == []


@pytest.mark.parametrize(
    ("users", "answers"),
    [
        (None, []),
        ([], []),
        (["a", ""], [("a", "RESOURCE_NOT_FOUND"), ("", "RESOURCE_NOT_FOUND")]),
        (["a", "a", "b", "a"], [("a", "DUPLICATE_RESOURCE"), ("b", "RESOURCE_NOT_FOUND")]),
    ],
)
def test_no_user_has_credentials(
    broker: MemoryBroker, users: list[str] | None, answers: list[tuple[str, str]]
) -> None:
    rows = None if users is None else [UserName(name=name) for name in users]
    found = broker.call(DescribeUserScramCredentialsRequest(users=rows), 0)
    assert (found.error_code, found.error_message) == (0, None)
    assert [(each.user, ErrorCode(each.error_code).name) for each in found.results] == answers


def update(
    broker: MemoryBroker, *rows: tuple[str, int, int], version: int = 2, **more: Any
) -> tuple[str, list[str]]:
    updates = []
    for feature, level, way in rows:
        asked = FeatureUpdateKey(feature=feature, max_version_level=level)
        if version == 0:
            asked.allow_downgrade = way != UPGRADE
        else:
            asked.upgrade_type = way
        updates.append(asked)
    answer = broker.call(UpdateFeaturesRequest(feature_updates=updates, **more), version)
    assert all(each.error_code == 0 for each in answer.results)
    return ErrorCode(answer.error_code).name, [each.feature for each in answer.results]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_feature_keeps_its_level(broker: MemoryBroker, version: int) -> None:
    same = (TRANSACTIONS, LEVEL, UPGRADE)
    told = [TRANSACTIONS] if version < 2 else []
    assert update(broker, same, version=version) == ("NONE", told)
    assert update(broker, same, same, version=version) == ("NONE", told * 2)
    assert update(broker, (TRANSACTIONS, LEVEL, UNSAFE), version=version) == ("NONE", told)
    assert update(broker, version=version) == ("NONE", [])
    for wrong in (
        ("metadata.version", 7, UPGRADE),
        ("", 1, UPGRADE),
        (TRANSACTIONS, 3, UPGRADE),
        (TRANSACTIONS, 1, UPGRADE),
        (TRANSACTIONS, 1, SAFE),
        (TRANSACTIONS, 0, UNSAFE),
        (TRANSACTIONS, -1, UNSAFE),
        (TRANSACTIONS, 2**15 - 1, UPGRADE),
    ):
        assert update(broker, wrong, version=version) == ("INVALID_UPDATE_VERSION", [])
        assert update(broker, same, wrong, version=version) == ("INVALID_UPDATE_VERSION", [])


@pytest.mark.parametrize("way", [-128, 0, 4, 127])
def test_unknown_ways(broker: MemoryBroker, way: int) -> None:
    asked = (TRANSACTIONS, LEVEL, way)
    assert update(broker, asked, validate_only=True) == ("INVALID_UPDATE_VERSION", [])


def test_clients_see_the_features_of_the_metadata_image(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = replace(
        broker.broker.services.metadata.image,
        features=FinalizedFeatures({TRANSACTIONS: 1}, epoch=7),
    )
    monkeypatch.setattr(LocalStore, "image", property(lambda _: image))
    client = {"client_software_name": "test", "client_software_version": "1"}
    answer = broker.call(ApiVersionsRequest(**client), 4)
    levels = [(each.name, each.max_version_level) for each in answer.finalized_features]
    assert (answer.finalized_features_epoch, levels) == (7, [(TRANSACTIONS, 1)])
    assert update(broker, (TRANSACTIONS, 1, UPGRADE))[0] == "NONE"
    assert update(broker, (TRANSACTIONS, LEVEL, UPGRADE))[0] == "INVALID_UPDATE_VERSION"
