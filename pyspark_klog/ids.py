"""The names that klog gives to numbers: one type for each meaning (see docs/architecture)."""

from typing import NamedTuple, NewType
from uuid import UUID as UUID  # the type, for whoever must not make ids up

Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
BrokerId = NewType("BrokerId", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
TopicId = NewType("TopicId", UUID)
DirectoryId = NewType("DirectoryId", UUID)

NO_TOPIC_ID = TopicId(UUID(int=0))
NO_LEADER_EPOCH = LeaderEpoch(-1)
NO_PRODUCER_ID = ProducerId(-1)
NO_PRODUCER_EPOCH = ProducerEpoch(-1)
NO_SEQUENCE = -1


class TopicPartition(NamedTuple):
    """A partition by its topic's name and its number; prints as Kafka prints it, ``topic-0``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
