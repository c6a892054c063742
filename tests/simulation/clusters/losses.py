"""What power cuts may take of a partition that is not flushed: what its last in-sync replica lacks.

Whoever has lost power is not trusted before it is in sync again, and leads only if it is all that
was in sync. What it has then is what there is. Each replica that had more is cut once it knows, and
may show until then what is lost.
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

LAST_ONLY = "who has lost power leads only if nobody else is in sync"

OnLoss = Callable[[TopicPartition, int], None]


@dataclass(frozen=True)
class _Loss:
    """Since that leader epoch the partition has nothing of what lay at that offset or behind."""

    epoch: int
    offset: int


class Losses:
    """Of all partitions. ``on_loss`` is called with where one ends now, before anything follows."""

    def __init__(self, states: States) -> None:
        self._states = states
        self._cuts: Counter[int] = Counter()
        self._life_cut: dict[int, int | None] = {}
        """In which life, as ZooKeeper has it, a broker has lost power last."""
        self._trusted: dict[tuple[Key, int], int] = {}
        """After so many cuts of its power that broker was in sync again, or led."""
        self._last: dict[Key, _Loss] = {}
        self._least: dict[Key, int] = {}
        self.on_loss: OnLoss = lambda _partition, _offset: None

    # --- what happens ----------------------------------------------------------------------------
    def lost_power(self, number: int) -> None:
        """That broker, with all that it had not flushed."""
        self._states.follow()
        self._cuts[number] += 1
        self._life_cut[number] = self._states.life(number)

    def joined(self, key: Key, number: BrokerId) -> None:
        """That broker is in sync from now on."""
        if self._states.life(number) not in (None, self._life_cut.get(number)):
            self._trusted[key, number] = self._cuts[number]

    def leads(self, key: Key, number: int, role: Any, shown: int) -> int:
        """That broker leads from now on; ``shown`` is what was shown so far. Returns what counts as
        shown now."""
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
        """Whether that broker, when it is in sync, has all that was shown; ``log`` is anybody's
        replica."""
        is_flushed = log.config.replies_wait_for_flush
        return is_flushed or self._cuts[number] <= self._trusted.get((key, number), 0)

    def watermark(self, log: Any) -> int:
        """What a replica shows, as far as it is not lost."""
        loss = self._last.get((log.topic_id, log.topic_partition.partition))
        watermark = int(log.high_watermark)
        if loss is None or log.latest_epoch >= loss.epoch:
            return watermark
        return min(watermark, loss.offset)

    def may_fall_to(self, log: Any, offset: int) -> bool:
        """Whether a replica's watermark may, since the rest is lost."""
        least = self._least.get((log.topic_id, log.topic_partition.partition))
        if least is None:
            return False
        # Of a compacted log more may have gone for what is lost: it begins anew (FollowerState).
        is_anew = log.config.compact and offset == log.log_start_offset
        return is_anew or least <= offset
