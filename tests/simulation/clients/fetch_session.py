"""Builds a consumer's next Fetch: all of its partitions, or the changes of its session."""

from __future__ import annotations

from pyspark_klog.ids import UUID, TopicPartition
from pyspark_klog.protocol.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from pyspark_klog.protocol.fields import NO_UUID
from tests.simulation.world import Violation

SESSIONS = "a fetch session is what its client thinks"


class Asking:
    """Holds the fetch session of one connection.

    The session ends with the connection, since it is unknown which requests the broker has got.
    ``ids`` are the topics' ids by name, if Fetch names topics by id.
    """

    def __init__(
        self,
        *,
        with_session: bool,
        max_bytes: int,
        ids: dict[str, UUID] | None,
        reads_committed: bool,
    ) -> None:
        self._isolation_level = int(reads_committed)
        self._with_session = with_session
        self._max_bytes = max_bytes
        self._ids = ids
        self._names = {topic_id: name for name, topic_id in (ids or {}).items()}
        self._session_id = 0
        self._epoch = 0 if with_session else -1
        self._told: dict[TopicPartition, int] = {}

    @property
    def has_session(self) -> bool:
        return self._session_id != 0

    def request(
        self, positions: dict[TopicPartition, int], *, max_wait_ms: int, min_bytes: int
    ) -> FetchRequest:
        """The Fetch request for these partitions and offsets."""
        told = self._told if self.has_session else {}
        topics: dict[str, FetchTopic] = {}
        for partition, position in positions.items():
            if told.get(partition) != position:
                name = partition.topic
                row = topics.setdefault(name, FetchTopic(topic=name, topic_id=self._id(name)))
                row.partitions.append(
                    FetchPartition(
                        partition=partition.partition,
                        fetch_offset=position,
                        partition_max_bytes=self._max_bytes,
                    )
                )
        forgotten: dict[str, ForgottenTopic] = {}
        for partition in told:
            if partition not in positions:
                name = partition.topic
                gone = forgotten.setdefault(
                    name, ForgottenTopic(topic=name, topic_id=self._id(name))
                )
                gone.partitions.append(partition.partition)
        self._told = dict(positions)
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            isolation_level=self._isolation_level,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )

    def wrong_request(self) -> FetchRequest:
        """A request with a wrong session epoch, as if one were lost or repeated."""
        return FetchRequest(
            isolation_level=self._isolation_level,
            session_id=self._session_id,
            session_epoch=self._epoch + 1,
        )

    def took(self, reply: FetchResponse) -> None:
        """The broker has answered: the next request follows this response."""
        if not self._with_session:
            return
        if self.has_session and reply.session_id not in (self._session_id, 0):
            raise Violation(SESSIONS, f"{self._session_id} became {reply.session_id}")
        self._session_id = reply.session_id
        self._epoch = self._epoch + 1 if self.has_session else 0

    def begin_anew(self) -> None:
        """End the session: the next Fetch is a whole one."""
        self._session_id = self._epoch = 0

    def partition(self, name: str, topic_id: UUID, number: int) -> TopicPartition:
        """The partition of a row in the response. Violation if it was not requested."""
        name = name if self._ids is None else self._names.get(topic_id, "")
        partition = TopicPartition(name, number)
        if partition not in self._told:
            raise Violation(SESSIONS, f"{partition} came, and nobody asked for it")
        return partition

    def _id(self, name: str) -> UUID:
        return NO_UUID if self._ids is None else self._ids[name]
