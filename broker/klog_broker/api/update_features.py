"""UpdateFeatures (key 57): accepts only the present level of transaction.version, klog's one
feature.

Any other level or feature is refused as Kafka refuses levels that a broker does not have. A cluster
over ZooKeeper has no features.
"""

from enum import IntEnum

from klog_broker.api.api_versions import VersionsServices
from klog_broker.dispatch.access import on_cluster
from klog_broker.dispatch.api_handler import BrokerApi, top_level_error
from klog_broker.dispatch.error_messages import client_text
from klog_broker.dispatch.request_context import RequestContext, ResponseSteps
from klog_broker.metadata.features import FinalizedFeatures
from klog_broker.security.acls import AclOperation
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from pyspark_klog.protocol.keys import ApiKey


class UpgradeType(IntEnum):
    """The direction in which a feature's level may change; the numbers are those of the field
    UpgradeType in the request."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def handle(
    services: VersionsServices, request: UpdateFeaturesRequest, _: RequestContext
) -> ResponseSteps:
    """Accept all updates, or refuse all with the error of the first one that is refused."""
    response = UpdateFeaturesResponse(error_message=None)
    for each in request.feature_updates:
        yield 1
        problem = _problem(each, services.metadata.image.features)
        if problem is not None:
            text = f"no feature is changed: {each.feature!r} {problem}"
            error = BrokerError(ErrorCode.INVALID_UPDATE_VERSION, text)
            return UpdateFeaturesResponse(error_code=error.code, error_message=client_text(error))
        # Only responses of versions 0 and 1 have a result for each feature.
        response.results.append(UpdatableFeatureResult(feature=each.feature, error_message=None))
    return response


def _problem(requested: FeatureUpdateKey, features: FinalizedFeatures) -> str | None:
    if requested.upgrade_type not in tuple(UpgradeType):
        return f"has the unknown upgrade type {requested.upgrade_type}; it must be from 1 to 3"
    if not features.levels:
        return "is not known: a cluster over ZooKeeper has no features"
    level = features.levels.get(requested.feature)
    if level is None:
        known = ", ".join(features.levels)
        return f"is not known; known is {known}"
    if requested.max_version_level != level:
        return f"cannot have the level {requested.max_version_level}: its level is always {level}"
    return None


API = BrokerApi(
    ApiKey.UPDATE_FEATURES,
    handle,
    top_level_error(ApiKey.UPDATE_FEATURES),
    access=(on_cluster(AclOperation.ALTER),),
)
