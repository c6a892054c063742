"""Requests to the controller: sent to the image's controller, each completed once."""

from klog_broker.cluster.controller_channel import ControllerConnection
from klog_broker.config import Listener
from klog_broker.metadata.image import NO_BROKER, BrokerRegistration, MetadataImage
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.client.transport.evented_connection import EventedConnection
from pyspark_klog.ids import BrokerId
from pyspark_klog.protocol.apis.metadata import MetadataResponse
from tests.support.client.evented_world import DEFAULTS, EventedWorld, metadata_request

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


def broker(number: BrokerId) -> BrokerRegistration:
    outside = Listener("OUTSIDE", "PLAINTEXT", "shop.example.org", 9092)
    inside = Listener("INSIDE", "PLAINTEXT", f"10.0.0.{number}", 9093)
    return BrokerRegistration(number, (outside, inside))


class Asking(EventedWorld):
    """A broker that knows brokers 1 and 2, and nothing of a controller yet."""

    def __init__(self) -> None:
        super().__init__()
        self.image = MetadataImage("cluster").with_brokers({ONE: broker(ONE), TWO: broker(TWO)})
        self.told: list[str] = []
        self.to_controller = ControllerConnection(
            lambda: self.image, "INSIDE", self.connect, self.loop.call_soon
        )

    def connect(self, host: str, port: int, /) -> EventedConnection:
        return EventedConnection(
            Address(host, port),
            DEFAULTS,
            loop=self.loop,
            connector=self.network,
            random=lambda: 0.5,
        )

    def controller_is(self, number: BrokerId) -> None:
        self.image = self.image.with_controller(number)
        self.to_controller.reconnect_if_moved()

    def send(self, name: str) -> None:
        def on_response(reply: MetadataResponse | None) -> None:
            self.told.append(f"{name}: {'none' if reply is None else reply.cluster_id}")

        self.to_controller.send(
            MetadataResponse, lambda _: metadata_request(name), on_response, 1_000
        )

    def answer(self) -> None:
        self.turns()
        end = self.broker
        for _ in ("versions", "metadata"):
            [asked] = end.requests()
            end.reply_to(asked)
            self.turns()


def test_the_present_controller_is_asked_over_the_brokers_listener() -> None:
    asking = Asking()
    asking.controller_is(TWO)
    asking.send("first")
    assert asking.told == []
    asking.answer()
    assert asking.told == ["first: first"]
    assert asking.network.asked == [("10.0.0.2", 9093, None)]


def test_no_request_is_sent_while_the_controller_is_unknown() -> None:
    asking = Asking()
    asking.send("none")
    asking.controller_is(THREE)
    asking.send("unknown")
    assert asking.told == []
    asking.turns()
    assert asking.told == ["none: none", "unknown: none"]
    assert asking.network.asked == []


def test_requests_to_an_old_controller_end_later_and_once() -> None:
    asking = Asking()
    asking.controller_is(ONE)
    asking.send("first")
    asking.turns()
    asking.controller_is(TWO)
    assert asking.told == []
    asking.send("second")
    asking.turns(1)
    assert asking.told == ["first: none"]
    asking.answer()
    assert asking.told == ["first: none", "second: second"]
    asking.controller_is(NO_BROKER)
    asking.send("third")
    asking.turns()
    assert asking.told == ["first: none", "second: second", "third: none"]


def test_without_a_response_in_time_the_outcome_is_unknown() -> None:
    asking = Asking()
    asking.controller_is(ONE)
    asking.send("late")
    asking.turns()
    asking.turns(after_ms=1_000)
    assert asking.told == ["late: none"]


def test_closing_ends_waiting_requests_and_sends_no_more() -> None:
    asking = Asking()
    asking.controller_is(ONE)
    asking.send("waits")
    asking.turns()
    asking.to_controller.close()
    assert asking.told == ["waits: none"]
    asking.send("after")
    asking.turns()
    assert asking.told == ["waits: none", "after: none"]
    assert len(asking.network.asked) == 1
