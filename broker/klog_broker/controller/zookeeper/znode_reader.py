"""Reads the controller's znodes: brokers, topics, partition states, deletions. Watches these
znodes except for partition states, which only the controller writes.

A znode that is malformed, or that an access list forbids to read, is named in the log once and left
unchanged. The controller skips its broker, topic or partition. The znode is read again when the
controller reads everything again, and a malformed registration or topic also when it changes (a
partition state and a forbidden znode have no watch). Without the lists of brokers and topics the
controller cannot work, so a failure to read these lists makes it start reading again.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from klog_broker.controller.decisions.context import Leadership, RegisteredBroker
from klog_broker.controller.decisions.leader_election import LeaderAndIsr
from klog_broker.controller.zookeeper.errors import ControllerStateOutdated
from klog_broker.metadata.errors import InvalidTopicName
from klog_broker.metadata.image import check_topic_name
from klog_broker.metadata.zookeeper.bad_znodes import BadZnodes
from klog_broker.metadata.zookeeper.conversation import Ask, Steps, together
from klog_broker.metadata.zookeeper.registration_reader import decode_registration
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
"""The number of concurrent read requests to ZooKeeper: few enough that one event-loop turn, in
which all their responses may arrive, can handle these responses."""
_DECODED_A_TURN = 1_500
"""The number of partitions of one topic's znode decoded in one event-loop turn: about 3 ms."""
_DECODED_A_TURN_BYTES = 32_768
"""The size of topic znodes decoded in one event-loop turn: about 1,500 partitions."""
_SHOWN = 300
"""The number of characters that the log shows of an illegal topic name."""


class Subject(Enum):
    """The kind of znodes that changed."""

    BROKERS = "brokers"
    TOPICS = "topics"
    DELETIONS = "deletions"


class ZnodeChange(NamedTuple):
    """A change that a watch reported.

    `topic` is the topic whose assignment changed; "" for all other changes, including a change of
    the list of topics.
    """

    subject: Subject
    topic: str = ""


class ReadBrokers(NamedTuple):
    """The readable broker registrations, and the version of /brokers/ids, which each klog broker
    raises when it registers."""

    version: int
    brokers: Mapping[BrokerId, RegisteredBroker]


class ReadTopic(NamedTuple):
    """A topic's assignment, and the version of its znode."""

    assignment: TopicAssignment
    version: int


class ReadTopics(NamedTuple):
    """The readable topics, the names without a znode, and the names with an unreadable znode."""

    found: Mapping[str, ReadTopic]
    gone: tuple[str, ...]
    unreadable: tuple[str, ...]


class ReadStates(NamedTuple):
    """The states of partitions, and the partitions with an unreadable state znode."""

    leaderships: Mapping[TopicPartition, Leadership]
    unusable: frozenset[TopicPartition]


class Reader:
    """Reads znodes over one connection. Sets a watch on each znode, except for partition states,
    and except where an earlier watch is still set."""

    def __init__(
        self,
        session: Session,
        on_change: Callable[[ZnodeChange], None],
        call_soon: Callable[[Callable[[], None]], None],
    ) -> None:
        self._session = session
        self._on_change = on_change
        self._call_soon = call_soon
        self._watched: set[str] = set()
        self._bad = BadZnodes(_log)

    def brokers(self) -> Steps[ReadBrokers]:
        """Read the broker registrations; malformed and forbidden ones are left out.

        The version is read before the list, so that the list contains all other registrations up to
        this version.
        """
        ids = yield from self._get(BROKER_IDS, ZnodeChange(Subject.BROKERS))
        if not isinstance(ids, Node):
            raise ControllerStateOutdated(f"the registrations of brokers cannot be read: {ids}")
        names = yield from self._children(BROKER_IDS, ZnodeChange(Subject.BROKERS))
        found: dict[BrokerId, RegisteredBroker] = {}
        known = {}
        for name in names:
            broker_id = registered_id(name)
            if broker_id is None:
                self.log_unusable_znode(
                    f"{BROKER_IDS}/{name}", b"", "a name that is no broker's id"
                )
            else:
                known[broker_path(broker_id)] = broker_id
        nodes = yield from self._get_all(dict.fromkeys(known, ZnodeChange(Subject.BROKERS)))
        for path, node in nodes.items():
            if node is None:
                continue
            try:
                registration = decode_registration(known[path], node.data)
            except ZnodeError as error:
                self.log_unusable_znode(path, node.data, str(error))
            else:
                found[known[path]] = RegisteredBroker(registration, node.stat.czxid)
        return ReadBrokers(ids.stat.version, found)

    def topic_names(self) -> Steps[tuple[str, ...]]:
        """The names of all topics, including topics with an unreadable znode."""
        names = yield from self._children(TOPICS, ZnodeChange(Subject.TOPICS))
        return names

    def deletions(self) -> Steps[tuple[str, ...]]:
        """The names of the topics to be deleted: the children of /admin/delete_topics."""
        names = yield from self._children(DELETE_TOPICS, ZnodeChange(Subject.DELETIONS))
        return names

    def topics(self, names: Iterable[str]) -> Steps[ReadTopics]:
        """Read the znodes of these topics. A topic with an illegal name is in no part of the
        result."""
        paths = {topic_path(name): name for name in names if self._is_legal(name)}
        changes = {path: ZnodeChange(Subject.TOPICS, name) for path, name in paths.items()}
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
                self.log_unusable_znode(path, node.data, str(error))
        gone = tuple(name for path, name in paths.items() if path not in nodes)
        return ReadTopics(found, gone, tuple(unreadable))

    def assignment(self, topic: str, data: bytes) -> Steps[TopicAssignment]:
        """Decode a topic's znode; a large topic takes several event-loop turns.

        :raises ZnodeError: if the data is malformed
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
        """Read the state znodes of these partitions, without watches: only the controller writes
        them."""
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
                    self.log_unusable_znode(path, node.data, str(error))
        return ReadStates(found, frozenset(unusable))

    def _is_legal(self, name: str) -> bool:
        """Whether brokers accept this topic name; names an illegal one in the log."""
        try:
            check_topic_name(name)
        except InvalidTopicName as error:
            self.log_unusable_znode(topic_path(name[:_SHOWN]), b"", str(error))
            return False
        return True

    def _pause(self) -> Steps[None]:
        yield lambda done: self._call_soon(lambda: done(None))

    # --- requests to ZooKeeper -----------------------------------------------------------------

    def _get(self, path: str, change: ZnodeChange) -> Steps[Node | ZooKeeperError]:
        node: Node | ZooKeeperError
        node = yield self._ask_get(path, change)
        return node

    def _children(self, path: str, change: ZnodeChange) -> Steps[tuple[str, ...]]:
        listed: Children | ZooKeeperError
        listed = yield self._watching(f"{path}/*", change, partial(self._session.children, path))
        if isinstance(listed, Children):
            return listed.names
        if isinstance(listed, NoAuth) and path == DELETE_TOPICS:
            self.log_unusable_znode(path, b"", str(listed))
            return ()
        raise ControllerStateOutdated(f"the children of {path} cannot be read: {listed}")

    def _get_all(self, changes: Mapping[str, ZnodeChange | None]) -> Steps[dict[str, Node | None]]:
        """Read the znodes at these paths. Missing znodes are absent from the result; None means
        that an access list forbids to read the znode."""
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
                    self.log_unusable_znode(path, b"", str(answer))
                elif not isinstance(answer, NoNode):
                    raise ControllerStateOutdated(f"{path} cannot be read: {answer}")
        return found

    def _ask_get(self, path: str, change: ZnodeChange | None) -> Ask:
        ask = partial(self._session.get, path)
        return ask if change is None else self._watching(path, change, ask)

    def _watching(self, key: str, change: ZnodeChange, ask: Callable[..., None]) -> Ask:
        """Return a request to ZooKeeper: a function that calls `ask`, which reads a znode, and lets
        the read also set a watch, unless the watch `key` is set already.

        `key` is the name of the watch in `_watched`, the set of watches. A failed request sets no
        watch, so `key` is then removed from `_watched`.
        """

        def changed() -> None:
            self._watched.discard(key)
            self._on_change(change)

        def asking(done: Callable[[Any], None]) -> None:
            if key in self._watched:
                ask(done)
                return
            self._watched.add(key)

            def on_response(answer: Any) -> None:
                if isinstance(answer, ZooKeeperError):
                    self._watched.discard(key)
                done(answer)

            ask(on_response, watch=changed)

        return asking

    def log_unusable_znode(self, path: str, data: bytes, why: str) -> None:
        """Name an unusable znode in the log; repeat this only when the znode's data has changed, or
        when many other unusable znodes were named meanwhile (BadZnodes)."""
        self._bad.name(path, data, why)


def _leadership(partition: TopicPartition, node: Node) -> Leadership:
    state = decode_partition_state(partition, node.data)
    is_recovering = state.leader_recovery_state is LeaderRecoveryState.RECOVERING
    decided = LeaderAndIsr(state.leader, state.leader_epoch, state.isr, is_recovering)
    return Leadership(decided, state.controller_epoch, node.stat.version, node.stat.mzxid)
