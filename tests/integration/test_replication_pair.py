"""Two brokers over real sockets, a leader and a follower; a test sends the role changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klog_broker.cluster.fetcher_startup import start_fetchers
from klog_broker.cluster.isr_requests import IsrRequests
from klog_broker.config import Listener
from klog_broker.fetch.follower_fetch import followers_on
from klog_broker.log.partition_log import PartitionLog
from klog_broker.metadata.image import BrokerRegistration
from klog_broker.metadata.role_changes import RoleAssignment
from klog_broker.runtime.net.sockets import RealNetwork
from klog_broker.runtime.peers import Peers
from pyspark_klog.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition
from tests.support.broker_thread import BrokerThread
from tests.support.cluster.followers import contents
from tests.support.eventually import eventually
from tests.support.raw_requests import batch, create_topic, produced

TOPIC = "copied"
BOTH = (BrokerId(0), BrokerId(1))


class NoController:
    """A channel to the controller that gets no response."""

    def send(self, *_: Any) -> None: ...


class Pair:
    def __init__(self, directory: Path, **settings: object) -> None:
        more = {name.replace("_", "."): value for name, value in settings.items()}
        self.directory = directory
        self.settings = {"replica.fetch.backoff.ms": 50, **more}
        self.brokers = [self.start(number) for number in BOTH]
        for number in BOTH:
            self.join(number)
        with self.brokers[0].client() as client:
            self.topic_id = TopicId(create_topic(client, TOPIC, 3))

    def start(self, number: int) -> BrokerThread:
        return BrokerThread(self.directory / str(number), {"broker.id": number, **self.settings})

    def join(self, number: BrokerId) -> None:
        """Make a broker that runs alone one of two."""
        thread, other = self.brokers[number], BrokerId(1 - number)
        endpoint = Listener("PLAINTEXT", "PLAINTEXT", *self.brokers[other].address)
        broker = thread.broker

        def join() -> None:
            services = broker.services
            controller: Any = NoController()
            services.broker_epoch = lambda: 70 + number
            peers = Peers(
                broker.loop, services.helpers, RealNetwork(), services.chance, client_id="b"
            )
            services.follower_refusal = followers_on(services.config.inter_broker_listener)
            services.metadata.register_broker(BrokerRegistration(other, (endpoint,)))
            IsrRequests(services, controller).start()
            start_fetchers(services, peers)

        thread.in_loop(join)

    def tell_address(self, number: BrokerId) -> None:
        """The other one hears where this broker is now."""
        endpoint = Listener("PLAINTEXT", "PLAINTEXT", *self.brokers[number].address)
        services = self.brokers[1 - number].broker.services

        def register_address() -> None:
            services.metadata.register_broker(BrokerRegistration(number, (endpoint,)))
            for each in services.on_image:
                each()

        self.brokers[1 - number].in_loop(register_address)

    def order(self, leader: int, epoch: int, *numbers: int, to: tuple[int, ...] = BOTH) -> None:
        orders = [
            RoleAssignment(
                TopicPartition(TOPIC, number),
                self.topic_id,
                BrokerId(leader),
                LeaderEpoch(epoch),
                epoch,
                BOTH,
                BOTH,
                True,
            )
            for number in numbers
        ]
        for broker in to:
            found: list[Any] = []
            replicas = self.brokers[broker].broker.services.replicas
            self.brokers[broker].in_loop(lambda r=replicas, f=found: r.apply(orders, f.append))
            eventually(lambda f=found: f == [{}], 10)

    def log(self, broker: int, number: int = 0) -> PartitionLog:
        log = self.brokers[broker].broker.services.logs.get(TopicPartition(TOPIC, number))
        assert log is not None
        return log

    def are_equal(self, number: int = 0) -> bool:
        def state(broker: int) -> Any:
            log = self.log(broker, number)
            return self.brokers[broker].in_loop(
                lambda: None if log.is_being_cut else [log.high_watermark, *contents(log)]
            )

        return bool(state(0) == state(1))

    def stop(self) -> None:
        for broker in self.brokers:
            broker.stop()


@pytest.fixture
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pair]:
    pair = Pair(tmp_path, **getattr(request, "param", {}))
    yield pair
    pair.stop()


@pytest.mark.parametrize("pair", [{}, {"log_flush_interval_messages": 1}], indirect=True)
def test_acks_all_is_answered_once_the_follower_has_the_records(pair: Pair) -> None:
    pair.order(0, 1, 0, 1, 2)
    with pair.brokers[0].client() as client:
        for number in range(20):
            for partition in range(3):
                produced(client, TOPIC, batch(b"%d" % number), partition=partition)
                assert pair.log(1, partition).log_end_offset == number + 1
    for partition in range(3):
        eventually(lambda p=partition: pair.are_equal(p), 10)
        assert pair.log(1, partition).high_watermark == 20


def test_a_large_log_is_caught_up_with(pair: Pair) -> None:
    pair.order(0, 1, 0, to=(0,))
    with pair.brokers[0].client() as client:
        for _ in range(40):
            records = batch(*(b"x" * 1000 for _ in range(500)))
            produced(client, TOPIC, records, acks=1)
    pair.order(0, 1, 0, to=(1,))
    eventually(lambda: pair.log(1).log_end_offset == 20_000, 30)
    eventually(pair.are_equal, 10)


def test_logs_that_parted_are_made_alike(pair: Pair) -> None:
    pair.order(0, 1, 0)
    with pair.brokers[0].client() as client, pair.brokers[1].client() as other:
        produced(client, TOPIC, batch(b"both"))
        # Each believes to lead.
        pair.order(1, 2, 0, to=(1,))
        pair.order(0, 3, 0, to=(0,))
        for value in (b"lost", b"lost too"):
            produced(other, TOPIC, batch(value, value), acks=1)
        produced(client, TOPIC, batch(b"kept"), acks=1)
        pair.order(0, 3, 0, to=(1,))
        eventually(pair.are_equal, 10)
        assert [value for _, value in contents(pair.log(1))[:-1]] == [b"both", b"kept"]
        produced(client, TOPIC, batch(b"after"))
    eventually(pair.are_equal, 10)


def test_a_leader_that_comes_back_elsewhere_is_followed_on(pair: Pair) -> None:
    pair.order(0, 1, 0)
    with pair.brokers[0].client() as client:
        produced(client, TOPIC, batch(b"1"))
    pair.brokers[0].stop()
    pair.brokers[0] = pair.start(0)
    pair.join(BOTH[0])
    pair.tell_address(BOTH[0])
    pair.order(0, 2, 0)
    with pair.brokers[0].client() as client:
        produced(client, TOPIC, batch(b"2"))
    eventually(pair.are_equal, 10)
