"""The metadata store of a standalone broker, which is always its own controller.

Requests to change the metadata wait in a queue (change_queue.py), and are written to the disk
together. After each write the store passes the new image to the `on_image` callback.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from klog_broker.metadata import changes
from klog_broker.metadata.change_queue import ChangeQueue
from klog_broker.metadata.changes import Draft
from klog_broker.metadata.creation import CreateTopics
from klog_broker.metadata.directory_assignments import DirectoryAssignments, DirectoryOf
from klog_broker.metadata.election import FoundLog, elected, found_directories, with_next_epochs
from klog_broker.metadata.features import STANDALONE_FEATURES
from klog_broker.metadata.image import (
    BrokerRegistration,
    MetadataImage,
    QuotaEntity,
    Topic,
    new_id,
)
from klog_broker.metadata.interface import (
    CHANGE_TIMEOUT_MS,
    PRODUCER_ID_BLOCK_SIZE,
    Done,
    NewTopic,
    OnImage,
    ProducerIdBlock,
)
from klog_broker.metadata.local_file import MetadataFile, StoredState, owner_of
from klog_broker.metadata.log_recording import RecordingRoleChanges, unrecorded_logs
from klog_broker.metadata.role_changes import ApplyRoleChanges, RoleChange, RoleChangeErrors
from klog_broker.metadata.unserved_partitions import UnservedPartitions
from klog_broker.runtime.disk.files import Files
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.system.chance import Chance
from klog_broker.runtime.threads.helpers import Helpers
from pyspark_klog.ids import BrokerId, DirectoryId, ProducerId, TopicId, TopicPartition
from pyspark_klog.storage.text_files import encode_topic_id

_log = logging.getLogger("klog.topics")


class LocalStore:
    """A `MetadataStore` in a file. Only the process with the data directory's lock may write it.

    A starting broker calls, in this order: ``open``; ``record_directories``; ``adopt`` if topics of
    unknown partition folders are to be added; ``start``; ``elect``; ``register_broker``. After that
    the store accepts changes.
    """

    def __init__(
        self, file: MetadataFile, state: StoredState, *, is_new: bool, chance: Chance
    ) -> None:
        """Make the store of a state that `open` has read or made; only `open` calls this."""
        self._file = file
        image = replace(state.image, features=STANDALONE_FEATURES)
        self._state = replace(state, image=image)
        self._is_new = is_new
        self._is_unwritten = False
        self._chance = chance
        self._changes: ChangeQueue
        self._on_image: OnImage
        self._apply: ApplyRoleChanges
        self._unserved: UnservedPartitions

    @classmethod
    def open(
        cls,
        files: Files,
        directory: Path,
        broker_id: BrokerId,
        cluster_id: str | None = None,
        others: Sequence[Path] = (),
        chance: Chance | None = None,
    ) -> "LocalStore":
        """Read the store in `directory`. Writes nothing: `register_broker` writes the file of a new
        store, unless `adopt` or `elect` has written it before.

        A new store belongs to `cluster_id` if given. Without `cluster_id` it gets the cluster id of
        a meta.properties in `directory` or in `others`, the other data directories: after a crash
        or the replacement of a disk, a broker may find meta.properties, but no store. Without a
        meta.properties, the store gets a new, random cluster id. Raises StoreRefused if the store's
        file cannot be read, is damaged, or is of another version, broker or cluster; OSError if no
        file descriptor is free. The caller must hold the lock of the directory before it requests
        changes.
        """
        chance = chance or Chance()
        file = MetadataFile(files, directory)
        state = file.read(broker_id, cluster_id)
        if state is not None:
            return cls(file, state, is_new=False, chance=chance)
        owners = (owner_of(files, each) for each in (directory, *others))
        cluster_id = cluster_id or next((each.cluster_id for each in owners if each), None)
        image = MetadataImage(
            cluster_id or encode_topic_id(new_id(chance)), controller_id=broker_id
        )
        return cls(file, StoredState(image, broker_id, ProducerId(0)), is_new=True, chance=chance)

    @property
    def image(self) -> MetadataImage:
        """The newest durable state of the metadata."""
        return self._state.image

    @property
    def is_standalone(self) -> bool:
        """True: this broker is the only one of its cluster."""
        return True

    @property
    def has_failed(self) -> bool:
        return self._file.has_failed

    def deleting_topics(self) -> Collection[str]:
        """Return the names of the topics whose logs are not yet deleted, for example because their
        data directory is offline."""
        return [topic.name for topic in self.image.deleting.values()]

    def topic_configs(self, name: str) -> Mapping[str, str]:
        """Return the settings set for a topic; empty if there is no topic named `name`."""
        topic = self.image.topic(name)
        return {} if topic is None else topic.configs

    @property
    def is_new(self) -> bool:
        """Whether the store's file, klog-metadata, has not been written yet."""
        return self._is_new

    @property
    def assignments(self) -> DirectoryAssignments:
        """The ids of the data directories, and the directory of each log that was created."""
        return self._state.assignments

    # --- calls during the broker's start-up, in this order ---------------------------------------
    def record_directories(
        self, directories: Mapping[DirectoryId, Path], missing: Collection[TopicPartition]
    ) -> None:
        """Replace the recorded ids and paths of the data directories by `directories`.

        `missing` are the partitions whose logs are lost, and whose loss the operator has accepted:
        each begins a new leader epoch, and its log's directory is removed from the assignments.
        Writes nothing: the next write during start-up makes the result durable.
        """
        draft = Draft(self._state)
        draft.image.put_partitions(with_next_epochs(self.image, missing))
        draft.assignments = self.assignments.with_directories(
            {key: str(path.absolute()) for key, path in directories.items()}
        )
        by_topic: dict[TopicId, list[int]] = {}
        for name, partition in missing:
            by_topic.setdefault(self.image.topics[name].topic_id, []).append(partition)
        for topic_id, partitions in by_topic.items():
            draft.assignments = draft.assignments.without_logs(topic_id, partitions)
        if draft.is_changed:
            self._state = draft.state()
            self._is_unwritten = not self._is_new

    def adopt(self, topics: Sequence[Topic], after: int) -> None:
        """Add or replace topics, all of them or none: the topics of the unknown partition folders
        that `klog broker --adopt` takes into klog-metadata. From now on, allocate only producer ids
        above `after`, the highest producer id in the folders' logs.

        Blocks until the change is durable. Raises StoreFailed.
        """
        image = self._state.image.with_topics(topics)
        # Skip the whole producer id block with `after`, and the next block: the broker that wrote
        # the partition folders may have allocated both blocks, and given their ids to producers
        # that have written nothing yet.
        first = (after // PRODUCER_ID_BLOCK_SIZE + 2) * PRODUCER_ID_BLOCK_SIZE
        producer_id = ProducerId(max(self._state.next_producer_id, first))
        self._write(replace(self._state, image=image, next_producer_id=producer_id))

    def start(
        self, loop: Loop, helpers: Helpers, *, on_image: OnImage, apply: ApplyRoleChanges
    ) -> None:
        """Give the store the loop, its helper threads and its callbacks. Call this before
        `elect`, which makes this broker the leader of every partition."""
        self._on_image = on_image
        self._apply = apply

        def apply_now(
            role_changes: Sequence[RoleChange], done: Callable[[RoleChangeErrors], None]
        ) -> None:
            self._apply(role_changes, done)  # `elect` may replace the callback

        self._unserved = UnservedPartitions(loop, lambda: self.image, apply_now)
        self._changes = ChangeQueue(
            loop,
            helpers,
            state=lambda: self._state,
            write=self._file.write,
            on_written=self._on_written,
            apply=apply_now,
            unserved=self._unserved,
        )

    def elect(
        self,
        found: Mapping[TopicPartition, FoundLog],
        directory_of: DirectoryOf | None = None,
    ) -> None:
        """Make this broker the leader of every partition, and finish the deletions of topics that
        had begun before the broker stopped.

        `found` has the logs that were loaded. First, one write makes the new leader epochs, and the
        directories of the found logs, durable. Then ``on_image`` gets the image. `directory_of`
        returns the directory of a log that was created, which the store then records; without
        `directory_of` it records no directories of new logs. Blocks: the ``apply`` function that
        `start` was given must call its callback before it returns. Raises StoreFailed.
        """
        draft = Draft(self._state)
        draft.image.put_partitions(elected(self.image, found))
        logs = found_directories(self.image, self.assignments, found)
        if logs:
            draft.assignments = draft.assignments.with_logs(logs)
        if draft.is_changed or self._is_unwritten:
            self._write(draft.state())
        topics, deleting = self.image.topics.values(), self.image.deleting.values()
        self._on_image(self.image, [topic.name for topic in (*deleting, *topics)])
        role_changes: list[RoleChange] = []
        for topic in deleting:
            role_changes += changes.role_removals(topic)
        for topic in topics:
            role_changes += changes.partition_assignments(topic, is_new=False)
        if role_changes or deleting:
            self._apply(role_changes, partial(self._elected, directory_of))
        if directory_of is not None:
            self._apply = RecordingRoleChanges(
                self._apply,
                directory_of,
                image=lambda: self.image,
                assignments=lambda: self.assignments,
                make_change=self._changes.put,
            ).apply

    def _elected(self, directory_of: DirectoryOf | None, results: RoleChangeErrors) -> None:
        draft = Draft(self._state)
        for topic in self.image.deleting.values():
            error = changes.first_failure(topic, results)
            if error is None:
                draft.image.finish_deletion(topic.topic_id)
                changes.log_topic_event("deleted", topic)
            else:
                _log.error(
                    "topic=%s deletion is not finished, the broker's next start tries again: %s",
                    topic.name,
                    error,
                )
        if directory_of is not None:
            # Record the directories of the logs that the role changes have just created. The
            # partitions have leaders already, but no client is connected yet, so no record is
            # acknowledged before the directories are durable.
            logs = unrecorded_logs(self.image, self.assignments, directory_of)
            if logs:
                draft.assignments = draft.assignments.with_logs(logs)
        if draft.is_changed:
            self._write(draft.state())
            if draft.image.is_changed:
                self._on_image(self.image, ())
        for topic in self.image.topics.values() if results else ():
            failed = [each for each in topic.topic_partitions() if each in results]
            if failed:
                _log.error(
                    "topic=%s partitions=%s are not served, the broker tries again: %s",
                    topic.name,
                    ",".join(str(each.partition) for each in failed),
                    results[failed[0]],
                )
                self._unserved.add(dict.fromkeys(failed, topic.topic_id))

    def register_broker(self, broker: BrokerRegistration) -> None:
        """Register this broker with its addresses, which are not written to the file. Writes the
        file of a new store, so the first call may block. Raises StoreFailed."""
        state = replace(self._state, image=self.image.with_broker(broker))
        if self._is_new:
            self._write(state)
        self._state = state
        self._on_image(self.image, ())

    # --- requests to change the metadata ---------------------------------------------------------
    def create_topics(
        self,
        topics: Sequence[NewTopic],
        done: Callable[[list[Topic | Exception]], None],
        *,
        timeout_ms: int = CHANGE_TIMEOUT_MS,  # noqa: ARG002 - the store waits only for its own disk
    ) -> None:
        """Create topics independently of each other: `done` gets a topic or an error for each."""
        self._changes.put(
            CreateTopics(topics, self._new_topic_id, self._lead, self._undo_creation, done)
        )

    def create_partitions(
        self,
        name: str,
        first_partition: int,
        assignment: Sequence[Sequence[BrokerId]],
        done: Done[Topic],
        *,
        timeout_ms: int = CHANGE_TIMEOUT_MS,  # noqa: ARG002
    ) -> None:
        """Add partitions to a topic from number `first_partition` on."""
        self._changes.put(changes.CreatePartitions(name, first_partition, assignment, done))

    def update_topic_configs(
        self,
        name: str,
        update: Callable[[Mapping[str, str]], Mapping[str, str]],
        done: Done[Topic],
    ) -> None:
        """Replace a topic's settings by the result of `update(settings)`."""
        self._changes.put(changes.UpdateTopicConfigs(name, update, done))

    def update_broker_configs(
        self,
        name: str,
        update: Callable[[Mapping[str, Mapping[str, str]]], Mapping[str, str]],
        done: Done[None],
    ) -> None:
        """Replace the dynamic settings of `name` (a broker's id as text, or ALL_BROKERS) by the
        result of `update`, which gets the dynamic settings of all names."""
        self._changes.put(changes.UpdateBrokerConfigs(name, update, done))

    def update_client_quotas(
        self,
        updates: Mapping[QuotaEntity, Mapping[str, float | None]],
        done: Done[None],
    ) -> None:
        """Set quotas, and remove each quota whose value is None."""
        self._changes.put(changes.UpdateClientQuotas(updates, done))

    def delete_topic(
        self,
        topic_id: TopicId,
        done: Done[Topic],
        *,
        timeout_ms: int = CHANGE_TIMEOUT_MS,  # noqa: ARG002
    ) -> None:
        """Delete a topic in two durable steps: the first hides the topic from clients and removes
        its logs, the second frees its name."""
        self._changes.put(changes.DeleteTopic(topic_id, self._finish_deletion, done))

    def allocate_producer_ids(self, done: Done[ProducerIdBlock]) -> None:
        """Allocate a new block of producer ids, which is durable before `done` gets the block."""
        self._changes.put(changes.AllocateProducerIds(done))

    def close(self) -> None:
        """Do nothing, because no file is open between two writes."""

    def _new_topic_id(self) -> TopicId:
        return TopicId(new_id(self._chance))

    def _finish_deletion(self, topic: Topic, done: Done[Topic]) -> None:
        self._changes.put(changes.FinishDeletion(topic, done))

    def _lead(
        self, topic: Topic, partitions: Sequence[int], done: Callable[[RoleChangeErrors], None]
    ) -> None:
        """Make this broker the leader of partitions of a new topic whose logs exist, unless the
        topic has been deleted by now. Calls ``done`` once, perhaps before `_lead` returns."""
        if self.image.topic_by_id(topic.topic_id) is None:
            done({})
            return
        role_changes = [
            changes.partition_assignment(topic, each, is_new=False) for each in partitions
        ]

        def led(results: RoleChangeErrors) -> None:
            self._unserved.add_failed(role_changes, results)
            done(results)

        self._apply(role_changes, led)

    def _undo_creation(self, topic: Topic, over: Callable[[], None]) -> None:
        """Delete a topic, because not all of its logs could be created.

        The topic stays if the deletion fails, too, or if partitions were added to it meanwhile,
        which may have records. Then the store tries again to create the missing logs.
        """
        now = self.image.topic_by_id(topic.topic_id)
        if now is None:
            over()  # the topic has been deleted meanwhile
            return

        def stays(why: object) -> None:
            _log.warning(
                "topic=%s stays although logs are missing, which the broker tries to create: %s",
                topic.name,
                why,
            )
            self._unserved.add(dict.fromkeys(topic.topic_partitions(), topic.topic_id))

        def on_deleted(outcome: Topic | Exception) -> None:
            if isinstance(outcome, Exception):
                stays(outcome)
            over()

        if len(now.partitions) > len(topic.partitions):
            stays("partitions were added to the topic meanwhile")
            over()
        else:
            self.delete_topic(topic.topic_id, on_deleted)

    def _on_written(self, state: StoredState, draft: Draft) -> None:
        self._state = state
        self._is_new = self._is_unwritten = False
        if draft.image.is_changed:
            self._on_image(self.image, draft.image.changed_names)

    def _write(self, state: StoredState) -> None:
        self._file.write(state)
        self._state = state
        self._is_new = self._is_unwritten = False
