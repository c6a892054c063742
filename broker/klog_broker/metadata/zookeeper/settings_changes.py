"""Changes settings and quotas in ZooKeeper for clients. Any broker makes such changes."""

from collections.abc import Callable, Mapping

from klog_broker.metadata.changes import log_topic_event, refuse_too_many_quotas
from klog_broker.metadata.errors import TooManyQuotas, UnknownTopic
from klog_broker.metadata.image import ALL_BROKERS, MetadataImage, QuotaEntity, Topic
from klog_broker.metadata.interface import Done
from klog_broker.metadata.zookeeper.settings import ClusterSettings
from klog_broker.metadata.zookeeper.settings_image import with_quotas, znode_entity
from klog_broker.runtime.event_loop.loop import Loop
from pyspark_klog.znodes.configs import BROKERS, TOPICS, entity


class SettingsChanges:
    """The part of a MetadataStore that changes settings and quotas. The image shows a change before
    `done` is called."""

    def __init__(
        self, loop: Loop, settings: ClusterSettings, image: Callable[[], MetadataImage]
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._image = image

    def update_topic_configs(
        self,
        name: str,
        update: Callable[[Mapping[str, str]], Mapping[str, str]],
        done: Done[Topic],
    ) -> None:
        """Replace a topic's settings by the result of `update(settings)`."""

        def changed(error: Exception | None) -> None:
            topic = self._image().topic(name)
            if error is None and topic is not None:
                log_topic_event("altered", topic)
            done(error or topic or UnknownTopic(f"topic {name} was deleted meanwhile"))

        self._settings.change(entity(TOPICS, name), update, changed)

    def update_broker_configs(
        self,
        name: str,
        update: Callable[[Mapping[str, Mapping[str, str]]], Mapping[str, str]],
        done: Done[None],
    ) -> None:
        """Replace the dynamic settings of `name` (a broker's id as text, or ALL_BROKERS) by the
        result of `update`, which gets the dynamic settings of all names."""

        def of_one(texts: Mapping[str, str]) -> Mapping[str, str]:
            return update({**self._image().broker_configs, name: texts})

        names = entity(BROKERS, None if name == ALL_BROKERS else name)
        self._settings.change(names, of_one, done)

    def update_client_quotas(
        self,
        updates: Mapping[QuotaEntity, Mapping[str, float | None]],
        done: Done[None],
    ) -> None:
        """Set quotas, and remove each quota whose value is None. The quotas of each entity (users,
        client ids, addresses) are changed independently of each other: if one change fails, the
        others may be made. `done` gets the first error."""
        known = self._image().client_quotas
        count = len(known.keys() | {who for who, update in updates.items() if any(update.values())})
        try:
            refuse_too_many_quotas(count, len(known))
        except TooManyQuotas as error:
            refusal = error
            self._loop.call_soon(lambda: done(refusal))
            return
        left = len(updates)
        failure: Exception | None = None

        def one_is_over(error: Exception | None) -> None:
            nonlocal left, failure
            left -= 1
            failure = failure or error
            if left == 0:
                done(failure)

        for who, update in updates.items():
            self._settings.change(znode_entity(who), _set(update), one_is_over)


def _set(
    update: Mapping[str, float | None],
) -> Callable[[Mapping[str, str]], Mapping[str, str]]:
    return lambda settings: with_quotas(settings, update)
