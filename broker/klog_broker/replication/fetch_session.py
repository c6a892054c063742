"""A follower's half of an incremental fetch session (KIP-227): the session remembers which fetch
positions the leader has, so that a request names only the changed partitions. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from klog_broker.replication.follower_state import FetchPosition
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import Offset, TopicId

NO_SESSION = 0
"""The session id of a Fetch request or response that belongs to no fetch session."""
FIRST_EPOCH = 0
"""The session epoch that asks for a new session with the partitions of the request. The leader ends
the session whose id the request has."""
_LAST_EPOCH = 2**31 - 1

Key = tuple[TopicId, int]
"""A partition: the topic id and the partition number."""


class RequestedPosition(NamedTuple):
    """The fetch position (offset and leader epochs) and the log start offset of the follower that a
    Fetch has for one partition."""

    position: FetchPosition
    log_start_offset: Offset


class Delta(NamedTuple):
    """The id and the epoch of the fetch session, and the changed partitions, for the next Fetch."""

    session_id: int
    session_epoch: int
    named: list[tuple[Key, RequestedPosition]]
    forgotten: list[Key]


class FollowerSession:
    """A follower's fetch session with one leader. After each call of :meth:`next`, call
    :meth:`handle_response`, or :meth:`begin_new_session` if the request failed."""

    def __init__(self) -> None:
        self.requested: dict[Key, RequestedPosition] = {}
        """The partitions that the leader's fetch session contains once the leader has received the
        latest request, each with its fetch position in that session."""
        self.is_refused = False
        """Whether the leader grants no session, so that each request has to name the partitions
        that it fetches."""
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH

    @property
    def begins(self) -> bool:
        """Whether the next request begins a session. The session is new, so this request and the
        ones after it have to name all partitions."""
        return self._epoch == FIRST_EPOCH

    def next(self, news: Iterable[tuple[Key, RequestedPosition | None]]) -> Delta:
        """Return the next request's session id, session epoch and changed partitions. ``news`` has
        the partitions whose fetch position may have changed, with None for a partition to be
        forgotten. If a session :attr:`begins`, this call and the next ones have to pass all
        partitions that are fetched."""
        if self.begins:
            self.requested.clear()
        named: list[tuple[Key, RequestedPosition]] = []
        forgotten: list[Key] = []
        for key, wanted in news:
            known = self.requested.get(key)
            if wanted is None:
                if known is not None:
                    del self.requested[key]
                    forgotten.append(key)
            elif wanted != known:
                self.requested[key] = wanted
                named.append((key, wanted))
        return Delta(self._id, self._epoch, named, forgotten)

    def handle_response(self, error: ErrorCode, session_id: int, partitions: Iterable[Key]) -> bool:
        """Handle the leader's response, which has the partitions ``partitions``. Returns whether
        the response has no error and fits the request. If not, the caller must ignore the response,
        and the next request begins a new session."""
        if error is not ErrorCode.NONE:
            if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_SESSION
            self._epoch = FIRST_EPOCH
            return False
        began = self.begins
        if session_id == NO_SESSION or (not began and session_id != self._id):
            # The leader grants no session, or has ended this one. A response without a session id
            # is handled nevertheless, if all its partitions were requested; a response with another
            # session id is ignored.
            self.is_refused = began
            self._id, self._epoch = NO_SESSION, FIRST_EPOCH
            return session_id == NO_SESSION and all(key in self.requested for key in partitions)
        if not all(key in self.requested for key in partitions):
            # The response belongs to another session, or the leader has made a mistake.
            self._epoch = FIRST_EPOCH
            return False
        self.is_refused = False
        self._id = session_id
        self._epoch = self._epoch + 1 if self._epoch < _LAST_EPOCH else 1
        return True

    def begin_new_session(self) -> None:
        """Make the next request begin a new session, for example because the leader may not have
        the latest request. The next request also ends the present session, if the leader still has
        it."""
        self._epoch = FIRST_EPOCH
