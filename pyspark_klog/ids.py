"""Types for ids, epochs and offsets: one NewType for each meaning, so that mypy finds mix-ups."""

from typing import NamedTuple, NewType
from uuid import UUID as UUID  # other modules may not import uuid: uuid4() is random in simulations

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
    """A topic's name and a partition's number; ``str()`` gives Kafka's form, ``topic-0``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
