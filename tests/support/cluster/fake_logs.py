"""Logs without a disk, for tests of code that makes and deletes logs, and of its failures."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from klog_broker.log.errors import LogStorageError
from klog_broker.log.log_config import LogConfig
from pyspark_klog.ids import TopicId, TopicPartition


@dataclass
class FakeLog:
    """The state of a log that the replica manager reads and sets, without a disk."""

    topic_partition: TopicPartition
    topic_id: TopicId
    config: LogConfig
    leader_epoch: int = -1
    is_offline: bool = False
    was_unclean: bool = False
    log_end_offset: int = 0
    flushed_offset: int = 0
    high_watermark: int = 0
    listener: Any = None
    is_being_cut: bool = False

    def begin_epoch(self, epoch: int) -> None:
        self.leader_epoch = epoch

    def set_high_watermark(self, offset: int) -> None:
        pass

    def update_config(self, config: LogConfig) -> None:
        self.config = config


@dataclass
class FakeLogs:
    """Makes and deletes logs in a later turn of the loop, as helper threads would."""

    loop: Any
    by_partition: dict[TopicPartition, FakeLog] = field(default_factory=dict)
    is_full: bool = False

    @property
    def changes(self) -> "FakeLogs":
        return self

    def logs(self) -> list[FakeLog]:
        return list(self.by_partition.values())

    def check_complete(self) -> None:
        pass

    def folders_of(self, _topics: Iterable[str]) -> dict[str, list[tuple[int, Path]]]:
        return {}

    def renew_checkpoints(self, done: Callable[[], None]) -> None:
        done()

    def create_async(
        self,
        partition: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        done: Callable[[FakeLog | None, BaseException | None], None],
    ) -> None:
        def make() -> None:
            if self.is_full:
                done(None, LogStorageError("the disk is full"))
                return
            new = FakeLog(partition, topic_id, config)
            done(self.by_partition.setdefault(partition, new), None)

        self.loop.post(make)

    def delete_async(
        self,
        partition: TopicPartition,
        topic_id: TopicId,
        done: Callable[[BaseException | None], None],
    ) -> None:
        def delete() -> None:
            if self.is_full:
                done(LogStorageError("the disk is full"))
                return
            log = self.by_partition.get(partition)
            if log is not None and log.topic_id == topic_id:
                del self.by_partition[partition]
            done(None)

        self.loop.post(delete)
