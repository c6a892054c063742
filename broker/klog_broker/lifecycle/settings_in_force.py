"""The settings in force of a running broker: those of its start, overridden by stored settings.

Clients store settings in the metadata while the broker runs. When a new metadata image has changed
settings, the log manager, the network server and the log cleaner get them immediately. The logs of
topics get them over several event-loop turns, because a broker can have many topics.
docs/operations.md describes this for users.
"""

import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple, Protocol

from klog_broker.compaction.cleaner import Cleaner
from klog_broker.config import (
    SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    render,
    stored_topic_config,
)
from klog_broker.config.settings_without_effect import reason_without_effect
from klog_broker.lifecycle.component_settings import cleaner_settings, log_settings, network_limits
from klog_broker.log.manager.log_manager import LogManager
from klog_broker.metadata.image import INTERNAL_TOPICS, MetadataImage
from klog_broker.metadata.interface import MetadataStore
from klog_broker.network.server import Server
from klog_broker.replication.replica_manager import ReplicaManager
from klog_broker.replication.settings_updates import TopicSettings
from klog_broker.runtime.event_loop.slices import Slices, Steps
from klog_broker.topics.broker_settings import given_to
from pyspark_klog.ids import BrokerId

_log = logging.getLogger("klog.config")
_quotas_log = logging.getLogger("klog.quota")

# The number of cached parsed topic settings: many topics have equal settings, and parsing is slow.
_TOPIC_SETTINGS_KEPT = 100
# The broker settings that are the defaults of topic settings.
_DEFAULTS_OF_TOPICS = {
    row.broker_name for row in TOPIC_SETTINGS.values() if row.broker_name in SETTINGS
}


class SettingsFollowers(Protocol):
    """The parts of a broker that SettingsInForce uses to pass on changed settings: ``config`` and
    ``logs`` get them at once, the logs of the topics in ``metadata`` later."""

    config: BrokerConfig

    @property
    def logs(self) -> LogManager: ...

    @property
    def metadata(self) -> MetadataStore: ...

    @property
    def replicas(self) -> ReplicaManager: ...

    @property
    def slices(self) -> Slices: ...


class _Followers(NamedTuple):
    services: SettingsFollowers
    server: Server
    cleaner: Cleaner


class SettingsInForce:
    """Computes the settings in force: the settings of the broker's start, overridden by those that
    clients have stored in the metadata. For the loop's thread only.

    The broker calls `apply_stored` once at start-up, after it has read the metadata; then
    `set_followers`, once the server and the log cleaner exist; then `image_changed` with each new
    metadata image.
    """

    def __init__(self, start: BrokerConfig) -> None:
        self.config = start
        self._start = start
        self._stored: Mapping[str, Mapping[str, str]] = {}
        self._problems: tuple[str, ...] = ()
        self._followers: _Followers | None = None
        self._following: object | None = None
        self._read = lru_cache(_TOPIC_SETTINGS_KEPT)(self._read_topic)

    def set_broker_id(self, broker_id: BrokerId) -> None:
        """Set the broker's id, which ZooKeeper may have generated. Call before `apply_stored`.

        Changes nothing if the id is the configured broker.id.
        """
        if self.config["broker.id"] != broker_id:
            self.config = self._start = self._start.with_generated_id(broker_id)

    def apply_stored(self, image: MetadataImage) -> None:
        """Apply the stored settings of the metadata image that the broker starts with.

        An invalid stored setting is logged and ignored; it stays stored until a client changes it.
        """
        self._apply_image(image)
        if image.client_quotas:
            _quotas_log.warning(
                "%d users, clients or addresses have quotas, which are not enforced yet",
                len(image.client_quotas),
            )

    def set_followers(self, services: SettingsFollowers, server: Server, cleaner: Cleaner) -> None:
        """Set the parts of the broker to which `image_changed` gives new settings from now on."""
        self._followers = _Followers(services, server, cleaner)

    def topic_settings(self, name: str, configs: Mapping[str, str]) -> TopicSettings:
        """Return a topic's settings: its ``configs``, with the broker's settings as defaults."""
        return self._read(tuple(configs.items()), name in INTERNAL_TOPICS)

    def _read_topic(
        self, overrides: tuple[tuple[str, str], ...], holds_state: bool
    ) -> TopicSettings:
        config = stored_topic_config(self.config, dict(overrides))
        return TopicSettings.from_topic_config(config, holds_state=holds_state)

    def image_changed(self, image: MetadataImage) -> None:
        """Apply the stored broker settings of a new metadata image, if they have changed."""
        if image.broker_configs is self._stored:
            return
        old = self.config
        self._apply_image(image)
        new = self.config
        if self._followers is None:
            return
        services, server, cleaner = self._followers
        services.config = new
        services.logs.apply_settings(log_settings(new))
        if network_limits(old) != network_limits(new):
            server.set_limits(network_limits(new))
        if cleaner_settings(old) != cleaner_settings(new):
            cleaner.apply_settings(cleaner_settings(new))
        if any(old[name] != new[name] for name in _DEFAULTS_OF_TOPICS):
            # `_follow` gives the settings to the logs of all topics. If an earlier call has not
            # reached all topics yet, it stops here: the new call gives the newest settings to all.
            following = self._following = object()
            services.slices.run(_follow(services), lambda: self._following is following)

    def _apply_image(self, image: MetadataImage) -> None:
        old = self.config
        broker_id = BrokerId(self._start["broker.id"])
        self._stored = image.broker_configs
        self.config, problems = given_to(self._start, image.broker_configs, broker_id)
        self._read.cache_clear()
        for problem in problems:
            if problem not in self._problems:
                _log.warning("ignoring a stored setting: %s", problem)
        self._problems = problems
        _log_changes(old, self.config)


def _follow(services: SettingsFollowers) -> Steps:
    """Give the settings in force to the logs of all topics, over several event-loop turns.

    A topic that is created or altered between two turns needs nothing here: its logs are given the
    settings in force at that time.
    """
    for topic in services.metadata.image.topics.values():
        yield 1 + len(topic.partitions)
        services.replicas.topics_changed((topic.name,))


def _log_changes(old: BrokerConfig, new: BrokerConfig) -> None:
    for name in SETTINGS:
        if old[name] != new[name]:
            _log.info("setting=%s value=%s was=%s", name, render(new[name]), render(old[name]))
    known = old.without_effect()
    for name, text in new.without_effect().items():
        if known.get(name) != text:
            _log.warning("%s=%s has no effect here. %s", name, text, reason_without_effect(name))
