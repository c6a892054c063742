"""Commits offsets in a producer's transaction: they take effect when the transaction is
committed."""

from klog_broker.coordinator.errors import append_client_error, client_error
from klog_broker.coordinator.group.classic.states import GroupState
from klog_broker.coordinator.group.commits import CommitRequest, commit_value, is_too_long
from klog_broker.coordinator.group.offset_cleanup import GroupShard
from klog_broker.coordinator.group.offsets import commit_key
from klog_broker.coordinator.group.shard_state import Records
from klog_broker.coordinator.shard import RecordProducer
from klog_broker.log.errors import LogError
from pyspark_klog.errors import BrokerError, ErrorCode

_NONE = ErrorCode.NONE


def check_sender(shard: GroupShard, request: CommitRequest) -> ErrorCode:
    """Return NONE if the sender of a TxnOffsetCommit may commit, else the error (KIP-447).

    The sender must be a member of the current generation, or must name neither member nor
    generation (if the group is empty: no generation), as in Kafka's ClassicGroup. Unlike
    OffsetCommit, TxnOffsetCommit is allowed during a rebalance: the
    transaction belongs to the producer, and members of a later generation wait for its end
    (require_stable).
    """
    entry = shard.state.groups.get(request.group_id)
    generation_id, (member_id, instance_id) = request.generation_id, request.name
    if entry is None:
        return _NONE if generation_id < 0 else request.missing_group
    group = entry.group
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation_id < 0 and group.state is GroupState.EMPTY:
        return _NONE
    if generation_id < 0 and not member_id and instance_id is None:
        return _NONE
    error = group.check_member(member_id, instance_id)
    if error is _NONE and generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def append_in_transaction(
    shard: GroupShard,
    request: CommitRequest,
    producer: RecordProducer,
    *,
    metadata_max_bytes: int,
    now_ms: int,
) -> None:
    """Append the commits now, as one batch of the producer; answer once the high watermark has
    passed the batch."""

    def respond(error: ErrorCode) -> None:
        request.answer([error if code is _NONE else code for code in codes])

    codes = [_NONE] * len(request.commits)
    error = check_sender(shard, request)
    if error is not _NONE:
        respond(error)
        return
    records: Records = []
    for number, commit in enumerate(request.commits):
        if is_too_long(commit.metadata, metadata_max_bytes):
            codes[number] = ErrorCode.OFFSET_METADATA_TOO_LARGE
        else:
            key = commit_key(request.group_id, commit.partition)
            records.append((key, commit_value(commit, now_ms)))
    try:
        if records:
            shard.append(records, producer)
    except (LogError, BrokerError) as failure:
        respond(append_client_error(failure))
        return
    shard.when_visible(lambda code: respond(client_error(code)))
