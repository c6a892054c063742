"""Transactions of 1, 100 and 10,000 records on 1 and on 50 connections; the cost of a batch."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks import _brokers
from benchmarks._brokers import Pair, Side
from benchmarks._load.generator import Generator
from benchmarks._load.jobs import (
    Measured,
    Messages,
    PipelinedProduce,
    TransactionalProducer,
    Transactions,
)
from benchmarks._report import load_note, median_of, per_cpu_second, print_row
from benchmarks._turns import in_turns, progress, sized
from benchmarks.rows import Row
from pyspark_klog.client.errors import broker_error
from pyspark_klog.errors import ErrorCode
from pyspark_klog.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from pyspark_klog.protocol.apis.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pyspark_klog.protocol.apis.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from pyspark_klog.protocol.keys import ApiKey
from tests.support.eventually import eventually

_TIMEOUT_MS = 600_000
_LAST_SINGLE_FIND = 3
_TRANSACTION_KEY_TYPE = 1
_MARKERS_DEADLINE_S = 30.0


@dataclass(frozen=True)
class _Case:
    """A case; ``bar`` is for the rate, None: 0.8 of the ratio of idempotent producers."""

    connections: int
    batches: int
    per_batch: int
    transactions: int
    bar: float | None
    cpu_bar: float | None = None

    @property
    def work(self) -> str:
        records = self.batches * self.per_batch
        what = f"transactions of {records:,} record" + ("s" if records > 1 else "")
        if self.connections > 1:
            return f"{what} on {self.connections} connections"
        return f"{what} on one connection"


_CASES = (
    _Case(1, 1, 1, 3_000, 2.0),
    _Case(1, 1, 100, 2_000, 2.0),
    _Case(1, 100, 100, 60, 2.0),
    _Case(50, 1, 1, 12_000, 1.0, 0.8),
    _Case(50, 1, 100, 8_000, 1.2),
    _Case(50, 100, 100, 150, None),
)
_OF_IDEMPOTENT = 0.8

# (messages of a request, requests) of each case.
_BATCHES = ((1, 80_000), (50, 20_000))


def run(_: argparse.Namespace) -> list[Row]:
    with _brokers.both() as pair, Generator() as generator:
        version = pair.common_version(ApiKey.PRODUCE)
        # Measure pipelined batches first: they load klog's kernels, which a broker loads in a quiet
        # moment.
        rows = [
            _batches(pair, generator, version, per_request, sized(requests))
            for per_request, requests in _BATCHES
        ]
        for case in _CASES:
            rows += _transactions(pair, generator, case, version)
        return rows


# --- transactions ---------------------------------------------------------------------------------
def _transactions(pair: Pair, generator: Generator, case: _Case, version: int) -> list[Row]:
    progress(case.work)

    def measure(*, is_transactional: bool) -> list[list[Measured]]:
        jobs = [
            partial(_run, side, generator, case, version, is_transactional=is_transactional)
            for side in (pair.klog, pair.kafka)
        ]
        return in_turns(*jobs)

    klog, kafka = measure(is_transactional=True)
    bar, note = case.bar, load_note(klog, kafka)
    if bar is None:
        plain = [median_of(each, "records") for each in measure(is_transactional=False)]
        ratio = plain[0] / plain[1]
        bar = round(_OF_IDEMPOTENT * ratio, 2)
        note += f"; idempotent {plain[0]:,.0f} / {plain[1]:,.0f} records/s, {ratio:.2f}x"
    retries = [sum(run.retries for run in each) for each in (klog, kafka)]
    note += f"; pauses for the transaction before {retries[0]:,} / {retries[1]:,}"
    rate = Row(
        case.work,
        "transactions/s",
        median_of(klog, "transactions"),
        median_of(kafka, "transactions"),
        bar,
        note=note,
    )
    return [print_row(rate), print_row(_cpu_row(case, klog, kafka))]


def _cpu_row(case: _Case, klog: Sequence[Measured], kafka: Sequence[Measured]) -> Row:
    return Row(
        case.work,
        "CPU us/transaction",
        _cpu_us(klog, "transactions"),
        _cpu_us(kafka, "transactions"),
        case.cpu_bar,
        lower_is_better=True,
    )


def _cpu_us(runs: Sequence[Measured], what: str) -> float:
    """The broker's CPU time for one of ``what``, over all runs, in microseconds."""
    return 1e6 / max(per_cpu_second(runs, what), 1e-6)


def _run(
    side: Side, generator: Generator, case: _Case, version: int, *, is_transactional: bool
) -> Measured:
    transactions = max(case.connections, sized(case.transactions))
    with side.topic("txn", case.connections) as topic:
        producers = [
            _begin(side, f"{topic}-{number:03}")
            if is_transactional
            else TransactionalProducer(*side.producer_id())
            for number in range(case.connections)
        ]
        target = side.target(topic)
        job = Transactions(
            target, version, producers, transactions, case.batches, Messages(case.per_batch)
        )
        measured = generator.run(job)
        # Every transaction has a marker in its partition, soon after the response to EndTxn.
        expected = measured.records + (transactions if is_transactional else 0)

        def is_complete() -> bool:
            ends = (side.end_offset(topic, number) for number in range(case.connections))
            return sum(ends) == expected

        eventually(is_complete, _MARKERS_DEADLINE_S, f"{side.name}: {expected} records in {topic}")
    return measured


# --- batches in one transaction -------------------------------------------------------------------
def _batches(
    pair: Pair, generator: Generator, version: int, per_request: int, requests: int
) -> Row:
    work = f"{per_request} message{'s' if per_request > 1 else ''} a request, acks=-1"
    work += ", in a transaction; beside idempotent"
    progress(work)

    def produce(side: Side, *, is_transactional: bool) -> Measured:
        with side.topic("txn") as topic:
            producer = (
                _begin(side, topic)
                if is_transactional
                else TransactionalProducer(*side.producer_id())
            )
            measured = generator.run(
                PipelinedProduce(
                    side.target(topic),
                    version,
                    -1,
                    requests,
                    Messages(per_request),
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    transactional_id=producer.transactional_id,
                )
            )
            side.expect_records(topic, measured.records)
            if is_transactional:
                _end(side, producer)
        return measured

    runs = in_turns(
        *(
            partial(produce, side, is_transactional=is_transactional)
            for side in (pair.klog, pair.kafka)
            for is_transactional in (True, False)
        )
    )
    rates = [median_of(each, "records") for each in runs]
    cpu = [_cpu_us(each, "records") for each in runs]
    note = f"both klog's; CPU us/msg {cpu[0]:.2f} / {cpu[1]:.2f}"
    note += f"; Kafka {rates[2]:,.0f} / {rates[3]:,.0f} msg/s, {rates[2] / rates[3]:.2f}x"
    return print_row(Row(work, "msg/s", rates[0], rates[1], _OF_IDEMPOTENT, note=note))


# --- producers ------------------------------------------------------------------------------------
def _begin(side: Side, transactional_id: str) -> TransactionalProducer:
    """Get a producer id and epoch for a transactional id."""
    deadline_ms = side.client.deadline()

    def find(_: int) -> FindCoordinatorRequest:
        return FindCoordinatorRequest(key=transactional_id, key_type=_TRANSACTION_KEY_TYPE)

    def initialize(_: int) -> InitProducerIdRequest:
        return InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=_TIMEOUT_MS
        )

    def init_producer() -> TransactionalProducer:
        link = side.client.link_to_any(deadline_ms)
        # FindCoordinator makes the broker create __transaction_state.
        side.client.call(link, FindCoordinatorResponse, find, low=1, high=_LAST_SINGLE_FIND)
        reply = side.client.call(link, InitProducerIdResponse, initialize)
        _check(reply.error_code, f"InitProducerId of {transactional_id}")
        return TransactionalProducer(reply.producer_id, reply.producer_epoch, transactional_id)

    return side.client.run_with_retries(
        init_producer, deadline_ms, f"{side.name} taking {transactional_id}"
    )


def _end(side: Side, producer: TransactionalProducer) -> None:
    """Commit the producer's transaction."""

    def build(_: int) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=producer.transactional_id or "",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=True,
        )

    link = side.client.link_to_any(side.client.deadline())
    reply = side.client.call(link, EndTxnResponse, build)
    _check(reply.error_code, f"EndTxn of {producer.transactional_id}")


def _check(number: int, what: str) -> None:
    if number != ErrorCode.NONE:
        raise broker_error(ErrorCode(number), what)
