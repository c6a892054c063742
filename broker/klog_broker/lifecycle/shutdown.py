"""The end in good order: what was accepted is answered, and nobody is waited for for long."""

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

# How long requests that wait for something that is about to happen (a sync, another request) may
# do so; then they are told that it did not.
_PATIENCE_MS = 1_000
# The same where replies wait for syncs: a disk may be slow.
_SYNC_PATIENCE_MS = 5_000
# How long clients may take to receive their answers.
_SENDING_MS = 1_000
_LOOK_MS = 20
_ENDED_A_TURN = 200


class StoppingServices(Protocol):
    """The parts of a broker that a shutdown works with."""

    @property
    def logs(self) -> LogManager: ...

    @property
    def loop(self) -> Loop: ...

    @property
    def purgatory(self) -> Purgatory: ...

    @property
    def replicas(self) -> ReplicaManager: ...


class Stopping:
    """Ends the connections of a broker whose loop still turns, then calls ``over``.

    At once listeners are closed, connections that have no request under way, too, and long polls
    are answered with what there is. Followers get no more than that, so that producers which wait
    for them are told that this broker leads no longer. Then whoever joins a group or waits for a
    coordinator is told that it has gone elsewhere, whoever waits for a sync that its time is up;
    nothing is written for any of that. At last connections whose clients do not read are closed.
    """

    def __init__(
        self, server: Server, services: StoppingServices, over: Callable[[], None]
    ) -> None:
        self._server = server
        self._services = services
        self._over = over
        self._loop = services.loop
        self._since_ms = services.loop.now_ms()
        self._patient_until_ms: int | None = None
        self._led_with_others: list[Partition] = []

    def begin(self) -> None:
        """Called once."""
        self._server.stop_accepting()
        self._led_with_others = [
            each
            for each in self._services.replicas.partitions()
            if isinstance(each.role, Leader) and not each.role.is_alone
        ]
        self._go_on()

    def _go_on(self) -> None:
        # Long polls come up again as long as requests are begun that were received before.
        ending = self._server.end_some(_ENDED_A_TURN)
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
            self._loop.call_soon(self._go_on)
            return
        if self._patient_until_ms is None:
            if not self._is_patient(now_ms - self._since_ms):
                self._patient_until_ms = now_ms + _SENDING_MS
                self._end_leaderships()
        elif self._services.purgatory.expire_some(_ENDED_A_TURN):
            self._loop.call_soon(self._go_on)
            return
        elif now_ms >= self._patient_until_ms:
            _log.warning(
                "connections=%d closed before all answers were received: their clients do not read",
                self._server.connection_count,
            )
            self._over()
            return
        self._loop.call_later(_LOOK_MS, self._go_on)

    def _is_patient(self, waited_ms: int) -> bool:
        if waited_ms < _PATIENCE_MS or waited_ms >= _SYNC_PATIENCE_MS:
            return waited_ms < _PATIENCE_MS
        return any(log.flush_waiters for log in self._services.logs.logs())

    def _end_leaderships(self) -> None:
        """Of the topics that coordinators keep their state in: they answer who waits for them."""
        for partition in list(self._services.replicas.partitions()):
            if partition.topic_partition.topic in INTERNAL_TOPICS:
                partition.stop(deletes=False)
