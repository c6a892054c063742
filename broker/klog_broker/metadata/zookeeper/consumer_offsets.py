"""/consumers/G/offsets: the offsets that OffsetCommit and OffsetFetch of version 0 use.

Any broker serves these requests, like Kafka with ZooKeeper. Group coordinators, which serve the
later versions, do not have these offsets: a client that changes to a later version must commit its
offsets again.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from klog_broker.metadata.errors import NoResponse
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
"""How long a request to read or commit offsets waits for ZooKeeper, in milliseconds."""
_AT_ONCE = 200

Fetched = Mapping[TopicPartition, Offset | Exception | None]
"""By partition: the committed offset, an error, or None if no offset is committed."""
Committed = Mapping[TopicPartition, Exception | None]
"""By partition: the error, or None if the offset was written."""


class ConsumerOffsets:
    """Reads and writes committed offsets in ZooKeeper. Uses the broker's newest ZooKeeper session,
    which `connected` passes. For the loop's thread.

    If the connection to ZooKeeper is lost, unfinished requests continue at the next connection.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._bad = BadZnodes(logging.getLogger("klog.cluster"))
        self._session: Session | None = None
        self._jobs: dict[_Job, None] = {}

    def connected(self, session: Session) -> None:
        """Continue all unfinished fetches and commits in the ZooKeeper session `session`."""
        self._session = session
        for job in tuple(self._jobs):
            job.start_requests(session)

    def expired(self) -> None:
        """Let all unfinished fetches and commits wait for the next ZooKeeper session."""
        self._session = None

    def fetch_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition], done: Callable[[Fetched], None]
    ) -> None:
        """Read the group's committed offsets. Errors of a partition: ZnodeError if its znode cannot
        be decoded, or if the group's name cannot be part of a path; NoResponse if ZooKeeper has not
        answered within TIMEOUT_MS; or a ZooKeeperError.
        """
        asked = dict.fromkeys(partitions)
        self._queue_job(_Job(group_id, asked, self._read, done))

    def commit_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, Offset],
        done: Callable[[Committed], None],
    ) -> None:
        """Write the group's committed offsets. Errors of a partition: those of `fetch_offsets`.
        After NoResponse, the error for no response within TIMEOUT_MS, the offset may still be
        written."""
        self._queue_job(_Job(group_id, offsets, _write, done))

    def _queue_job(self, job: "_Job") -> None:
        timer = self._loop.call_later(TIMEOUT_MS, job.give_up)

        def over() -> None:
            timer.cancel()
            self._jobs.pop(job, None)

        job.when_over = over
        self._jobs[job] = None
        if self._session is not None:
            job.start_requests(self._session)

    def _read(self, session: Session, paths: Mapping[str, Any]) -> Steps[list[Any]]:
        # This broker's ZooKeeper server may lag behind. Sync first, so that the read includes each
        # offset that another broker has acknowledged.
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
    """Write offsets whatever version their znodes have: of two concurrent commits the last wins."""
    data = {path: encode_offset(offset) for path, offset in paths.items()}
    sets: list[Ask] = [partial(_set, session, path, data[path]) for path in paths]
    found = dict(zip(paths, (yield from together(sets)), strict=True))
    new = [path for path, answer in found.items() if isinstance(answer, NoNode)]
    for parent in dict.fromkeys(path.rpartition("/")[0] for path in new):
        yield from create(session, parent, b"")
    creates: list[Ask] = [partial(_create, session, path, data[path]) for path in new]
    found.update(zip(new, (yield from together(creates)), strict=True))
    # A create fails if the znode exists by now: another request has created it, or this request
    # before a lost connection. Set the data of such a znode.
    again = [path for path in new if isinstance(found[path], ZooKeeperError)]
    sets = [partial(_set, session, path, data[path]) for path in again]
    found.update(zip(again, (yield from together(sets)), strict=True))
    return [each if isinstance(each, ZooKeeperError) else None for each in found.values()]


def _set(session: Session, path: str, data: bytes, done: Callable[[Any], None]) -> None:
    session.set(path, data, ANY_VERSION, done)


def _create(session: Session, path: str, data: bytes, done: Callable[[Any], None]) -> None:
    session.create(path, data, done)


class _Job:
    """A request to fetch or commit offsets, which reads or writes at most _AT_ONCE partitions at a
    time."""

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

    def start_requests(self, session: Session) -> None:
        """Read or write, in `session`, the offsets of the partitions that have no result so far."""
        self._conversation.start_steps(self._steps(session))

    def give_up(self) -> None:
        """Finish the request after TIMEOUT_MS: partitions without a result get NoResponse."""
        self._conversation.drop()
        error = NoResponse(f"ZooKeeper did not answer within {TIMEOUT_MS} ms")
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
