"""A partition has one owner in a generation; fenced members commit nothing; commits stay."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_klog.ids import TopicPartition
from tests.simulation.machine import Death, Machine, Watcher
from tests.simulation.world import Violation

OWNER = "one owner of a partition a generation"
FENCED = "no commit of a fenced member"
COMMITS = "committed offsets never go back"
GENERATIONS = "generations rise"

_NEVER_MS = 1 << 60
_SURELY_THERE_MS = 2_500
"""For this long after its heartbeat a member is in its group: less than its session timeout."""


@dataclass(eq=False)
class Commit:
    """An OffsetCommit of one partition. ``answered_ms`` is _NEVER_MS until its response arrives."""

    offset: int
    generation: int
    sent_ms: int
    answered_ms: int = _NEVER_MS


class Groups(Watcher):
    """One group's history; it forgets what a power cut may have taken."""

    def __init__(self, flushes_all: bool) -> None:
        self._flushes_all = flushes_all
        self._owners: dict[tuple[int, TopicPartition], str] = {}
        # The newest generation and since when it is known: the one that members have joined in this
        # run of the broker, and the one whose assignment a member has got, which was written first.
        self._joined = (-1, 0)
        self._assigned = (-1, 0)
        self._commits: dict[TopicPartition, list[Commit]] = {}
        self._coordinator: object = None
        self._heard_ms = -_NEVER_MS
        self._is_unsure = False
        """Whether the group may be lost with all its offsets: then nothing more is promised."""
        self.forgets_soon = False
        """Whether the broker often looks for groups without members and offsets, and removes them.

        By default it looks every ten minutes.
        """
        self.is_replicated = False
        """Whether only several power cuts can take records; ``may_be_lost`` is called then."""
        self.forgotten = 0
        """How often a power cut may have taken records that were not flushed."""
        self.generations = 0
        self.commits = 0

    def on_start(self, machine: Machine) -> None:
        if machine.deaths_before_start:
            self._joined = (-1, 0)
        if Death.POWER not in machine.deaths_before_start:
            return
        if self._flushes_all or self.is_replicated:
            return
        # A power cut keeps a prefix of the unflushed records, perhaps an empty one.
        self.forgotten += 1
        self._owners.clear()
        self._assigned = (-1, 0)
        for commits in self._commits.values():
            for each in commits:
                each.answered_ms = _NEVER_MS
            commits.append(Commit(-1, -1, 0))

    def is_coordinated_by(self, elected: object) -> None:
        """Forget joins under another coordinator: they may never have been written."""
        if elected != self._coordinator:
            self._coordinator = elected
            self._joined = (-1, 0)

    def may_be_lost(self) -> None:
        """Power cuts have taken the last records of the group."""
        self.forgotten += 1
        self._is_unsure = True

    # --- members and time ------------------------------------------------------------------------
    def is_heard(self, now_ms: int) -> None:
        """A member's heartbeat, sent at ``now_ms``, has succeeded."""
        self._heard_ms = now_ms

    def has_left(self) -> None:
        """A member may have left the group, perhaps as the last one."""
        self._heard_ms = -_NEVER_MS

    def offsets_expire(self, now_ms: int) -> None:
        """The group's offsets may expire by the wall clock, unless the group has members."""
        if now_ms - self._heard_ms > _SURELY_THERE_MS:
            self._is_unsure = True

    # --- generations -----------------------------------------------------------------------------
    def was_joined(
        self, member_id: str, generation: int, asked_ms: int, now_ms: int, *, leads: bool
    ) -> None:
        """A member has joined a generation, which is perhaps not written yet.

        ``leads``: the member leads the generation, is no static member, and assigns the partitions.
        """
        if self._is_unsure:
            return
        if self.forgets_soon and now_ms - self._heard_ms > _SURELY_THERE_MS and self._has_none():
            self._joined = self._assigned = (-1, 0)
            self._owners.clear()
        assigned, told_ms = self._assigned
        if leads and generation <= assigned and asked_ms > told_ms:
            raise Violation(GENERATIONS, f"{member_id} is to share out {generation} once more")
        for newest, since_ms in (self._joined, self._assigned):
            if generation < newest and asked_ms > since_ms:
                raise Violation(GENERATIONS, f"{member_id} joined {generation} after {newest}")
        if generation > self._joined[0]:
            self._joined = (generation, now_ms)
            self.generations += 1

    def _has_none(self) -> bool:
        """Whether no commit is known to be stored."""
        return all(
            each.answered_ms == _NEVER_MS
            for commits in self._commits.values()
            for each in commits[1:]
        )

    def was_assigned(
        self, member_id: str, generation: int, owned: list[TopicPartition], now_ms: int
    ) -> None:
        """A member has got its partitions from SyncGroup."""
        if self._is_unsure:
            return
        if generation > self._assigned[0]:
            self._assigned = (generation, now_ms)
        for partition in owned:
            owner = self._owners.setdefault((generation, partition), member_id)
            if owner != member_id:
                raise Violation(
                    OWNER, f"{partition} in generation {generation}: {owner} and {member_id}"
                )

    # --- commits ---------------------------------------------------------------------------------
    def is_committing(
        self, partition: TopicPartition, offset: int, generation: int, now_ms: int
    ) -> Commit:
        """A member sends a commit."""
        commit = Commit(offset, generation, now_ms)
        self._commits.setdefault(partition, [Commit(-1, -1, 0, 0)]).append(commit)
        return commit

    def was_committed(self, commit: Commit, now_ms: int) -> None:
        """The commit was acknowledged."""
        commit.answered_ms = now_ms
        self.commits += 1
        if self._is_unsure:
            return
        for generation, since_ms in (self._joined, self._assigned):
            if commit.generation < generation and commit.sent_ms > since_ms:
                raise Violation(
                    FENCED,
                    f"generation {commit.generation} committed {commit.offset}, sent at "
                    f"{commit.sent_ms}, after generation {generation} had begun at {since_ms}",
                )

    def was_refused(self, partition: TopicPartition, commit: Commit) -> None:
        """The commit was refused, and has no effect."""
        self._commits[partition].remove(commit)

    def was_fetched(self, partition: TopicPartition, offset: int, asked_ms: int) -> None:
        """A read offset must be that of the last commit, or of one without a response."""
        if self._is_unsure:
            return
        commits = self._commits.get(partition, [])
        settled = [each for each in commits if each.answered_ms <= asked_ms]
        for each in commits:
            if each.offset == offset and not any(
                each.answered_ms < later.sent_ms for later in settled if later is not each
            ):
                return
        if offset == -1 and not commits:
            return
        known = [(each.offset, each.sent_ms, each.answered_ms) for each in commits[-6:]]
        raise Violation(COMMITS, f"{partition} is at {offset}; asked at {asked_ms}, known {known}")
