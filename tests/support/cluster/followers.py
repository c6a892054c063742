"""A broker's followers over real logs; the leader's log and answers are in the test's hands."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

from klog_broker.log.partition_log import PartitionLog
from klog_broker.replication.fetch_requests import FetcherSettings, FollowerIdentity
from klog_broker.replication.fetchers import Fetchers
from klog_broker.replication.settings_updates import TopicSettings
from klog_broker.replication.truncation import is_diverging_epoch
from klog_broker.runtime.event_loop.slices import Slices
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId, TopicId, TopicPartition
from pyspark_klog.protocol.apis.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from pyspark_klog.protocol.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pyspark_klog.protocol.message import Request, Response
from tests.support.cluster.connections import Asked, OnDone, ScriptedConnection
from tests.support.cluster.helpers import Helpers
from tests.support.cluster.replicas import (
    ME,
    OTHER,
    THIRD,
    ReplicaWorld,
    loaded_logs,
    role_assignment,
)
from tests.support.log.harness import (
    SMALL,
    StandaloneListener,
    append_in,
    batch,
    read_all,
)
from tests.support.runtime.memory_files import MemoryFiles

TOPIC = "topic"
BACKOFF_MS = 1_000
WAIT_MS = 500
SETTINGS = FetcherSettings(
    fetch_max_bytes=1 << 20,
    response_max_bytes=10 << 20,
    min_bytes=1,
    wait_max_ms=WAIT_MS,
    backoff_ms=BACKOFF_MS,
    timeout_ms=30_000,
)
Key = tuple[TopicId, int]


def topic_id(name: str = TOPIC) -> TopicId:
    return TopicId(UUID(int=1 << 64 | int.from_bytes(name.encode()[-6:], "big")))


class FetcherConnection(ScriptedConnection):
    """A connection whose requests have the fetchers' timeout and a highest version."""

    def send(
        self,
        response_class: type[Response],
        build: Callable[[int], Request],
        on_done: OnDone,
        timeout_ms: int,
        *,
        low: int = 0,
        high: int | None = None,
    ) -> None:
        assert high is not None and timeout_ms == SETTINGS.timeout_ms
        super().send(response_class, build, on_done, timeout_ms, low=low, high=high)


class ModelLeader:
    """Answers as a leader does. Its logs are real; `refuses` and `part_of` let it fail or lie."""

    def __init__(self) -> None:
        self.logs = loaded_logs(MemoryFiles(), Helpers(), broker_id=OTHER)
        self.logs.listener = StandaloneListener()
        self.epochs: dict[Key, int] = {}
        self.session_id = 77
        self.session_epoch = 0
        self.session: dict[Key, FetchPartition] = {}
        self.told: dict[Key, tuple[int, int]] = {}
        self.refuses: dict[Key, ErrorCode] = {}
        self.part_of: Callable[[Key, PartitionData], PartitionData] = lambda _, part: part
        self.knows_sessions = True

    def log(self, number: int = 0, topic: str = TOPIC) -> PartitionLog:
        return self.logs.create(TopicPartition(topic, number), topic_id(topic), SMALL)

    def append(self, epoch: int, count: int = 1, number: int = 0, **fields: Any) -> None:
        append_in(self.log(number), epoch, batch(count, **fields))
        self.lead(epoch, number)

    def lead(self, epoch: int, number: int = 0) -> None:
        self.log(number).begin_epoch(epoch)  # type: ignore[arg-type]
        self.epochs[topic_id(), number] = epoch

    # --- Fetch -----------------------------------------------------------------------------------
    def fetched(self, request: FetchRequest) -> FetchResponse | None:
        """The answer; None while the request would be held."""
        if request.session_epoch == 0:
            self.session, self.told, self.session_epoch = {}, {}, 0
        elif not self.knows_sessions or request.session_id != self.session_id:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        elif request.session_epoch != self.session_epoch:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        for named in request.topics:
            for part in named.partitions:
                key = (TopicId(named.topic_id), part.partition)
                self.session[key] = part
                self.told.pop(key, None)
        for forgotten in request.forgotten_topics_data:
            for number in forgotten.partitions:
                del self.session[TopicId(forgotten.topic_id), number]
        topics: dict[TopicId, FetchableTopicResponse] = {}
        is_news = self.knows_sessions
        for key, asked in self.session.items():
            data = self.part_of(key, self._part(key, asked))
            facts = (data.high_watermark, data.log_start_offset)
            has_news = data.records or data.error_code or data.diverging_epoch.epoch >= 0
            is_news |= bool(has_news)
            if request.session_epoch == 0 or has_news or self.told.get(key) != facts:
                self.told[key] = facts
                topic = topics.setdefault(key[0], FetchableTopicResponse(topic_id=key[0]))
                topic.partitions.append(data)
        if not is_news and request.max_wait_ms:
            request.max_wait_ms = 0
            return None
        if not topics and request.max_wait_ms:
            request.max_wait_ms = 0
            request.session_epoch, request.topics = self.session_epoch, []
            request.forgotten_topics_data = []
            return None
        session_id = self.session_id if self.knows_sessions else 0
        self.session_epoch += 1
        return FetchResponse(session_id=session_id, responses=list(topics.values()))

    def _part(self, key: Key, asked: FetchPartition) -> PartitionData:
        def refuse(error: ErrorCode) -> PartitionData:
            return PartitionData(
                partition_index=key[1], error_code=error, high_watermark=-1, records=b""
            )

        log, epoch = self.log(key[1]), self.epochs.get(key)
        if key in self.refuses:
            return refuse(self.refuses[key])
        if epoch is None:
            return refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if asked.current_leader_epoch != epoch:
            is_old = asked.current_leader_epoch < epoch
            return refuse(
                ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
            )
        if asked.fetch_offset < log.log_start_offset:
            return refuse(ErrorCode.OFFSET_OUT_OF_RANGE)
        data = PartitionData(
            partition_index=key[1],
            high_watermark=log.high_watermark,
            log_start_offset=log.log_start_offset,
            records=b"",
        )
        if asked.last_fetched_epoch >= 0:
            found = log.end_offset_for_epoch(asked.last_fetched_epoch)
            if found.leader_epoch < 0:
                return refuse(ErrorCode.OFFSET_OUT_OF_RANGE)
            if is_diverging_epoch(found, asked.fetch_offset, asked.last_fetched_epoch):
                data.diverging_epoch = EpochEndOffset(epoch=found[0], end_offset=found[1])
                return data
        if asked.fetch_offset > log.log_end_offset:
            return refuse(ErrorCode.OFFSET_OUT_OF_RANGE)
        region = log.read(
            asked.fetch_offset,
            asked.partition_max_bytes,
            end_offset=log.log_end_offset,
            min_one_batch=True,
        ).region
        if region is not None:
            data.records = region.file.pread(region.size, region.position)
        return data

    # --- ListOffsets -----------------------------------------------------------------------------
    def listed(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        assert request.replica_id == ME
        topics = []
        for topic in request.topics:
            told = []
            for each in topic.partitions:
                key, log = (
                    (topic_id(topic.name), each.partition_index),
                    self.log(each.partition_index),
                )
                is_mine = self.epochs.get(key) == each.current_leader_epoch
                told.append(
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index,
                        error_code=ErrorCode.NONE if is_mine else ErrorCode.FENCED_LEADER_EPOCH,
                        offset=log.log_end_offset if each.timestamp == -1 else log.log_start_offset,
                        leader_epoch=each.current_leader_epoch,
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=told))
        return ListOffsetsResponse(topics=topics)


class FetcherWorld(ReplicaWorld):
    """This broker is ME; OTHER leads and is `model_leader`, until the test says something else."""

    def __init__(self, files: MemoryFiles | None = None) -> None:
        super().__init__(files)
        self.broker_epoch = 33
        self.model_leader = ModelLeader()
        self.addresses = {OTHER: ("other", 9092), THIRD: ("third", 9092)}
        self.connections: list[FetcherConnection] = []
        self.requests: list[Any] = []
        """All requests that have got a response."""
        self.fetchers = Fetchers(
            self.replicas,
            FollowerIdentity(ME, lambda: self.broker_epoch),
            SETTINGS,
            address_of=self.addresses.get,
            connect=self._connect,  # type: ignore[arg-type]
            loop=self.loop,
            clock=self.clock,
            slices=Slices(self.loop),
        )

    def _connect(self, host: str, port: int) -> FetcherConnection:
        connection = FetcherConnection((host, port), self.loop)
        self.connections.append(connection)
        return connection

    @property
    def connection(self) -> FetcherConnection:
        return self.connections[-1]

    @property
    def asks(self) -> deque[Asked]:
        return self.connection.asked

    def log(self, number: int = 0) -> PartitionLog:
        found = self.logs.get(TopicPartition(TOPIC, number))
        assert found is not None
        return found

    def flush_each_message(self) -> None:
        self.settings = TopicSettings(replace(SMALL, flush_messages=1), 1)

    # --- what happens ----------------------------------------------------------------------------
    def follow(self, epoch: int = 0, number: int = 0, leader: BrokerId = OTHER) -> None:
        given = role_assignment(
            epoch,
            partition=TopicPartition(TOPIC, number),
            topic_id=topic_id(),
            leader=leader,
            replicas=(ME, OTHER),
        )
        assert self.apply(given) == {}

    def answer(self) -> bool:
        """Let the leader answer its oldest request, if there is one that it would not hold."""
        if not self.asks:
            return False
        request = self.asks[0].message
        response: Response | None
        if isinstance(request, FetchRequest):
            response = self.model_leader.fetched(request)
        else:
            response = self.model_leader.listed(request)
        if response is None:
            return False
        ask = self.asks.popleft()
        self.requests.append(request)
        ask.answer(response)
        self.turns()
        return True

    def run(self, *, works: bool = True) -> None:
        """Respond to requests until the leader holds one, or there is none."""
        self.turns()
        for _ in range(100):
            if works:
                self.helpers.run_all()
                self.turns()
            if not self.answer() and not (works and self.helpers.waiting):
                return
        raise AssertionError("it does not come to rest")


def contents(log: PartitionLog) -> list[Any]:
    """All records of a log, with their offsets, and its newest epoch."""
    records = read_all(log, log.log_end_offset)
    return [*((each.offset, each.value) for each in records), log.latest_epoch]
