"""Metadata changes: each one plans the next state and the role changes that follow from it.

A role change tells a broker to lead, follow, stop or delete its replica of a partition. A metadata
change is planned on the newest state. Then the planned state is written, and then the role changes
are applied. The event loop's thread plans a change and reports its outcome; a helper thread writes.
"""

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from klog_broker.metadata.errors import (
    PartitionsChanged,
    TooManyQuotas,
    UnknownTopic,
)
from klog_broker.metadata.image import (
    ImageDraft,
    PartitionRegistration,
    QuotaEntity,
    Topic,
)
from klog_broker.metadata.interface import (
    PRODUCER_ID_BLOCK_SIZE,
    Done,
    ProducerIdBlock,
)
from klog_broker.metadata.local_file import StoredState
from klog_broker.metadata.role_changes import (
    RoleAssignment,
    RoleChange,
    RoleChangeErrors,
    RoleRemoval,
)
from klog_broker.runtime.event_loop.slices import Steps
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import BrokerId, ProducerId, TopicId, TopicPartition
from pyspark_klog.storage.text_files import encode_topic_id

_log = logging.getLogger("klog.topics")

# Costs of work in the event loop, in units of about 5 us, called elements
# (runtime/event_loop/slices.py). PARTITIONS_PER_ELEMENT: for how many partitions the planning of a
# metadata change costs one element. _CHANGE: the usual cost to plan a metadata change, apart from
# its partitions, or to report its outcome.
PARTITIONS_PER_ELEMENT = 2
_CHANGE = 5

# How many entities (users, client ids and addresses) may have quotas. Each entity with quotas costs
# memory, and a line in klog-metadata.
MAX_QUOTA_ENTITIES = 100_000


class Draft:
    """The next contents of the file klog-metadata (StoredState): changes modify the draft, and
    `state` returns the result."""

    def __init__(self, state: StoredState) -> None:
        self._state = state
        self.image = ImageDraft(state.image)
        self.next_producer_id = state.next_producer_id
        self.assignments = state.assignments

    @property
    def is_changed(self) -> bool:
        """Whether the draft differs from the contents of klog-metadata that it began with."""
        return (
            self.image.is_changed
            or self.next_producer_id != self._state.next_producer_id
            or self.assignments is not self._state.assignments
        )

    def state(self) -> StoredState:
        """Return the next contents of klog-metadata. The draft must not be used afterwards."""
        image = self.image.image() if self.image.is_changed else self._state.image
        return replace(
            self._state,
            image=image,
            next_producer_id=self.next_producer_id,
            assignments=self.assignments,
        )


PlanSteps = Generator[int, None, Sequence[RoleChange]]
"""Plans a metadata change in steps. Yields the cost of each step, in units of about 5 us of work.
Returns the role changes (to lead or delete replicas) that follow from the metadata change."""


class MetadataChange(Protocol):
    """A requested change of the metadata. The store calls `plan`, and then once either
    `report_failure` or `on_applied`."""

    def plan(self, draft: Draft) -> PlanSteps:
        """Make the change in `draft`, the next contents of klog-metadata. If `plan` raises, the
        change is refused, and the draft is unchanged."""

    def report_failure(self, error: Exception) -> None:
        """Report to the requester that the change was refused, or could not be written, and so has
        no effect. After an error of the disk the next start may find the change in the file."""

    def on_applied(self, results: RoleChangeErrors) -> Steps:
        """Report to the requester the outcome of the metadata change: it is durable, and its role
        changes (to lead or delete replicas) have been applied, except those with an error in
        `results`."""


class CreatePartitions:
    """Adds partitions to a topic."""

    def __init__(
        self,
        name: str,
        first_partition: int,
        assignment: Sequence[Sequence[BrokerId]],
        done: Done[Topic],
    ) -> None:
        self._name = name
        self._first_partition = first_partition
        self._assignment = assignment
        self._topic: Topic
        self._done = done

    def plan(self, draft: Draft) -> PlanSteps:
        yield _CHANGE + len(self._assignment) // PARTITIONS_PER_ELEMENT
        topic = _find(draft.image, self._name)
        if len(topic.partitions) != self._first_partition:
            raise PartitionsChanged(
                f"topic {topic.name} has {len(topic.partitions)} partitions by now, not"
                f" {self._first_partition}"
            )
        partitions = (*topic.partitions, *first_states(self._assignment))
        self._topic = replace(topic, partitions=partitions)
        draft.image.put(self._topic)
        return partition_assignments(self._topic, self._first_partition, is_new=True)

    def report_failure(self, error: Exception) -> None:
        self._done(error)

    def on_applied(self, results: RoleChangeErrors) -> Steps:
        yield _CHANGE
        error = first_failure(self._topic, results)
        if error is None:
            log_topic_event("extended", self._topic)
        self._done(self._topic if error is None else error)


class UpdateTopicConfigs:
    """Replaces a topic's settings by the result of `update`, which gets the present settings."""

    def __init__(
        self,
        name: str,
        update: Callable[[Mapping[str, str]], Mapping[str, str]],
        done: Done[Topic],
    ) -> None:
        self._name = name
        self._update = update
        self._done = done
        self._topic: Topic

    def plan(self, draft: Draft) -> PlanSteps:
        yield 2 * _CHANGE
        topic = _find(draft.image, self._name)
        configs = MappingProxyType(dict(self._update(topic.configs)))
        self._topic = replace(topic, configs=configs)
        draft.image.put(self._topic)
        return ()

    def report_failure(self, error: Exception) -> None:
        self._done(error)

    def on_applied(self, _results: RoleChangeErrors) -> Steps:
        yield _CHANGE
        log_topic_event("altered", self._topic)
        self._done(self._topic)


class UpdateBrokerConfigs:
    """Replaces the dynamic settings of one broker, or those that all brokers share, by the result
    of `update`, which gets the dynamic settings of all brokers."""

    def __init__(
        self,
        name: str,
        update: Callable[[Mapping[str, Mapping[str, str]]], Mapping[str, str]],
        done: Done[None],
    ) -> None:
        self._name = name
        self._update = update
        self._done = done

    def plan(self, draft: Draft) -> PlanSteps:
        yield 10 * _CHANGE
        configs = self._update(draft.image.broker_configs)
        if configs != draft.image.broker_configs.get(self._name, {}):
            draft.image.put_broker_configs(self._name, configs)
        return ()

    def report_failure(self, error: Exception) -> None:
        self._done(error)

    def on_applied(self, _results: RoleChangeErrors) -> Steps:
        yield _CHANGE
        self._done(None)


class UpdateClientQuotas:
    """Sets and removes quotas of entities (users, client ids and addresses)."""

    def __init__(
        self, updates: Mapping[QuotaEntity, Mapping[str, float | None]], done: Done[None]
    ) -> None:
        self._updates = updates
        self._done = done

    def plan(self, draft: Draft) -> PlanSteps:
        yield _CHANGE
        known = draft.image.client_quotas
        new: dict[QuotaEntity, dict[str, float]] = {}
        count = len(known)
        for entity, update in self._updates.items():
            yield 1
            merged: dict[str, float | None] = {**known.get(entity, {}), **update}
            quotas = {key: value for key, value in merged.items() if value is not None}
            if quotas != known.get(entity, {}):
                new[entity] = quotas
                count += bool(quotas) - (entity in known)
        refuse_too_many_quotas(count, len(known))
        for entity in new:
            draft.image.put_quotas(entity, new[entity])
        return ()

    def report_failure(self, error: Exception) -> None:
        self._done(error)

    def on_applied(self, _results: RoleChangeErrors) -> Steps:
        yield _CHANGE
        self._done(None)


class DeleteTopic:
    """First step of a topic's deletion: clients no longer see the topic, and its logs are renamed
    for deletion. Then the change calls ``finish``, which requests the second step: FinishDeletion
    frees the topic's name."""

    def __init__(
        self,
        topic_id: TopicId,
        finish: Callable[[Topic, Done[Topic]], None],
        done: Done[Topic],
    ) -> None:
        self._topic_id = topic_id
        self._finish = finish
        self._done = done
        self._topic: Topic

    def plan(self, draft: Draft) -> PlanSteps:
        topic = draft.image.topics_by_id.get(self._topic_id)
        if topic is None:
            raise UnknownTopic(f"there is no topic with the id {encode_topic_id(self._topic_id)}")
        yield _CHANGE + len(topic.partitions) // PARTITIONS_PER_ELEMENT
        self._topic = topic
        draft.image.begin_deletion(topic)
        # Forget in which data directories the topic's logs are. If the broker's next start finishes
        # the deletion, the logs may already be gone, and must not count as missing data, which
        # would keep the broker from starting.
        draft.assignments = draft.assignments.without_topic(topic.topic_id)
        return role_removals(topic)

    def report_failure(self, error: Exception) -> None:
        self._done(error)

    def on_applied(self, results: RoleChangeErrors) -> Steps:
        yield _CHANGE
        error = first_failure(self._topic, results)
        if error is not None:
            # A log could not be removed. The topic's deletion is already durable in the metadata,
            # so the broker's next start will finish the deletion. Until then the topic's name stays
            # taken.
            self._done(error)
        else:
            self._finish(self._topic, self._done)


class FinishDeletion:
    """Second step of a topic's deletion: frees the topic's name."""

    def __init__(self, topic: Topic, done: Done[Topic]) -> None:
        self._topic = topic
        self._done = done

    def plan(self, draft: Draft) -> PlanSteps:
        yield 1
        draft.image.finish_deletion(self._topic.topic_id)
        return ()

    def report_failure(self, error: Exception) -> None:
        self._done(error)

    def on_applied(self, _results: RoleChangeErrors) -> Steps:
        yield _CHANGE
        log_topic_event("deleted", self._topic)
        self._done(self._topic)


class AllocateProducerIds:
    """Allocates a block of producer ids."""

    def __init__(self, done: Done[ProducerIdBlock]) -> None:
        self._done = done
        self._block: ProducerIdBlock

    def plan(self, draft: Draft) -> PlanSteps:
        yield 1
        end = ProducerId(draft.next_producer_id + PRODUCER_ID_BLOCK_SIZE)
        self._block = ProducerIdBlock(draft.next_producer_id, end)
        draft.next_producer_id = end
        return ()

    def report_failure(self, error: Exception) -> None:
        self._done(error)

    def on_applied(self, _results: RoleChangeErrors) -> Steps:
        yield _CHANGE
        self._done(self._block)


def partition_assignments(topic: Topic, first: int = 0, *, is_new: bool) -> list[RoleAssignment]:
    """Return the role assignments that make a standalone broker a replica of the topic's partitions
    from number `first` on. A standalone broker has a replica of every partition."""
    return [
        partition_assignment(topic, number, is_new=is_new)
        for number in range(first, len(topic.partitions))
    ]


def partition_assignment(topic: Topic, partition: int, *, is_new: bool) -> RoleAssignment:
    """Return the role assignment that makes a standalone broker a replica of one partition."""
    state = topic.partitions[partition]
    return RoleAssignment(
        TopicPartition(topic.name, partition),
        topic.topic_id,
        state.leader,
        state.leader_epoch,
        state.partition_epoch,
        state.replicas,
        state.in_sync,
        is_new,
    )


def role_removals(topic: Topic) -> list[RoleChange]:
    """Return the role changes that delete the logs of all the topic's partitions."""
    return [
        RoleRemoval(TopicPartition(topic.name, number), topic.topic_id, state.leader_epoch, True)
        for number, state in enumerate(topic.partitions)
    ]


def first_failure(topic: Topic, results: RoleChangeErrors) -> KlogError | None:
    """Return the error of the topic's first partition whose role change (to lead the partition, or
    to delete its log) failed, or None."""
    if not results:
        return None
    return next((results[each] for each in topic.topic_partitions() if each in results), None)


def log_topic_event(event: str, topic: Topic) -> None:
    """Log `event` (such as "created") with the topic's name, id, partition count and settings."""
    _log.info(
        "topic=%s %s id=%s partitions=%d configs=%s",
        topic.name,
        event,
        encode_topic_id(topic.topic_id),
        len(topic.partitions),
        dict(topic.configs),
    )


def refuse_too_many_quotas(count: int, known: int) -> None:
    """Raise TooManyQuotas if a change raises the number of entities with quotas from ``known`` to
    ``count``, and ``count`` is above MAX_QUOTA_ENTITIES. A change that does not raise the number is
    always allowed."""
    if count > max(MAX_QUOTA_ENTITIES, known):
        raise TooManyQuotas(
            f"there would be quotas of {count} users, clients and addresses; at most"
            f" {MAX_QUOTA_ENTITIES} are kept: remove some"
        )


def _find(image: ImageDraft, name: str) -> Topic:
    topic = image.topics.get(name)
    if topic is None:
        raise UnknownTopic(f"there is no topic {name}")
    return topic


def first_states(assignment: Sequence[Sequence[BrokerId]]) -> tuple[PartitionRegistration, ...]:
    """Return the states of new partitions: all replicas are in sync, and the first one leads."""
    return tuple(
        PartitionRegistration(tuple(replicas), tuple(replicas), replicas[0])
        for replicas in assignment
    )
