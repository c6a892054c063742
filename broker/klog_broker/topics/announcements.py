"""After a change of topics: tells replicas and listeners of it, and warns of settings that are not
used, or cannot be."""

import logging
from collections.abc import Sequence

from klog_broker.config import TopicConfig, stored_topic_config
from klog_broker.metadata.image import MetadataImage
from klog_broker.topics.services import TopicServices

_log = logging.getLogger("klog.topics")


def image_changed(broker: TopicServices, image: MetadataImage, names: Sequence[str]) -> None:
    """Tell of the topics in ``names``, which came, went, or have other settings.

    The metadata store calls this with each new image.
    """
    known: dict[tuple[tuple[str, str], ...], TopicConfig] = {}
    broker.replicas.topics_changed([name for name in names if image.topic(name) is not None])
    for name in names:
        topic = image.topic(name)
        if topic is None:
            for tell in broker.on_topic_deleted:
                tell(name)
            continue
        if topic.configs:
            # Topics created together mostly have the same settings, and parsing settings is slow.
            key = tuple(topic.configs.items())
            if key not in known:
                known[key] = stored_topic_config(broker.config, topic.configs)
            warn_of_settings(name, known[key])


def warn_of_settings(name: str, config: TopicConfig) -> None:
    """Log each given setting of a topic that has no effect, or does not count."""
    for problem in config.problems:
        _log.warning("topic=%s a stored setting does not count: %s", name, problem)
    for warning in config.warnings:
        _log.warning("topic=%s %s", name, warning)
