"""Cuts between a broker and the servers that it connects to: other brokers, and ZooKeeper."""

from collections.abc import Callable

import pytest

from klog_broker.faults.isolation import IsolatedNetwork, Isolation
from klog_broker.runtime.net.sockets import StreamSocket
from tests.support.runtime.fake_network import FakeNetwork, FakeStream

OTHER, THIRD = ("10.0.0.2", 9092), ("10.0.0.3", 9092)


class NamedNetwork(FakeNetwork):
    """A network that knows the address of one name."""

    def look_up(self, host: str) -> str:
        assert host == "broker-2"
        return OTHER[0]


@pytest.fixture
def isolation() -> Isolation:
    return Isolation()


@pytest.fixture
def memory() -> FakeNetwork:
    return NamedNetwork()


@pytest.fixture
def network(memory: FakeNetwork, isolation: Isolation) -> IsolatedNetwork:
    return IsolatedNetwork(memory, isolation)


def behind(memory: FakeNetwork, stream: StreamSocket) -> FakeStream:
    """Return the stream in memory that carries the bytes of a broker's stream."""
    return memory.streams[stream.fileno()]


def send(stream: StreamSocket) -> int:
    return stream.send([b"request"])


def receive(stream: StreamSocket) -> int:
    return stream.recv_into(memoryview(bytearray(10)))


@pytest.mark.parametrize("use", [send, receive])
def test_no_bytes_pass_while_a_cut_lasts(
    isolation: Isolation,
    memory: FakeNetwork,
    network: IsolatedNetwork,
    use: Callable[[StreamSocket], int],
) -> None:
    stream = network.connect(*OTHER)
    behind(memory, stream).inbox += b"answer"
    isolation.add(1, None)
    with pytest.raises(OSError, match="a fault of a test"):
        use(stream)
    assert not behind(memory, stream).sent
    assert isolation.end(1) == 1
    assert use(stream) > 0


def test_new_connections_fail_while_a_cut_lasts(
    isolation: Isolation, memory: FakeNetwork, network: IsolatedNetwork
) -> None:
    isolation.add(1, None)
    for address in (OTHER, THIRD):
        with pytest.raises(OSError, match="a fault of a test"):
            network.connect(*address)
    assert (isolation.fired(1), memory.streams) == (2, {})
    isolation.end_all()
    assert send(network.connect(*OTHER)) == len(b"request")


def test_a_cut_of_one_broker_leaves_the_others_and_zookeeper(
    isolation: Isolation, network: IsolatedNetwork
) -> None:
    isolation.add(1, OTHER)
    isolation.add(2, ("10.0.0.3", 9093))
    isolation.check_zookeeper()
    assert send(network.connect(*THIRD))
    with pytest.raises(OSError, match="a fault of a test"):
        network.connect(*OTHER)
    assert (isolation.end(1), isolation.end(2)) == (1, 0)


def test_a_broker_that_is_advertised_by_name_is_cut_off(
    isolation: Isolation, network: IsolatedNetwork
) -> None:
    stream = network.connect(network.look_up("broker-2"), 9092)
    isolation.add(1, ("broker-2", 9092))
    with pytest.raises(OSError, match="a fault of a test"):
        send(stream)


def test_a_cut_of_all_brokers_cuts_zookeeper(isolation: Isolation) -> None:
    isolation.add(1, None)
    with pytest.raises(OSError, match="a fault of a test"):
        isolation.check_zookeeper()
    assert isolation.end(1) == 1
    isolation.check_zookeeper()
