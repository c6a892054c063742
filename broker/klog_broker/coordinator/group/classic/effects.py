"""What a decision of the group machine asks its surroundings to do."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark_klog.protocol.apis.join_group import JoinGroupResponse
from pyspark_klog.protocol.apis.sync_group import SyncGroupResponse

Reply = JoinGroupResponse | SyncGroupResponse


@dataclass(frozen=True, slots=True)
class Answer:
    """A parked request gets its reply."""

    waiter: object
    reply: Reply


@dataclass(slots=True)
class Effects:
    """Answers to send, and what must be appended to the group's log first.

    With ``assignments`` set, the caller appends the group's metadata record with these
    assignments (by member id; empty for a group that has become empty), applies it, and calls
    ``GroupMachine.appended``; or, if it can't be appended, ``GroupMachine.append_failed``.
    Answers leave when the high watermark has passed what was appended before them.
    """

    answers: list[Answer] = field(default_factory=list)
    assignments: Mapping[str, bytes] | None = None

    def answer(self, waiter: object | None, reply: Reply) -> None:
        if waiter is not None:
            self.answers.append(Answer(waiter, reply))
