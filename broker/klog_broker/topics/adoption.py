"""Refuse or adopt, at a standalone broker's start, partition folders that the metadata does not
list.

To adopt a folder means to add its topic and partition to the metadata, so that the broker serves
the folder's records. An adoption can be interrupted at any point and repeated. All topics of the
adopted folders are written to the metadata in one step. Before that step the broker has changed the
folders only as the recovery at any start after a crash does, and a start without ``--adopt`` still
refuses them. After that step the replicas get their roles, as at every start. Only then the new
leader epoch is written to each folder, and a topic id to each folder that has none.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from klog_broker.config import BrokerConfig
from klog_broker.log.directory.partition_folders import DirectoryFolders
from klog_broker.log.errors import (
    DamagedLog,
    LogDirectoryError,
    LogStorageError,
    OutOfDescriptors,
)
from klog_broker.log.log_config import LogConfig
from klog_broker.log.manager.adoption import (
    AdoptedTopic,
    KnownTopic,
    MetadataTopics,
    listed,
    sync_folder,
)
from klog_broker.log.manager.log_manager import LogManager
from klog_broker.log.partition_log import PartitionLog
from klog_broker.metadata.directory_assignments import DirectoryAssignments, DirectoryOf
from klog_broker.metadata.election import FoundLog
from klog_broker.metadata.errors import InvalidTopicName, StoreFailed
from klog_broker.metadata.image import (
    TRANSACTION_STATE,
    PartitionRegistration,
    Topic,
    check_topic_name,
    new_id,
)
from klog_broker.metadata.interface import MetadataStore
from klog_broker.runtime.disk.files import Files
from klog_broker.runtime.system.chance import Chance
from klog_broker.runtime.system.descriptors import is_exhausted
from klog_broker.topics.internal import internal_topic
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import (
    NO_TOPIC_ID,
    BrokerId,
    DirectoryId,
    LeaderEpoch,
    TopicId,
    TopicPartition,
)
from pyspark_klog.records.batch import BatchView, split_batches
from pyspark_klog.records.errors import RecordsError
from pyspark_klog.state_records.transaction_log import decode_value

_log = logging.getLogger("klog.topics")

# The broker assigns producer ids above the highest id in the logs of adopted folders (unknown ones
# that the broker takes in). Clients may have written batches with any id. Ids from this number on
# are ignored, because too few ids are above them.
_HIGHEST_PRODUCER_ID = 1 << 62
_READ_BYTES = 1 << 20


class AdoptingStore(MetadataStore, Protocol):
    """A metadata store with the methods that a broker's start-up needs. The store of a standalone
    broker can also adopt topics: add the topics of folders that it did not list."""

    @property
    def is_new(self) -> bool:
        """Whether the metadata store is new: it has not stored anything yet. False in a
        cluster."""

    def adopt(self, topics: Sequence[Topic], after: int) -> None:
        """Add or replace the topics, all of them or none, and assign only producer ids above
        `after` from now on.

        The call blocks until the change is durable.

        :raises StoreFailed: if the change cannot be written
        :raises NotInClusters: if the broker belongs to a cluster
        """

    @property
    def assignments(self) -> DirectoryAssignments:
        """The data directories, and the directory in which each log was created, as earlier starts
        recorded them; empty if the store does not record them."""

    def record_directories(
        self, directories: Mapping[DirectoryId, Path], missing: Collection[TopicPartition]
    ) -> None:
        """Record `directories` as the broker's data directories; in a cluster do nothing.

        Each partition in `missing`, whose data is missing, begins a new leader epoch, and its log
        is no longer recorded in a directory. If :meth:`elect`, which the start-up calls later, gets
        such a log in its argument `found`, it records the log in the directory where the log was
        found.
        """

    def elect(
        self,
        found: Mapping[TopicPartition, FoundLog],
        directory_of: DirectoryOf | None = None,
    ) -> None:
        """Pass the metadata image (the snapshot of topics and partitions) to the broker. A
        standalone broker also becomes the leader of all its replicas; the call blocks until it has
        applied all these role assignments.

        `found` has the logs that were loaded; `directory_of` returns the data directory of a log
        that is created later.

        :raises StoreFailed: if the new leader epochs cannot be written to klog-metadata
        """


ConfigOf = Callable[[str, TopicId], LogConfig]

# The settings of adopted topics (whose partition folders --adopt adds to the metadata), except
# internal topics. The topic's settings at its former broker are unknown, and retention must not
# delete records that were to be kept for ever.
KEEP_ALL = {"retention.ms": "-1", "retention.bytes": "-1"}


class Adoption:
    """The adoption of unknown folders during one start-up: of partition folders that the metadata
    does not list.

    In a standalone broker `check` is called before any log is opened. The LogManager loads the logs
    with the settings function that `loading` returns; then `finish` is called. With ``is_wanted``
    false (no --adopt) no folder is adopted, and `check` refuses unknown folders.
    """

    def __init__(
        self,
        files: Files,
        metadata: AdoptingStore,
        config: BrokerConfig,
        broker_id: BrokerId,
        chance: Chance,
        *,
        is_wanted: bool,
    ) -> None:
        self._files = files
        self._metadata = metadata
        self._config = config
        self._broker_id = broker_id
        self._chance = chance
        self._is_wanted = is_wanted
        self._topics: list[AdoptedTopic] = []
        self._names: set[str] = set()
        self._new: set[TopicPartition] = set()

    def check(self, found: Sequence[DirectoryFolders]) -> None:
        """Raise LogDirectoryError if there are partition folders that the metadata does not list,
        and they must not be adopted (``is_wanted``) or cannot be adopted. Without ``is_wanted``,
        also raise it if a broker without metadata finds the folder of KRaft's metadata."""
        image = self._metadata.image
        knowledge = MetadataTopics(_known(image.topics.values()), _known(image.deleting.values()))
        unknown = knowledge.unknown(each for folders in found for each in folders.partitions)
        # The folder of KRaft's metadata log (__cluster_metadata-0) matters only if klog has no
        # metadata of its own yet.
        krafts = [each.kraft_metadata for each in found if each.kraft_metadata is not None]
        krafts = krafts if self._metadata.is_new else []
        knowledge.check_conflicts(unknown)
        if not self._is_wanted:
            self._refuse([*(each.path for each in unknown), *krafts])
            return
        self._topics = knowledge.plan(unknown)
        for topic in self._topics:
            try:
                check_topic_name(topic.name)
            except InvalidTopicName as error:
                raise LogDirectoryError(f"a folder has an invalid topic name: {error}") from None
        try:
            for each in unknown:
                self._files.list_dir(each.path)
        except OSError as error:
            if is_exhausted(error):
                raise
            raise LogDirectoryError(
                f"nothing was adopted, a folder cannot be read: {error}"
            ) from None
        self._names = {topic.name for topic in self._topics}
        self._new = {each for topic in self._topics for each in topic.new_partitions()}
        for path in krafts:
            _log.warning(
                "ignoring %s (left unchanged): it holds the metadata of KRaft, and --adopt takes"
                " over none of its settings, access rights, users and quotas",
                path,
            )

    def _refuse(self, paths: list[Path]) -> None:
        if not paths:
            return
        if self._metadata.is_new:
            raise LogDirectoryError(
                "there are partition folders, but no file klog-metadata, which would name their"
                f" topics: {listed(paths)}; restore the file if there is a copy,"
                " set zookeeper.connect if this is a broker of a cluster, or start once with"
                " --adopt to take the folders in"
            )
        raise LogDirectoryError(
            f"klog-metadata does not know these partition folders: {listed(paths)}; start once with"
            " --adopt to take them in, or move them out of the data directory"
        )

    def loading(self, config_of: ConfigOf) -> ConfigOf:
        """Return the function that returns the settings with which a log is loaded.

        All logs of a topic with adopted partitions (whose folders the metadata did not list before
        this start) get ``may_have_gaps``: they may have been compacted, so that missing offsets
        between their segments are not damage.
        """

        def config_while_loading(name: str, topic_id: TopicId) -> LogConfig:
            config = config_of(name, topic_id)
            return replace(config, may_have_gaps=True) if name in self._names else config

        return config_while_loading

    def finish(self, logs: LogManager, config_of: ConfigOf) -> None:
        """Make durable the contents of the adopted folders (partition folders that the metadata did
        not list), then write their topics to the metadata.

        The call blocks.

        :raises LogDirectoryError: if a step fails. Only a failed write of klog-metadata may have
            adopted the topics nevertheless. If no file descriptor is left, OSError or
            OutOfDescriptors is raised instead.
        """
        if not self._topics:
            return
        adopted = [log for log in map(logs.get, sorted(self._new)) if log is not None]
        topics = [self._topic(adopted_topic, logs) for adopted_topic in self._topics]
        try:
            if len(adopted) < len(self._new):
                logs.check_complete()
            for log in adopted:
                sync_folder(self._files, log.path)
            logs.sync_recovery_points()
            self._metadata.adopt(topics, _highest_producer_id(adopted))
        except (OSError, LogStorageError, StoreFailed) as error:
            if is_exhausted(error) or isinstance(error, OutOfDescriptors):
                raise
            raise LogDirectoryError(
                f"the adoption failed: {error}; start with --adopt again once the cause is removed"
            ) from error
        for log in logs.logs():
            if log.topic_partition.topic in self._names:
                log.update_config(config_of(log.topic_partition.topic, log.topic_id))
        for topic, plan in zip(topics, self._topics, strict=True):
            _log_adoption(topic, plan)

    def _topic(self, plan: AdoptedTopic, logs: LogManager) -> Topic:
        """Return the topic with its adopted partitions (those whose folders the metadata did not
        list). Each of them begins a new leader epoch, because its former leader no longer
        exists."""
        known = self._metadata.image.topic(plan.name)
        new = tuple(self._state(logs.get(each)) for each in plan.new_partitions())
        if known is not None:
            return replace(known, partitions=(*known.partitions, *new))
        topic_id = plan.topic_id if plan.topic_id != NO_TOPIC_ID else TopicId(new_id(self._chance))
        return Topic(plan.name, topic_id, new, self._configs(plan.name))

    def _state(self, log: PartitionLog | None) -> PartitionRegistration:
        replicas = (self._broker_id,)
        epoch = LeaderEpoch(0 if log is None else log.leader_epoch + 1)
        return PartitionRegistration(replicas, replicas, self._broker_id, epoch)

    def _configs(self, name: str) -> dict[str, str]:
        own = internal_topic(name, self._config)
        return dict(KEEP_ALL if own is None else own.configs)


def _known(topics: Iterable[Topic]) -> list[KnownTopic]:
    return [KnownTopic(each.name, each.topic_id, len(each.partitions)) for each in topics]


def _log_adoption(topic: Topic, plan: AdoptedTopic) -> None:
    if plan.first_new:
        _log.warning(
            "topic=%s adopted partitions from %d to %d",
            topic.name,
            plan.first_new,
            plan.partition_count - 1,
        )
    elif topic.is_internal:
        _log.warning("topic=%s adopted partitions=%d", topic.name, plan.partition_count)
    else:
        _log.warning(
            "topic=%s adopted partitions=%d: its settings are not known; retention.ms=-1 and"
            " retention.bytes=-1 keep all of its records until retention is set",
            topic.name,
            plan.partition_count,
        )


def _highest_producer_id(logs: Iterable[PartitionLog]) -> int:
    """Return the highest producer id below _HIGHEST_PRODUCER_ID in the logs, or -1.

    If the broker assigned a used id again, two producers would have the same id. The records of
    ``__transaction_state`` are read, too, because only they have the ids of transactional producers
    that have written nothing. The call blocks.
    """
    ids = (each for log in logs for each in _producer_ids(log))
    return max((each for each in ids if each < _HIGHEST_PRODUCER_ID), default=-1)


def _producer_ids(log: PartitionLog) -> Iterator[int]:
    for producer in log.producers:
        yield producer.producer_id
    if log.topic_partition.topic == TRANSACTION_STATE:
        yield from _producer_ids_of_transactions(log)


def _producer_ids_of_transactions(log: PartitionLog) -> Iterator[int]:
    """Yield the producer ids in the records of a partition of ``__transaction_state``.

    :raises LogDirectoryError: if a batch is damaged: the broker could assign the producer ids in
        the batch again
    """
    try:
        for batch in _batches(log):
            batch.check_crc()
            if not batch.is_control:
                yield from _producer_ids_in(batch)
    except (DamagedLog, RecordsError) as error:
        raise LogDirectoryError(
            f"no folder was adopted, because {log.path} is damaged: {error}; restore this folder"
            " from a copy, or put an empty folder in its place, which forgets the transactional ids"
            " in it, and start with --adopt again"
        ) from error


def _producer_ids_in(batch: BatchView) -> Iterator[int]:
    """Yield the producer ids in the records of a batch. Records in an unknown format are skipped;
    the transaction coordinator reports them when it loads the partition."""
    for record in batch.records():
        if record.value is not None:
            try:
                value = decode_value(record.value)
            except KlogError:
                continue
            yield max(value.producer_id, value.next_producer_id)


def _batches(log: PartitionLog) -> Iterator[BatchView]:
    """Yield all batches of a log. The records' CRCs are not checked."""
    offset: int = log.log_start_offset
    end_offset = log.log_end_offset
    while offset < end_offset:
        region = log.read(offset, _READ_BYTES, end_offset=end_offset, min_one_batch=True).region
        data = b"" if region is None else region.file.pread(region.size, region.position)
        batches = list(split_batches(data, allow_partial=True))
        if not batches:
            return
        yield from batches
        offset = batches[-1].next_offset
