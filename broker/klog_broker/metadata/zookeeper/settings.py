"""/config and /config/changes: reads, follows and changes settings and quotas.

All settings are read at each connection. After that, notifications below /config/changes name the
settings to read again. A change is one multi: it writes the settings, if their version is the one
that was read, and the notification for the other brokers. Each read or change begins only when the
one before it has ended, so that an earlier read never replaces the result of a later change.
"""

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from klog_broker.metadata.errors import NoResponse, UnknownTopic, UnreadableConfig
from klog_broker.metadata.zookeeper.conversation import (
    Conversation,
    Steps,
    exists,
    get,
    multi,
    sync,
)
from klog_broker.metadata.zookeeper.settings_reading import CannotRead, Settings, SettingsReader
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.wheel import Timer
from klog_broker.runtime.zookeeper.sessions import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    MultiFailed,
    Node,
    NodeExists,
    NoNode,
    Operation,
    Session,
    Set,
    Stat,
    ZooKeeperError,
)
from pyspark_klog.znodes.configs import (
    CLIENTS,
    TOPICS,
    Entity,
    config_path,
    decode_config,
    encode_config,
    encode_config_change,
    entity,
)
from pyspark_klog.znodes.data import ZnodeError
from pyspark_klog.znodes.paths import CONFIG_CHANGE_PREFIX, CONFIG_CHANGES, topic_path

_log = logging.getLogger("klog.cluster")

RETRY_MS = 1_000
CHANGE_TIMEOUT_MS = 30_000
"""How long a change of settings waits for earlier changes and for ZooKeeper together, in
milliseconds."""
KEPT_MS = 15 * 60_000
"""How long a notification stays in /config/changes at least: as long as in Kafka, whose brokers
read missed notifications after some minutes without ZooKeeper. A broker of klog needs no
notifications after such a time, because it reads all settings when it connects to ZooKeeper
again."""
_TRIES = 100

Update = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Returns an entity's new settings, made from its present settings, or raises an error to refuse
the change."""

OnRead = Callable[[Settings, bool], None]
"""Called with settings that were read from ZooKeeper. The second argument is True if these are the
settings of all entities."""


class ClusterSettings:
    """Reads, follows and changes the settings and quotas below /config. Uses the broker's newest
    ZooKeeper session, which `connected` passes. For the loop's thread.

    When a change is written, the owner's callback `on_read` gets the new settings. After that, the
    callback `done` that was passed to `change` is called.
    """

    def __init__(self, loop: Loop, on_read: OnRead) -> None:
        self.topic_configs: Mapping[str, Mapping[str, str]] = MappingProxyType({})
        """The settings of each topic that has a znode below /config/topics, by the topic's name."""
        self.is_read = False
        """Whether all settings were read at least once."""
        self._loop = loop
        self._on_read = on_read
        self._reader = SettingsReader()
        self._topic_configs: dict[str, Mapping[str, str]] = {}
        self._session: Session | None = None
        self._conversation = Conversation()
        self._is_current = False
        self._is_notified = False
        self._seen_ms: dict[str, int] = {}
        self._jobs: deque[_Job] = deque()
        self._retry: Timer | None = None

    def connected(self, session: Session) -> None:
        """Read all settings in `session`, and then continue with the requested changes that
        wait."""
        self._session = session
        self._begin_anew()

    def expired(self) -> None:
        """Keep the settings that were read last, and let changes wait for the next session."""
        self._session = None
        self._is_current = False
        self._conversation.drop()
        self._cancel_retry()

    # --- requests to read and change settings ----------------------------------------------------
    def learn_topics(self, names: Sequence[str], done: Callable[[], None]) -> None:
        """Read the settings of topics that are new to this broker, because no notification is
        written for a new topic. Calls `done` once the settings are in `topic_configs` (except
        settings that cannot be decoded); this may wait for ZooKeeper."""
        self._enqueue(_Learning(self._taken, names, done))

    def forget_topic(self, name: str) -> None:
        """Remove the settings of a deleted topic from `topic_configs`."""
        self._topic_configs.pop(name, None)

    def change(
        self, names: Entity, update: Update, done: Callable[[Exception | None], None]
    ) -> None:
        """Change the settings of an entity. `update` may be called several times. `done` gets None
        once `on_read` has been called with the new settings, or else an error: the one that
        `update` raised, UnknownTopic, UnreadableConfig, a ZooKeeperError, or NoResponse. NoResponse
        means that the outcome was not known within CHANGE_TIMEOUT_MS, so that the change may still
        be made, or that in _TRIES attempts another request always changed the same settings
        first."""
        job = _Change(self._taken, names, update, done)
        timer = self._loop.call_later(CHANGE_TIMEOUT_MS, lambda: self._give_up(job))
        job.when_over = timer.cancel
        self._enqueue(job)

    def _enqueue(self, job: "_Job") -> None:
        self._jobs.append(job)
        self._run_jobs()

    def _give_up(self, job: "_Change") -> None:
        if job in self._jobs:
            self._jobs.remove(job)
        job.finish(
            NoResponse(
                f"ZooKeeper did not answer within {CHANGE_TIMEOUT_MS} ms; the change may still be"
                " made: describe the settings to find out"
            )
        )

    # --- the conversation with ZooKeeper: reads, follows and changes settings --------------------
    def _begin_anew(self) -> None:
        self._is_current = False
        self._cancel_retry()
        if self._session is not None:
            self._conversation.start_steps(self._steps(self._session))

    def _notified(self) -> None:
        self._is_notified = True
        self._run_jobs()

    def _run_jobs(self) -> None:
        if self._is_current and self._session is not None and not self._conversation.is_under_way:
            self._conversation.start_steps(self._steps(self._session))

    def _steps(self, session: Session) -> Steps[None]:
        try:
            if not self._is_current:
                yield from self._read_all(session)
            while self._is_notified or self._jobs:
                if self._is_notified:
                    yield from self._follow(session)
                    continue
                job = self._jobs[0]
                yield from job.run(session, self._reader)
                if self._jobs and self._jobs[0] is job:
                    self._jobs.popleft()
        except CannotRead as error:
            self._is_current = False
            _log.error("cannot read the cluster's settings, this broker tries again: %s", error)
            self._retry = self._loop.call_later(RETRY_MS, self._begin_anew)

    def _read_all(self, session: Session) -> Steps[None]:
        # List the notifications first: all settings are read afterwards, and so include the changes
        # that these notifications are about.
        self._is_notified = False
        names = yield from self._reader.notifications(session, self._notified)
        self._see(names)
        found = yield from self._reader.all(session)
        self._is_current = self.is_read = True
        self._topic_configs = _of_topics(found)
        self.topic_configs = MappingProxyType(self._topic_configs)
        self._on_read(found, True)

    def _follow(self, session: Session) -> Steps[None]:
        self._is_notified = False
        names = yield from self._reader.notifications(session, self._notified)
        new = self._see(names)
        changed = yield from self._reader.changed(session, new)
        found = yield from self._reader.of(session, changed)
        if found:
            self._taken(found)
        self._purge(session)

    def _taken(self, found: Settings) -> None:
        self._topic_configs.update(_of_topics(found))
        self._on_read(found, False)

    def _see(self, names: Sequence[str]) -> list[str]:
        """Return those of `names`, the notifications in ZooKeeper now, that were not among the
        names at the last call."""
        before, now_ms = self._seen_ms, self._loop.now_ms()
        self._seen_ms = {name: before.get(name, now_ms) for name in names}
        return [name for name in names if name not in before]

    def _purge(self, session: Session) -> None:
        """Delete notifications older than KEPT_MS. Each broker does so after a new notification,
        like Kafka. A notification's age counts from the time when this broker first listed it,
        because the brokers' clocks may differ."""
        oldest_ms = self._loop.now_ms() - KEPT_MS
        for name, seen_ms in self._seen_ms.items():
            if seen_ms < oldest_ms:
                session.delete(f"{CONFIG_CHANGES}/{name}", ANY_VERSION, lambda _: None)

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None


class _Job(ABC):
    """A request to read or change settings. Jobs run one after the other. Before a job runs, the
    settings that new notifications below /config/changes name are read again. A job that a lost
    connection has interrupted runs again."""

    @abstractmethod
    def run(self, session: Session, reader: SettingsReader, /) -> Steps[None]: ...


class _Learning(_Job):
    def __init__(
        self, taken: Callable[[Settings], None], names: Sequence[str], done: Callable[[], None]
    ) -> None:
        self._taken = taken
        self._entities = [entity(TOPICS, name) for name in names]
        self._done = done

    def run(self, session: Session, reader: SettingsReader) -> Steps[None]:
        # The controller may have created the topics at a ZooKeeper server that is ahead of this
        # broker's server, so sync before the read.
        lost = yield from sync(session)
        if lost is not None:
            raise CannotRead(str(lost))
        self._taken((yield from reader.of(session, self._entities)))
        self._done()


class _Change(_Job):
    def __init__(
        self,
        taken: Callable[[Settings], None],
        names: Entity,
        update: Update,
        done: Callable[[Exception | None], None],
    ) -> None:
        self.when_over: Callable[[], object] = lambda: None
        self._taken = taken
        self._names = names
        self._path = config_path(names)
        self._update = update
        self._done = done
        self._is_over = False

    def finish(self, error: Exception | None) -> None:
        """Call the change's `done` with the outcome, unless it was called before."""
        if not self._is_over:
            self._is_over = True
            self.when_over()
            self._done(error)

    def run(self, session: Session, _reader: SettingsReader) -> Steps[None]:
        error: Exception | None
        try:
            changed = yield from self._write(session)
        except Exception as refused:  # a caller's `update` may raise any exception
            error = refused
        else:
            error = None
            self._taken({self._names: changed})
        self.finish(error)

    def _write(self, session: Session) -> Steps[Mapping[str, str]]:
        """Write the changed settings of the entity to ZooKeeper, and return them."""
        is_newest = False
        for _ in range(_TRIES):
            node = yield from get(session, self._path)
            if isinstance(node, ZooKeeperError) and not isinstance(node, NoNode):
                raise node
            found = node if isinstance(node, Node) else None
            present = self._decode(found)
            changed = dict(self._update(present))
            if changed == present and is_newest:
                # The settings need no write. Perhaps an earlier attempt of this change was written,
                # and its response was lost.
                return changed
            if changed == present:
                # The settings seem to need no write, but the ZooKeeper server that answered the
                # read may not have another broker's change yet: sync, and read again.
                lost = yield from sync(session)
                if lost is not None:
                    raise lost
                is_newest = True
                continue
            answer = yield from multi(
                session, *(yield from self._operations(session, found, encode_config(changed)))
            )
            if isinstance(answer, tuple):
                return changed
            if not isinstance(answer, MultiFailed):
                raise answer
            is_missing = isinstance(answer.error, NoNode)
            if self._topic is not None and answer.index == 0 and is_missing:
                raise UnknownTopic(f"there is no topic {self._topic}")
            if not isinstance(answer.error, BadVersion | NodeExists | NoNode):
                raise answer
        raise NoResponse(
            f"each attempt to write {self._path} met a change by another request; try again"
        )

    def _decode(self, found: Node | None) -> Mapping[str, str]:
        if found is None:
            return {}
        try:
            return decode_config(self._path, found.data)
        except ZnodeError as error:
            raise UnreadableConfig(str(error)) from None

    @property
    def _topic(self) -> str | None:
        first = self._names[0]
        return first.name if first.entity_type == TOPICS else None

    def _operations(
        self, session: Session, found: Node | None, data: bytes
    ) -> Steps[list[Operation]]:
        operations: list[Operation] = []
        if self._topic is not None:
            operations.append(Check(topic_path(self._topic), ANY_VERSION))
        if found is not None:
            operations.append(Set(self._path, data, found.stat.version))
        else:
            for parent in self._parents():
                there = yield from exists(session, parent)
                if not isinstance(there, Stat):
                    operations.append(Create(parent, b""))
            operations.append(Create(self._path, data))
        change = f"{CONFIG_CHANGES}/{CONFIG_CHANGE_PREFIX}"
        operations.append(Create(change, encode_config_change(self._names), sequential=True))
        return operations

    def _parents(self) -> tuple[str, ...]:
        """Return the parents of the entity's znode that may be missing.

        A client id C of a user U has the znode /config/users/U/clients/C, whose parents U and
        clients are missing before the user's first client id gets quotas. The parents of all other
        entities always exist.
        """
        if len(self._names) == 1:
            return ()
        user = config_path(self._names[:1])
        return user, f"{user}/{CLIENTS}"


def _of_topics(found: Settings) -> dict[str, Mapping[str, str]]:
    return {
        name: MappingProxyType(dict(settings))
        for (first, *_), settings in found.items()
        if first.entity_type == TOPICS and (name := first.name) is not None
    }
