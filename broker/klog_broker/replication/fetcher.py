"""Copies what one leader has: one connection, one request at a time, one fetch session.

What a turn costs goes by the partitions of which there is something new: those that the leader
tells of, and those whose logs, roles or delays have changed here.
"""

import logging
from collections.abc import Callable, Generator
from functools import partial
from itertools import islice
from typing import Protocol

from klog_broker.replication.fetch_requests import (
    EARLIEST,
    FETCH_VERSIONS,
    LATEST,
    LIST_OFFSETS_VERSIONS,
    FetcherSettings,
    WhoAsks,
    ends_request,
    error_of,
    fetch_request,
    fetched_part,
    told_offsets,
    told_partitions,
)
from klog_broker.replication.fetch_session import Asked, FollowerSession, Key
from klog_broker.replication.follower import FollowedPartition
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.slices import Slices
from klog_broker.runtime.event_loop.wheel import Timer
from klog_broker.runtime.system.rate_limit import RateLimit
from pyspark_klog.client.transport.evented_connection import EventedConnection
from pyspark_klog.errors import ErrorCode, KlogError
from pyspark_klog.ids import BrokerId, LeaderEpoch, TopicPartition
from pyspark_klog.protocol.apis.fetch import FetchResponse, PartitionData
from pyspark_klog.protocol.apis.list_offsets import ListOffsetsResponse

_log = logging.getLogger("klog.replication")

MOST_NAMED = 1_000
"""So many partitions are named by one request, where the leader remembers them; the next request
names more."""
MOST_WHOLE = 5_000
"""And so many where the leader keeps no session, in turn: the next request names the next ones. A
leader takes some 30,000 names in a request."""
# Costs in elements of a slice (runtime/event_loop/slices.py): of any part of a reply, and of its
# bytes.
_PART_ELEMENTS = 20
_BYTES_AN_ELEMENT = 5_000


class Connect(Protocol):
    """Makes a connection that connects when a request needs it (``Peers.connect``)."""

    def __call__(self, host: str, port: int, /) -> EventedConnection: ...


class Fetcher:
    """Follows one leader, for any number of partitions. Loop thread only."""

    def __init__(
        self,
        leader: BrokerId,
        asks: WhoAsks,
        settings: FetcherSettings,
        connect: Connect,
        *,
        loop: Loop,
        slices: Slices,
        warnings: RateLimit,
    ) -> None:
        self._leader = leader
        self._asks = asks
        self._settings = settings
        self._connect = connect
        self._loop = loop
        self._slices = slices
        self._warnings = warnings
        self._address: tuple[str, int] | None = None
        self._connection: EventedConnection | None = None
        self._session = FollowerSession()
        self._told_epoch = -1
        """This broker's epoch in the session's first request."""
        self._followed: dict[Key, FollowedPartition] = {}
        # A partition with news is in one of these: not looked at yet, to be named (None: to be
        # forgotten), or waiting for its flush.
        self._news: dict[Key, None] = {}
        self._due: dict[Key, Asked | None] = {}
        self._unflushed: dict[Key, None] = {}
        self._flushed_by: Timer | None = None
        self._ends: dict[Key, None] = {}
        """Of these the leader is to be asked for the ends."""
        self._is_busy = False
        """A request is on its way, or its answer is being taken."""
        self._pause: Timer | None = None
        """After a failure nothing is asked for a while."""
        self._failures = 0
        self._is_called_soon = False

    def __repr__(self) -> str:
        return f"Fetcher(leader {self._leader}, {len(self._followed)} partitions)"

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to be fetched from this leader."""
        return not self._followed

    # --- what is followed ------------------------------------------------------------------------
    def add(self, followed: FollowedPartition) -> None:
        """Fetch for this partition from now on."""
        self._followed[followed.key] = followed
        self.on_news(followed.key)

    def remove(self, followed: FollowedPartition) -> None:
        """No longer. Answers that still come for it change nothing."""
        key = followed.key
        if self._followed.get(key) is followed:
            del self._followed[key]
            self._ends.pop(key, None)
            self.on_news(key)

    def on_news(self, key: Key) -> None:
        """What is to be asked for may have changed."""
        self._unflushed.pop(key, None)
        self._due.pop(key, None)
        self._news[key] = None
        self._look()

    def reach(self, address: tuple[str, int] | None) -> None:
        """The leader is to be found there; None: nobody knows where."""
        if address == self._address and (address is None or self._connection is not None):
            return
        self._address = address
        before, self._connection = self._connection, None
        if address is not None:
            self._connection = self._connect(*address)
        self._is_busy = False
        self._session = FollowerSession()
        self._end_pause()
        self._begin_anew()
        if before is not None:
            before.close("the leader has another address")

    def close(self) -> None:
        """End the connection."""
        self._followed.clear()
        self._news.clear()
        self._due.clear()
        self._end_pause()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close("nothing is fetched from the broker any more")

    # --- asking ----------------------------------------------------------------------------------
    def _look(self) -> None:
        if not self._is_called_soon:
            self._is_called_soon = True
            self._loop.call_soon(self._go_on)

    def _look_at_append(self) -> None:
        """As :meth:`_look`, but in this turn: producers may wait for the next request."""
        if not self._is_called_soon:
            self._is_called_soon = True
            self._loop.call_at_append(self._go_on)

    def _go_on(self) -> None:
        self._is_called_soon = False
        connection = self._connection
        if connection is None or self._is_busy or self._pause is not None:
            return
        self._look_at_news()
        if self._ends:
            self._ask_for_ends(connection)
        elif not self._waits_for_flushes():
            self._fetch(connection)

    @property
    def _most(self) -> int:
        return MOST_WHOLE if self._session.is_refused else MOST_NAMED

    def _look_at_news(self) -> None:
        if len(self._news) <= self._most:
            news, self._news = list(self._news), {}
        else:
            news = list(islice(self._news, self._most))
            for key in news:
                del self._news[key]
        for key in news:
            followed = self._followed.get(key)
            wanted = None if followed is None else followed.wanted()
            if followed is not None and wanted is None:
                if followed.is_flushing:
                    self._unflushed[key] = None
                    continue
                if followed.asks_for_ends:
                    self._ends[key] = None
            self._due[key] = wanted

    def _waits_for_flushes(self) -> bool:
        """With flush.messages=1 partitions are fetched again once they are flushed. The request
        waits for them, for it may be held by the leader; but no longer than the leader would."""
        if not self._unflushed:
            if self._flushed_by is not None:
                self._flushed_by.cancel()
                self._flushed_by = None
            return False
        if self._flushed_by is None:
            self._flushed_by = self._loop.call_later(
                self._settings.wait_max_ms, self._flushes_are_late
            )
        return True

    def _flushes_are_late(self) -> None:
        """The others are fetched without these; they come in again once they are flushed."""
        self._flushed_by = None
        self._due.update(dict.fromkeys(self._unflushed))
        self._unflushed.clear()
        self._look()

    def _fetch(self, connection: EventedConnection) -> None:
        session, due = self._session, self._due
        if session.begins:
            self._told_epoch = self._asks.broker_epoch()
        if len(due) <= self._most:
            self._due = {}
            delta = session.next(due.items())
        else:
            part = list(islice(due.items(), self._most))
            for key, _ in part:
                del due[key]
            delta = session.next(part)
        if not session.asked:
            session.lost()  # there is nothing to ask for: a later request ends the session
            if self._due or self._news:
                self._look()
            return
        request = fetch_request(delta, self._asks, self._settings, self._wait_ms())
        self._is_busy = True
        low, high = FETCH_VERSIONS
        connection.send(
            FetchResponse,
            lambda _version: request,
            partial(self._answered, connection),
            self._settings.timeout_ms,
            low=low,
            high=high,
        )

    def _wait_ms(self) -> int:
        """The leader must not hold a request while there is more to be named; but where it keeps no
        session there always is, and it is not asked without a pause."""
        if not self._due and not self._news:
            return self._settings.wait_max_ms
        if self._session.is_refused:
            return self._settings.wait_max_ms * MOST_WHOLE // max(len(self._followed), MOST_WHOLE)
        return 0

    # --- the answer ------------------------------------------------------------------------------
    def _answered(
        self, connection: EventedConnection, reply: FetchResponse | None, error: KlogError | None
    ) -> None:
        if connection is not self._connection:
            return
        if reply is None:
            self._failed(str(error))
            return
        code = error_of(reply.error_code)
        told = list(told_partitions(reply))
        if not self._session.answered(code, reply.session_id, [key for key, _ in told]):
            self._is_busy = False
            if code is ErrorCode.NONE:
                self._failed("it told of partitions that it was not asked for")
            elif self._failures:
                self._failed(f"{code.name}: {code.message}")
            else:
                # The leader has given the session's place to others, or has begun a new life.
                self._failures = 1
                self._begin_anew()
            return
        self._failures = 0
        steps = self._take(told, connection)
        self._loop.call_at_append(
            lambda: self._slices.run(steps, lambda: connection is self._connection)
        )

    def _take(
        self, told: list[tuple[Key, PartitionData]], connection: EventedConnection
    ) -> Generator[int, None, None]:
        with_records: dict[Key, None] = {}
        for key, data in told:
            followed, asked = self._followed.get(key), self._session.asked.get(key)
            if followed is not None and asked is not None:
                part = fetched_part(data)
                followed.take(asked.position, part)
                self._news[key] = None
                if part.records:
                    with_records[key] = None
                yield _PART_ELEMENTS + len(part.records) // _BYTES_AN_ELEMENT
        if connection is self._connection:
            self._is_busy = False
            if self._told_epoch != self._asks.broker_epoch():
                # The leader goes by the life in which a partition was named, and idle ones are not
                # named again: it would have a replica join in a life that is over, in vain.
                self._session.lost()
            if self._session.is_refused:
                # It is the others' turn, then these are asked for again: last who had records, for
                # a leader fills its answers in the order of the request.
                these = self._session.asked
                others = [key for key in self._news if key not in these]
                idle = [key for key in these if key not in with_records]
                self._news = dict.fromkeys((*others, *idle, *with_records))
            elif self._session.begins:
                self._begin_anew()
            self._look_at_append()

    def _begin_anew(self) -> None:
        """The next request begins a session."""
        self._due.clear()
        self._unflushed.clear()
        self._news = dict.fromkeys(self._followed)
        self._look()

    def _failed(self, why: str) -> None:
        """The leader was not reached, or what it said makes no sense: leave it alone a while."""
        self._is_busy = False
        self._failures += 1
        self._session.lost()
        self._begin_anew()
        now_ms = self._loop.now_ms()
        if self._warnings.allows(now_ms):
            note = self._warnings.take_note()
            _log.warning("leader=%d not_fetched_from=%s%s", self._leader, why, note)
        if self._pause is None:
            self._pause = self._loop.call_later(self._settings.backoff_ms, self._pause_is_over)

    def _pause_is_over(self) -> None:
        self._pause = None
        self._look()

    def _end_pause(self) -> None:
        for timer in (self._pause, self._flushed_by):
            if timer is not None:
                timer.cancel()
        self._pause = self._flushed_by = None

    # --- ends ------------------------------------------------------------------------------------
    def _ask_for_ends(self, connection: EventedConnection) -> None:
        """Where the logs end and, after that, where they start."""
        keys = list(islice(self._ends, MOST_NAMED))
        asked: dict[TopicPartition, FollowedPartition] = {}
        for key in keys:
            del self._ends[key]
            followed = self._followed.get(key)
            if followed is not None:
                asked[followed.partition.topic_partition] = followed
        if not asked:
            self._look()
            return
        epochs = {name: followed.role.leader_epoch for name, followed in asked.items()}
        ends: dict[TopicPartition, int] = {}
        self._is_busy = True

        def end_told(reply: ListOffsetsResponse | None, _error: KlogError | None) -> None:
            if reply is not None:
                ends.update(told_offsets(reply))

        def start_told(reply: ListOffsetsResponse | None, error: KlogError | None) -> None:
            starts = {} if reply is None else dict(told_offsets(reply))
            for name, followed in asked.items():
                if name in starts and name in ends:
                    followed.ends_told(epochs[name], starts[name], ends[name])
                else:
                    followed.ends_unknown()
                self._news[followed.key] = None
            if connection is self._connection:
                if reply is None:
                    self._failed(str(error))
                self._is_busy = False
                self._look()

        for timestamp, done in ((LATEST, end_told), (EARLIEST, start_told)):
            self._send_ends(connection, epochs, timestamp, done)

    def _send_ends(
        self,
        connection: EventedConnection,
        epochs: dict[TopicPartition, LeaderEpoch],
        timestamp: int,
        done: Callable[[ListOffsetsResponse | None, KlogError | None], None],
    ) -> None:
        request = ends_request(epochs, self._asks.broker_id, timestamp)
        low, high = LIST_OFFSETS_VERSIONS
        connection.send(
            ListOffsetsResponse,
            lambda _version: request,
            done,
            self._settings.timeout_ms,
            low=low,
            high=high,
        )
