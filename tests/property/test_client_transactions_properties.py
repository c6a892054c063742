"""Transactions through lost requests, late ones and refusals: all of each, or nothing, and once."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_klog.client.errors import TimedOut, TransactionMustAbort
from pyspark_klog.client.group_offsets import CommittedOffset
from pyspark_klog.client.transactions.producer import TransactionalProducer
from pyspark_klog.client.transactions.states import TransactionalProducerState
from pyspark_klog.errors import ErrorCode
from pyspark_klog.ids import TopicPartition
from pyspark_klog.protocol.apis.end_txn import EndTxnRequest
from pyspark_klog.protocol.message import Request
from tests.support.client.transaction_cases import put
from tests.support.client.transaction_model import PARTITIONS
from tests.support.client.transaction_world import Fate, World

_CODES = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Errors with which a broker may refuse any request, without carrying it out."""
_LOSSES = (Fate.LOST_BEFORE, Fate.LOST_AFTER)
_TRANSACTION = st.tuples(
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 3)), max_size=8),
    st.booleans(),
    st.sampled_from(["commit", "commit", "abort", "refuse"]),
)
"""Batches (partition, records), whether offsets are sent, and the end that is meant."""
_GIVES_UP = 60
_Ends = dict[TopicPartition, list[str]]


class _Run:
    """One producer, and what is to be committed at the end."""

    def __init__(
        self, version: int, *, verifies: bool, trouble: float, random: Random, most: int
    ) -> None:
        self.world = World(
            version,
            verifies=verifies,
            request_timeout_ms=400,
            delivery_timeout_ms=3_000,
            max_block_ms=1_500,
            retry_backoff_ms=20,
        )
        # A late batch cannot be recalled: a leader that verifies nothing appends it (KIP-890).
        late = (Fate.LATE,) if verifies else ()
        self._choices: tuple[Fate | ErrorCode, ...] = (*_CODES, *_LOSSES, *_LOSSES, *late)
        self._trouble, self._random, self._left = trouble, random, most
        self._refuse = False
        self.world.fate = self._fate
        self.world.on_send = self._on_send
        self.wanted: _Ends = {partition: [] for partition in PARTITIONS}
        self.offset: int | None = None
        self._running: _Ends = {}
        self.producer = TransactionalProducer(self.world.client, "id")
        self._until_done(self.producer.init_transactions)

    def transaction(
        self, number: int, batches: list[tuple[int, int]], has_offsets: bool, end: str
    ) -> None:
        producer = self.producer
        is_calm = not self._left and end != "refuse"
        self._running = {partition: [] for partition in PARTITIONS}
        self._until_done(producer.begin_transaction)
        try:
            for index, (to, count) in enumerate(batches):
                self._refuse = end == "refuse" and index == len(batches) - 1
                values = [f"{number}-{index}-{record}" for record in range(count)]
                self._running[PARTITIONS[to]] += values
                put(producer, PARTITIONS[to], *values)
            if has_offsets:
                offsets = {PARTITIONS[0]: CommittedOffset(number)}
                self._until_done(lambda: producer.send_offsets_to_transaction(offsets, "group"))
            if end == "abort":
                self._until_done(producer.abort_transaction)
                return
            self._until_done(producer.commit_transaction)
        except TransactionMustAbort:
            self._refuse = False
            assert not is_calm
            assert producer.state is TransactionalProducerState.MUST_ABORT
            self._until_done(producer.abort_transaction)
            return
        for partition, values in self._running.items():
            self.wanted[partition] += values
        self.offset = number if has_offsets else self.offset

    def _until_done(self, call: object) -> None:
        assert callable(call)
        for _ in range(_GIVES_UP):
            try:
                call()
                return
            except TimedOut:
                continue
        raise AssertionError("it never succeeds")

    def _fate(self, request: Request) -> Fate | ErrorCode:
        if self._refuse and request.api_key == 0:
            self._refuse = False
            return ErrorCode.INVALID_RECORD
        if not self._left or self._random.random() >= self._trouble:
            return Fate.ANSWERED
        self._left -= 1
        return self._random.choice(self._choices)

    def _on_send(self, request: Request) -> None:
        """No commit is sent before everything is written."""
        if isinstance(request, EndTxnRequest) and request.committed:
            for partition, values in self._running.items():
                log = self.world.model.logs[partition]
                whole = log.committed + log.open
                assert whole[len(whole) - len(values) :] == values


@settings(max_examples=400)
@given(
    shape=st.sampled_from([(0, False), (0, True), (2, True)]),
    transactions=st.lists(_TRANSACTION, min_size=1, max_size=6),
    trouble=st.sampled_from([0.1, 0.3, 0.6]),
    most=st.integers(0, 25),
    seed=st.integers(0, 2**32),
)
def test_every_transaction_is_whole(
    shape: tuple[int, bool],
    transactions: list[tuple[list[tuple[int, int]], bool, str]],
    trouble: float,
    most: int,
    seed: int,
) -> None:
    version, verifies = shape
    run = _Run(version, verifies=verifies, trouble=trouble, random=Random(seed), most=most)
    for number, transaction in enumerate(transactions):
        run.transaction(number, *transaction)
    assert run.producer.state is TransactionalProducerState.READY
    run.world.settle()
    logs = run.world.model.logs
    assert {partition: log.committed for partition, log in logs.items()} == run.wanted
    assert all(log.open == [] for log in logs.values())
    assert run.world.model.offsets.get(PARTITIONS[0]) == run.offset
