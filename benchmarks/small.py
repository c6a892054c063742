"""Small requests: an empty Fetch, Heartbeat and OffsetCommit, on one connection and on 200."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from benchmarks import _brokers
from benchmarks._brokers import Side
from benchmarks._load.bare import Bare, BareLoop
from benchmarks._load.frames import CLIENT_ID
from benchmarks._load.generator import Generator
from benchmarks._load.jobs import AskAgain, Measured, Target
from benchmarks._report import ceiling_note, load_note, median_of, per_cpu_second, print_row
from benchmarks._turns import in_turns, progress, sized
from benchmarks.rows import Row
from pyspark_klog.client.errors import broker_error
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from pyspark_klog.protocol.apis.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pyspark_klog.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from pyspark_klog.protocol.apis.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from pyspark_klog.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pyspark_klog.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from pyspark_klog.protocol.headers import RequestHeader, encode_request, encode_response
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response

_REQUESTS = {1: 20_000, 200: 60_000}
"""The number of requests, by the number of connections with one request outstanding each."""

_PARTITIONS = max(_REQUESTS)
_CHUNK_BYTES = 1_048_576
_SESSION_TIMEOUT_MS = 300_000
# The last version in which a member gets its id in one request, without MEMBER_ID_REQUIRED.
_LAST_JOIN_WITHOUT_ID = 3
_LAST_SINGLE_FIND = 3


@dataclass(frozen=True)
class _Kind:
    """A request that can be repeated with an equal response each time.

    ``prepare`` readies a side and returns the function that builds the request of connection number
    ``n``; ``reply`` has the shape of the response.
    """

    text: str
    api_key: ApiKey
    prepare: Callable[[Side, Target], Callable[[int], Request]]
    reply: Callable[[Target], Response]


def _empty_fetch(_: Side, topic: Target) -> Callable[[int], Request]:
    def build(number: int) -> Request:
        partition = FetchPartition(
            partition=number, fetch_offset=0, partition_max_bytes=_CHUNK_BYTES
        )
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=_CHUNK_BYTES,
            topics=[FetchTopic(topic_id=topic.uuid, partitions=[partition])],
        )

    return build


def _empty_answer(topic: Target) -> Response:
    partition = PartitionData(high_watermark=0, records=b"")
    return FetchResponse(
        responses=[FetchableTopicResponse(topic_id=topic.uuid, partitions=[partition])]
    )


def _heartbeats(side: Side, _: Target) -> Callable[[int], Request]:
    """A member of a group of its own for each connection."""
    members = [_join(side, f"beats-{number:03}") for number in range(_PARTITIONS)]

    def build(number: int) -> Request:
        generation_id, member_id = members[number]
        return HeartbeatRequest(
            group_id=f"beats-{number:03}", generation_id=generation_id, member_id=member_id
        )

    return build


def _join(side: Side, group: str) -> tuple[int, str]:
    """(generation, id) of the only member of a group."""

    def join(_: int) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=group,
            session_timeout_ms=_SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=_SESSION_TIMEOUT_MS,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )

    def find(_: int) -> FindCoordinatorRequest:
        return FindCoordinatorRequest(key=group)

    def enter() -> JoinGroupResponse:
        link = side.client.link_to_any(deadline_ms)
        # FindCoordinator makes the broker create __consumer_offsets.
        side.client.call(link, FindCoordinatorResponse, find, high=_LAST_SINGLE_FIND)
        reply = side.client.call(link, JoinGroupResponse, join, high=_LAST_JOIN_WITHOUT_ID)
        _check(reply.error_code, f"JoinGroup of {group}")
        return reply

    deadline_ms = side.client.deadline()
    joined = side.client.run_with_retries(enter, deadline_ms, f"{side.name} taking members")
    synced = side.client.call(
        side.client.link_to_any(deadline_ms),
        SyncGroupResponse,
        lambda _: SyncGroupRequest(
            group_id=group, generation_id=joined.generation_id, member_id=joined.member_id
        ),
        high=_LAST_JOIN_WITHOUT_ID,
    )
    _check(synced.error_code, f"SyncGroup of {group}")
    return joined.generation_id, joined.member_id


def _commits(_: Side, topic: Target) -> Callable[[int], Request]:
    """A group without members and a partition for each connection."""

    def build(number: int) -> Request:
        partition = OffsetCommitRequestPartition(
            partition_index=number, committed_offset=0, committed_metadata=""
        )
        return OffsetCommitRequest(
            group_id=f"commits-{number:03}",
            topics=[
                OffsetCommitRequestTopic(
                    name=topic.topic, topic_id=topic.uuid, partitions=[partition]
                )
            ],
        )

    return build


def _commit_answer(topic: Target) -> Response:
    partition = OffsetCommitResponsePartition()
    answered = OffsetCommitResponseTopic(
        name=topic.topic, topic_id=topic.uuid, partitions=[partition]
    )
    return OffsetCommitResponse(topics=[answered])


_KINDS = (
    _Kind("an empty Fetch", ApiKey.FETCH, _empty_fetch, _empty_answer),
    _Kind("Heartbeat", ApiKey.HEARTBEAT, _heartbeats, lambda _: HeartbeatResponse()),
    _Kind("OffsetCommit", ApiKey.OFFSET_COMMIT, _commits, _commit_answer),
)


def run(_: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    with _brokers.both() as pair, Generator() as generator, BareLoop() as bare:
        topics = [
            side.target(side.create_topic("small", _PARTITIONS)) for side in (pair.klog, pair.kafka)
        ]
        for kind in _KINDS:
            version = pair.common_version(kind.api_key)
            builds = [
                kind.prepare(side, topic)
                for side, topic in zip((pair.klog, pair.kafka), topics, strict=True)
            ]
            reply = Bare(reply=encode_response(0, kind.reply(topics[0]), version).hex())
            for connections in _REQUESTS:
                where = "one connection" if connections == 1 else f"{connections} connections"
                work = f"{kind.text} on {where} (version {version})"
                progress(work)
                klog, kafka = (
                    _job(kind, version, connections, build, topic)
                    for build, topic in zip(builds, topics, strict=True)
                )
                measured = in_turns(
                    partial(generator.run, klog),
                    partial(generator.run, kafka),
                    partial(_run_bare, bare, reply, generator, klog),
                )
                rows += _rows(work, *measured)
    return rows


def _job(
    kind: _Kind,
    version: int,
    connections: int,
    build: Callable[[int], Request],
    target: Target,
) -> AskAgain:
    header = RequestHeader(kind.api_key, version, 0, CLIENT_ID)
    frames = [encode_request(header, build(number)).hex() for number in range(connections)]
    return AskAgain(target, kind.api_key, version, frames, sized(_REQUESTS[connections]))


def _run_bare(bare: BareLoop, reply: Bare, generator: Generator, job: AskAgain) -> Measured:
    return generator.run(replace(job, target=bare.serve(reply)))


def _rows(
    work: str, klog: Sequence[Measured], kafka: Sequence[Measured], ceiling: Sequence[Measured]
) -> Iterator[Row]:
    yield print_row(
        Row(
            work,
            "requests/s",
            median_of(klog, "requests"),
            median_of(kafka, "requests"),
            1.0,
            note=load_note(klog, kafka),
        )
    )
    yield print_row(
        Row(
            work,
            "CPU us/request",
            1e6 / max(per_cpu_second(klog, "requests"), 1.0),
            1e6 / max(per_cpu_second(kafka, "requests"), 1.0),
            0.7,
            lower_is_better=True,
            note=ceiling_note(klog, ceiling, "requests", "requests/s"),
        )
    )


def _check(number: int, what: str) -> None:
    if number != ErrorCode.NONE:
        raise broker_error(ErrorCode(number), what)
