"""Commits offsets: all commits of an event-loop turn to one shard become one batch, or several
batches if one would be too large for the log. Commits in transactions have batches of their own."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from klog_broker.coordinator.errors import append_client_error, client_error
from klog_broker.coordinator.group.offset_cleanup import GroupShard
from klog_broker.coordinator.group.offsets import OffsetAndMetadata, OffsetKey
from klog_broker.coordinator.group.shard_state import GroupShardState
from klog_broker.log.errors import LogError, RecordBatchTooLarge, RecordTooLarge
from klog_broker.runtime.event_loop.loop import Loop
from klog_broker.runtime.system.clock import Clock
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import UUID, TopicPartition
from pyspark_klog.records.layout import BATCH_HEADER_BYTES
from pyspark_klog.records.record_section import append_plain_record
from pyspark_klog.state_records.consumer_offsets import (
    NO_TOPIC_ID,
    encode_offset_key,
    encode_value,
)
from pyspark_klog.state_records.offset_commit import OffsetCommitValue

_NONE = ErrorCode.NONE

CommitAnswer = Callable[[Sequence[ErrorCode]], None]
"""Called with an error code for each commit of a request, in the order of the commits."""


class MemberName(NamedTuple):
    """How a request names a member: by member id; a static member also by instance id."""

    member_id: str
    instance_id: str | None = None


class Commit(NamedTuple):
    """One partition of an OffsetCommit or TxnOffsetCommit; ``commit_ms`` and ``expire_ms`` are -1
    if not given.

    ``topic_id`` is the id of the topic that currently has the name.
    """

    partition: TopicPartition
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int = -1
    expire_ms: int = -1
    topic_id: UUID = NO_TOPIC_ID


class CommitRequest(NamedTuple):
    """The commits of one request, from a member of the group or from a client that is no member."""

    group_id: str
    name: MemberName
    generation_id: int
    commits: Sequence[Commit]
    answer: CommitAnswer
    missing_group: ErrorCode = ErrorCode.ILLEGAL_GENERATION
    """The error for a member if its group does not exist."""


class PackableCommits(Protocol):
    """A commit request that encodes its records and stores its offsets, so that TurnCommits can
    append the requests of one event-loop turn as one batch."""

    @property
    def group_id(self) -> str: ...

    @property
    def name(self) -> MemberName: ...

    @property
    def generation_id(self) -> int: ...

    @property
    def missing_group(self) -> ErrorCode:
        """The error for a member if its group does not exist."""

    def pack(self, batch: bytearray, first_delta: int, now_ms: int) -> int:
        """Append the encoded records to ``batch`` (append_plain_record); returns their count.

        Their offset deltas start at ``first_delta``. Called again, for a batch of fewer requests,
        if the batch was too large for the log.
        """

    def apply(self, state: GroupShardState, offset: int) -> int:
        """Store the committed offsets of the request; their records are in the log from ``offset``
        on.

        Returns the offset after the records.
        """

    def answer_commits(self, error: ErrorCode) -> None:
        """Answer the request, once: NONE if the commits took effect, or else the error."""


def is_too_long(metadata: str, longest: int) -> bool:
    """Whether a commit's metadata exceeds offset.metadata.max.bytes.

    Kafka compares the setting, despite its name, with the length of a Java string: the number of
    UTF-16 units.
    """
    if len(metadata) * 2 <= longest:
        return False
    return len(metadata.encode("utf-16-le")) > longest * 2


class RequestedCommits:
    """The commits of a CommitRequest, which can encode their records and store their offsets
    (PackableCommits).

    ``metadata_max_bytes`` limits each commit's metadata (`is_too_long`).
    """

    __slots__ = ("_codes", "_metadata_max_bytes", "_now_ms", "_request", "group_id")

    def __init__(self, request: CommitRequest, metadata_max_bytes: int) -> None:
        self.group_id = request.group_id
        self._request = request
        self._metadata_max_bytes = metadata_max_bytes
        self._codes = [_NONE] * len(request.commits)
        self._now_ms = 0

    @property
    def name(self) -> MemberName:
        return self._request.name

    @property
    def generation_id(self) -> int:
        return self._request.generation_id

    @property
    def missing_group(self) -> ErrorCode:
        return self._request.missing_group

    def pack(self, batch: bytearray, first_delta: int, now_ms: int) -> int:
        """Encode a record for each commit of the request; a commit with too long metadata gets an
        error and no record."""
        delta = first_delta
        self._now_ms = now_ms
        for number, commit in enumerate(self._request.commits):
            if is_too_long(commit.metadata, self._metadata_max_bytes):
                self._codes[number] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            key = encode_offset_key(self.group_id, *commit.partition)
            append_plain_record(batch, delta, key, encode_value(commit_value(commit, now_ms)))
            delta += 1
        return delta - first_delta

    def apply(self, state: GroupShardState, offset: int) -> int:
        for commit, code in zip(self._request.commits, self._codes, strict=True):
            if code is _NONE:
                committed = OffsetAndMetadata.from_record(
                    commit_value(commit, self._now_ms), offset
                )
                state.store_offset(OffsetKey(self.group_id, *commit.partition), committed)
                offset += 1
        return offset

    def answer_commits(self, error: ErrorCode) -> None:
        codes = self._codes
        if error is not _NONE:
            codes = [error if code is _NONE else code for code in codes]
        self._request.answer(codes)


class TurnCommits:
    """Collects the commit requests of an event-loop turn, and appends them as one batch for each
    shard (as several, if one would be too large for the log).

    The append happens in the turn's append phase (Loop.call_at_append), after the requests that the
    turn received were handled. Requests keep their order, and each has its own errors. Whether a
    request may commit is checked only when the batch is made, because its member may have been
    fenced since the request arrived.
    """

    def __init__(self, loop: Loop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._collected: dict[GroupShard, list[PackableCommits]] = {}

    def add(self, shard: GroupShard, request: PackableCommits) -> None:
        """Append the request's commits in this event-loop turn; answer the request once the high
        watermark has passed the commits."""
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
            allowed = self._allowed(shard, requests)
            if allowed:
                _append(shard, allowed, now_ms)

    def _allowed(self, shard: GroupShard, requests: list[PackableCommits]) -> list[PackableCommits]:
        """Return the requests that may commit, and answer the others with their error."""
        shard_error = shard.serving_error()
        groups, time_ms = shard.state.groups, self._loop.time_ms
        allowed = []
        for request in requests:
            entry = groups.get(request.group_id)
            generation_id = request.generation_id
            if shard_error is not _NONE:
                error = shard_error
            elif entry is not None:
                member_id, instance_id = request.name
                error = entry.machine.check_commit(member_id, generation_id, time_ms, instance_id)
            else:
                error = _NONE if generation_id < 0 else request.missing_group
            if error is _NONE:
                allowed.append(request)
            else:
                request.answer_commits(error)
        return allowed


def _append(shard: GroupShard, requests: list[PackableCommits], now_ms: int) -> None:
    """Append the requests' commits as one batch, or as several if one batch would exceed the log's
    largest batch size."""
    batch = bytearray(BATCH_HEADER_BYTES)
    count = 0
    for request in requests:
        count += request.pack(batch, count, now_ms)

    def apply(offset: int) -> None:
        state = shard.state
        for request in requests:
            offset = request.apply(state, offset)

    try:
        if count:
            shard.append_packed(batch, count, now_ms, apply)
    except (LogError, BrokerError) as failure:
        if isinstance(failure, RecordTooLarge | RecordBatchTooLarge) and len(requests) > 1:
            half = len(requests) // 2
            _append(shard, requests[:half], now_ms)
            _append(shard, requests[half:], now_ms)
            return
        code = append_client_error(failure)
        for request in requests:
            request.answer_commits(code)
        return

    def respond(code: ErrorCode) -> None:
        error = client_error(code)
        for request in requests:
            request.answer_commits(error)

    shard.when_visible(respond)


def commit_value(commit: Commit, now_ms: int) -> OffsetCommitValue:
    """The value of a commit's record; its time is ``now_ms`` unless the commit names one."""
    return OffsetCommitValue(
        offset=commit.offset,
        leader_epoch=commit.leader_epoch,
        metadata=commit.metadata,
        commit_timestamp=commit.commit_ms if commit.commit_ms >= 0 else now_ms,
        expire_timestamp=commit.expire_ms,
        # A record with an expiry has version 1, which has no field for the topic id.
        topic_id=commit.topic_id if commit.expire_ms < 0 else NO_TOPIC_ID,
    )
