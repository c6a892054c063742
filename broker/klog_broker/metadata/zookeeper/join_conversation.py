"""The first ZooKeeper requests of a starting broker: find the cluster's id and the broker's id.

The requests are one conversation (conversation.py). The conversation creates the znodes that
Kafka's brokers create, in the same order: the persistent znodes, then the cluster id. Every step
can be repeated, so the conversation starts again after a lost connection.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from klog_broker.metadata.image import new_id
from klog_broker.metadata.zookeeper.conversation import (
    Conversation,
    Steps,
    create,
    exists,
    get,
    multi,
    put,
)
from klog_broker.runtime.system.chance import Chance
from klog_broker.runtime.zookeeper.sessions import (
    ANY_VERSION,
    Create,
    Created,
    MultiFailed,
    NodeExists,
    NoNode,
    Session,
    Stat,
    ZooKeeperError,
)
from pyspark_klog.ids import BrokerId
from pyspark_klog.storage.text_files import encode_topic_id
from pyspark_klog.znodes.cluster import (
    NO_FEATURES,
    decode_cluster_id,
    decode_controller,
    encode_cluster_id,
)
from pyspark_klog.znodes.data import ZnodeError
from pyspark_klog.znodes.paths import (
    BROKER_SEQUENCE,
    CLUSTER_ID,
    CONTROLLER,
    FEATURE,
    LOG_DIR_EVENTS,
    MIGRATION,
    PERSISTENT,
)

_log = logging.getLogger("klog.cluster")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The result of joining: the cluster's id and the broker's id, which the broker needs before it
    loads its logs."""

    cluster_id: str
    broker_id: BrokerId


@dataclass(frozen=True, slots=True)
class NotJoined:
    """The broker cannot join the cluster; `text` says why and what to do."""

    text: str


class JoinConversation:
    """Finds the cluster's id and the broker's id in ZooKeeper, and calls `done` once.

    If `broker_id` is None, the broker gets a generated id above `reserved_max_id` that no other
    broker was given. The requests are sent in the ZooKeeper session that is passed to `connected`.
    """

    def __init__(
        self,
        chance: Chance,
        broker_id: BrokerId | None,
        reserved_max_id: int,
        done: Callable[[JoinResult | NotJoined], None],
    ) -> None:
        self._chance = chance
        self._broker_id = broker_id
        self._reserved_max_id = reserved_max_id
        self._done = done
        self._is_done = False
        self._conversation = Conversation()

    def connected(self, session: Session) -> None:
        """Start the conversation (the sequence of ZooKeeper requests) in `session`, from its
        beginning, unless `done` was called."""
        if not self._is_done:
            self._conversation.start_steps(self._steps(session))

    def expired(self) -> None:
        """End the conversation (the sequence of ZooKeeper requests), which starts again in the next
        session."""
        self._conversation.drop()

    def _steps(self, session: Session) -> Steps[None]:
        try:
            yield from _refuse_migration(session)
            for path in PERSISTENT:
                make = _make_with_features if path == LOG_DIR_EVENTS else _make
                _check(path, (yield from make(session, path, b"")))
            cluster_id = yield from self._cluster_id(session)
            if self._broker_id is None:
                self._broker_id = yield from self._generate_id(session)
        except _Refused as refused:
            outcome: JoinResult | NotJoined = NotJoined(str(refused))
        else:
            outcome = JoinResult(cluster_id, self._broker_id)
        self._is_done = True
        self._done(outcome)

    def _cluster_id(self, session: Session) -> Steps[str]:
        node = yield from get(session, CLUSTER_ID)
        if isinstance(node, NoNode):
            made = encode_topic_id(new_id(self._chance))
            _check(CLUSTER_ID, (yield from _make(session, CLUSTER_ID, encode_cluster_id(made))))
            # Read the id again: another broker may have created the znode first.
            node = yield from get(session, CLUSTER_ID)
        try:
            return decode_cluster_id(_check(CLUSTER_ID, node).data)
        except ZnodeError as error:
            raise _Refused(str(error)) from None

    def _generate_id(self, session: Session) -> Steps[BrokerId]:
        stat = _check(BROKER_SEQUENCE, (yield from put(session, BROKER_SEQUENCE, b"", ANY_VERSION)))
        broker_id = BrokerId(stat.version + self._reserved_max_id)
        _log.info("broker_id=%d generated", broker_id)
        return broker_id


class _Refused(Exception):
    """The broker cannot join the cluster: send no further ZooKeeper requests. The text of this
    exception becomes the text of NotJoined, the outcome that the broker's start-up gets."""


def _refuse_migration(session: Session) -> Steps[None]:
    if _check(MIGRATION, (yield from exists(session, MIGRATION))) is not None:
        raise _Refused(
            f"the cluster is on its way to KRaft (there is {MIGRATION}), which klog does"
            " not support; end the migration, and delete that znode if ZooKeeper is to stay"
        )
    node = yield from get(session, CONTROLLER)
    if isinstance(node, NoNode):
        return
    try:
        controller = decode_controller(_check(CONTROLLER, node).data)
    except ZnodeError as error:
        # Join although the data of /controller cannot be decoded. The znode is deleted when the
        # broker that wrote it stops, and the controller election reports the bad data again.
        _log.error("znode=%s is ignored, and stays unchanged: %s", CONTROLLER, error)
        return
    if controller.kraft_controller_epoch != -1:
        raise _Refused(
            f"the cluster is led by KRaft's controller {controller.broker_id} ({CONTROLLER} has"
            f" kraftControllerEpoch {controller.kraft_controller_epoch}), which klog does not"
            " support; end the migration to KRaft first"
        )


def _make(session: Session, path: str, data: bytes) -> Steps[Stat | ZooKeeperError | None]:
    """Create a persistent znode unless it exists. Return its stat if it existed, None if this or
    another broker has just created it, or an error."""
    found = yield from exists(session, path)
    if found is None:
        made = yield from create(session, path, data)
        if isinstance(made, Created | NodeExists):
            return None
        return made
    return found


def _make_with_features(
    session: Session, path: str, data: bytes
) -> Steps[Stat | ZooKeeperError | None]:
    """Create the persistent znode `path`, and /feature in the same multi, unless `path` exists.

    If `path` exists, a broker of the cluster has started before: a broker of klog, which created
    /feature with `path`, or one of Kafka, whose controller creates /feature. Return the stat of
    `path` if it existed, None if this or another broker has just created it, or an error.
    """
    found = yield from exists(session, path)
    if found is not None:
        return found
    made = yield from multi(session, Create(path, data), Create(FEATURE, NO_FEATURES))
    if not isinstance(made, ZooKeeperError):
        return None
    if not isinstance(made, MultiFailed):
        return made
    if made.index == 0 and isinstance(made.error, NodeExists):
        return None  # another broker has created the znode since `exists`
    return (yield from _make(session, path, data))


def _check(path: str, answer: T | ZooKeeperError) -> T:
    if isinstance(answer, ZooKeeperError):
        raise _Refused(f"{path} in ZooKeeper cannot be used: {answer}")
    return answer
