"""The partitions that this broker has replicas of, and the role changes from the controller:
instructions to lead, to follow, or to stop.

The role changes of one call of ``apply`` are applied together; those of later calls wait until all
of them are done. Helper threads do the work on the disk (they create and delete logs), a few logs
at a time. The roles themselves change in the loop thread.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from klog_broker.log.errors import (
    DiskFull,
    InconsistentTopicId,
    LogError,
    LogStorageError,
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
from klog_broker.replication.errors import ReplicationError, StaleRoleChange
from klog_broker.replication.leader import Leader, LeaderContext
from klog_broker.replication.partition import Epochs, Offline, Partition
from klog_broker.replication.role_change_batch import OnRoleChangeApplied, RoleChangeBatch
from klog_broker.replication.settings_updates import SettingsUpdates, TopicSettings
from pyspark_klog.errors import InvariantViolation, KlogError
from pyspark_klog.ids import NO_TOPIC_ID, UUID, BrokerId, TopicId, TopicPartition
from pyspark_klog.storage.text_files import encode_topic_id

STANDALONE = LeaderContext()


class LogChanges(Protocol):
    """Creates and deletes logs in helper threads (log/manager/partition_changes.py). ``done`` is
    called once, in the loop thread, with the error or (of a creation) with the log; before the
    method returns if a helper thread has nothing to do."""

    def create_async(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        done: Callable[[PartitionLog | None, BaseException | None], None],
    ) -> None: ...

    def delete_async(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        done: Callable[[BaseException | None], None],
    ) -> None: ...


class Logs(Protocol):
    """The part of the broker's LogManager that replicas need (log/manager/log_manager.py)."""

    @property
    def changes(self) -> LogChanges: ...

    def logs(self) -> Iterable[PartitionLog]: ...

    def check_complete(self) -> None: ...

    def renew_checkpoints(self, done: Callable[[], None]) -> None: ...


class ReplicaManager:
    """Hosts the partitions that this broker has replicas of, and applies the controller's role
    changes to them. Loop thread only.

    ``settings_of`` returns a topic's present settings. ``wake`` is called with a partition when
    requests that wait for that partition may have become ready. ``call_soon`` runs a callback after
    the present one has returned: a log can go offline in the middle of a coordinator's append, and
    the ``on_resign`` callbacks must reach the coordinator only after that append. Each Leader gets
    a copy of ``context`` that has ``wake`` as its `wake`; its `in_sync_changed` calls the callbacks
    in ``on_in_sync_changed``.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        logs: Logs,
        *,
        settings_of: Callable[[str], TopicSettings],
        wake: Callable[[TopicPartition], None],
        call_soon: Callable[[Callable[[], None]], None],
        context: LeaderContext = STANDALONE,
    ) -> None:
        self.version = 0
        """A number that rises when a role, an ISR or a setting changes, or when a disk starts or
        stops refusing records for lack of space. A cache of leaders is valid only while this number
        stays the same: the produce planner, which prepares appends for compiled code, has one."""
        self.led: dict[tuple[str, int], Leader] = {}
        """All present leaderships, by topic and partition number (a TopicPartition is an equal
        key)."""
        self.led_by_id: dict[tuple[UUID, int], Leader] = {}
        """The present leaderships, by topic id and partition number; if topics have the same id,
        the latest of their leaderships."""
        self.on_lead: list[Callable[[Leader], None]] = []
        """Called with the `Leader` object of each new leadership of this broker."""
        self.on_resign: list[Callable[[TopicPartition], None]] = []
        """Called after a leadership has ended for any reason, and before ``on_lead`` is called with
        the partition's next leadership."""
        self.on_in_sync_changed: list[Callable[[Leader], None]] = []
        """Called with the `Leader` object of a leadership that has to request an ISR change from
        the controller, or whose request the controller has carried out or refused, or for which
        UpdateMetadata brought a newer ISR; not for the ISR of a role assignment."""
        self._context = replace(context, wake=wake, in_sync_changed=self._in_sync_changed)
        self.on_follow: list[Callable[[Partition], None]] = []
        """Called when a partition begins to follow a leader, or the same leader in a new epoch, or
        when it has no leader (`role.leader` is NO_BROKER); the partition's `role` is the
        Follower."""
        self.on_unfollow: list[Callable[[TopicPartition], None]] = []
        """Called at once when a Follower role has ended for any reason; if the disk has failed,
        perhaps in the middle of an append."""
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
        self._queue: deque[RoleChangeBatch] = deque()
        self._applied: RoleChangeBatch | None = None
        self._is_beginning = False
        self._pending_callbacks: deque[Callable[[], None]] = deque()
        for log in logs.logs():
            self._host(log.topic_partition, log.topic_id, log)

    def partition(self, topic: str, partition: int) -> Partition | None:
        """Return the hosted partition; None if this broker has no replica of the partition."""
        return self._hosted.get(topic, {}).get(partition)

    def partitions(self) -> Iterator[Partition]:
        """Yield all partitions that this broker has a replica of."""
        for by_number in self._hosted.values():
            yield from by_number.values()

    # --- applying the controller's role changes --------------------------------------------------
    def apply(
        self, role_changes: Sequence[RoleChange], done: Callable[[RoleChangeErrors], None]
    ) -> None:
        """Apply the role changes (instructions to lead, to follow or to stop) after those of
        earlier calls, then call `done` with the errors.

        A role change fails with StaleRoleChange (the replica has newer epochs already),
        InconsistentTopicId (another topic's replica or folder has the same name), LogStorageError
        (the disk failed, or the log may be in an offline directory: a replica that was to lead or
        to follow is offline), or OutOfDescriptors or DiskFull. If one of the latter prevents the
        creation of a log, nothing has changed; if it prevents a deletion, the replica is offline.
        """
        self._queue.append(
            RoleChangeBatch(
                role_changes,
                apply_change=self._apply_role_change,
                renew_checkpoints=self._logs.renew_checkpoints,
                done=lambda results: self._applied_all(results, done),
            )
        )
        self._apply_next()

    def _apply_next(self) -> None:
        if self._is_beginning:
            # This call comes from within `run` below: the loop there begins the next batch of role
            # changes.
            return
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

    def _apply_role_change(self, role_change: RoleChange, done: OnRoleChangeApplied) -> None:
        partition = self.partition(*role_change.topic_partition)
        if partition is not None and partition.log is not None and partition.log.is_being_cut:
            # A helper thread is truncating or emptying the log: apply the role change once that is
            # done.
            partition.log.after_cut(partial(self._apply_role_change, role_change, done))
            return
        try:
            if isinstance(role_change, RoleRemoval):
                self._stop(role_change, done)
            else:
                self._assign(role_change, done)
        except (LogError, ReplicationError) as error:
            done(error)

    def _assign(self, role_change: RoleAssignment, done: OnRoleChangeApplied) -> None:
        partition = self.partition(*role_change.topic_partition)
        if partition is not None:
            _check_epochs(partition, role_change)
            if partition.log is not None and partition.topic_id == role_change.topic_id:
                done(self._give_role(partition, role_change))
                return
        if not role_change.is_new and (partition is None or partition.log is None):
            try:
                self._logs.check_complete()
            except LogStorageError:
                self._host_offline(role_change)
                raise
        settings = self._settings_of(role_change.topic_partition.topic)

        def made(log: PartitionLog | None, error: BaseException | None) -> None:
            if log is None:
                failure = _as_failure(error)
                # OutOfDescriptors and DiskFull changed nothing, so do not mark the replica as
                # offline: the role change may be tried again, or the replica deleted.
                if isinstance(failure, LogStorageError) and not isinstance(
                    failure, OutOfDescriptors | DiskFull
                ):
                    self._host_offline(role_change)
                done(failure)
                return
            now = self._settings_of(role_change.topic_partition.topic)
            if now.log != log.config:
                # The settings have changed while the log was created.
                log.update_config(now.log)
            done(
                self._give_role(
                    self._host(role_change.topic_partition, role_change.topic_id, log), role_change
                )
            )

        # The log may exist already, without a topic id, because a broker that knew no topic ids
        # (Kafka before 2.8) created it. Then this call stores the topic id in the log's folder.
        self._logs.changes.create_async(
            role_change.topic_partition, role_change.topic_id, settings.log, made
        )

    def _give_role(self, partition: Partition, role_change: RoleAssignment) -> KlogError | None:
        if isinstance(partition.role, Offline):
            partition.epochs = Epochs(role_change.leader_epoch, role_change.partition_epoch)
            return LogStorageError(f"the log of {role_change.topic_partition} is offline")
        if role_change.leader != self._broker_id:
            if partition.follow(role_change):
                self._run_callbacks([partial(callback, partition) for callback in self.on_follow])
        else:
            settings = self._settings_of(role_change.topic_partition.topic)
            try:
                leader = partition.lead(role_change, settings.min_in_sync_replicas, self._context)
            except StaleLeaderEpoch as error:
                return StaleRoleChange(str(error))
            if leader is not None:
                self.led[role_change.topic_partition] = leader
                self.led_by_id[leader.log.topic_id, role_change.topic_partition.partition] = leader
                self._run_callbacks([partial(callback, leader) for callback in self.on_lead])
        self.version += 1
        return None

    def _stop(self, role_change: RoleRemoval, done: OnRoleChangeApplied) -> None:
        partition = self.partition(*role_change.topic_partition)
        if partition is None or partition.topic_id not in (role_change.topic_id, NO_TOPIC_ID):
            if role_change.deletes and partition is None:
                # No log was found. Fail if a directory is offline, because the log may be in that
                # directory, and would return undeleted when the directory is online again.
                self._logs.check_complete()
            done(None)
            return
        if role_change.leader_epoch < partition.epochs.leader_epoch:
            raise StaleRoleChange(
                f"{role_change.topic_partition} cannot be stopped with leader epoch"
                f" {role_change.leader_epoch}: the replica already has leader epoch"
                f" {partition.epochs.leader_epoch}"
            )
        if role_change.deletes and partition.log is None:
            self._logs.check_complete()
        partition.stop(deletes=role_change.deletes)
        self.version += 1
        if not role_change.deletes:
            done(None)
            return

        def deleted(error: BaseException | None) -> None:
            if error is None:
                self._drop(role_change.topic_partition)
                done(None)
                return
            partition.go_offline()
            done(_as_failure(error))

        self._logs.changes.delete_async(role_change.topic_partition, partition.topic_id, deleted)

    # --- hosted partitions (of which this broker has a replica) ----------------------------------
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
            partition.attach_log(log)
        partition.topic_id = topic_id
        return partition

    def _drop(self, topic_partition: TopicPartition) -> None:
        by_number = self._hosted[topic_partition.topic]
        del by_number[topic_partition.partition]
        if not by_number:
            del self._hosted[topic_partition.topic]

    def _host_offline(self, role_change: RoleAssignment) -> None:
        partition = self._host(role_change.topic_partition, role_change.topic_id, None)
        partition.epochs = Epochs(role_change.leader_epoch, role_change.partition_epoch)
        partition.go_offline()
        self.version += 1

    def _ended(self, leader: Leader) -> None:
        del self.led[leader.topic_partition]
        by_id = leader.log.topic_id, leader.topic_partition.partition
        if self.led_by_id.get(by_id) is leader:  # False if another topic has the same id
            del self.led_by_id[by_id]
        self.version += 1
        self._pending_callbacks.extend(
            partial(callback, leader.topic_partition) for callback in self.on_resign
        )
        self._call_soon(lambda: self._run_callbacks(()))

    def _in_sync_changed(self, leader: Leader) -> None:
        self.version += 1
        for callback in self.on_in_sync_changed:
            callback(leader)

    def _unfollowed(self, topic_partition: TopicPartition) -> None:
        for callback in self.on_unfollow:
            callback(topic_partition)

    def _run_callbacks(self, more: Iterable[Callable[[], None]]) -> None:
        """Run the pending callbacks: first those for ended leaderships, then the callbacks in
        `more` for a new role."""
        self._pending_callbacks.extend(more)
        while self._pending_callbacks:
            self._pending_callbacks.popleft()()

    def free_space_changed(self) -> None:
        """Increase `version`, because a disk has started or stopped refusing records for lack of
        free space (log.dir.min.free.bytes)."""
        self.version += 1

    def topics_changed(self, names: Iterable[str]) -> None:
        """Apply the present settings of these topics, which may have changed, to the hosted
        partitions; ``settings_of``, an argument of the constructor, returns them. The first
        partitions get their settings at once, unless earlier ones still wait; further partitions
        get theirs in later event-loop turns."""
        self._updates.update(
            [each for name in names for each in self._hosted.get(name, {}).values()]
        )

    def when_settings_are_taken(self, then: Callable[[], None]) -> None:
        """Call `then` once the changed settings of all topics in earlier calls of `topics_changed`
        are applied to the hosted partitions."""
        self._updates.when_done(then)

    def _settings_taken(self) -> None:
        self.version += 1


def _check_epochs(partition: Partition, role_change: RoleAssignment) -> None:
    """Raise InconsistentTopicId if the role assignment is for a topic with another id, or
    StaleRoleChange if the replica has newer epochs."""
    if partition.topic_id not in (role_change.topic_id, NO_TOPIC_ID):
        raise InconsistentTopicId(
            f"{role_change.topic_partition} is here a replica of the topic with id"
            f" {encode_topic_id(partition.topic_id)}, not of"
            f" {encode_topic_id(role_change.topic_id)}"
        )
    assigned_epochs = Epochs(role_change.leader_epoch, role_change.partition_epoch)
    if assigned_epochs < partition.epochs:
        raise StaleRoleChange(
            f"the role change of {role_change.topic_partition} has {assigned_epochs}, but the"
            f" replica already has {partition.epochs}"
        )


def _as_failure(error: BaseException | None) -> KlogError:
    """Return the error of a helper thread, if it is a KlogError; raise any other error, because it
    shows a bug."""
    if isinstance(error, KlogError):
        return error
    raise error or InvariantViolation("creating a log gave neither a log nor an error")
