"""Bugs of controllers, and of brokers. When their code moves, adapt it here."""

from copy import copy
from dataclasses import replace
from typing import Any

from klog_broker.controller.decisions import isr_changes
from klog_broker.controller.decisions.context import ControllerContext
from klog_broker.controller.zookeeper import deletions, znode_reader, znode_writer
from klog_broker.controller.zookeeper.cluster_state import ControllerState
from klog_broker.controller.zookeeper.controller import Controller
from klog_broker.controller.zookeeper.fenced_writes import FencedWrites
from klog_broker.controller.zookeeper.request_queues import RequestQueues
from klog_broker.controller.zookeeper.znode_reader import Reader
from klog_broker.metadata.zookeeper import registration
from klog_broker.runtime.zookeeper.sessions import ANY_VERSION, Check
from pyspark_klog.errors import ErrorCode
from tests.simulation.controllers.brokers import BrokerLife
from tests.simulation.mutants.mutant import Mutant


def _unchecked(_original: Any) -> Any:
    def write(writes: Any, operations: Any, done: Any) -> None:
        """A controller writes without a check that it is still the controller."""
        writes._session.multi(list(operations), done)

    return write


def _registered_unseen(_original: Any) -> Any:
    def check(path: str, _version: int) -> Check:
        """A controller writes without a check that no broker has registered meanwhile."""
        return Check(path, ANY_VERSION)

    return check


def _registers_quietly(original: Any) -> Any:
    def multi(session: Any, *operations: Any) -> Any:
        return original(session, operations[-1])

    return multi


def _bounces_ignored(_original: Any) -> Any:
    return lambda _context, _partition: frozenset()


def _written_without_knowing(original: Any) -> Any:
    def leadership(partition: Any, node: Any) -> Any:
        """A partition state counts as written with knowledge of all present registrations."""
        return replace(original(partition, node), as_of_zxid=1 << 62)

    return leadership


def _epoch_kept(original: Any) -> Any:
    def next_state(context: Any, partition: Any, *, unclean: bool) -> Any:
        """A leader that has restarted leads in its old epoch."""
        state = original(context, partition, unclean=unclean)
        known = context.leadership(partition)
        if state is not None and known is not None and state.leader in context.bounced(partition):
            return replace(state, leader_epoch=known.state.leader_epoch)
        return state

    return next_state


def _unclean(original: Any) -> Any:
    return lambda context, partition, *, unclean: original(context, partition, unclean=True)


def _anybody_eligible(original: Any) -> Any:
    def fault(*arguments: Any) -> Any:
        found = original(*arguments)
        return ErrorCode.NONE if found is ErrorCode.INELIGIBLE_REPLICA else found

    return fault


def _old_leader_taken(original: Any) -> Any:
    def fault(context: Any, partition: Any, broker_id: Any, asked: Any, known: Any) -> Any:
        """An ISR request is accepted from any broker in any epoch, if the members are alive."""
        asked = copy(asked)
        asked.leader_epoch = known.state.leader_epoch
        asked.partition_epoch = known.partition_epoch
        state = replace(known.state, leader=broker_id)
        return original(context, partition, broker_id, asked, replace(known, state=state))

    return fault


def _old_controller_taken(_original: Any) -> Any:
    return lambda _broker, _controller_epoch: False


def _watch_missed(original: Any) -> Any:
    def connected(controller: Any, session: Any) -> None:
        """The controller reads nothing after a reconnect, as if watches outlived connections."""
        if controller._work is None or controller._session is not session:
            original(controller, session)

    return connected


def _sent_once(_original: Any) -> Any:
    return RequestQueues.remove_answered


def _deletes_without(_original: Any) -> Any:
    def finish(work: Any, _topics: Any) -> Any:
        """A broker that is down counts as one without replicas."""
        context = work.controller_state.context
        for topic in context.to_be_deleted:
            yield from deletions._erase(work, topic)
            yield from work.writer.in_turns(work.controller_state.remove_topic(topic))

    return finish


def _changes_unread(_original: Any) -> Any:
    return lambda _reader, _key, _change, ask: ask


def _told_of_nothing(original: Any) -> Any:
    def came(controller_state: Any, broker_id: Any) -> None:
        """A broker that comes back gets only later changes of the metadata."""
        yield from original(controller_state, broker_id)
        controller_state.awaiting_full_metadata.clear()

    return came


MUTANTS = (
    Mutant("controller write unchecked", FencedWrites, "write", _unchecked),
    Mutant("registration while writing unseen", znode_writer, "Check", _registered_unseen),
    Mutant("registers without raising the version", registration, "multi", _registers_quietly),
    Mutant("bounces ignored", ControllerContext, "bounced", _bounces_ignored),
    Mutant("new controller ignores bounces", znode_reader, "_leadership", _written_without_knowing),
    Mutant("epoch kept over a bounce", znode_writer, "next_state", _epoch_kept),
    Mutant("unclean though off", znode_writer, "next_state", _unclean),
    Mutant("ineligible replica taken", isr_changes, "_fault", _anybody_eligible),
    Mutant("in-sync set of an old leader taken", isr_changes, "_fault", _old_leader_taken),
    Mutant("order of an old controller taken", BrokerLife, "is_stale", _old_controller_taken),
    Mutant("watch missed after a break", Controller, "connected", _watch_missed),
    Mutant("order sent once", RequestQueues, "requeue", _sent_once),
    Mutant("deletion waits for nobody", deletions, "delete_znodes_of", _deletes_without),
    Mutant("changes unread", Reader, "_watching", _changes_unread),
    Mutant("who comes is told of nothing", ControllerState, "_broker_added", _told_of_nothing),
)
