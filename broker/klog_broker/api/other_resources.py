"""DescribeConfigs for loggers, client metrics and groups.

klog stores no settings for them, and the APIs that alter settings refuse them. Kafka's tools
describe them all the same (``kafka-configs --describe --all``): they get no error.
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
    """The settings of a resource that is no topic and no broker; BrokerError, as from Kafka, for a
    name that it cannot have and for an unknown type."""
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
