"""The controller's writes to ZooKeeper. Each write fails if another controller has been elected.
A write of a partition's state also fails if a broker has registered since the controller read the
registrations.

Each klog broker that registers raises the version of /brokers/ids in the same multi, and each write
of a partition's state checks that version. So no state can name a broker as in sync that has
registered again without the controller knowing, and every later controller may conclude that a
broker has bounced if it registered after the state was written (its czxid is above the state's
mzxid). docs/decisions/0041 has the details.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from klog_broker.controller.decisions.context import ControllerContext, Leadership
from klog_broker.controller.decisions.leader_election import LeaderAndIsr
from klog_broker.controller.decisions.next_state import next_state
from klog_broker.controller.decisions.partition_states import PartitionState
from klog_broker.controller.decisions.replica_states import ReplicaState
from klog_broker.controller.zookeeper.cluster_state import ControllerState
from klog_broker.controller.zookeeper.errors import (
    BrokersChanged,
    ControllerMoved,
    ControllerStateOutdated,
    WriteDenied,
    WriteRefused,
)
from klog_broker.controller.zookeeper.fenced_writes import FencedWrites
from klog_broker.controller.zookeeper.request_batch import FullMetadata
from klog_broker.controller.zookeeper.znode_reader import Reader
from klog_broker.metadata.image import NO_BROKER
from klog_broker.metadata.zookeeper.conversation import Ask, Steps, together
from klog_broker.runtime.zookeeper.sessions import (
    BadVersion,
    Check,
    Create,
    MultiFailed,
    NoAuth,
    Operation,
    RequestRefused,
    Result,
    Session,
    Set,
    Stat,
    ZooKeeperError,
)
from pyspark_klog.ids import TopicPartition
from pyspark_klog.znodes.paths import (
    BROKER_IDS,
    partition_path,
    partition_state_path,
    partitions_path,
)
from pyspark_klog.znodes.topics import (
    LeaderRecoveryState,
    encode_partition_state,
)
from pyspark_klog.znodes.topics import (
    PartitionState as StateZnode,
)

_STATES_AT_ONCE = 50
"""The number of partition states written in one multi."""

PARTITIONS_A_TURN = 100
"""The number of partitions whose leaders and ISRs are checked, and sent to brokers, in one
event-loop turn."""

LOOKED_AT_A_TURN = 1_000
"""The number of partitions that work in memory handles in one event-loop turn: work that neither
writes to ZooKeeper nor sends requests to brokers."""

Changes = Mapping[TopicPartition, LeaderAndIsr]
Action = Callable[[], None]


class EventContext(NamedTuple):
    """The objects that a controller uses to handle each event (a change in ZooKeeper, or a request
    of a broker or client)."""

    controller_state: ControllerState
    reader: Reader
    writer: "Writer"
    session: Session


class Writer:
    """The writes of one controller in one session.

    Failures raise BrokersChanged, ControllerMoved or ControllerStateOutdated. `name_bad` logs a
    znode that an access list protects from writes, with the reason.
    """

    def __init__(
        self,
        session: Session,
        writes: FencedWrites,
        call_soon: Callable[[Action], None],
        name_bad: Callable[[str, bytes, str], None],
    ) -> None:
        self._session = session
        self._writes = writes
        self._call_soon = call_soon
        self._name_bad = name_bad

    def pause(self) -> Steps[None]:
        """Wait until the next event-loop turn, so that the loop can serve clients meanwhile."""
        yield lambda done: self._call_soon(lambda: done(None))

    def in_turns(self, steps: Iterable[object]) -> Steps[None]:
        """Run these steps, each of which handles one partition in memory: LOOKED_AT_A_TURN steps in
        one event-loop turn."""
        for count, _ in enumerate(steps, 1):
            if count % LOOKED_AT_A_TURN == 0:
                yield from self.pause()

    def next_turn(self, controller_state: ControllerState) -> Steps[None]:
        """Send the requests that were collected for brokers, and continue in another event-loop
        turn."""
        controller_state.send_batch()
        yield from self.pause()

    def try_write(self, operations: list[Operation]) -> Steps[tuple[Result, ...] | MultiFailed]:
        """Carry out all of these operations, or none; return the results, or the MultiFailed, which
        names the first operation that failed.

        :raises ControllerMoved, WriteRefused, ControllerStateOutdated: for other failures
        """
        answer: tuple[Result, ...] | ZooKeeperError | ControllerMoved
        answer = yield lambda done: self._writes.write(operations, done)
        if isinstance(answer, tuple | MultiFailed):
            return answer
        if isinstance(answer, ControllerMoved):
            raise answer
        if isinstance(answer, RequestRefused):
            raise WriteRefused(str(answer))
        raise ControllerStateOutdated(f"a write to ZooKeeper failed: {answer}")

    def write(self, operations: list[Operation]) -> Steps[tuple[Result, ...]]:
        """Carry out all of these operations, or none.

        :raises WriteDenied: if an access list forbids an operation; nothing was written
        :raises ControllerStateOutdated: if an operation fails otherwise; nothing was written, and
            the controller does not know the present data of the znode
        """
        answer = yield from self.try_write(operations)
        self.check_allowed(operations, answer)
        if isinstance(answer, MultiFailed):
            raise ControllerStateOutdated(f"ZooKeeper refused a write: {answer}")
        return answer

    def check_allowed(self, operations: list[Operation], answer: object) -> None:
        """Raise WriteDenied if `answer`, the result of `try_write`, says that an access list
        forbids one of the operations."""
        if (path := self._denied(operations, answer)) is not None:
            raise WriteDenied(f"{path} may not be written (forbidden by an access list)")

    def settle(self, controller_state: ControllerState) -> Steps[None]:
        """Settle all partitions in `unsettled`: elect leaders and change ISRs where needed, write
        the new states to ZooKeeper, and send requests to brokers.

        Then send the full UpdateMetadata request to all brokers that wait for it, because they have
        just registered, for example.
        """
        context = controller_state.context
        settled = 0
        while controller_state.unsettled:
            some = list(islice(controller_state.unsettled, _STATES_AT_ONCE))
            changes = {}
            for partition in some:
                unclean = controller_state.is_unclean(partition.topic)
                state = next_state(context, partition, unclean=unclean)
                if state is not None:
                    changes[partition] = state
            yield from self.write_states(controller_state, changes)
            for partition in some:
                notified = controller_state.pop_unsettled(partition)
                is_written = partition in changes and has_state(
                    context, partition, changes[partition]
                )
                if not is_written and context.leadership(partition) is not None:
                    registered = [each for each in notified if each in context.brokers]
                    controller_state.batch.add_leader_and_isr(partition, registered)
            settled += len(some)
            if settled >= PARTITIONS_A_TURN:
                settled = 0
                yield from self._publish(controller_state)
                yield from self.next_turn(controller_state)
        yield from self._publish(controller_state)
        yield from self.send_full_metadata(controller_state)

    def _publish(self, controller_state: ControllerState) -> Steps[None]:
        """Send brokers the new partitions of the topics of which no partition is in `unsettled`
        (the partitions whose leaders and ISRs must still be checked).

        One UpdateMetadata request names all of these partitions, so that no broker shows clients a
        part of a topic.
        """
        partitions = controller_state.pop_publishable()
        if partitions:
            yield from self.in_turns(controller_state.batch.collect(partitions))
            yield from self.next_turn(controller_state)

    def send_full_metadata(self, controller_state: ControllerState) -> Steps[None]:
        """Send an UpdateMetadata request with all partitions to the brokers that wait for it,
        because they have just registered, or their queued requests were dropped."""
        if controller_state.awaiting_full_metadata:
            # First send the requests in `batch`, which collects changes for brokers: all
            # UpdateMetadata requests of one batch have the same content.
            yield from self.next_turn(controller_state)
            everything = FullMetadata()
            yield from self.in_turns(controller_state.batch.collect_all(everything))
            for broker_id in list(controller_state.awaiting_full_metadata):
                del controller_state.awaiting_full_metadata[broker_id]
                controller_state.batch.add_full_metadata(broker_id, everything)
                yield from self.next_turn(controller_state)

    def write_states(
        self, controller_state: ControllerState, changes: Changes, *, notifies_replicas: bool = True
    ) -> Steps[None]:
        """Write these partition states, at most _STATES_AT_ONCE in one multi.

        Adds UpdateMetadata for all brokers to the batch of requests, and LeaderAndIsr for the
        replicas if `notifies_replicas`. A state that an access list forbids to write is named in
        the log and stays unchanged; `has_state` finds out whether a state was written.
        """
        partitions = list(changes)
        for first in range(0, len(partitions), _STATES_AT_ONCE):
            if first and first % PARTITIONS_A_TURN == 0:
                yield from self.next_turn(controller_state)
            some = {each: changes[each] for each in partitions[first : first + _STATES_AT_ONCE]}
            while some:
                denied = yield from self._put_some(
                    controller_state, some, notifies_replicas=notifies_replicas
                )
                if denied is None:
                    break
                some = {each: some[each] for each in some if not _is_at(denied, each)}

    def _put_some(
        self, controller_state: ControllerState, changes: Changes, *, notifies_replicas: bool
    ) -> Steps[str | None]:
        """Write these states in one multi. Returns None if all were written.

        If an access list forbids one of the writes, nothing was written, and the path of the
        forbidden znode is returned.
        """
        operations: list[Operation] = [Check(BROKER_IDS, controller_state.registrations_version)]
        operations += yield from self._parents(controller_state, changes)
        places = {}
        as_of_zxid = controller_state.context.newest_registration
        for partition, state in changes.items():
            places[partition] = len(operations)
            operations.append(_operation(controller_state, partition, state))
        answer = yield from self.try_write(operations)
        if isinstance(answer, MultiFailed):
            if answer.index == 0 and isinstance(answer.error, BadVersion):
                raise BrokersChanged(
                    "partition states were not written: a broker has registered since the"
                    " controller read the registrations; the controller must read them again"
                )
            if answer.index > 0 and (path := self._denied(operations, answer)) is not None:
                return path
            raise ControllerStateOutdated(f"partition states were not written: {answer}")
        for partition, state in changes.items():
            result = answer[places[partition]]
            version = result.version if isinstance(result, Stat) else 0
            written = Leadership(state, controller_state.controller_epoch, version, as_of_zxid)
            _written(controller_state, partition, written, notifies_replicas=notifies_replicas)
        return None

    def _denied(self, operations: list[Operation], answer: object) -> str | None:
        if not isinstance(answer, MultiFailed) or not isinstance(answer.error, NoAuth):
            return None
        path = operations[answer.index].path
        self._name_bad(path, b"", str(answer.error))
        return path

    def _parents(
        self, controller_state: ControllerState, changes: Changes
    ) -> Steps[list[Operation]]:
        """The operations that create missing parent znodes of the states of new partitions.

        Some of the parents may exist: Kafka's controller creates them one by one, and may have
        been interrupted.
        """
        new = [each for each in changes if controller_state.context.leadership(each) is None]
        paths = dict.fromkeys(partitions_path(each.topic) for each in new)
        paths |= dict.fromkeys(partition_path(each) for each in new)
        stats = yield from together([self._ask_exists(path) for path in paths])
        operations: list[Operation] = []
        for path, stat in zip(paths, stats, strict=True):
            if isinstance(stat, ZooKeeperError):
                raise ControllerStateOutdated(f"{path} cannot be read: {stat}")
            if stat is None:
                operations.append(Create(path, b""))
        return operations

    def _ask_exists(self, path: str) -> Ask:
        return lambda done: self._session.exists(path, done)


def has_state(context: ControllerContext, partition: TopicPartition, state: LeaderAndIsr) -> bool:
    """Whether the partition's state that this controller last read or wrote is `state`."""
    known = context.leadership(partition)
    return known is not None and known.state == state


def _is_at(path: str, partition: TopicPartition) -> bool:
    """Whether the path is the partition's state znode or a parent of that znode."""
    return f"{partition_state_path(partition)}/".startswith(f"{path}/")


def _operation(
    controller_state: ControllerState, partition: TopicPartition, state: LeaderAndIsr
) -> Operation:
    recovery = LeaderRecoveryState.RECOVERING if state.is_recovering else None
    data = encode_partition_state(
        StateZnode(
            state.leader,
            state.leader_epoch,
            state.in_sync,
            controller_state.controller_epoch,
            recovery or LeaderRecoveryState.RECOVERED,
        )
    )
    known = controller_state.context.leadership(partition)
    path = partition_state_path(partition)
    return Create(path, data) if known is None else Set(path, data, known.partition_epoch)


def _written(
    controller_state: ControllerState,
    partition: TopicPartition,
    leadership: Leadership,
    *,
    notifies_replicas: bool,
) -> None:
    context, batch = controller_state.context, controller_state.batch
    is_new = context.leadership(partition) is None
    controller_state.election_log.count_election(context, partition, leadership.state)
    context.put_leadership(partition, leadership)
    is_led = leadership.state.leader != NO_BROKER
    context.change_state(partition, PartitionState.ONLINE if is_led else PartitionState.OFFLINE)
    if not notifies_replicas:
        batch.add_update_metadata(context.brokers, (partition,))
        return
    replicas = controller_state.registered_replicas(partition)
    for broker_id in replicas:
        if context.replica_state(partition, broker_id) is ReplicaState.NEW:
            context.change_replica_state(partition, broker_id, ReplicaState.ONLINE)
    batch.add_leader_and_isr(partition, replicas, is_new=is_new)
