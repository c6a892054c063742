"""Fetches the followed partitions from one leader, over one connection, with one Fetch request at a
time and one fetch session.

The first requests of a fetch session name all followed partitions that may be fetched. From then
on the work for a Fetch and its response depends only on the partitions of the leader's response,
and on those whose log or role has changed on this broker, or whose delay (the pause before the next
Fetch after an error) has ended. If the leader keeps no fetch session, each Fetch has to name its
partitions: up to MOST_WHOLE of the followed ones, in turn.
"""

import logging
from collections.abc import Callable, Generator
from functools import partial
from itertools import islice

from klog_broker.replication.fetch_requests import (
    EARLIEST,
    FETCH_VERSIONS,
    LATEST,
    LIST_OFFSETS_VERSIONS,
    FetcherSettings,
    FollowerIdentity,
    ends_request,
    error_of,
    fetch_request,
    fetched_part,
    response_offsets,
    response_partitions,
)
from klog_broker.replication.fetch_session import FollowerSession, Key, RequestedPosition
from klog_broker.replication.follower import FollowedPartition
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.slices import Slices
from klog_broker.runtime.event_loop.wheel import Timer
from klog_broker.runtime.peers import Connect
from klog_broker.runtime.system.rate_limit import RateLimit
from pyspark_klog.client.transport.evented_connection import EventedConnection
from pyspark_klog.errors import ErrorCode, KlogError
from pyspark_klog.ids import BrokerId, LeaderEpoch, TopicPartition
from pyspark_klog.protocol.apis.fetch import FetchResponse, PartitionData
from pyspark_klog.protocol.apis.list_offsets import ListOffsetsResponse

_log = logging.getLogger("klog.replication")

MOST_NAMED = 1_000
"""The most partitions that one ListOffsets request names, and one Fetch if the leader keeps a fetch
session; the next request names further partitions."""
MOST_WHOLE = 5_000
"""The most partitions that one Fetch names if the leader keeps no fetch session, so that each Fetch
has to name its partitions. If more partitions are followed, each Fetch names those that the Fetches
before have not named, in turn. A leader accepts about 30,000 partitions in a request."""
# A long response is handled in several event-loop turns, each with a limited amount of work. The
# unit of work is an element of about 5 us (runtime/event_loop/slices.py). A partition counts as
# _PART_ELEMENTS elements, and its records as one element for every _BYTES_AN_ELEMENT bytes.
_PART_ELEMENTS = 20
_BYTES_AN_ELEMENT = 5_000


class Fetcher:
    """Fetches any number of partitions from one leader. Loop thread only."""

    def __init__(
        self,
        leader: BrokerId,
        identity: FollowerIdentity,
        settings: FetcherSettings,
        connect: Connect,
        *,
        loop: Loop,
        slices: Slices,
        warnings: RateLimit,
    ) -> None:
        self._leader = leader
        self._identity = identity
        self._settings = settings
        self._connect = connect
        self._loop = loop
        self._slices = slices
        self._warnings = warnings
        self._address: tuple[str, int] | None = None
        self._connection: EventedConnection | None = None
        self._session = FollowerSession()
        self._session_broker_epoch = -1
        """The broker epoch of this broker in the first request of the present fetch session: after
        a change of the broker epoch, a new session has to name all partitions."""
        self._followed: dict[Key, FollowedPartition] = {}
        # A partition whose fetch position may have changed is in one of three dicts: in `_news`
        # until the position is read; in `_due` until a Fetch names the position (None removes the
        # partition from the leader's fetch session); in `_unflushed` while its next Fetch waits for
        # a flush of its log.
        self._news: dict[Key, None] = {}
        self._due: dict[Key, RequestedPosition | None] = {}
        self._unflushed: dict[Key, None] = {}
        self._flushed_by: Timer | None = None
        self._ends: dict[Key, None] = {}
        """Partitions whose fetch position was out of the leader's range, so that ListOffsets has to
        ask for the leader's log end and start offsets."""
        self._is_busy = False
        """Whether a request is in flight, or its response is being handled."""
        self._pause: Timer | None = None
        """The timer that ends the pause after a failed request to the leader; None if there is no
        such pause."""
        self._failures = 0
        self._is_called_soon = False

    def __repr__(self) -> str:
        return f"Fetcher(leader {self._leader}, {len(self._followed)} partitions)"

    @property
    def is_empty(self) -> bool:
        """Whether no partition is fetched from this leader."""
        return not self._followed

    # --- adding and removing partitions, changing the leader's address ---------------------------
    def add(self, followed: FollowedPartition) -> None:
        """Fetch this partition from the leader from now on."""
        self._followed[followed.key] = followed
        self.on_news(followed.key)

    def remove(self, followed: FollowedPartition) -> None:
        """Stop fetching this partition. A response that still arrives for it is ignored."""
        key = followed.key
        if self._followed.get(key) is followed:
            del self._followed[key]
            self._ends.pop(key, None)
            self.on_news(key)

    def on_news(self, key: Key) -> None:
        """Read a partition's fetch position, which may have changed, for one of the next
        requests."""
        self._unflushed.pop(key, None)
        self._due.pop(key, None)
        self._news[key] = None
        self._schedule_request()

    def set_address(self, address: tuple[str, int] | None) -> None:
        """Connect to the leader at `address`, or stop fetching while the address is None."""
        if address == self._address and (address is None or self._connection is not None):
            return
        self._address = address
        before, self._connection = self._connection, None
        if address is not None:
            self._connection = self._connect(*address)
        self._is_busy = False
        self._session = FollowerSession()
        self._end_pause()
        self._begin_new_session()
        if before is not None:
            before.close("the leader's address has changed")

    def close(self) -> None:
        """Stop fetching all partitions, and close the connection."""
        self._followed.clear()
        self._news.clear()
        self._due.clear()
        self._end_pause()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close("this broker follows no partition of that leader any longer")

    # --- sending Fetch requests ------------------------------------------------------------------
    def _schedule_request(self) -> None:
        if not self._is_called_soon:
            self._is_called_soon = True
            self._loop.call_soon(self._send_next_request)

    def _schedule_request_at_append(self) -> None:
        """Call `_send_next_request` in the append phase of this event-loop turn, unless a call is
        already scheduled. The request must not be late, because with acks=all the producers wait
        until it tells the leader which records this broker has."""
        if not self._is_called_soon:
            self._is_called_soon = True
            self._loop.call_at_append(self._send_next_request)

    def _send_next_request(self) -> None:
        self._is_called_soon = False
        connection = self._connection
        if connection is None or self._is_busy or self._pause is not None:
            return
        self._read_news()
        if self._ends:
            self._request_ends(connection)
        elif not self._waits_for_flushes():
            self._fetch(connection)

    @property
    def _most(self) -> int:
        return MOST_WHOLE if self._session.is_refused else MOST_NAMED

    def _read_news(self) -> None:
        if len(self._news) <= self._most:
            news, self._news = list(self._news), {}
        else:
            news = list(islice(self._news, self._most))
            for key in news:
                del self._news[key]
        for key in news:
            followed = self._followed.get(key)
            wanted = None if followed is None else followed.next_position()
            if followed is not None and wanted is None:
                if followed.is_flushing:
                    self._unflushed[key] = None
                    continue
                if followed.needs_ends:
                    self._ends[key] = None
            self._due[key] = wanted

    def _waits_for_flushes(self) -> bool:
        """Whether the next Fetch has to wait for flushes. With flush.messages=1 a partition is
        fetched again only once its log is flushed. The leader might delay a Fetch that lacks this
        partition, so the follower sends the Fetch only after the flush, or after
        replica.fetch.wait.max.ms."""
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
        """Fetch without the unflushed partitions, because their flushes have taken
        replica.fetch.wait.max.ms. The leader's fetch session forgets these partitions; each is
        fetched again once it is flushed."""
        self._flushed_by = None
        self._due.update(dict.fromkeys(self._unflushed))
        self._unflushed.clear()
        self._schedule_request()

    def _fetch(self, connection: EventedConnection) -> None:
        session, due = self._session, self._due
        if session.begins:
            self._session_broker_epoch = self._identity.broker_epoch()
        if len(due) <= self._most:
            self._due = {}
            delta = session.next(due.items())
        else:
            part = list(islice(due.items(), self._most))
            for key, _ in part:
                del due[key]
            delta = session.next(part)
        if not session.requested:
            # There is no partition to fetch, so no request is sent. The next request that names a
            # partition replaces the fetch session with the leader by a new one.
            session.begin_new_session()
            if self._due or self._news:
                self._schedule_request()
            return
        request = fetch_request(delta, self._identity, self._settings, self._wait_ms())
        self._is_busy = True
        low, high = FETCH_VERSIONS
        connection.send(
            FetchResponse,
            lambda _version: request,
            partial(self._on_response, connection),
            self._settings.timeout_ms,
            low=low,
            high=high,
        )

    def _wait_ms(self) -> int:
        """How many milliseconds the leader may delay the next Fetch: replica.fetch.wait.max.ms, or
        0 if the leader keeps a fetch session and other partitions wait for the request after this
        Fetch. If the leader keeps no fetch session, and more than MOST_WHOLE partitions are
        followed, some always wait, because a Fetch names only MOST_WHOLE. Then each Fetch may be
        delayed for the part MOST_WHOLE / (followed partitions) of replica.fetch.wait.max.ms, so
        that there is a pause between requests."""
        if not self._due and not self._news:
            return self._settings.wait_max_ms
        if self._session.is_refused:
            return self._settings.wait_max_ms * MOST_WHOLE // max(len(self._followed), MOST_WHOLE)
        return 0

    # --- handling Fetch responses ----------------------------------------------------------------
    def _on_response(
        self, connection: EventedConnection, response: FetchResponse | None, error: KlogError | None
    ) -> None:
        if connection is not self._connection:
            return
        if response is None:
            self._failed(str(error))
            return
        code = error_of(response.error_code)
        partitions = list(response_partitions(response))
        if not self._session.handle_response(
            code, response.session_id, [key for key, _ in partitions]
        ):
            self._is_busy = False
            if code is ErrorCode.NONE:
                self._failed("the response has partitions that were not requested")
            elif self._failures:
                self._failed(f"{code.name}: {code.message}")
            else:
                # Usually the leader has evicted the fetch session from its cache, or was restarted.
                self._failures = 1
                self._begin_new_session()
            return
        self._failures = 0
        steps = self._handle_partitions(partitions, connection)
        self._loop.call_at_append(
            lambda: self._slices.run(steps, lambda: connection is self._connection)
        )

    def _handle_partitions(
        self, partitions: list[tuple[Key, PartitionData]], connection: EventedConnection
    ) -> Generator[int, None, None]:
        with_records: dict[Key, None] = {}
        for key, data in partitions:
            followed, requested = self._followed.get(key), self._session.requested.get(key)
            if followed is not None and requested is not None:
                part = fetched_part(data)
                followed.handle_response(requested.position, part)
                self._news[key] = None
                if part.records:
                    with_records[key] = None
                yield _PART_ELEMENTS + len(part.records) // _BYTES_AN_ELEMENT
        if connection is self._connection:
            self._is_busy = False
            if self._session_broker_epoch != self._identity.broker_epoch():
                # This broker has registered again. The leader knows a partition with the broker
                # epoch of the last request that named the partition, and the session does not name
                # idle partitions again. With the old epoch the controller refuses to add this
                # replica to the ISR, so a new session has to name all partitions.
                self._session.begin_new_session()
            if self._session.is_refused:
                # The next request begins with the partitions that the last one did not name. The
                # partitions that had records come last, because a leader fills its response in the
                # request's order.
                these = self._session.requested
                others = [key for key in self._news if key not in these]
                idle = [key for key in these if key not in with_records]
                self._news = dict.fromkeys((*others, *idle, *with_records))
            elif self._session.begins:
                self._begin_new_session()
            self._schedule_request_at_append()

    def _begin_new_session(self) -> None:
        """Begin a new fetch session with the next request. This request and the ones after it name
        all followed partitions."""
        self._due.clear()
        self._unflushed.clear()
        self._news = dict.fromkeys(self._followed)
        self._schedule_request()

    def _failed(self, why: str) -> None:
        """Handle the failure of a request or its response: log a warning (limited by `_warnings`),
        and begin a new fetch session after a pause (replica.fetch.backoff.ms)."""
        self._is_busy = False
        self._failures += 1
        self._session.begin_new_session()
        self._begin_new_session()
        now_ms = self._loop.now_ms()
        if self._warnings.allows(now_ms):
            note = self._warnings.pop_suppressed_note()
            _log.warning("leader=%d a fetch failed and is repeated: %s%s", self._leader, why, note)
        if self._pause is None:
            self._pause = self._loop.call_later(self._settings.backoff_ms, self._pause_is_over)

    def _pause_is_over(self) -> None:
        self._pause = None
        self._schedule_request()

    def _end_pause(self) -> None:
        for timer in (self._pause, self._flushed_by):
            if timer is not None:
                timer.cancel()
        self._pause = self._flushed_by = None

    # --- asking the leader for log end and start offsets -----------------------------------------
    def _request_ends(self, connection: EventedConnection) -> None:
        """Ask the leader for the log end offsets and, after that, for the log start offsets of up
        to MOST_NAMED partitions in `_ends`, whose fetch position was out of the leader's range."""
        keys = list(islice(self._ends, MOST_NAMED))
        requested: dict[TopicPartition, FollowedPartition] = {}
        for key in keys:
            del self._ends[key]
            followed = self._followed.get(key)
            if followed is not None:
                requested[followed.partition.topic_partition] = followed
        if not requested:
            self._schedule_request()
            return
        epochs = {name: followed.role.leader_epoch for name, followed in requested.items()}
        ends: dict[TopicPartition, int] = {}
        self._is_busy = True

        def on_ends(response: ListOffsetsResponse | None, _error: KlogError | None) -> None:
            if response is not None:
                ends.update(response_offsets(response))

        def on_starts(response: ListOffsetsResponse | None, error: KlogError | None) -> None:
            starts = {} if response is None else dict(response_offsets(response))
            for name, followed in requested.items():
                if name in starts and name in ends:
                    followed.handle_ends(epochs[name], starts[name], ends[name])
                else:
                    followed.handle_unknown_ends()
                self._news[followed.key] = None
            if connection is self._connection:
                if response is None:
                    self._failed(str(error))
                self._is_busy = False
                self._schedule_request()

        for timestamp, done in ((LATEST, on_ends), (EARLIEST, on_starts)):
            self._send_ends(connection, epochs, timestamp, done)

    def _send_ends(
        self,
        connection: EventedConnection,
        epochs: dict[TopicPartition, LeaderEpoch],
        timestamp: int,
        done: Callable[[ListOffsetsResponse | None, KlogError | None], None],
    ) -> None:
        request = ends_request(epochs, self._identity.broker_id, timestamp)
        low, high = LIST_OFFSETS_VERSIONS
        connection.send(
            ListOffsetsResponse,
            lambda _version: request,
            done,
            self._settings.timeout_ms,
            low=low,
            high=high,
        )
