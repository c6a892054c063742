"""Plans of pipelined Produce serve principals with different rights in one turn."""

from collections.abc import Iterator

import pytest

from klog_broker.security.acls import AclOperation, AclResourceType
from klog_broker.security.principal import ANONYMOUS, KafkaPrincipal
from klog_broker.security.principal_numbers import PrincipalNumbers
from pyspark_klog.errors import ErrorCode
from tests.support.api.produce_frames import batch, frame, produce_responses
from tests.support.cluster.broker import MemoryBroker, new_broker
from tests.support.runtime.fake_network import FakeStream
from tests.support.security.rules import Rules

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
WRITE, TOPIC = AclOperation.WRITE, AclResourceType.TOPIC


@pytest.fixture
def rules() -> Rules:
    return Rules()


@pytest.fixture
def broker(rules: Rules) -> Iterator[MemoryBroker]:
    found = new_broker(with_kernel=True, authorizer=rules)
    yield found
    found.close()


def connect(broker: MemoryBroker, user: str) -> FakeStream:
    """A connection of this user, as authentication would leave it."""
    before = set(broker.broker.server._connections)
    stream = broker.connect()
    (connection,) = set(broker.broker.server._connections) - before
    connection.principal = KafkaPrincipal("User", user)
    numbers = broker.broker.services.principal_numbers
    connection.principal_number = numbers.number(connection.principal)
    connection.forget_cached_requests()
    return stream


def codes(stream: FakeStream, version: int = 9) -> list[int]:
    return [each.error_code for each in produce_responses(stream, version)]


def produce(broker: MemoryBroker, *streams: FakeStream, version: int = 9) -> None:
    """One request of each connection, all in one turn."""
    for stream in streams:
        stream.inbox += frame(batch(b"v"), version=version)
    broker.turns()


@pytest.mark.parametrize("version", [9, 13])
def test_principals_with_different_rights_share_a_turn(
    broker: MemoryBroker, rules: Rules, version: int
) -> None:
    alice, bob, carol = (connect(broker, user) for user in ("alice", "bob", "carol"))
    rules.deny(WRITE, TOPIC, "plain", "bob")
    for turn in range(1, 4):
        produce(broker, alice, bob, carol, version=version)
        assert codes(alice, version) == codes(carol, version) == [ErrorCode.NONE]
        assert codes(bob, version) == [DENIED]
        assert broker.planned == 2 * turn
    assert broker.log("plain").log_end_offset == 6


def test_a_planned_target_does_not_survive_a_change_of_the_rules(
    broker: MemoryBroker, rules: Rules
) -> None:
    alice = connect(broker, "alice")
    produce(broker, alice)
    assert codes(alice) == [ErrorCode.NONE]
    questions = rules.questions
    produce(broker, alice)
    assert codes(alice) == [ErrorCode.NONE]
    assert (broker.planned, rules.questions) == (2, questions)
    rules.deny(WRITE, TOPIC, "plain", "alice")
    produce(broker, alice)
    assert codes(alice) == [DENIED]
    rules.allow_everything()
    produce(broker, alice)
    assert codes(alice) == [ErrorCode.NONE]
    assert broker.log("plain").log_end_offset == 3


def test_the_next_user_of_a_connection_has_rights_of_its_own(
    broker: MemoryBroker, rules: Rules
) -> None:
    rules.deny(WRITE, TOPIC, "plain", "bob")
    stream = connect(broker, "alice")
    produce(broker, stream)
    (connection,) = (
        each for each in broker.broker.server._connections if each.principal.name == "alice"
    )
    connection.principal = KafkaPrincipal("User", "bob")
    connection.principal_number = broker.broker.services.principal_numbers.number(
        connection.principal
    )
    connection.forget_cached_requests()
    produce(broker, stream)
    assert codes(stream) == [ErrorCode.NONE, DENIED]


def test_without_rules_all_principals_share_the_targets() -> None:
    broker = new_broker(with_kernel=True)
    alice, bob = connect(broker, "alice"), connect(broker, "bob")
    produce(broker, alice, bob)
    assert broker.planned == 2
    plans = broker.broker.plans
    assert plans is not None and plans.planner is not None
    assert plans.planner._tables.slots == 1
    broker.close()


def test_a_principal_keeps_its_number() -> None:
    numbers = PrincipalNumbers()
    alice = KafkaPrincipal("User", "alice")
    assert (numbers.number(ANONYMOUS), numbers.number(alice), numbers.number(alice)) == (0, 1, 1)
    assert numbers.principal(1) == alice
    assert str(alice) == "User:alice"
