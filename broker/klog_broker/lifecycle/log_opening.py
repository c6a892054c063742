"""Opens a broker's metadata and logs when the broker starts."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from klog_broker.config import topic_config
from klog_broker.lifecycle.component_settings import log_settings
from klog_broker.lifecycle.settings_in_force import SettingsInForce
from klog_broker.log.directory.partition_folders import DirectoryFolders
from klog_broker.log.log_config import LogConfig
from klog_broker.log.manager.log_manager import LogManager
from klog_broker.metadata.local import LocalStore
from klog_broker.runtime.disk.files import Files
from klog_broker.runtime.system.chance import Chance
from klog_broker.runtime.system.clock import Clock
from klog_broker.runtime.threads.helpers import Helpers
from klog_broker.runtime.threads.parallel_work import ParallelWork
from klog_broker.topics.adoption import AdoptingStore, Adoption
from klog_broker.topics.missing_data import MissingData
from pyspark_klog.ids import BrokerId, TopicId

_log = logging.getLogger("klog.topics")


def open_local_store(
    files: Files, directories: Sequence[Path], broker_id: BrokerId, chance: Chance
) -> LocalStore:
    """Open the metadata store of a standalone broker, in its first data directory."""
    return LocalStore.open(files, directories[0], broker_id, others=directories[1:], chance=chance)


OpenStore = Callable[[Files, Sequence[Path], BrokerId, Chance], AdoptingStore]
"""Opens the metadata store. Blocks. Raises StoreRefused with a sentence for the user, CannotStart
if ZooKeeper does not answer in time, or OSError if no file descriptor is free.

The data directories are not locked yet, so opening must not change them.
"""


def open_logs(
    open_store: OpenStore,
    settings: SettingsInForce,
    broker_id: BrokerId,
    *,
    files: Files,
    clock: Clock,
    chance: Chance,
    helpers: Helpers,
    parallel_work: ParallelWork,
    adopts: bool,
    accepts_missing: bool,
    is_standalone: bool,
    is_wanted: Callable[[], bool],
    on_directory_offline: Callable[[Path, BaseException], None],
) -> tuple[AdoptingStore, LogManager]:
    """Open the metadata store, and lock, load and recover all logs. Blocks.

    A standalone broker refuses to start if it finds folders of partitions that are not in the
    metadata, or if data is missing. With ``adopts`` (--adopt) it adds these partitions to the
    metadata; with ``accepts_missing`` (--accept-missing) partitions without a log begin empty. A
    broker in a cluster loads every log: the controller decides later which of them are its
    replicas.

    :raises StoreRefused, LogDirectoryError, LogStorageError, OSError: if the metadata or a log
        cannot be used
    :raises CannotStart: if ZooKeeper does not answer in time
    :raises LoadingCancelled: once ``is_wanted`` returns False, because the broker is to stop
    """
    directories = settings.config.log_dirs
    metadata = open_store(files, directories, broker_id, chance)
    settings.apply_stored(metadata.image)
    config = settings.config
    if not is_standalone and accepts_missing:
        _log.warning(
            "--accept-missing has no effect in a cluster: followers copy missing data from leaders"
        )
    logs = LogManager(
        directories,
        files=files,
        clock=clock,
        chance=chance,
        helpers=helpers,
        broker_id=broker_id,
        cluster_id=metadata.image.cluster_id,
        settings=log_settings(config),
        default_config=LogConfig.from_topic_config(topic_config(config, {})),
    )
    logs.on_directory_offline = on_directory_offline

    def config_of(name: str, _topic_id: TopicId) -> LogConfig:
        return settings.topic_settings(name, metadata.topic_configs(name)).log

    adoption = Adoption(files, metadata, config, broker_id, chance, is_wanted=adopts)
    missing = MissingData(files, metadata, is_accepted=accepts_missing, adopts=adopts)

    def admit(found: Sequence[DirectoryFolders]) -> None:
        # Only a standalone broker refuses to start because of partition folders that are unknown
        # to its metadata or missing. In a cluster, data directories of another cluster or of a
        # standalone broker were refused before, and followers copy missing data from leaders.
        if is_standalone:
            adoption.check(found)
            missing.check(logs.directories, found)

    logs.load(
        adoption.loading(config_of),
        admit,
        parallel_work=parallel_work,
        is_wanted=is_wanted,
    )
    try:
        missing.finish(logs.directories)
        adoption.finish(logs, config_of)
    except BaseException:
        logs.release_locks()
        raise
    return metadata, logs
