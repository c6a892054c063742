"""The preparation of an evented connection: each attempt to connect waits for it."""

from collections.abc import Callable

from pyspark_klog.client.errors import AuthenticationFailed
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.client.transport.preparation import Prepared
from pyspark_klog.errors import KlogError
from tests.support.client.evented_world import ADDRESS, EventedWorld

SETUP_TIMEOUT_MS = 5_000
FOUND = Prepared("10.9.9.9")


class Helper:
    """Prepares when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Callable[[Prepared | KlogError], None]] = []

    def prepare(self, address: Address, done: Callable[[Prepared | KlogError], None]) -> None:
        assert address == ADDRESS
        self.asked.append(done)


def test_the_prepared_address_is_used() -> None:
    helper = Helper()
    world = EventedWorld(prepare=helper.prepare)
    world.request_metadata("a")
    world.turns()
    assert (len(helper.asked), world.network.asked) == (1, [])
    helper.asked[0](FOUND)
    world.turns()
    assert world.network.asked == [("10.9.9.9", ADDRESS.port, None)]
    broker = world.broker
    for _ in ("versions", "metadata"):
        [asked] = broker.requests()
        broker.reply_to(asked)
        world.turns()
    assert world.taken() == [("a", "a")]
    assert len(helper.asked) == 1


def test_a_failed_preparation_fails_the_requests_and_is_tried_again() -> None:
    helper = Helper()
    world = EventedWorld(prepare=helper.prepare)
    world.request_metadata("a")
    world.turns()
    helper.asked[0](AuthenticationFailed("there is no password"))
    world.turns()
    assert world.taken() == [("a", "AuthenticationFailed")]
    world.request_metadata("b")
    world.turns()
    assert len(helper.asked) == 1  # the wait before the next attempt
    world.turns(after_ms=500)
    assert len(helper.asked) == 2


def test_a_preparation_that_takes_too_long_is_given_up() -> None:
    helper = Helper()
    world = EventedWorld(prepare=helper.prepare)
    world.request_metadata("a", timeout_ms=60_000)
    world.turns()
    world.turns(after_ms=SETUP_TIMEOUT_MS - 1)
    assert world.taken() == []
    world.turns(after_ms=1)
    assert "was not known within 5000 ms" in world.error()
    assert world.taken() == [("a", "ConnectionFailed")]
    helper.asked[0](FOUND)
    world.turns()
    assert world.network.asked == []


def test_a_connection_that_is_closed_ignores_its_preparation() -> None:
    helper = Helper()
    world = EventedWorld(prepare=helper.prepare)
    world.request_metadata("a")
    world.turns()
    world.connection.close()
    helper.asked[0](FOUND)
    world.turns(after_ms=60_000)
    assert world.taken() == [("a", "ConnectionFailed")]
    assert world.network.asked == []
