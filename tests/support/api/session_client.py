"""A client with a fetch session, by hand, on a broker in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark_klog.ids import UUID
from pyspark_klog.protocol.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from pyspark_klog.protocol.headers import RequestHeader, decode_response, encode_request
from tests.support.cluster.broker import MemoryBroker

PartitionRows = dict[tuple[str, int], Any]
"""The rows of a response, by topic (name, or the id's text) and partition, in their order."""


class SessionClient:
    """One connection. ``version`` 13 and newer name topics by their ids."""

    def __init__(self, broker: MemoryBroker, version: int = 12) -> None:
        self.broker = broker
        self.version = version
        self.session_id = 0
        self.isolation_level = 0
        self.stream = broker.connect()
        self._correlation_id = 0
        self._answered_bytes = 0

    def send(
        self,
        offsets: Mapping[tuple[str | UUID, int], int],
        epoch: int,
        *,
        forget: Sequence[tuple[str | UUID, int]] = (),
        partition_max_bytes: int = 1 << 20,
        max_bytes: int = 1 << 20,
        session_id: int | None = None,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
    ) -> None:
        """Send a fetch; ``answer`` holds the response afterwards."""
        topics = []
        for (topic, partition), offset in offsets.items():
            row = FetchPartition(
                partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes
            )
            topics.append(FetchTopic(**_named(topic), partitions=[row]))
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=self.isolation_level,
            session_id=self.session_id if session_id is None else session_id,
            session_epoch=epoch,
            topics=topics,
            forgotten_topics_data=[
                ForgottenTopic(**_named(topic), partitions=[partition])
                for topic, partition in forget
            ],
        )
        self._correlation_id += 1
        header = RequestHeader(request.api_key, self.version, self._correlation_id, "client")
        self.stream.inbox += encode_request(header, request)
        self.broker.turns()

    def has_answer(self) -> bool:
        return len(self.stream.sent) > self._answered_bytes

    def answer(self) -> Any:
        """Return the single response that has arrived since the last one."""
        frame = bytes(self.stream.sent[self._answered_bytes :])
        self._answered_bytes += len(frame)
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4, "one whole answer"
        assert int.from_bytes(frame[4:8], "big") == self._correlation_id
        response: Any = decode_response(frame[4:], 1, self.version)
        return response

    def fetch(
        self, offsets: Mapping[tuple[str | UUID, int], int], epoch: int, **options: Any
    ) -> Any:
        self.send(offsets, epoch, **options)
        return self.answer()

    def begin_session(
        self, offsets: Mapping[tuple[str | UUID, int], int], **options: Any
    ) -> PartitionRows:
        """A whole fetch that begins a session."""
        answer = self.fetch(offsets, 0, **options)
        assert answer.error_code == 0
        self.session_id = answer.session_id
        return partition_rows(answer)


def _named(topic: str | UUID) -> dict[str, Any]:
    return {"topic_id": topic} if isinstance(topic, UUID) else {"topic": topic}


def partition_rows(answer: Any) -> PartitionRows:
    """The partitions of a response."""
    assert answer.error_code == 0, answer
    return {
        (topic.topic or str(topic.topic_id), each.partition_index): each
        for topic in answer.responses
        for each in topic.partitions
    }
