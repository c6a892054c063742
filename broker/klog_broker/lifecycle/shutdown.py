"""The orderly shutdown: accepted requests are answered, and every wait has a time limit."""

import logging
from collections.abc import Callable
from typing import Protocol

from klog_broker.log.manager.log_manager import LogManager
from klog_broker.metadata.image import INTERNAL_TOPICS
from klog_broker.network.server import Server
from klog_broker.replication.leader import Leader
from klog_broker.replication.partition import Partition
from klog_broker.replication.replica_manager import ReplicaManager
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.event_loop.purgatory import Purgatory

_log = logging.getLogger("klog.app")

# How long a shutdown lets delayed requests wait for a sync to disk or for another client's request.
# After this time, the delayed requests are answered as if their timeout had passed.
_PATIENCE_MS = 1_000
# The limit that holds instead of _PATIENCE_MS while requests wait for a sync to disk, because a
# disk may be slow.
_SYNC_PATIENCE_MS = 5_000
# How long a shutdown waits for clients to receive their responses.
_SENDING_MS = 1_000
_LOOK_MS = 20
_ENDED_A_TURN = 200


class ShutdownServices(Protocol):
    """The parts of a broker that a shutdown uses."""

    @property
    def logs(self) -> LogManager: ...

    @property
    def loop(self) -> Loop: ...

    @property
    def purgatory(self) -> Purgatory: ...

    @property
    def replicas(self) -> ReplicaManager: ...


class Shutdown:
    """Ends the connections of a broker whose event loop still runs, then calls ``over``.

    First the listeners and the connections without outstanding requests are closed, and long polls
    are answered with the data that there is. The broker gives up the leadership of each partition
    that has followers, so that producers that wait for these followers get NOT_LEADER_OR_FOLLOWER.
    After a time limit, the broker gives up the leadership of the coordinators' internal topics, so
    that JoinGroup and other delayed requests to coordinators are answered. The delayed requests
    that are left are answered as if their timeout had passed. Last, connections whose clients do
    not read their responses are closed.
    """

    def __init__(
        self, server: Server, services: ShutdownServices, over: Callable[[], None]
    ) -> None:
        self._server = server
        self._services = services
        self._over = over
        self._loop = services.loop
        self._since_ms = services.loop.now_ms()
        self._patient_until_ms: int | None = None
        self._led_with_others: list[Partition] = []

    def start(self) -> None:
        """Start the shutdown. Called once."""
        self._server.stop_accepting()
        self._led_with_others = [
            each
            for each in self._services.replicas.partitions()
            if isinstance(each.role, Leader) and not each.role.has_no_followers
        ]
        self._continue()

    def _continue(self) -> None:
        # Expire long polls in every call of this method: a request that was received before the
        # shutdown, but is handled only now, can be a new long poll.
        ending = self._server.end_connections(_ENDED_A_TURN)
        polls = self._services.purgatory.expire_some(_ENDED_A_TURN, long_polls_alone=True)
        resigned = self._led_with_others[-_ENDED_A_TURN:]
        del self._led_with_others[-_ENDED_A_TURN:]
        for each in resigned:
            each.stop(deletes=False)
        if not self._server.connection_count:
            self._over()
            return
        now_ms = self._loop.now_ms()
        if ending or polls or resigned:
            self._loop.call_soon(self._continue)
            return
        if self._patient_until_ms is None:
            if not self._is_patient(now_ms - self._since_ms):
                self._patient_until_ms = now_ms + _SENDING_MS
                self._end_leaderships()
        elif self._services.purgatory.expire_some(_ENDED_A_TURN):
            self._loop.call_soon(self._continue)
            return
        elif now_ms >= self._patient_until_ms:
            _log.warning(
                "connections=%d closed before all responses were sent: their clients do not read,"
                " or the broker did not complete the responses in time",
                self._server.connection_count,
            )
            self._over()
            return
        self._loop.call_later(_LOOK_MS, self._continue)

    def _is_patient(self, waited_ms: int) -> bool:
        if waited_ms < _PATIENCE_MS or waited_ms >= _SYNC_PATIENCE_MS:
            return waited_ms < _PATIENCE_MS
        return any(log.flush_waiters for log in self._services.logs.logs())

    def _end_leaderships(self) -> None:
        """Give up the leadership of the internal topics, so that coordinators answer their delayed
        requests."""
        for partition in list(self._services.replicas.partitions()):
            if partition.topic_partition.topic in INTERNAL_TOPICS:
                partition.stop(deletes=False)
