"""UpdateFeatures (key 57): transaction.version, the one feature, keeps its level. A cluster over
ZooKeeper has none.

A request for the level that it has is done at once; any other is refused as Kafka refuses levels
that a broker does not have.
"""

from enum import IntEnum

from klog_broker.coordinator.transaction.metadata import VERSION_RAISING
from klog_broker.handlers.api_handler import Api, top_level_error
from klog_broker.handlers.api_versions import TRANSACTION_VERSION, VersionsServices
from klog_broker.handlers.request_context import AnswerSteps, RequestContext
from klog_broker.handlers.told import told
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from pyspark_klog.protocol.keys import ApiKey


class UpgradeType(IntEnum):
    """Which way a feature's level may go, as on the wire."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def handle(
    services: VersionsServices, request: UpdateFeaturesRequest, _: RequestContext
) -> AnswerSteps:
    """All features, or none because of the first one that is refused."""
    response = UpdateFeaturesResponse(error_message=None)
    for each in request.feature_updates:
        yield 1
        problem = _problem(each, has_features=services.has_features)
        if problem is not None:
            text = f"no feature is changed: {each.feature!r} {problem}"
            error = BrokerError(ErrorCode.INVALID_UPDATE_VERSION, text)
            return UpdateFeaturesResponse(error_code=error.code, error_message=told(error))
        # Newer versions than 1 have no results.
        response.results.append(UpdatableFeatureResult(feature=each.feature, error_message=None))
    return response


def _problem(asked: FeatureUpdateKey, *, has_features: bool) -> str | None:
    if asked.upgrade_type not in tuple(UpgradeType):
        return f"is to change in an unknown way, {asked.upgrade_type}: it must be from 1 to 3"
    if not has_features:
        return "is not known: a cluster over ZooKeeper has no features"
    if asked.feature != TRANSACTION_VERSION:
        return f"is not known; {TRANSACTION_VERSION} is"
    if asked.max_version_level != VERSION_RAISING:
        level = asked.max_version_level
        return f"cannot have the level {level}: it has {VERSION_RAISING} for good"
    return None


API = Api(ApiKey.UPDATE_FEATURES, handle, top_level_error(ApiKey.UPDATE_FEATURES))
