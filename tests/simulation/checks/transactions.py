"""Each transaction is visible as a whole or not at all, as its producer was answered.

A transaction gets one verdict: from the response to its EndTxn, from records that are read, from
the marker behind its records in a log, or from an offset of a group that it has moved. All of these
must agree.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark_klog.client.producer.batches import Identity
from pyspark_klog.ids import TopicPartition
from tests.simulation.checks.high_watermarks import BACK
from tests.simulation.checks.records import content, is_marker, marker_name
from tests.simulation.machine import Machine, Watcher
from tests.simulation.plan import LONGEST_SWEEP_MS, LONGEST_TIMEOUT_MS
from tests.simulation.world import Violation, WallClock, World

ATOMIC = "a transaction is there as a whole or not at all"
UNASKED = "nothing is committed that nobody has committed"
HANGS = "no transaction stays open beyond its time-out"
FENCING = "a new producer has a newer epoch"
POSITIONS = "positions of a group are those of its committed transactions"

_UNDER_WAY_MS = 15_000
_MARKERS_WITHIN_MS = 6_000
"""After the decision, on a slow disk and with a retry."""


_Place = tuple[str, TopicPartition]
"""A log on a machine."""


@dataclass(eq=False)
class Transaction:
    """A transaction, as its producer knows it."""

    transactional_id: str
    producer_id: int
    name: str
    moves: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """The group offsets that the transaction moves: from which offset to which."""
    is_asked_for: bool = False
    """Whether an EndTxn that commits it has been sent."""
    is_committed: bool | None = None
    """The verdict; None while it is unknown."""
    known_ms: int = 0
    """When the verdict became known."""
    why: str = ""
    """The observation that gave the verdict."""


class Transactions(Watcher):
    """All transactions, and the last stable offset of each log."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._of: dict[bytes, Transaction] = {}
        """Transactions by the names of their records."""
        self._all: dict[str, list[Transaction]] = {}
        self._given: set[Identity] = set()
        self._newest: dict[str, int] = {}
        self._owners: dict[int, str] = {}
        self.clocks: Sequence[WallClock] = (world.clock,)
        """The clocks of the coordinators."""
        self.may_hang = False
        """Whether coordinators and leaders may be unavailable for longer than any timeout."""
        self._stable: dict[_Place, list[tuple[int, int]]] = {}
        """The last stable offsets in this run of the broker, each with the time of its start."""
        self._open_since: dict[_Place, tuple[int, int]] = {}
        """For a log with open transactions: its last stable offset, and since when it holds."""
        self._taking: Counter[str] = Counter()
        self._taken: Counter[str] = Counter()
        self._doubtful_until_ms: dict[str, int] = {}
        self._jumps = 0
        self.committed = 0
        self.aborted = 0

    # --- owners of transactional ids --------------------------------------------------------------
    @contextmanager
    def taking_over(self, transactional_id: str) -> Iterator[None]:
        """A process sends InitProducerId for the transactional id until it succeeds or dies."""
        self._taking[transactional_id] += 1
        try:
            yield
        finally:
            self._taking[transactional_id] -= 1
            self._taken[transactional_id] += 1

    def may_come_late(self, transactional_id: str) -> None:
        """A request to take over the id was given up, and may still be under way."""
        self._doubtful_until_ms[transactional_id] = self._world.now_ms + _UNDER_WAY_MS

    def circumstances(self, transactional_id: str) -> tuple[int, ...] | None:
        """A value that stays equal while no other process takes over the id and no clock jumps.

        A transaction that moves between coordinators with different clocks counts as a jump, too.
        The value is None while a request is under way or the clocks differ.
        """
        is_doubtful = self._world.now_ms < self._doubtful_until_ms.get(transactional_id, 0)
        differ = len({each.wall_is_ahead_ms for each in self.clocks}) > 1
        if self._taking[transactional_id] or is_doubtful or differ:
            return None
        return self._taken[transactional_id], sum(each.jumps for each in self.clocks)

    # --- reports of producers ---------------------------------------------------------------------
    def newest_epoch(self, transactional_id: str) -> int:
        """The newest known identity of the id, as a number: producer id first, then epoch."""
        return self._newest.get(transactional_id, -1)

    def was_given(self, transactional_id: str, identity: Identity, newest_then: int) -> None:
        """InitProducerId has answered; ``newest_then`` was the newest when the request was sent."""
        owner = self._owners.setdefault(identity.producer_id, transactional_id)
        rank = identity.producer_id << 16 | identity.producer_epoch
        if owner != transactional_id or rank <= newest_then or identity in self._given:
            raise Violation(FENCING, f"{transactional_id} got {identity}; {newest_then}, {owner}")
        self._given.add(identity)
        self._note_newest(transactional_id, identity)

    def is_newest(self, transactional_id: str, identity: Identity) -> bool:
        """Whether no newer identity of the transactional id is known."""
        rank = identity.producer_id << 16 | identity.producer_epoch
        return rank >= self.newest_epoch(transactional_id)

    def _note_newest(self, transactional_id: str, identity: Identity) -> None:
        rank = identity.producer_id << 16 | identity.producer_epoch
        self._newest[transactional_id] = max(self._newest.get(transactional_id, -1), rank)

    def begins(self, transactional_id: str, identity: Identity, name: str) -> Transaction:
        """A producer begins a transaction."""
        known = self._all.setdefault(transactional_id, [])
        begun = Transaction(transactional_id, identity.producer_id, f"{name}.{len(known)}")
        known.append(begun)
        self._note_newest(transactional_id, identity)
        return begun

    def holds(self, transaction: Transaction, names: Iterable[bytes]) -> None:
        """These records are about to be written in the transaction."""
        for name in names:
            self._of[name] = transaction

    def was_ended(self, transaction: Transaction, *, is_commit: bool) -> None:
        """EndTxn was answered without an error."""
        self._decide(transaction, "answered", is_committed=is_commit)

    def was_fetched(
        self, transactional_id: str, partition: TopicPartition, offset: int, asked_ms: int
    ) -> None:
        """The group's stable offset was read; -1: there is none."""
        known = [t for t in self._all.get(transactional_id, []) if partition in t.moves]
        newest = max(
            (t.moves[partition][1] for t in known if t.is_committed and t.known_ms <= asked_ms),
            default=-1,
        )
        able = [t for t in known if t.moves[partition][1] == offset and t.is_committed is not False]
        asked = [t for t in able if t.is_asked_for]
        if offset < newest or (offset >= 0 and not asked):
            raise Violation(
                POSITIONS, f"{transactional_id} is at {offset} of {partition}, not at {newest}"
            )
        if len(asked) == 1:
            self._decide(asked[0], "position", is_committed=True)

    # --- reports of readers -----------------------------------------------------------------------
    def was_read(self, name: bytes, *, is_shown: bool) -> bool:
        """A reader of committed records got the record, or skipped it.

        Return whether this is the first report that the transaction was committed.
        """
        transaction = self._of.get(name)
        if transaction is None:
            if not is_shown:
                raise Violation(ATOMIC, f"{name!r} is of no transaction, and was passed over")
            return False
        is_news = transaction.is_committed is None
        self._decide(transaction, f"read {name!r}", is_committed=is_shown)
        return is_news and is_shown

    def look(self, machine: Machine) -> None:
        """Take verdicts from the markers in the logs, below the high watermark.

        A log that a follower is truncating cannot be read.
        """
        for log in machine.logs():
            is_read = not (log.is_offline or log.is_being_cut)
            if is_read and not log.topic_partition.topic.startswith("_"):
                found = content(log)
                stays = {at: name for at, name in found.items() if at < log.high_watermark}
                self._judge(log.topic_partition, stays)

    def _judge(self, partition: TopicPartition, found: dict[int, bytes]) -> None:
        open_ones: dict[int, dict[Transaction, bytes]] = {}
        for offset in sorted(found):
            name = found[offset]
            transaction = self._of.get(name)
            if transaction is not None:
                open_ones.setdefault(transaction.producer_id, {})[transaction] = name
            elif is_marker(name):
                producer_id = int(name[1 : name.index(b":")])
                is_commit = name == marker_name(producer_id, "COMMIT")
                for each, of in open_ones.pop(producer_id, {}).items():
                    how = f"marker at {offset} of {partition} behind {of!r}"
                    self._decide(each, how, is_committed=is_commit)

    def _decide(self, transaction: Transaction, how: str, *, is_committed: bool) -> None:
        if is_committed and not transaction.is_asked_for:
            raise Violation(UNASKED, f"{transaction.name}: {how}")
        if transaction.is_committed is not None:
            if transaction.is_committed != is_committed:
                was = "committed" if transaction.is_committed else "aborted"
                why = transaction.why
                raise Violation(ATOMIC, f"{transaction.name} was {was}: {why}; now not: {how}")
            return
        transaction.is_committed, transaction.known_ms = is_committed, self._world.now_ms
        transaction.why = how
        self.committed += is_committed
        self.aborted += not is_committed
        if is_committed:
            self._check_moves(transaction)

    def _check_moves(self, moved: Transaction) -> None:
        for other in self._all[moved.transactional_id]:
            if other is moved or not other.is_committed:
                continue
            for partition in moved.moves.keys() & other.moves.keys():
                (first, end), (other_first, other_end) = (
                    each.moves[partition] for each in (moved, other)
                )
                if first < other_end and other_first < end:
                    raise Violation(
                        POSITIONS,
                        f"{moved.name} and {other.name} both have {partition} from {first} and "
                        f"{other_first}",
                    )

    # --- last stable offsets ----------------------------------------------------------------------
    def stable_end(self, partition: TopicPartition) -> int:
        """The offset that readers of committed records must reach."""
        return max((stable[-1][0] for stable in self._stable_in(partition)), default=0)

    def stable_since(self, partition: TopicPartition, offset: int) -> int:
        """When the last stable offset passed ``offset`` in this run of the broker."""
        since_ms = self._world.now_ms
        for stable in self._stable_in(partition):
            place = bisect_right(stable, (offset, self._world.now_ms))
            if place < len(stable):
                since_ms = min(since_ms, stable[place][1])
        return since_ms

    def _stable_in(self, partition: TopicPartition) -> Iterator[list[tuple[int, int]]]:
        return (stable for (_, of), stable in self._stable.items() if of == partition)

    def on_start(self, machine: Machine) -> None:
        for place in [each for each in self._stable if each[0] == machine.name]:
            del self._stable[place]
            self._open_since.pop(place, None)
        if machine.deaths_before_start:
            self.look(machine)

    def on_turn(self, machine: Machine) -> None:
        assert machine.broker is not None
        if self._jumps != self._world.clock.jumps:
            self._jumps = self._world.clock.jumps
            self._open_since.clear()
        for log in machine.broker.services.logs.logs():
            self._look_at(log, machine)

    def _look_at(self, log: Any, machine: Machine) -> None:
        partition, now_ms = log.topic_partition, self._world.now_ms
        if partition.topic.startswith("own-"):
            # The administrator creates and deletes these topics all the time, under new ids.
            return
        offset, place = int(log.last_stable_offset), (machine.name, partition)
        stable = self._stable.setdefault(place, [])
        if not stable or stable[-1][0] != offset:
            if stable and offset < stable[-1][0]:
                raise Violation(BACK, f"{partition} was stable to {stable[-1][0]}, now {offset}")
            stable.append((offset, now_ms))
        if offset == log.high_watermark or self._world.clock.is_behind or self.may_hang:
            # A timeout counts from a stored time: it ends when the clock reaches that time again.
            self._open_since.pop(place, None)
            return
        of, since_ms = self._open_since.get(place, (-1, 0))
        if of != offset:
            self._open_since[place] = (offset, now_ms)
            return
        since_ms = max(since_ms, machine.last_trouble_ms)
        if now_ms - since_ms > LONGEST_TIMEOUT_MS + LONGEST_SWEEP_MS + _MARKERS_WITHIN_MS:
            raise Violation(HANGS, f"{partition} is stable to {offset} since {since_ms}")


def is_stable(machine: Machine) -> bool:
    """Whether no transaction is open in any log."""
    return all(log.last_stable_offset == log.high_watermark for log in machine.logs())
