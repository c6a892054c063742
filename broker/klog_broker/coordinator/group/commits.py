"""Committing offsets: what the connections of a turn commit, one batch a shard."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from klog_broker.coordinator.errors import append_error, told
from klog_broker.coordinator.group.forgetting import GroupShard
from klog_broker.coordinator.group.offsets import commit_key
from klog_broker.coordinator.group.shard_state import Records
from klog_broker.log.errors import LogError, RecordBatchTooLarge, RecordTooLarge
from klog_broker.runtime.clock import Clock
from klog_broker.runtime.loop import Loop
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.state_records.offset_commit import OffsetCommitValue

_NONE = ErrorCode.NONE
# Of a string no character takes more in UTF-8.
_BYTES_A_CHARACTER = 4

CommitAnswer = Callable[[Sequence[ErrorCode]], None]
"""Takes a code for each commit of a request, in their order."""


class MemberName(NamedTuple):
    """How a request names a member: by id, and a static one by its instance id too."""

    member_id: str
    instance_id: str | None = None


class Commit(NamedTuple):
    """One partition of an OffsetCommit; ``commit_ms`` and ``expire_ms`` are -1 unless given."""

    partition: TopicPartition
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int = -1
    expire_ms: int = -1


class CommitRequest(NamedTuple):
    """What a group's member, or somebody outside of the group, commits at once."""

    group_id: str
    name: MemberName
    generation_id: int
    commits: Sequence[Commit]
    answer: CommitAnswer


class _Part(NamedTuple):
    """What a request adds to a batch."""

    records: Records
    codes: list[ErrorCode]
    answer: CommitAnswer

    def tell(self, error: ErrorCode) -> None:
        """NONE, or why nothing of it counts."""
        if error is _NONE:
            self.answer(self.codes)
        else:
            self.answer([error if code is _NONE else code for code in self.codes])


class TurnCommits:
    """The commits that are asked for in a turn: appended when its receiving is over, one batch a
    shard. Requests keep their order, and each has its own errors.

    ``check(shard, request)`` says whether the request may commit. It is asked when the batch is
    made: since the request came its member may have been fenced.
    """

    def __init__(
        self,
        loop: Loop,
        clock: Clock,
        *,
        metadata_max_bytes: int,
        check: Callable[[GroupShard, CommitRequest], ErrorCode],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._metadata_max_bytes = metadata_max_bytes
        self._check = check
        self._collected: dict[GroupShard, list[CommitRequest]] = {}

    def add(self, shard: GroupShard, request: CommitRequest) -> None:
        """Append the commits in this turn; answer once they are visible."""
        collected = self._collected
        if not collected:
            self._loop.call_at_append(self._append_collected)
        requests = collected.get(shard)
        if requests is None:
            collected[shard] = [request]
        else:
            requests.append(request)

    def _append_collected(self) -> None:
        collected, self._collected = self._collected, {}
        now_ms = self._clock.now_ms()
        for shard, requests in collected.items():
            parts = []
            for request in requests:
                error = shard.error() or self._check(shard, request)
                if error is _NONE:
                    parts.append(self._part(request, now_ms))
                else:
                    request.answer([error] * len(request.commits))
            if parts:
                _append(shard, parts)

    def _part(self, request: CommitRequest, now_ms: int) -> _Part:
        longest = self._metadata_max_bytes
        group_id, commits = request.group_id, request.commits
        codes = [_NONE] * len(commits)
        records: Records = []
        for number, commit in enumerate(commits):
            metadata = commit.metadata
            if len(metadata) * _BYTES_A_CHARACTER > longest and len(metadata.encode()) > longest:
                codes[number] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                key = commit_key(group_id, commit.partition)
                records.append((key, _commit_value(commit, now_ms)))
        return _Part(records, codes, request.answer)


def _append(shard: GroupShard, parts: list[_Part]) -> None:
    """Append as one batch; as several if that is more than a batch of the log may hold."""
    records = [record for part in parts for record in part.records]
    try:
        if records:
            shard.append(records)
    except (LogError, BrokerError) as failure:
        if isinstance(failure, RecordTooLarge | RecordBatchTooLarge) and len(parts) > 1:
            half = len(parts) // 2
            _append(shard, parts[:half])
            _append(shard, parts[half:])
            return
        code = append_error(failure)
        for part in parts:
            part.tell(code)
        return

    def tell(code: ErrorCode) -> None:
        error = told(code)
        for part in parts:
            part.tell(error)

    shard.when_visible(tell)


def _commit_value(commit: Commit, now_ms: int) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=commit.offset,
        leader_epoch=commit.leader_epoch,
        metadata=commit.metadata,
        commit_timestamp=commit.commit_ms if commit.commit_ms >= 0 else now_ms,
        expire_timestamp=commit.expire_ms,
    )
