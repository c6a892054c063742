"""Two brokers in memory that differ in one thing: whether pipelined Produce is planned.

Both begin with the same disk, are fed the same bytes at the same times, and everything that can be
seen of them is compared: answers, files, and what the logs know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from klog_broker.dispatch.authorizer import Authorizer
from klog_broker.metadata.role_changes import RoleAssignment, RoleChange, RoleRemoval
from klog_broker.produce import kernel as produce_kernel
from klog_broker.resources.authorizer import ALLOWS_ALL
from klog_broker.runtime.system.chance import Chance
from pyspark_klog.ids import BrokerId, LeaderEpoch, TopicPartition
from pyspark_klog.protocol.apis.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pyspark_klog.protocol.headers import RequestHeader, decode_response, encode_request
from pyspark_klog.protocol.message import Request
from tests.support.cluster.helpers import Helpers
from tests.support.cluster.server import NOW_MS as NOW_MS
from tests.support.cluster.server import make
from tests.support.log.harness import DATA
from tests.support.runtime.fake_network import FakeNetwork, FakeStream
from tests.support.runtime.manual_clock import ManualClock
from tests.support.runtime.memory_files import MemoryFiles

ME = BrokerId(0)
_MOST_TURNS = 10_000
# Small indexes, which are filled up in a test, too.
_SETTINGS: dict[str, object] = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "log_index_size_max_bytes": 1200,
}

# Topic names, partitions, settings. `plain-0` and `plain-1` are used most.
TOPICS: Mapping[str, tuple[int, dict[str, str]]] = {
    "plain": (3, {}),
    "compacted": (1, {"cleanup.policy": "compact"}),
    "small-segments": (1, {"segment.bytes": "1500"}),
    "dense-index": (1, {"index.interval.bytes": "0", "segment.bytes": "100000"}),
    "small-messages": (1, {"max.message.bytes": "200"}),
    "append-time": (1, {"message.timestamp.type": "LogAppendTime"}),
    "stored-as-lz4": (1, {"compression.type": "lz4"}),
    "bounded-time": (
        1,
        {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "1000"},
    ),
    "two-in-sync": (1, {"min.insync.replicas": "2"}),
    "flushed": (1, {"flush.messages": "1"}),
    "short-lived": (1, {"segment.ms": "5000"}),
}


class MemoryBroker:
    """A broker on a disk, a network and a clock in memory."""

    def __init__(
        self,
        files: MemoryFiles,
        *,
        with_kernel: bool,
        at_once: bool = True,
        clock: ManualClock | None = None,
        authorizer: Authorizer = ALLOWS_ALL,
        **settings: object,
    ) -> None:
        """``at_once``: whether the network has calls for many streams. ``settings`` with
        underscores for dots."""
        self.files = files
        self.clock = clock or ManualClock(NOW_MS)
        self.network = FakeNetwork()
        self.network.has_socket_calls = at_once
        self.broker = make(
            files,
            clock=self.clock,
            chance=Chance(1),
            network=self.network,
            make_helpers=Helpers,
            authorizer=authorizer,
            load_kernel=(lambda _: produce_kernel) if with_kernel else None,
            **(_SETTINGS | settings),
        )
        self.broker.start()
        if self.broker.plans is not None:
            self.broker.plans.load()
        # Both ways with the same texts of errors.
        self.broker.services.logs.use_kernels()
        self.turns()

    def connect(self, address: str = "10.0.0.1") -> FakeStream:
        stream = self.network.arrive(address)
        self.turns()
        return stream

    def turns(self) -> None:
        """Run turns until nothing is left to do."""
        for _ in range(_MOST_TURNS):
            if not self._has_work():
                return
            self.broker.loop.run_turn(0)
        raise AssertionError("the broker does not come to rest")

    def _has_work(self) -> bool:
        network, loop = self.network, self.broker.loop
        wake_ms = loop.next_wake_ms()
        if wake_ms is not None and wake_ms <= loop.now_ms():
            return True
        if any(listener.waiting for listener in network.listeners):
            return True
        readable = [
            stream
            for stream in network.streams.values()
            if not stream.is_closed and (stream.inbox or stream.is_at_end)
        ]
        return any(network.poller.interest.get(each.fileno(), 0) & 1 for each in readable)

    def pass_time(self, ms: int) -> None:
        """Move the clock on, and run everything that follows."""
        self.clock.advance(ms)
        self.broker.loop.run_turn(0)
        self.turns()

    # --- roles -----------------------------------------------------------------------------------
    def assign(self, topic: str, partition: int = 0, **fields: Any) -> None:
        """Apply a role assignment; see `role_assignment`."""
        self.apply(self.role_assignment(topic, partition, **fields))

    def apply(self, *changes: RoleChange) -> None:
        """Apply role changes as a controller's requests do, and run everything that follows."""
        found: list[Any] = []
        apply = self.broker.services.replicas.apply
        self.broker.loop.post(lambda: apply(changes, found.append))
        self.turns()
        assert found == [{}]

    def role_assignment(
        self,
        topic: str,
        partition: int = 0,
        *,
        leader: BrokerId = ME,
        leader_epoch: int | None = None,
        replicas: Sequence[BrokerId] = (ME,),
        in_sync: Sequence[BrokerId] | None = None,
    ) -> RoleAssignment:
        """Return a role assignment, by default this broker's leadership in the present epoch."""
        hosted = self._hosted(topic, partition)
        epochs = hosted.epochs
        return RoleAssignment(
            TopicPartition(topic, partition),
            hosted.topic_id,
            leader,
            LeaderEpoch(epochs.leader_epoch if leader_epoch is None else leader_epoch),
            epochs.partition_epoch + 1,
            tuple(replicas),
            tuple(replicas if in_sync is None else in_sync),
        )

    def role_removal(self, topic: str, *, deletes: bool = True) -> RoleRemoval:
        """Return the end of partition 0's role, with or without its log."""
        hosted = self._hosted(topic, 0)
        epoch = LeaderEpoch(hosted.epochs.leader_epoch)
        return RoleRemoval(TopicPartition(topic, 0), hosted.topic_id, epoch, deletes)

    def _hosted(self, topic: str, partition: int) -> Any:
        hosted = self.broker.services.replicas.partition(topic, partition)
        assert hosted is not None
        return hosted

    # --- requests --------------------------------------------------------------------------------
    def send(self, request: Request, version: int) -> FakeStream:
        """Send on a new connection, whose ``sent`` holds the responses so far."""
        stream = self.connect()
        header = RequestHeader(request.api_key, version, 1, "setup")
        stream.inbox += encode_request(header, request)
        self.turns()
        return stream

    def call(self, request: Request, version: int) -> Any:
        return answer_of(self.send(request, version), request, version)

    @property
    def helpers(self) -> Helpers:
        found = self.broker.services.helpers
        assert isinstance(found, Helpers)
        return found

    @property
    def planned(self) -> int:
        """Number of requests that the kernel has served."""
        plans = self.broker.plans
        return 0 if plans is None or plans.planner is None else plans.planner.requests

    def log(self, topic: str, partition: int = 0) -> Any:
        found = self.broker.services.logs.get(TopicPartition(topic, partition))
        assert found is not None
        return found

    def state(self) -> dict[str, Any]:
        """Return all that must be equal on both brokers, by name."""
        logs = sorted(self.broker.services.logs.logs(), key=lambda log: log.topic_partition)
        return {
            "sent": {fd: bytes(stream.sent) for fd, stream in self.network.streams.items()},
            "closed": {fd: stream.is_closed for fd, stream in self.network.streams.items()},
            "unread": {fd: len(stream.inbox) for fd, stream in self.network.streams.items()},
            "logs": {str(log.topic_partition): log_state(log) for log in logs},
            "files": self.stored_files(),
        }

    def stored_files(self) -> dict[str, bytes]:
        """Return the data files that must be equal; a closed broker has them, too."""
        return dict(self._files(DATA))

    def _files(self, path: Path) -> list[tuple[str, bytes]]:
        found: list[tuple[str, bytes]] = []
        for name in self.files.list_dir(path):
            inside = path / name
            if self.files.is_dir(inside):
                found += self._files(inside)
            elif not name.endswith((".snapshot", "checkpoint", "offset-checkpoint")):
                found.append((str(inside), self.files.read_bytes(inside)))
        return found

    def close(self) -> None:
        self.broker.close()


def answer_of(stream: FakeStream, request: Request, version: int) -> Any:
    """Return the single response that has arrived."""
    return decode_response(bytes(stream.sent[4:]), request.api_key, version)


def log_state(log: Any) -> dict[str, Any]:
    """Return a log's state and that of its producers."""
    active = log.segments[-1]
    return {
        "offsets": (log.log_start_offset, log.log_end_offset, log.high_watermark),
        "stable": log.last_stable_offset,
        "flushed": log.flushed_offset,
        "epoch": log.leader_epoch,
        "offline": log.is_offline,
        "segments": [(each.base_offset, each.size_bytes) for each in log.segments],
        "time": (active.max_timestamp, active.rolling_timestamp_ms),
        "since index entry": active.bytes_since_index_entry,
        "indexes": [
            (list(each.offset_index.view()), list(each.time_index.view())) for each in log.segments
        ],
        "producers": [
            (
                each.producer_id,
                each.producer_epoch,
                each.batches,
                each.seen_ms,
                each.last_timestamp_ms,
                each.current_transaction_first_offset,
            )
            for each in sorted(log.producers, key=lambda each: each.producer_id)
        ],
    }


@cache
def _prepared(names: tuple[str, ...]) -> tuple[MemoryFiles, dict[str, UUID]]:
    """Return a disk with these topics of `TOPICS`, and their ids."""
    files = MemoryFiles()
    broker = MemoryBroker(files, with_kernel=False)
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=text) for key, text in rows.items()],
        )
        for name in names
        for partitions, rows in (TOPICS[name],)
    ]
    answer: CreateTopicsResponse = broker.call(CreateTopicsRequest(topics=topics), 7)
    ids = {topic.name: topic.topic_id for topic in answer.topics}
    assert [topic.error_code for topic in answer.topics] == [0] * len(topics), answer
    broker.close()
    return files, ids


def topic_ids(topics: Iterable[str] = TOPICS) -> dict[str, UUID]:
    """Return the topics' ids, the same in every broker of this process with the same topics."""
    return _prepared(tuple(topics))[1]


def new_broker(
    *, with_kernel: bool, topics: Iterable[str] = TOPICS, **options: Any
) -> MemoryBroker:
    """Return a broker that has the topics, all empty. A broker with few topics starts faster."""
    files = _prepared(tuple(topics))[0].killed()
    return MemoryBroker(files, with_kernel=with_kernel, **options)
