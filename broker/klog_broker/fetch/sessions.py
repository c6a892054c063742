"""Fetch sessions (KIP-227): what a client waits for is named once, and it is told only of changes.

A session keeps two lists. *Unread* are the partitions that the next fetch has to look at: those
that the client has just named, those that had bytes or an error in the last answer, and those of
which something was heard since (their watermark or log start grew, their leadership ended, their
settings changed). Of all others nothing can have come: they are not looked at, but listened to. So
a fetch over a thousand idle partitions costs as much as one over none.

Kafka's rules (FetchSession.scala): at most ``max.incremental.fetch.session.cache.slots`` sessions;
a new one takes the place of one that nobody used for two minutes, or of a smaller one that is older
than that; a client that gets none goes on with whole fetches. Kafka bounds the sessions alone, klog
their partitions, too: a client that went away leaves its session behind, however large.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from klog_broker.fetch.partition_read import ReadPartition
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.purgatory import Purgatory
from klog_broker.runtime.system.chance import Chance
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import UUID, TopicPartition
from pyspark_klog.protocol.apis.fetch import FetchPartition

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_INT32_MAX = 2**31 - 1

MIN_EVICTION_MS = 120_000
"""So long a session is safe from those who want its place (Kafka: ServerConfigs
MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS)."""

MAX_PARTITIONS = 64_000
"""Of all sessions together: they take 40 MB, some 640 bytes each. Where more are wanted, sessions
that nobody used for MIN_EVICTION_MS end; if that is not enough, the client fetches whole."""

_LOOK_FOR_SMALLER_MS = 1000

PartitionKey = tuple[str, UUID, int]
"""A topic's name or its id, as the session's versions of Fetch have it, and the partition."""


def next_epoch(epoch: int) -> int:
    """The epoch of the request after one with this epoch; 0 and -1 are never reached again."""
    return 1 if epoch == _INT32_MAX else epoch + 1


class SessionPartition(ReadPartition):
    """A partition of a session, and what the client was told of it last."""

    __slots__ = ("_session", "is_listening", "sent_high_watermark", "sent_log_start_offset")

    def __init__(
        self, session: FetchSession, topic: str, topic_id: UUID, name: str, request: FetchPartition
    ) -> None:
        super().__init__(topic, topic_id, name, request)
        self._session = session
        self.is_listening = False
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1

    @property
    def key(self) -> PartitionKey:
        return self.topic, self.topic_id, self.request.partition

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.name, self.request.partition)

    def on_checked(self) -> None:
        """Something has happened to the partition (see Purgatory.listen)."""
        self.is_listening = False
        leader = self.leader
        if leader is not None:
            if leader.ended is not None:
                # Its log, and the files of that, may be gone.
                self.leader = None
            elif self._session.is_of_follower and not (self.has_moved or leader.log.is_offline):
                self._session.read_some_time(self)
                return
        self._session.must_read(self)

    @property
    def has_news(self) -> bool:
        """Whether the last read found anything that the client has to be told."""
        return (
            self.size_bytes > 0
            or self.error_code is not ErrorCode.NONE
            or self.diverging_epoch is not None
            or self.high_watermark != self.sent_high_watermark
            or self.log_start_offset != self.sent_log_start_offset
        )

    def note_sent(self) -> None:
        """The client is told now what was read. It is told an error with each answer until the
        error is over, and then the watermark; so is a follower whose log has to be cut first, which
        takes nothing else from that answer."""
        if self.diverging_epoch is not None:
            self.forget_sent()
            return
        self.sent_high_watermark = self.high_watermark
        self.sent_log_start_offset = self.log_start_offset

    def forget_sent(self) -> None:
        """The client may not have taken what it was told last."""
        self.sent_high_watermark = self.sent_log_start_offset = -1

    @property
    def is_done(self) -> bool:
        """Whether only an event can bring anything that would have to be told."""
        return self.is_at_end and not self.has_news


class KeptPartitions:
    """How many partitions all sessions have together."""

    def __init__(self) -> None:
        self.count = 0


class FetchSession:
    """What one client waits for. Loop thread only."""

    def __init__(
        self,
        session_id: int,
        loop: Loop,
        purgatory: Purgatory,
        kept: KeptPartitions,
        *,
        uses_topic_ids: bool,
        is_of_follower: bool,
    ) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.is_of_follower = is_of_follower
        self.epoch = next_epoch(INITIAL_EPOCH)
        """Which the next request must have."""
        self.created_ms = self.last_used_ms = loop.now_ms()
        self.partitions: dict[PartitionKey, SessionPartition] = {}
        self.events = 0
        """Rises whenever something was heard that a read can bring to light."""
        self.is_over = False
        self.rules_version = 0
        """The version of the rules under which the session's partitions were read."""
        self._purgatory = purgatory
        self._kept = kept
        self._unread: dict[SessionPartition, None] = {}

    def unread(self) -> list[SessionPartition]:
        """The partitions that have to be read now, those that waited longest first."""
        return list(self._unread)

    def must_read(self, each: SessionPartition) -> None:
        """The next read of the partition may find something else than the last one."""
        self._unread[each] = None
        self._tell_waiting()

    def apply_rules(self, version: int) -> None:
        """Have all partitions read again if the version of the rules has changed: the next response
        reports the partitions that the client may no longer read."""
        if version != self.rules_version:
            self.rules_version = version
            for each in self.partitions.values():
                self._unread[each] = None

    def read_some_time(self, each: SessionPartition) -> None:
        """The next answer tells more of the partition, and nobody waits for that: a follower asks
        for records, and is told of watermarks beside them."""
        self._unread[each] = None
        self._listen(each)

    def _tell_waiting(self) -> None:
        self.events += 1
        # One look for all that this turn brings.
        self._purgatory.check_soon(self)

    def want(
        self, topic: str, topic_id: UUID, name: str, request: FetchPartition
    ) -> SessionPartition:
        """The client asks for this partition from now on, as it says here."""
        key = (topic, topic_id, request.partition)
        found = self.partitions.get(key)
        if found is None:
            # Of its own: the request can be one that is kept, and written over (cached_fetch.py).
            own = FetchPartition(partition=request.partition)
            found = SessionPartition(self, topic, topic_id, name, own)
            self.partitions[key] = found
            self._kept.count += 1
        wanted = found.request
        if self.is_of_follower and wanted.current_leader_epoch != request.current_leader_epoch:
            # It drops an answer that comes when its leader has begun another epoch.
            found.forget_sent()
        wanted.fetch_offset = request.fetch_offset
        wanted.log_start_offset = request.log_start_offset
        wanted.partition_max_bytes = request.partition_max_bytes
        wanted.current_leader_epoch = request.current_leader_epoch
        wanted.last_fetched_epoch = request.last_fetched_epoch
        found.is_noted = False
        self._unread[found] = None
        return found

    def forget(self, key: PartitionKey) -> None:
        """The client asks for the partition no longer; not an error if it never did."""
        found = self.partitions.pop(key, None)
        if found is not None:
            self._kept.count -= 1
            self._unread.pop(found, None)
            self._unlisten(found)

    def listen(self, read: Iterable[SessionPartition]) -> None:
        """Listens to partitions that were read: from now on no event of theirs may be missed.
        Those that are done leave the list of the unread."""
        for each in read:
            if not each.is_listening:
                self._listen(each)
            if each.is_done:
                self._unread.pop(each, None)

    def tell(self, read: Iterable[SessionPartition]) -> list[SessionPartition]:
        """Which of the partitions that were read the client is told of now. Those with bytes go
        behind the others, so that each comes within the request's bytes at some time."""
        told = []
        idle = []
        for each in read:
            if each.has_news:
                told.append(each)
                if each.size_bytes:
                    self._unread.pop(each, None)
                    self._unread[each] = None
                each.note_sent()
            if each.is_done:
                idle.append(each)
            else:
                # Nobody tells of the end of its leadership while it is not listened to, and the
                # session would hold its log.
                each.leader = None
        self.listen(idle)
        return told

    def end(self) -> None:
        """Ends the session; a fetch of it that waits is answered."""
        self.is_over = True
        self._kept.count -= len(self.partitions)
        for each in self.partitions.values():
            self._unlisten(each)
        self._tell_waiting()

    def _listen(self, each: SessionPartition) -> None:
        each.is_listening = True
        self._purgatory.listen(each, each.topic_partition)

    def _unlisten(self, each: SessionPartition) -> None:
        if each.is_listening:
            each.is_listening = False
            self._purgatory.unlisten(each, each.topic_partition)


class FetchSessions:
    """The sessions of one broker. Loop thread only."""

    def __init__(self, loop: Loop, purgatory: Purgatory, chance: Chance, slots: int) -> None:
        self._loop = loop
        self._purgatory = purgatory
        self._chance = chance
        self._slots = slots
        # By id, the one that was used longest ago first.
        self._sessions: dict[int, FetchSession] = {}
        self._next_look_ms = 0
        self._kept = KeptPartitions()

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, session_id: int) -> FetchSession | None:
        """The session, unless it is over."""
        return self._sessions.get(session_id)

    def use(self, session: FetchSession) -> None:
        """A request came for it: the next one has the next epoch."""
        session.epoch = next_epoch(session.epoch)
        session.last_used_ms = self._loop.now_ms()
        del self._sessions[session.session_id]
        self._sessions[session.session_id] = session

    def end(self, session_id: int) -> None:
        """Ends a session; not an error if there is none."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.end()

    def begin(
        self, told: Sequence[ReadPartition], *, uses_topic_ids: bool, is_of_follower: bool = False
    ) -> FetchSession | None:
        """A session of the partitions of a whole fetch, of which the client is told just now what
        was read; None if there is no room."""
        if not (told and self._find_slot(len(told), is_of_follower) and self.find_room(len(told))):
            return None
        session_id = 1 + self._chance.below(_INT32_MAX)
        while session_id in self._sessions:
            session_id = 1 + self._chance.below(_INT32_MAX)
        session = FetchSession(
            session_id,
            self._loop,
            self._purgatory,
            self._kept,
            uses_topic_ids=uses_topic_ids,
            is_of_follower=is_of_follower,
        )
        for each in told:
            partition = session.want(each.topic, each.topic_id, each.name, each.request)
            if each.diverging_epoch is None:
                partition.sent_high_watermark = each.high_watermark
                partition.sent_log_start_offset = each.log_start_offset
        self._sessions[session_id] = session
        return session

    def find_room(self, partitions: int = 0) -> bool:
        """Whether so many partitions more may be kept: if need be, in place of those of sessions
        that nobody used for long."""
        if partitions > MAX_PARTITIONS:
            return False
        while self._kept.count + partitions > MAX_PARTITIONS:
            oldest = next(iter(self._sessions.values()))
            if self._loop.now_ms() - oldest.last_used_ms <= MIN_EVICTION_MS:
                return False
            self.end(oldest.session_id)
        return True

    def _find_slot(self, size: int, is_of_follower: bool) -> bool:
        """Whether there is a slot for a session of so many partitions, or could be made. As in
        Kafka a follower's session that is in use makes room for those of followers alone."""
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        now_ms = self._loop.now_ms()
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > MIN_EVICTION_MS:
            self.end(oldest.session_id)
            return True
        if now_ms < self._next_look_ms:
            return False
        # All are looked at, once a second if it comes to nothing: each client that has no session
        # would like to have one with each of its fetches.
        sessions = (
            each for each in self._sessions.values() if is_of_follower or not each.is_of_follower
        )
        older = (each for each in sessions if now_ms - each.created_ms > MIN_EVICTION_MS)
        smallest = min(older, key=lambda each: len(each.partitions), default=None)
        if smallest is None or len(smallest.partitions) >= size:
            self._next_look_ms = now_ms + _LOOK_FOR_SMALLER_MS
            return False
        self.end(smallest.session_id)
        return True
