"""Connections to other brokers: their names are looked up in a helper thread."""

import pytest

from klog_broker.runtime.net.sockets import RealNetwork
from klog_broker.runtime.peers import Peers
from klog_broker.runtime.system.chance import Chance
from pyspark_klog.errors import KlogError
from pyspark_klog.protocol.apis.metadata import MetadataResponse
from tests.support.client.evented_world import (
    BrokerEnd,
    ConnectingNetwork,
    KeptStream,
    metadata_request,
)
from tests.support.cluster.helpers import Helpers
from tests.support.cluster.virtual_time import VirtualTime


class NamedNetwork(ConnectingNetwork):
    """Connects to addresses only; the test knows whose they are."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, str] = {}
        self.looked_up: list[str] = []

    def connect(self, host: str, port: int, from_address: str | None = None) -> KeptStream:
        if host.startswith("broker"):
            raise ValueError(f"{host} is a name")
        return super().connect(host, port, from_address)

    def look_up(self, host: str) -> str:
        self.looked_up.append(host)
        if host not in self.names:
            raise OSError("no such name")
        return self.names[host]


class PeersWorld(VirtualTime):
    """One connection to the broker at "broker-1"."""

    def __init__(self, from_address: str | None = None) -> None:
        self.network = NamedNetwork()
        super().__init__(poller=self.network.poller)
        self.helpers = Helpers.held()
        peers = Peers(
            self.loop,
            self.helpers,
            self.network,
            Chance(1),
            client_id="broker-7",
            from_address=from_address,
        )
        self.connection = peers.connect("broker-1", 9092)
        self.answers: list[str] = []

    def request_metadata(self) -> None:
        """Ask for metadata; `answers` gets the cluster's id or the error."""

        def on_response(reply: MetadataResponse | None, error: KlogError | None) -> None:
            self.answers.append(str(error) if reply is None else str(reply.cluster_id))

        self.connection.send(MetadataResponse, lambda _: metadata_request("t"), on_response, 5_000)
        self.turns(after_ms=1_000)

    def serve(self) -> None:
        """Respond to all requests at the newest connection."""
        broker = BrokerEnd(self.network.opened[-1])
        for _ in ("versions", "metadata"):
            [asked] = broker.requests()
            broker.reply_to(asked)
            self.turns(after_ms=1_000)


def test_a_name_is_looked_up_in_a_helper_and_then_connected_to() -> None:
    world = PeersWorld(from_address="10.0.0.7")
    world.network.names["broker-1"] = "10.0.0.1"
    world.request_metadata()
    assert world.network.looked_up == []
    world.helpers.run_all()
    assert world.network.looked_up == ["broker-1"]
    world.turns()
    assert world.network.asked == [("10.0.0.1", 9092, "10.0.0.7")]
    world.serve()
    assert world.answers == ["t"]


def test_each_connection_looks_its_name_up_again() -> None:
    world = PeersWorld()
    for address in ("10.0.0.1", "10.0.0.2"):
        world.network.names["broker-1"] = address
        world.request_metadata()
        world.helpers.run_all()
        world.turns()
        world.serve()
        world.network.opened[-1].is_at_end = True
        world.turns(after_ms=1_000)
    assert [host for host, _, _ in world.network.asked] == ["10.0.0.1", "10.0.0.2"]


def test_a_name_without_an_address_is_said_and_asked_for_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = PeersWorld()
    world.request_metadata()
    world.helpers.run_all()
    world.turns()
    assert "cannot look up the address of the broker at broker-1: no such name" in caplog.text
    assert world.answers == [
        "could not connect to broker-1:9092: the name has no address: no such name"
    ]
    world.network.names["broker-1"] = "10.0.0.1"
    world.request_metadata()
    world.helpers.run_all()
    world.turns()
    world.serve()
    assert world.answers[-1] == "t"


def test_the_systems_names() -> None:
    network = RealNetwork()
    assert network.look_up("localhost") == "127.0.0.1"
    with pytest.raises(OSError):
        network.look_up("a name with spaces.invalid")
