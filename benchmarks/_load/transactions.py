"""Carries out the job Transactions."""

import select
import socket
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks._load import frames, plans
from benchmarks._load import transaction_plans as places
from benchmarks._load.jobs import LoadFailed, Measured, Target, Transactions
from benchmarks._load.running import EVENT_BYTES, EVENT_FD_AT, Clock, connect, scratch, show_reply
from benchmarks._load.transaction_frames import END_VERSION, TransactionFrames, transaction_frames
from pyspark_klog.protocol.keys import ApiKey

# A connection's requests in flight fit into its socket's buffer, so that the generator need not
# wait.
_SEND_BUFFER_BYTES = 1024 * 1024
Array = Any


def run_transactions(job: Transactions) -> Measured:
    """Run the job Transactions."""
    from benchmarks._load.transaction_kernels import INBOX_BYTES, transact

    made = transaction_frames(job)
    connections = len(job.producers)
    plan = _plan(job, made)
    book = np.zeros((connections, places.BOOK_WORDS), np.int64)
    book[:, places.BOOK_PRODUCER_ID] = [each.producer_id for each in job.producers]
    book[:, places.BOOK_EPOCH] = [each.producer_epoch for each in job.producers]
    book[:, places.BOOK_LAST_OFFSET] = -1
    inbox = np.zeros(connections * INBOX_BYTES, np.uint8)
    shared = np.zeros(places.SHARED_WORDS, np.int64)
    took_ns = np.zeros(job.transactions, np.int64)
    with ExitStack() as stack:
        epoll = stack.enter_context(select.epoll())
        sockets = [stack.enter_context(_connect(job.target)) for _ in job.producers]
        numbers = np.array([sock.fileno() for sock in sockets], np.int64)
        book[:, places.BOOK_SOCKET] = numbers
        index_of = np.zeros(int(numbers.max()) + 1, np.int64)
        index_of[numbers] = np.arange(connections)
        for sock in sockets:
            epoll.register(sock, select.EPOLLIN)
        clock = Clock(job.target)
        status = transact(
            epoll.fileno(),
            index_of,
            plan,
            np.frombuffer(made.produce, np.uint8),
            np.frombuffer(made.ends, np.uint8),
            book.reshape(-1),
            inbox,
            np.zeros(connections * EVENT_BYTES, np.uint8),
            shared,
            took_ns,
            scratch(),
        )
        batches = job.transactions * job.batches
        records = batches * job.messages.per_request
        measured = clock.stop(batches, records, batches * made.batch_bytes)
    _check(status, shared, inbox, job)
    p50_us, p99_us = np.percentile(took_ns, [50, 99]) / 1000
    return replace(
        measured,
        p50_us=float(p50_us),
        p99_us=float(p99_us),
        transactions=job.transactions,
        retries=int(shared[places.SHARED_RETRIES]),
    )


def _connect(target: Target) -> socket.socket:
    sock = connect(target)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    return sock


def _plan(job: Transactions, made: TransactionFrames) -> Array:
    connections = len(job.producers)
    plan = np.zeros(places.TXN_WORDS, np.int64)
    for place, value in {
        places.TXN_TRANSACTIONS: job.transactions,
        places.TXN_BATCHES: job.batches,
        places.TXN_RECORDS: job.messages.per_request,
        places.TXN_IN_FLIGHT: job.in_flight,
        places.TXN_ENDS: int(job.producers[0].transactional_id is not None),
        places.TXN_CONNECTIONS: connections,
        places.TXN_DEADLINE_NS: time.monotonic_ns() + int(job.timeout_s * 1e9),
        places.TXN_PRODUCE_BYTES: len(made.produce) // connections,
        places.TXN_BATCH_START_AT: made.batch_start_at,
        places.TXN_BATCH_END_AT: made.batch_start_at + made.batch_bytes,
        places.TXN_OFFSET_AT: frames.reply_shape(job).offset_at,
        places.TXN_END_BYTES: len(made.ends) // connections,
        places.TXN_END_PRODUCER_AT: made.producer_at,
        places.TXN_ENDED_PRODUCER_AT: made.ended_producer_at,
        places.TXN_EVENT_BYTES: EVENT_BYTES,
        places.TXN_EVENT_FD_AT: EVENT_FD_AT,
    }.items():
        plan[place] = value
    return plan


def _check(status: int, shared: Array, inbox: Array, job: Transactions) -> None:
    if status == plans.STATUS_OK:
        return
    text = plans.STATUS_TEXTS[status]
    if status == plans.STATUS_UNEXPECTED_REPLY:
        is_produce = bool(shared[places.SHARED_IS_PRODUCE])
        api_key, version = (
            (ApiKey.PRODUCE, job.version) if is_produce else (ApiKey.END_TXN, END_VERSION)
        )
        reply = inbox[shared[places.SHARED_REPLY_AT] :].tobytes()
        text = f"{text}: {show_reply(reply, api_key, version)}"
    ended = f"{shared[places.SHARED_ENDED]} of {job.transactions} transactions ended"
    raise LoadFailed(f"{text} ({ended}, {shared[places.SHARED_RETRIES]} retries)")
