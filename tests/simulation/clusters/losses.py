"""The records that power cuts may take from a partition that is not flushed.

After a power cut a broker is not trusted until it joins the ISR again. Such a broker may lead only
as the last member of the ISR, and then the partition has only its records. Each replica that had
more is truncated once it learns of the leader, and may show lost records until then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark_klog.ids import BrokerId, TopicPartition
from tests.simulation.clusters.states import States
from tests.simulation.controllers.checks import Key
from tests.simulation.world import Violation

LAST_ONLY = "a broker that lost power leads only as the last in-sync replica"

OnLoss = Callable[[TopicPartition, int], None]


@dataclass(frozen=True)
class _Loss:
    """Since leader epoch ``epoch`` the partition has lost the records from ``offset`` on."""

    epoch: int
    offset: int


class Losses:
    """The losses of all partitions.

    ``on_loss`` is called with the partition's new end before a leader appends there.
    """

    def __init__(self, states: States) -> None:
        self._states = states
        self._cuts: Counter[int] = Counter()
        self._life_cut: dict[int, int | None] = {}
        """The broker epoch in which each broker has last lost its power."""
        self._trusted: dict[tuple[Key, int], int] = {}
        """How many power cuts a broker had had when it last joined the ISR, or led."""
        self._last: dict[Key, _Loss] = {}
        self._least: dict[Key, int] = {}
        self.on_loss: OnLoss = lambda _partition, _offset: None

    # --- what happens ----------------------------------------------------------------------------
    def lost_power(self, number: int) -> None:
        """The broker has lost its power, with all data that was not flushed."""
        self._states.follow()
        self._cuts[number] += 1
        self._life_cut[number] = self._states.life(number)

    def joined(self, key: Key, number: BrokerId) -> None:
        """The broker has joined the ISR."""
        if self._states.life(number) not in (None, self._life_cut.get(number)):
            self._trusted[key, number] = self._cuts[number]

    def leads(self, key: Key, number: int, role: Any, shown: int) -> int:
        """The broker leads from now on.

        ``shown`` is the highest high watermark so far; return the value that counts from now on.
        """
        is_trusted = self.is_trusted(key, number, role.log)
        self._trusted[key, number] = self._cuts[number]
        end = int(role.replicas.epoch_start_offset)
        if is_trusted or end >= shown:
            return shown
        state = self._states.known(key)
        if state is not None and state.leader_epoch == role.leader_epoch and len(state.isr) > 1:
            raise Violation(LAST_ONLY, f"{role.topic_partition}: broker {number}, {state}")
        self._last[key] = _Loss(role.leader_epoch, end)
        self._least[key] = min(end, self._least.get(key, end))
        self.on_loss(role.topic_partition, end)
        return end

    # --- what follows ----------------------------------------------------------------------------
    def is_trusted(self, key: Key, number: int, log: Any) -> bool:
        """Whether the broker, as a member of the ISR, has all records that readers have seen.

        ``log`` is any replica of the partition.
        """
        is_flushed = log.config.responses_wait_for_flush
        return is_flushed or self._cuts[number] <= self._trusted.get((key, number), 0)

    def watermark(self, log: Any) -> int:
        """A replica's high watermark, without lost records."""
        loss = self._last.get((log.topic_id, log.topic_partition.partition))
        watermark = int(log.high_watermark)
        if loss is None or log.latest_epoch >= loss.epoch:
            return watermark
        return min(watermark, loss.offset)

    def may_fall_to(self, log: Any, offset: int) -> bool:
        """Whether a replica's high watermark may fall to ``offset`` after a loss."""
        least = self._least.get((log.topic_id, log.topic_partition.partition))
        if least is None:
            return False
        # A compacted log may have removed more because of lost records: it is copied again
        # (FollowerState).
        is_anew = log.config.compact and offset == log.log_start_offset
        return is_anew or least <= offset
