"""The position that a consumer group commits for a partition. Pure."""

from typing import NamedTuple


class CommittedOffset(NamedTuple):
    """A consumer group's position in a partition: the next offset to read."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
