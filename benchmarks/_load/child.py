"""The load generator's process: a job on a line of stdin, its measurement on one of stdout."""

import json
import os
import select
import socket
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from benchmarks._load import frames, plans
from benchmarks._load.jobs import (
    AskAgain,
    ConcurrentProduce,
    FetchAll,
    Job,
    LibrdkafkaConsume,
    LibrdkafkaProduce,
    LoadFailed,
    Measured,
    PipelinedProduce,
    Transactions,
    read_job,
)
from benchmarks._load.running import (
    EVENT_BYTES,
    EVENT_FD_AT,
    Clock,
    connect,
    scratch,
    show_reply,
)
from pyspark_klog.protocol.headers import decode_response
from pyspark_klog.protocol.keys import ApiKey

_RING_BYTES = 512 * 1024
_INBOX_BYTES = 256 * 1024
_FETCH_SLACK_BYTES = 2 * 1024 * 1024
_MESSAGES_A_CALL = 1_000
Array = Any


def pipelined_produce(job: PipelinedProduce) -> Measured:
    """Run the job PipelinedProduce."""
    from benchmarks._load.produce_kernels import produce_pipelined

    made = frames.produce_frames(job, _RING_BYTES)
    shape = frames.reply_shape(job)
    inbox = np.zeros(_INBOX_BYTES, np.uint8)
    state = np.zeros(plans.STATE_WORDS, np.int64)
    plan = _plan(
        {
            plans.PLAN_REQUESTS: job.requests,
            plans.PLAN_RECORDS: job.messages.per_request,
            plans.PLAN_ACKS: job.acks,
            plans.PLAN_FRAME_BYTES: made.frame_bytes,
            plans.PLAN_FRAMES: made.ring_count,
            plans.PLAN_BATCH_START_AT: made.batch_start_at,
            plans.PLAN_BATCH_END_AT: made.batch_end_at,
            plans.PLAN_REPLY_BYTES: shape.size_bytes,
            plans.PLAN_REPLY_OFFSET_AT: shape.offset_at,
            plans.PLAN_SEQUENCED: int(job.producer_id >= 0),
            plans.PLAN_FIRST_OFFSET: job.first_offset,
        },
        job.timeout_s,
    )
    buffer = np.frombuffer(made.frames, np.uint8)
    with connect(job.target) as sock:
        clock = Clock(job.target)
        status = produce_pipelined(sock.fileno(), buffer, plan, inbox, state, scratch())
        batch_bytes = made.batch_end_at - made.batch_start_at
        records = job.requests * job.messages.per_request
        measured = clock.stop(job.requests, records, job.requests * batch_bytes)
    _check(status, state, inbox, ApiKey.PRODUCE, job.version)
    return measured


def concurrent_produce(job: ConcurrentProduce) -> Measured:
    """Run the job ConcurrentProduce."""
    from benchmarks._load.produce_kernels import produce_one_outstanding

    batch = frames.one_batch(job.messages)
    frame = np.frombuffer(
        frames.produce_frame(job.target, job.version, job.acks, 0, batch), np.uint8
    )
    shape = frames.reply_shape(job)
    inbox = np.zeros(job.connections * shape.size_bytes, np.uint8)
    state = np.zeros(plans.STATE_WORDS, np.int64)
    latencies_ns = np.zeros(job.requests, np.int64)
    plan = _plan(
        {
            plans.PLAN_REQUESTS: job.requests,
            plans.PLAN_RECORDS: job.messages.per_request,
            plans.PLAN_ACKS: job.acks,
            plans.PLAN_FRAME_BYTES: len(frame),
            plans.PLAN_REPLY_BYTES: shape.size_bytes,
            plans.PLAN_REPLY_OFFSET_AT: shape.offset_at,
            plans.PLAN_FIRST_OFFSET: job.first_offset,
            plans.PLAN_CONNECTIONS: job.connections,
            plans.PLAN_EVENT_BYTES: EVENT_BYTES,
            plans.PLAN_EVENT_FD_AT: EVENT_FD_AT,
        },
        job.timeout_s,
    )
    with ExitStack() as stack:
        epoll = stack.enter_context(select.epoll())
        sockets = [stack.enter_context(connect(job.target)) for _ in range(job.connections)]
        numbers = np.array([sock.fileno() for sock in sockets], np.int64)
        index_of = np.zeros(int(numbers.max()) + 1, np.int64)
        index_of[numbers] = np.arange(job.connections)
        for sock in sockets:
            epoll.register(sock, select.EPOLLIN)
        clock = Clock(job.target)
        status = produce_one_outstanding(
            epoll.fileno(),
            numbers,
            index_of,
            frame,
            plan,
            inbox,
            np.zeros(job.connections * EVENT_BYTES, np.uint8),
            np.zeros(2 * job.connections, np.int64),
            state,
            np.zeros(job.connections, np.int64),
            latencies_ns,
            scratch(),
        )
        records = job.requests * job.messages.per_request
        measured = clock.stop(job.requests, records, job.requests * len(batch))
    _check(status, state, inbox, ApiKey.PRODUCE, job.version)
    p50_us, p99_us = np.percentile(latencies_ns, [50, 99]) / 1000
    return replace(measured, p50_us=float(p50_us), p99_us=float(p99_us))


def fetch_all(job: FetchAll) -> Measured:
    """Run the job FetchAll."""
    from benchmarks._load.fetch_kernels import fetch_to_end

    frame, offset_at = frames.fetch_frame(job)
    expected, same_to = frames.fetch_reply(job)
    inbox = np.zeros(job.chunk_bytes + _FETCH_SLACK_BYTES, np.uint8)
    state = np.zeros(plans.STATE_WORDS, np.int64)
    plan = _plan(
        {
            plans.PLAN_FRAME_BYTES: len(frame),
            plans.PLAN_OFFSET_AT: offset_at,
            plans.PLAN_FIRST_OFFSET: job.first_offset,
            plans.PLAN_END_OFFSET: job.end_offset,
            plans.PLAN_CHECK_CRC: int(job.check_crc),
            plans.PLAN_SAME_TO: same_to,
        },
        job.timeout_s,
    )
    with connect(job.target) as sock:
        clock = Clock(job.target)
        status = fetch_to_end(
            sock.fileno(),
            np.frombuffer(frame, np.uint8),
            np.frombuffer(expected, np.uint8),
            plan,
            inbox,
            state,
            scratch(),
        )
        measured = clock.stop(
            int(state[plans.STATE_REPLIES]),
            int(state[plans.STATE_RECORDS]),
            int(state[plans.STATE_LOG_BYTES]),
        )
    _check(status, state, inbox, ApiKey.FETCH, job.version)
    return measured


def ask_again(job: AskAgain) -> Measured:
    """Run the job AskAgain."""
    from benchmarks._load.ask_kernels import ask_one_outstanding

    requests = [bytes.fromhex(frame) for frame in job.frames]
    with ExitStack() as stack:
        epoll = stack.enter_context(select.epoll())
        sockets = [stack.enter_context(connect(job.target)) for _ in requests]
        first = [
            _first_reply(sock, request, job)
            for sock, request in zip(sockets, requests, strict=True)
        ]
        if len({len(each) for each in requests}) > 1 or len({len(each) for each in first}) > 1:
            raise LoadFailed("the requests, or their replies, are not of one size")
        numbers = np.array([sock.fileno() for sock in sockets], np.int64)
        index_of = np.zeros(int(numbers.max()) + 1, np.int64)
        index_of[numbers] = np.arange(len(requests))
        for sock in sockets:
            epoll.register(sock, select.EPOLLIN)
        state = np.zeros(plans.STATE_WORDS, np.int64)
        latencies_ns = np.zeros(job.requests, np.int64)
        inbox = np.zeros(len(requests) * len(first[0]), np.uint8)
        plan = _plan(
            {
                plans.PLAN_REQUESTS: job.requests,
                plans.PLAN_FRAME_BYTES: len(requests[0]),
                plans.PLAN_REPLY_BYTES: len(first[0]),
                plans.PLAN_CONNECTIONS: len(requests),
                plans.PLAN_EVENT_BYTES: EVENT_BYTES,
                plans.PLAN_EVENT_FD_AT: EVENT_FD_AT,
            },
            job.timeout_s,
        )
        clock = Clock(job.target)
        status = ask_one_outstanding(
            epoll.fileno(),
            numbers,
            index_of,
            np.frombuffer(bytearray(b"".join(requests)), np.uint8),
            np.frombuffer(b"".join(first), np.uint8),
            plan,
            inbox,
            np.zeros(len(requests) * EVENT_BYTES, np.uint8),
            np.zeros(len(requests), np.int64),
            state,
            np.zeros(len(requests), np.int64),
            latencies_ns,
            scratch(),
        )
        measured = clock.stop(job.requests, 0, 0)
    _check(status, state, inbox, ApiKey(job.api_key), job.version)
    p50_us, p99_us = np.percentile(latencies_ns, [50, 99]) / 1000
    return replace(measured, p50_us=float(p50_us), p99_us=float(p99_us))


def _first_reply(sock: socket.socket, request: bytes, job: AskAgain) -> bytes:
    """Send a request; return its response, which must have no error."""
    sock.sendall(request)
    with sock.makefile("rb") as stream:
        size = stream.read(4)
        reply = size + stream.read(int.from_bytes(size, "big", signed=True))
    response = decode_response(reply[4:], ApiKey(job.api_key), job.version)
    errors = frames.errors_in(response)
    if errors:
        raise LoadFailed(f"the first reply has error codes {errors}: {response!r}")
    return reply


def librdkafka_produce(job: LibrdkafkaProduce) -> Measured:
    """Run the job LibrdkafkaProduce; the CPU time is that of all of librdkafka's threads."""
    from benchmarks._load.librdkafka import ClientFailed, Producer
    from benchmarks._load.rdkafka_kernels import produce_messages

    payload = np.arange(job.value_bytes, dtype=np.uint8)
    address = f"{job.target.host}:{job.target.port}"
    producer = Producer({"bootstrap.servers": address, **job.settings}, job.target.topic)
    timeout_ms = int(job.timeout_s * 1000)
    try:
        # The first message connects, loads metadata and gets a producer id, before the measurement.
        _hand_over(producer, produce_messages, job.target.partition, payload, 1)
        producer.flush(timeout_ms)
        clock = Clock(job.target)
        _hand_over(producer, produce_messages, job.target.partition, payload, job.count - 1)
        producer.flush(timeout_ms)
        return clock.stop(job.count - 1, job.count - 1, (job.count - 1) * job.value_bytes)
    except ClientFailed as error:
        raise LoadFailed(f"librdkafka: {error}") from error
    finally:
        producer.close()


def librdkafka_consume(job: LibrdkafkaConsume) -> Measured:
    """Run the job LibrdkafkaConsume; the CPU time is that of all of librdkafka's threads."""
    from benchmarks._load.librdkafka import Consumer
    from benchmarks._load.rdkafka_kernels import consume_messages

    address = f"{job.target.host}:{job.target.port}"
    messages = np.zeros(_MESSAGES_A_CALL, np.int64)
    deadline_ns = time.monotonic_ns() + int(job.timeout_s * 1e9)
    clock = Clock(job.target)
    consumer = Consumer(
        {"bootstrap.servers": address, **job.settings}, job.target.topic, job.target.partition
    )
    try:
        end = job.end_offset
        plan = np.array([end, job.value_bytes, deadline_ns], np.int64)
        taken = consume_messages(
            consumer.topic, job.target.partition, plan, messages, np.zeros(8, np.int64), scratch()
        )
        measured = clock.stop(taken, taken, taken * job.value_bytes)
    finally:
        consumer.close()
    if taken != end:
        raise LoadFailed(f"librdkafka: message {taken} of {end} is missing, late or another one")
    return measured


def _hand_over(producer: Any, kernel: Any, partition: int, payload: Array, count: int) -> None:
    taken = kernel(producer.topic, partition, payload, count)
    if taken != count:
        raise LoadFailed(f"librdkafka refused message {taken}: {producer.last_error()}")


def _plan(values: dict[int, int], timeout_s: float) -> Array:
    plan = np.zeros(plans.PLAN_WORDS, np.int64)
    for place, value in values.items():
        plan[place] = value
    plan[plans.PLAN_DEADLINE_NS] = time.monotonic_ns() + int(timeout_s * 1e9)
    return plan


def _check(status: int, state: Array, inbox: Array, api_key: ApiKey, version: int) -> None:
    if status == plans.STATUS_OK:
        return
    text = plans.STATUS_TEXTS[status]
    counts = f"{state[plans.STATE_SENT]} requests sent, {state[plans.STATE_REPLIES]} answered"
    if status == plans.STATUS_UNEXPECTED_REPLY:
        reply = show_reply(inbox[state[plans.STATE_REPLY_AT] :].tobytes(), api_key, version)
        text = f"{text}: {reply}; expected offset {state[plans.STATE_NEXT_OFFSET]}"
    raise LoadFailed(f"{text} ({counts})")


def run(job: Job) -> Measured:
    """Run a job; LoadFailed tells why it failed."""
    match job:
        case PipelinedProduce():
            return pipelined_produce(job)
        case ConcurrentProduce():
            return concurrent_produce(job)
        case FetchAll():
            return fetch_all(job)
        case LibrdkafkaProduce():
            return librdkafka_produce(job)
        case LibrdkafkaConsume():
            return librdkafka_consume(job)
        case AskAgain():
            return ask_again(job)
        case Transactions():
            from benchmarks._load.transactions import run_transactions

            return run_transactions(job)


def main() -> int:
    """Run jobs until stdin ends."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = {"measured": asdict(run(read_job(line)))}
        except (LoadFailed, OSError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(answer) + "\n")
        out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
