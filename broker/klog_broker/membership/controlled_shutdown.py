"""Controlled shutdown: before a broker stops, other brokers take the lead of its partitions."""

import logging
from collections.abc import Callable

from klog_broker.cluster.controller_channel import ControllerConnection
from klog_broker.runtime.event_loop.loop import Loop
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId
from pyspark_klog.protocol.apis.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

_log = logging.getLogger("klog.cluster")

_WITHOUT_ZOOKEEPER_MS = 3_000


class ControlledShutdown:
    """Sends ControlledShutdown requests until this broker leads no partition that another broker
    could lead, and then calls `then`.

    After `tries` requests, or earlier if a further request cannot help, it calls `then` even if
    this broker still leads such partitions. For the loop's thread.
    """

    def __init__(
        self,
        loop: Loop,
        to_controller: ControllerConnection,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        is_last_broker: Callable[[], bool],
        has_zookeeper: Callable[[], bool],
        *,
        tries: int,
        pause_ms: int,
        timeout_ms: int,
        then: Callable[[], None],
    ) -> None:
        """Prepare the requests.

        `is_last_broker` returns whether no other broker is alive, `has_zookeeper` whether this
        broker is connected to ZooKeeper.
        """
        self._loop = loop
        self._to_controller = to_controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._is_last_broker = is_last_broker
        self._has_zookeeper = has_zookeeper
        self._tries_left = tries
        self._pause_ms = pause_ms
        self._timeout_ms = timeout_ms
        self._then = then

    def send_request(self) -> None:
        """Send the first or the next request. The caller calls this method once. After a failed
        request, or while partitions remain, this object calls the method again after a pause."""
        if self._tries_left <= 0 or self._broker_epoch() < 0:
            # For the controller, a broker that is not registered is dead and leads no partition, so
            # a request would change nothing.
            self._give_up("the broker is not registered, or controlled.shutdown.max.retries is 0")
            return
        if self._is_last_broker():
            # No broker can take over the partitions, so send no request. Kafka's last broker sends
            # all of its requests, with the pauses between them.
            self._give_up("no other broker is registered")
            return
        self._tries_left -= 1
        timeout_ms = self._timeout_ms
        if not self._has_zookeeper():
            # The controller probably has no connection to ZooKeeper either, so it can change no
            # leader.
            self._tries_left = 0
            timeout_ms = min(timeout_ms, _WITHOUT_ZOOKEEPER_MS)
        request = ControlledShutdownRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch()
        )
        self._to_controller.send(
            ControlledShutdownResponse, lambda _: request, self._on_response, timeout_ms
        )

    def _on_response(self, response: ControlledShutdownResponse | None) -> None:
        if response is None:
            self._retry_later("the controller did not answer")
        elif response.error_code != ErrorCode.NONE:
            self._retry_later(f"the controller answered error {response.error_code}")
        elif response.remaining_partitions:
            first = response.remaining_partitions[0]
            self._retry_later(
                f"this broker still leads {len(response.remaining_partitions)} partitions, such as"
                f" {first.topic_name}-{first.partition_index}: probably no other replica is in sync"
            )
        else:
            _log.info("broker_id=%d leads no partition that others can lead", self._broker_id)
            self._then()

    def _retry_later(self, why: str) -> None:
        if self._tries_left <= 0:
            self._give_up(why)
            return
        _log.warning(
            "broker_id=%d repeats its ControlledShutdown request in %d ms: %s",
            self._broker_id,
            self._pause_ms,
            why,
        )
        self._loop.call_later(self._pause_ms, self.send_request)

    def _give_up(self, why: str) -> None:
        _log.warning("broker_id=%d stops while it may lead partitions: %s", self._broker_id, why)
        self._then()
