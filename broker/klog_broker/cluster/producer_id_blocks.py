"""Requests blocks of producer ids from the controller, for a broker of a cluster."""

import logging
from collections.abc import Callable

from klog_broker.cluster.controller_channel import ControllerConnection
from klog_broker.metadata.errors import NoResponse
from klog_broker.metadata.interface import Done, ProducerIdBlock
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, ProducerId
from pyspark_klog.protocol.apis.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

_log = logging.getLogger("klog.cluster")

TIMEOUT_MS = 5_000
_MAX_ID = (1 << 63) - 1


class ProducerIdBlocks:
    """Sends the controller one AllocateProducerIds request for each call of `allocate`; the caller
    calls it again after a failure."""

    def __init__(
        self,
        to_controller: ControllerConnection,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._to_controller = to_controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._is_failing = False

    def allocate(self, done: Done[ProducerIdBlock]) -> None:
        """Request a block of producer ids from the controller, and call `done` with it. No other
        broker gets these ids. If the controller does not answer, or answers with an error or an
        invalid block, `done` gets NoResponse."""

        def build(_version: int) -> AllocateProducerIdsRequest:
            return AllocateProducerIdsRequest(
                broker_id=self._broker_id, broker_epoch=self._broker_epoch()
            )

        def on_response(response: AllocateProducerIdsResponse | None) -> None:
            block = None if response is None else _block(response)
            if block is not None:
                self._is_failing = False
                done(block)
                return
            why = "no answer" if response is None else f"error {response.error_code}"
            if not self._is_failing:
                self._is_failing = True
                _log.warning(
                    "the controller sent no producer ids: %s; the next request tries again", why
                )
            done(NoResponse(f"the controller sent no producer ids: {why}"))

        self._to_controller.send(AllocateProducerIdsResponse, build, on_response, TIMEOUT_MS)


def _block(response: AllocateProducerIdsResponse) -> ProducerIdBlock | None:
    first, count = response.producer_id_start, response.producer_id_len
    if response.error_code != ErrorCode.NONE or not 0 <= first <= first + count - 1 <= _MAX_ID:
        return None
    return ProducerIdBlock(ProducerId(first), ProducerId(first + count))
