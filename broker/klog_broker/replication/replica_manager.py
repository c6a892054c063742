"""The partitions that this broker has a replica of, and the orders that give them their roles.

The orders of one call are carried out together; those of later calls wait until all of them are
done. Work on the disk (making a log, setting one aside) is done by helper threads, a few logs at a
time; roles change in the loop.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from klog_broker.log.errors import (
    InconsistentTopicId,
    LogError,
    LogStorageError,
    NoRoomLeft,
    OutOfDescriptors,
    StaleLeaderEpoch,
)
from klog_broker.log.log_config import LogConfig
from klog_broker.log.partition_log import PartitionLog
from klog_broker.metadata.role_changes import (
    RoleAssignment,
    RoleChange,
    RoleChangeErrors,
    RoleRemoval,
)
from klog_broker.replication.applying import Application, OrderDone
from klog_broker.replication.errors import ReplicationError, StaleOrder
from klog_broker.replication.leader import Leader, Surroundings
from klog_broker.replication.partition import Epochs, Offline, Partition
from klog_broker.replication.settings_updates import SettingsUpdates, TopicSettings
from pyspark_klog.errors import InvariantViolation, KlogError
from pyspark_klog.ids import NO_TOPIC_ID, UUID, BrokerId, TopicId, TopicPartition
from pyspark_klog.storage.text_files import encode_topic_id

ALONE = Surroundings()


class LogChanges(Protocol):
    """Makes and deletes logs, with helper threads (log/manager/partition_changes.py). ``done`` is
    called once, in the loop; within the call if there is nothing to do."""

    def create_beside(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        done: Callable[[PartitionLog | None, BaseException | None], None],
    ) -> None: ...

    def delete_beside(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        done: Callable[[BaseException | None], None],
    ) -> None: ...


class Logs(Protocol):
    """The broker's logs (log/manager/log_manager.py has them)."""

    @property
    def changes(self) -> LogChanges: ...

    def logs(self) -> Iterable[PartitionLog]: ...

    def check_complete(self) -> None: ...

    def forget_deleted(self, done: Callable[[], None]) -> None: ...


class ReplicaManager:
    """Hosts partitions, and carries out the orders for them. Loop thread only.

    ``settings_of`` gives a topic's present settings. ``wake`` is called with a partition when
    requests that wait for that partition may have become ready. ``call_soon`` runs a callback after
    the present one: a log can go offline in the middle of a coordinator's append, and the
    coordinator must not hear of that before its append has returned. ``around`` is for leaders:
    its ``wake`` and ``in_sync_changed`` are set here.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        logs: Logs,
        *,
        settings_of: Callable[[str], TopicSettings],
        wake: Callable[[TopicPartition], None],
        call_soon: Callable[[Callable[[], None]], None],
        around: Surroundings = ALONE,
    ) -> None:
        self.version = 0
        """Rises whenever a role, an in-sync set or a setting changes."""
        self.led: dict[tuple[str, int], Leader] = {}
        """All leaderships that have not ended. A TopicPartition equals its key here."""
        self.led_by_id: dict[tuple[UUID, int], Leader] = {}
        """The same by the topic's id and the partition."""
        self.on_lead: list[Callable[[Leader], None]] = []
        """Called with each new leadership."""
        self.on_resign: list[Callable[[TopicPartition], None]] = []
        """Called when a leadership has ended, for whatever reason; before ``on_lead`` is called
        with the partition's next one."""
        self.on_in_sync_changed: list[Callable[[Leader], None]] = []
        """Called with a leadership whose in-sync set is another one, or is to be asked for."""
        self._around = replace(around, wake=wake, in_sync_changed=self._in_sync_changed)
        self.on_follow: list[Callable[[Partition], None]] = []
        """Called when a partition begins to follow a leader, or a new epoch of the same one; its
        `role` is the Follower."""
        self.on_unfollow: list[Callable[[TopicPartition], None]] = []
        """Called at once when that is over, for whatever reason: perhaps in the midst of an append,
        if the disk has failed."""
        self._broker_id = broker_id
        self._logs = logs
        self._settings_of = settings_of
        self._wake = wake
        self._call_soon = call_soon
        self._hosted: dict[str, dict[int, Partition]] = {}
        self._updates = SettingsUpdates(
            settings_of,
            lambda each: self.partition(*each.topic_partition) is each,
            self._settings_taken,
            call_soon,
        )
        self._queue: deque[Application] = deque()
        self._applied: Application | None = None
        self._is_beginning = False
        self._untold: deque[Callable[[], None]] = deque()
        for log in logs.logs():
            self._host(log.topic_partition, log.topic_id, log)

    def partition(self, topic: str, partition: int) -> Partition | None:
        """The partition, if this broker has a replica of it."""
        return self._hosted.get(topic, {}).get(partition)

    def partitions(self) -> Iterator[Partition]:
        """All partitions that this broker has a replica of."""
        for by_number in self._hosted.values():
            yield from by_number.values()

    # --- orders ----------------------------------------------------------------------------------
    def apply(self, orders: Sequence[RoleChange], done: Callable[[RoleChangeErrors], None]) -> None:
        """Carry the orders out, behind those of earlier calls; see ApplyRoleChanges.

        An order fails with StaleOrder (the replica had an order with newer epochs),
        InconsistentTopicId (another topic's replica or folder has the same name), LogStorageError
        (the disk failed: the replica is offline), or OutOfDescriptors or NoRoomLeft (nothing has
        changed).
        """
        self._queue.append(
            Application(
                orders,
                carry_out=self._carry_out,
                forget_deleted=self._logs.forget_deleted,
                done=lambda results: self._applied_all(results, done),
            )
        )
        self._apply_next()

    def _apply_next(self) -> None:
        if self._is_beginning:
            return  # `run` answered at once: the while loop that called it goes on.
        self._is_beginning = True
        try:
            while self._queue and self._applied is None:
                self._applied = self._queue.popleft()
                self._applied.run()
        finally:
            self._is_beginning = False

    def _applied_all(
        self, results: RoleChangeErrors, done: Callable[[RoleChangeErrors], None]
    ) -> None:
        self._applied = None
        done(results)
        self._apply_next()

    def _carry_out(self, order: RoleChange, done: OrderDone) -> None:
        partition = self.partition(*order.topic_partition)
        if partition is not None and partition.log is not None and partition.log.is_being_cut:
            # A helper is at its files. Nobody may lead it, or delete it, before that is over.
            partition.log.after_cut(partial(self._carry_out, order, done))
            return
        try:
            if isinstance(order, RoleRemoval):
                self._stop(order, done)
            else:
                self._assign(order, done)
        except (LogError, ReplicationError) as error:
            done(error)

    def _assign(self, order: RoleAssignment, done: OrderDone) -> None:
        partition = self.partition(*order.topic_partition)
        if partition is not None:
            _check_order(partition, order)
            if partition.log is not None and partition.topic_id == order.topic_id:
                done(self._give_role(partition, order))
                return
        if not order.is_new and (partition is None or partition.log is None):
            try:
                self._logs.check_complete()
            except LogStorageError:
                self._host_offline(order)
                raise
        settings = self._settings_of(order.topic_partition.topic)

        def made(log: PartitionLog | None, error: BaseException | None) -> None:
            if log is None:
                failure = _as_failure(error)
                # What has changed nothing may be tried again, or deleted.
                if isinstance(failure, LogStorageError) and not isinstance(
                    failure, OutOfDescriptors | NoRoomLeft
                ):
                    self._host_offline(order)
                done(failure)
                return
            now = self._settings_of(order.topic_partition.topic)
            if now.log != log.config:
                # The settings have changed while the log was made.
                log.update_config(now.log)
            done(self._give_role(self._host(order.topic_partition, order.topic_id, log), order))

        # For a log that exists already, made by a broker that knew no topic ids, this notes the id.
        self._logs.changes.create_beside(order.topic_partition, order.topic_id, settings.log, made)

    def _give_role(self, partition: Partition, order: RoleAssignment) -> KlogError | None:
        if isinstance(partition.role, Offline):
            partition.epochs = Epochs(order.leader_epoch, order.partition_epoch)
            return LogStorageError(f"the log of {order.topic_partition} is offline")
        if order.leader != self._broker_id:
            if partition.follow(order):
                self._tell([partial(tell, partition) for tell in self.on_follow])
        else:
            settings = self._settings_of(order.topic_partition.topic)
            try:
                leader = partition.lead(order, settings.min_in_sync_replicas, self._around)
            except StaleLeaderEpoch as error:
                return StaleOrder(str(error))
            if leader is not None:
                self.led[order.topic_partition] = leader
                self.led_by_id[leader.log.topic_id, order.topic_partition.partition] = leader
                self._tell([partial(tell, leader) for tell in self.on_lead])
        self.version += 1
        return None

    def _stop(self, order: RoleRemoval, done: OrderDone) -> None:
        partition = self.partition(*order.topic_partition)
        if partition is None or partition.topic_id not in (order.topic_id, NO_TOPIC_ID):
            if order.deletes and partition is None:
                # The log may lie in an offline directory, and come back with the directory.
                self._logs.check_complete()
            done(None)
            return
        if order.leader_epoch < partition.epochs.leader_epoch:
            raise StaleOrder(
                f"{order.topic_partition} is to stop in epoch {order.leader_epoch}, it is in"
                f" {partition.epochs.leader_epoch}"
            )
        if order.deletes and partition.log is None:
            self._logs.check_complete()
        partition.stop(deletes=order.deletes)
        self.version += 1
        if not order.deletes:
            done(None)
            return

        def deleted(error: BaseException | None) -> None:
            if error is None:
                self._drop(order.topic_partition)
                done(None)
                return
            partition.go_offline()
            done(_as_failure(error))

        self._logs.changes.delete_beside(order.topic_partition, partition.topic_id, deleted)

    # --- what is hosted --------------------------------------------------------------------------
    def _host(
        self, topic_partition: TopicPartition, topic_id: TopicId, log: PartitionLog | None
    ) -> Partition:
        by_number = self._hosted.setdefault(topic_partition.topic, {})
        partition = by_number.get(topic_partition.partition)
        if partition is None:
            partition = by_number[topic_partition.partition] = Partition(
                topic_partition,
                topic_id,
                log,
                wake=self._wake,
                on_ended=self._ended,
                on_unfollowed=self._unfollowed,
            )
        elif log is not None and partition.log is not log:
            partition.take_log(log)
        partition.topic_id = topic_id
        return partition

    def _drop(self, topic_partition: TopicPartition) -> None:
        by_number = self._hosted[topic_partition.topic]
        del by_number[topic_partition.partition]
        if not by_number:
            del self._hosted[topic_partition.topic]

    def _host_offline(self, order: RoleAssignment) -> None:
        partition = self._host(order.topic_partition, order.topic_id, None)
        partition.epochs = Epochs(order.leader_epoch, order.partition_epoch)
        partition.go_offline()
        self.version += 1

    def _ended(self, leader: Leader) -> None:
        del self.led[leader.topic_partition]
        by_id = leader.log.topic_id, leader.topic_partition.partition
        if self.led_by_id.get(by_id) is leader:  # else a controller gave two topics the same id
            del self.led_by_id[by_id]
        self.version += 1
        self._untold.extend(partial(tell, leader.topic_partition) for tell in self.on_resign)
        self._call_soon(lambda: self._tell(()))

    def _in_sync_changed(self, leader: Leader) -> None:
        self.version += 1
        for tell in self.on_in_sync_changed:
            tell(leader)

    def _unfollowed(self, topic_partition: TopicPartition) -> None:
        for tell in self.on_unfollow:
            tell(topic_partition)

    def _tell(self, more: Iterable[Callable[[], None]]) -> None:
        """Call the coordinators: first about leaderships that have ended, then all of `more`, about
        new ones."""
        self._untold.extend(more)
        while self._untold:
            self._untold.popleft()()

    def room_changed(self) -> None:
        """A disk has too little room now for records of clients, or has enough again."""
        self.version += 1

    def topics_changed(self, names: Iterable[str]) -> None:
        """The settings of these topics may have changed; ``settings_of`` gives the new ones. The
        first partitions take them at once; if there are many, the rest do so in later turns."""
        self._updates.update(
            [each for name in names for each in self._hosted.get(name, {}).values()]
        )

    def when_settings_are_taken(self, then: Callable[[], None]) -> None:
        """Call back once all partitions have the settings that `topics_changed` announced."""
        self._updates.when_done(then)

    def _settings_taken(self) -> None:
        self.version += 1


def _check_order(partition: Partition, order: RoleAssignment) -> None:
    """Raise StaleOrder or InconsistentTopicId if the order is not for this replica."""
    if partition.topic_id not in (order.topic_id, NO_TOPIC_ID):
        raise InconsistentTopicId(
            f"{order.topic_partition} is here a replica of the topic with id"
            f" {encode_topic_id(partition.topic_id)}, not of {encode_topic_id(order.topic_id)}"
        )
    ordered = Epochs(order.leader_epoch, order.partition_epoch)
    if ordered < partition.epochs:
        raise StaleOrder(
            f"the order for {order.topic_partition} is of {ordered}, the replica is told of"
            f" {partition.epochs} already"
        )


def _as_failure(error: BaseException | None) -> KlogError:
    """A helper's error, to be answered. An error that is no KlogError is a bug, and raised."""
    if isinstance(error, KlogError):
        return error
    raise error or InvariantViolation("a log was neither made nor refused")
