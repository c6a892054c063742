"""One owner of a partition a generation, no commit of a fenced member, commits that stay."""

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
"""So long after it was heard a member is in its group: less than its session."""


@dataclass(eq=False)
class Commit:
    """An OffsetCommit of one partition. ``answered_ms`` is _NEVER_MS while nobody knows."""

    offset: int
    generation: int
    sent_ms: int
    answered_ms: int = _NEVER_MS


class Groups(Watcher):
    """One group's history; what a power cut may take away is forgotten with it."""

    def __init__(self, flushes_all: bool) -> None:
        self._flushes_all = flushes_all
        self._owners: dict[tuple[int, TopicPartition], str] = {}
        # The newest one, and since when it is known: of which members were let in, in this life of
        # the broker, and of which the assignment was told, and so written down before.
        self._joined = (-1, 0)
        self._assigned = (-1, 0)
        self._commits: dict[TopicPartition, list[Commit]] = {}
        self._coordinator: object = None
        self._heard_ms = -_NEVER_MS
        self._is_unsure = False
        """Whether the group may have been forgotten with all its offsets: then nothing is promised
        of what comes."""
        self.forgets_soon = False
        """Whether the broker looks all the time for groups without members and offsets, and forgets
        them; by default every ten minutes."""
        self.is_replicated = False
        """Whether no single power cut can take anything: ``may_be_lost`` is called if one has."""
        self.forgotten = 0
        """How often a power cut may have taken what was not flushed."""
        self.generations = 0
        self.commits = 0

    def on_start(self, machine: Machine) -> None:
        if machine.deaths_before_start:
            self._joined = (-1, 0)
        if Death.POWER not in machine.deaths_before_start:
            return
        if self._flushes_all or self.is_replicated:
            return
        # Any prefix of what was not flushed may be gone, down to nothing.
        self.forgotten += 1
        self._owners.clear()
        self._assigned = (-1, 0)
        for commits in self._commits.values():
            for each in commits:
                each.answered_ms = _NEVER_MS
            commits.append(Commit(-1, -1, 0))

    def is_coordinated_by(self, elected: object) -> None:
        """Whom another one has let in is known to this one only if it was written down."""
        if elected != self._coordinator:
            self._coordinator = elected
            self._joined = (-1, 0)

    def may_be_lost(self) -> None:
        """Power cuts have taken an end of what is known of the group."""
        self.forgotten += 1
        self._is_unsure = True

    # --- members and time ------------------------------------------------------------------------
    def is_heard(self, now_ms: int) -> None:
        """The group has a member that is well."""
        self._heard_ms = now_ms

    def has_left(self) -> None:
        """A member may have left the group, and been the last one."""
        self._heard_ms = -_NEVER_MS

    def offsets_expire(self, now_ms: int) -> None:
        """Their time is over, by the clock on the wall; those of a group with members stay."""
        if now_ms - self._heard_ms > _SURELY_THERE_MS:
            self._is_unsure = True

    # --- generations -----------------------------------------------------------------------------
    def was_joined(
        self, member_id: str, generation: int, asked_ms: int, now_ms: int, *, leads: bool
    ) -> None:
        """A member has been let into a generation, which is perhaps not written down yet. Who
        ``leads`` it (and is no static member) is to share it out."""
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
        """Whether no commit is known to be there."""
        return all(
            each.answered_ms == _NEVER_MS
            for commits in self._commits.values()
            for each in commits[1:]
        )

    def was_assigned(
        self, member_id: str, generation: int, owned: list[TopicPartition], now_ms: int
    ) -> None:
        """A member has been given its partitions."""
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
        """A commit goes out."""
        commit = Commit(offset, generation, now_ms)
        self._commits.setdefault(partition, [Commit(-1, -1, 0, 0)]).append(commit)
        return commit

    def was_committed(self, commit: Commit, now_ms: int) -> None:
        """It was acknowledged."""
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
        """It has no effect."""
        self._commits[partition].remove(commit)

    def was_fetched(self, partition: TopicPartition, offset: int, asked_ms: int) -> None:
        """A committed offset was read: of the last commit, or of one that nobody knows about."""
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
