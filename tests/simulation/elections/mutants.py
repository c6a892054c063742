"""Bugs in a broker's membership of the cluster. When that code moves, adapt it here."""

from typing import Any

from klog_broker.controller.zookeeper import controller_election
from klog_broker.controller.zookeeper.controller_election import Election, ElectionState
from klog_broker.controller.zookeeper.fenced_writes import FencedWrites
from klog_broker.metadata.zookeeper import conversation
from klog_broker.metadata.zookeeper.registration import Registration
from klog_broker.metadata.zookeeper.registration_reader import BrokerRegistrationReader
from klog_broker.metadata.zookeeper.sessions import Sessions
from klog_broker.runtime.zookeeper.sessions import Create, Set
from tests.simulation.mutants.mutant import Mutant


def _unchecked(_original: Any) -> Any:
    def write(writes: Any, operations: Any, done: Any) -> None:
        """A controller writes without a check that it is still the controller."""
        writes._session.multi(list(operations), done)

    return write


def _not_read_back(original: Any) -> Any:
    def is_held(candidate: Any, session: Any, node: Any, epoch: Any) -> None:
        """A node whose creation was not acknowledged counts as another broker's."""
        if candidate.writes is None:
            node = node._replace(stat=node.stat._replace(ephemeral_owner=-1))
        original(candidate, session, node, epoch)

    return is_held


def _two_steps(_original: Any) -> Any:
    def multi(session: Any, create: Create, put: Set) -> Any:
        """The node is created first, and the epoch is raised by a second request."""
        made = yield from conversation.multi(session, create)
        if not isinstance(made, tuple):
            return made
        changed = yield from conversation.multi(session, put)
        return changed if not isinstance(changed, tuple) else (*made, *changed)

    return multi


def _epoch_not_raised(_original: Any) -> Any:
    def encode(epoch: int) -> bytes:
        return str(max(epoch - 1, 0)).encode()

    return encode


def _epoch_any_version(original: Any) -> Any:
    def multi(session: Any, create: Create, put: Set) -> Any:
        return original(session, create, put._replace(version=-1))

    return multi


def _watch_missed(original: Any) -> Any:
    def connected(candidate: Any, session: Any) -> None:
        """The broker reads nothing again after a break, as if watches outlived the connection."""
        candidate._session = session
        if candidate.state in (ElectionState.AWAY, ElectionState.ASKING):
            original(candidate, session)

    return connected


def _resigns_late(_original: Any) -> Any:
    def expired(candidate: Any) -> None:
        """A controller whose session has expired resigns only when another controller appears."""
        candidate._session = None
        candidate._conversation.drop()
        candidate.state = ElectionState.AWAY

    return expired


def _registered_once(_original: Any) -> Any:
    def expired(registration: Any) -> None:
        """The broker registers in its first session only."""
        registration._then.expired()
        registration._says = None

    return expired


def _waits_for_nobody(_original: Any) -> Any:
    def wait(registration: Any, _session: Any, _says: Any, _owner: int) -> Any:
        """The node of the broker's own last run counts as another broker's."""
        registration._is_refused = True
        registration._on_in_use("in use")
        yield from ()

    return wait


def _changes_while_reading(_original: Any) -> Any:
    def changed(live: Any) -> None:
        """A change that comes while the brokers are read counts as read."""
        if not live._conversation.is_under_way:
            live._read()

    return changed


def _session_before_users(original: Any) -> Any:
    def event(sessions: Any, number: int, what: Any) -> None:
        """The next session begins while its users still have the old one."""
        if what.value == "expired":
            sessions._open()
            for user in sessions._users:
                user.expired()
            return
        original(sessions, number, what)

    return event


MUTANTS = (
    Mutant("write unchecked", FencedWrites, "write", _unchecked),
    Mutant("lost answer not read back", Election, "_take_controller", _not_read_back),
    Mutant("node and epoch in two steps", controller_election, "multi", _two_steps),
    Mutant("epoch not raised", controller_election, "encode_controller_epoch", _epoch_not_raised),
    Mutant("epoch of any version", controller_election, "multi", _epoch_any_version),
    Mutant("watch missed after a break", Election, "connected", _watch_missed),
    Mutant("resigns late", Election, "expired", _resigns_late),
    Mutant("registered once", Registration, "expired", _registered_once),
    Mutant("last life not waited for", Registration, "_wait", _waits_for_nobody),
    Mutant(
        "change while reading lost", BrokerRegistrationReader, "_changed", _changes_while_reading
    ),
    Mutant("session before its users", Sessions, "_event", _session_before_users),
)
