"""The change that creates topics: first their logs are created, then their partitions get a
leader."""

from collections.abc import Callable, Sequence
from functools import partial
from types import MappingProxyType

from klog_broker.metadata.changes import (
    PARTITIONS_PER_ELEMENT,
    Draft,
    PlanSteps,
    first_failure,
    first_states,
    log_topic_event,
    partition_assignments,
)
from klog_broker.metadata.errors import TopicExists
from klog_broker.metadata.image import (
    NO_BROKER,
    ImageDraft,
    Topic,
    check_no_collision,
    check_topic_name,
)
from klog_broker.metadata.interface import NewTopic
from klog_broker.metadata.role_changes import RoleChange, RoleChangeErrors
from klog_broker.runtime.event_loop.slices import Steps
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicId

# Costs of work in the event loop, in units of about 5 us, called elements
# (runtime/event_loop/slices.py). _TOPIC: to plan the creation of one topic, or to report its
# outcome. _ROLE: to make this broker the leader of one partition. _LED_AT_ONCE: of how many
# partitions one call of the callback `lead` makes this broker the leader.
_TOPIC = 5
_ROLE = 5
_LED_AT_ONCE = 20


class CreateTopics:
    """Creates topics. All logs of a topic are created while its partitions have no leader; then the
    partitions get their leader. If a log cannot be created, no client can have written to the topic
    yet, so the callback `take_back` deletes the topic again. An internal topic stays, because
    coordinators need it: the store tries again to create its missing logs
    (unserved_partitions.py)."""

    def __init__(
        self,
        topics: Sequence[NewTopic],
        new_id: Callable[[], TopicId],
        lead: Callable[[Topic, Sequence[int], Callable[[RoleChangeErrors], None]], None],
        take_back: Callable[[Topic, Callable[[], None]], None],
        done: Callable[[list[Topic | Exception]], None],
    ) -> None:
        self._topics = topics
        self._new_id = new_id
        self._lead = lead
        self._take_back = take_back
        self._done = done
        self._outcomes: list[Topic | Exception] = []

    def plan(self, draft: Draft) -> PlanSteps:
        role_changes: list[RoleChange] = []
        for new in self._topics:
            yield _TOPIC + len(new.assignment) // PARTITIONS_PER_ELEMENT
            try:
                topic = self._plan_topic(new, draft.image)
            except KlogError as error:
                self._outcomes.append(error)
            else:
                draft.image.put(topic)
                self._outcomes.append(topic)
                role_changes += (
                    role_change.with_leader(NO_BROKER)
                    for role_change in partition_assignments(topic, is_new=True)
                )
        return role_changes

    def _plan_topic(self, new: NewTopic, image: ImageDraft) -> Topic:
        check_topic_name(new.name)
        if new.name in image.topics:
            raise TopicExists(f"topic {new.name} already exists")
        if image.is_being_deleted(new.name):
            raise TopicExists(f"topic {new.name} is still being deleted")
        check_no_collision(new.name, image)
        return Topic(
            new.name,
            new.topic_id if new.topic_id is not None else self._new_id(),
            first_states(new.assignment),
            MappingProxyType(dict(new.configs)),
        )

    def report_failure(self, error: Exception) -> None:
        refused = [error if isinstance(each, Topic) else each for each in self._outcomes]
        self._done([*refused, *[error] * (len(self._topics) - len(refused))])

    def on_applied(self, results: RoleChangeErrors) -> Steps:
        waiting = 1

        def one_is_over() -> None:
            nonlocal waiting
            waiting -= 1
            if waiting == 0:
                self._done(self._outcomes)

        for number, topic in enumerate(self._outcomes):
            yield _TOPIC
            if not isinstance(topic, Topic):
                continue
            error = first_failure(topic, results)
            if error is None:
                log_topic_event("created", topic)
            else:
                self._outcomes[number] = error
                if not topic.is_internal:
                    waiting += 1
                    self._take_back(topic, one_is_over)
                    continue
            made = [each for each in topic.topic_partitions() if each not in results]
            for first in range(0, len(made), _LED_AT_ONCE):
                together = [each.partition for each in made[first : first + _LED_AT_ONCE]]
                yield _ROLE * len(together)
                waiting += 1
                self._lead(topic, together, partial(self._led, number, topic, one_is_over))
        one_is_over()

    def _led(
        self, number: int, topic: Topic, over: Callable[[], None], results: RoleChangeErrors
    ) -> None:
        """Record whether this broker became the leader of some of the topic's partitions. If that
        failed for one of them, the topic stays, because clients may already have written to the
        partitions that have a leader."""
        error = first_failure(topic, results)
        if error is not None:
            self._outcomes[number] = error
        over()
