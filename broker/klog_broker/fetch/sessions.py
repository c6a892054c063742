"""Fetch sessions (KIP-227): a client lists its partitions once, and responses have only changes.

The next fetch reads only the session's *unread* partitions: those that the client has just listed,
those with bytes or an error in the last response, those that were not read to the end, and those
with an event since then (a higher watermark or log start offset, the end of a leadership, new
settings, new access rules). All other partitions cannot have news; the session listens for their
events. So a fetch of a thousand idle partitions costs as much as a fetch of none.

The rules are Kafka's (FetchSession.scala). There are at most
``max.incremental.fetch.session.cache.slots`` sessions. A new session evicts a session that was
unused for two minutes, or a smaller one that is older than two minutes. A client without a session
continues with full fetches. Kafka limits only the sessions; klog also limits their partitions,
since a client that disconnects leaves its session behind, however large.
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
"""An unused session can be evicted after this time. A session in use can be evicted only by a
larger one, and only if it is older than this (Kafka: ServerConfigs
MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS)."""

MAX_PARTITIONS = 64_000
"""The most partitions of all sessions together; they take 40 MB, some 640 bytes each. To keep the
limit, sessions unused for MIN_EVICTION_MS end; if that frees too little, a client that wants more
partitions gets no session, or loses its session."""

_LOOK_FOR_SMALLER_MS = 1000

PartitionKey = tuple[str, UUID, int]
"""A topic's name and id, one of which is empty, depending on the version of Fetch that the session
uses, and the partition's number."""


def next_epoch(epoch: int) -> int:
    """Return the session epoch after ``epoch``. The result is never 0 or -1, which have special
    meanings in a request."""
    return 1 if epoch == _INT32_MAX else epoch + 1


class SessionPartition(ReadPartition):
    """A partition of a session, and the partition's high watermark and log start offset in the last
    response that contained it."""

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
        """Called by the purgatory after an event of the partition: more records, a higher
        watermark, or the end of the leadership, for example (see Purgatory.listen)."""
        self.is_listening = False
        leader = self.leader
        if leader is not None:
            if leader.ended is not None:
                # The leadership has ended, so the log's files may be deleted: do not keep them
                # open.
                self.leader = None
            elif self._session.is_of_follower and not (self.has_moved or leader.log.is_offline):
                self._session.mark_unread_quietly(self)
                return
        self._session.mark_unread(self)

    def release_records(self) -> None:
        super().release_records()
        if not self.is_listening:
            # The session does not learn when the leadership ends, so the reference could keep the
            # files of a deleted log open.
            self.leader = None

    @property
    def has_news(self) -> bool:
        """Whether the last read found anything that belongs into a response."""
        return (
            self.size_bytes > 0
            or self.error_code is not ErrorCode.NONE
            or self.diverging_epoch is not None
            or self.high_watermark != self.sent_high_watermark
            or self.log_start_offset != self.sent_log_start_offset
        )

    def note_sent(self) -> None:
        """Note that a response has the result of the last read.

        A partition with an error is in each response until a read succeeds. The response after that
        has the partition, too, because an error counts as the high watermark -1. A follower that
        has to truncate its log ignores the other fields of the partition, so the next response
        repeats the offsets.
        """
        if self.diverging_epoch is not None:
            self.forget_sent()
            return
        self.sent_high_watermark = self.high_watermark
        self.sent_log_start_offset = self.log_start_offset

    def forget_sent(self) -> None:
        """Let the next response repeat the high watermark and the log start offset, because the
        client may have ignored them in the last response."""
        self.sent_high_watermark = self.sent_log_start_offset = -1

    @property
    def is_done(self) -> bool:
        """Whether the last read found nothing for a response, and the next read will find nothing,
        either, unless there is an event of the partition."""
        return self.is_at_end and not self.has_news


class CachedPartitionCount:
    """The number of partitions of all sessions together."""

    def __init__(self) -> None:
        self.count = 0


class FetchSession:
    """The partitions of one client's session. Loop thread only."""

    def __init__(
        self,
        session_id: int,
        loop: Loop,
        purgatory: Purgatory,
        cached_partition_count: CachedPartitionCount,
        *,
        uses_topic_ids: bool,
        is_of_follower: bool,
    ) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.is_of_follower = is_of_follower
        self.epoch = next_epoch(INITIAL_EPOCH)
        """The session epoch of the next request."""
        self.created_ms = self.last_used_ms = loop.now_ms()
        self.partitions: dict[PartitionKey, SessionPartition] = {}
        self.events = 0
        """The number of events (such as a higher watermark of a partition) after which another read
        of the session's partitions may find more."""
        self.is_over = False
        self.rules_version = 0
        """The version of the access rules at the session's last incremental fetch; 0 before the
        first one, and always 0 without access control."""
        self._purgatory = purgatory
        self._cached_partition_count = cached_partition_count
        self._unread: dict[SessionPartition, None] = {}

    def unread(self) -> list[SessionPartition]:
        """Return the unread partitions, which the next read has to include; those that have been
        unread for longest come first."""
        return list(self._unread)

    def mark_unread(self, each: SessionPartition) -> None:
        """Note that the next read of the partition may find more than the last one, and let the
        purgatory check whether the session's waiting fetch can be answered."""
        self._unread[each] = None
        self._wake_waiting_fetch()

    def apply_rules(self, version: int) -> None:
        """Read all partitions again if the version of the access rules has changed: the next
        response reports the partitions that the client may no longer read."""
        if version != self.rules_version:
            self.rules_version = version
            for each in self.partitions.values():
                self._unread[each] = None

    def mark_unread_quietly(self, each: SessionPartition) -> None:
        """Include the partition in the next response without waking a waiting fetch: a follower
        waits for records, and gets changed watermarks along with them."""
        self._unread[each] = None
        self._listen(each)

    def _wake_waiting_fetch(self) -> None:
        self.events += 1
        # The purgatory checks the session's waiting fetch once for all events of this event-loop
        # turn.
        self._purgatory.check_soon(self)

    def set_partition(
        self, topic: str, topic_id: UUID, name: str, request: FetchPartition
    ) -> SessionPartition:
        """Add the partition, or update its offsets, limits and epochs from the request."""
        key = (topic, topic_id, request.partition)
        found = self.partitions.get(key)
        if found is None:
            # Give the session a copy of the partition's request: the request itself may be cached,
            # and overwritten by the connection's next Fetch (cached_fetch.py).
            own = FetchPartition(partition=request.partition)
            found = SessionPartition(self, topic, topic_id, name, own)
            self.partitions[key] = found
            self._cached_partition_count.count += 1
        wanted = found.request
        if self.is_of_follower and wanted.current_leader_epoch != request.current_leader_epoch:
            # After a change of the leader epoch the follower ignores the response to its last
            # fetch, so let the next response repeat the offsets.
            found.forget_sent()
        wanted.fetch_offset = request.fetch_offset
        wanted.log_start_offset = request.log_start_offset
        wanted.partition_max_bytes = request.partition_max_bytes
        wanted.current_leader_epoch = request.current_leader_epoch
        wanted.last_fetched_epoch = request.last_fetched_epoch
        found.is_noted = False
        self._unread[found] = None
        return found

    def remove_partition(self, key: PartitionKey) -> None:
        """Remove the partition, if it is in the session."""
        found = self.partitions.pop(key, None)
        if found is not None:
            self._cached_partition_count.count -= 1
            self._unread.pop(found, None)
            self._unlisten(found)

    def listen(self, read: Iterable[SessionPartition]) -> None:
        """Let the purgatory report the next event (such as a higher watermark) of each partition
        that was read. Partitions for which a read will find nothing before such an event leave the
        list of partitions that the session's next fetch reads."""
        for each in read:
            if not each.is_listening:
                self._listen(each)
            if each.is_done:
                self._unread.pop(each, None)

    def select_partitions_with_news(
        self, read: Iterable[SessionPartition]
    ) -> list[SessionPartition]:
        """Return the partitions that go into the response. Partitions with bytes move to the end of
        the unread list, so that each partition gets its share of the request's byte limit over
        time."""
        included = []
        idle = []
        for each in read:
            if each.has_news:
                included.append(each)
                if each.size_bytes:
                    self._unread.pop(each, None)
                    self._unread[each] = None
                each.note_sent()
            if each.is_done:
                idle.append(each)
        self.listen(idle)
        return included

    def close(self) -> None:
        """End the session; a waiting fetch of the session is answered."""
        self.is_over = True
        self._cached_partition_count.count -= len(self.partitions)
        for each in self.partitions.values():
            self._unlisten(each)
        self._wake_waiting_fetch()

    def _listen(self, each: SessionPartition) -> None:
        each.is_listening = True
        self._purgatory.listen(each, each.topic_partition)

    def _unlisten(self, each: SessionPartition) -> None:
        if each.is_listening:
            each.is_listening = False
            self._purgatory.unlisten(each, each.topic_partition)


class FetchSessions:
    """The fetch sessions of one broker. Loop thread only."""

    def __init__(self, loop: Loop, purgatory: Purgatory, chance: Chance, slots: int) -> None:
        self._loop = loop
        self._purgatory = purgatory
        self._chance = chance
        self._slots = slots
        # The sessions by their ids, the least recently used first.
        self._sessions: dict[int, FetchSession] = {}
        self._next_look_ms = 0
        self._cached_partition_count = CachedPartitionCount()

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, session_id: int) -> FetchSession | None:
        """Return the session, or None if it has ended."""
        return self._sessions.get(session_id)

    def note_request(self, session: FetchSession) -> None:
        """Note a request of the session: its client's next request must have the next session
        epoch."""
        session.epoch = next_epoch(session.epoch)
        session.last_used_ms = self._loop.now_ms()
        del self._sessions[session.session_id]
        self._sessions[session.session_id] = session

    def end_session(self, session_id: int) -> None:
        """End a session, if it exists."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def begin_session(
        self,
        included: Sequence[ReadPartition],
        *,
        uses_topic_ids: bool,
        is_of_follower: bool = False,
    ) -> FetchSession | None:
        """Begin a session with the partitions of a full fetch whose results the client gets now.
        Return None if there are no partitions, or if the limit of sessions or the limit of their
        partitions allows no further session."""
        if not (
            included
            and self._find_slot(len(included), is_of_follower)
            and self.make_space(len(included))
        ):
            return None
        session_id = 1 + self._chance.below(_INT32_MAX)
        while session_id in self._sessions:
            session_id = 1 + self._chance.below(_INT32_MAX)
        session = FetchSession(
            session_id,
            self._loop,
            self._purgatory,
            self._cached_partition_count,
            uses_topic_ids=uses_topic_ids,
            is_of_follower=is_of_follower,
        )
        for each in included:
            partition = session.set_partition(each.topic, each.topic_id, each.name, each.request)
            if each.diverging_epoch is None:
                partition.sent_high_watermark = each.high_watermark
                partition.sent_log_start_offset = each.log_start_offset
        self._sessions[session_id] = session
        return session

    def make_space(self, partitions: int = 0) -> bool:
        """Return whether the fetch sessions, which may have MAX_PARTITIONS partitions together, can
        get this many more. End sessions unused for MIN_EVICTION_MS if necessary."""
        if partitions > MAX_PARTITIONS:
            return False
        while self._cached_partition_count.count + partitions > MAX_PARTITIONS:
            oldest = next(iter(self._sessions.values()))
            if self._loop.now_ms() - oldest.last_used_ms <= MIN_EVICTION_MS:
                return False
            self.end_session(oldest.session_id)
        return True

    def _find_slot(self, size: int, is_of_follower: bool) -> bool:
        """Return whether max.incremental.fetch.session.cache.slots allows one more session, with
        this many partitions. Evict a session if necessary; only another follower's session can
        evict a follower's session in use, as in Kafka."""
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        now_ms = self._loop.now_ms()
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > MIN_EVICTION_MS:
            self.end_session(oldest.session_id)
            return True
        if now_ms < self._next_look_ms:
            return False
        # Search the sessions that may be evicted for a smaller one that is old enough. After a
        # failure do not search again for a second, because each client without a session asks for a
        # session with each of its fetches.
        sessions = (
            each for each in self._sessions.values() if is_of_follower or not each.is_of_follower
        )
        older = (each for each in sessions if now_ms - each.created_ms > MIN_EVICTION_MS)
        smallest = min(older, key=lambda each: len(each.partitions), default=None)
        if smallest is None or len(smallest.partitions) >= size:
            self._next_look_ms = now_ms + _LOOK_FOR_SMALLER_MS
            return False
        self.end_session(smallest.session_id)
        return True
