"""The end of a broker in its cluster: before it stops, others are to lead its partitions."""

import logging
from collections.abc import Callable

from klog_broker.cluster.controller_channel import ToController
from klog_broker.runtime.event_loop.loop import Loop
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId
from pyspark_klog.protocol.apis.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

_log = logging.getLogger("klog.cluster")

_WITHOUT_ZOOKEEPER_MS = 3_000


class Leaving:
    """Asks the controller (ControlledShutdown) until this broker leads nothing that others can
    lead, `tries` times at most; then `then` is called in any case. For the loop's thread."""

    def __init__(
        self,
        loop: Loop,
        to_controller: ToController,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        is_alone: Callable[[], bool],
        has_zookeeper: Callable[[], bool],
        *,
        tries: int,
        pause_ms: int,
        timeout_ms: int,
        then: Callable[[], None],
    ) -> None:
        """`is_alone`: no other broker is known that could lead anything. `has_zookeeper`: this
        broker has a connection to it."""
        self._loop = loop
        self._to_controller = to_controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._is_alone = is_alone
        self._has_zookeeper = has_zookeeper
        self._tries_left = tries
        self._pause_ms = pause_ms
        self._timeout_ms = timeout_ms
        self._then = then

    def begin(self) -> None:
        """Called once."""
        if self._tries_left <= 0 or self._broker_epoch() < 0:
            # Who is not registered leads nothing as far as the controller knows.
            self._give_up("it is not registered, or may not ask")
            return
        if self._is_alone():
            # Kafka's last broker asks all its times, and pauses in between.
            self._give_up("no other broker is there")
            return
        self._tries_left -= 1
        timeout_ms = self._timeout_ms
        if not self._has_zookeeper():
            # Most likely the controller has none, either: it can move nothing, and does not answer.
            self._tries_left = 0
            timeout_ms = min(timeout_ms, _WITHOUT_ZOOKEEPER_MS)
        request = ControlledShutdownRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch()
        )
        self._to_controller.send(
            ControlledShutdownResponse, lambda _: request, self._answered, timeout_ms
        )

    def _answered(self, answer: ControlledShutdownResponse | None) -> None:
        if answer is None:
            self._try_again("the controller did not answer")
        elif answer.error_code != ErrorCode.NONE:
            self._try_again(f"the controller answered error {answer.error_code}")
        elif answer.remaining_partitions:
            first = answer.remaining_partitions[0]
            self._try_again(
                f"no other replica is in sync for {len(answer.remaining_partitions)} partitions,"
                f" as {first.topic_name}-{first.partition_index}"
            )
        else:
            _log.info("broker_id=%d leads nothing that others can lead", self._broker_id)
            self._then()

    def _try_again(self, why: str) -> None:
        if self._tries_left <= 0:
            self._give_up(why)
            return
        _log.warning(
            "broker_id=%d asks to stop again in %d ms: %s", self._broker_id, self._pause_ms, why
        )
        self._loop.call_later(self._pause_ms, self.begin)

    def _give_up(self, why: str) -> None:
        _log.warning("broker_id=%d stops while it may lead partitions: %s", self._broker_id, why)
        self._then()
