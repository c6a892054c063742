"""Before a broker stops, it asks the controller to move its partitions to other brokers."""

from typing import Any

import pytest

from klog_broker.membership.controlled_shutdown import ControlledShutdown
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId
from pyspark_klog.protocol.apis.controlled_shutdown import (
    ControlledShutdownResponse,
    RemainingPartition,
)
from tests.support.cluster.virtual_time import VirtualTime

GIVEN = ControlledShutdownResponse()
REMAINS = ControlledShutdownResponse(
    remaining_partitions=[RemainingPartition(topic_name="orders", partition_index=3)]
)
ELSEWHERE = ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER)


class Asked(VirtualTime):
    """A controller with these responses, one after the other; None: no response."""

    def __init__(self, *answers: ControlledShutdownResponse | None, tries: int = 3) -> None:
        super().__init__()
        self.answers = list(answers)
        self.epoch = 50
        self.requests: list[Any] = []
        self.is_over = False
        self.is_alone = False
        self.has_zookeeper = True
        self.timeouts_ms: list[int] = []
        self.leaving = ControlledShutdown(
            self.loop,
            self,  # type: ignore[arg-type]
            BrokerId(1),
            lambda: self.epoch,
            lambda: self.is_alone,
            lambda: self.has_zookeeper,
            tries=tries,
            pause_ms=5_000,
            timeout_ms=30_000,
            then=self.over,
        )

    def send(self, _response_class: type, build: Any, done: Any, timeout_ms: int) -> None:
        self.timeouts_ms.append(timeout_ms)
        self.requests.append(build(3))
        answer = self.answers.pop(0)
        self.loop.call_soon(lambda: done(answer))

    def over(self) -> None:
        assert not self.is_over
        self.is_over = True


def test_it_stops_once_others_lead() -> None:
    asked = Asked(GIVEN)
    asked.leaving.send_request()
    assert not asked.is_over
    asked.turns()
    assert asked.is_over
    assert asked.timeouts_ms == [30_000]
    [request] = asked.requests
    assert (request.broker_id, request.broker_epoch) == (1, 50)


@pytest.mark.parametrize("first", [None, REMAINS, ELSEWHERE], ids=["lost", "remains", "elsewhere"])
def test_it_asks_again_after_a_while(first: ControlledShutdownResponse | None) -> None:
    asked = Asked(first, GIVEN)
    asked.leaving.send_request()
    asked.turns(after_ms=4_999)
    assert (len(asked.requests), asked.is_over) == (1, False)
    asked.turns(after_ms=5_000)
    assert (len(asked.requests), asked.is_over) == (2, True)


def test_it_stops_in_any_case(caplog: pytest.LogCaptureFixture) -> None:
    asked = Asked(None, ELSEWHERE, REMAINS)
    asked.leaving.send_request()
    for _ in range(3):
        assert not asked.is_over
        asked.turns(after_ms=5_000)
    assert asked.is_over
    assert "this broker still leads 1 partitions, such as orders-3: probably no" in caplog.text


def test_a_broker_that_is_not_registered_or_has_no_tries_stops_at_once() -> None:
    asked = Asked(tries=0)
    asked.leaving.send_request()
    assert asked.is_over
    asked = Asked()
    asked.epoch = -1
    asked.leaving.send_request()
    assert asked.is_over
    assert asked.requests == []


def test_the_last_broker_sends_no_request(caplog: pytest.LogCaptureFixture) -> None:
    asked = Asked(REMAINS)
    asked.leaving.send_request()
    asked.turns()
    asked.is_alone = True  # the other broker has stopped meanwhile
    asked.turns(after_ms=5_000)
    assert (len(asked.requests), asked.is_over) == (1, True)
    assert "stops while it may lead partitions: no other broker is registered" in caplog.text


@pytest.mark.parametrize("answer", [None, ELSEWHERE, GIVEN], ids=["lost", "elsewhere", "given"])
def test_a_broker_without_zookeeper_sends_one_short_request(
    answer: ControlledShutdownResponse | None,
) -> None:
    asked = Asked(answer)
    asked.has_zookeeper = False
    asked.leaving.send_request()
    asked.turns()
    assert (asked.timeouts_ms, asked.is_over) == ([3_000], True)
