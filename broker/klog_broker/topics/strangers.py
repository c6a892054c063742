"""Folders that are named as partitions of a topic to be created, but do not belong to it."""

import logging
from collections.abc import Iterable

from klog_broker.log.errors import InconsistentTopicId
from klog_broker.topics.services import TopicServices

_log = logging.getLogger("klog.topics")


class Strangers:
    """Finds such folders: their contents must not become the new topic's. Blocks, so it is for
    helper threads."""

    def __init__(self, broker: TopicServices, names: Iterable[str]) -> None:
        self._broker = broker
        self._folders = broker.logs.folders_of(names)

    def check(self, name: str, first_new: int = 0) -> None:
        """Raise InconsistentTopicId if a folder has the name of a partition from `first_new` on."""
        if not self._broker.metadata.is_standalone:
            return  # the replicas may be elsewhere; whoever gets one looks at its own folders
        image = self._broker.metadata.image
        known = image.topic(name)
        if (len(known.partitions) if known is not None else 0) != first_new or any(
            topic.name == name for topic in image.deleting.values()
        ):
            return  # the topic has changed, or its name is still taken: the store will refuse
        for number, path in self._folders.get(name, ()):
            # The folder of a topic that was being deleted may be gone by now.
            if number >= first_new and self._broker.logs.lies_there(path):
                text = (
                    f"{path} lies in the data directory and is not of this topic; move it away, or"
                    " start the broker once with --adopt to take it in"
                )
                if self._broker.folder_warnings.allows(self._broker.clock.monotonic_ms()):
                    _log.warning("topic=%s cannot be made: %s", name, text)
                raise InconsistentTopicId(text)
