"""A broker in memory that leads with followers: their requests, and a controller's responses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from klog_broker.cluster.isr_requests import IsrRequests
from klog_broker.config import Listener
from klog_broker.fetch.follower_fetch import followers_on
from klog_broker.metadata.image import BrokerRegistration, ImageDraft
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import BrokerId
from pyspark_klog.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionResult,
    TopicResult,
)
from pyspark_klog.protocol.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from pyspark_klog.protocol.headers import RequestHeader, decode_response, encode_request
from tests.support.cluster.broker import ME, answer_of, new_broker, topic_ids
from tests.support.raw_requests import batch, produce_request
from tests.support.runtime.fake_network import FakeStream

OTHER, THIRD = BrokerId(1), BrokerId(2)
ALL = (ME, OTHER, THIRD)
EPOCHS = {ME: 70, OTHER: 71, THIRD: 72}
LONG_MS = 600_000


class FakeController:
    """Records the requests to the controller; a test sets the responses."""

    def __init__(self) -> None:
        self.asked: list[AlterPartitionRequest] = []
        self.done: list[Callable[[AlterPartitionResponse | None], None]] = []

    def send(self, _reply: Any, build: Any, done: Any, _timeout_ms: int) -> None:
        self.asked.append(build(3))
        self.done.append(done)


class LeadingBroker:
    """Leads ``plain-0`` and its like, with `OTHER` and `THIRD`, which are alive."""

    def __init__(self, *, with_kernel: bool = False, **settings: object) -> None:
        self.memory = new_broker(with_kernel=with_kernel, **settings)
        self.services = self.memory.broker.services
        self.controller = FakeController()
        for number in (OTHER, THIRD):
            endpoint = Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092)
            metadata: Any = self.services.metadata
            metadata.register_broker(BrokerRegistration(number, (endpoint,)))
        self.services.broker_epoch = lambda: EPOCHS[ME]
        self.services.follower_refusal = followers_on("PLAINTEXT")
        controller: Any = self.controller
        IsrRequests(self.services, controller).start()
        self.ids = topic_ids()

    def lead(self, topic: str = "plain", in_sync: tuple[BrokerId, ...] = ALL) -> None:
        epoch = self.leader(topic).leader_epoch + 1
        self.assign_role(topic, in_sync, leader_epoch=epoch)

    def assign_role(self, topic: str, in_sync: tuple[BrokerId, ...] = ALL, **fields: Any) -> None:
        fields = {"replicas": ALL, "in_sync": in_sync, **fields}
        self.memory.assign(topic, **fields)

    def publish_state(self, topic: str, **fields: Any) -> None:
        """Publish another state of partition 0 in the metadata image (as UpdateMetadata does)."""
        metadata: Any = self.services.metadata
        known = metadata.image.topic(topic)
        told = replace(known.partitions[0], leader_epoch=self.leader(topic).leader_epoch, **fields)
        draft = ImageDraft(metadata.image)
        draft.put(replace(known, partitions=(told, *known.partitions[1:])))
        metadata._state = replace(metadata._state, image=draft.image())

    def remove_broker(self, number: BrokerId) -> None:
        """Remove a broker from the metadata image's live brokers."""
        metadata: Any = self.services.metadata
        image = metadata.image
        brokers = {each: known for each, known in image.brokers.items() if each != number}
        metadata._state = replace(metadata._state, image=replace(image, brokers=brokers))
        for tell in self.services.on_image:
            self.memory.broker.loop.post(tell)
        self.memory.turns()

    def resign(self, topic: str = "plain") -> None:
        epoch = self.leader(topic).leader_epoch + 1
        self.assign_role(topic, leader=OTHER, leader_epoch=epoch)

    def leader(self, topic: str = "plain", partition: int = 0) -> Any:
        return self.services.replicas.led[(topic, partition)]

    def log(self, topic: str = "plain") -> Any:
        return self.memory.log(topic)

    # --- producers -------------------------------------------------------------------------------
    def send(
        self, topic: str = "plain", *, acks: int = -1, timeout_ms: int = LONG_MS
    ) -> FakeStream:
        """One record; see `outcome`."""
        request = produce_request(topic, batch(b"x"), acks=acks, timeout_ms=timeout_ms)
        return self.memory.send(request, 9)

    def outcome(self, stream: FakeStream) -> str | None:
        """The name of the error; None while there is no response."""
        if not stream.sent:
            return None
        answer = answer_of(stream, produce_request("plain", b""), 9)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code).name

    # --- the controller --------------------------------------------------------------------------
    def wanted(self) -> list[list[int]]:
        """The in-sync sets of the last request."""
        return [
            [each.broker_id for each in partition.new_isr_with_epochs]
            for topic in self.controller.asked[-1].topics
            for partition in topic.partitions
        ]

    def grant(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """The controller does as the last request asks; or answers with an error of each."""
        request = self.controller.asked[-1]
        topics = [
            TopicResult(
                topic_id=topic.topic_id,
                partitions=[
                    PartitionResult(
                        partition_index=each.partition_index,
                        error_code=error,
                        leader_id=ME,
                        leader_epoch=each.leader_epoch,
                        isr=[member.broker_id for member in each.new_isr_with_epochs],
                        partition_epoch=each.partition_epoch + 1,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        self.answer(AlterPartitionResponse(topics=topics))

    def answer(self, response: AlterPartitionResponse | None) -> None:
        done = self.controller.done[-1]
        self.memory.broker.loop.post(lambda: done(response))
        self.memory.turns()


class FakeFollower:
    """One connection of a follower, with a session, as Kafka 3.9.1's speak (Fetch 16)."""

    version: int = 16

    def __init__(self, leader: LeadingBroker, number: BrokerId, epoch: int | None = None) -> None:
        self.leader = leader
        self.number = number
        self.epoch = EPOCHS[number] if epoch is None else epoch
        self.session_id = 0
        self.session_epoch = 0
        self.stream = leader.memory.connect()
        self._correlation_id = 0
        self._answered_bytes = 0

    def send(
        self,
        offset: int | None = None,
        topic: str = "plain",
        *,
        start: int = 0,
        leader_epoch: int | None = None,
        last_epoch: int = -1,
        wait_ms: int = 0,
    ) -> None:
        """Names a partition with its next offset; None: the session's partitions as they are."""
        topics = []
        if offset is not None:
            known = self.leader.services.replicas.led.get((topic, 0))
            row = FetchPartition(
                partition=0,
                current_leader_epoch=(
                    (known.leader_epoch if known else 0) if leader_epoch is None else leader_epoch
                ),
                fetch_offset=offset,
                last_fetched_epoch=last_epoch,
                log_start_offset=start,
                partition_max_bytes=1 << 20,
            )
            topics = [FetchTopic(topic_id=self.leader.ids[topic], partitions=[row])]
        request = FetchRequest(
            **self._sender(),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=topics,
        )
        self._correlation_id += 1
        header = RequestHeader(request.api_key, self.version, self._correlation_id, "broker-1")
        self.stream.inbox += encode_request(header, request)
        self.leader.memory.turns()

    def _sender(self) -> dict[str, Any]:
        if self.version < 15:
            return {"replica_id": self.number}
        return {"replica_state": ReplicaState(replica_id=self.number, replica_epoch=self.epoch)}

    def has_answer(self) -> bool:
        return len(self.stream.sent) > self._answered_bytes

    def answer(self) -> Any:
        """Return the response's row of the single partition; None if there is no row."""
        frame = bytes(self.stream.sent[self._answered_bytes :])
        self._answered_bytes += len(frame)
        response: Any = decode_response(frame[4:], 1, self.version)
        assert response.error_code == 0, response
        self.session_id = response.session_id
        self.session_epoch += 1
        rows = [each for topic in response.responses for each in topic.partitions]
        assert len(rows) <= 1
        return rows[0] if rows else None

    def fetch(self, *args: Any, **options: Any) -> Any:
        self.send(*args, **options)
        return self.answer()
