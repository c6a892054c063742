"""A follower's half of an incremental fetch session (KIP-227): what the leader knows already, so
that a request names only what is new. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from klog_broker.replication.follower_state import Position
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import Offset, TopicId

NO_SESSION = 0
"""As session id."""
FIRST_EPOCH = 0
"""As session epoch: begin a session with all that the request names; the one with its id ends."""
_LAST_EPOCH = 2**31 - 1

Key = tuple[TopicId, int]
"""A partition: its topic's id, and its number."""


class Asked(NamedTuple):
    """What a request says of a partition."""

    position: Position
    log_start_offset: Offset


class Delta(NamedTuple):
    """What the next request has to say."""

    session_id: int
    session_epoch: int
    named: list[tuple[Key, Asked]]
    forgotten: list[Key]


class FollowerSession:
    """With one leader. Each :meth:`next` is followed by :meth:`answered` or :meth:`lost`."""

    def __init__(self) -> None:
        self.asked: dict[Key, Asked] = {}
        """What the leader knows, once it has the request that was made last."""
        self.is_refused = False
        """The leader keeps no session: each request has to name everything."""
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH

    @property
    def begins(self) -> bool:
        """Whether the next request begins a session, and has to name all that is wanted."""
        return self._epoch == FIRST_EPOCH

    def next(self, news: Iterable[tuple[Key, Asked | None]]) -> Delta:
        """``news`` tells what is asked for now of partitions for which that may have changed; None:
        nothing. If a session :attr:`begins`, of all partitions that are asked for."""
        if self.begins:
            self.asked.clear()
        named: list[tuple[Key, Asked]] = []
        forgotten: list[Key] = []
        for key, wanted in news:
            known = self.asked.get(key)
            if wanted is None:
                if known is not None:
                    del self.asked[key]
                    forgotten.append(key)
            elif wanted != known:
                self.asked[key] = wanted
                named.append((key, wanted))
        return Delta(self._id, self._epoch, named, forgotten)

    def answered(self, error: ErrorCode, session_id: int, told: Iterable[Key]) -> bool:
        """The leader has answered, ``told`` of these partitions. Returns whether the answer is one
        to the request; if it is not, nothing in it counts, and a new session begins."""
        if error is not ErrorCode.NONE:
            if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_SESSION
            self._epoch = FIRST_EPOCH
            return False
        began = self.begins
        if session_id == NO_SESSION or (not began and session_id != self._id):
            # The leader keeps no session, or has ended this one: this answer still counts.
            self.is_refused = began
            self._id, self._epoch = NO_SESSION, FIRST_EPOCH
            return session_id == NO_SESSION and all(key in self.asked for key in told)
        if not all(key in self.asked for key in told):
            # It is another one's session, or the leader's own mistake.
            self._epoch = FIRST_EPOCH
            return False
        self.is_refused = False
        self._id = session_id
        self._epoch = self._epoch + 1 if self._epoch < _LAST_EPOCH else 1
        return True

    def lost(self) -> None:
        """Nobody knows whether the request came: begin anew, and end the session if it is there."""
        self._epoch = FIRST_EPOCH
