"""/consumers/G/offsets: the positions that OffsetCommit 0 and OffsetFetch 0 are about.

As in Kafka with ZooKeeper any broker answers, and no coordinator knows of them: clients that move
from version 0 to a later one copy what they have committed.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from klog_broker.metadata.errors import NoAnswer
from klog_broker.metadata.zookeeper.bad_znodes import BadZnodes
from klog_broker.metadata.zookeeper.conversation import (
    Ask,
    Conversation,
    Steps,
    create,
    sync,
    together,
)
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.zookeeper.sessions import (
    ANY_VERSION,
    Node,
    NoNode,
    Session,
    ZooKeeperError,
)
from pyspark_klog.ids import Offset, TopicPartition
from pyspark_klog.znodes.consumers import decode_offset, encode_offset, offset_path
from pyspark_klog.znodes.data import ZnodeError

TIMEOUT_MS = 30_000
"""How long a request waits for ZooKeeper."""
_AT_ONCE = 200

Fetched = Mapping[TopicPartition, Offset | Exception | None]
"""None: nothing is committed."""
Committed = Mapping[TopicPartition, Exception | None]
"""None: it is written."""


class ConsumerOffsets:
    """For the loop's thread; a SessionUser. A request whose connection broke is made again."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._bad = BadZnodes(logging.getLogger("klog.cluster"))
        self._session: Session | None = None
        self._jobs: dict[_Job, None] = {}

    def connected(self, session: Session) -> None:
        """See SessionUser."""
        self._session = session
        for job in tuple(self._jobs):
            job.begin(session)

    def expired(self) -> None:
        """See SessionUser. Requests wait for the next session."""
        self._session = None

    def fetch(
        self, group_id: str, partitions: Sequence[TopicPartition], done: Callable[[Fetched], None]
    ) -> None:
        """The group's positions. The error of each that cannot be read is ZnodeError, of a group
        that can have no znode, too; NoAnswer, or another ZooKeeperError."""
        asked = dict.fromkeys(partitions)
        self._ask(_Job(group_id, asked, self._read, done))

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, Offset],
        done: Callable[[Committed], None],
    ) -> None:
        """Write positions. Errors as of `fetch`; after NoAnswer it may be written all the same."""
        self._ask(_Job(group_id, offsets, _write, done))

    def _ask(self, job: "_Job") -> None:
        timer = self._loop.call_later(TIMEOUT_MS, job.give_up)

        def over() -> None:
            timer.cancel()
            self._jobs.pop(job, None)

        job.when_over = over
        self._jobs[job] = None
        if self._session is not None:
            job.begin(self._session)

    def _read(self, session: Session, paths: Mapping[str, Any]) -> Steps[list[Any]]:
        # What another broker has answered is there, also if this one's server lags behind.
        lost = yield from sync(session)
        if lost is not None:
            return [lost] * len(paths)
        nodes = yield from together([partial(session.get, path) for path in paths])
        return [self._offset(path, node) for path, node in zip(paths, nodes, strict=True)]

    def _offset(self, path: str, node: Node | ZooKeeperError) -> Offset | Exception | None:
        if isinstance(node, ZooKeeperError):
            return None if isinstance(node, NoNode) else node
        try:
            return decode_offset(path, node.data)
        except ZnodeError as error:
            self._bad.name(path, node.data, str(error))
            return error


def _write(session: Session, paths: Mapping[str, Offset]) -> Steps[list[Any]]:
    """Whichever version there is: of two that commit at once the last one counts."""
    data = {path: encode_offset(offset) for path, offset in paths.items()}
    sets: list[Ask] = [partial(_set, session, path, data[path]) for path in paths]
    found = dict(zip(paths, (yield from together(sets)), strict=True))
    new = [path for path, answer in found.items() if isinstance(answer, NoNode)]
    for parent in dict.fromkeys(path.rpartition("/")[0] for path in new):
        yield from create(session, parent, b"")
    creates: list[Ask] = [partial(_create, session, path, data[path]) for path in new]
    found.update(zip(new, (yield from together(creates)), strict=True))
    # Another request, or this one before its connection broke, has made it.
    again = [path for path in new if isinstance(found[path], ZooKeeperError)]
    sets = [partial(_set, session, path, data[path]) for path in again]
    found.update(zip(again, (yield from together(sets)), strict=True))
    return [each if isinstance(each, ZooKeeperError) else None for each in found.values()]


def _set(session: Session, path: str, data: bytes, done: Callable[[Any], None]) -> None:
    session.set(path, data, ANY_VERSION, done)


def _create(session: Session, path: str, data: bytes, done: Callable[[Any], None]) -> None:
    session.create(path, data, done)


class _Job:
    """One request; its partitions a part at a time."""

    def __init__(
        self,
        group_id: str,
        asked: Mapping[TopicPartition, Any],
        part: Callable[[Session, Mapping[str, Any]], Steps[list[Any]]],
        done: Callable[[Any], None],
    ) -> None:
        self.when_over: Callable[[], None] = lambda: None
        self._group_id = group_id
        self._asked = asked
        self._part = part
        self._done = done
        self._results: dict[TopicPartition, Any] = {}
        self._conversation = Conversation()

    def begin(self, session: Session) -> None:
        """Ask, in this session or connection; what is answered already is not asked again."""
        self._conversation.begin(self._steps(session))

    def give_up(self) -> None:
        """Nobody has answered in time."""
        self._conversation.drop()
        error = NoAnswer(f"ZooKeeper did not answer within {TIMEOUT_MS} ms")
        self._finish({each: self._results.get(each, error) for each in self._asked})

    def _steps(self, session: Session) -> Steps[None]:
        left = iter([each for each in self._asked if each not in self._results])
        while part := tuple(islice(left, _AT_ONCE)):
            paths: dict[str, Any] = {}
            named: list[TopicPartition] = []
            for each in part:
                try:
                    paths[offset_path(self._group_id, each)] = self._asked[each]
                    named.append(each)
                except ZnodeError as error:
                    self._results[each] = error
            answers = yield from self._part(session, paths)
            self._results.update(zip(named, answers, strict=True))
        self._finish(self._results)

    def _finish(self, results: Mapping[TopicPartition, Any]) -> None:
        self.when_over()
        self._done(results)
