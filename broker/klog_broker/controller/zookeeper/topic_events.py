"""Updates the controller context with topics that were created, extended or removed in ZooKeeper,
below /brokers/topics."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from klog_broker.controller.zookeeper.errors import WriteDenied
from klog_broker.controller.zookeeper.znode_reader import ReadTopic
from klog_broker.controller.zookeeper.znode_writer import (
    LOOKED_AT_A_TURN,
    PARTITIONS_A_TURN,
    EventContext,
)
from klog_broker.metadata.zookeeper.conversation import Steps
from klog_broker.runtime.zookeeper.sessions import Set, Stat
from pyspark_klog.ids import TopicId, TopicPartition
from pyspark_klog.znodes.paths import topic_path
from pyspark_klog.znodes.topics import encode_topic

_log = logging.getLogger("klog.controller")

NewId = Callable[[], TopicId]
"""Makes an id for a topic that has none, because Kafka before version 2.8 created the topic."""


def refresh_topics(work: EventContext, new_id: NewId) -> Steps[None]:
    """Read the list of topics: add new topics to the context, and remove missing ones."""
    context = work.controller_state.context
    names = yield from work.reader.topic_names()
    there = set(names)
    for name in context.topics:
        if name not in there:
            yield from _remove(work, name)
    unknown = [name for name in names if context.topic_id(name) is None]
    read = yield from work.reader.topics(unknown)
    yield from _take(work, read.found, new_id)
    work.controller_state.unreadable.clear()
    work.controller_state.unreadable.update(read.unreadable)


def refresh_topic(work: EventContext, name: str, new_id: NewId) -> Steps[None]:
    """Read one topic, and add its new partitions to the context."""
    read = yield from work.reader.topics([name])
    if read.gone and work.controller_state.context.topic_id(name) is not None:
        # Remove the topic now, because the next list of topics may contain a new topic of the same
        # name, which would be taken for the removed one.
        yield from _remove(work, name)
    yield from _take(work, read.found, new_id)
    if name not in read.unreadable:
        work.controller_state.unreadable.discard(name)


def _remove(work: EventContext, name: str) -> Steps[None]:
    _log.warning("topic=%s was removed from ZooKeeper, but not by this controller", name)
    yield from work.writer.in_turns(work.controller_state.remove_topic(name))


def _take(work: EventContext, read: Mapping[str, ReadTopic], new_id: NewId) -> Steps[None]:
    controller_state, context = work.controller_state, work.controller_state.context
    assigned = {}
    for name, topic in read.items():
        topic_id = topic.assignment.topic_id
        if topic_id is None:
            try:
                topic_id = yield from _give_id(work, name, topic, new_id())
            except WriteDenied:
                continue
        other = context.topic_name(topic_id)
        if other not in (None, name):
            why = f"its id is that of topic {other}, and each topic needs an id of its own"
            work.reader.log_unusable_znode(topic_path(name), topic_id.bytes, why)
            continue
        if context.topic_id(name) not in (None, topic_id):
            yield from work.writer.in_turns(controller_state.remove_topic(name))
        if context.topic_id(name) is None:
            context.put_topic(name, topic_id)
        elif context.is_to_be_deleted(name):
            continue
        for number, assignment in sorted(topic.assignment.partitions.items()):
            partition = TopicPartition(name, number)
            if not context.assignment(partition):
                assigned[partition] = assignment.replicas
                if len(assigned) % LOOKED_AT_A_TURN == 0:
                    yield from work.writer.pause()
    states = yield from work.reader.states(assigned)
    controller_state.unusable |= states.unusable
    for count, (partition, replicas) in enumerate(assigned.items(), 1):
        if count % PARTITIONS_A_TURN == 0:
            yield from work.writer.pause()
        controller_state.add_partition(partition, replicas, states.leaderships.get(partition))


def _give_id(work: EventContext, name: str, topic: ReadTopic, topic_id: TopicId) -> Steps[TopicId]:
    data = encode_topic(replace(topic.assignment, topic_id=topic_id))
    (stat,) = yield from work.writer.write([Set(topic_path(name), data, topic.version)])
    assert isinstance(stat, Stat)
    return topic_id
