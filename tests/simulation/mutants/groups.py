"""Bugs of the group coordinator."""

from typing import Any

from klog_broker.coordinator import runtime
from klog_broker.coordinator.group import transactional_commits
from klog_broker.coordinator.group.classic.group_machine import GroupMachine
from klog_broker.coordinator.group.classic.rebalance import Rebalance
from klog_broker.coordinator.group.commits import TurnCommits
from klog_broker.coordinator.group.deletions import Deletions
from klog_broker.coordinator.shard import Shard
from pyspark_klog.errors import ErrorCode
from tests.simulation.mutants.mutant import Mutant


class _Answered:
    """A request that ignores all further responses."""

    def __init__(self, request: Any) -> None:
        self._request = request

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)

    def answer_commits(self, _: ErrorCode) -> None:
        pass


def _commit_at_once(original: Any) -> Any:
    def add(commits: Any, shard: Any, request: Any) -> None:
        """A commit is acknowledged before it is visible."""
        request.answer_commits(ErrorCode.NONE)
        original(commits, shard, _Answered(request))

    return add


def _assignment_at_once(_original: Any) -> Any:
    def answer(_shard: Any, answers: Any) -> None:
        """Responses are sent before the records that they wait for are visible."""
        for each in answers:
            each.send()

    return answer


def _commit_of_anybody(_original: Any) -> Any:
    def check_commit(*_: Any) -> ErrorCode:
        return ErrorCode.NONE

    return check_commit


def _static_not_fenced(original: Any) -> Any:
    def check_commit(
        machine: Any, member_id: str, generation: int, now_ms: int, instance_id: Any = None
    ) -> Any:
        """A static member that another process has replaced commits as if it were the new one."""
        member_id = machine.group.static_ids.get(instance_id, member_id)
        return original(machine, member_id, generation, now_ms, instance_id)

    return check_commit


def _same_generation(original: Any) -> Any:
    def complete(rebalance: Any, effects: Any, now_ms: int) -> None:
        group = rebalance._group
        if group.generation_id > 0:
            group.generation_id -= 1  # the original raises it by one again
        original(rebalance, effects, now_ms)

    return complete


def _forgets_commits(original: Any) -> Any:
    def replay(shard: Any, batch: Any, records: Any, from_offset: int) -> int:
        """Loading leaves out every third batch."""
        if batch.base_offset % 3 == 2:
            from_offset = batch.next_offset
        return original(shard, batch, records, from_offset)

    return replay


def _sent_by_anybody(_original: Any) -> Any:
    def check_sender(_shard: Any, _request: Any) -> ErrorCode:
        """A member of an earlier generation commits offsets in its transaction."""
        return ErrorCode.NONE

    return check_sender


def _group_stays(original: Any) -> Any:
    def delete(deletions: Any, group_id: str, answer: Any) -> Any:
        """Every second deletion of a group only reports success."""
        deletions.count = getattr(deletions, "count", 0) + 1
        shard = deletions._runtime.find(group_id)[1]
        if deletions.count % 2 and shard is not None and group_id in shard.state.groups:
            answer(ErrorCode.NONE)
            return
        yield from original(deletions, group_id, answer)

    return delete


MUTANTS = (
    Mutant("group said to be deleted", Deletions, "_delete_group", _group_stays),
    Mutant(
        "fenced member commits in transaction",
        transactional_commits,
        "check_sender",
        _sent_by_anybody,
    ),
    Mutant("commit not waited for", TurnCommits, "add", _commit_at_once),
    Mutant("assignment not waited for", runtime, "_answer_when_visible", _assignment_at_once),
    Mutant("fenced member commits", GroupMachine, "check_commit", _commit_of_anybody),
    Mutant("static member not fenced", GroupMachine, "check_commit", _static_not_fenced),
    Mutant("generation not raised", Rebalance, "_complete", _same_generation),
    Mutant("loading leaves commits out", Shard, "replay", _forgets_commits),
)
