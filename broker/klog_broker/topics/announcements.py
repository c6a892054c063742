"""Announce changes of topics to the ReplicaManager and to the callbacks for deleted topics, and
warn of settings that are invalid or have no effect."""

import logging
from collections.abc import Sequence

from klog_broker.config import TopicConfig, stored_topic_config
from klog_broker.metadata.image import MetadataImage
from klog_broker.topics.services import TopicServices

_log = logging.getLogger("klog.topics")


def image_changed(broker: TopicServices, image: MetadataImage, names: Sequence[str]) -> None:
    """Handle a new metadata image (the snapshot of topics and partitions), in which the topics in
    ``names`` were created or deleted, or have other settings than before; at start-up ``names`` has
    all topics.

    Announces the existing topics to the ReplicaManager, and the deleted ones to the callbacks in
    ``on_topic_deleted``. The metadata store calls this function with each new image.
    """
    known: dict[tuple[tuple[str, str], ...], TopicConfig] = {}
    broker.replicas.topics_changed([name for name in names if image.topic(name) is not None])
    for name in names:
        topic = image.topic(name)
        if topic is None:
            for callback in broker.on_topic_deleted:
                callback(name)
            continue
        if topic.configs:
            # Parse equal settings only once: parsing is slow, and topics that are created together
            # mostly have the same settings.
            key = tuple(topic.configs.items())
            if key not in known:
                known[key] = stored_topic_config(broker.config, topic.configs)
            warn_of_settings(name, known[key])


def warn_of_settings(name: str, config: TopicConfig) -> None:
    """Log a warning for each setting of a topic that is invalid or has no effect."""
    for problem in config.problems:
        _log.warning("topic=%s ignoring a stored setting: %s", name, problem)
    for warning in config.warnings:
        _log.warning("topic=%s %s", name, warning)
