"""UpdateFeatures: change the cluster's finalized feature levels."""

from pyspark_klog.protocol.fields import array, boolean, int8, int16, int32, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response, Struct


class FeatureUpdateKey(Struct):
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean(until=0)
    upgrade_type: int = int8(since=1, default=1)


class UpdateFeaturesRequest(Request, api=ApiKey.UPDATE_FEATURES, versions=(0, 2), flexible_since=0):
    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean(since=1)


class UpdatableFeatureResult(Struct):
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)


class UpdateFeaturesResponse(
    Response, api=ApiKey.UPDATE_FEATURES, versions=(0, 2), flexible_since=0
):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, until=1, ignorable=True)
