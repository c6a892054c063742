"""The channel on which a test's process sends commands to its own broker."""

import json
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from klog_broker.faults.commands import FaultCommands
from klog_broker.faults.isolation import Isolation
from klog_broker.parts import BrokerParts
from klog_broker.runtime.net.parent_channel import ParentChannel
from pyspark_klog.errors import ErrorCode
from tests.support.cluster.broker import MemoryBroker, new_broker
from tests.support.coordinator.transaction_client import MemoryClient, broker_with_coordinators


class Commander:
    """The test's end of the channel; the broker's loop is called directly."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._ours, theirs = socket.socketpair()
        self.readable: Any = None
        self.is_registered = False
        loop = SimpleNamespace(register=self._register, unregister=self._unregister)
        services = broker.broker.services
        shown = SimpleNamespace(
            loop=loop,
            requests=services.requests,
            metadata=services.metadata,
            config=services.config,
            advertised=services.advertised,
            groups=services.groups,
            transactions=services.transactions,
        )
        channel = ParentChannel(theirs.detach())
        self.isolation = Isolation()
        parts = cast("BrokerParts", shown)
        FaultCommands(channel, broker.broker.server, parts, self.isolation).serve()

    def _register(self, _descriptor: int, _interest: int, callback: Any) -> None:
        self.readable, self.is_registered = callback, True

    def _unregister(self, _descriptor: int) -> None:
        self.is_registered = False

    def send(self, data: bytes) -> None:
        self._ours.sendall(data)
        self.readable(1)

    def ask(self, **command: Any) -> Any:
        self.send(json.dumps(command).encode() + b"\n")
        return self.received()

    def received(self) -> Any:
        return json.loads(self._ours.recv(65_536))

    def end(self) -> None:
        self._ours.close()
        self.readable(1)


@pytest.fixture
def broker() -> MemoryBroker:
    return new_broker(with_kernel=False, topics=("plain",))


@pytest.fixture
def commander(broker: MemoryBroker) -> Iterator[Commander]:
    commander = Commander(broker)
    yield commander
    if commander.is_registered:
        commander.end()


DELAY = {"action": "delay", "api": "Produce", "ms": 5, "times": None}


def test_a_fault_is_added_counted_and_ended(broker: MemoryBroker, commander: Commander) -> None:
    ordinary = broker.broker.server.handle_frame
    assert commander.ask(command="add", id=7, **DELAY) == {"result": None}
    assert broker.broker.server.handle_frame != ordinary
    assert commander.ask(command="fired", id=7) == {"result": 0}
    assert commander.ask(command="end", id=7) == {"result": 0}
    assert broker.broker.server.handle_frame == ordinary


def test_a_broker_is_cut_off_from_others_without_a_change_to_its_requests(
    broker: MemoryBroker, commander: Commander
) -> None:
    ordinary = broker.broker.server.handle_frame
    host, port = commander.ask(command="address")["result"]
    assert commander.ask(command="add", id=1, action="cut", address=None) == {"result": None}
    cut_of_one = commander.ask(command="add", id=2, action="cut", address=[host, port])
    assert cut_of_one == {"result": None}
    assert broker.broker.server.handle_frame == ordinary
    with pytest.raises(OSError, match="a fault of a test"):
        commander.isolation.check_zookeeper()
    assert commander.ask(command="fired", id=1) == {"result": 1}
    assert commander.ask(command="end", id=1) == {"result": 1}
    with pytest.raises(OSError, match="a fault of a test"):
        commander.isolation.check_broker(frozenset([(host, port)]))
    assert commander.ask(command="end", id=2) == {"result": 1}


def test_a_command_may_arrive_in_pieces(commander: Commander) -> None:
    line = json.dumps({"command": "add", "id": 1, **DELAY}).encode() + b"\n"
    commander.send(line[:9])
    commander.send(line[9:])
    assert commander.received() == {"result": None}


@pytest.mark.parametrize("line", [b"\n", b"{}\n", b'{"command": "unknown"}\n', b"[1]\n"])
def test_a_wrong_command_gets_an_error_and_the_broker_serves_on(
    commander: Commander, line: bytes
) -> None:
    commander.send(line)
    assert "could not carry this out" in commander.received()["error"]
    assert commander.ask(command="add", id=1, **DELAY) == {"result": None}


def test_the_end_of_the_channel_ends_all_faults(broker: MemoryBroker, commander: Commander) -> None:
    ordinary = broker.broker.server.handle_frame
    commander.ask(command="add", id=1, **DELAY)
    commander.ask(command="add", id=2, action="cut", address=None)
    commander.end()
    assert not commander.is_registered
    assert broker.broker.server.handle_frame == ordinary
    commander.isolation.check_zookeeper()


def test_an_ongoing_transaction_is_aborted_and_cannot_be_committed() -> None:
    broker = broker_with_coordinators()
    client = MemoryClient(broker)
    commander = Commander(broker)
    nothing = commander.ask(command="abort", transactional_id="tx")
    assert nothing == {"error": "'tx' has no ongoing transaction"}
    assert client.init() == client.verify() == 0
    client.write()
    assert commander.ask(command="abort", transactional_id="tx") == {"result": None}
    again = commander.ask(command="abort", transactional_id="tx")
    assert again == {"error": "'tx' has no ongoing transaction"}
    # Kafka's answer to an EndTxn with the epoch before the abort and another outcome.
    assert client.end_transaction() == ErrorCode.INVALID_TXN_STATE
    commander.end()


def test_a_group_without_members_is_neither_rebalanced_nor_expired() -> None:
    commander = Commander(broker_with_coordinators())
    refused = commander.ask(command="rebalance", group="g")
    assert refused == {"error": "the group 'g' has no members"}
    refused = commander.ask(command="expire", group="g", member="m")
    assert refused == {"error": "the group 'g' has 0 members 'm'; its members: none"}
    commander.end()
