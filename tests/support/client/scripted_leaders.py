"""Leaders on paper: as much of BlockingClient as the reading of many partitions uses."""

from collections.abc import Collection
from typing import Any
from uuid import UUID

from pyspark_klog.client.cluster.metadata import ClusterView, PartitionInfo, TopicInfo
from pyspark_klog.client.errors import LeaderUnknown
from pyspark_klog.client.settings.client_settings import ClientSettings
from pyspark_klog.client.transport.addresses import Address
from pyspark_klog.errors import ErrorCode, KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from pyspark_klog.records.builder import BatchBuilder

TOPIC_ID = UUID(int=5)
PARTITIONS = [TopicPartition("t", number) for number in range(3)]
Reply = FetchResponse | KlogError


class _Call:
    """A request with its answer, from that time on; None: there is none."""

    def __init__(self, client: "PaperClient", reply: Reply | None, due_ms: int) -> None:
        self._client = client
        self._reply = reply
        self.due_ms = due_ms

    @property
    def is_done(self) -> bool:
        return self._reply is not None and self._client.now >= self.due_ms

    def result(self) -> FetchResponse:
        if isinstance(self._reply, KlogError):
            raise self._reply
        assert self._reply is not None
        return self._reply


class PaperClient:
    """Topic t: broker 2 leads partition 2, broker 1 the others. ``answers`` are the replies of
    each broker, in order, at once; what is asked behind them stays unanswered, or, of the brokers
    at their ``ends``, is answered with nothing after fetch.max.wait.ms."""

    def __init__(
        self, answers: dict[int, list[Reply]], ends: Collection[int] = (), **settings: str
    ) -> None:
        self.settings = ClientSettings({k.replace("_", "."): v for k, v in settings.items()})
        self.answers = answers
        self._ends = ends
        self._due: list[int] = []
        self.asked: list[tuple[int, dict[int, int]]] = []
        self.requests: list[FetchRequest] = []
        self.now = 0
        self.poll_count = 0
        self.newest_fetch = 17
        leaders = {0: PartitionInfo(1, 3), 1: PartitionInfo(1, 3), 2: PartitionInfo(2, 3)}
        brokers = {number: Address("h", number) for number in (1, 2)}
        self.view = ClusterView(brokers, {"t": TopicInfo("t", TOPIC_ID, partitions=leaders)})
        self.links = self

    def now_ms(self) -> int:
        return self.now

    def wait_ms(self, failures: int) -> int:
        return 100 * failures

    def sleep_ms(self, wait_ms: int) -> None:
        self.now += wait_ms

    def poll(self, until_ms: int) -> None:
        self.poll_count += 1
        next_ms = min((each for each in self._due if each > self.now), default=until_ms)
        self.now = max(self.now, min(next_ms, until_ms))

    def forget_topic(self, _topic: str) -> None: ...

    def mark_doubtful(self) -> None: ...

    def leader_of(self, partition: TopicPartition, _deadline_ms: int) -> PartitionInfo:
        info = self.view.topics["t"].partitions.get(partition.partition)
        if info is None:
            raise LeaderUnknown("none")
        return info

    def link_to_broker(self, broker: int, _deadline_ms: int) -> Any:
        client = self

        class Link:
            number = broker

            class connection:  # noqa: N801
                @staticmethod
                def version(_api: int, _low: int, high: int | None) -> int:
                    return min(client.newest_fetch, 17 if high is None else high)

        return Link

    def send(self, link: Any, request: FetchRequest, *_: object, **__: object) -> _Call:
        [topic] = request.topics
        by_id = self.newest_fetch > 12
        assert (topic.topic_id, topic.topic) == ((TOPIC_ID, "") if by_id else (UUID(int=0), "t"))
        self.asked.append((link.number, {p.partition: p.fetch_offset for p in topic.partitions}))
        self.requests.append(request)
        replies = self.answers.get(link.number, [])
        if replies:
            return _Call(self, replies.pop(0), self.now)
        if link.number not in self._ends:
            return _Call(self, None, self.now)
        rows = [PartitionData(partition_index=p.partition, records=None) for p in topic.partitions]
        self._due.append(self.now + request.max_wait_ms)
        return _Call(self, reply(*rows), self._due[-1])


def reply(*rows: PartitionData) -> FetchResponse:
    return FetchResponse(
        responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(rows))]
    )


def records(
    partition: int, base_offset: int, count: int, *, is_control: bool = False
) -> PartitionData:
    builder = BatchBuilder(base_offset, is_control=is_control)
    for _ in range(count):
        builder.append(None, b"v", 1)
    return PartitionData(partition_index=partition, records=memoryview(builder.build()))


def error(partition: int, code: ErrorCode) -> PartitionData:
    return PartitionData(partition_index=partition, error_code=code, records=None)
