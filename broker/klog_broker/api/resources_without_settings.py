"""DescribeConfigs for loggers, client metrics and groups.

klog stores no settings for these resources, and the APIs that alter settings refuse their types.
DescribeConfigs answers without an error, because Kafka's tools describe all types (``kafka-configs
--describe --all``).
"""

import logging

from klog_broker.api.alterable_brokers import stored_name
from klog_broker.api.alterable_topics import without_settings
from klog_broker.api.services import SettingsServices
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.describe_configs import DescribeConfigsResourceResult

BROKER_LOGGER = 8
CLIENT_METRICS = 16
GROUP = 32

_DYNAMIC_BROKER_LOGGER_CONFIG = 6
_ROOT = "root"
_LEVELS = {logging.WARNING: "WARN", logging.CRITICAL: "FATAL"}


def describe_other(
    services: SettingsServices, resource_type: int, name: str
) -> list[DescribeConfigsResourceResult]:
    """Return the described settings of a logger, client metrics or group: none, except a logger's
    level. BrokerError for an illegal name or an unknown type, as in Kafka."""
    if resource_type not in (BROKER_LOGGER, CLIENT_METRICS, GROUP):
        raise BrokerError(ErrorCode.INVALID_REQUEST, without_settings(resource_type))
    if not name:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "the name of the resource is empty")
    if resource_type != BROKER_LOGGER:
        return []
    stored_name(services, name)
    level = logging.getLogger().level
    return [
        DescribeConfigsResourceResult(
            name=_ROOT,
            value=_LEVELS.get(level, logging.getLevelName(level)),
            config_source=_DYNAMIC_BROKER_LOGGER_CONFIG,
        )
    ]
