"""What a controller reads in ZooKeeper, and watches: brokers, topics, states, deletions.

A znode that is not what Kafka writes there, or that an access list keeps from the controller, is
named in the log, once, and left as it is; the controller goes on as if it were not there. It is
read again when it changes, or when everything is. Without the lists of brokers and of topics there
is nothing to go on with: they are tried again.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from klog_broker.controller.decisions.context import Leadership, RegisteredBroker
from klog_broker.controller.decisions.leader_election import LeaderAndIsr
from klog_broker.controller.zookeeper.errors import PictureOutdated
from klog_broker.metadata.errors import InvalidTopicName
from klog_broker.metadata.image import check_topic_name
from klog_broker.metadata.zookeeper.bad_znodes import BadZnodes
from klog_broker.metadata.zookeeper.conversation import Ask, Steps, together
from klog_broker.metadata.zookeeper.live_brokers import decode_registration
from klog_broker.runtime.zookeeper.sessions import (
    Children,
    NoAuth,
    Node,
    NoNode,
    Session,
    ZooKeeperError,
)
from pyspark_klog.ids import BrokerId, TopicPartition
from pyspark_klog.znodes.data import ZnodeError
from pyspark_klog.znodes.paths import (
    BROKER_IDS,
    DELETE_TOPICS,
    TOPICS,
    broker_path,
    partition_state_path,
    registered_id,
    topic_path,
)
from pyspark_klog.znodes.topics import (
    LeaderRecoveryState,
    TopicAssignment,
    decode_partition_state,
    decode_topic_in_steps,
)

_log = logging.getLogger("klog.controller")

_READ_AT_ONCE = 256
"""Answers of so many requests may come in one turn of the loop."""
_DECODED_A_TURN = 1_500
"""Partitions in the znode of one topic: some 3 ms."""
_DECODED_A_TURN_BYTES = 32_768
"""Of topics: some 1,500 partitions."""
_SHOWN = 300
"""Characters of a name that is too long."""


class Subject(Enum):
    """What has changed."""

    BROKERS = "brokers"
    TOPICS = "topics"
    DELETIONS = "deletions"


class Change(NamedTuple):
    """A reason to read again: `topic` is the one whose assignment has changed, "" for the list."""

    subject: Subject
    topic: str = ""


class ReadBrokers(NamedTuple):
    """All registrations. Whoever has registered since has raised the `version`."""

    version: int
    brokers: Mapping[BrokerId, RegisteredBroker]


class ReadTopic(NamedTuple):
    """A topic's assignment, and its znode's version."""

    assignment: TopicAssignment
    version: int


class ReadTopics(NamedTuple):
    """Topics that can be used, names of which there is none, and those that cannot be read."""

    found: Mapping[str, ReadTopic]
    gone: tuple[str, ...]
    unreadable: tuple[str, ...]


class ReadStates(NamedTuple):
    """States that were written, and partitions whose state cannot be used."""

    leaderships: Mapping[TopicPartition, Leadership]
    unusable: frozenset[TopicPartition]


class Reader:
    """Reads in one connection. Each watch is asked for once, until it is called."""

    def __init__(
        self,
        session: Session,
        on_change: Callable[[Change], None],
        call_soon: Callable[[Callable[[], None]], None],
    ) -> None:
        self._session = session
        self._on_change = on_change
        self._call_soon = call_soon
        self._watched: set[str] = set()
        self._bad = BadZnodes(_log)

    def brokers(self) -> Steps[ReadBrokers]:
        """The version first: registrations that it counts are there when they are listed."""
        ids = yield from self._get(BROKER_IDS, Change(Subject.BROKERS))
        if not isinstance(ids, Node):
            raise PictureOutdated(f"the registrations of brokers cannot be read: {ids}")
        names = yield from self._children(BROKER_IDS, Change(Subject.BROKERS))
        found: dict[BrokerId, RegisteredBroker] = {}
        known = {}
        for name in names:
            broker_id = registered_id(name)
            if broker_id is None:
                self.name_bad(f"{BROKER_IDS}/{name}", b"", "a name that is no broker's id")
            else:
                known[broker_path(broker_id)] = broker_id
        nodes = yield from self._get_all(dict.fromkeys(known, Change(Subject.BROKERS)))
        for path, node in nodes.items():
            if node is None:
                continue
            try:
                registration = decode_registration(known[path], node.data)
            except ZnodeError as error:
                self.name_bad(path, node.data, str(error))
            else:
                found[known[path]] = RegisteredBroker(registration, node.stat.czxid)
        return ReadBrokers(ids.stat.version, found)

    def topic_names(self) -> Steps[tuple[str, ...]]:
        """All topics, also those that cannot be used."""
        names = yield from self._children(TOPICS, Change(Subject.TOPICS))
        return names

    def deletions(self) -> Steps[tuple[str, ...]]:
        """The topics that are to be deleted."""
        names = yield from self._children(DELETE_TOPICS, Change(Subject.DELETIONS))
        return names

    def topics(self, names: Iterable[str]) -> Steps[ReadTopics]:
        """The topics of these names."""
        paths = {topic_path(name): name for name in names if self._is_legal(name)}
        changes = {path: Change(Subject.TOPICS, name) for path, name in paths.items()}
        nodes = yield from self._get_all(changes)
        found = {}
        unreadable = []
        decoded_bytes = 0
        for path, node in nodes.items():
            name = paths[path]
            if node is None:
                unreadable.append(name)
                continue
            decoded_bytes += len(node.data)
            if decoded_bytes >= _DECODED_A_TURN_BYTES:
                decoded_bytes = 0
                yield from self._pause()
            try:
                assignment = yield from self.assignment(name, node.data)
                found[name] = ReadTopic(assignment, node.stat.version)
            except ZnodeError as error:
                unreadable.append(name)
                self.name_bad(path, node.data, str(error))
        gone = tuple(name for path, name in paths.items() if path not in nodes)
        return ReadTopics(found, gone, tuple(unreadable))

    def assignment(self, topic: str, data: bytes) -> Steps[TopicAssignment]:
        """Decode a topic's znode, the partitions of a large topic in several turns.

        :raises ZnodeError: if it is none
        """
        decoding = decode_topic_in_steps(topic, data)
        try:
            while True:
                for _ in range(_DECODED_A_TURN):
                    next(decoding)
                yield from self._pause()
        except StopIteration as end:
            found: TopicAssignment = end.value
            return found

    def states(self, partitions: Iterable[TopicPartition]) -> Steps[ReadStates]:
        """What was written of these partitions. Only the controller writes it: nobody watches."""
        found = {}
        unusable = set()
        rest = iter(partitions)
        while some := list(islice(rest, _READ_AT_ONCE)):
            paths = {partition_state_path(partition): partition for partition in some}
            nodes = yield from self._get_all(dict.fromkeys(paths))
            for path, node in nodes.items():
                partition = paths[path]
                if node is None:
                    unusable.add(partition)
                    continue
                try:
                    found[partition] = _leadership(partition, node)
                except ZnodeError as error:
                    unusable.add(partition)
                    self.name_bad(path, node.data, str(error))
        return ReadStates(found, frozenset(unusable))

    def _is_legal(self, name: str) -> bool:
        """Others no broker could keep, or tell of."""
        try:
            check_topic_name(name)
        except InvalidTopicName as error:
            self.name_bad(topic_path(name[:_SHOWN]), b"", str(error))
            return False
        return True

    def _pause(self) -> Steps[None]:
        yield lambda done: self._call_soon(lambda: done(None))

    # --- requests ------------------------------------------------------------------------------

    def _get(self, path: str, change: Change) -> Steps[Node | ZooKeeperError]:
        node: Node | ZooKeeperError
        node = yield self._ask_get(path, change)
        return node

    def _children(self, path: str, change: Change) -> Steps[tuple[str, ...]]:
        listed: Children | ZooKeeperError
        listed = yield self._watching(f"{path}/*", change, partial(self._session.children, path))
        if isinstance(listed, Children):
            return listed.names
        if isinstance(listed, NoAuth) and path == DELETE_TOPICS:
            self.name_bad(path, b"", str(listed))
            return ()
        raise PictureOutdated(f"the children of {path} cannot be read: {listed}")

    def _get_all(self, changes: Mapping[str, Change | None]) -> Steps[dict[str, Node | None]]:
        """Data of these paths, without those that are not there; None: they may not be read."""
        found: dict[str, Node | None] = {}
        paths = list(changes)
        for first in range(0, len(paths), _READ_AT_ONCE):
            some = paths[first : first + _READ_AT_ONCE]
            answers = yield from together([self._ask_get(path, changes[path]) for path in some])
            for path, answer in zip(some, answers, strict=True):
                if isinstance(answer, Node):
                    found[path] = answer
                elif isinstance(answer, NoAuth):
                    found[path] = None
                    self.name_bad(path, b"", str(answer))
                elif not isinstance(answer, NoNode):
                    raise PictureOutdated(f"{path} cannot be read: {answer}")
        return found

    def _ask_get(self, path: str, change: Change | None) -> Ask:
        ask = partial(self._session.get, path)
        return ask if change is None else self._watching(path, change, ask)

    def _watching(self, key: str, change: Change, ask: Callable[..., None]) -> Ask:
        """The request with a watch, unless there is one. A request that fails leaves none: also if
        whoever made it no longer hears of that."""

        def changed() -> None:
            self._watched.discard(key)
            self._on_change(change)

        def asking(done: Callable[[Any], None]) -> None:
            if key in self._watched:
                ask(done)
                return
            self._watched.add(key)

            def answered(answer: Any) -> None:
                if isinstance(answer, ZooKeeperError):
                    self._watched.discard(key)
                done(answer)

            ask(answered, watch=changed)

        return asking

    def name_bad(self, path: str, data: bytes, why: str) -> None:
        """Name a znode that cannot be used; once, as long as it is as it is."""
        self._bad.name(path, data, why)


def _leadership(partition: TopicPartition, node: Node) -> Leadership:
    state = decode_partition_state(partition, node.data)
    is_recovering = state.leader_recovery_state is LeaderRecoveryState.RECOVERING
    decided = LeaderAndIsr(state.leader, state.leader_epoch, state.isr, is_recovering)
    return Leadership(decided, state.controller_epoch, node.stat.version, node.stat.mzxid)
