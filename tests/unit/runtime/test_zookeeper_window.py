"""zookeeper.max.in.flight.requests: fewer requests at the server, never more than 64."""

from typing import Any

import pytest

from klog_broker.runtime.zookeeper.session import CarriedSession
from tests.support.cluster.local_store import SteppedLoop


class Holding:
    """A carrier whose server does not respond."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, request: Any, on_response: Any, watch: Any = None) -> None:
        if not self.sent:
            on_response(None)  # the first is the session's own
        self.sent.append(request)


@pytest.mark.parametrize("given, most", [(1, 1), (10, 10), (64, 64), (1000, 64)])
def test_so_many_are_at_the_server(given: int, most: int) -> None:
    loop: Any = SteppedLoop()
    session = CarriedSession(loop, lambda _: None, requests_in_flight=given)
    session.carrier = carrier = Holding()
    session.connected(1, 6_000)
    for _ in range(100):
        session.get("/a", lambda _: None)
    assert len(carrier.sent) - 1 == most
