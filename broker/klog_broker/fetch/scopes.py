"""Chooses the partitions that a fetch reads: all in the request, or those of its session that may
have changed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from klog_broker.fetch.follower_fetch import replica_of
from klog_broker.fetch.partition_read import ReadPartition
from klog_broker.fetch.reader import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    name_of_topic,
    requested_partitions,
)
from klog_broker.fetch.services import FetchServices
from klog_broker.fetch.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    FetchSessions,
    SessionPartition,
)
from klog_broker.resources.authorizer import ALLOWS_ALL
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.protocol.apis.fetch import FetchRequest

_FIRST_VERSION_WITH_SESSIONS = 7
_WITHOUT_SESSION = (INITIAL_EPOCH, FINAL_EPOCH)


class FetchResult(NamedTuple):
    """The parts of a fetch's result that go into the response."""

    session_id: int
    included: Sequence[ReadPartition]
    error_code: ErrorCode = ErrorCode.NONE


class WholeFetch:
    """A fetch of the partitions in the request, whose response has all of them. The fetch may begin
    a session."""

    __slots__ = (
        "_begins_session",
        "_is_of_follower",
        "_sessions",
        "_version",
        "has_ended",
        "partitions",
    )

    def __init__(
        self,
        partitions: Sequence[ReadPartition],
        version: int,
        sessions: FetchSessions,
        *,
        begins_session: bool = False,
        is_of_follower: bool = False,
    ) -> None:
        self.partitions = partitions
        self.has_ended = not partitions
        self._version = version
        self._sessions = sessions
        self._begins_session = begins_session
        self._is_of_follower = is_of_follower

    def renew(self) -> None:
        """Called before each read; does nothing, because each read is of all ``partitions``."""

    def has_moved(self) -> bool:
        """Return whether another read may have another result than the last read."""
        return any(each.has_moved for each in self.partitions)

    def stay(self) -> None:
        """Called when the last read has found too few bytes, so that the fetch waits. A fetch of
        all partitions in the request has nothing to do."""

    def keys(self) -> list[Hashable]:
        """Return the purgatory's keys under which the fetch waits."""
        return [each.leader.topic_partition for each in self.partitions if each.leader]

    def answer(self) -> FetchResult:
        """Return the result that goes into the response, and begin a session if the client asked
        for one and the limits of the broker's sessions allow it."""
        session = None
        if self._begins_session:
            session = self._sessions.begin_session(
                self.partitions,
                uses_topic_ids=self._version >= FIRST_VERSION_WITH_TOPIC_IDS,
                is_of_follower=self._is_of_follower,
            )
        return FetchResult(NO_SESSION if session is None else session.session_id, self.partitions)


class SessionFetch:
    """An incremental fetch: reads those partitions of a fetch session that may have more records, a
    changed offset or an error since the session's last response."""

    __slots__ = ("_epoch", "_seen_events", "_session", "partitions")

    def __init__(self, session: FetchSession) -> None:
        self._session = session
        self._epoch = session.epoch
        self._seen_events = session.events
        self.partitions: Sequence[SessionPartition] = ()

    @property
    def has_ended(self) -> bool:
        """Whether the session is over, or another connection has sent the session's next
        request."""
        return self._session.is_over or self._session.epoch != self._epoch

    def renew(self) -> None:
        self._seen_events = self._session.events
        self.partitions = self._session.unread()

    def has_moved(self) -> bool:
        return self._session.events != self._seen_events

    def stay(self) -> None:
        self._session.listen(self.partitions)

    def keys(self) -> list[Hashable]:
        return [self._session]

    def answer(self) -> FetchResult:
        session = self._session
        if self.has_ended:
            return FetchResult(session.session_id, (), ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        return FetchResult(session.session_id, session.select_partitions_with_news(self.partitions))


def is_enough(scope: WholeFetch | SessionFetch, min_bytes: int) -> bool:
    """Return whether the fetch can be answered now: it has ``min_bytes`` of records, the result of
    a partition ends the wait (an error does, for example), or there is nothing to wait for (no
    partition, or no session any more)."""
    total_bytes = 0
    for each in scope.partitions:
        if each.ends_the_wait:
            return True
        total_bytes += each.size_bytes
    return total_bytes >= min_bytes or scope.has_ended


Named = Callable[[FetchRequest, int, FetchServices], Sequence[ReadPartition]]
"""A function (request, version of the request, services) that returns the partitions which the
request lists."""


def scope_of(
    request: FetchRequest,
    version: int,
    services: FetchServices,
    named: Named = requested_partitions,
) -> WholeFetch | SessionFetch:
    """Return a WholeFetch for a full fetch request, or a SessionFetch for an incremental one. The
    request's version and session epoch tell which it is. Raise BrokerError if an incremental
    request fits no session, or if its session would get too many partitions."""
    sessions = services.fetch_sessions
    if version < _FIRST_VERSION_WITH_SESSIONS:
        return WholeFetch(named(request, version, services), version, sessions)
    if request.session_epoch in _WITHOUT_SESSION:
        if request.session_id != NO_SESSION:
            sessions.end_session(request.session_id)
        begins = request.session_epoch == INITIAL_EPOCH
        return WholeFetch(
            named(request, version, services),
            version,
            sessions,
            begins_session=begins,
            is_of_follower=begins and replica_of(request, version).replica_id >= 0,
        )
    session = sessions.find(request.session_id)
    if session is None:
        raise BrokerError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    if session.epoch != request.session_epoch:
        raise BrokerError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    uses_topic_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS
    if session.uses_topic_ids != uses_topic_ids:
        raise BrokerError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
    sessions.note_request(session)
    if services.authorizer is not ALLOWS_ALL:
        session.apply_rules(services.authorizer.version)
    _change_session(session, request, services, uses_topic_ids=uses_topic_ids)
    if not session.partitions:
        # The session has no partitions left: end it, and answer with session id 0, as Kafka does.
        sessions.end_session(session.session_id)
        return WholeFetch((), version, sessions)
    return SessionFetch(session)


def _change_session(
    session: FetchSession, request: FetchRequest, services: FetchServices, *, uses_topic_ids: bool
) -> None:
    for topic in request.topics:
        name = name_of_topic(services, topic.topic_id) if uses_topic_ids else topic.topic
        for partition in topic.partitions:
            session.set_partition(topic.topic, topic.topic_id, name, partition)
    for forgotten in request.forgotten_topics_data:
        for index in forgotten.partitions:
            session.remove_partition((forgotten.topic, forgotten.topic_id, index))
    if not services.fetch_sessions.make_space():
        # All sessions together have more than MAX_PARTITIONS partitions: end this session. Its
        # client continues with full fetches.
        services.fetch_sessions.end_session(session.session_id)
        raise BrokerError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
