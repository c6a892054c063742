"""Around a generated request: its own names, the state before it, the probes after it."""

from random import Random
from typing import Any

from pyspark_klog.protocol.apis import add_offsets_to_txn, offset_fetch
from pyspark_klog.protocol.apis.create_topics import CreatableTopic
from pyspark_klog.protocol.message import Request
from tests.support.oracle import state
from tests.support.oracle.names import producer_id
from tests.support.oracle.steps import Step


class Maker:
    """Collects the state and the probes of one case; ``random`` decides where there is a choice."""

    def __init__(self, number: int, version: int, random: Random) -> None:
        self.number = number
        self.version = version
        self.random = random
        self.producer = producer_id(number)
        self.transactional_id = self.own("-tx")
        self.topics: list[CreatableTopic] = []
        self.setup: list[Step] = []
        self.probes: list[Step] = []

    def own(self, suffix: str = "") -> str:
        """A name that no other request has."""
        return f"own-{self.number}{suffix}"

    def own_topic(self, suffix: str = "", **settings: str) -> str:
        """A topic that only this case uses; it is there before the case begins."""
        name = self.own(suffix)
        named = {key.replace("_", "."): value for key, value in settings.items()}
        if all(each.name != name for each in self.topics):
            self.topics.append(state.topic(name, named))
        return name

    def read_topic(self) -> str:
        """A random topic that no case changes."""
        return self.random.choice(state.READ)

    def own_group(self) -> str:
        """A group of this case: unknown, with offsets, with a member or with both."""
        name = self.own()
        if self.random.random() < 0.6:
            self.setup.append(state.commit_offsets(name))
        if self.random.random() < 0.3:
            self.setup += state.join_group(name)
        return name

    def own_transaction(self, name: str | None = state.SINK, group: str | None = None) -> None:
        """A producer id, and mostly an open transaction, of this case."""
        self.setup.append(state.init_producer(self.transactional_id, self.producer))
        if name is not None and self.random.random() < 0.8:
            self.setup.append(state.add_partition(self.transactional_id, self.producer, name))
        if group is not None and self.random.random() < 0.8:
            request = add_offsets_to_txn.AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer,
                producer_epoch=0,
                group_id=group,
            )
            self.setup.append(Step(request, 3))

    def partitions(self) -> list[int]:
        """Mostly partition 0."""
        return self.random.choice(([0], [0], [0, 1], [1]))

    def probe(self, request: Request, version: int, awaits: Any = None) -> None:
        """A request that shows what the case changed."""
        self.probes.append(Step(request, version, awaits=awaits))

    def probe_offsets(self, group: str, *, stable: bool = False) -> None:
        """The group's committed offsets."""
        request = offset_fetch.OffsetFetchRequest(
            group_id=group, topics=None, require_stable=stable
        )
        self.probe(request, 7)
