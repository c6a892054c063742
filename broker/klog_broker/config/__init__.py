"""The configuration of a broker and of its topics: declarations of settings, types and bounds.

May import: klog_broker.runtime and pyspark_klog.{properties,java_text,errors}. Start reading at
broker_config.py and topic_config.py; setting_rows.py, topic_rows.py and the other modules named
..._rows.py declare each setting in one row.
"""

from klog_broker.config.broker_config import (
    BrokerConfig,
    Origin,
    ValueSource,
    parse_per_ip_overrides,
)
from klog_broker.config.listeners import Listener
from klog_broker.config.setting_rows import SETTINGS
from klog_broker.config.topic_config import (
    TopicConfig,
    stored_topic_config,
    topic_config,
    topic_config_problem,
    topic_setting,
)
from klog_broker.config.topic_rows import TOPIC_SETTINGS
from klog_broker.config.types import ConfigError, Password, Setting, Value, render

__all__ = [
    "SETTINGS",
    "TOPIC_SETTINGS",
    "BrokerConfig",
    "ConfigError",
    "Listener",
    "Origin",
    "Password",
    "Setting",
    "TopicConfig",
    "Value",
    "ValueSource",
    "parse_per_ip_overrides",
    "render",
    "stored_topic_config",
    "topic_config",
    "topic_config_problem",
    "topic_setting",
]
