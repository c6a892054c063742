"""ApiVersions: the APIs and versions that this broker serves, as the handlers declare them."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from klog_broker.coordinator.transaction.transaction_metadata import VERSION_RAISING
from klog_broker.dispatch.access import NO_ACCESS
from klog_broker.dispatch.api_handler import BrokerApi, ServedApi
from klog_broker.dispatch.request_context import RequestContext
from klog_broker.metadata.features import TRANSACTION_VERSION
from klog_broker.metadata.interface import MetadataStore
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import BrokerId
from pyspark_klog.protocol.apis.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Response

ZERO_LEVEL_SINCE = 4
"""The first version of ApiVersions that can list a feature whose lowest level is 0. Clients of
earlier versions cannot read such a feature, so, as in Kafka, their response lists no supported
features."""
CHECKS_NODE_SINCE = 5
"""The first version of ApiVersions in which clients name the cluster and the broker that they
expect (KIP-1242): after restarts, another broker may have the address that a client knows."""
NO_NODE_ID = -1
_SUPPORTED = [
    SupportedFeatureKey(name=TRANSACTION_VERSION, min_version=0, max_version=VERSION_RAISING)
]

# Valid names and versions of client software (KIP-511).
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class VersionsServices(NamedTuple):
    """The facts that ApiVersions shows: the broker's identity, the finalized features of the
    metadata image, and the APIs that the broker serves."""

    cluster_id: str
    broker_id: BrokerId
    metadata: MetadataStore
    served: Sequence[ServedApi]


def handle(
    services: VersionsServices, request: ApiVersionsRequest, context: RequestContext
) -> ApiVersionsResponse:
    if context.api_version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(name) for name in names):
            raise BrokerError(ErrorCode.INVALID_REQUEST)
    if context.api_version >= CHECKS_NODE_SINCE:
        _check_node(services, request)
    features = services.metadata.image.features
    tells_supported = bool(features.levels) and context.api_version >= ZERO_LEVEL_SINCE
    return ApiVersionsResponse(
        api_keys=_ranges(services.served),
        supported_features=_SUPPORTED if tells_supported else [],
        finalized_features_epoch=features.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in features.levels.items()
        ],
    )


def _check_node(services: VersionsServices, request: ApiVersionsRequest) -> None:
    """Raise BrokerError if the client expects another cluster or broker, or gives only one of
    cluster id and node id."""
    if (request.cluster_id is None) != (request.node_id == NO_NODE_ID):
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    if request.cluster_id is not None and (request.cluster_id, request.node_id) != (
        services.cluster_id,
        services.broker_id,
    ):
        raise BrokerError(ErrorCode.REBOOTSTRAP_REQUIRED)


def _ranges(served: Sequence[ServedApi]) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=row.api_key, min_version=row.min_version, max_version=row.max_version)
        for row in served
    ]


def error_response(_: Any, code: ErrorCode) -> Response:
    return ApiVersionsResponse(error_code=code)


API = BrokerApi(ApiKey.API_VERSIONS, handle, error_response, access=NO_ACCESS)
