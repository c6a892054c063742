"""Make planned changes of topics through the metadata store.

The store makes a change durable and has the logs created, changed or deleted accordingly. Then, or
after an error, the caller's callback ``done`` is called.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from klog_broker.log.errors import InconsistentTopicId
from klog_broker.metadata.image import Topic
from klog_broker.metadata.interface import CHANGE_TIMEOUT_MS, NewTopic
from klog_broker.topics.errors import as_broker_error
from klog_broker.topics.planning import MorePartitions
from klog_broker.topics.services import TopicServices
from pyspark_klog.errors import BrokerError, KlogError
from pyspark_klog.ids import TopicId

_log = logging.getLogger("klog.topics")

AlterDone = Callable[[BrokerError | None], None]
"""A callback with the error of a change, or None if the change was made."""

Alter = Callable[[AlterDone], None]
"""A function that makes a planned change of settings, and then calls its argument, an AlterDone,
with the error or None."""


class _ForeignFolders:
    """Find folders that have the name of a partition to be created, but do not belong to it.

    The records in such a folder must not become records of the new topic. The calls block, so they
    are made in helper threads.
    """

    def __init__(self, broker: TopicServices, names: Iterable[str]) -> None:
        self._broker = broker
        self._folders = broker.logs.folders_of(names)

    def check(self, name: str, first_new: int = 0) -> None:
        """In a standalone broker raise InconsistentTopicId if a folder has the name of a partition
        of topic `name` whose number is `first_new` or higher."""
        if not self._broker.metadata.is_standalone:
            return  # in a cluster, the brokers that get the replicas check their own folders
        image = self._broker.metadata.image
        known = image.topic(name)
        if (len(known.partitions) if known is not None else 0) != first_new or any(
            topic.name == name for topic in image.deleting.values()
        ):
            # Since the plan was made, the topic was created or changed; or a topic of this name is
            # being deleted. In each case the metadata store refuses the change.
            return
        for number, path in self._folders.get(name, ()):
            # The folder of a deleted topic may have been removed since the folders were listed.
            if number >= first_new and self._broker.logs.folder_exists(path):
                text = (
                    f"the folder {path} does not belong to this topic; move it out of the data"
                    " directory, or start the broker once with --adopt to take it in"
                )
                if self._broker.folder_warnings.allows(self._broker.clock.monotonic_ms()):
                    _log.warning("topic=%s partitions cannot be created: %s", name, text)
                raise InconsistentTopicId(text)


def create_topics(
    broker: TopicServices,
    planned: Sequence[NewTopic],
    done: Callable[[list[Topic | BrokerError]], None],
    *,
    timeout_ms: int = CHANGE_TIMEOUT_MS,
) -> None:
    """Create the planned topics; `done` gets a topic or an error for each, in the same order."""
    refused: dict[int, BrokerError] = {}

    def find_foreign_folders() -> list[KlogError | None]:
        folders = _ForeignFolders(broker, [new.name for new in planned])
        return [_refusal(folders, new.name) for new in planned]

    def on_folders_checked(
        refusals: list[KlogError | None] | None, error: BaseException | None
    ) -> None:
        if refusals is None:
            done([as_broker_error(error) for _ in planned])
            return
        refused.update(
            (number, as_broker_error(refusal))
            for number, refusal in enumerate(refusals)
            if refusal is not None
        )
        wanted = [new for number, new in enumerate(planned) if number not in refused]
        broker.metadata.create_topics(wanted, created, timeout_ms=timeout_ms)

    def created(outcomes: list[Topic | Exception]) -> None:
        answers = iter(outcomes)
        done(
            [
                refused[number] if number in refused else _answer(next(answers))
                for number in range(len(planned))
            ]
        )

    broker.helpers.submit(find_foreign_folders, on_folders_checked)


def _refusal(folders: _ForeignFolders, name: str, first_new: int = 0) -> KlogError | None:
    try:
        folders.check(name, first_new)
    except KlogError as error:
        return error
    return None


def _answer(outcome: Topic | Exception) -> Topic | BrokerError:
    return as_broker_error(outcome) if isinstance(outcome, Exception) else outcome


def add_partitions(
    broker: TopicServices,
    name: str,
    more: MorePartitions,
    done: Callable[[Topic | BrokerError], None],
    *,
    timeout_ms: int = CHANGE_TIMEOUT_MS,
) -> None:
    """Add partitions to a topic; `done` gets the changed topic, or an error."""

    def find_foreign_folders() -> None:
        _ForeignFolders(broker, [name]).check(name, more.first_partition)

    def on_folders_checked(_: None, error: BaseException | None) -> None:
        if error is not None:
            done(as_broker_error(error))
            return
        broker.metadata.create_partitions(
            name,
            more.first_partition,
            more.assignment,
            lambda outcome: done(_answer(outcome)),
            timeout_ms=timeout_ms,
        )

    broker.helpers.submit(find_foreign_folders, on_folders_checked)


def change_topic_configs(
    broker: TopicServices,
    name: str,
    change: Callable[[Mapping[str, str]], Mapping[str, str]],
    done: AlterDone,
) -> None:
    """Change a topic's settings; `done` gets the error, or None once the topic's logs use them.

    `change` gets the present settings and returns the new ones, or raises BrokerError.
    """

    def changed(outcome: object) -> None:
        broker.replicas.when_settings_are_taken(lambda: done(_error(outcome)))

    broker.metadata.update_topic_configs(name, change, changed)


def change_broker_configs(
    broker: TopicServices,
    name: str,
    change: Callable[[Mapping[str, Mapping[str, str]]], Mapping[str, str]],
    done: AlterDone,
) -> None:
    """Change the dynamic settings of ``name``, a broker's id or ALL_BROKERS.

    `change` gets the present dynamic settings of each broker and of ALL_BROKERS, as texts, and
    returns the new texts of ``name``, or raises BrokerError. `done` gets the error, or None.
    """
    broker.metadata.update_broker_configs(name, change, lambda outcome: done(_error(outcome)))


def delete_topic(
    broker: TopicServices,
    topic_id: TopicId,
    done: Callable[[BrokerError | None], None],
    *,
    timeout_ms: int = CHANGE_TIMEOUT_MS,
) -> None:
    """Delete a topic; `done` gets the error, or None."""
    broker.metadata.delete_topic(
        topic_id, lambda outcome: done(_error(outcome)), timeout_ms=timeout_ms
    )


def _error(outcome: object) -> BrokerError | None:
    return as_broker_error(outcome) if isinstance(outcome, Exception) else None
